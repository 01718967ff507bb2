"""`python -m regimekit.cli` is `regimekit`."""

from __future__ import annotations

from regimekit.cli.app import main

main()
