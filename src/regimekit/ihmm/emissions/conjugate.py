"""Emissions whose statistics add up: two rows can be asked whether they are one, and joined (D11).

With eta_0 the prior's natural parameters and eta_a, eta_b those of what each row has seen, one row
that has seen both has eta_a + eta_b - eta_0, and with log Z the log of the normaliser

    log Bayes factor of one against two = log Z(a + b - 0) + log Z(0) - log Z(a) - log Z(b).
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from regimekit.ihmm.emissions.base import Emission, Rows

Natural = tuple[Any, ...]  # the emission's own statistics, in its own order


class Part(NamedTuple):
    """What a row has seen, its prior included: natural parameters and log Z."""

    natural: Natural
    log_partition: float


class Conjugate(Emission):
    """An emission with natural parameters."""

    @abstractmethod
    def natural(self, rows: Rows, row: int) -> Natural:
        """Statistics of a row that add up over observations."""

    @abstractmethod
    def log_partition(self, *natural: Any) -> float:
        """log Z, up to what all rows share; LinAlgError where it does not exist."""

    @abstractmethod
    def write_natural(self, rows: Rows, row: int, natural: Natural) -> None:
        """Write the row that has these statistics."""

    @cached_property
    def prior_part(self) -> Part:
        """What a row knows that has seen nothing."""
        rows = self.blank(1)
        self.write_prior(rows, 0)
        return self.part(rows, 0)

    def part(self, rows: Rows, row: int) -> Part:
        """What a row has seen."""
        natural = self.natural(rows, row)
        return Part(natural, self.log_partition(*natural))

    def log_same(self, a: Part, b: Part) -> float:
        """Log Bayes factor of one regime against two for what a and b have seen."""
        try:
            joint = self.log_partition(*self._joint(a, b))
        except np.linalg.LinAlgError:  # the two know no more than the prior did
            return -np.inf
        return joint + self.prior_part.log_partition - a.log_partition - b.log_partition

    def join(self, rows: Rows, a: Part, b: Part, into: int) -> None:
        """Write the row that has seen what a and b have seen."""
        self.write_natural(rows, into, self._joint(a, b))

    def _joint(self, a: Part, b: Part) -> Natural:
        parts = a.natural, b.natural, self.prior_part.natural
        return tuple(x + y - z for x, y, z in zip(*parts, strict=True))
