"""Generated streams, contamination and the loaders of real series."""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pooch
import pytest

from regimekit import datasets as data
from regimekit import metrics as evaluate
from regimekit.core.exceptions import RegimekitError
from regimekit.datasets import loaders as datasets

NAN = float("nan")
GENERATORS = [
    data.synthetic_regression,
    data.iid_regimes,
    data.two_state_sandbox,
    data.garch_regimes,
    data.regime_stream,
    data.ihmm_prior,
]


class TestGenerators:
    @pytest.mark.parametrize("make", GENERATORS)
    def test_the_seed_is_the_stream(self, make: Any) -> None:
        one, same, other = make(seed=3, n=300), make(3, n=300), make(seed=4, n=300)
        np.testing.assert_array_equal(one.y, same.y)
        assert not np.array_equal(one.y, other.y)

    @pytest.mark.parametrize("make", GENERATORS)
    def test_the_truth_is_consistent(self, make: Any) -> None:
        stream = make(seed=0, n=700)
        assert len(stream) == len(stream.regimes) == len(stream.outliers) == 700
        assert stream.regimes[0] == 0
        assert list(stream.changepoints) == evaluate.changepoints(stream.regimes)
        np.testing.assert_array_equal((stream.y != stream.clean), stream.outliers)
        assert np.isfinite(stream.y).all()

    @pytest.mark.parametrize("make", GENERATORS)
    def test_a_single_observation(self, make: Any) -> None:
        assert len(make(seed=0, n=1)) == 1

    def test_bad_settings_name_the_argument(self) -> None:
        for make, settings, match in (
            (data.iid_regimes, {"noise": "gaus"}, "noise='gaus'.*gauss"),
            (data.iid_regimes, {"stay": 1.5}, "stay"),
            (data.iid_regimes, {"n": 0}, "n must"),
            (data.synthetic_regression, {"outlier_share": -0.1}, "outlier_share"),
            (data.garch_regimes, {"high": (0.1, 0.5, 0.6)}, "alpha"),
            (data.two_state_sandbox, {"sds": (0.0, 1.0)}, "sds"),
        ):
            with pytest.raises(RegimekitError, match=match):
                make(0, **settings)

    def test_synthetic_regression_is_the_papers(self) -> None:
        stream = data.synthetic_regression(seed=0)
        assert stream.X.shape == (2500, 100)
        assert set(np.unique(stream.regimes)) == {0, 1, 2}
        # 1 % of 2500 is 25, sd 5; 12.5 switches, sd 3.5: 4 sd each, false alarm 1e-4
        assert 5 <= stream.outliers.sum() <= 45
        assert len(stream.changepoints) <= 27
        assert np.abs(stream.y[stream.outliers]).max() <= 600
        signal = np.einsum("td,td->t", stream.X, stream.info["theta"][stream.regimes])
        # |theta|^2 / 100 of three regimes has relative sd sqrt(2 / 100 / 3) = 0.082: 4 sd
        assert np.std(signal) == pytest.approx(100.0, rel=0.33)
        noise = stream.clean - signal
        # t(3) scaled to sd 1 has quartiles at 0.7649 / sqrt 3; the relative sd of a median of 2500
        # absolute errors is about 0.023
        quartile = np.median(np.abs(noise)) / (0.7649 / math.sqrt(3))
        assert quartile == pytest.approx(1.0, abs=0.1)

    def test_ihmm_prior_opens_regimes_as_the_urn_predicts(self) -> None:
        # With alpha -> infinity and no stickiness the path is a Chinese restaurant process with
        # concentration gamma: E[K] = sum_t gamma / (gamma + t). 200 streams of 50 observations;
        # K has variance below its mean, so 4 standard errors are 4 sqrt(6.0 / 200) = 0.69.
        counts = [
            data.ihmm_prior(seed=s, n=50, alpha=1e9, gamma=2.0, sticky=0.0).regimes.max() + 1
            for s in range(200)
        ]
        expected = sum(2.0 / (2.0 + t) for t in range(50))
        assert np.mean(counts) == pytest.approx(expected, abs=0.69)

    def test_ihmm_prior_is_sticky(self) -> None:
        # From one regime that is left for the first time at t, P(stay) = (sticky + t) / (alpha +
        # sticky + t) at least: with sticky 1000 and 100 rows fewer than one change is expected.
        changes = [
            len(data.ihmm_prior(seed=s, n=100, sticky=1000.0).changepoints) for s in range(40)
        ]
        # expected below 0.1 per stream: Poisson(4) exceeds 13 with probability 1e-4
        assert sum(changes) <= 13

    def test_signal_sd_scales_the_features_only(self) -> None:
        small, large = (
            data.synthetic_regression(seed=3, n=50, signal_sd=sd) for sd in (10.0, 40.0)
        )
        np.testing.assert_allclose(large.X, 4.0 * small.X)
        np.testing.assert_array_equal(large.regimes, small.regimes)
        np.testing.assert_array_equal(large.info["theta"], small.info["theta"])

    def test_zero_forecast_has_the_rmse_of_the_papers_models_without_weights(self) -> None:
        # The paper prints 101.7 (iHMM) and 103.8 (WoLF-iHMM). Ten streams: the sd of one stream's
        # figure is about 5, so 4 standard errors are 6.5.
        errors = [np.sqrt(np.mean(data.synthetic_regression(seed=s).y ** 2)) for s in range(10)]
        assert np.mean(errors) == pytest.approx(104.0, abs=6.5)

    @pytest.mark.parametrize(("noise", "median"), [("gauss", 0.5 * 0.6745), ("t", 0.7649 / 1.633)])
    def test_iid_regimes_is_the_papers(self, noise: str, median: float) -> None:
        stream = data.iid_regimes(seed=1, noise=noise)
        offset = stream.y - stream.clean
        for start in (134, 411, 900):
            np.testing.assert_allclose(offset[start : start + 5], [1, 3, 5, 3, 1], atol=1e-12)
        assert stream.outliers.sum() == 15
        errors = stream.clean - stream.info["means"][stream.regimes]
        # relative sd of a median of 1180 absolute errors is about 0.04
        assert np.median(np.abs(errors)) == pytest.approx(median, rel=0.16)

    def test_a_burst_at_the_end_is_cut(self) -> None:
        stream = data.iid_regimes(seed=0, n=136, bursts=(134, 411))
        assert np.flatnonzero(stream.outliers).tolist() == [134, 135]

    def test_regimes_stay_and_return(self) -> None:
        stream = data.regime_stream(seed=0, n=20_000, stay=0.99)
        rate = len(stream.changepoints) / 20_000
        assert rate == pytest.approx(0.01, abs=4 * math.sqrt(0.01 * 0.99 / 20_000))
        first_half = set(stream.regimes[:10_000])
        assert first_half == set(stream.regimes[10_000:]) == {0, 1, 2}

    def test_garch_follows_its_recursion(self) -> None:
        stream = data.garch_regimes(seed=2)
        variance, y = stream.info["variance"], stream.y
        omega, alpha, beta = stream.info["coefficients"][stream.regimes].T
        expected = omega[1:] + alpha[1:] * y[:-1] ** 2 + beta[1:] * variance[:-1]
        np.testing.assert_allclose(variance[1:], expected)
        calm, wild = (variance[stream.regimes == k].mean() for k in (0, 1))
        assert wild > 3 * calm
        # y^2 / variance has mean 1 and sd sqrt(2 / n): 4 sd
        assert (y**2 / variance).mean() == pytest.approx(1.0, abs=4 * math.sqrt(2 / len(y)))


class TestContaminate:
    @pytest.mark.parametrize("kind", data.KINDS)
    @pytest.mark.parametrize("shape", [(200,), (200, 3)])
    def test_input_is_untouched_and_the_mask_is_right(self, kind: str, shape: Any) -> None:
        y = np.random.default_rng(0).normal(size=shape)
        before = y.copy()
        settings: dict[str, Any] = {}
        if kind == "adversarial":
            settings = {"positions": [3, 50], "offset": [1e12, -1e12]}
        dirty, mask = data.contaminate(y, kind, seed=1, **settings)
        np.testing.assert_array_equal(y, before)
        assert dirty.shape == y.shape
        assert mask.shape == (200,)
        assert mask.any()
        touched = (dirty != y) if y.ndim == 1 else (dirty != y).any(axis=1)
        np.testing.assert_array_equal(touched, mask)

    def test_seed_or_generator(self) -> None:
        y = np.zeros(100)
        first = data.contaminate(y, "isolated", 5)
        same = data.contaminate(y, "isolated", np.random.default_rng(5))
        np.testing.assert_array_equal(first.y, same.y)

    def test_size_is_in_units_of_the_noise_not_of_the_levels(self) -> None:
        rng = np.random.default_rng(2)
        y = np.repeat([0.0, 100.0, -100.0], 400) + 0.5 * rng.normal(size=1200)
        dirty, _ = data.contaminate(y, "one_sided", positions=[10], size=10.0)
        # the MAD's relative sd at 1200 is 0.03 or so
        assert (dirty - y)[10] == pytest.approx(5.0, rel=0.15)
        fixed, _ = data.contaminate(y, "one_sided", positions=[10], size=10.0, scale=2.0)
        assert (fixed - y)[10] == pytest.approx(20.0)

    def test_shapes_of_the_windows(self) -> None:
        settings: dict[str, Any] = {"positions": [2], "length": 4, "offset": 8.0}
        zero = np.zeros(8)
        ramp = data.contaminate(zero, "drift", **settings).y
        assert np.abs(ramp).tolist() == [0, 0, 2, 4, 6, 8, 0, 0]
        zigzag = data.contaminate(zero, "alternating", **settings).y
        assert zigzag.tolist() == [0, 0, 8, -8, 8, -8, 0, 0]
        stuck = data.contaminate(np.arange(8.0), "stuck", **settings)
        assert stuck.y.tolist() == [0, 1, 2, 2, 2, 2, 6, 7]
        assert np.flatnonzero(stuck.mask).tolist() == [3, 4, 5]
        gap = data.contaminate(zero, "missing", **settings).y
        assert np.flatnonzero(np.isnan(gap)).tolist() == [2, 3, 4, 5]

    def test_windows_stay_inside(self) -> None:
        dirty, mask = data.contaminate(np.zeros(6), "burst", positions=[4], length=10, offset=1.0)
        assert np.flatnonzero(mask).tolist() == [4, 5]
        drawn = data.contaminate(np.zeros(3), "burst", 0, windows=9, length=5, offset=1.0)
        assert len(drawn.y) == 3
        assert len(data.contaminate(np.zeros(0), "burst").y) == 0
        assert dirty.size == 6

    def test_gaps_in_the_input_are_kept(self) -> None:
        y = np.array([NAN, 1.0, NAN, 2.0, 1.5, NAN])
        dirty, mask = data.contaminate(y, "isolated", positions=[1])
        assert np.isnan(dirty[[0, 2, 5]]).all()
        assert np.isfinite(dirty[1])
        assert mask.sum() == 1

    def test_errors_name_the_argument(self) -> None:
        y = np.zeros(10)
        for kind, settings, match in (
            ("bursts", {}, "kind='bursts'.*burst"),
            ("burst", {"positions": [10]}, "positions"),
            ("burst", {"length": 0}, "length"),
            ("isolated", {"rate": 2.0}, "rate"),
            ("isolated", {"scale": 0.0}, "scale"),
            ("adversarial", {"positions": [1]}, "needs positions and offset"),
            ("adversarial", {"positions": [1, 2, 3], "offset": [1.0, 2.0]}, "offset"),
        ):
            with pytest.raises(RegimekitError, match=match):
                data.contaminate(y, kind, **settings)


class TestStandardise:
    def test_uses_the_training_part_only(self) -> None:
        y = np.array([1.0, 3.0, 100.0])
        np.testing.assert_allclose(data.standardise(y, train=2), [-1.0, 1.0, 98.0])
        changed = np.array([1.0, 3.0, -5.0])
        assert (data.standardise(changed, 2)[:2] == data.standardise(y, 2)[:2]).all()

    def test_dataset(self) -> None:
        stream = data.synthetic_regression(seed=0, n=300, dim=3)
        scaled = data.standardise(stream, train=100)
        assert scaled.y[:100].std() == pytest.approx(1.0)
        np.testing.assert_allclose(scaled.X[:100].mean(axis=0), 0.0, atol=1e-12)
        back = scaled.clean * scaled.info["y_sd"] + scaled.info["y_mean"]
        np.testing.assert_allclose(back, stream.clean)
        assert stream.info.get("y_sd") is None

    def test_constant_columns_and_gaps(self) -> None:
        assert data.standardise(np.array([2.0, 2.0, 2.0])).tolist() == [0, 0, 0]
        assert np.isnan(data.standardise(np.array([1.0, NAN, 3.0]))[1])

    def test_train_must_fit(self) -> None:
        with pytest.raises(RegimekitError, match="train"):
            data.standardise(np.zeros(3), train=4)


class TestDataset:
    def test_select_and_frame(self) -> None:
        table = data.Dataset(
            y=np.zeros(2), X=np.array([[1.0, 2.0], [3.0, 4.0]]), columns=("a", "b")
        )
        assert table.select("b").X.tolist() == [[2.0], [4.0]]
        assert list(table.frame().columns) == ["a", "b"]
        with pytest.raises(RegimekitError, match="names='c'"):
            table.select("c")
        with pytest.raises(RegimekitError, match="no covariates"):
            data.Dataset(y=np.zeros(2)).frame()


def test_bucketed() -> None:
    assert data.bucketed(np.arange(7), 3).tolist() == [3.0, 12.0]
    assert data.bucketed([5.0], 1).tolist() == [5.0]
    assert data.bucketed([5.0], 2).tolist() == []
    with pytest.raises(RegimekitError, match="bucket"):
        data.bucketed([1.0], 0)


class TestLoading:
    def test_unknown_name(self) -> None:
        with pytest.raises(RegimekitError, match="Did you mean 'well_log'"):
            data.load("wellog")

    def test_bucket_is_for_order_flow(self) -> None:
        with pytest.raises(RegimekitError, match="bucket"):
            data.load("well_log", bucket=3)

    def test_without_an_address_the_error_names_the_folder(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.delenv("REGIMEKIT_DATA", raising=False)
        with pytest.raises(RegimekitError, match=r"IEEE DataPort.*REGIMEKIT_DATA"):
            data.load("electricity")
        monkeypatch.setenv("REGIMEKIT_DATA", str(tmp_path))
        with pytest.raises(RegimekitError, match=r"LOBSTER.*REGIMEKIT_DATA"):
            data.load("ofi_amzn")

    def test_a_wrong_file_is_refused(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        (tmp_path / "well_log").mkdir()
        (tmp_path / "well_log" / "well.txt").write_text("1.0\n2.0\n")
        monkeypatch.setenv("REGIMEKIT_DATA", str(tmp_path))
        with pytest.raises(RegimekitError, match="SHA-256"):
            data.load("well_log")

    def test_a_failed_download_is_explained(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        waited: list[float] = []

        def offline(*args: Any, downloader: Any) -> str:
            waited.append(downloader.kwargs["timeout"])
            raise OSError("no route")

        monkeypatch.setenv("REGIMEKIT_DATA", str(tmp_path))
        monkeypatch.setattr(pooch, "retrieve", offline)
        with pytest.raises(RegimekitError, match=r"no route.*REGIMEKIT_DATA"):
            data.load("well_log")
        assert waited[0] <= 10

    def test_a_download_without_pooch_names_the_extra(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv("REGIMEKIT_DATA", str(tmp_path))
        monkeypatch.setitem(sys.modules, "pooch", None)
        with pytest.raises(RegimekitError, match=r"regimekit\[data\].*REGIMEKIT_DATA"):
            data.load("well_log")

    def test_downloads_ask_for_the_same_hash(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        seen: dict[str, Any] = {}

        def fetched(url: str, known_hash: str, fname: str, path: Any, downloader: Any) -> str:
            seen.update(url=url, known_hash=known_hash)
            target = tmp_path / fname
            target.write_text("1.0\n2.0\n")
            return str(target)

        monkeypatch.delenv("REGIMEKIT_DATA", raising=False)
        monkeypatch.setattr(pooch, "retrieve", fetched)
        assert data.load("well_log").y.tolist() == [1.0, 2.0]
        assert seen["url"].startswith("https://")
        assert seen["known_hash"].startswith("sha256:cd2a1be7")


def present(name: str) -> None:
    """Skip unless the file of `name` is in the folder REGIMEKIT_DATA."""
    folder = os.environ.get("REGIMEKIT_DATA")
    if not folder:
        pytest.skip("REGIMEKIT_DATA is not set")
    path = Path(folder) / datasets.SOURCES[name].path
    if not path.is_file():
        pytest.skip(f"{path} is absent")


SHAPES = {
    "well_log": (4050,),
    "electricity": (31912,),
    "ofi_es": (8333,),
    "ofi_amzn": (681,),
    "tcpd/run_log": (376, 2),
    "tcpd/quality_control_1": (313,),
    "tcpd/quality_control_2": (283,),
    "tcpd/nile": (100,),
}


class TestRealSeries:
    @pytest.mark.parametrize("name", data.names())
    def test_loads_complete(self, name: str) -> None:
        present(name)
        series = data.load(name)
        assert series.y.shape == SHAPES[name]
        assert np.isfinite(series.y).all()
        assert len(series.time) == len(series)
        assert series.info["name"] == name
        marks = [*series.changepoints, *(t for one in series.annotations.values() for t in one)]
        assert all(0 < t < len(series) for t in marks)

    def test_well_log_has_both_kinds_of_truth(self) -> None:
        present("well_log")
        series = data.load("well_log")
        path = Path(os.environ["REGIMEKIT_DATA"]) / "well_log" / "well_log_changepoints.json"
        if not path.is_file():
            pytest.skip(f"{path} is absent")
        published = json.loads(path.read_text())
        assert list(series.changepoints) == published["paper_beam_changepoints_0based"]
        people = published["tcpd_annotators_full_resolution_index"]
        assert {who: list(marks) for who, marks in series.annotations.items()} == people

    def test_electricity_columns_and_scaling(self) -> None:
        present("electricity")
        series = data.load("electricity", standardised=True)
        assert series.columns[:4] == ("temperature_c", "pressure", "humidity_pct", "wind_speed_kmh")
        np.testing.assert_allclose(series.X.std(axis=0), 1.0)
        assert series.y.mean() == pytest.approx(0.0, abs=1e-10)
        hours = np.diff(series.time) / np.timedelta64(1, "h")
        assert (hours == 1).all()

    def test_order_flow_buckets_add_up(self) -> None:
        present("ofi_amzn")
        fine, coarse = data.load("ofi_amzn", bucket=1), data.load("ofi_amzn", bucket=20)
        assert len(fine) == 6818
        assert coarse.y[0] == fine.y[:20].sum()
        assert coarse.time[0] == fine.time[19]
