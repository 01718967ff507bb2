"""Comparison of the forecasts of the dense version and of the engine over many seeds.

    python -m benchmarks.same_law

Both are random. For each observation of a small stream with an outlier, the mean over seeds of the
forecast's mean, of its log variance and of its log score are compared, in standard errors. The
largest of a few dozen standard normals lies below 4 in all but one run of several hundred.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import regimekit as rk

LIMIT = 4.5


class Agreement(NamedTuple):
    """Largest and root mean square distance between the two, in standard errors."""

    quantity: str
    width: int
    batch: int
    largest: float
    typical: float


def compare(width: int, batch: int, seeds: int = 150, n: int = 48) -> list[Agreement]:
    """Return the agreement of both versions on one stream, with few regimes, to cover pruning."""
    y, X = _stream(width, n)
    dense = _dense_runs(y, X, batch, seeds)
    ours = _our_runs(y, X, batch, seeds)
    names = ("mean", "log variance", "log score")
    pairs = zip(names, dense, ours, strict=True)
    return [_distance(name, width, batch, a, b) for name, a, b in pairs]


def _stream(width: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(5)
    regime = (np.arange(n) // 12) % 2
    X = np.column_stack([np.ones(n), rng.standard_normal((n, width - 1))])
    y = (X * (1.5 * rng.standard_normal((2, width)))[regime]).sum(axis=1)
    y += 0.3 * rng.standard_normal(n)
    y[n // 3] += 8.0
    return y, X


def _dense_runs(y: np.ndarray, X: np.ndarray, batch: int, seeds: int) -> np.ndarray:
    from benchmarks import dense_jax

    settings = dense_jax.Settings(batch, 20, 6, noise=0.1, prior_var=2.0, prune_pool=2)
    runs = [dense_jax.run(y, X, settings, seed) for seed in range(seeds)]
    each = [(run.mean, np.log(run.variance), run.log_score) for run in runs]
    return np.array(each).swapaxes(0, 1)


def _our_runs(y: np.ndarray, X: np.ndarray, batch: int, seeds: int) -> np.ndarray:
    runs = [
        rk.br_ihmm(
            rule="paper",
            features=rk.features.columns(),
            noise=0.1,
            prior_var=2.0,
            batch=batch,
            particles=20,
            max_regimes=6,
            prune_pool=2,
            seed=seed,
        ).run(y, X)
        for seed in range(seeds)
    ]
    each = [(run.mean, 2 * np.log(run.sd), run.log_score) for run in runs]
    return np.array(each).swapaxes(0, 1)


def _distance(name: str, width: int, batch: int, a: np.ndarray, b: np.ndarray) -> Agreement:
    error = np.sqrt(a.var(axis=0, ddof=1) / len(a) + b.var(axis=0, ddof=1) / len(b))
    random = error > 1e-9  # the first forecasts may be deterministic
    z = np.abs(a.mean(axis=0) - b.mean(axis=0))[random] / error[random]
    return Agreement(name, width, batch, float(z.max()), float(np.sqrt((z**2).mean())))


def check(seeds: int = 150) -> list[Agreement]:
    """Return every comparison; raise an error if the two differ by more than chance."""
    found = [*compare(1, 1, seeds), *compare(2, 3, seeds)]
    for one in found:
        if one.largest > LIMIT or one.typical > 1.5:
            raise AssertionError(f"The dense version is not the same algorithm: {one}.")
    return found


if __name__ == "__main__":
    for agreement in check():
        print(agreement)
