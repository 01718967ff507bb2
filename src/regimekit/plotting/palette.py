"""Colours that stay with a regime's id, in every picture and page.

Okabe and Ito's palette, which the colour-blind can read and a printer can print. Vermilion is
kept for outliers, so that no regime looks like one. The colours repeat after seven regimes; the
second seven are striped one way, the third seven the other way.
"""

from __future__ import annotations

from typing import NamedTuple

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
OUTLIER = PALETTE[5]
REGIMES = tuple(colour for colour in PALETTE if colour != OUTLIER)
STRIPES = ("", "/", "\\")


class Look(NamedTuple):
    """How a regime is drawn: a fill, and stripes over it or none."""

    colour: str
    stripe: str


def look(regime: int) -> Look:
    """The look that stays with this id.

    Example:
        >>> look(0), look(7)
        (Look(colour='#0072B2', stripe=''), Look(colour='#0072B2', stripe='/'))
    """
    lap, place = divmod(regime, len(REGIMES))
    return Look(REGIMES[place], STRIPES[lap % len(STRIPES)])
