"""The makers of the infinite HMM family; their signatures come from the settings dataclasses."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from copy import deepcopy
from dataclasses import fields
from typing import Any

from regimekit.core.exceptions import RegimekitError, unknown, whole
from regimekit.core.limits import MAX_CLOUD
from regimekit.core.maker import ByUnits
from regimekit.ihmm.emissions.base import EmissionSettings
from regimekit.ihmm.emissions.garch import GarchSettings
from regimekit.ihmm.emissions.linear_gaussian import GaussianSettings
from regimekit.ihmm.emissions.student_t import StudentTSettings
from regimekit.ihmm.model import RegimeModel
from regimekit.ihmm.settings import RegimeSettings
from regimekit.ihmm.standardized import InUnits
from regimekit.ihmm.varying_noise import VaryingNoise
from regimekit.preprocessing import features as feature_maps

# Defaults where the units of y are estimated, and where they are given.
BY_UNITS = {
    GaussianSettings: {
        "noise": ByUnits(learnt=1.0, given=0.25),
        "prior_mean": ByUnits(learnt=0.0, given=0.0),
        "prior_var": ByUnits(learnt=100.0, given=1.0),
    },
    StudentTSettings: {
        "prior_mean": ByUnits(learnt=0.0, given=0.0),
        "prior_var": ByUnits(learnt=100.0, given=1.0),
        "noise_shape": ByUnits(learnt=5.0, given=3.0),
        "noise_scale": ByUnits(learnt=5.0, given=0.75),
    },
    GarchSettings: {},
}

Maker = Callable[..., RegimeModel]


def make_maker(name: str, emission: type[EmissionSettings], text: str, **defaults: Any) -> Maker:
    """Return the maker of a model: a function with one keyword argument per setting.

    Args:
        name: name of the model.
        emission: settings dataclass of its emission.
        text: documentation; the list of arguments is added.
        **defaults: defaults that differ from those of the dataclasses.
    """
    by_units = BY_UNITS[emission]
    chosen: dict[str, Any] = {}
    docs: dict[str, str] = {}
    types: dict[str, Any] = {}
    for f in (*fields(emission), *fields(RegimeSettings)):
        chosen[f.name] = by_units.get(f.name, defaults.get(f.name, f.default))
        docs[f.name] = f.metadata["doc"]
        types[f.name] = "ArrayLike" if f.type == "Any" else f.type
    chosen["units"] = None

    def make(**settings: Any) -> RegimeModel:
        for given in settings:
            if given not in chosen:
                raise unknown("setting", given, chosen)
        return build(name, emission, chosen | settings)

    make.__name__ = make.__qualname__ = name
    make.__doc__ = _docstring(text, docs)
    made: Any = make
    made.__signature__ = inspect.Signature(
        [
            inspect.Parameter(
                key, inspect.Parameter.KEYWORD_ONLY, default=value, annotation=types[key]
            )
            for key, value in chosen.items()
        ],
        return_annotation=RegimeModel,
    )
    return make


def _docstring(text: str, docs: dict[str, str]) -> str:
    """Insert the list of arguments before the example."""
    lines = ["Args:"]
    for key, doc in docs.items():
        lines += textwrap.wrap(
            f"{key}: {doc}", 92, initial_indent="    ", subsequent_indent="        "
        )
    lines += [
        "",
        "Returns:",
        "    RegimeModel: a model without observations.",
        "",
        "Raises:",
        "    RegimekitError: If a setting is unknown or invalid.",
    ]
    arguments = "\n".join(lines)
    summary, _, example = inspect.cleandoc(text).partition("Example:\n")
    return f"{summary.rstrip()}\n\n{arguments}\n" + (f"\nExample:\n{example}\n" if example else "")


def build(name: str, emission: type[EmissionSettings], settings: dict[str, Any]) -> RegimeModel:
    """Return a model of the family from all settings of its maker.

    If no setting in the units of y is given, the units are estimated.

    Raises:
        RegimekitError: If a setting is invalid.
    """
    chosen = deepcopy(settings)  # the caller may change a list or an array later
    scales = set(BY_UNITS[emission])
    open_scales = {key for key in scales if isinstance(chosen[key], ByUnits)}
    varying = chosen["noise_column"] is not None
    if varying and chosen["units"] == "auto":
        raise RegimekitError("units must be 'given' with noise_column, got 'auto'.")
    if varying:
        chosen["units"] = "given"
    if chosen["units"] is None:
        chosen["units"] = "auto" if scales and open_scales == scales else "given"
    if chosen["units"] == "auto" and not scales:
        raise RegimekitError(f"units must be 'given' for {name}, got 'auto'.")
    for key in open_scales:
        default = chosen[key]
        chosen[key] = default.learnt if chosen["units"] == "auto" else default.given
    if emission is GarchSettings:
        _check_garch(chosen)
    if callable(chosen["weight"]) and emission is not GaussianSettings:
        raise RegimekitError(
            f"weight must be a name for {name}, got a function. Models with known noise (br_ihmm, "
            "wolf_ihmm, ihmm) take a function."
        )
    names = {f.name for f in fields(emission)}
    own = emission(**{k: v for k, v in chosen.items() if k in names})
    shared = RegimeSettings(**{k: v for k, v in chosen.items() if k not in names})
    if varying:
        return VaryingNoise(name, shared, own)
    made = InUnits if shared.units == "auto" else RegimeModel
    return made(name, shared, own)


def _check_garch(chosen: dict[str, Any]) -> None:
    if chosen["dim"] not in (None, 1):
        raise RegimekitError(
            f"dim must be 1 for a GARCH regime, which describes one series, got {chosen['dim']!r}."
        )
    if feature_maps.read(chosen["features"]) != feature_maps.intercept():
        raise RegimekitError(
            "features must not be given: a GARCH regime has mean zero. "
            "Pass the residuals of a regression as y."
        )
    chosen["features"] = feature_maps.intercept()  # covariates would not be used
    if chosen["noise_column"] is not None:
        raise RegimekitError(
            "noise_column must not be given: the variance of a GARCH regime follows its own past."
        )
    whole("cloud", chosen["cloud"], least=16, most=MAX_CLOUD)


br_ihmm = make_maker(
    "br_ihmm",
    GaussianSettings,
    """
    Return the doubly robust model (BR-iHMM): weighted parameters, weighted regimes, batches.

    Example:
        >>> import regimekit as rk
        >>> model = rk.br_ihmm(noise=0.25, batch=4, particles=20)
        >>> for y in [0.1, -0.2, 0.0, 0.3, 50.0, 0.1, -0.1, 0.2]:
        ...     step = model.update(y)
        >>> step.regime, len(model.regimes()), abs(model.predict().mean) < 0.5
        (0, 1, True)
    """,
)
wolf_ihmm = make_maker(
    "wolf_ihmm",
    GaussianSettings,
    """
    Return the model with weighted parameters and a plain likelihood for regimes, batch 1.

    Its parameters are robust, its regimes are not: one outlier can open a regime.
    """,
    batch=1,
    threshold=2.0,
    weight="imq",
    weigh_regimes=False,
)
ihmm = make_maker(
    "ihmm",
    GaussianSettings,
    """
    Return the plain online infinite HMM: batch 1, no weight.
    """,
    batch=1,
    weight="none",
)
student_t_ihmm = make_maker(
    "student_t_ihmm",
    StudentTSettings,
    """
    Return the doubly robust model that needs no noise variance: each regime learns its own.

    With `weight="none", batch=1` it is the paper's unknown-variance model, whose heavy tails do not
    prevent an outlier from opening a regime. Under `imq` a threshold of 3 or 4 detects changes
    sooner than 2, ignores only shorter bursts and estimates the noise less precisely if there are
    many outliers. Rescaling y by s, with prior_mean by s and prior_var, noise_scale by s^2, changes
    no regime.

    Example:
        >>> import regimekit as rk
        >>> model = rk.student_t_ihmm(batch=4, particles=20)
        >>> for y in [0.1, -0.2, 0.0, 0.3, 50.0, 0.1, -0.1, 0.2]:
        ...     step = model.update(y)
        >>> step.regime, len(model.regimes()), abs(model.predict().mean) < 0.5
        (0, 1, True)
    """,
)
garch_ihmm = make_maker(
    "garch_ihmm",
    GarchSettings,
    """
    Return an infinite HMM whose regimes are GARCH(1, 1) volatilities.

    y_t = sigma_t e_t, sigma_t^2 = omega + a y_{t-1}^2 + b sigma_{t-1}^2, where each regime has its
    own (omega, a, b), learnt by a cloud of weighted points. `regimes()` returns their posterior
    mean and standard deviation, `predict().sd` is the volatility. The mean of y is zero: pass
    returns, or the residuals of a regression. With `weight="none"` the plain likelihood is used.

    The defaults suit returns scaled to a variance of about 1; other scales are learnt within a few
    batches. Three defaults differ from those of `br_ihmm`. The weight is Huber's at 4 standard
    deviations, because `imq` also reduces the weight of moderate values from which volatility is
    learnt. `sticky` is 10, because a persistent GARCH process resembles a switch. 50 particles are
    enough, because the cloud of each regime already represents the uncertainty of its coefficients.
    If y is multiplied by s and the median of variance_prior by s^2, the regimes stay the same.

    Example:
        >>> import numpy as np
        >>> import regimekit as rk
        >>> model = rk.garch_ihmm(particles=20)
        >>> calm, wild = np.random.default_rng(0).standard_normal((2, 120)) * [[0.3], [3.0]]
        >>> run = model.run(np.concatenate([calm, wild]))
        >>> bool(run.sd[60:120].max() < 1 < run.sd[180:].min())
        True
        >>> bool(run.path[100] != run.path[200])
        True
    """,
    threshold=4.0,
    weight="huber",
    particles=50,
    sticky=10.0,
)
