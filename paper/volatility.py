"""Regime-switching GARCH: the variance estimated by the regime model and by a single GARCH."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, signal

from paper import drawing
from paper.outcomes import log_error
from paper.parts import Part
from paper.plan import Plan
from paper.settings import UNTUNED
from paper.tables import Cell, Item, Made, Results, Table, Value, measure
from regimekit.plotting import PALETTE

Array = NDArray[np.float64]


def _parts(plan: Plan) -> list[Part]:
    return plan.parts("garch", "garch_ihmm", UNTUNED)


def garch_variance(y: Array, omega: float, alpha: float, beta: float) -> Array:
    """Return sigma_t^2 = omega + alpha y_{t-1}^2 + beta sigma_{t-1}^2 from the sample variance on.

    Args:
        y: (T,) observations.
        omega, alpha, beta: coefficients.

    Example:
        >>> import numpy as np
        >>> garch_variance(np.array([1.0, -1.0, 1.0]), 0.1, 0.2, 0.5).round(3).tolist()
        [1.0, 0.8, 0.7]
    """
    first = float(np.mean(y**2))
    drive = np.r_[first, omega + alpha * y[:-1] ** 2]
    return np.asarray(signal.lfilter([1.0], [1.0, -beta], drive))


def fit_garch(y: Array) -> tuple[float, float, float]:
    """Return maximum likelihood coefficients of one GARCH(1, 1) for the whole stream.

    Args:
        y: (T,) observations.
    """

    def read(free: Array) -> tuple[float, float, float]:
        total = 1 / (1 + np.exp(-free[1]))  # alpha + beta, below 1
        share = 1 / (1 + np.exp(-free[2]))
        return float(np.exp(free[0])), float(total * share), float(total * (1 - share))

    def loss(free: Array) -> float:
        variance = garch_variance(y, *read(free))
        return float(0.5 * np.mean(np.log(variance) + y**2 / variance))

    start = np.array([np.log(0.1 * np.mean(y**2)), 2.0, -2.0])
    return read(optimize.minimize(loss, start, method="Nelder-Mead").x)


def _single(plan: Plan) -> Cell:
    """Return the error of one GARCH fitted to each stream."""
    streams = [part.load().data for part in _parts(plan)]
    errors = [
        log_error(garch_variance(one.y, *fit_garch(one.y)), one.info["variance"][: len(one)])
        for one in streams
    ]
    sd = float(np.std(errors, ddof=1)) if len(errors) > 1 else None
    return Cell(float(np.mean(errors)), sd, len(errors))


def _garch(results: Results) -> Made:
    names = (
        "log_variance_error",
        "adjusted_rand",
        "regimes",
        "switches",
        "true_switches",
        "ppv",
        "tpr",
        "delay",
        "coverage",
    )
    cells = [results.cell(_parts(results.plan), name) for name in names]
    rows: list[list[Value]] = [
        [measure(name), None, cell] for name, cell in zip(names, cells, strict=True)
    ]
    rows[0][1] = _single(results.plan)
    text = (
        "How well the variance and the regimes are found, over streams with different seeds. The "
        "error of the log variance is that of the forecast made before each observation."
    )
    table = Table(
        ["measure", "one GARCH, fitted to the whole stream", "garch_ihmm, online"], rows, text
    )
    caption = (
        "Top: the stream. Middle: its true variance (grey) and its estimates by one GARCH and by "
        "the regime model before each observation, on a log scale. Bottom: the regime found and "
        "its probability; the true second regime is shaded."
    )
    return Made([table], lambda: _draw(results), caption)


def _draw(results: Results) -> Any:
    first = _parts(results.plan)[0]
    data, columns = first.load().data, results.columns(first)
    figure, axes = drawing.grid(3, 1, "Regime-switching GARCH (run with seed 0)", width=11)
    top, middle, bottom = axes[:, 0]
    top.plot(data.y, lw=0.6, color="0.4")
    top.set_ylabel("y")
    middle.semilogy(data.info["variance"][: len(data)], color="0.4", lw=1, label="true")
    single = garch_variance(data.y, *fit_garch(data.y))
    middle.semilogy(single, color=PALETTE[1], lw=1, label="one GARCH")
    middle.semilogy(columns["sd"] ** 2, color=PALETTE[0], lw=1, label="garch_ihmm")
    middle.set_ylabel("variance")
    middle.legend(fontsize=7, frameon=False, ncols=3)
    bottom.plot(drawing.by_appearance(columns["path"]), lw=1, color=PALETTE[0], label="regime")
    bottom.plot(columns["regime_probability"], lw=0.5, color=PALETTE[1], label="its probability")
    bottom.legend(fontsize=7, frameon=False)
    drawing.shade(bottom, first.load())
    bottom.set_xlabel("observation")
    return figure


ITEMS = (
    Item(
        "garch",
        "Regime-switching GARCH",
        "Figure `fig:ihmm_garch`",
        "The paper names no coefficients; ours give long-run variances of 0.13 and 4. Its single "
        "GARCH is not described either: ours is fitted by maximum likelihood to the whole stream, "
        "which is more than an online model may see.",
        _garch,
        _parts,
    ),
)
