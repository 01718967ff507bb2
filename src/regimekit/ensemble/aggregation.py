"""Weights of the members, learnt online from what their distributions were worth.

Bernstein online aggregation (Wintenberger 2017) on the ranked probability score, linearised at the
mixture (as in CRPS learning, Berrisch and Ziel 2021): with l_m the derivative of the mixture's
score along member m, the regret r_m = sum_j w_j l_j - l_m gives

    V_m += r_m^2,  E_m = max |r_m|,  eta_m = min(1 / (2 E_m), sqrt(log M / V_m))
    R_m += r_m (1 - eta_m r_m),      w_m ~ eta_m exp(eta_m R_m) p_m^f,  f = exp(-n / 100)

which competes with the best *combination* of members, with a regret of order sqrt(V log M) and no
rate to choose. Sums are discounted over `MEMORY` observations so that the weights can follow
change, the prior p is forgotten with the number n of observations that a member has taken part in,
and losses are bounded by the grid they are taken on, so that one outlier elects nobody.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regimekit.serialization.validation import Arrays

Array = NDArray[np.float64]

MEMORY = 500
SWAYED = 100.0  # observations over which the prior is forgotten
_FADE = 1.0 - 1.0 / MEMORY
_SUMS = ("regret", "square", "largest")
_TINY = 1e-300
_LARGEST_SUM = 1e18  # losses are bounded by the grid they are taken on


class Mixer:
    """Weights over members; some may only watch, some rest, others join late.

    Args:
        active: (M,) which members take part.
        prior: (M,) what each is worth beforehand, relative to the others; all the same by default.

    Example:
        >>> mixer = Mixer(np.ones(2, bool))
        >>> for _ in range(50):
        ...     mixer.learn(np.array([0.1, 0.3]))
        >>> bool(mixer.weight[0] > 0.9)
        True
    """

    def __init__(self, active: NDArray[np.bool_], prior: Array | None = None) -> None:
        self.active = active
        self.prior = np.ones(active.size) if prior is None else prior
        self.present = np.ones(active.size, bool)  # the others rest: time stands still for them
        self.regret, self.square, self.largest = (np.zeros(active.size) for _ in _SUMS)
        self.tally = np.zeros((3, active.size))
        self._weigh()

    def learn(self, gradient: Array) -> None:
        """One observation: the derivative of the mixture's loss along each member."""
        r = np.where(self.present, float(self.weight @ gradient) - gradient, 0.0)
        fade = np.where(self.present, _FADE, 1.0)
        np.maximum(self.largest, np.abs(r), out=self.largest)
        self.square = fade * self.square + r * r
        self.regret = fade * self.regret + r * (1.0 - self._rate() * r)
        self._weigh()

    def attend(self, present: NDArray[np.bool_]) -> None:
        """Say who is there; who is not has no weight, and keeps its sums as they are."""
        self.present = present
        self._weigh()

    def count(self, losses: Array, mixed: float) -> None:
        """Keep the books: each member's loss, the mixture's beside it, and how many."""
        books = np.stack([losses, np.full(losses.size, mixed), np.ones(losses.size)])
        self.tally += np.where(self.present, books, 0.0)
        self._weigh()

    def against_members(self) -> Array:
        """(M,) the mixture's mean loss over each member's, since that member joined; 1 is even."""
        return np.asarray(self.tally[1] / np.maximum(self.tally[0], _TINY))

    def regroup(
        self, before: list[str], now: list[str], active: NDArray[np.bool_], prior: Array
    ) -> None:
        """Members come and go: known names keep their sums, new ones begin without regret."""
        at = {name: i for i, name in enumerate(before)}
        for name in _SUMS:
            old = getattr(self, name)
            setattr(self, name, np.array([old[at[n]] if n in at else 0.0 for n in now]))
        nothing = np.zeros(3)
        self.tally = np.stack([self.tally[:, at[n]] if n in at else nothing for n in now], axis=1)
        self.active, self.prior = active, prior
        self.attend(np.ones(active.size, bool))

    def _rate(self) -> Array:
        square = np.maximum(self.square, _TINY)
        by_sum = np.sqrt(math.log(max(self.active.sum(), 2)) / square)
        return np.minimum(0.5 / np.maximum(self.largest, _TINY), by_sum)

    def _weigh(self) -> None:
        eta = self._rate()
        known = self.square > 0
        eta = np.where(known, eta, eta[known].max() if known.any() else 1.0)
        heard = self.active & self.present
        beforehand = np.log(self.prior) * np.exp(-self.tally[2] / SWAYED)
        exponent = np.where(heard, eta * self.regret + beforehand, -np.inf)
        share = eta * np.exp(exponent - exponent.max()) if heard.any() else eta
        self.weight = share / share.sum() if share.size else share

    def pack(self) -> dict[str, NDArray[Any]]:
        """State for a snapshot."""
        names = (*_SUMS, "tally")
        return {f"mix.{name}": getattr(self, name).copy() for name in names}

    def unpack(self, arrays: Arrays) -> None:
        """Take up what `pack` gave."""
        n, most = self.active.size, _LARGEST_SUM
        self.regret = arrays.floats("mix.regret", (n,), -most, most)
        self.square, self.largest = (
            arrays.floats(f"mix.{name}", (n,), 0.0, most) for name in _SUMS[1:]
        )
        self.tally = arrays.floats("mix.tally", (3, n), 0.0, most)
        self._weigh()
