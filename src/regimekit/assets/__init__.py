"""Static files of web pages: charts.js and style.css, and uPlot with its licence."""

from __future__ import annotations

from importlib.resources import files


def read(*parts: str) -> str:
    """Return the text of an asset.

    Args:
        *parts: parts of its path inside this package.

    Example:
        >>> "MIT License" in read("uplot", "LICENSE")
        True
    """
    return files(__name__).joinpath(*parts).read_text(encoding="utf-8")
