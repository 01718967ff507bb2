"""Text and HTML representation of results, for terminals and notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import numpy as np

WIDTH = 88  # maximum characters of a line
_MAX_NUMBERS = 4  # of a vector


def number(value: float) -> str:
    """Format a number with five significant digits.

    Example:
        >>> number(30123.4567), number(0.5)
        ('30123', '0.5')
    """
    return f"{value:.5g}"


def vector(values: Any) -> str:
    """Format a number, or the first four of several.

    Args:
        values: number or numbers.

    Example:
        >>> vector(1.5), vector([1.0, 2.0]), vector(range(9))
        ('1.5', '[1, 2]', '[0, 1, 2, 3, ..]')
    """
    flat = np.ravel(np.asarray(values, dtype=float))
    if np.ndim(values) == 0 or flat.size == 1:
        return number(float(flat[0]))
    shown = [number(float(v)) for v in flat[:_MAX_NUMBERS]]
    return f"[{', '.join(shown)}{', ..' if flat.size > _MAX_NUMBERS else ''}]"


def count(n: int, noun: str) -> str:
    """Format a count with its noun, which gets a plural s unless n is 1.

    Example:
        >>> count(1, "regime"), count(2, "regime")
        ('1 regime', '2 regimes')
    """
    return f"{n} {noun}{'' if n == 1 else 's'}"


def short(text: str, width: int = WIDTH) -> str:
    """Return text, truncated to a width.

    Example:
        >>> short("a long story", 8)
        'a lon ..'
    """
    return text if len(text) <= width else text[: width - 3] + " .."


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table as text with right-aligned columns.

    Example:
        >>> print(table(["", "to 0"], [["from 0", "0.9"]]))
                to 0
        from 0   0.9
    """
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[j]) for line in lines) for j in range(len(header))]
    return "\n".join(
        "  ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True)) for line in lines
    )


def html(title: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Format a table as HTML; all text is escaped.

    Args:
        title: caption.
        header: name of each column.
        rows: cells of each row.

    Example:
        >>> html("One", ["a"], [["<1"]])[:20], "&lt;1" in html("One", ["a"], [["<1"]])
        ('<table><caption>One<', True)
    """
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    head = f"<thead><tr>{head}</tr></thead>" if head else ""
    return f"<table><caption>{escape(title)}</caption>{head}<tbody>{body}</tbody></table>"
