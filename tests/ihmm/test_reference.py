"""The filter agrees with the plain-Python reference, draw for draw, over whole streams.

Same seed, same draws: after every observation the two must hold the same regimes, counts,
concentrations, weights, means and covariances in every particle, and say the same.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from reference import Reference
from reference_parts import Particle, Report, Settings

import regimekit as rk

Array = NDArray[np.float64]

DEVIATIONS = tuple(f"D{k}" for k in (*range(1, 10), *range(12, 19)))
ALL = frozenset(DEVIATIONS)
RELATIVE, ABSOLUTE = 1e-10, 1e-10
RULES: dict[str, Any] = {"default": frozenset(), "paper": ALL}
WEIGHTS, SCHEMES = ("none", "huber", "mahalanobis"), ("systematic", "stratified", "multinomial")
ADAPTIVE = {
    "largest": 6,
    "smallest": 1,
    "outlier_weight": 0.3,
    "tolerance": 0.05,
    "shape": 0.5,
    "rate": 4.0,
}

SCALAR: dict[str, Any] = {
    "noise": np.array([[0.3]]),
    "prior_mean": np.array([0.5]),
    "prior_var": np.array([[9.0]]),
}
VECTOR: dict[str, Any] = {
    "noise": np.array([[0.3, 0.1, 0.0], [0.1, 0.5, -0.1], [0.0, -0.1, 0.4]]),
    "prior_mean": np.array([0.5, -0.5, 0.0]),
    "prior_var": np.array([[8.0, 1.0, 0.0], [1.0, 9.0, 2.0], [0.0, 2.0, 7.0]]),
}
WIDE: dict[str, Any] = {"prior_mean": np.zeros(3), "prior_var": np.diag([9.0, 1.0, 2.0])}


def wide(n: int) -> dict[str, Any]:
    """A prior of n coefficients, when those are many."""
    return {"prior_mean": np.zeros(n), "prior_var": np.diag(np.linspace(4.0, 1.0, n))}


def case(name: str, dim: int = 1, **settings: Any) -> Any:
    return pytest.param(dim, settings, id=f"{name}-d{dim}")


def all_cases() -> list[Any]:
    cases = []
    for dim in (1, 3):
        for rule, paper in RULES.items():
            for batch, weight, scheme in zip((1, 3, 4), WEIGHTS, SCHEMES, strict=True):
                settings = {"paper": paper, "batch": batch, "resampling": scheme}
                cases.append(case(f"{rule}-B{batch}", dim, **settings, seed=batch))
                settings |= {"weight": weight, "batch": 3}
                cases.append(case(f"{rule}-{weight}", dim, **settings, seed=100))
        for k in (*range(1, 10), 12, 15):
            settings = {"paper": frozenset({f"D{k}"}), "batch": (3, 4, 1)[k % 3]}
            if k <= 2:  # these open few regimes
                settings |= {"max_regimes": 3, "alpha_prior": (9.0, 1.0)}
            seed = {1: 103, 2: 102}.get(k, 101)
            cases.append(case(f"D{k}", dim, **settings, seed=seed))
    return cases + special_cases() + mixed_cases()


def special_cases() -> list[Any]:
    flat: dict[str, Any] = {"alpha_prior": (1.0, 1.0), "gamma_prior": (1.0, 1.0)}
    return [
        case("wolf", weigh_regimes=False, batch=1, seed=51),
        case("covariates-lag", **WIDE, lags=(2,), batch=3, seed=303),
        case("lags", **WIDE, lags=(1,), batch=3, seed=63),
        case("covariates-lag-paper", **WIDE, lags=(2,), batch=3, paper=ALL, seed=54),
        case("sticky", sticky=3.0, batch=3, seed=55),
        case("sticky-paper", 3, sticky=0.5, batch=3, paper=ALL, seed=56),
        case("adaptive", batch=ADAPTIVE, seed=57),
        case("adaptive-paper", 3, batch=ADAPTIVE | {"outlier_weight": 0.01}, paper=ALL, seed=58),
        case("sweeps", structure_sweeps=3, batch=3, seed=100),
        case("refreshed-by-default", structure_share=None, batch=3, seed=100),
        case("flat-priors", batch=3, seed=160, **flat),
        case("no-D6-no-D9", batch=1, paper=frozenset({"D6", "D9"}), seed=61),
        case("unbounded", threshold=math.inf, batch=1, seed=62),
    ]


def mixed_cases() -> list[Any]:
    """Outliers with a density of their own."""
    mixed: dict[str, Any] = {"weight": "contamination", "max_regimes": 3}
    many = mixed | {"particles": 12, "outlier_rate": 0.1}
    cases = []
    for dim in (1, 3):
        cases += [
            case("mixed-B1", dim, **mixed, batch=1, seed=80),
            case("mixed-B4", dim, **mixed, batch=4, seed=81),
            case("mixed-B5-sticky", dim, **mixed, batch=5, sticky=2.0, seed=(181, 186)[dim > 1]),
            case("mixed-no-D9", dim, **mixed | {"paper": {"D9"}}, batch=3, seed=84),
            case("mixed-no-D4", dim, **mixed | {"paper": {"D4"}}, batch=3, seed=85),
            case("islands", dim, **many, batch=4, islands=3, seed=86),
            case("islands-no-D12", dim, **many | {"paper": {"D12"}}, batch=3, islands=3, seed=87),
            case("islands-imq", dim, **many | {"weight": "imq"}, batch=3, islands=2, seed=180),
            case(
                "islands-no-D6-D7-D8",
                dim,
                **many | {"paper": {"D6", "D7", "D8"}},
                batch=5,
                islands=2,
                seed=89,
            ),
        ]
    return [
        *cases,
        case("score-of-the-text", paper=frozenset({"D4", "D8"}), batch=4, seed=98),
        case(
            "score-of-the-text", 3, paper=frozenset({"D4", "D8"}), batch=3, max_regimes=3, seed=99
        ),
        case("mixed-adaptive", **mixed, batch=ADAPTIVE, seed=182),
        case("islands-adaptive", **many, batch=ADAPTIVE, islands=2, seed=91),
        case("mixed-wolf", **mixed, batch=1, weigh_regimes=False, seed=92),
        case("mixed-covariates-lag", **WIDE, **many, lags=(2,), batch=3, islands=2, seed=201),
        case("mixed-lags", **wide(4), **many, lags=(1, 2), batch=3, islands=2, seed=206),
        case("mixed-lags", 3, **wide(15), **many, lags=(1,), batch=3, islands=2, seed=96),
        case("mixed-lags-raw", **WIDE, **many | {"paper": {"D13"}}, lags=(1,), batch=3, seed=97),
        case("mixed-paper", **many | {"paper": ALL}, batch=3, seed=94),
    ]


def stream(dim: int, n: int, seed: int) -> tuple[Array, Array]:
    """Levels that come and go, outliers, a missing stretch, missing values and coordinates."""
    rng = np.random.default_rng(1000 + seed)
    levels = rng.normal(0.0, 5.0, (6, dim))
    y = levels[np.repeat(rng.integers(0, 6, n // 9 + 1), 9)[:n]]
    y = y + rng.normal(0.0, 0.6, (n, dim))
    y[rng.choice(n, 4, replace=False)] += 30.0
    y[rng.choice(n, 5, replace=False)] = np.nan
    y[2 * n // 3 : 2 * n // 3 + 9] = np.nan  # whole batches whatever B
    if dim > 1:
        y[rng.choice(n, 10, replace=False), rng.integers(0, dim, 10)] = np.nan
    return y, rng.normal(size=(n, 1))


def share_refreshed(given: dict[str, Any]) -> float:
    """All particles in the paper's text (D5), else each about once in eight observations."""
    if "D5" in given.get("paper", ()):
        return 1.0
    batch = given["batch"]
    return 1 / 8 if isinstance(batch, dict) else 1 / max(1, round(8 / batch))


def build(dim: int, given: dict[str, Any]) -> tuple[Any, Reference]:
    """The model and its witness with the same settings."""
    defaults = {
        "weight": "imq",
        "threshold": 2.0,
        "sticky": 0.0,
        "islands": 1,
        "particles": 6,
        # Weights without memory (D15) stay more even.
        "ess_threshold": 0.9 if "D15" in given.get("paper", ()) else 0.7,
        "max_regimes": 4,
        "prune_pool": 2,
        "outlier_rate": 0.02,
        "alpha_prior": (4.0, 1.0),
        "gamma_prior": (3.0, 1.0),
    }
    often = {"structure_share": share_refreshed(given)}  # more often than the default: more draws
    settings = defaults | (SCALAR if dim == 1 else VECTOR) | often | given
    told = dict(settings)
    paper, lags = told.pop("paper", frozenset()), told.pop("lags", ())
    told["rule"] = {name: "paper" if name in paper else "default" for name in DEVIATIONS}
    told["resampling"] = settings.get("resampling", "systematic")
    told["features"] = rk.features.intercept()
    if lags:
        told["features"] += rk.features.columns() + rk.features.lags(*lags)
    return rk.br_ihmm(**told), Reference(Settings(**settings))


def engine_particle(engine: Any, i: int) -> dict[str, Any]:
    """Particle i of the filter with the statistics of its rows."""
    p, pool, emission = engine.particles, engine.pool, engine.emission
    n = int(p.n_regimes[i])
    rows = np.asarray(p.slots)[i, : n + 1]
    opened = rows[:n]
    return {
        "log_weight": p.log_weight[i],
        "current": p.current[i],
        "n_regimes": n,
        "counts": np.asarray(p.counts)[i, :n, :n],
        "start": np.asarray(p.start)[i, :n],
        "log_beta": np.asarray(p.log_beta)[i, : n + 1],
        "alpha": p.alpha[i],
        "gamma": p.gamma[i],
        "ids": np.asarray(pool.label)[opened],
        "visits": np.asarray(pool.visits)[opened],
        "first_seen": np.asarray(pool.first_seen)[opened],
        "last_seen": np.asarray(pool.last_seen)[opened],
        "mean": np.asarray(emission.mean)[rows, 0],
        "covariance": np.stack([root @ root.T for root in np.asarray(emission.root)[rows]]),
    }


def reference_particle(p: Particle) -> dict[str, Any]:
    n = len(p.regimes)
    everyone = p.everyone()
    return {
        "log_weight": p.log_weight,
        "current": -1 if p.current is None else p.current,
        "n_regimes": n,
        "counts": np.array(p.counts, int).reshape(n, n),
        "start": p.start,
        "log_beta": p.log_beta,
        "alpha": p.alpha,
        "gamma": p.gamma,
        "ids": [r.identity for r in p.regimes],
        "visits": [r.visits for r in p.regimes],
        "first_seen": [r.first_seen or 0 for r in p.regimes],
        "last_seen": [r.last_seen for r in p.regimes],
        "mean": np.stack([r.mean for r in everyone]),
        "covariance": np.stack([r.covariance for r in everyone]),
    }


def assert_same(
    ours: dict[str, Any], theirs: dict[str, Any], where: str, moments: float = RELATIVE
) -> None:
    """Equal to 1e-10; all at once, and name by name to tell where they part.

    Forecasts leave out components with a share below 1e-12. If regimes are hundreds of standard
    deviations apart, these count: then `moments` is the tolerance of the moments.
    """
    if all(same(value, theirs[name]) for name, value in ours.items()):
        return
    for name, value in ours.items():
        relative = moments if name in ("forecast", "variance") else RELATIVE
        np.testing.assert_allclose(
            value, theirs[name], rtol=relative, atol=ABSOLUTE, err_msg=f"{name} {where}"
        )


def same(ours: Any, theirs: Any) -> bool:
    a, b = np.asarray(ours, float), np.asarray(theirs, float)
    if a.shape != b.shape:
        return False
    apart = a != b  # -inf equals itself, and must not be subtracted from itself
    a, b = a[apart], b[apart]
    return bool((abs(a - b) <= ABSOLUTE + RELATIVE * np.fmin(abs(a), abs(b))).all())


def said(step: Any, forecast: Any) -> dict[str, Any]:
    return {
        "regime": step.regime,
        "regime_probability": step.regime_probability,
        "weight": step.weight,
        "change_probability": step.change_probability,
        "known": step.n_regimes,
        "ess": step.ess,
        "committed": step.settled,
        "forecast": forecast.mean,
        "variance": forecast.variance,
    }


def reference_said(report: Report, moments: tuple[Array, Array], dim: int) -> dict[str, Any]:
    mean, variance = moments
    return {
        "regime": report.regime,
        "regime_probability": report.regime_probability,
        "weight": report.weight,
        "change_probability": report.change_probability,
        "known": report.n_regimes,
        "ess": report.ess,
        "committed": report.committed,
        "forecast": mean if dim > 1 else mean[0],
        "variance": variance if dim > 1 else variance[0],
    }


def follow(
    dim: int, settings: dict[str, Any], y: Array, x: Any, tolerance: float = RELATIVE
) -> tuple[Reference, list[dict[str, Any]]]:
    """Run both side by side, comparing after every observation; the witness and its record."""
    model, witness = build(dim, settings)
    wants_x = bool(settings.get("lags"))
    record = []
    for t in range(len(y)):
        covariates = x[t] if wants_x else np.zeros(0)
        moments = witness.predict(covariates)
        forecast = model.predict(x[t] if wants_x else None)
        step = model.update(y[t] if dim > 1 else y[t, 0], x[t] if wants_x else None)
        theirs = reference_said(witness.observe(y[t], covariates), moments, dim)
        assert_same(said(step, forecast), theirs, f"at {t}", tolerance)
        particles = [reference_particle(p) for p in witness.particles]
        for i, particle in enumerate(particles):
            assert_same(engine_particle(model.engine, i), particle, f"of particle {i} at {t}")
        everyone = {name: [q[name] for q in particles] for name in particles[0]}
        record.append(theirs | everyone)
    return witness, record


@pytest.mark.parametrize(("dim", "settings"), all_cases())
def test_same_draws_same_regimes(dim: int, settings: dict[str, Any]) -> None:
    witness, record = follow(dim, settings, *stream(dim, 75, settings["seed"]))
    happened = witness.happened
    assert happened.births > 1 and happened.resamplings > 0 and happened.prunings > 0
    if settings.get("lags") and "D13" not in settings.get("paper", ()):
        assert witness.lags.decided > 0
    constant = set()
    if settings["batch"] == 1:
        constant.add("committed")
    if settings.get("weight") == "none" or settings.get("threshold") == math.inf:
        constant.add("weight")
    if "D6" in settings.get("paper", ()):
        constant.add("start")  # the paper has none
    for name in record[0].keys() - constant:
        assert len({str(entry[name]) for entry in record}) > 1, f"{name} never varied"


FAR: list[dict[str, Any]] = [
    {"batch": 1, "weight": "none"},
    {"batch": 1, "weight": "imq", "weigh_regimes": False},
    {"batch": 3},
    {"batch": 3, "weight": "contamination", "particles": 12, "islands": 3},
    {"batch": 4, "weight": "contamination", "outlier_rate": 0.05},
]


@pytest.mark.parametrize("dim", [1, 3])
@pytest.mark.parametrize("chosen", FAR, ids=["ihmm", "wolf", "imq", "islands", "mixed"])
def test_same_draws_after_a_distant_start(dim: int, chosen: dict[str, Any]) -> None:
    """D16, D17, D18: the prior follows the stream, distant levels fade, the rate is forgotten."""
    rng = np.random.default_rng(7)
    levels = np.repeat([0.0, 100.0, 250.0, 2.0], [20, 30, 30, 50])
    y = levels[:, None] + rng.normal(0.0, 0.5, (130, dim))
    y[[5, 90]] = np.nan
    witness, _ = follow(dim, {"seed": 7} | chosen, y, None, tolerance=1e-6)
    assert witness.happened.followed > 0 and witness.happened.faded > 0


@pytest.mark.parametrize("weight", ["imq", "contamination"])
def test_same_draws_with_distant_regressions(weight: str) -> None:
    """D17 with a covariate and a lag: regimes fade where their forecasts are distant."""
    rng = np.random.default_rng(7)
    levels = np.repeat([0.0, 80.0, -60.0, 2.0], [20, 30, 30, 50])
    y = levels[:, None] + rng.normal(0.0, 0.5, (130, 1))
    settings = {"seed": 7, "batch": 3, "weight": weight, "lags": (2,), **WIDE}
    x = rng.normal(size=(130, 1))
    witness, _ = follow(1, settings, y, x, tolerance=1e-6)
    assert witness.happened.followed == 0 and witness.happened.faded > 0


@pytest.mark.parametrize("dim", [1, 3])
@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"sticky": 2.0},
        {"paper": ALL},
        {"paper": {"D7"}},
        {"paper": {"D8"}},
        {"weight": "contamination", "batch": 5},
        {"weight": "contamination", "particles": 12, "islands": 3},
    ],
    ids=["default", "sticky", "paper", "D7", "D8", "mixed", "islands"],
)
def test_same_forecasts_far_ahead(dim: int, chosen: dict[str, Any]) -> None:
    settings = {"batch": 3, "seed": 70} | chosen
    model, witness = build(dim, settings)
    y, _ = stream(dim, 50, 70)
    nothing = np.zeros(0)
    spread = []
    for t in range(50):
        model.update(y[t] if dim > 1 else y[t, 0])
        witness.observe(y[t], nothing)
        theirs = witness.forecast([nothing] * 8)
        for forecast, (mean, variance) in zip(model.forecast(8), theirs, strict=True):
            said = {"mean": np.atleast_1d(forecast.mean), "var": np.atleast_1d(forecast.variance)}
            assert_same(said, {"mean": mean, "var": variance}, f"ahead of {t}")
        spread.append(np.ptp([mean for mean, _ in theirs], axis=0).max())
    moving = not {"D7", "D8"} & set(chosen.get("paper", ()))
    assert (max(spread) > 0.1) == moving  # regimes move within the horizon, unless held
