"""Command line of regimekit.

===============  ==========================================================================
commands         the commands and their options
console          text, JSON and progress output
pipeline         from the options of a command to a table, its columns and a model
stream_run       run a model over one table: `run`, `resume`
panel            one model per series: `run --by`
follow           a table that is still growing: `run --follow`
model_selection  several models or settings on one table: `compare`, `tune`
snapshots        the model of an earlier run: `inspect`, `label`, `forecast`, `report`
bridges          running systems: `prometheus`, `mqtt`, `follow-table`
demo             a generated stream with known regimes: `demo`
output           the result folder
===============  ==========================================================================

A function that implements a command takes its options under their names; `commands` describes them.
"""

from __future__ import annotations

from regimekit.cli.commands import app, main

__all__ = ["app", "main"]
