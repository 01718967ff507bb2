"""Stand-in for the compiled filter: the present `student_t_ihmm` behind the same interface."""

from __future__ import annotations

import numpy as np

import cython
from regimekit.results import CHANGES

if not cython.compiled:
    from regimekit.distributions.mixture import Mixture


class RegimeFilter:
    """A regime model in units, one observation at a time."""

    def __init__(self, model, dim):
        self.model = model
        self.forecast = Mixture(dim, 64)
        self.regime = -1
        self.ess = 1.0
        self.regime_probability = 1.0
        self.weight = 1.0

    def predict(self, design):
        self.ask(design)

    def update(self, y, design):
        self.learn(y, design)

    def ask(self, design):
        x = np.asarray(design)[0, 1:]
        f = self.model.predict(x if x.size else None)
        n = f.share.size
        self.forecast.size = 0
        self.forecast.reserve(n)
        self.forecast.size = n
        np.asarray(self.forecast.share)[:n] = f.share
        np.asarray(self.forecast.location)[:n] = f.location
        np.asarray(self.forecast.spread)[:n] = f.spread
        np.asarray(self.forecast.dof)[:n] = f.dof

    def learn(self, y, design):
        x = np.asarray(design)[0, 1:]
        step = self.model.update(np.array(y), x if x.size else None)
        self.regime = step.regime
        self.regime_probability = step.regime_probability
        self.change_probability = step.change_probability
        self.weight = step.weight
        self.ess = step.ess
        told = [e for e in step.events if e.kind in CHANGES]
        self.since = told[len(told) - 1].since if told else -1

    def ahead(self, horizon, table):
        """Forecasts of the next `horizon` observations, given (horizon, m - 1) covariates or None."""
        return self.model.forecast(horizon, table)

    def regimes(self):
        """The regimes remembered now."""
        return self.model.regimes()
