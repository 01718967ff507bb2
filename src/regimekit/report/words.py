"""Numbers as a person reads them."""

from __future__ import annotations

import math

NONE = "\N{EN DASH}"


def number(value: float) -> str:
    """Four significant digits, without an exponent where that is short; a dash for NaN.

    Example:
        >>> number(12345.678), number(0.000123456), number(3.0), number(float("nan"))
        ('12346', '0.0001235', '3', '–')
    """
    if math.isnan(value):
        return NONE
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    size = abs(value)
    if size and not 1e-5 <= size < 1e7:
        return f"{value:.4g}"
    if size >= 1000:
        return f"{value:.0f}"
    digits = 3 - math.floor(math.log10(size)) if size else 0
    return _short(f"{value:.{min(max(digits, 0), 9)}f}")


def rounded(value: float, spread: float) -> str:
    """A number with as many decimals as its spread deserves: three digits of the spread.

    Example:
        >>> rounded(-0.003119, 1.2), rounded(50123.456, 20.0)
        ('0', '50123.5')
    """
    if not (math.isfinite(value) and math.isfinite(spread) and spread > 0):
        return number(value)
    digits = 2 - math.floor(math.log10(spread))
    if not -6 <= digits <= 9 or abs(value) >= 1e12:
        return number(value)
    return _short(f"{round(value, digits):.{max(digits, 0)}f}")


def percent(share: float) -> str:
    """A share as percent, small ones with a decimal.

    Example:
        >>> [percent(share).split() for share in (0.25, 0.0123, 0.0)]
        [['25', '%'], ['1.2', '%'], ['0', '%']]
    """
    if math.isnan(share):
        return NONE
    value = 100 * share
    small = 0 < value < 9.95 or 99 < value < 100
    return f"{_short(f'{value:.1f}') if small else f'{value:.0f}'}\N{NO-BREAK SPACE}%"


def count(n: int) -> str:
    """A count with narrow spaces between thousands.

    Example:
        >>> ascii(count(100000))
        "'100\\\\u202f000'"
    """
    return f"{n:,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def _short(text: str) -> str:
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text
