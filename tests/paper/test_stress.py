"""The stress suite: contaminations, what the robust models must withstand, what it can see."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import regimekit as rk
from paper.stress import KINDS, LEVELS, NOISE_SD, Stage, Stress, format_cell, stage, stress
from regimekit import datasets as data
from regimekit.baselines.bocd import bocd
from regimekit.baselines.naive import LastValue, last_value
from regimekit.core.model import Model
from regimekit.datasets.contamination import duplicate
from regimekit.ihmm.makers import student_t_ihmm
from regimekit.results import OPENED

BATCH, PARTICLES, MAX_REGIMES = 6, 30, 30
KNOWN: dict[str, Any] = {"noise": NOISE_SD**2, "prior_var": 4.0, "particles": PARTICLES}
LEARNT: dict[str, Any] = {"prior_var": 4.0, "particles": PARTICLES}


def br_ihmm(seed: int) -> Model:
    return rk.br_ihmm(batch=BATCH, threshold=2.0, seed=seed, **KNOWN)


def student(seed: int) -> Model:
    return student_t_ihmm(batch=BATCH, threshold=2.0, seed=seed, **LEARNT)


ROBUST = {"br_ihmm": br_ihmm, "student_t_ihmm": student}
OTHERS = {
    "ihmm": lambda seed: rk.ihmm(seed=seed, **KNOWN),
    "wolf_ihmm": lambda seed: rk.wolf_ihmm(seed=seed, **KNOWN),
    "plain student_t_ihmm": lambda seed: student_t_ihmm(
        batch=1, weight="none", seed=seed, **LEARNT
    ),
    "bocd": lambda seed: bocd(noise=NOISE_SD**2, prior_var=4.0),
    "last_value": lambda seed: last_value(),
}
# A particle's arrays have at most 64 slots for 30 regimes, the pool doubles up to twice one row
# per particle and regime, and a row and its ledger have fewer than 16 numbers.
MOST_BYTES = 8 * PARTICLES * (64**2 + 4 * 64 + 2 * MAX_REGIMES * 16)


def before_contamination(maker: Any, scene: Stage) -> Model:
    model: Model = maker(scene.seed)
    for y in scene.y[: scene.start]:
        model.update(y)
    return model


@cache
def stated_bound() -> int:
    """The longest burst that `br_ihmm` is said to ignore as the contamination begins."""
    model = before_contamination(br_ihmm, stage(0))
    return rk.sensitivity(model, shift=[3.0], longest=2 * BATCH, risk=0.01).longest_burst


def sound(result: Stress) -> None:
    """Nothing raised, nothing but numbers, nothing grown."""
    for row in result.rows:
        assert row.failure == "", row
        assert row.finite, row
        assert row.n_bytes <= MOST_BYTES, row


# ---------------------------------------------------------------- contaminations


def test_a_window_changes_its_unit_once_even_where_windows_overlap():
    y, mask = data.contaminate(np.arange(6.0), "scaled", positions=[1, 2], length=2)
    assert y.tolist() == [0, 1000, 2000, 3000, 4, 5]
    assert np.flatnonzero(mask).tolist() == [1, 2, 3]


@pytest.mark.parametrize("value", [1e300, -1e300, 1e-310, 0.0])
def test_a_window_is_replaced_by_a_value(value: float):
    y, mask = data.contaminate(np.ones(6), "replaced", positions=[3], length=9, value=value)
    assert y.tolist() == [1, 1, 1, value, value, value]
    assert mask.sum() == 3


@pytest.mark.parametrize("shape", [(8,), (8, 2)])
def test_second_deliveries_can_be_taken_out_again(shape: tuple[int, ...], rng: Any):
    y = rng.normal(size=shape)
    twice, mask = duplicate(y, [0, 3, 4, 7])
    assert len(twice) == 12
    np.testing.assert_array_equal(twice[~mask], y)
    np.testing.assert_array_equal(twice[mask], y[[0, 3, 4, 7]])
    np.testing.assert_array_equal(twice[mask], twice[np.flatnonzero(mask) - 1])
    with pytest.raises(rk.RegimekitError, match="positions"):
        duplicate(y, [8])


def test_the_stage_waits_by_the_seed():
    first, later = stage(0), stage(7)
    assert (later.start - first.start, len(later.y) - len(first.y)) == (1, 1)
    np.testing.assert_array_equal(stage(7).y, later.y)
    # means of 90 observations: 6 standard errors
    learnt = [scene.y[scene.start - 90 : scene.start].mean() for scene in (first, later)]
    np.testing.assert_allclose(learnt, LEVELS[2], atol=6 * NOISE_SD / np.sqrt(90))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [0, 5])
def test_contamination_begins_at_the_start_and_passes_before_the_level_returns(
    kind: str, seed: int
):
    scene = stage(seed, burst=4)
    model = before_contamination(lambda _: last_value(), scene)
    dirty = KINDS[kind](scene, model)
    touched = np.flatnonzero(dirty.mask)
    assert scene.start <= touched[0] < scene.start + 2 * BATCH
    grown = len(dirty.y) - len(scene.y)
    # the level lasts 90 observations more; two batches settle and some of it is left to score
    assert touched[-1] - grown + 2 * BATCH < scene.start + 90
    np.testing.assert_array_equal(dirty.y[: touched[0]], scene.y[: touched[0]])
    np.testing.assert_array_equal(dirty.y[touched[-1] + 1 :], scene.y[touched[-1] + 1 - grown :])


def test_the_adversary_finds_the_value_that_hurts():
    scene = stage(0, burst=2)
    plain = before_contamination(OTHERS["ihmm"], scene)
    careful = before_contamination(br_ihmm, scene)
    far = KINDS["adversarial_points"](scene, plain).y[scene.start]
    near = KINDS["adversarial_points"](scene, careful).y[scene.start]
    assert abs(far) > 1e11  # unbounded: the farthest value tried
    assert abs(near - LEVELS[2]) < 100 * NOISE_SD  # an extreme one says nothing to it


# ---------------------------------------------------------------- what must hold


@pytest.fixture(scope="module", params=list(ROBUST))
def robust(request: pytest.FixtureRequest) -> Stress:
    """Seeds 0 .. 5: every position of a switch within a batch once.

    Bursts one shorter than the bound, because three of them follow each other and the bound
    speaks of one: docs/robustness.md says what repetition does at the bound itself.
    """
    label, burst = request.param, stated_bound() - 1
    return stress({label: ROBUST[label]}, seeds=range(BATCH), batch=BATCH, burst=burst)


@pytest.mark.slow
def test_no_contamination_is_remembered(robust: Stress):
    """Excess <= 5 %. Between blocks of six seeds a cell's standard deviation is at most 1.2 %
    (`br_ihmm`, seeds 6 .. 23): a sound model on other seeds would fail one of the 14 cells in
    fewer than 1 of 1000 runs."""
    sound(robust)
    worst = max(robust.rows, key=lambda row: row.excess)
    assert worst.excess <= 0.05, worst


@pytest.mark.slow
def test_spikes_and_short_bursts_open_no_regime(robust: Stress):
    for kind in ("isolated", "one_sided", "short_bursts", "adversarial_points"):
        assert robust.cell(robust.rows[0].model, kind).opened == 0, kind


@pytest.mark.parametrize("label", ROBUST)
def test_no_burst_up_to_the_stated_bound_opens_a_regime(label: str):
    """Every length up to the bound, low and high, up and down, at every position of a batch.

    The bound is stated at a risk of 1 % at the worst height and position; the other lengths and
    heights have next to none. With 6 bursts at worst, a sound model fails in fewer than 6 of
    100 choices of seeds.
    """
    assert stated_bound() >= 2
    for seed in range(BATCH):
        scene = stage(seed)
        model = before_contamination(ROBUST[label], scene)
        for length in range(1, stated_bound() + 1):
            for height in (5.0, 10.0, -10.0, 1e3):
                after = scene.y[scene.start : scene.start + length + 2 * BATCH].copy()
                after[:length] += height * NOISE_SD
                twin = model.copy()
                events = [event for y in after for event in twin.update(y).events]
                assert OPENED not in {event.kind for event in events}, (seed, length, height)


def test_numbers_stay_numbers_in_every_model():
    kinds = ["huge", "denormal"]
    sound(stress(ROBUST | OTHERS, kinds, seeds=[1], batch=BATCH))


@pytest.mark.slow
@pytest.mark.parametrize("label", OTHERS)
def test_the_rest_of_the_matrix_is_sound(label: str):
    sound(stress({label: OTHERS[label]}, seeds=[2], batch=BATCH))


@pytest.mark.parametrize("label", ["br_ihmm", "ihmm", "wolf_ihmm"])
def test_memory_is_bounded_under_lies_that_never_end(label: str):
    """A new extreme value every ten observations: room for eight regimes, then no more."""
    settings = {**KNOWN, "particles": 10, "max_regimes": 8}
    model = rk.make(label, seed=3, **settings)
    rng = np.random.default_rng(3)
    y = NOISE_SD * rng.standard_normal(600)
    y[::10] = 10.0 ** rng.uniform(0, 300, 60) * rng.choice([-1, 1], 60)
    sizes = []
    for t, value in enumerate(y):
        model.update(value)
        if t >= 300 and t % 60 == 0:
            sizes.append(len(model.to_bytes()))
    assert len(model.regimes()) <= 8
    assert max(sizes) <= 8 * 10 * (16**2 + 4 * 16 + 2 * 8 * 16)  # as MOST_BYTES, room for 16


# ---------------------------------------------------------------- what it can see


def test_the_suite_sees_damage():
    # Without D16 to D18 the prior of new regimes stays where the stream no longer is.
    fixed = {"rule": dict.fromkeys(("D16", "D17", "D18"), "paper")} | KNOWN
    models = {
        "ihmm": lambda seed: rk.ihmm(**(fixed | {"seed": seed})),
        "wolf_ihmm": OTHERS["wolf_ihmm"],
    }
    result = stress(models, ["isolated", "unit_change"], seeds=[0], batch=BATCH)
    assert result.cell("ihmm", "unit_change").excess > 1
    assert result.cell("wolf_ihmm", "isolated").opened >= 1
    forgetful = stress({"last": lambda seed: last_value()}, ["long_burst"], seeds=[0])
    assert forgetful.rows[0].excess == 0  # it has no memory to damage
    assert forgetful.rows[0].during > 0.5  # and followed every lie


class Fragile(LastValue):
    """Breaks on what it cannot square."""

    def _observe(self, y: Any, x: Any) -> Any:
        if np.abs(y).max() > 1e154:
            raise OverflowError("too large")
        return super()._observe(y, x)


def test_an_error_of_a_model_is_shown_in_its_cell():
    result = stress({"fragile": lambda seed: Fragile()}, ["huge", "missing"], seeds=[0])
    huge, missing = result.rows
    assert huge.failure == "OverflowError: too large"
    assert np.isnan(huge.excess) and not huge.finite
    assert missing.failure == "" and missing.finite
    assert format_cell(huge, "excess") == "OverflowError"


def test_the_same_seeds_give_the_same_cells():
    first, again = (stress({"a": br_ihmm}, ["drift"], seeds=[4]) for _ in range(2))
    assert first == again


def test_a_cell_is_formatted_as_text():
    result = stress({"a": OTHERS["last_value"]}, ["stuck"], seeds=[0])
    assert format_cell(result.rows[0], "excess") == "+0.0 % / 0.0"
    assert " / " not in format_cell(result.rows[0], "during")


def test_errors_name_the_argument():
    makers = {"a": OTHERS["last_value"]}
    for call, match in (
        (lambda: stress(makers, ["bursts"]), "kinds='bursts'"),
        (lambda: stress(makers, seeds=[]), "seeds"),
        (lambda: stress(makers, ["stuck"], burst=0), "burst"),
        (lambda: stage(0, size=-1.0), "size"),
        (lambda: format_cell(stress(makers, ["stuck"], seeds=[0]).rows[0], "rmse"), "figure"),
        (lambda: stress(makers, ["stuck"], seeds=[0]).cell("a", "drift"), "drift"),
    ):
        with pytest.raises(rk.RegimekitError, match=match):
            call()
