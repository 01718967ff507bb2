"""Run the command line with `python -m regimekit.cli`."""

from __future__ import annotations

from regimekit.cli.commands import main

main()
