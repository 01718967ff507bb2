"""The one type of a mixture of Student-t components in the compiled core."""

from __future__ import annotations

import numpy as np


class Mixture:
    """A mixture of Student-t components as arrays with room to grow.

    Only the first `size` entries of each array count.

    Args:
        dim: number of coordinates d.
        capacity: number of components to make room for.

    Attributes:
        size: number of components.
        dim: number of coordinates d.
        share: (capacity,) probability of each component.
        location: (capacity, d) centre of each component.
        spread: (capacity, d, d) squared scale matrix of each component.
        dof: (capacity,) degrees of freedom; infinity for a Gaussian component.
    """

    def __init__(self, dim, capacity=16):
        self.dim = dim
        self.size = 0
        self.share = np.zeros(capacity)
        self.location = np.zeros((capacity, dim))
        self.spread = np.zeros((capacity, dim, dim))
        self.dof = np.zeros(capacity)

    def reserve(self, capacity):
        """Make room for at least `capacity` components; the present ones are kept."""
        if capacity <= self.share.shape[0]:
            return
        grown = Mixture(self.dim, max(capacity, 2 * self.share.shape[0]))
        n = self.size
        np.asarray(grown.share)[:n] = np.asarray(self.share)[:n]
        np.asarray(grown.location)[:n] = np.asarray(self.location)[:n]
        np.asarray(grown.spread)[:n] = np.asarray(self.spread)[:n]
        np.asarray(grown.dof)[:n] = np.asarray(self.dof)[:n]
        self.share, self.location = grown.share, grown.location
        self.spread, self.dof = grown.spread, grown.dof
