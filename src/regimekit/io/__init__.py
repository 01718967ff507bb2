"""Read tables (CSV, Parquet, JSON lines, databases, SQL) as streams of observations.

============  ==================================================================
reader        open a table and read its rows in chunks
layout        detect the target, the time and the notation of the cells
reshaping     dates in several columns, wide tables, tables with several series
cell_parsing  parse one cell as a number or a time stamp
spreadsheet   read a sheet of a workbook
observations  convert rows into observations, one series at a time
tail          read the lines of a file or pipe that is still growing
temporary     temporary folders that disappear with their process
columns       convert runs, events, regimes and forecasts into columns for files
============  ==================================================================
"""

from __future__ import annotations

from regimekit.io.layout import ColumnChoice, Layout, detect_layout
from regimekit.io.observations import Observation, ObservationBlock, ObservationReader
from regimekit.io.reader import Source, TableRequest, open_source
from regimekit.preprocessing.time_column import TimeColumn

__all__ = [
    "ColumnChoice",
    "Layout",
    "Observation",
    "ObservationBlock",
    "ObservationReader",
    "Source",
    "TableRequest",
    "TimeColumn",
    "detect_layout",
    "open_source",
]
