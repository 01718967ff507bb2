"""Compiled modules are imported from their extension, so doctest cannot collect their source."""

from pathlib import Path

collect_ignore = [
    str(file.with_suffix(".py")) for file in (Path(__file__).parent / "src").rglob("*.pxd")
]
