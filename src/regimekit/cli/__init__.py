"""The command line: a thin door over the library's public functions.

app            the commands, registered; nothing heavy is imported before one of them runs
options        arguments that commands share
voice          what is said, and where: words, JSON or nothing
job            what the options ask for, checked before anything runs
destination    files that appear all at once, or not at all
batch          a whole table through a model, block by block
live           a table that still grows
"""

from __future__ import annotations

from regimekit.cli.app import app, main

__all__ = ["app", "main"]
