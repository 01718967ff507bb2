"""Settings beyond the documented maxima are refused before anything is allocated."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from crafted import opened, with_header

import regimekit as rk
from regimekit.core import limits

BEYOND: list[tuple[str, dict[str, Any]]] = [
    ("br_ihmm", {"batch": limits.MAX_BATCH + 1}),
    ("br_ihmm", {"batch": 6000}),
    ("br_ihmm", {"dim": limits.MAX_DIM + 1}),
    ("br_ihmm", {"particles": limits.MAX_PARTICLES + 1}),
    ("br_ihmm", {"particles": 10_000, "islands": limits.MAX_ISLANDS + 1}),
    ("br_ihmm", {"max_regimes": limits.MAX_REGIMES + 1}),
    ("br_ihmm", {"features": [{"term": "season", "period": 9000.0, "harmonics": 2000}]}),
    ("garch_ihmm", {"cloud": limits.MAX_CLOUD + 1}),
    ("bocd", {"dim": limits.MAX_DIM + 1}),
    ("bocd", {"max_run_lengths": limits.MAX_RUN_LENGTHS + 1}),
    ("dsm_bocd", {"training": limits.MAX_TRAINING + 1}),
    ("seasonal_last_value", {"period": limits.MAX_PERIOD + 1}),
    ("auto", {"seasons": [limits.MAX_PERIOD + 1]}),
    ("beam_ihmm", {"iterations": 4_000_000}),
    ("beam_ihmm", {"chains": limits.MAX_CHAINS + 1}),
]


@pytest.mark.parametrize(("name", "settings"), BEYOND)
def test_settings_beyond_the_maxima_are_refused(name: str, settings: dict[str, Any]) -> None:
    started = time.process_time()
    with pytest.raises(rk.RegimekitError, match="at most"):
        rk.make(name, **settings)
    data = rk.make(name).to_bytes()

    def change(header: dict[str, Any]) -> None:
        header["settings"].update(settings)

    with pytest.raises(rk.RegimekitError, match="at most"):
        rk.from_bytes(with_header(data, change))
    assert time.process_time() - started < 5.0


@pytest.mark.parametrize("name", ["br_ihmm", "student_t_ihmm", "bocd"])
def test_wide_observations_are_refused(name: str) -> None:
    with pytest.raises(rk.RegimekitError, match="dim must be at most"):
        rk.make(name).update(np.zeros(limits.MAX_DIM + 1))


def test_a_regression_has_a_limited_number_of_coefficients() -> None:
    wide = rk.features.season(9000.0, harmonics=900)
    with pytest.raises(rk.RegimekitError, match="coefficients"):
        rk.make("least_squares", features=wide).update(1.0)


def test_a_horizon_is_limited() -> None:
    with pytest.raises(rk.RegimekitError, match="horizon must be at most"):
        rk.make("last_value").forecast(limits.MAX_HORIZON + 1)


def test_a_large_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regimekit.core.registry.MAX_SNAPSHOT_BYTES", 1000)
    (tmp_path / "large").write_bytes(bytes(1001))
    with pytest.raises(rk.SnapshotError, match="more than 1000 bytes"):
        rk.load(tmp_path / "large")


_COST = """
import sys, time, resource, regimekit as rk, numpy as np
rk.make("br_ihmm").run(np.zeros(3))
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before, began = peak(), time.process_time()
for path in sys.argv[1:]:
    try:
        rk.load(path)
    except rk.SnapshotError:
        pass
    except rk.RegimekitError:
        pass
print(peak() - before, time.process_time() - began)
"""


def test_small_files_cost_little(tmp_path: Path) -> None:
    """Crafted files of a few hundred bytes take neither 100 MB nor 10 s, all together."""
    paths = []
    for i, (name, settings) in enumerate(BEYOND):
        largest = {
            key: value - 1 if isinstance(value, int) and value > 100 else value
            for key, value in settings.items()
        }
        for j, chosen in enumerate((settings, largest)):
            data = rk.make(name).to_bytes()

            def change(header: dict[str, Any], chosen: dict[str, Any] = chosen) -> None:
                header["settings"].update(chosen)

            paths.append(tmp_path / f"{i}-{j}")
            paths[-1].write_bytes(with_header(data, change))
            assert paths[-1].stat().st_size < 1000
    words = [sys.executable, "-c", _COST, *map(str, paths)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    megabytes, seconds = map(float, done.stdout.split())
    assert megabytes < 100 and seconds < 10


def test_a_huge_root_in_least_squares_is_refused() -> None:
    model = rk.make("least_squares")
    model.run(np.arange(20.0))
    values, arrays = model._pack()
    arrays["rows_1"].flat[0] = -1e155
    twin = rk.make("least_squares")
    with pytest.raises(rk.SnapshotError, match="rows_1"):
        twin._unpack(values, arrays)


def test_the_header_is_readable() -> None:
    header, _ = opened(rk.make("last_value").to_bytes())
    assert header["settings"]
