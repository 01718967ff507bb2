"""The compiled step of `auto`: scaling, ensemble, calibration and regime selection of one stream.

One observation takes these steps: the forecast of it in the user's units, the scaling, the members,
the correction of intervals, the selection of a regime model, the search for seasons. Rare events
(new units, a season found, a warning) go through Python.
"""

from __future__ import annotations

import cython
import numpy as np
from cython.cimports.libc.math import isnan, sqrt

from regimekit.distributions.mixture import Mixture
from regimekit.ensemble import seasonality
from regimekit.ensemble.calibration import Calibration
from regimekit.ensemble.ensemble import DEPTH, Ensemble
from regimekit.ensemble.history import History
from regimekit.ensemble.known_values import KnownValues
from regimekit.ensemble.regime_selection import RegimeSelection
from regimekit.ensemble.regime_views import LevelView
from regimekit.ensemble.shape_view import ShapeView
from regimekit.preprocessing.scaling import CovariateScaler, Standardizer
from regimekit.results import OUTLIER, Event

if not cython.compiled:
    from regimekit.distributions.mixture import joint_log_density, joint_tail
    from regimekit.distributions.student_t import log_mixture, mixture_tail

WINDOW = 1024  # observations stored to rebuild from
LONG_WINDOW = 4096  # observations stored for a season of more than a quarter of WINDOW
REPLAY = 500  # of which a member that joins late is given so many
_CHECK_INTERVAL = cython.declare(cython.longlong, 1000)
_FIRST_CHECKS = list(range(8, 20)) + [round(20 * 1.1**k) for k in range(42)]
# A probability of being regular below this makes an outlier.
_OUTLIER = cython.declare(cython.double, 0.2)
_MAX_VALUE = cython.declare(cython.double, 1e130)  # of an observation
# Largest scale of a component: in ranges of the past, and, if that is more, in units.
_MAX_RANGES = cython.declare(cython.double, 0.5)
_MAX_UNITS = cython.declare(cython.double, 100.0)
# Largest over smallest value from which logarithms have weight.
_MIN_LOG_RANGE = cython.declare(cython.double, 1.5)
# Centre over unit from which there are logarithms; squares of far smaller ones would underflow.
_MIN_LOG_CENTRE = cython.declare(cython.double, 1e-9)
_MIN_WEIGHT = cython.declare(cython.double, 2.2250738585072014e-308)
# Components of the forecast with a smaller share than this times the largest are dropped.
_MIN_SHARE = cython.declare(cython.double, 1e-4)
_MAX_SEASONS = 2  # at a time
MAX_FOUND = 350  # observations; longer seasons serve forecasts of several steps only
_N_OUTLIERS = 20  # latest outliers whose times are stored
# Discount of the share of outliers among the latest observations.
_ADVICE_DISCOUNT = cython.declare(cython.double, 0.98)
# Share of outliers, and distance of the coverage from 90 %, that are worth a warning.
_MANY_OUTLIERS = cython.declare(cython.double, 0.5)
_WRONG_COVERAGE = cython.declare(cython.double, 0.08)
# Observations before either warning, and the count at which the target is checked.
_OUTLIERS_AFTER = cython.declare(cython.longlong, 100)
_COVERAGE_AFTER = cython.declare(cython.longlong, 400)
_TARGET_AT = cython.declare(cython.longlong, 20)
# Least probability of a regime that is reported although the selected model has left it.
_LEAST_PROBABILITY = cython.declare(cython.double, 1e-6)


class Columns:
    """Results of consecutive observations: one row each, and the components of their forecasts.

    Args:
        n: number of rows.
        dim: number of coordinates d.

    Attributes:
        offset: (n + 1,) first component of each row in `parts`.
        weight, outlier, regime, regime_probability, change_probability, n_regimes, ess: (n,), as
            in `regimekit.results.Step`.
    """

    def __init__(self, n, dim):
        self.size = 0
        self.offset = np.zeros(n + 1, np.int64)
        self.regime, self.n_regimes, self.outlier = (np.zeros(n, np.int64) for _ in range(3))
        self.weight, self.regime_probability = np.zeros(n), np.zeros(n)
        self.change_probability, self.ess = np.zeros(n), np.zeros(n)
        self.parts = Mixture(dim, max(64 * n, 160))

    def add_room(self, n):
        """Make room for n more components."""
        self.parts.reserve(self.parts.size + n)

    def add_forecast(self, law):
        """Append the components of one forecast."""
        first: cython.Py_ssize_t = self.parts.size
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        k: cython.Py_ssize_t
        if first + law.size > self.parts.share.shape[0]:
            self.add_room(law.size)
        for k in range(law.size):
            self.parts.share[first + k] = law.share[k]
            self.parts.dof[first + k] = law.dof[k]
            for i in range(law.dim):
                self.parts.location[first + k, i] = law.location[k, i]
                for j in range(law.dim):
                    self.parts.spread[first + k, i, j] = law.spread[k, i, j]
        self.parts.size = first + law.size
        self.offset[self.size + 1] = self.parts.size


class Engine:
    """The state of `auto` after the first observation: dimension and covariates are known.

    Args:
        lineup: the members (`regimekit.ensemble.design.Lineup`).
        advice: receives warnings (`regimekit.ensemble.explain.Advice`).
        dim: number of coordinates d.
        n_x: number of covariates.
        seed: of the regime models.
        seasons: periods known.
        begin: begin the regime models; otherwise their state must be restored.

    Attributes:
        time: number of observations.
        forecast: mixture of the next observation in the user's units, after `expect`.
        seasons: periods found.
        outliers: times of the latest outliers; n_outliers their number.
    """

    FIELDS = {
        "time": ("int64", (), 0, 2**53),
        "n_outliers": ("int64", (), 0, 2**53),
        "outlier_share": ("float64", (), 0.0, 1.0),
        "lowest": ("float64", ("dim",), -1e130, 1e130),
        "highest": ("float64", ("dim",), -1e130, 1e130),
        "scaling": "object",
        "covariate_scaler": "object",
        "rows": ("float64", (None, "n_x"), -1e140, 1e140),
        "history": "object",
        "known_values": "object",
        "calibration": "object",
        "ensemble": "object",
        "selection": "object",
        "level": "object",
        "shape": "object",
    }

    def __init__(self, lineup, advice, dim, n_x, seed, seasons=(), begin=True):
        self.lineup, self.advice = lineup, advice
        self.dim, self.n_x, self.seed = dim, n_x, seed
        self.time = 0
        self.scaling = Standardizer(dim, WINDOW)
        self.covariate_scaler = CovariateScaler(n_x)
        self.row_storage = np.zeros((2 * WINDOW if n_x else 0, n_x))
        self.row_start = self.n_rows = 0
        long = max(lineup.seasons or (0,)) > WINDOW // 4
        self.history = History(dim, LONG_WINDOW if long else WINDOW)
        self.known_values = KnownValues()
        self.seasons, self.proposed, self.outliers = list(seasons), [], []
        self.n_outliers = 0
        self.outlier_share = 0.0
        self.lowest, self.highest = np.full(dim, _MAX_VALUE), np.full(dim, -_MAX_VALUE)
        self.calibration = Calibration(dim)
        self.law, self.corrected, self.forecast = (Mixture(dim, 64) for _ in range(3))
        self.scored_share = np.zeros(0)
        self.tail_scratch = np.zeros((4, 0, dim))
        self.point, self.root, self.white = np.zeros((1, dim)), np.zeros((dim, dim)), np.zeros(dim)
        self.z, self.x, self.predicted_x = np.zeros(dim), np.zeros(n_x), np.zeros(n_x)
        self.predicted = False
        self.advised_outliers = self.advised_coverage = False
        checks = np.zeros(1001, np.int64)
        checks[_FIRST_CHECKS] = 1
        checks[[0, 1000]] = 1
        self.season_checks = checks
        self.model_results = None
        self.ensemble = self.fresh_ensemble(begin)
        views = lineup.views(dim, n_x)
        self.viewed = "dynamics" not in views
        self.shape_model = views.index("shape") if "shape" in views else -1
        self.level, self.shape = LevelView(dim), ShapeView(dim)
        self.regime_probability = self.change_probability = 0.0
        self.selection = RegimeSelection(len(views), decided=True)
        if not self.viewed:
            self.selection = RegimeSelection(len(self.models), lineup.first_model)
        self.set_models()

    def fresh_ensemble(self, begin=True):
        """Return an ensemble of the members for the present seasons."""
        specs = self.lineup.specs(self.n_x)
        if self.seasons:
            specs = specs + self.lineup.season(self.seasons, self.n_x)
        period = self.seasons[0] if self.seasons else 0
        return self.make_ensemble(specs, self.seed, period, begin)

    def make_ensemble(self, specs, seed, period, begin=True):
        """Return an ensemble of these members."""
        filters = [
            self.lineup.make_filter(spec, self.dim, seed + 101 * i, begin)
            for i, spec in enumerate(spec for spec in specs if spec.regimes)
        ]
        ensemble = Ensemble(specs, filters, self.dim, self.lineup.prior_weights, period)
        self.set_logs(ensemble)
        return ensemble

    @property
    def models(self):
        """Indices of the regime members that infer regimes."""
        return [i for i, member in enumerate(self.ensemble.members) if member.spec.infers]

    def set_models(self):
        """Allocate results of the regime models; those of known places are kept."""
        n = len(self.models)
        old, known = self.model_results, 0
        self.model_results = np.zeros((4, n))
        if old is not None:
            known = min(n, old.shape[1])
            np.asarray(self.model_results)[:, :known] = np.asarray(old)[:, :known]
        self.model_scores, self.model_probability = self.model_results[0], self.model_results[1]
        self.model_change, self.model_ess = self.model_results[2], self.model_results[3]

    @property
    def selected(self):
        """The regime member that infers the reported regimes, None if a view does."""
        if self.viewed:
            return None
        return self.ensemble.members[self.models[self.selection.chosen]]

    @property
    def rows(self):
        """(n, n_x) covariates as given, of the observations in `scaling.buffer`."""
        if not self.n_x:
            return np.zeros((self.scaling.size, 0))
        return np.asarray(self.row_storage)[self.row_start : self.row_start + self.n_rows]

    @rows.setter
    def rows(self, given):
        if self.n_x:
            np.asarray(self.row_storage)[: len(given)] = given
        self.row_start, self.n_rows = 0, len(given)

    def refresh(self):
        """Recompute what follows from the stored fields."""
        self.predicted = False
        self.set_models()
        self.set_logs(self.ensemble)

    def set_logs(self, ensemble: Ensemble):
        """Let logarithms be regressed as long as all values of a scalar stream are positive."""
        offset: cython.double = 0.0
        lowest: cython.double = 1.0
        centre: cython.double = self.scaling.centre[0]
        positive: cython.bint = self.lowest[0] > 0.0 and self.lowest[0] < _MAX_VALUE
        large: cython.bint = centre > _MIN_LOG_CENTRE * self.scaling.scale[0]
        if self.dim == 1 and positive and large:
            offset = centre / self.scaling.scale[0]
            lowest = self.lowest[0] / centre
        ensemble.set_logs(offset, lowest, self.highest[0] > _MIN_LOG_RANGE * self.lowest[0])

    def expect(self, raw):
        """Compute `forecast` of the next observation, given its covariates (n_x,)."""
        self.predict(raw)

    def run(self, y, raw):
        """Predict and update along observations.

        Args:
            y: (T, d) observations, NaN where missing.
            raw: (T, n_x) covariates.

        Returns:
            The results as `Columns`, and the list of events.
        """
        values = np.ascontiguousarray(y, np.float64)
        rows = np.ascontiguousarray(raw, np.float64)
        out = Columns(len(values), self.dim)
        self.run_loop(values, rows, out)
        events, self.selection.events = self.selection.events, []
        return out, events

    def step(self, y, raw):
        """Predict and update with one observation, without the arrays of a run.

        Args:
            y: (d,) the observation, NaN where missing.
            raw: (n_x,) covariates.

        Returns:
            The values of a `Step` in the order of its fields, and the list of events.
        """
        value: cython.double[::1] = y
        row: cython.double[::1] = raw
        score: cython.double
        anomaly: cython.double
        with cython.nogil:
            self.predict(row)
            score = self.log_score(value)
            anomaly = 1.0 - self.scored_tail(value)
            self.update(value, row)
        r: cython.double = self.ensemble.regular_probability
        events, self.selection.events = self.selection.events, []
        return (
            self.selection.regime,
            self.regime_probability,
            min(max(r, _MIN_WEIGHT), 1.0),
            r < _OUTLIER,
            self.change_probability,
            self.selection.n_regimes,
            self.model_ess[0 if self.viewed else self.selection.chosen],
            score,
            anomaly,
            1,
        ), events

    def log_score(self, y):
        """Return the log density of the observation under `forecast`; NaN if it is missing.

        The operations and their order are those of a run, so the result has the same bits.
        """
        n: cython.Py_ssize_t = self.forecast.size
        total: cython.double = 0.0
        j: cython.Py_ssize_t
        k: cython.Py_ssize_t
        if self.scored_share.shape[0] < self.forecast.share.shape[0]:
            self.add_scored()
        for k in range(n):
            total += self.forecast.share[k]
        for k in range(n):
            self.scored_share[k] = self.forecast.share[k] / total
        if self.dim == 1:
            return log_mixture(
                y[0],
                self.scored_share,
                self.forecast.location[:, 0],
                self.forecast.spread[:, 0, 0],
                self.forecast.dof,
                n,
                0,
            )
        for j in range(self.dim):
            self.point[0, j] = y[j]
        return joint_log_density(
            self.point,
            0,
            self.scored_share,
            self.forecast.location,
            self.forecast.spread,
            self.forecast.dof,
            0,
            n,
            self.root,
            self.white,
        )

    def scored_tail(self, y):
        """Return the two-sided tail probability of y in the forecast, after `log_score`."""
        n: cython.Py_ssize_t = self.forecast.size
        if self.dim == 1:
            return mixture_tail(
                y[0],
                self.scored_share,
                self.forecast.location[:, 0],
                self.forecast.spread[:, 0, 0],
                self.forecast.dof,
                n,
                0,
            )
        return joint_tail(
            self.point,
            0,
            self.scored_share,
            self.forecast.location,
            self.forecast.spread,
            self.forecast.dof,
            0,
            n,
            self.root,
            self.tail_scratch,
        )

    def add_scored(self):
        """Make room for the shares of the forecast."""
        n = self.forecast.share.shape[0]
        self.scored_share = np.zeros(n)
        self.tail_scratch = np.zeros((4, n if self.dim > 1 else 0, self.dim))

    def run_loop(self, y: cython.double[:, ::1], raw: cython.double[:, ::1], out: Columns):
        """Run the loop without the GIL."""
        with cython.nogil:
            self.loop(y, raw, out)

    def loop(self, y, raw, out):
        """Predict and update along rows, and write the results."""
        t: cython.Py_ssize_t
        r: cython.double
        for t in range(y.shape[0]):
            self.predict(raw[t])
            out.add_forecast(self.forecast)
            self.update(y[t], raw[t])
            r = self.ensemble.regular_probability
            out.weight[t] = min(max(r, _MIN_WEIGHT), 1.0)
            out.outlier[t] = 1 if r < _OUTLIER else 0
            out.regime[t] = self.selection.regime
            out.n_regimes[t] = self.selection.n_regimes
            out.regime_probability[t] = self.regime_probability
            out.change_probability[t] = self.change_probability
            out.ess[t] = self.model_ess[0 if self.viewed else self.selection.chosen]
            out.size = t + 1

    def predict(self, raw):
        """Compute the forecast of the next observation, unless it is known already."""
        i: cython.Py_ssize_t
        if self.predicted and self.same_row(raw):
            return
        for i in range(self.n_x):
            self.predicted_x[i] = raw[i]
        self.covariate_scaler.standardize(raw, self.x)
        self.ensemble.predict(self.x)
        self.thin()
        self.calibration.apply(self.law, self.corrected, False)
        self.publish()
        self.predicted = True

    def same_row(self, raw):
        """Return whether the covariates are those of the latest forecast."""
        i: cython.Py_ssize_t
        for i in range(self.n_x):
            if raw[i] != self.predicted_x[i]:
                return False
        return True

    def add_room(self):
        """Make room for the mixture of all components."""
        n = self.ensemble.parts.size
        self.law.reserve(n)
        self.corrected.reserve(5 * n)
        self.forecast.reserve(5 * n)

    def thin(self):
        """Copy the components that matter into `law`, in units, before correction."""
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        k: cython.Py_ssize_t
        n: cython.Py_ssize_t = self.ensemble.parts.size
        m: cython.Py_ssize_t = 0
        largest: cython.double = 0.0
        total: cython.double = 0.0
        self.law.size = 0
        self.corrected.size = 0
        self.forecast.size = 0
        if self.law.share.shape[0] < n or self.forecast.share.shape[0] < 5 * n:
            self.add_room()
        for k in range(n):
            largest = max(largest, self.ensemble.weight[k])
        for k in range(n):
            if self.ensemble.weight[k] > _MIN_SHARE * largest:
                self.law.share[m] = self.ensemble.weight[k]
                self.law.dof[m] = self.ensemble.parts.dof[k]
                total += self.law.share[m]
                for i in range(self.dim):
                    self.law.location[m, i] = self.ensemble.parts.location[k, i]
                    for j in range(self.dim):
                        self.law.spread[m, i, j] = self.ensemble.parts.spread[k, i, j]
                m += 1
        for k in range(m):
            self.law.share[k] /= total
        self.law.size = m

    def publish(self):
        """Write the corrected mixture in the user's units into `forecast`."""
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        k: cython.Py_ssize_t
        m: cython.Py_ssize_t = 0
        total: cython.double = 0.0
        kept: cython.double = 0.0
        for k in range(self.corrected.size):
            total += self.corrected.share[k]
        for k in range(self.corrected.size):
            if not self.corrected.share[k] > 1e-14 * total:
                continue
            self.forecast.share[m] = self.corrected.share[k]
            self.forecast.dof[m] = self.corrected.dof[k]
            kept += self.corrected.share[k]
            size: cython.double = self.within_range(k)
            for i in range(self.dim):
                scale: cython.double = self.scaling.reported_scale[i]
                self.forecast.location[m, i] = (
                    self.scaling.centre[i] + scale * self.corrected.location[k, i]
                )
                for j in range(self.dim):
                    self.forecast.spread[m, i, j] = (
                        self.corrected.spread[k, i, j] * scale * self.scaling.reported_scale[j]
                    )
                    if size < 1.0:
                        self.forecast.spread[m, i, j] *= size * size
            m += 1
        for k in range(m):
            self.forecast.share[k] /= kept
        self.forecast.size = m
        if self.dim == 1:
            self.known_values.round(self.forecast)

    def within_range(self, k):
        """Return the factor that makes component k no wider than the range of the past allows."""
        size: cython.double = 1.0
        i: cython.Py_ssize_t
        for i in range(self.dim):
            scale: cython.double = self.scaling.reported_scale[i]
            most: cython.double = max(
                _MAX_RANGES * (self.highest[i] - self.lowest[i]), _MAX_UNITS * scale
            )
            own: cython.double = scale * sqrt(self.corrected.spread[k, i, i])
            if own > most:
                size = min(size, most / own)
        return size

    def update(self, y, raw):
        """Update with the observation (d,) that `predict` was called for."""
        j: cython.Py_ssize_t
        self.predicted = False
        self.scaling.standardize(y, self.z)
        seen: cython.bint = False
        for j in range(self.dim):
            if not isnan(y[j]):
                seen = True
                value: cython.double = min(max(y[j], -_MAX_VALUE), _MAX_VALUE)
                self.lowest[j] = min(self.lowest[j], value)
                self.highest[j] = max(self.highest[j], value)
        self.history.append(
            y,
            self.ensemble.centre,
            self.ensemble.noise,
            self.scaling.centre,
            self.scaling.scale,
            1.0,
        )
        if self.dim == 1:
            self.known_values.update(y[0])
        stored: cython.Py_ssize_t = self.scaling.size
        rebuilt: cython.bint = self.update_scaling(y, raw)
        if self.scaling.size < stored:
            # Other units, or the end of a constant start: what was before is another stream.
            self.history.keep(self.scaling.size)
        if rebuilt:
            self.rebuild()
        else:
            self.ensemble.update(self.z, self.x)
            self.set_logs(self.ensemble)
        if seen and not rebuilt:
            # A forecast in wrong units is no evidence about the intervals.
            self.calibration.update(self.corrected, self.z)
        outlier: cython.bint = seen and self.ensemble.regular_probability < _OUTLIER
        self.history.set_regular(self.ensemble.regular_probability)
        if seen:
            self.check_advice(outlier)
        if outlier:
            self.record_outlier()
        self.infer_regime(y)
        n: cython.longlong = self.scaling.count
        check: cython.bint = n % _CHECK_INTERVAL == 0
        if n < _CHECK_INTERVAL:
            check = self.season_checks[n] != 0
        if check:
            self.find_seasons()
        self.time += 1

    def infer_regime(self, y):
        """Pass the observation, or the regimes of the members, to the selection."""
        if self.viewed:
            if self.selection.chosen != self.shape_model:
                self.level.update(y, self.time)
                self.note_view(0, self.level.view)
            if self.shape_model >= 0:
                self.shape.update(y, self.time)
                self.note_view(self.shape_model, self.shape.view)
                if self.shape_speaks():
                    self.revise()
            changed: cython.bint = self.level.view.changed
            self.change_probability = self.level.view.change_probability()
            if self.selection.chosen == self.shape_model:
                changed = self.shape.view.changed
                self.change_probability = self.shape.change_probability()
            self.regime_probability = 1.0 if changed else 1.0 - self.change_probability
            if self.ensemble.first is not None:
                self.model_ess[0] = self.ensemble.first.filter.ess
            self.selection.update(self.time, self.model_scores)
            return
        if self.ensemble.first is not None:
            self.note_models(self.ensemble.first, 0)
        self.selection.update(self.time, self.model_scores)
        self.regime_probability = self.model_probability[self.selection.chosen]
        self.change_probability = self.model_change[self.selection.chosen]
        held: cython.bint = self.selection.candidate >= 0
        if held or self.selection.moved(self.selection.n_models) > 0.0:
            self.change_probability = max(self.change_probability, self.regime_probability)
        if held:
            # The regime of the selected model is not reported yet.
            self.regime_probability = max(1.0 - self.regime_probability, _LEAST_PROBABILITY)

    def note_view(self, model, view):
        """Pass the regime of a view on."""
        self.selection.note(model, view.regime, view.changed, self.time, view.since)

    def shape_speaks(self):
        """Return whether the regimes of shape are to be reported from this observation on.

        They are if a periodic stream has more changes of shape than of level, or two fewer.
        """
        if self.shape.period == 0:
            return False
        if self.selection.chosen == self.shape_model:
            return self.shape.found
        ahead: cython.longlong = self.shape.view.n_changes - self.level.view.n_changes
        return ahead > 0 or ahead < -1

    def revise(self):
        """Report the regimes of shape, those of the past included."""
        view, segments = self.shape.view, [(0, self.shape.origin)]
        if self.shape.found:
            segments = self.shape.segments
        elif view.n_changes == 1:
            segments.append((view.regime, view.since))
        elif view.n_changes > 1:
            self.selection.switch_model(self.shape_model)
            return
        self.selection.revise(self.shape_model, self.time, segments)

    def update_scaling(self, y, raw):
        """Update centre and scale; return whether members must be rebuilt."""
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        if self.n_x > 0:
            if self.row_start + self.n_rows == self.row_storage.shape[0]:
                for i in range(self.n_rows):
                    for j in range(self.n_x):
                        self.row_storage[i, j] = self.row_storage[self.row_start + i, j]
                self.row_start = 0
            for j in range(self.n_x):
                self.row_storage[self.row_start + self.n_rows, j] = raw[j]
        self.n_rows += 1
        changed: cython.bint = self.scaling.update(y)
        self.row_start += self.n_rows - self.scaling.size
        self.n_rows = self.scaling.size
        return changed or (self.n_x > 0 and self.scaling.refines())

    def rebuild(self):
        """Begin again in the new units, from the observations in the buffer."""
        if not self.viewed:
            self.selection.restart(len(self.models))
        self.covariate_scaler.fit(self.rows, self.scaling.spread(), self.lineup.prior_variance)
        self.ensemble = self.fresh_ensemble()
        z = np.ascontiguousarray(self.scaling.to_units(self.scaling.buffer))
        x = np.ascontiguousarray(self.covariate_scaler.scaled(self.rows))
        self.feed_all(self.ensemble, z, x, not self.viewed)
        if not self.viewed:
            self.selection.match()

    def feed_all(
        self,
        ensemble: Ensemble,
        z: cython.double[:, ::1],
        x: cython.double[:, ::1],
        note: cython.bint,
    ):
        """Predict and update an ensemble along observations, without the GIL.

        If `note`, the regimes of all but the last observation are passed on.
        """
        i: cython.Py_ssize_t
        with cython.nogil:
            for i in range(z.shape[0]):
                ensemble.predict(x[i])
                ensemble.update(z[i], x[i])
                if note and i < z.shape[0] - 1:
                    self.note_models(ensemble.first, 0)

    def note_models(self, member, model):
        """Pass the regimes of the regime models on; `model` counts those that infer regimes."""
        if member.infers:
            self.selection.note(
                model,
                member.filter.clock.reported,
                member.changed,
                member.filter.clock.time - 1,
                member.filter.since,
            )
            self.model_scores[model] = self.ensemble.log_scores[member.index]
            self.model_probability[model] = member.filter.regime_probability
            self.model_change[model] = member.filter.change_probability
            self.model_ess[model] = member.filter.ess
            model += 1
        if member.next is not None:
            self.note_models(member.next, model)

    def record_outlier(self):
        """Record that the present observation is an outlier."""
        now = self.selection.regime
        self.outliers.append(self.time)
        del self.outliers[: max(0, len(self.outliers) - _N_OUTLIERS)]
        self.n_outliers += 1
        self.selection.events.append(Event(self.time, OUTLIER, max(now, 0), now, self.time))

    def check_advice(self, outlier):
        """Warn if most observations are outliers or the coverage is wrong."""
        self.outlier_share = _ADVICE_DISCOUNT * self.outlier_share + (1.0 - _ADVICE_DISCOUNT) * (
            1.0 if outlier else 0.0
        )
        n: cython.longlong = self.calibration.n_checked
        warn: cython.bint = False
        if self.scaling.count > _OUTLIERS_AFTER and self.outlier_share > _MANY_OUTLIERS:
            warn = not self.advised_outliers
        if n >= _COVERAGE_AFTER and not self.advised_coverage:
            coverage: cython.double = (1.0 * self.calibration.n_inside) / n
            if coverage < 0.9 - _WRONG_COVERAGE or coverage > 0.9 + _WRONG_COVERAGE:
                warn = True
        if warn or (self.scaling.count == _TARGET_AT and self.dim == 1):
            self.advise()

    def advise(self):
        """Emit the warnings that are due, once each."""
        count, n = self.scaling.count, self.calibration.n_checked
        if count > _OUTLIERS_AFTER and self.outlier_share > _MANY_OUTLIERS:
            self.advice.many_outliers()
            self.advised_outliers = True
        if n >= _COVERAGE_AFTER and abs(self.calibration.n_inside / n - 0.9) > _WRONG_COVERAGE:
            self.advice.wrong_coverage(self.calibration.n_inside / float(n))
            self.advised_coverage = True
        if count == _TARGET_AT and self.dim == 1:
            self.advice.check_target(self.scaling.buffer[:, 0])

    def find_seasons(self):
        """Propose seasons, and let members that know them join."""
        if self.lineup.explicit:
            return
        named = tuple(s for s in self.lineup.seasons or () if s <= MAX_FOUND)
        proposed = seasonality.propose(self.scaling.buffer[:, 0], _MAX_SEASONS, named)
        found = [s for s in proposed if s + 1 < DEPTH]
        again, self.proposed = found == self.proposed, found
        calendar = set(found) <= set(named or seasonality.CALENDAR)
        likely = calendar and not self.seasons
        if not found or set(found) <= set(self.seasons) or not (likely or again):
            # A season that no calendar has, or that would replace another, is proposed twice.
            return
        self.seasons = found
        newcomers = self.make_ensemble(self.lineup.season(found, self.n_x), self.seed + 7, found[0])
        z = np.ascontiguousarray(self.scaling.to_units(self.scaling.buffer))
        x = np.ascontiguousarray(self.covariate_scaler.scaled(self.rows))
        first = max(0, len(z) - REPLAY - max(found))
        self.feed_all(newcomers, z[first:], x[first:], False)
        before = len(self.models)
        self.ensemble.join(newcomers, self.lineup.prior_weights, found[0])
        if self.lineup.regime_features is None and not self.viewed:
            replaced = before - 1 if len(self.models) == before else None
            # If a calendar's season is found, the other models take it for regimes.
            self.selection.add_model(replaced, calendar)
        self.set_models()
