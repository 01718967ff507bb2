"""Snapshots: what is in them, and how everything that is none is refused."""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import regimekit as rk
from benchmarks import snapshots as benchmark
from regimekit.serialization import container
from regimekit.serialization.validation import Arrays


def small_model(updates: int = 9) -> Any:
    model = rk.br_ihmm(particles=3, batch=4, max_regimes=4, islands=2, features=rk.features.lags(1))
    model.run(np.random.default_rng(0).standard_normal(updates))
    return model


@pytest.fixture(scope="module")
def data() -> bytes:
    return bytes(small_model().to_bytes())


def opened(data: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    header, arrays = container.read(data)
    return header, {name: arrays[name].copy() for name in arrays.names()}


def header_with(data: bytes, **fields: Any) -> bytes:
    header, arrays = opened(data)
    return container.write(header | fields, arrays)


def refused(data: bytes) -> str:
    with pytest.raises(rk.SnapshotError) as caught:
        rk.from_bytes(data)
    return str(caught.value)


def test_format_is_a_header_and_plain_arrays(data: bytes) -> None:
    assert data.startswith(b"regimekit\x04")
    header, arrays = opened(data)
    assert set(header) == {"model", "state", "settings", "values"}
    assert header["model"] == "br_ihmm"
    assert header["settings"] == small_model().settings()
    assert header["values"]["rng"]["bit_generator"] == "PCG64"
    values, packed = small_model()._full_state()
    assert header["values"] == json.loads(json.dumps(values))
    assert arrays.keys() == packed.keys()
    for name, array in packed.items():
        np.testing.assert_array_equal(arrays[name], array)
        assert arrays[name].dtype == array.dtype


ODD = np.frombuffer(np.array([0x7FF8000000000001, -1], np.int64).tobytes())  # NaN with a payload


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(0),
        np.zeros((0, 3)),
        np.zeros(()),
        np.zeros((40, 2)),
        np.ones(50),
        np.array([0.1, -0.0, np.nan, np.inf, 5e-324, 1e308]),
        np.r_[np.zeros(40), -0.0, 0.1],
        np.repeat(np.random.default_rng(0).standard_normal(9), 20).reshape(3, 60),
        ODD,
        np.float64(np.random.default_rng(0).standard_normal(30).astype(np.float32)),
        np.random.default_rng(1).standard_normal((30, 30)),
        np.linspace(0, 1, 40_000),
        np.repeat(np.random.default_rng(2).standard_normal(300), 4),
        np.arange(-128, 128),
        np.array([2**15]),
        np.array([-(2**31)]),
        np.array([2**62, -(2**63)]),
        np.array([], int),
        np.array([True, False, True]),
        np.asfortranarray(np.arange(12.0).reshape(3, 4) / 7),
        np.arange(24)[::2].reshape(3, 4),
    ],
)
def test_every_array_comes_back_to_the_bit(array: np.ndarray) -> None:
    found = container.read(container.write({}, {"a": array, "b": np.arange(3)}))[1]
    assert found["a"].dtype == array.dtype and found["a"].shape == array.shape
    assert found.form("a") == (array.dtype.kind, array.shape)
    assert found["a"].tobytes() == np.ascontiguousarray(array).tobytes()
    assert found["b"].tolist() == [0, 1, 2]


def asked_of(arrays: Arrays, name: str, shape: tuple[int, ...], **limits: Any) -> Any:
    """What comes of asking for floats and for whole numbers: bytes, or a refusal."""
    found = []
    for ask in (arrays.floats, arrays.wholes):
        try:
            array = ask(name, shape, **limits)
            found.append((array.tobytes(), array.dtype, array.shape, array.flags.writeable))
        except rk.SnapshotError as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize("limits", [{}, {"least": 0}, {"most": 0}, {"least": -1, "most": 1}])
def test_packed_arrays_are_given_and_refused_as_others_are(limits: Any) -> None:
    """Their ranges are known in advance, whichever form they lie in; that must not be seen."""
    rng = np.random.default_rng(0)
    arrays: dict[str, np.ndarray] = {
        "narrow": rng.uniform(-0.9, 0.9, (4, 3)),
        "positive": rng.uniform(0.1, 2.0, (4, 3)),
        "nothing": np.zeros((4, 3)),
        "some": np.eye(4, 3) * rng.uniform(0.5, 2.0, (4, 3)),
        "missing": np.where(np.arange(12).reshape(4, 3) == 5, np.nan, 0.1),
        "endless": np.where(np.arange(12).reshape(4, 3) == 5, -np.inf, 0.1),
        "wholes": rng.integers(-1, 2, (4, 3)),
        "counts": rng.integers(0, 2**40, (4, 3)),
        "flags": np.ones((4, 3), np.bool_),
        "turned": rng.standard_normal((3, 4)),
        "empty": np.zeros((0, 3)),
    }
    arrays |= {f"many {n}": np.tile(a, (9, 1)) for n, a in arrays.items()}
    packed = container.read(container.write({}, arrays))[1]
    for name, array in arrays.items():
        for shape in (array.shape, (4, 3)):
            plain = asked_of(Arrays(arrays), name, shape, **limits)
            assert asked_of(packed, name, shape, **limits) == plain, name
    first, second = (packed.floats("narrow", (4, 3)) for _ in range(2))
    assert not np.shares_memory(first, second)


def test_equal_states_are_equal_bytes(data: bytes) -> None:
    model = small_model()
    assert model.to_bytes() == model.to_bytes() == small_model().to_bytes() == data
    model.update(0.1)
    assert model.to_bytes() != data


def test_cut_short_anywhere_it_is_refused(data: bytes) -> None:
    for cut in range(0, len(data), 10):
        assert "truncated" in refused(data[:cut])
    assert "truncated" in refused(data[:-1])


def test_a_damaged_byte_is_refused_or_harmless(data: bytes) -> None:
    """A flip in the file's own bookkeeping may change nothing; anything else is an error."""
    places = range(0, len(data), 23)
    accepted = 0
    for at in places:
        damaged = bytearray(data)
        damaged[at] ^= 0x55
        try:
            model = rk.from_bytes(bytes(damaged))
        except rk.SnapshotError:
            continue
        accepted += 1
        assert model.to_bytes() == data
    assert accepted < 0.1 * len(places)  # nearly every byte matters


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "truncated"),
        (b"garbage", "not a regimekit snapshot"),
        (bytes(range(256)) * 40, "not a regimekit snapshot"),
        (pickle.dumps({"model": "br_ihmm"}), "not a regimekit snapshot"),
        (json.dumps({"model": "br_ihmm"}).encode(), "not a regimekit snapshot"),
    ],
    ids=["empty", "text", "bytes", "pickle", "json"],
)
def test_what_is_no_archive_is_refused(content: bytes, word: str) -> None:
    assert word in refused(content)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"model": "oracle"}, "'oracle'"),
        ({"model": ["br_ihmm"]}, "br_ihmm"),
        ({"settings": {"particels": 3}}, "particels"),
        ({"settings": {"particles": -3}}, "particles"),
        ({"settings": 3}, "settings must be"),
        ({"values": {}}, "started"),
        ({"values": {"started": True}}, "shape"),
        ({"values": None}, "values must be"),
    ],
)
def test_a_strange_header_is_refused(data: bytes, fields: dict[str, Any], word: str) -> None:
    assert word in refused(header_with(data, **fields))


@pytest.mark.parametrize("key", ["model", "settings", "values"])
def test_a_header_without_a_field_is_refused(data: bytes, key: str) -> None:
    header, arrays = opened(data)
    del header[key]
    assert key in refused(container.write(header, arrays))


def test_a_missing_array_is_refused(data: bytes) -> None:
    header, arrays = opened(data)
    for name in arrays:
        rest = {other: array for other, array in arrays.items() if other != name}
        assert name in refused(container.write(header, rest))


@pytest.mark.parametrize(
    "name",
    ["particles.alpha", "particles.counts", "work.taken", "work.gain", "row.root", "past.values"],
)
def test_an_array_of_another_shape_is_refused(data: bytes, name: str) -> None:
    array = array_of(data, name)
    for wrong in (array[:-1], np.concatenate([array, array]), array[..., None]):
        assert refused(with_array(data, name, wrong))


def test_save_and_load(tmp_path: Path, data: bytes) -> None:
    model = small_model()
    for path in (tmp_path / "model.regimekit", str(tmp_path / "other")):
        model.save(path)
        assert Path(path).read_bytes() == data
        assert rk.load(path).to_bytes() == data
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.regimekit", "other"]


def test_save_is_all_or_nothing(
    tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash before the new file is whole leaves the old one as it was."""
    path = tmp_path / "model"
    small_model().save(path)

    def crash(*_: Any) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", crash)
        with pytest.raises(OSError, match="disk full"):
            small_model(30).save(path)
    assert path.read_bytes() == data
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", crash)
        with pytest.raises(OSError, match="disk full"):
            small_model(30).save(path)
    assert path.read_bytes() == data and [p.name for p in tmp_path.iterdir()] == ["model"]
    small_model(30).save(path)
    assert rk.load(path).to_bytes() == small_model(30).to_bytes()


def test_a_path_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(rk.RegimekitError, match="path"):
        rk.load(tmp_path / "nowhere")
    with pytest.raises(rk.RegimekitError, match="path"):
        rk.load(tmp_path)


def array_of(data: bytes, name: str) -> np.ndarray:
    return opened(data)[1][name]


def with_array(data: bytes, name: str, array: np.ndarray) -> bytes:
    header, arrays = opened(data)
    return container.write(header, arrays | {name: array})


HUGE = 1 << 40
CRAFTED = [
    ("particles.slots", HUGE),
    ("particles.slots", -1),
    ("particles.slots", 63),
    ("particles.n_regimes", HUGE),
    ("particles.n_regimes", -1),
    ("particles.n_regimes", 3),
    ("particles.current", HUGE),
    ("particles.current", -2),
    ("particles.current", 2),
    ("particles.log_weight", np.nan),
    ("particles.log_weight", 1.0),
    ("particles.log_weight", -np.inf),
    ("particles.alpha", 0.0),
    ("particles.gamma", np.inf),
    ("particles.log_beta", np.nan),
    ("particles.counts", -1),
    ("particles.start", -1),
    ("clock.position", HUGE),
    ("clock.position", 4),
    ("clock.position", -1),
    ("clock.observed", 3),
    ("clock.observed", -1),
    ("clock.size", 0),
    ("clock.size", HUGE),
    ("clock.outliers", np.nan),
    ("clock.ess", np.inf),
    ("candidates.score", np.nan),
    ("candidates.outliers", HUGE),
    ("candidates.outliers", -1),
    ("row.mean", np.nan),
    ("row.root", np.inf),
    ("row.root", 0.0),
    ("recent_y", np.inf),
    ("recent_design", np.nan),
    ("pool.label", HUGE),
    ("pool.first_seen", HUGE),
    ("pool.reported", 2),
    ("work.taken", HUGE),
    ("work.taken", -1),
    ("work.taken", 8),
    ("work.u", np.inf),
    ("work.gain", 1e200),
    ("work.shrink", np.nan),
    ("work.shrink", 1e200),
]


@pytest.mark.parametrize(("name", "value"), CRAFTED)
@pytest.mark.parametrize("where", ["first", "last", "all"])
def test_crafted_values_are_refused(data: bytes, name: str, value: float, where: str) -> None:
    """Kernels index without bounds: no number that they trust may come from outside unchecked."""
    array = array_of(data, name)
    at = {"first": 0, "last": -1, "all": slice(None)}[where]
    flat = array.reshape(-1)
    unchanged = (flat[at] == value).all()
    flat[at] = value
    crafted = with_array(data, name, array)
    try:
        model = rk.from_bytes(crafted)
    except rk.SnapshotError as error:
        assert "snapshot" in str(error).lower()
    else:  # a place that nothing reads: unused slots, a candidate past the last
        assert where != "all" or unchanged
        model.run(np.random.default_rng(1).standard_normal(40))
        assert np.isfinite(model.predict().mean)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"time": -1}, "time"),
        ({"next_label": -1}, "next_label"),
        ({"n_known": HUGE}, "n_known"),
        ({"changed": HUGE}, "changed"),
        ({"since": HUGE}, "since"),
        ({"reported_ever": [0.5]}, "reported_ever"),
        ({"reported_ever": [HUGE]}, "reported_ever"),
        ({"reported": None}, "reported"),
        ({"last_reported": HUGE}, "last_reported"),
        ({"shape": [1, 10**9, True]}, "shape"),
        ({"shape": [10**9, 1, True]}, "shape"),
        ({"rng": {"bit_generator": "MT19937"}}, "random"),
        ({"report": {"names": 3}}, "names"),
    ],
)
def test_huge_and_strange_claims_are_refused(
    data: bytes, fields: dict[str, Any], word: str
) -> None:
    values = opened(data)[0]["values"]
    assert word in refused(header_with(data, values=values | fields))


def test_more_particles_than_the_arrays_hold_are_refused(data: bytes) -> None:
    settings = opened(data)[0]["settings"]
    message = refused(header_with(data, settings=settings | {"particles": 1_000_000}))
    assert "particles" in message


def test_steps_that_no_batch_has_taken_are_refused() -> None:
    """One step too many would leave no room for the batch's last observation."""
    model = rk.br_ihmm(particles=4, islands=2, batch=4, noise=0.25)
    model.run(np.random.default_rng(0).standard_normal((14, 2)))  # vectors: steps as they are
    data = model.to_bytes()
    taken = array_of(data, "work.taken")
    seen = 2 * array_of(data, "clock.observed")
    assert seen.size == 2 and (taken <= seen.max()).all() and seen[0] != seen[1]
    of_first = 0 if seen[0] < seen[1] else -1  # candidates of the islands follow each other
    taken[of_first] = seen.min() + 1
    assert "exceeds the number of observations" in refused(with_array(data, "work.taken", taken))


@pytest.mark.parametrize("name", ["br_ihmm", "student_t_ihmm", "garch_ihmm"])
def test_a_snapshot_of_every_moment_is_read_to_the_bit(name: str) -> None:
    """At every moment of batches with gaps and values that no candidate learns."""
    rng = np.random.default_rng(4)
    x = rng.standard_normal((60, 3))
    y = x @ [2.0, -1.0, 0.5] + np.repeat([0.0, 6.0, 0.0], 20) + 0.3 * rng.standard_normal(60)
    y[[7, 31, 50]] = np.nan, 1e12, -40.0
    linear = name != "garch_ihmm"
    features = {"features": rk.features.intercept() + rk.features.columns()} if linear else {}
    model = rk.make(name, particles=12, batch=5, **features)
    for value, row in zip(y, x, strict=True):
        model.update(value, row if linear else None)
        data = model.to_bytes()
        assert rk.from_bytes(data).to_bytes() == data


def test_a_loaded_model_equals_one_whose_arrays_grew_earlier() -> None:
    # The loaded model enlarges its arrays between the forecast and the update of observation 953,
    # the other one did so before. The shares of distant regimes (D17) must survive that.
    rng = np.random.default_rng(sum(b"soak2"))
    levels = np.repeat(rng.normal(0, 5, 4000), 50)
    y = np.round(levels + rng.standard_normal(200_000), 3)[:960]
    model = rk.br_ihmm(particles=20, noise=0.16)
    model.run(y[:900])
    loaded = rk.from_bytes(model.to_bytes())
    np.testing.assert_array_equal(loaded.run(y[900:]).mean, model.run(y[900:]).mean)


def test_shares_that_do_not_sum_to_one_are_refused() -> None:
    model = rk.br_ihmm(particles=8, noise=0.25)
    model.run(np.repeat([0.0, 6.0], 40) + 0.5 * np.random.default_rng(0).standard_normal(80))
    data = model.to_bytes()
    for name, value in (
        ("particles.log_beta", 0.0),
        ("particles.log_beta", np.nan),
        ("particles.log_beta", -np.inf),
        ("particles.log_weight", 0.0),
        ("particles.log_weight", -700.0),
    ):
        array = array_of(data, name)
        array.flat[0] = value
        assert name in refused(with_array(data, name, array))


@pytest.mark.parametrize("islands", [1, 3])
def test_resumed_at_every_moment_it_goes_on_to_the_bit(islands: int) -> None:
    """In the middle of batches of every island, at changes and in gaps."""
    rng = np.random.default_rng(2)
    y = np.repeat([0.0, 4.0, 0.0], 12) + 0.4 * rng.standard_normal(36)
    y[[5, 20]] = np.nan
    model = rk.br_ihmm(batch=4, particles=12, islands=islands, noise=0.16, prior_var=9.0)
    whole = rk.br_ihmm(batch=4, particles=12, islands=islands, noise=0.16, prior_var=9.0).run(y)
    for t, value in enumerate(y):
        step = model.update(value)
        model = rk.from_bytes(model.to_bytes())
        np.testing.assert_equal(step.log_score, whole.log_score[t])
        assert (step.regime, step.weight) == (whole.regime[t], whole.weight[t])
    again = rk.br_ihmm(batch=4, particles=12, islands=islands, noise=0.16, prior_var=9.0)
    again.run(y)
    assert model.to_bytes() == again.to_bytes()


@pytest.mark.parametrize(
    "settings", [{"noise": 0.2, "prior_var": 4.0}, {}], ids=["given", "estimated"]
)
def test_models_with_the_same_settings_have_nothing_else_in_common(settings: Any) -> None:
    """Settings are read once for many; what two of them learn stays apart, and is as ever."""
    rng = np.random.default_rng(5)
    begun = rk.br_ihmm(particles=10, batch=3, **settings)
    begun.run(rng.standard_normal(30))
    data = begun.to_bytes()
    streams = rng.standard_normal((2, 120)), 7 + 3 * rng.standard_normal((2, 120))
    for stream in streams:
        ones = [rk.from_bytes(data), rk.from_bytes(data)]
        for pair in stream.T:
            for model, y in zip(ones, pair, strict=True):
                model.update(y)
        for model, y in zip(ones, stream, strict=True):
            alone = rk.from_bytes(data)
            alone.run(y)
            assert model.to_bytes() == alone.to_bytes()
    begun.run(streams[0][0])
    assert rk.from_bytes(data).to_bytes() == data


def filter_size(data: bytes) -> int:
    """Bytes of a snapshot without the samples that describe the regimes, which are bounded."""
    header, arrays = container.read(data)
    own = {name: arrays[name] for name in arrays.names() if not name.startswith("statistics.")}
    return len(container.write(header, own))


def test_sizes_stay_small() -> None:
    """A hundred particles with a few levels."""
    y = np.repeat([0.0, 5.0, -4.0, 0.0, 9.0, 5.0], 100) + 0.5 * np.random.default_rng(0).normal(
        size=600
    )
    model = rk.br_ihmm(noise=0.25, prior_var=25.0)
    model.run(y)
    data = model.to_bytes()
    assert filter_size(data) < 11_500
    assert len(data) < 20_000


def test_ten_regimes_of_ten_coefficients_take_a_tenth_of_their_matrices() -> None:
    y, x = benchmark.regressions(np.random.default_rng(0))
    features = rk.features.intercept() + rk.features.columns()
    model = rk.br_ihmm(noise=0.25, prior_var=25.0, features=features)
    for part in range(0, 1200, 300):
        model.run(y[part : part + 300], x[part : part + 300])
        data = model.to_bytes()
        _, dense = benchmark.dense(data)
        assert filter_size(data) <= dense / 10
