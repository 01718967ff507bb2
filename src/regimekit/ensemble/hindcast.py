"""Point forecasts of many members at past origins of one stream, for horizons 1, 2, .., H.

One pass over the stored past updates a member with x_1, x_2, .. and writes its forecasts whenever
an origin is reached, so a forecast never uses values after its origin. Members:

    smoothing    level L and slope B with gains a, b and damping d:  L + B (d + d^2 + .. + d^h)
    theta        exponential smoothing plus half the slope of a straight line
    start        the one-step forecast of the ensemble, for every step
    season ago   the value one period ago; with the present level
    winters      smoothing with a season of gain g, optionally within a longer season
    regression   autoregression, recursive least squares with slow forgetting, on the stream, on the
                 stream less its season, or on seasonal differences; iterated, once from the latest
                 value and once from the ensemble's one-step forecast
    waves        sine waves of a long period, with the latest residual damped

Coefficients of lags are moved into the stationary region before they are iterated: with r the
smallest factor for which the polynomial with phi_k r^k is stable, phi_k becomes phi_k r^k.
"""

from __future__ import annotations

import cython
import numpy as np
from cython.cimports.libc.math import cos, fabs, sin

# Discount of least squares, per observation.
_FORGETTING = cython.declare(cython.double, 0.998)
# Degrees of freedom of the robust weights of least squares.
_DOF = cython.declare(cython.double, 8.0)
# Largest reflection coefficient of an iterated autoregression.
_STABLE = cython.declare(cython.double, 0.9995)
_TWO_PI = cython.declare(cython.double, 6.283185307179586)
_MAX_WIDTH = 12  # of a regression

# name -> (a, b, damping)
SMOOTHERS = {
    "running mean": (0.0, 0.0, 1.0),
    "smoothing .02": (0.02, 0.0, 1.0),
    "smoothing .1": (0.1, 0.0, 1.0),
    "smoothing .3": (0.3, 0.0, 1.0),
    "smoothing .6": (0.6, 0.0, 1.0),
    "last value": (1.0, 0.0, 1.0),
    "slow trend": (0.05, 0.001, 0.999),
    "drift": (0.99, 0.001, 0.995),
    "damped trend": (0.3, 0.03, 0.97),
    "fast damped trend": (0.8, 0.2, 0.9),
}
START = len(SMOOTHERS) + 1  # index of the member that holds the one-step forecast
# name -> (a, b, damping, g)
WINTERS = {
    "steady": (0.02, 0.0, 1.0, 0.05),
    "level .1": (0.1, 0.0, 1.0, 0.15),
    "level .5": (0.5, 0.0, 1.0, 0.1),
    "damped trend": (0.2, 0.02, 0.98, 0.15),
}


class Hindcast:
    """Forecasts of all members at past origins and at the latest value.

    Args:
        x: (n,) the past, latest last, without missing values.
        start: (n + 1,) one-step forecasts of x and of the next value.
        origins: indices in x after which forecasts are made; the last is n - 1.
        horizon: number of steps H.

    Attributes:
        point: (members, origins, H) the forecasts.
        names: of the members.
    """

    def __init__(self, x, start, origins, horizon, capacity=64):
        self.x = np.ascontiguousarray(x, np.float64)
        self.start = np.ascontiguousarray(start, np.float64)
        self.n, self.horizon = len(x), horizon
        self.n_origins = len(origins)
        slot = np.full(len(x), -1, np.int64)
        slot[origins] = np.arange(len(origins))
        self.slot = slot
        self.capacity = capacity
        self.point = np.zeros((capacity, len(origins), horizon))
        self.n_members = 0
        self.names = []
        self.u, self.path = np.zeros(len(x)), np.zeros(horizon)
        self.base = np.zeros((len(origins), horizon))
        self.base_start = np.zeros(len(x) + 1)
        self.coefficient, self.gain = np.zeros(_MAX_WIDTH), np.zeros(_MAX_WIDTH)
        self.row, self.reflection = np.zeros(_MAX_WIDTH), np.zeros(_MAX_WIDTH)
        self.work = np.zeros(_MAX_WIDTH)
        self.covariance = np.zeros((_MAX_WIDTH, _MAX_WIDTH))
        self.season = self.season2 = np.zeros(1)

    def run(self, periods=(), slow=0.0):
        """Compute the forecasts of all members.

        Args:
            periods: seasons in observations, the one that matters most first.
            slow: a long period that is described by waves; 0 for none.
        """
        for name, (a, b, damping) in SMOOTHERS.items():
            self.smooth(self._next(name), a, b, damping)
        self.theta(self._next("theta"), 0.4)
        self.hold_start(self._next("start"))
        np.asarray(self.u)[:] = self.x
        self.clear_base()
        for n_lags in (1, 2, 4):
            self._regress(f"lags 1 to {n_lags}", 0, n_lags, 0, 0.9)
        for period in periods:
            if 2 * period < self.n:
                self.add_season(period, f"season {period}, ")
        if len(periods) > 1 and 2 * max(periods) < self.n:
            self.add_nested(min(periods), max(periods))
        if slow > 0.0 and self.n > slow:
            self.add_waves(slow, [period for period in periods if 2 * period < self.n])
        return self

    def _next(self, name):
        """Return the index of a new member."""
        self.names.append(name)
        self.n_members += 1
        return self.n_members - 1

    def _regress(self, name, first, n_lags, long_lag, prior_mean):
        """Add an autoregression and its twin from the ensemble's forecast."""
        m = self._next(name)
        self._next(name + ", from start")
        self.regress(m, first, n_lags, long_lag, prior_mean)

    def add_season(self, period, prefix):
        """Add the members of one season."""
        self.season_ago(self._next(prefix + "ago"), period, False)
        self.season_ago(self._next(prefix + "ago, present level"), period, True)
        self.season = np.zeros(period)
        self.season2 = np.zeros(1)
        for name, (a, b, damping, g) in WINTERS.items():
            self.winters(self._next(prefix + name), period, 0, a, b, damping, g, name == "steady")
            if name == "steady":
                self._regress(prefix + "lags 1 to 2", period, 2, 0, 0.5)
                self._regress(prefix + "lags 1 to 2 and 1", period, 2, period, 0.5)
        self.clear_base()
        self.difference(period)
        self._regress(prefix + "differences", period, 2, period, 0.5)

    def add_nested(self, inner, outer):
        """Add members with a short season within a long one."""
        self.season, self.season2 = np.zeros(outer), np.zeros(inner)
        prefix = f"season {inner} within {outer}, "
        self.winters(self._next(prefix + "steady"), outer, inner, 0.02, 0.0, 1.0, 0.2, True)
        self._regress(prefix + "lags 1 to 2", outer, 2, 0, 0.5)
        self.winters(self._next(prefix + "level .3"), outer, inner, 0.3, 0.0, 1.0, 0.2, False)

    def add_waves(self, slow, periods):
        """Add waves of a long period, on top of the shortest season if there is one."""
        short = [period for period in periods if period < slow / 10]
        np.asarray(self.u)[:] = self.x
        self.clear_base()
        if short:
            self.season, self.season2 = np.zeros(short[0]), np.zeros(1)
            # Its forecasts are overwritten below; it leaves the season in u and base.
            self.winters(self.n_members, short[0], 0, 0.05, 0.0, 1.0, 0.02, True)
        for harmonics in (1, 3):
            for damping in (0.8, 0.97, 0.998):
                name = f"waves {slow:g}, {harmonics}, damping {damping:g}"
                self.fourier(self._next(name), slow, harmonics, damping)

    def smooth(self, m, a, b, damping):
        """Exponential smoothing of the level and, if b > 0, of a damped slope."""
        level: cython.double = self.x[0]
        slope: cython.double = 0.0
        t: cython.Py_ssize_t
        h: cython.Py_ssize_t
        for t in range(self.n):
            k: cython.double = t + 1.0
            if t > 0:
                gain: cython.double = max(a, 1.0 / k)
                slope_gain: cython.double = 0.0
                if b > 0.0:
                    gain = max(a, 2.0 * (2.0 * k - 1.0) / (k * (k + 1.0)))
                    slope_gain = max(b, min(6.0 / (k * (k + 1.0)), 0.3))
                error: cython.double = self.x[t] - level - damping * slope
                level += damping * slope + gain * error
                slope = damping * slope + slope_gain * error
            if self.slot[t] >= 0:
                ahead: cython.double = level
                step: cython.double = slope
                for h in range(self.horizon):
                    step *= damping
                    ahead += step
                    self.point[m, self.slot[t], h] = ahead

    def hold_start(self, m):
        """Hold the one-step forecast of the ensemble."""
        t: cython.Py_ssize_t
        h: cython.Py_ssize_t
        for t in range(self.n):
            if self.slot[t] >= 0:
                for h in range(self.horizon):
                    self.point[m, self.slot[t], h] = self.start[t + 1]

    def theta(self, m, a):
        """Exponential smoothing plus half the slope of the least-squares line so far."""
        level: cython.double = self.x[0]
        total: cython.double = 0.0
        moment: cython.double = 0.0
        t: cython.Py_ssize_t
        h: cython.Py_ssize_t
        for t in range(self.n):
            level += max(a, 1.0 / (t + 1.0)) * (self.x[t] - level)
            total += self.x[t]
            moment += t * self.x[t]
            if self.slot[t] >= 0:
                k: cython.double = t + 1.0
                slope: cython.double = 0.0
                if k > 5.0:
                    slope = 12.0 * (moment - total * (k - 1.0) / 2.0) / (k * (k * k - 1.0))
                for h in range(self.horizon):
                    self.point[m, self.slot[t], h] = level + 0.5 * slope * (h + 1.0)

    def season_ago(self, m, period, adjusted):
        """The value one period ago; `adjusted` by the change of the mean of the latest values."""
        t: cython.Py_ssize_t
        h: cython.Py_ssize_t
        i: cython.Py_ssize_t
        for t in range(self.n):
            if self.slot[t] < 0:
                continue
            shift: cython.double = 0.0
            if adjusted and t + 1 >= 2 * period:
                for i in range(period):
                    shift += self.x[t - i] - self.x[t - i - period]
                shift /= period
            for h in range(self.horizon):
                at: cython.Py_ssize_t = t + 1 - period + h % period
                value: cython.double = self.x[t]
                if at >= 0:
                    value = self.x[at]
                if adjusted:
                    # The mean of the past two values of this phase, at the present level.
                    if at - period >= 0:
                        value = 0.5 * (value + self.x[at - period] + shift)
                    value += 0.5 * shift * (1.0 + h // period)
                self.point[m, self.slot[t], h] = value

    def winters(self, m, period, inner, a, b, damping, g, keep):
        """Smoothing with a season of this period, and an inner one if `inner` > 0.

        With `keep`, the stream less its season is written to `u`, the season at the horizons of
        each origin to `base`, and that of the next value to `base_start`.
        """
        level: cython.double = 0.0
        slope: cython.double = 0.0
        t: cython.Py_ssize_t
        h: cython.Py_ssize_t
        for t in range(period):
            level += self.x[t] / period
        self.season[:] = 0.0
        self.season2[:] = 0.0
        for t in range(self.n):
            phase: cython.Py_ssize_t = t % period
            part: cython.Py_ssize_t = t % inner if inner > 0 else 0
            error: cython.double = self.x[t] - level - damping * slope
            passes: cython.double = t // period + 1.0
            if t < period:
                # The first period sets the season around its mean.
                if inner > 0:
                    inner_gain: cython.double = 1.0 / (t // inner + 1.0)
                    self.season2[part] += inner_gain * (error - self.season2[part])
                    self.season[phase] = 0.5 * (error - self.season2[part])
                else:
                    self.season[phase] = error
            else:
                error -= self.season[phase] + self.season2[part]
                level += damping * slope + a * error
                slope = damping * slope + b * error
                rest: cython.double = (1.0 - a) * error
                if inner > 0:
                    inner_gain = max(0.05, 1.0 / (t // inner + 1.0))
                    self.season2[part] += inner_gain * rest
                    rest *= 1.0 - inner_gain
                self.season[phase] += max(g, 1.0 / (passes + 1.0)) * rest
            if keep:
                self.u[t] = self.x[t] - self.season[phase] - self.season2[part]
                self.base_start[t + 1] = self.season[(t + 1) % period]
                if inner > 0:
                    self.base_start[t + 1] += self.season2[(t + 1) % inner]
            if self.slot[t] >= 0:
                ahead: cython.double = level
                step: cython.double = slope
                for h in range(self.horizon):
                    step *= damping
                    ahead += step
                    wave: cython.double = self.season[(t + 1 + h) % period]
                    if inner > 0:
                        wave += self.season2[(t + 1 + h) % inner]
                    self.point[m, self.slot[t], h] = ahead + wave
                    if keep:
                        self.base[self.slot[t], h] = wave

    def difference(self, period):
        """Write seasonal differences to `u`, and the values one period ago to `base`."""
        t: cython.Py_ssize_t
        h: cython.Py_ssize_t
        for t in range(self.n):
            self.u[t] = self.x[t] - self.x[t - period] if t >= period else 0.0
            self.base_start[t + 1] = self.x[t + 1 - period] if t + 1 >= period else self.x[t]
            if self.slot[t] >= 0:
                for h in range(self.horizon):
                    at: cython.Py_ssize_t = t + 1 - period + h % period
                    self.base[self.slot[t], h] = self.x[at] if at >= 0 else self.x[t]

    def clear_base(self):
        """Regress the stream itself: nothing is added to the forecasts of `u`."""
        self.base[:, :] = 0.0
        self.base_start[:] = 0.0

    def begin_squares(self, width, variance, own):
        """Set the prior of a regression: variances of the intercept and of the coefficients."""
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        for i in range(width):
            self.coefficient[i] = 0.0
            for j in range(width):
                self.covariance[i, j] = 0.0
            self.covariance[i, i] = variance if i == 0 else own

    def update_squares(self, width, y, variance, count):
        """Update the regression with the design in `row`; return the new error variance."""
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        leverage: cython.double = 1.0
        error: cython.double = y
        for i in range(width):
            total: cython.double = 0.0
            for j in range(width):
                total += self.covariance[i, j] * self.row[j]
            self.gain[i] = total
            leverage += self.row[i] * total
            error -= self.coefficient[i] * self.row[i]
        square: cython.double = error * error / leverage
        w: cython.double = (_DOF + 1.0) / (_DOF + square / variance)
        s: cython.double = leverage - 1.0 + 1.0 / w
        growth: cython.double = 1.0 / _FORGETTING
        for i in range(width):
            self.coefficient[i] += self.gain[i] * error / s
            # Divisions would dominate the cost of a forecast.
            step: cython.double = growth * self.gain[i] / s
            for j in range(width):
                self.covariance[i, j] = growth * self.covariance[i, j] - step * self.gain[j]
        # Without information in a direction, forgetting would increase its variance forever.
        if self.covariance[0, 0] > 1e4:
            for i in range(width):
                for j in range(width):
                    self.covariance[i, j] *= 1e4 / self.covariance[0, 0]
        return max(variance + max(1.0 / (count + 3.0), 0.01) * (w * square - variance), 1e-12)

    def regress(self, m, first, n_lags, long_lag, prior_mean):
        """Autoregression of `u` from index `first` on, on lags 1 .. n_lags and `long_lag` if > 0.

        Writes member m, and member m + 1 that starts from the ensemble's one-step forecast.
        """
        width: cython.Py_ssize_t = 1 + n_lags + (1 if long_lag > 0 else 0)
        deepest: cython.Py_ssize_t = max(n_lags, long_lag)
        variance: cython.double = 1.0
        largest: cython.double = 0.0
        t: cython.Py_ssize_t
        k: cython.Py_ssize_t
        h: cython.Py_ssize_t
        self.begin_squares(width, 100.0, 0.25)
        self.coefficient[1] = prior_mean
        for t in range(self.n):
            largest = max(largest, fabs(self.u[t]))
            if t >= first + deepest:
                self.row[0] = 1.0
                for k in range(n_lags):
                    self.row[1 + k] = self.u[t - 1 - k]
                if long_lag > 0:
                    self.row[1 + n_lags] = self.u[t - long_lag]
                variance = self.update_squares(
                    width, self.u[t], variance, 1.0 * (t - first - deepest)
                )
            if self.slot[t] >= 0:
                if t < first + deepest:
                    for h in range(self.horizon):
                        value: cython.double = self.base[self.slot[t], h] + self.u[t]
                        self.point[m, self.slot[t], h] = value
                        self.point[m + 1, self.slot[t], h] = value
                else:
                    self.roll(m, t, self.slot[t], n_lags, long_lag, largest, False)
                    self.roll(m + 1, t, self.slot[t], n_lags, long_lag, largest, True)

    def roll(self, m, t, o, n_lags, long_lag, largest, from_start):
        """Iterate the regression from origin t, index o; values stay below 1.5 `largest`."""
        h: cython.Py_ssize_t
        k: cython.Py_ssize_t
        total: cython.double
        limit: cython.double = 1.5 * largest
        total = self.coefficient[0]
        for k in range(n_lags):
            total += self.coefficient[1 + k] * self.u[t - k]
        for k in range(n_lags):
            self.work[1 + k] = self.coefficient[1 + k]
        self.stabilize(n_lags)
        # The intercept keeps the one-step forecast.
        for k in range(n_lags):
            total -= self.work[1 + k] * self.u[t - k]
        intercept: cython.double = total
        far: cython.double = 0.0
        if long_lag > 0:
            far = min(max(self.coefficient[1 + n_lags], -0.9), 0.9)
        for h in range(self.horizon):
            total = intercept
            for k in range(n_lags):
                if h - 1 - k >= 0:
                    total += self.work[1 + k] * self.path[h - 1 - k]
                else:
                    total += self.work[1 + k] * self.u[t + h - k]
            if long_lag > 0:
                if h - long_lag >= 0:
                    total += far * self.path[h - long_lag]
                else:
                    total += far * self.u[t + 1 + h - long_lag]
            if from_start and h == 0:
                total = self.start[t + 1] - self.base_start[t + 1]
            self.path[h] = min(max(total, -limit), limit)
            self.point[m, o, h] = self.path[h] + self.base[o, h]

    def stabilize(self, n_lags):
        """Shrink the lag coefficients in `work` until the autoregression is stationary."""
        i: cython.Py_ssize_t
        k: cython.Py_ssize_t
        attempt: cython.Py_ssize_t
        for attempt in range(60):
            for k in range(n_lags):
                self.reflection[k] = self.work[1 + k]
            stable: cython.bint = True
            k = n_lags
            while k > 0:
                # Step-down recursion: the last coefficient is a reflection coefficient.
                last: cython.double = self.reflection[k - 1]
                if fabs(last) >= _STABLE:
                    stable = False
                    break
                scale: cython.double = 1.0 - last * last
                i = 0
                while 2 * i <= k - 2:
                    left: cython.double = self.reflection[i]
                    right: cython.double = self.reflection[k - 2 - i]
                    self.reflection[i] = (left + last * right) / scale
                    self.reflection[k - 2 - i] = (right + last * left) / scale
                    i += 1
                k -= 1
            if stable:
                return
            shrink: cython.double = 1.0
            for k in range(n_lags):
                shrink *= 0.99 if attempt < 20 else 0.95
                self.work[1 + k] *= shrink

    def set_waves(self, t, period, harmonics):
        """Write the design of waves at time t into `row`."""
        k: cython.Py_ssize_t
        self.row[0] = 1.0
        for k in range(harmonics):
            angle: cython.double = _TWO_PI * (k + 1.0) * t / period
            self.row[1 + 2 * k] = cos(angle)
            self.row[2 + 2 * k] = sin(angle)

    def fourier(self, m, period, harmonics, damping):
        """Waves of a long period on `u`, plus a level of the residual that decays by `damping`."""
        width: cython.Py_ssize_t = 1 + 2 * harmonics
        t: cython.Py_ssize_t
        h: cython.Py_ssize_t
        k: cython.Py_ssize_t
        variance: cython.double = 1.0
        rest: cython.double = 0.0
        self.begin_squares(width, 100.0, 25.0)
        for t in range(self.n):
            self.set_waves(t, period, harmonics)
            variance = self.update_squares(width, self.u[t], variance, 1.0 * t)
            level: cython.double = self.u[t]
            for k in range(width):
                level -= self.coefficient[k] * self.row[k]
            rest += max(1.0 - damping, 0.05) * (level - rest)
            if self.slot[t] >= 0:
                decay: cython.double = rest
                for h in range(self.horizon):
                    decay *= damping
                    self.set_waves(t + 1.0 + h, period, harmonics)
                    value: cython.double = decay
                    for k in range(width):
                        value += self.coefficient[k] * self.row[k]
                    self.point[m, self.slot[t], h] = value + self.base[self.slot[t], h]

    def clip(self, low, high):
        """Clip all forecasts to (origins, H) limits."""
        below, above = np.ascontiguousarray(low), np.ascontiguousarray(high)
        for m in range(self.n_members):
            self.bound(m, below, above)

    def bound(self, m, low, high):
        """Clip the forecasts of one member."""
        o: cython.Py_ssize_t
        h: cython.Py_ssize_t
        for o in range(self.n_origins):
            for h in range(self.horizon):
                value: cython.double = self.point[m, o, h]
                if not value >= low[o, h]:
                    value = low[o, h]
                self.point[m, o, h] = min(value, high[o, h])
