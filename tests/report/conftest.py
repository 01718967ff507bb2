"""Runs to report on: a real one, a long one made by hand, and a browser to look at the page."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import regimekit as rk
from regimekit.results import RETURNED, Event, Run

_FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


class Case(NamedTuple):
    """What a report is made from."""

    run: Run
    model: Any
    y: np.ndarray
    times: np.ndarray


@pytest.fixture(scope="session")
def case() -> Case:
    """Two levels that return, a spike far out, a gap; one observation per hour."""
    rng = np.random.default_rng(3)
    y = np.repeat([0.0, 4.0, 0.0, 4.0], 60) + 0.4 * rng.standard_normal(240)
    y[100], y[130:133] = 60.0, np.nan
    model = rk.br_ihmm(noise=0.16, prior_var=9.0, particles=30)
    return Case(model.run(y), model, y, _hours(240))


@pytest.fixture(scope="session")
def long_case() -> Case:
    """100 000 observations with noise in every column: nothing about them is easy to compress."""
    n = 100_000
    rng = np.random.default_rng(0)
    regime = np.repeat(rng.integers(0, 9, 500), rng.integers(150, 350, 500))[:n]
    level = 100 + rng.normal(0, 3, 9)[regime] + np.sin(np.arange(n) / 24 * 2 * np.pi)
    sd = (0.3 + rng.random(9))[regime]
    y, mean = level + sd * rng.standard_normal(n), level + 0.1 * rng.standard_normal(n)
    outlier = rng.random(n) < 0.02
    y[outlier] += 20 * rng.standard_t(1.2, outlier.sum())
    y[5000], outlier[5000], y[700:760] = 1e12, True, np.nan
    run = make_run(
        mean=mean,
        sd=sd,
        lower=mean - 1.7 * sd * rng.uniform(1, 1.1, n),
        y=y,
        upper=mean + 1.7 * sd * rng.uniform(1, 1.1, n),
        outlier=outlier,
        regime=regime,
        weight=np.where(outlier, 0.05, rng.uniform(0.6, 1, n)),
        change_probability=rng.random(n) ** 6,
        path=regime,
    )
    model = rk.br_ihmm(particles=10)
    model.run(y[:60] - 100)
    return Case(run, model, y, _hours(n))


def make_run(**columns: Any) -> Run:
    """A Run with these columns; the others are filled in, whatever their names."""
    n = len(columns["mean"])
    filled = {
        field.name: columns.get(field.name, np.ones(n))
        for field in dataclasses.fields(Run)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }
    edges = np.flatnonzero(np.diff(columns["path"])) + 1
    path = columns["path"]
    events = [
        Event(time=t, kind=RETURNED, regime=int(path[t]), previous=int(path[t - 1]))
        for t in edges.tolist()
    ]
    return Run(**filled | {"events": events})


def _hours(n: int) -> np.ndarray:
    return np.datetime64("2020-01-01T00:00") + np.arange(n) * np.timedelta64(1, "h")


@pytest.fixture(scope="module")  # its loop runs as long as it does: others need the thread
def browser() -> Iterator[Any]:
    """Chromium as the system has it; the tests that need it are skipped elsewhere."""
    api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("Chromium is not installed (Debian: apt-get install chromium)")
    with api.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=_FLAGS)
        yield chromium
        chromium.close()
