"""`python -m holdfast.cli` is `holdfast`."""

from __future__ import annotations

from holdfast.cli.app import main

main()
