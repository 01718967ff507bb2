"""Which rule should mix the members of `auto`?   python -m benchmarks.mixing [--rows] [--seeds]

The members' distributions are recorded on the generated streams of `benchmarks.auto`, once; then
every rule mixes the same ones. Told is the mean ranked loss of the mixture, from the first scored
row on, over that of the best member in hindsight: the geometric mean over streams and the worst.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from unittest import mock

import numpy as np

import regimekit as rk
from benchmarks.auto import generated
from regimekit.ensemble import aggregation as mixing
from regimekit.ensemble import crps_grid as scores
from regimekit.ensemble import ensemble
from regimekit.ensemble.aggregation import Mixer
from regimekit.ensemble.members import worth

Array = np.ndarray


class Row(NamedTuple):
    """One observation as the members expected it."""

    names: list[str]
    active: Array
    nodes: Array
    f: Array  # (members, nodes) distribution functions
    z: float
    noise: float

    def losses(self, weight: Array) -> tuple[float, Array, Array]:
        """The mixture's loss, each member's, and the derivative along each, in noise scales."""
        loss, gradient = np.zeros((2, len(self.names)))
        mixed = scores.ranked_losses(self.nodes, self.f, self.z, weight, loss, gradient)
        return mixed / self.noise, loss / self.noise, gradient / self.noise


def recorded(y: Array) -> Iterator[Row | None]:
    """What the members expected of each row; None where the bank began again in new units."""
    model, real = rk.auto(seed=1), scores.ranked_losses
    calls: list[tuple[Any, ...]] = []

    def listen(nodes: Array, f: Array, z: float, *rest: Array) -> float:
        calls.append((nodes.copy(), f.copy(), z))
        return float(real(nodes, f, z, *rest))

    with mock.patch.object(ensemble.scores, "ranked_losses", listen):
        for value in y:
            own = None if model.stream is None else model.stream.ensemble
            names = [] if own is None else own.names
            active = None if own is None else own.forecasting
            calls.clear()
            model.update(value)
            if own is None or own is not model.stream.ensemble:
                yield None
                continue
            nodes, f, z = calls[0]
            noise = (nodes[-1] - nodes[0]) / 32.0  # the grid reaches 16 of them to each side
            yield Row(names, active, nodes, f, z, noise)


class Rule:
    """Weights that learn from losses; members may join."""

    def weigh(self, row: Row) -> Array:
        raise NotImplementedError

    def learn(self, row: Row, weight: Array) -> None:
        """From one observation."""


class Uniform(Rule):
    """Everybody counts the same."""

    def weigh(self, row: Row) -> Array:
        return np.asarray(row.active / row.active.sum())


class Bernstein(Rule):
    """The aggregation of `auto`, on the derivative or on the loss itself, with a share for all."""

    def __init__(
        self, memory: float, linear: bool = True, share: float = 0.0, known: bool = False
    ) -> None:
        self.fade, self.linear, self.share = 1.0 - 1.0 / memory, linear, share
        self.known = known  # what members are worth beforehand
        self.names: list[str] = []
        self.mixer: Mixer | None = None

    def weigh(self, row: Row) -> Array:
        prior = worth(row.names) if self.known else np.ones(len(row.names))
        if self.mixer is None:
            self.mixer = Mixer(row.active, prior)
        elif row.names != self.names:
            self.mixer.regroup(self.names, row.names, row.active, prior)
        self.names = row.names
        return (1 - self.share) * self.mixer.weight + self.share * row.active / row.active.sum()

    def learn(self, row: Row, weight: Array) -> None:
        mixed, loss, gradient = row.losses(weight)
        assert self.mixer is not None
        with mock.patch.object(mixing, "_FADE", self.fade):
            self.mixer.learn(gradient if self.linear else loss)
            self.mixer.count(loss, mixed)


class Exponential(Rule):
    """Exponential weights on discounted losses, which the grid bounds."""

    def __init__(self, fade: float, rate: float = 1.0) -> None:
        self.fade, self.rate = fade, rate
        self.total: dict[str, float] = {}

    def weigh(self, row: Row) -> Array:
        known = list(self.total.values())
        start = float(np.mean(known)) if known else 0.0
        sums = np.array([self.total.setdefault(name, start) for name in row.names])
        share = np.where(row.active, np.exp(-self.rate * (sums - sums[row.active].min())), 0.0)
        return np.asarray(share / share.sum())

    def learn(self, row: Row, weight: Array) -> None:
        for name, loss in zip(row.names, row.losses(weight)[1], strict=True):
            self.total[name] = self.fade * self.total[name] + float(loss)


RULES: dict[str, Callable[[], Rule]] = {
    "Bernstein aggregation, linearised, no discount": lambda: Bernstein(math.inf),
    "the same, memory 500": lambda: Bernstein(500),
    "memory 500 and what members are worth beforehand (taken)": lambda: Bernstein(500, known=True),
    "the same, memory 200": lambda: Bernstein(200),
    "the same, memory 100": lambda: Bernstein(100),
    "the same, memory 50": lambda: Bernstein(50),
    "memory 500 and a fixed share of .01": lambda: Bernstein(500, share=0.01),
    "memory 500 on the plain loss": lambda: Bernstein(500, linear=False),
    "exponential weights, discounted .97": lambda: Exponential(0.97),
    "exponential weights, discounted .99": lambda: Exponential(0.99),
    "uniform": Uniform,
}


def over_best(rows: list[Row | None], first: int, make: Callable[[], Rule]) -> float:
    """The mixture's loss over that of the best member that was there on all scored rows."""
    rule, mixed, each = make(), [], []
    for t, row in enumerate(rows):
        if row is None:
            continue
        weight = rule.weigh(row)
        loss, own, _ = row.losses(weight)
        rule.learn(row, weight)
        if t >= first:
            mixed.append(loss)
            each.append(dict(zip(row.names, own, strict=True)))
    always = set.intersection(*(set(one) for one in each))
    best = min(float(np.mean([one[name] for one in each])) for name in always)
    return float(np.mean(mixed)) / best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=700)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    found: dict[str, list[float]] = {name: [] for name in RULES}
    for seed in range(options.seeds):
        for y, first in generated(options.rows, seed).values():
            rows = list(recorded(y))
            for name, make in RULES.items():
                found[name].append(over_best(rows, first, make))
    print("| rule | mean | worst |\n|---|---|---|")
    for name, ratios in found.items():
        print(f"| {name} | {math.exp(np.mean(np.log(ratios))):.4f} | {max(ratios):.3f} |")


if __name__ == "__main__":
    main()
