"""Search space: one spec per setting, each a map from the unit interval to values.

    float    u -> low + u (high - low)            or, "log", low (high / low)^u
    int      the same over [low - 1/2, high + 1/2], rounded
    choice   u -> options[floor(u n)]

The Gaussian-process search works on the unit interval; optuna uses the bounds.
"""

from __future__ import annotations

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from regimekit.core.exceptions import RegimekitError, unknown
from regimekit.preprocessing.features import Features

Settings = dict[str, Any]
Space = dict[str, "Spec"]


class Spec(ABC):
    """Values that a setting may take.

    Arguments of the methods:
        u: number in [0, 1].
        value: value of the setting.
    """

    @abstractmethod
    def at(self, u: float) -> Any:
        """Return the value at u in [0, 1]."""

    @abstractmethod
    def place(self, value: Any) -> float:
        """Return the centre of the interval in [0, 1] that maps to this value."""

    @abstractmethod
    def contains(self, value: Any) -> bool:
        """Return whether the spec contains this value."""

    @abstractmethod
    def to_json(self) -> list[Any]:
        """Return the short form that `read_spec` accepts."""


@dataclass(frozen=True)
class Float(Spec):
    """Numbers from `low` to `high`, uniform in the logarithm if `log`.

    Example:
        >>> Float(0.01, 1.0, log=True).at(0.5)
        0.1
    """

    low: float
    high: float
    log: bool = False
    kind: ClassVar[str] = "float"
    margin: ClassVar[float] = 0.0  # added at both ends of the interval that is mapped

    def at(self, u: float) -> float:
        low, high = self.low - self.margin, self.high + self.margin
        value = low * (high / low) ** u if self.log else low + u * (high - low)
        return min(max(value, self.low), self.high)

    def place(self, value: Any) -> float:
        low, high = self.low - self.margin, self.high + self.margin
        if self.log:
            share = math.log(float(value) / low) / math.log(high / low)
        else:
            share = (float(value) - low) / (high - low)
        return min(max(share, 0.0), 1.0)

    def contains(self, value: Any) -> bool:
        return _is_number(value) and self.low <= value <= self.high

    def to_json(self) -> list[Any]:
        return [self.kind, self.low, self.high, *(["log"] if self.log else [])]


@dataclass(frozen=True)
class Int(Float):
    """Integers from `low` to `high`, uniform in the logarithm if `log`.

    Example:
        >>> [Int(1, 3).at(u) for u in (0.0, 0.5, 1.0)]
        [1, 2, 3]
    """

    low: int
    high: int
    kind: ClassVar[str] = "int"
    margin: ClassVar[float] = 0.5  # so that the first and last integer have a full interval

    def at(self, u: float) -> int:
        return min(max(round(super().at(u)), self.low), self.high)

    def contains(self, value: Any) -> bool:
        return super().contains(value) and value == int(value)


@dataclass(frozen=True)
class Choice(Spec):
    """One of several values of any JSON type.

    Example:
        >>> Choice(("imq", "huber")).at(0.9)
        'huber'
    """

    options: tuple[Any, ...]

    def at(self, u: float) -> Any:
        return self.options[min(int(u * len(self.options)), len(self.options) - 1)]

    def place(self, value: Any) -> float:
        return (self.index(value) + 0.5) / len(self.options)

    def contains(self, value: Any) -> bool:
        return plain(value) in self.options

    def index(self, value: Any) -> int:
        """Return the position of a value among the options."""
        return self.options.index(value)

    def to_json(self) -> list[Any]:
        return ["choice", list(self.options)]


# Default ranges for a standardised series; `default_space` rescales variances.
_DEFAULTS: Space = {
    "batch": Int(1, 24, log=True),
    "threshold": Float(1.0, 8.0, log=True),
    "outlier_rate": Float(0.005, 0.2, log=True),
    "noise": Float(0.003, 3.0, log=True),
    "noise_scale": Float(0.01, 10.0, log=True),
    "noise_shape": Float(1.1, 20.0, log=True),
    "prior_var": Float(0.03, 100.0, log=True),
    "ess_threshold": Float(0.05, 0.95),
    "hazard": Float(1e-4, 0.2, log=True),
    "ridge": Float(1e-6, 100.0, log=True),
}
# Settings that define a model are not searched: the batch size of `ihmm`, its weight.
_SEARCHED = {
    "br_ihmm": ("batch", "outlier_rate", "noise", "prior_var", "ess_threshold"),
    "wolf_ihmm": ("threshold", "noise", "prior_var", "ess_threshold"),
    "ihmm": ("noise", "prior_var", "ess_threshold"),
    "student_t_ihmm": ("batch", "outlier_rate", "noise_scale", "prior_var", "ess_threshold"),
    "bocd": ("hazard", "noise", "prior_var"),
}
_VARIANCES = ("noise", "noise_scale", "prior_var")  # in squared units of y


def default_space(model_name: str, known: Mapping[str, Any], y: Any = (0.0,)) -> Space:
    """Return the default search space of a model.

    The ranges are for a standardised series; those of variances are rescaled.

        br_ihmm         batch 1 .. 24, outlier_rate 0.005 .. 0.2, noise 0.003 .. 3,
                        prior_var 0.03 .. 100, all in logs, and ess_threshold 0.05 .. 0.95
        wolf_ihmm       threshold 1 .. 8 in place of batch and outlier_rate
        ihmm            noise, prior_var and ess_threshold alone
        student_t_ihmm  as br_ihmm with noise_scale 0.01 .. 10 in place of noise
        bocd            hazard 0.0001 .. 0.2, noise, prior_var, all in logs

    Args:
        model_name: name of the model.
        known: settings of the model.
        y: observations. Ranges of variances are multiplied by the variance of y, the upper bound
            of `prior_var` by the mean square of y, each to the nearest power of ten.

    Example:
        >>> import regimekit as rk
        >>> space = default_space("ihmm", rk.make("ihmm").settings(), [1000.0, 1010.0, 990.0])
        >>> sorted(space), space["noise"]
        (['ess_threshold', 'noise', 'prior_var'], Float(low=0.3, high=300.0, log=True))
    """
    names = _SEARCHED.get(model_name, tuple(_DEFAULTS))
    space = {name: _DEFAULTS[name] for name in names if name in known}
    variance, mean_square = _powers_of_ten(y)
    for name in set(space) & set(_VARIANCES):
        spec = space[name]
        assert isinstance(spec, Float)
        high = mean_square if name == "prior_var" else variance
        space[name] = Float(spec.low * variance, spec.high * high, log=True)
    return space


def _powers_of_ten(y: Any) -> tuple[float, float]:
    """Robust variance and mean square of y, each to the nearest power of ten."""
    values = np.asarray(y, dtype=float)
    seen = values[np.isfinite(values)]
    if not seen.size:
        return 1.0, 1.0
    low, middle, high = np.quantile(seen, [0.25, 0.5, 0.75])
    variance = ((high - low) / 1.349) ** 2 or float(seen.var()) or 1.0
    rounded = 10.0 ** np.round(np.log10([variance, variance + middle**2]))
    return float(rounded[0]), float(rounded[1])


def read_space(space: Mapping[str, Any], known: Mapping[str, Any], fixed: Settings) -> Space:
    """Return a validated search space.

    Args:
        space: specs or their short forms, by setting.
        known: settings of the model.
        fixed: settings that are not searched.

    Raises:
        RegimekitError: if a name is not a free setting of the model, or a spec is invalid.
    """
    if not isinstance(space, Mapping) or not space:
        raise RegimekitError(
            f"space must be a non-empty mapping of settings to specs, got {space!r}."
        )
    for name in space:
        if name == "seed":
            raise RegimekitError(
                "space must not contain the seed. Use the argument seeds to average over it."
            )
        if name not in known:
            raise unknown("space", name, sorted(set(known) - {"seed"}))
        if name in fixed:
            raise RegimekitError(f"space and settings both contain {name!r}. Remove it from one.")
    return {name: read_spec(name, spec) for name, spec in space.items()}


def read_spec(name: str, spec: Any) -> Spec:
    """Convert a short form to a spec.

    Args:
        name: name of the setting, for error messages.
        spec: ("float", low, high[, "log"]), ("int", low, high[, "log"]), ("choice", [..]) or a
            spec.

    Example:
        >>> read_spec("batch", ("int", 1, 24, "log"))
        Int(low=1, high=24, log=True)
    """
    form = spec.to_json() if isinstance(spec, Spec) else spec
    if not isinstance(form, (list, tuple)) or len(form) < 2:
        raise _unreadable(name, spec)
    kind, *rest = form
    if kind == "choice" and len(rest) == 1 and isinstance(rest[0], (list, tuple)) and rest[0]:
        return Choice(tuple(plain(option) for option in rest[0]))
    if kind not in ("float", "int") or len(rest) not in (2, 3) or rest[2:] not in ([], ["log"]):
        raise _unreadable(name, spec)
    low, high = (plain(bound) for bound in rest[:2])
    _check_bounds(name, kind, low, high, log=len(rest) == 3)
    return Int(low, high, len(rest) == 3) if kind == "int" else Float(low, high, len(rest) == 3)


def plain(value: Any) -> Any:
    """Return a setting as JSON values, to be logged, compared and sent to a process."""
    if isinstance(value, Features):
        return value.to_json()
    if isinstance(value, (np.ndarray, np.generic)):
        return value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def key(settings: Settings) -> str:
    """Return a text that identifies settings."""
    return json.dumps(settings, sort_keys=True)


def _check_bounds(name: str, kind: str, low: Any, high: Any, log: bool) -> None:
    of_kind = (int,) if kind == "int" else (int, float)
    for bound in (low, high):
        if not isinstance(bound, of_kind) or isinstance(bound, bool) or not math.isfinite(bound):
            raise RegimekitError(
                f"space[{name!r}]: bounds must be finite of type {kind}, got {bound!r}."
            )
    if not low < high:
        raise RegimekitError(f"space[{name!r}]: low must be below high, got {low} and {high}.")
    if log and low <= 0:
        raise RegimekitError(f"space[{name!r}]: low must be above 0 for a log scale, got {low}.")


def _unreadable(name: str, spec: Any) -> RegimekitError:
    return RegimekitError(
        f'space[{name!r}] must be ("float", low, high), ("int", low, high), either with "log" at '
        f'its end, or ("choice", [..]), got {spec!r}.'
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
