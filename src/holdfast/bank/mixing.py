"""Weights of the members, learnt online from what their distributions were worth.

Bernstein online aggregation (Wintenberger 2017) on the ranked probability score, linearised at the
mixture (as in CRPS learning, Berrisch and Ziel 2021): with l_m the derivative of the mixture's score
along member m, the regret r_m = sum_j w_j l_j - l_m gives

    V_m += r_m^2,  E_m = max |r_m|,  eta_m = min(1 / (2 E_m), sqrt(log(1 / pi_m) / V_m))
    R_m += r_m (1 - eta_m r_m),      w_m ~ pi_m eta_m exp(eta_m R_m)

which competes with the best *combination* of members, with a regret of order sqrt(V) and no constant
to choose. Sums are discounted so that the weights can follow change, and losses are bounded by the
grid they are taken on, so that one outlier elects nobody.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Mixer:
    """Weights over members that may join late."""

    def __init__(self, members: int = 0) -> None:
        self.regret = np.zeros(members)
        self.square = np.zeros(members)
        self.largest = np.zeros(members)
        self.fade = 1.0
        self.weight = np.full(members, 1.0 / max(members, 1))

    def join(self, members: int) -> None:
        """New members begin without regret, as if they had been as good as the mixture so far."""
        zeros = np.zeros(members)
        self.regret = np.append(self.regret, zeros)
        self.square = np.append(self.square, zeros)
        self.largest = np.append(self.largest, zeros)
        self._weigh()

    def learn(self, gradient: Array) -> None:
        """One observation: the derivative of the mixture's loss along each member."""
        r = float(self.weight @ gradient) - gradient
        np.maximum(self.largest, np.abs(r), out=self.largest)
        self.square = self.fade * self.square + r * r
        eta = self._rate()
        self.regret = self.fade * self.regret + r * (1 - eta * r)
        self._weigh()

    def _rate(self) -> Array:
        log_prior = math.log(max(self.regret.size, 2))
        return np.minimum(
            0.5 / np.maximum(self.largest, 1e-300), np.sqrt(log_prior / np.maximum(self.square, 1e-300))
        )

    def _weigh(self) -> None:
        eta = self._rate()
        known = self.square > 0
        eta = np.where(known, eta, eta[known].max() if known.any() else 1.0)
        exponent = eta * self.regret
        share = eta * np.exp(exponent - exponent.max())
        self.weight = share / share.sum()

    def pack(self) -> dict[str, NDArray[Any]]:
        """State for a snapshot."""
        names = ("regret", "square", "largest", "weight")
        return {f"mix_{name}": getattr(self, name).copy() for name in names}

    def unpack(self, arrays: dict[str, NDArray[Any]]) -> None:
        """Take up what `pack` gave."""
        for name in ("regret", "square", "largest", "weight"):
            setattr(self, name, arrays[f"mix_{name}"].copy())
