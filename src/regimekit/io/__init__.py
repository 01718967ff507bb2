"""Tables as people keep them (CSV, Parquet, JSON lines, databases) read as one stream.

source   where the rows come from, in chunks, and how the file is written
cells    one cell as a number or a time, in the notation of the file
layout   which column is the target, which the time
clock    how often the stream speaks; repeats, gaps and disorder of its time stamps
reading  rows turned into observations, with the missing ones of every gap
tail     rows of a file or a pipe that still grows
"""

from __future__ import annotations

from regimekit.io.clock import Clock
from regimekit.io.layout import Layout, Wishes, find_layout
from regimekit.io.reading import Block, Observation, Reading, blocks
from regimekit.io.source import Request, Source, open_source

__all__ = [
    "Block",
    "Clock",
    "Layout",
    "Observation",
    "Reading",
    "Request",
    "Source",
    "Wishes",
    "blocks",
    "find_layout",
    "open_source",
]
