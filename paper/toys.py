"""Two known regimes without learning: influence, preference, heavy tails."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import stats

from paper import drawing
from paper.tables import Item, Made, Results, Table, Value
from regimekit import robustness as influence
from regimekit.ihmm.weights import OUTLIER_SCALE, log_outlier_density
from regimekit.plotting import PALETTE, pyplot

# The score of each rule: the paper's, the unit-free one (D1), the density of the second edition.
SCORES = {"paper": "paper's rule", "default": "first edition", "second": "second edition"}
OUTLIER_RATE = 0.05  # the first guess of the model

_OFFSETS = np.linspace(-1.5, 1.5, 301)
_FAR = (1.5, 100.0, 1e6)
_C2 = (1.0, 4.0)
_BATCHES = (2, 6, 12)
_SPREADS = (0.5, 1.0, 2.0, 5.0)
_PATHS = {
    "B 1: regime 1": [1],
    "B 6, free: 1 for the outlier alone": [1, 0, 0, 0, 0, 0],
    "B 6, one regime: all in 1": [1] * 6,
}
_NEW, _OLD = 5, 1000  # degrees of freedom of a new and of an old regime


def _curves() -> list[tuple[str, dict[str, Any]]]:
    """Return the settings of each curve of the influence figure."""
    curves: list[tuple[str, dict[str, Any]]] = []
    for c2 in _C2:
        plain = {"batch": 1, "threshold": c2**0.5, "weigh_regimes": False}
        curves.append((f"unbatched, c² {c2:g}", plain))
        for batch in _BATCHES:
            curves.append((f"B {batch}, c² {c2:g}", {"batch": batch, "threshold": c2**0.5}))
    return curves


def contamination(y: Any, means: tuple[float, ...], sds: tuple[float, ...]) -> Any:
    """Return scores of y (G, B) under each regime, (G, B, K), as the density of regime or outliers.

    The density of outliers is centred at regime 0, where the forecast is, and is the same for all.

    Args:
        y: (G, B) observations.
        means, sds: of the regimes.

    Example:
        >>> near, far = contamination(np.array([[1.0], [1e6]]), (0.0, 1.0), (0.5, 0.5))[:, 0]
        >>> bool(near[1] > near[0] + 1), bool(abs(far[1] - far[0]) < 1e-9)
        (True, True)
    """
    plain = stats.norm.logpdf(np.asarray(y)[..., None], means, sds)
    scale = OUTLIER_SCALE * sds[0]
    away = np.abs(np.asarray(y) - means[0]) / scale
    broad = np.vectorize(log_outlier_density)(away, float(np.log(scale)), 1)[..., None]
    return np.logaddexp(np.log1p(-OUTLIER_RATE) + plain, np.log(OUTLIER_RATE) + broad)


def pif(offsets: Any, rule: str, batch: int, threshold: float, weigh_regimes: bool = True) -> Any:
    """Return the state PIF of one observation moved away from regime 0, under one of the scores.

    Args:
        offsets: (G,) distances from regime 0.
        rule: a key of `SCORES`.
        batch: B.
        threshold: c.
        weigh_regimes: whether the score is weighted.
    """
    if rule != "second" or not weigh_regimes:
        known = "paper" if rule == "paper" else "default"
        return influence.sandbox_pif(
            offsets, rule=known, batch=batch, threshold=threshold, weigh_regimes=weigh_regimes
        )
    moved = np.zeros((np.size(offsets), batch))
    moved[:, 0] = offsets
    log_p = _posterior(np.zeros((1, batch)))
    return (np.exp(log_p) * (log_p - _posterior(moved))).sum(axis=1)


def _posterior(batches: Any) -> Any:
    total = contamination(batches, (0.0, 1.0), (0.5, 0.5)).sum(axis=1)
    return total - np.logaddexp.reduce(total, axis=1, keepdims=True)


def _pif(_: Results) -> Made:
    rows: list[list[Value]] = []
    for label, chosen in _curves():
        row: list[Value] = [label]
        for rule in SCORES:
            row += [float(v) for v in pif(_FAR, rule, **chosen)]
        rows.append(row)
    names = [f"at {offset:g}, {title}" for title in SCORES.values() for offset in _FAR]
    caption = (
        "How much one observation changes the posterior of the regime (its posterior influence, on "
        "a log scale, lower is more robust) as it moves away from its expected value. Solid curves "
        "have c² = 1, dashed ones c² = 4; the second edition has no c, so they coincide. Without "
        "batches the curve never stops growing."
    )
    table = (
        "The influence of an observation at 1.5, 100 and a million, for each rule, batch size B "
        "and threshold c: a robust model has a number that stops growing."
    )
    return Made([Table(["setting", *names], rows, table)], _draw_pif, caption)


def _draw_pif() -> Any:
    title = "State PIF of one observation moved away from regime 0"
    figure, axes = drawing.grid(1, len(SCORES), title)
    for ax, (rule, heading) in zip(axes[0], SCORES.items(), strict=True):
        for index, (label, chosen) in enumerate(_curves()):
            curve = pif(_OFFSETS, rule, **chosen)
            style = "-" if index < len(_BATCHES) + 1 else "--"
            colour = PALETTE[index % (len(_BATCHES) + 1)]
            ax.semilogy(_OFFSETS, curve, style, lw=1, color=colour, label=label)
        ax.set_ylim(1e-10, 10)  # the influence in longer batches is small
        ax.set_title(heading, loc="left", fontsize=9)
        ax.set_xlabel("offset")
    axes[0, 0].set_ylabel("state PIF")
    axes[0, 0].legend(fontsize=7, frameon=False, ncols=2)
    return figure


def _moved(y: Any, path: list[int], sd: float, rule: str) -> Any:
    """Return the log score of a path minus that of staying at 0, for a batch y, 0, 0, .."""
    batches = np.zeros((np.size(y), len(path)))
    batches[:, 0] = y
    if rule == "second":
        scores = contamination(batches, (0.0, 5.0), (sd, sd))
        return (scores[:, np.arange(len(path)), path] - scores[..., 0]).sum(axis=1)
    return influence.preference(batches, path, [0] * len(path), sds=(sd, sd), rule=rule)


def _preference(_: Results) -> Made:
    at = np.array([0.0, 2.5, 5.0, 20.0])
    rows: list[list[Value]] = []
    for name, path in _PATHS.items():
        for rule, heading in SCORES.items():
            for sd in _SPREADS:
                rows.append([name, heading, sd, *(float(v) for v in _moved(at, path, sd, rule))])
    columns = ["path against staying in 0", "rule", "sd", *(f"y = {y:g}" for y in at)]
    caption = (
        "Which of two regimes, at 0 and at 5, a batch favours whose first observation moves "
        "along the axis while the others lie at 0: above 0 the outlier pulls the batch over. A "
        "row for each rule; batches that must have one regime (right) resist."
    )
    return Made(
        [
            Table(
                columns,
                rows,
                "How much more a batch favours the path named than for staying in regime 0, in "
                "logs: below 0 it prefers to stay.",
            )
        ],
        _draw_preference,
        caption,
    )


def _draw_preference() -> Any:
    y = np.linspace(-10.0, 15.0, 401)
    title = "Preference of regimes: below 0 prefers regime 0"
    figure, axes = drawing.grid(len(SCORES), 3, title, 4.5, "none")
    for row, (rule, heading) in zip(axes, SCORES.items(), strict=True):
        for ax, (name, path) in zip(row, _PATHS.items(), strict=True):
            for colour, sd in zip(PALETTE, _SPREADS, strict=False):
                ax.plot(y, _moved(y, path, sd, rule), lw=1, color=colour, label=f"sd {sd:g}")
            ax.axhline(0.0, color="0.6", lw=0.6)
            ax.set_title(name, loc="left", fontsize=9)
            ax.set_xlabel("first observation")
        row[0].set_ylabel(f"difference, {heading}")
    axes[0, 0].legend(fontsize=7, frameon=False)
    return figure


def t_difference(y: Any) -> Any:
    """Return the log density of a new regime, t(5), minus that of an old one, t(1000).

    Args:
        y: values.

    Example:
        >>> bool(t_difference(50.0) > t_difference(5.0) > 0 > t_difference(0.0))
        True
    """
    return stats.t.logpdf(y, _NEW) - stats.t.logpdf(y, _OLD)


def _t_difference(_: Results) -> Made:
    at = (0.0, 1.0, 3.0, 10.0, 100.0, 1e4)
    slope = (t_difference(1e12) - t_difference(1e11)) / np.log(10.0)
    rows: list[list[Value]] = [[f"{y:g}", float(t_difference(y))] for y in at]
    rows.append([f"growth per log|y| (theory: {_OLD - _NEW})", float(slope)])

    def draw() -> Any:
        y = np.linspace(-10.0, 10.0, 401)
        figure, ax = pyplot().subplots(figsize=(6, 3.6), layout="constrained")
        ax.plot(y, t_difference(y), color=PALETTE[0])
        ax.set_xlabel("observation")
        ax.set_ylabel(f"log t({_NEW}) - log t({_OLD})")
        return figure

    caption = (
        "Above 0 the younger regime, which has seen little and has heavy tails, explains the "
        "observation better than the older one: every outlier prefers it. That is why a Student-t "
        "model is not robust by its tails alone."
    )
    table = "The log density of y under the new regime less that under the old one."
    return Made([Table(["|y|", "difference of log densities"], rows, table)], draw, caption)


_NODES = {
    "Gamma(1, 1), gamma_prior": (0.0, 3.0),
    "Gamma(1, 1), alpha_prior": (0.0, 2.0),
    "prior_mean, prior_var": (0.0, 1.0),
    "gamma": (1.0, 3.0),
    "alpha": (1.0, 2.0),
    "beta": (2.0, 3.0),
    "pi (each regime)": (2.0, 2.0),
    "theta (each regime)": (2.0, 1.0),
    "s, one per batch": (3.0, 2.0),
    "w (weight)": (3.0, 1.5),
    "y": (3.0, 1.0),
}
_ARROWS = (
    ("Gamma(1, 1), gamma_prior", "gamma"),
    ("Gamma(1, 1), alpha_prior", "alpha"),
    ("prior_mean, prior_var", "theta (each regime)"),
    ("gamma", "beta"),
    ("alpha", "pi (each regime)"),
    ("beta", "pi (each regime)"),
    ("pi (each regime)", "s, one per batch"),
    ("s, one per batch", "w (weight)"),
    ("theta (each regime)", "w (weight)"),
    ("w (weight)", "y"),
    ("theta (each regime)", "y"),
)


def _graphical_model(_: Results) -> Made:
    def draw() -> Any:
        from matplotlib import pyplot as plt

        figure, ax = plt.subplots(figsize=(9, 4))
        for start, end in _ARROWS:
            arrow = {"arrowstyle": "->", "shrinkA": 22, "shrinkB": 22, "color": "0.4"}
            ax.annotate("", _NODES[end], _NODES[start], arrowprops=arrow)
        for name, place in _NODES.items():
            style = "square" if place[0] == 0.0 else "round"
            box = {
                "boxstyle": f"{style},pad=0.5",
                "fc": "white",
                "ec": "C3" if place[0] == 0 else "k",
            }
            ax.text(*place, name, ha="center", va="center", fontsize=9, bbox=box)
        ax.set(xlim=(-0.6, 3.6), ylim=(0.6, 3.4))
        ax.axis("off")
        return figure

    words = (
        "Red: fixed, with the names of our arguments. One s and one F theta serve a whole batch."
    )
    return Made([], draw, words)


ITEMS = (
    Item(
        "graphical_model",
        "The graphical model",
        "Figure `fig:batched_bayesian_network`",
        "The paper draws the prior of theta with covariance I; ours is `prior_var`.",
        _graphical_model,
    ),
    Item(
        "pif",
        "State-space PIF",
        "Figure `fig:pif_states`",
        "Means and standard deviations of the sandbox and the values of B and c² are not "
        "stated; 0 and 1, 0.5 each, are taken. The paper's batch size of zero is the unbatched "
        "model. The paper's toy has no density of outliers; for the second edition the model's "
        "own is taken, with its first guess of 5 % outliers. Over offsets up to 1.5 an "
        "unbounded curve looks as tame as a bounded one, so the "
        "table goes to a million.",
        _pif,
    ),
    Item(
        "preference",
        "Preference of regimes",
        "Figure `fig:switch_states`",
        "The standard deviations are not stated; four are drawn. The paper's curves are those of "
        "its own score; the second row is the unit-free one (D1), the third the second edition's "
        "density. Where a path may switch inside "
        "the batch, only the outlier tells the two paths apart, so its curve is that of a batch "
        "of one: the paper's reason for one regime per batch, whose curve is the third.",
        _preference,
    ),
    Item(
        "t_difference",
        "Heavy tails prefer the newer regime",
        "Figure `fig:compare_t_dist`",
        "A closed form, and the same here as in the paper: both t laws have scale 1.",
        _t_difference,
    ),
)
