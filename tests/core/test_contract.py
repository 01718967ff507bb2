"""Contract tests: properties that every registered model has."""

from __future__ import annotations

import itertools
import json
import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest

import regimekit as rk
from regimekit.core.recorder import Block
from regimekit.core.registry import REGISTRY
from regimekit.results import CHANGES, NO_REGIME, Run, Step

# Small sizes by name so that the suite stays fast; a model without an entry runs as it is made.
_FAMILY: dict[str, Any] = {"particles": 12, "max_regimes": 6}
SMALL: dict[str, dict[str, Any]] = {
    "br_ihmm": _FAMILY | {"batch": 4},
    "wolf_ihmm": _FAMILY,
    "ihmm": _FAMILY,
    "student_t_ihmm": _FAMILY,
}
WINDOWS = {"auto": 1024}  # rows after which a model's memory of the stream is full


class Case(NamedTuple):
    """A model by name with its settings."""

    name: str
    settings: dict[str, Any]

    def make(self, **more: Any) -> Any:
        return rk.make(self.name, **(self.settings | more))


ONLINE = [name for name, entry in REGISTRY.items() if entry.online]
CASES = {name: Case(name, SMALL.get(name, {})) for name in ONLINE}
_BASE = SMALL["br_ihmm"]
CASES |= {
    "br_ihmm paper": Case("br_ihmm", _BASE | {"rule": "paper"}),
    "br_ihmm adaptive": Case("br_ihmm", _BASE | {"batch": "adaptive"}),
    "br_ihmm sticky": Case("br_ihmm", _BASE | {"sticky": 2.0, "weight": "mahalanobis"}),
    "br_ihmm islands": Case("br_ihmm", _BASE | {"islands": 3}),
    "br_ihmm imq": Case("br_ihmm", _BASE | {"weight": "imq"}),
    "br_ihmm ablated": Case("br_ihmm", _BASE | {"rule": {"D4": "paper", "D9": "paper"}}),
}
COLUMNS = {
    "y": "f",
    "mean": "f",
    "median": "f",
    "lower": "f",
    "upper": "f",
    "sd": "f",
    "regime": "i",
    "regime_probability": "f",
    "weight": "f",
    "outlier": "b",
    "change_probability": "f",
    "log_score": "f",
    "anomaly_score": "f",
    "n_regimes": "i",
    "ess": "f",
    "path": "i",
}
FORECAST = ("mean", "median", "sd", "lower", "upper")


@pytest.fixture(params=list(CASES))
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def takes_features(case: Case) -> bool:
    """Whether the model regresses on covariates; one that does not says so about `features`."""
    if "features" not in case.make().settings():
        return False
    try:
        case.make(features=rk.features.columns()).predict(np.zeros(2))
    except rk.RegimekitError as error:
        assert "features" in str(error)
        return False
    return True


@pytest.fixture
def covariate_case(case: Case) -> Case:
    """The case with features of x and of the past, if the model takes features."""
    if not takes_features(case):
        pytest.skip(f"{case.name} takes no features")
    map_ = rk.features.intercept() + rk.features.columns() + rk.features.lags(1)
    return Case(case.name, case.settings | {"features": map_})


def columns(run: Run, without: tuple[str, ...] = ()) -> dict[str, np.ndarray]:
    return {name: getattr(run, name) for name in COLUMNS if name not in without}


def assert_same(a: Run, b: Run, without: tuple[str, ...] = ()) -> None:
    """Bit for bit, NaN equal to NaN."""
    ours, theirs = columns(a, without), columns(b, without)
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)
    assert a.events == b.events


def joined(runs: list[Run]) -> Run:
    parts = {name: np.concatenate([getattr(run, name) for run in runs]) for name in COLUMNS}
    return Run(**parts, events=[event for run in runs for event in run.events])


def mixture(forecast: rk.Forecast) -> list[np.ndarray]:
    return [forecast.share, forecast.location, forecast.spread, forecast.dof]


def assert_sane(run: Run, y: np.ndarray) -> None:
    """No NaN anywhere but the score of what was not observed; probabilities are such."""
    seen = ~np.isnan(y) if y.ndim == 1 else ~np.isnan(y).all(axis=1)
    np.testing.assert_array_equal(run.y, y)
    for name in ("mean", "median", "sd", "lower", "upper"):
        assert np.isfinite(getattr(run, name)).all(), name
    assert (run.sd > 0).all()
    assert (run.lower <= run.median).all() and (run.median <= run.upper).all()
    assert np.isfinite(run.log_score[seen]).all() and np.isnan(run.log_score[~seen]).all()
    assert ((run.weight > 0) & (run.weight <= 1)).all()
    for name in ("regime_probability", "change_probability"):
        values = getattr(run, name)
        assert ((values >= 0) & (values <= 1)).all(), name
    assert (run.n_regimes >= 0).all() and (run.ess >= 1 - 1e-9).all()
    assert not run.outlier[~seen].any()


def test_predict_is_pure(case: Case, stream: np.ndarray) -> None:
    model = case.make()
    for t in range(0, 60, 7):
        before = model.to_bytes()
        first, second = model.predict(), model.predict()
        assert model.to_bytes() == before
        for a, b in zip(mixture(first), mixture(second), strict=True):
            np.testing.assert_array_equal(a, b)
        model.run(stream[t : t + 7])


def test_forecast_ahead_is_pure(case: Case, stream: np.ndarray) -> None:
    model = case.make()
    model.run(stream[:50])
    before = model.to_bytes()
    try:
        ahead = model.forecast(9)
    except rk.RegimekitError as error:
        assert "one step ahead" in str(error)
    else:
        assert len(ahead) == 9 and all(np.isfinite(f.mean) and f.sd > 0 for f in ahead)
        assert ahead[0].mean == pytest.approx(model.predict().mean, rel=1e-9, abs=1e-12)
        assert ahead[0].sd == pytest.approx(model.predict().sd, rel=1e-9)
    assert model.to_bytes() == before


def test_forecast_made_is_the_forecast_reported(case: Case, stream: np.ndarray) -> None:
    """The columns of a run are the predictions that were possible before each observation."""
    model, twin = case.make(), case.make()
    run = model.run(stream[:40])
    for t, y in enumerate(stream[:40]):
        forecast = twin.predict()
        assert forecast.mean == pytest.approx(run.mean[t], rel=1e-12, abs=1e-13)
        assert forecast.sd == pytest.approx(run.sd[t], rel=1e-12)
        ends = forecast.cdf(np.array([run.lower[t], run.upper[t]]))
        np.testing.assert_allclose(ends, [0.05, 0.95], rtol=0, atol=1e-6)
        step = twin.update(y)
        np.testing.assert_equal(step.log_score, run.log_score[t])
        if not np.isnan(y):
            assert step.log_score == pytest.approx(forecast.log_density(y), rel=1e-12)


def test_appending_the_future_changes_nothing_before_it(case: Case, stream: np.ndarray) -> None:
    """Every column but `path`, which is completed when a batch ends."""
    whole = case.make().run(stream)
    for cut in (1, 37, 46, 90):
        part = case.make().run(stream[:cut])
        for name, values in columns(part, without=("path",)).items():
            np.testing.assert_array_equal(values, getattr(whole, name)[:cut], err_msg=name)
        assert part.events == [event for event in whole.events if event.time < cut]


def test_a_different_future_changes_nothing_before_it(case: Case, stream: np.ndarray) -> None:
    other = stream.copy()
    other[60:] = 5.0 - other[60:]
    a, b = case.make().run(stream), case.make().run(other)
    for name, values in columns(a, without=("path",)).items():
        upto = 61 if name in FORECAST else 60  # y_60 is not in its forecast
        np.testing.assert_array_equal(values[:upto], getattr(b, name)[:upto], err_msg=name)


def test_chunks_make_no_difference(case: Case, stream: np.ndarray) -> None:
    whole = case.make().run(stream)
    model = case.make()
    cuts = [0, 1, 7, 7, 50, 93, len(stream)]
    pieces = [model.run(stream[a:b]) for a, b in itertools.pairwise(cuts)]
    assert [piece.first for piece in pieces if len(piece)] == [0, 1, 7, 50, 93]
    assert_same(whole, joined(pieces), without=("path",))
    loop = case.make()
    steps = [loop.update(y) for y in stream]
    for name in set(Step._fields) - {"events", "settled"}:
        np.testing.assert_array_equal([getattr(s, name) for s in steps], getattr(whole, name))
    assert [event for s in steps for event in s.events] == whole.events
    assert loop.to_bytes() == model.to_bytes()


def test_same_seed_same_run(case: Case, stream: np.ndarray) -> None:
    assert_same(case.make().run(stream), case.make().run(stream))


def test_other_seed_other_draws(case: Case, stream: np.ndarray) -> None:
    if "seed" not in case.make().settings():
        pytest.skip(f"{case.name} draws nothing")
    a, b = (case.make(seed=seed).run(stream) for seed in (1, 2))
    assert not np.array_equal(a.mean + a.sd, b.mean + b.sd)


@pytest.mark.parametrize("cut", [0, 1, 5, 46, 71, 101])
def test_snapshot_resumes_bit_for_bit(case: Case, stream: np.ndarray, cut: int) -> None:
    """Also in the middle of a batch, right after a spike, inside a gap."""
    model = case.make()
    model.run(stream[:cut])
    data = model.to_bytes()
    twin = rk.from_bytes(data)
    assert twin.to_bytes() == data
    assert type(twin) is type(model) and twin.settings() == model.settings()
    for a, b in zip(mixture(model.predict()), mixture(twin.predict()), strict=True):
        np.testing.assert_array_equal(a, b)
    assert_same(model.run(stream[cut:]), twin.run(stream[cut:]))
    assert model.to_bytes() == twin.to_bytes()


def test_copy_is_independent(case: Case, stream: np.ndarray) -> None:
    model = case.make()
    model.run(stream[:45])
    before = model.to_bytes()
    twin = model.copy()
    assert twin.to_bytes() == before
    theirs = twin.run(stream[45:])
    assert model.to_bytes() == before
    assert_same(model.run(stream[45:]), theirs)


@pytest.mark.slow
def test_memory_is_bounded(case: Case) -> None:
    """Several times the stream, not even twice the state once its windows are full."""
    rng = np.random.default_rng(0)
    y = np.tile(np.repeat([-1.0, 1.0], 50), 20) + 0.3 * rng.standard_normal(2000)
    model = case.make()
    full = WINDOWS.get(case.name, 400)
    model.run(y[:full])
    early = state_size(model)
    model.run(y[full:])
    # Regimes come and go; a number kept for each of the 1600 values would take 12 800 bytes.
    assert state_size(model) < 2 * early + 2000


def state_size(model: Any) -> int:
    """Bytes of the state as it lies in memory: a compressed snapshot would hide repetition."""
    values, arrays = model._pack()
    return len(json.dumps(values)) + sum(array.nbytes for array in arrays.values())


def test_the_callers_arrays_stay_the_callers(covariate_case: Case, stream: np.ndarray) -> None:
    x = np.random.default_rng(1).standard_normal((len(stream), 2))
    reference = covariate_case.make().run(stream, x)
    model, y_own, x_own = covariate_case.make(), stream.copy(), x.copy()
    for t in range(len(stream)):
        y_t, x_t = y_own[t : t + 1], x_own[t]
        forecast = model.predict(x_t)
        assert forecast.mean == pytest.approx(reference.mean[t], rel=1e-12, abs=1e-13)
        model.update(y_t, x_t)
        y_t[:], x_t[:] = 1e9, -1e9
    piecewise = covariate_case.make()
    y_own, x_own = stream.copy(), x.copy()
    first = piecewise.run(y_own[:50], x_own[:50])
    kept = first.mean.copy()
    y_own[:50] = x_own[:50] = 1e9
    np.testing.assert_array_equal(first.mean, kept)
    piecewise.run(y_own[50:], x_own[50:])
    assert piecewise.to_bytes() == model.to_bytes()


def test_settings_given_as_arrays_stay_the_callers(case: Case, stream: np.ndarray) -> None:
    known = case.make().settings()
    arrays = {
        key: value
        for key, value in {
            "noise": np.array([[0.2]]),
            "prior_mean": np.array([0.1]),
            "prior_var": np.array([2.0]),
        }.items()
        if key in known
    }
    if not arrays:
        pytest.skip(f"{case.name} has no array settings")
    lists = {key: value.tolist() for key, value in arrays.items()}
    reference = case.make(**{key: value.copy() for key, value in arrays.items()}).run(stream)
    from_arrays, from_lists = case.make(**arrays), case.make(**lists)
    for value in arrays.values():
        value[:] = 50.0
    for given in (*lists.values(), *from_lists.settings().values()):
        if isinstance(given, list):
            given.clear()
    assert_same(from_arrays.run(stream), reference)
    assert_same(from_lists.run(stream), reference)


def test_what_is_handed_out_is_the_receivers(case: Case, stream: np.ndarray) -> None:
    model = case.make()
    run = model.run(stream[:50])
    before = model.to_bytes()
    known = json.dumps(model.settings())
    spoil = [*mixture(model.predict()), model.transitions().matrix]
    spoil += [getattr(run, name) for name in COLUMNS]
    spoil += [array for regime in model.regimes() for array in (regime.mean, regime.sd)]
    for array in spoil:
        array[...] = 7
    settings = model.settings()
    for key, value in settings.items():
        if isinstance(value, list):
            value.clear()
        settings[key] = "spoilt"
    assert model.to_bytes() == before
    assert json.dumps(model.settings()) == known


def test_defaults_are_sensible(stream: np.ndarray) -> None:
    """Made with no argument, on a standardised series: no worse than a fifth above its own sd,
    and the 90 % interval neither empty nor without end."""
    for name in ONLINE:
        run = rk.make(name).run(stream)
        assert_sane(run, stream)
        late = ~np.isnan(stream) & (np.arange(len(stream)) > 60)
        error = stream[late] - run.mean[late]
        assert np.sqrt(np.mean(error**2)) < 1.2 * np.nanstd(stream), name
        inside = (stream >= run.lower) & (stream <= run.upper)
        assert inside[late].mean() > 0.6, name
        assert (run.upper - run.lower)[late].mean() < 8.0, name


@pytest.mark.parametrize(
    "series",
    [
        [],
        [0.3],
        [np.nan],
        [1.0] * 60,
        [0.0] * 60,
        [np.nan] * 60,
        [np.nan] * 13 + [0.5] * 5 + [np.nan] * 20,
    ],
    ids=["empty", "one", "one missing", "constant", "zero", "all missing", "gaps"],
)
def test_degenerate_streams(case: Case, series: list[float]) -> None:
    model = case.make()
    run = model.run(np.array(series))
    assert len(run) == len(series)
    assert_sane(run, np.array(series))
    assert np.isfinite(model.predict().mean) and model.predict().sd > 0
    assert rk.from_bytes(model.to_bytes()).to_bytes() == model.to_bytes()


@pytest.mark.parametrize("spike", [1e12, -1e12])
@pytest.mark.parametrize("at", [0, 46, 119])
def test_a_spike_leaves_no_nan(case: Case, stream: np.ndarray, spike: float, at: int) -> None:
    y = stream.copy()
    y[at] = spike
    model = case.make()
    assert_sane(model.run(y), y)
    assert np.isfinite(model.predict().mean)


def test_missing_values_are_none_or_nan(case: Case) -> None:
    a = case.make().run([0.1, None, 0.3, None, None, 0.2])
    b = case.make().run(np.array([0.1, np.nan, 0.3, np.nan, np.nan, 0.2]))
    assert_same(a, b)
    model = case.make()
    for y in (0.1, None, 0.3, float("nan"), None, 0.2):
        step = model.update(y)
    np.testing.assert_equal(step.log_score, a.log_score[-1])


def coefficients(engine: Any) -> set[bytes]:
    """Posterior means of the coefficients of every row that is held."""
    live = np.flatnonzero(engine.pool.owners)
    return {engine.emission.coefficients(row)[0].tobytes() for row in live}


def test_missing_values_move_no_coefficient(case: Case, stream: np.ndarray) -> None:
    """After 64 missing observations every regime is one that was there before, as it was."""
    model = case.make()
    model.run(stream[:60])
    if not hasattr(getattr(model, "engine", None), "pool"):
        pytest.skip(f"{case.name} keeps no rows of regimes")
    model.run(np.full(32, np.nan))  # finish the batches that had begun
    before = coefficients(model.engine)
    model.run(np.full(64, np.nan))
    assert coefficients(model.engine) <= before


def test_columns_and_types(case: Case, stream: np.ndarray) -> None:
    run = case.make().run(stream)
    assert len(run) == len(stream)
    for name, kind in COLUMNS.items():
        values = getattr(run, name)
        assert values.shape == (len(stream),) and values.dtype.kind == kind, name
    assert list(run.columns()) == list(COLUMNS)
    assert run.changepoints == sorted(set(run.changepoints))
    times = [event.time for event in run.events]
    assert times == sorted(times) and all(0 <= t < len(stream) for t in times)
    assert all(0 <= event.since <= event.time for event in run.events)


def test_every_change_is_one_event(case: Case, stream: np.ndarray) -> None:
    """Ids count up in the order of report; a regime is opened once, and returns after that."""
    run = case.make().run(stream)
    now, told = NO_REGIME, set()
    changes = {t: run.regime[t] for t in run.known_changepoints}
    if (run.regime != NO_REGIME).any():
        changes[int(np.flatnonzero(run.regime != NO_REGIME)[0])] = 0
    events = [event for event in run.events if event.kind in CHANGES]
    if not events and len(changes) <= 1:
        return  # a model without regimes says so by one id, or none
    assert {event.time: event.regime for event in events} == changes
    assert len(events) == len(changes)
    for event in events:
        assert event.previous == now and event.regime != now
        assert event.kind == ("regime returned" if event.regime in told else "regime opened")
        assert event.regime in told or event.regime == len(told)
        now = event.regime
        told.add(now)


def test_frames_come_back_in_the_callers_library(case: Case, stream: np.ndarray) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    part = stream[:30]
    plain = case.make().run(part)
    given = {
        "array": (part, pandas),
        "pandas series": (pandas.Series(part), pandas),
        "pandas frame": (pandas.DataFrame({"y": part}), pandas),
        "polars series": (polars.Series("y", part), polars),
        "polars frame": (polars.DataFrame({"y": part}), polars),
    }
    for label, (y, library) in given.items():
        run = case.make().run(y)
        assert_same(run, plain)
        frame = run.frame()
        assert isinstance(frame, library.DataFrame), label
        assert list(frame.columns) == list(COLUMNS) and len(frame) == 30
        np.testing.assert_array_equal(frame["mean"].to_numpy(), plain.mean)


def test_covariates_from_frames_are_found_by_name(case: Case, stream: np.ndarray) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    if not takes_features(case):
        pytest.skip(f"{case.name} takes no features")
    features = rk.features.intercept() + rk.features.columns("wind")
    wind = np.random.default_rng(2).standard_normal(len(stream))
    table = {"rain": np.zeros(len(stream)), "wind": wind}
    runs = [
        case.make(features=features).run(stream, frame(table))
        for frame in (pandas.DataFrame, polars.DataFrame)
    ]
    assert_same(*runs)
    model = case.make(features=features)
    for t, y in enumerate(stream[:20]):
        said = model.predict({"wind": wind[t]}).mean
        assert said == pytest.approx(runs[0].mean[t], rel=1e-12, abs=1e-13)
        model.update(y, {"wind": wind[t]})


def test_settings_round_trip(case: Case, stream: np.ndarray) -> None:
    model = case.make()
    settings = model.settings()
    through_json = json.loads(json.dumps(settings))
    assert through_json == settings
    twin = rk.make(case.name, **through_json)
    assert twin.settings() == settings
    assert_same(model.run(stream), twin.run(stream))


def test_several_coordinates(case: Case, stream: np.ndarray) -> None:
    """Either a model takes vectors, with one column per coordinate, or it says so at once."""
    y = np.column_stack([stream, 0.5 * stream[::-1], np.roll(stream, 9)])
    model = case.make()
    before = model.to_bytes()
    try:
        model.update(y[1])
    except rk.RegimekitError as error:
        assert "y" in str(error) and model.to_bytes() == before
        return
    whole = case.make().run(y)
    assert whole.mean.shape == whole.lower.shape == (len(y), 3)
    assert_sane(whole, y)
    assert "mean_2" in whole.columns() and "mean" not in whole.columns()
    half = case.make()
    first = half.run(y[:50])
    second = rk.from_bytes(half.to_bytes()).run(y[50:])
    assert_same(joined([first, second]), whole, without=("path",))


def test_regimes_and_transitions_agree(case: Case, stream: np.ndarray) -> None:
    model = case.make()
    assert model.regimes() == [] and model.transitions().ids == []
    run = model.run(stream)
    regimes, moves = model.regimes(), model.transitions()
    ids = [regime.id for regime in regimes]
    assert ids == sorted(set(ids)) and (moves.ids == ids or moves.ids == [])
    assert moves.matrix.shape == (len(moves.ids),) * 2
    assert (moves.matrix >= 0).all() and (moves.matrix.sum(axis=1) <= 1 + 1e-9).all()
    for regime in regimes:
        assert 0 <= regime.first_seen <= regime.last_seen < len(stream)
        assert 0 <= regime.visits <= len(stream) and 0 < regime.probability <= 1
        assert np.isfinite(regime.mean).all() and (regime.sd > 0).all()
    if regimes:
        assert len(regimes) == run.n_regimes[-1]


def test_callbacks_receive_every_observation_in_order(case: Case, stream: np.ndarray) -> None:
    blocks: list[Block] = []
    forecasts: list[rk.Forecast] = []

    def record(block: Block) -> None:
        blocks.append(block)
        forecasts.extend(block.forecasts)

    run = case.make().run(stream, callbacks=[record])
    assert_same(run, case.make().run(stream))
    lengths = [len(block.regime) for block in blocks]
    assert [block.first for block in blocks] == [0, *np.cumsum(lengths)[:-1]]
    assert sum(lengths) == len(forecasts) == len(stream)
    assert np.concatenate([block.regime for block in blocks]).tolist() == run.regime.tolist()
    means = np.array([forecast.mean for forecast in forecasts])
    np.testing.assert_allclose(means, run.mean, rtol=1e-9, atol=1e-12)
    assert all(block.seconds > 0 for block in blocks)


@pytest.mark.parametrize("name", ONLINE)
def test_named_covariates_survive_copy_pickle_and_snapshot(name: str) -> None:
    y, x = np.sin(np.arange(30.0)), {"a": np.arange(30.0) % 7, "b": np.arange(30.0) % 3}
    model = rk.make(name)
    model.run(y, x)
    row = {"b": 1.0, "a": 3.0}
    for twin in (model.copy(), pickle.loads(pickle.dumps(model)), rk.from_bytes(model.to_bytes())):
        assert twin.predict(row).mean == model.predict(row).mean


def test_settings_show_what_is_in_effect() -> None:
    assert rk.beam_ihmm(iterations=30).settings()["burn_in"] == 15
    assert rk.dsm_bocd(noise=0.5).settings()["max_variance"] == 200.0
    for name in ("burn_in", "max_variance"):
        model = rk.beam_ihmm() if name == "burn_in" else rk.dsm_bocd()
        assert rk.make(model.name, **model.settings()).settings() == model.settings()


def test_a_pickle_continues_like_the_model(case: Case, stream: np.ndarray) -> None:
    model = case.make()
    model.run(stream[:40])
    twin = pickle.loads(pickle.dumps(model))
    assert type(twin) is type(model) and twin.outliers == model.outliers
    assert_same(twin.run(stream[40:80]), model.run(stream[40:80]))


@pytest.mark.parametrize("name", [n for n, entry in REGISTRY.items() if not entry.online])
def test_offline_models_can_be_made_and_kept(name: str) -> None:
    model = rk.make(name)
    settings = model.settings()
    assert json.loads(json.dumps(settings)) == settings
    assert rk.make(name, **settings).settings() == settings
    assert rk.from_bytes(model.to_bytes()).to_bytes() == model.to_bytes()


def test_every_model_is_described() -> None:
    described = rk.models()
    assert list(described) == list(REGISTRY)
    assert all(line and "(" in line for line in described.values())
