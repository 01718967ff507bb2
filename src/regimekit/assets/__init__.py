"""Files of other projects that travel with regimekit, each beside its licence."""

from __future__ import annotations

from importlib.resources import files


def read(*parts: str) -> str:
    """Text of one of these files, by the parts of its path.

    Example:
        >>> "MIT License" in read("uplot", "LICENSE")
        True
    """
    return files(__name__).joinpath(*parts).read_text(encoding="utf-8")
