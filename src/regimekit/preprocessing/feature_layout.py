"""Where the terms of a feature map read and write."""

from __future__ import annotations

from typing import NamedTuple

from regimekit.preprocessing.feature_terms import Array, Index, Moment, Term


class Layout(NamedTuple):
    """Where each term reads and writes, for covariates of one shape."""

    shape: tuple[int, ...]
    labels: list[str]
    parts: list[tuple[Term, slice, Index | None]]

    def fill(self, out: Array, moment: Moment) -> Array:
        """Let every term write its features into `out`."""
        for term, where, index in self.parts:
            term.fill(out[..., where], index, moment)
        return out
