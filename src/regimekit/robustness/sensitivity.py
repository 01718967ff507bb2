"""Detection delays of level shifts, and bursts that are ignored, for a batch size and a weight.

Before any evidence the odds of a new regime against staying are

    P(new | s) / P(s | s) = alpha beta_new / (n + alpha beta_s)

and every observation adds its expected score difference (`robustness.evidence`). The regime is
opened with probability 1/2 when the expected log odds reach 0. docs/robustness.md derives the
numbers and compares them with simulations of the whole model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regimekit.core.exceptions import RegimekitError, numbers, positive, share, whole
from regimekit.ihmm.emissions.linear_gaussian import GaussianSettings
from regimekit.ihmm.makers import br_ihmm
from regimekit.ihmm.model import RegimeModel
from regimekit.preprocessing import features as feature_maps
from regimekit.robustness.evidence import (
    Belief,
    Course,
    Judge,
    PriorOdds,
    Takeover,
    expected_course,
    prior_odds,
)

Array = NDArray[np.float64]

SHIFTS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0)
BURST_MARGIN = 1.0  # nats by which the evidence of a burst may exceed its expectation
CLEAR_HEIGHT = 6.0  # noise standard deviations: a burst that is clear of the noise
_MIN_HORIZON = 48  # observations
_MAX_PHASES = 6  # positions within a batch at which a shift is tried
_MAX_HEIGHT = 1e3  # noise standard deviations; higher bursts carry even less evidence
_DEFAULT_VISITS = 30  # batches of the present regime if the model has not been fitted


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Sensitivity of one setting; heights and shifts in standard deviations of the noise.

    Attributes:
        batch: B.
        threshold: c; infinite under contamination, which has none.
        rate: outlier rate eps; 0 without contamination.
        visits: number of batches assigned to the present regime.
        odds: P(new) / P(stay) from batch to batch before any evidence.
        risk: a burst is ignored if the probability that it opens a regime is at most this.
        shift: (Z,) level shifts z.
        evidence: (Z, B) expected evidence for a new regime of each observation of a first full
            batch after the shift.
        delay: (Z,) observations until a new regime is reported with probability 1/2, averaged over
            the position of the shift in a batch; infinity beyond the horizon.
        delay_known: (Z,) the same for a return to a known regime at that level.
        opened: (Z, T) probability that the regime is reported 1 .. T observations after the shift.
        burst_length: (K,) lengths.
        burst_height: (H,) heights.
        burst_opens: (K, H) probability that such a burst opens a regime at the worst position in
            the batch of one island, which is at least that of the vote of several islands.
    """

    batch: int
    threshold: float
    rate: float
    visits: float
    odds: float
    risk: float
    shift: Array
    evidence: Array
    delay: Array
    delay_known: Array
    opened: Array
    burst_length: Array
    burst_height: Array
    burst_opens: Array

    @property
    def longest_burst(self) -> int:
        """The largest length up to which bursts of every height are ignored."""
        return self.longest_burst_from(0.0)

    def longest_burst_from(self, height: float) -> int:
        """Return the largest length up to which high bursts are ignored.

        Args:
            height: smallest height of the bursts, in noise standard deviations.

        Raises:
            RegimekitError: If the height exceeds those that were computed.
        """
        tall = self.burst_height >= height
        if not tall.any():
            raise RegimekitError(
                f"height must be at most {self.burst_height.max():g}, got {height!r}."
            )
        opens = (self.burst_opens[:, tall] > self.risk).any(axis=1)
        return int(self.burst_length[opens].min() - 1 if opens.any() else self.burst_length.max())

    @property
    def smallest_shift(self) -> float:
        """The smallest of `shift` that is detected within the horizon; infinity if none is."""
        return float(self.shift[np.isfinite(self.delay)].min(initial=math.inf))

    def ignored_height(self, length: int) -> float:
        """Return the height up to which bursts are ignored; infinity for every height.

        Args:
            length: length of the bursts in observations.

        Returns:
            The height in noise standard deviations.

        Raises:
            RegimekitError: If the length exceeds those that were computed.
        """
        if length > self.burst_length.max():
            raise RegimekitError(
                f"length must be at most {self.burst_length.max():.0f}, got {length!r}."
            )
        opens = self.burst_opens[: whole("length", length)].max(axis=0) > self.risk
        if not opens.any():
            return math.inf
        first = int(np.argmax(opens))
        return float(self.burst_height[first - 1]) if first else 0.0

    @property
    def _weighting(self) -> str:
        return f"outlier rate {self.rate:.2g}" if self.rate else f"c = {self.threshold:g}"

    def __str__(self) -> str:
        lines = [
            f"B = {self.batch}, {self._weighting}; batches of the present regime: "
            f"{self.visits:.0f}; prior odds of a new regime: {self.odds:.2g}",
            "shift / sd   evidence per obs.   opened after   returned after",
        ]
        for k, z in enumerate(self.shift):
            lines.append(
                f"{z:10g}   {self.evidence[k].mean():17.2f}   {_count(self.delay[k]):>12}   "
                f"{_count(self.delay_known[k]):>14}"
            )
        lines.append(
            f"ignored bursts (risk {self.risk:g}): up to {self.longest_burst} observations at any "
            f"height, up to {self.longest_burst_from(CLEAR_HEIGHT)} at {CLEAR_HEIGHT:g} sd or more"
        )
        return "\n".join(lines)

    def figure(self) -> Any:
        """Return a matplotlib figure: delay over the shift, and which bursts open a regime."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        for delay, label in ((self.delay, "a new regime"), (self.delay_known, "a known one")):
            left.plot(self.shift, delay, marker="o", label=label)
        left.set(xlabel="shift / sd", ylabel="observations until detected", xscale="log")
        left.set_ylim(bottom=0)
        left.set_title(f"B = {self.batch}, {self._weighting}")
        left.legend()
        image = right.pcolormesh(
            self.burst_height,
            self.burst_length,
            self.burst_opens,
            vmin=0,
            vmax=1,
            shading="nearest",
        )
        right.axhline(self.longest_burst + 0.5, color="white")
        right.set(xlabel="burst height / sd", ylabel="burst length", xscale="log")
        right.set_title("probability that a burst opens a regime")
        figure.colorbar(image, ax=right)
        return figure


def sensitivity(
    model: Any,
    *,
    shift: Any = SHIFTS,
    visits: int | None = None,
    openness: float | None = None,
    longest: int | None = None,
    risk: float = 0.05,
) -> Sensitivity:
    """Return which shifts are detected, after how long, and which bursts are ignored.

    For a level (an intercept) of one coordinate with known noise. For a fitted model the result
    refers to its present regime, for settings to a regime at the prior mean.

    Args:
        model: a model of the infinite HMM family, or a mapping of `br_ihmm` settings.
        shift: level shifts, in standard deviations of the noise.
        visits: number of batches assigned to the present regime; by default that of a fitted
            model, else 30.
        openness: alpha beta_new; by default as learnt by a fitted model, else as implied by the
            prior over regimes after so many visits.
        longest: longest burst to try; by default twice the batch, and at least 8.
        risk: largest probability of opening a regime at which a burst counts as ignored.

    Returns:
        Sensitivity: prints as a table; `figure()` draws it.

    Raises:
        RegimekitError: If the model is not a level model or an argument is invalid.

    Example:
        >>> import regimekit as rk
        >>> from regimekit.robustness.sensitivity import sensitivity
        >>> answer = sensitivity({"batch": 4}, shift=[1, 4], longest=4)
        >>> bool(answer.delay[1] < answer.delay[0]), answer.longest_burst >= 1
        (True, True)
    """
    level_model = _read_model(model)
    batch = int(level_model.chosen.batch)
    farthest = max(2 * batch, 8) if longest is None else whole("longest", longest)
    situation = _read_situation(level_model, visits, openness)
    shifts = np.atleast_1d(numbers("shift", shift))
    return _compute(situation, shifts, np.arange(1.0, farthest + 1), share("risk", risk))


def _compute(situation: Situation, shifts: Array, lengths: Array, risk: float) -> Sensitivity:
    """Return the sensitivity to level shifts, and to bursts of these lengths."""
    batch = situation.batch
    phases = np.unique(np.linspace(0, batch - 1, min(batch, _MAX_PHASES)).round().astype(int))
    horizon = max(math.ceil(_MIN_HORIZON / batch), 6)
    heights = np.geomspace(0.5, _MAX_HEIGHT, 34)
    course = _shift_course(situation, shifts, phases, horizon, None)
    returned = _shift_course(situation, shifts, phases, horizon, shifts)
    opened, known = (_opened(each, batch, phases) for each in (course, returned))
    whole_batch = course.evidence.reshape(shifts.size, phases.size, -1)[:, 0, :batch]
    return Sensitivity(
        batch,
        situation.threshold,
        situation.rate,
        situation.visits,
        math.exp(situation.odds.enter),
        risk,
        shifts,
        whole_batch,
        _median(opened),
        _median(known),
        opened,
        lengths,
        heights,
        _burst_opens(situation, lengths, heights, phases),
    )


def choice_table(
    batches: tuple[int, ...] = (1, 2, 4, 6, 8, 12),
    thresholds: tuple[float | None, ...] = (None,),
    observations: int = 240,
    **settings: Any,
) -> str:
    """Return a Markdown table of delays and ignored bursts for choosing B and c.

    Args:
        batches: values of B, down the table.
        thresholds: values of c under `imq`; None means contamination.
        observations: number of observations of the present regime.
        settings: other settings of `br_ihmm`.

    Returns:
        The table as text.

    Example:
        >>> print(choice_table((4,)).splitlines()[0])
        | B | c | new: 2 sd | 3 sd | 5 sd | 10 sd | known: 3 sd | bursts ignored | 6 sd and more |
    """
    shifts = (2.0, 3.0, 5.0, 10.0)
    columns = ["B", "c", "new: 2 sd", "3 sd", "5 sd", "10 sd", "known: 3 sd", "bursts ignored"]
    columns.append(f"{CLEAR_HEIGHT:g} sd and more")
    lines = [_row(columns), _row(["---"] * len(columns))]
    for batch in batches:
        for threshold in thresholds:
            chosen = {**settings, "batch": batch, "threshold": threshold}
            answer = sensitivity(chosen, shift=shifts, visits=max(observations // batch, 1))
            lengths = (answer.longest_burst, answer.longest_burst_from(CLEAR_HEIGHT))
            cells = [batch, "none" if threshold is None else f"{threshold:g}"]
            cells += [*map(_count, answer.delay), _count(answer.delay_known[1])]
            most = answer.burst_length.max()
            lines.append(_row([*cells, *(f"{n}{'+' if n == most else ''}" for n in lengths)]))
    return "\n".join(lines)


class Situation(NamedTuple):
    """The present regime and its alternatives, in units of the noise relative to its level.

    Attributes:
        batch: B.
        judge: weight and score of observations.
        threshold: c, or infinity.
        rate: outlier rate.
        prior_mean: mean of the level of a new regime.
        prior_var: its variance.
        present_var: posterior variance of the present level.
        visits: number of batches assigned to the present regime.
        odds: prior odds between regimes.
        particles: particles of one island.
    """

    batch: int
    judge: Judge
    threshold: float
    rate: float
    prior_mean: float
    prior_var: float
    present_var: float
    visits: float
    odds: PriorOdds
    particles: int


def _read_model(model: Any) -> RegimeModel:
    """Return a level model of the family, from itself or from settings."""
    read = br_ihmm(**model) if isinstance(model, Mapping) else model
    if not isinstance(read, RegimeModel) or not isinstance(read.spec, GaussianSettings):
        raise RegimekitError(
            "model must be ihmm, wolf_ihmm or br_ihmm, or a mapping of br_ihmm settings, "
            f"got {type(model).__name__}."
        )
    level = feature_maps.intercept().to_json()
    if read.features.to_json() != level or (read.dim or 1) != 1:
        raise RegimekitError(
            "model must describe a level (an intercept) of one coordinate. Pass the settings of "
            'such a model, {"batch": .., "noise": .., "prior_var": ..}.'
        )
    if not isinstance(read.chosen.batch, (int, np.integer)):
        raise RegimekitError(f"batch must be a whole number, got {read.chosen.batch!r}.")
    return read


def _read_situation(model: RegimeModel, visits: int | None, openness: float | None) -> Situation:
    """Return the situation from settings, or from what a fitted model has learnt."""
    spec, chosen = model.spec, model.chosen
    assert isinstance(spec, GaussianSettings)
    noise, prior_mean, prior_var = (
        float(np.ravel(value)[0]) for value in (spec.noise, spec.prior_mean, spec.prior_var)
    )
    stays = float(_DEFAULT_VISITS if visits is None else whole("visits", visits))
    level, enter = prior_mean, None
    if model.engine is not None and model.regimes() and visits is None:
        level, stays, enter = _learnt_situation(model)
    if openness is not None:
        enter = math.log(positive("openness", openness) / (stays + 1.0))
    prior = chosen.concentration()
    odds = prior_odds(
        stays,
        (prior.alpha_shape, prior.alpha_rate),
        (prior.gamma_shape, prior.gamma_rate),
        prior.sticky,
    )
    if callable(chosen.weight):
        raise RegimekitError("weight must be a name, got a function, whose odds are not known.")
    scoring = chosen.scoring()
    contamination = scoring.is_contamination()
    rate = float(chosen.outlier_rate) if contamination else 0.0
    if contamination and model.engine is not None:
        rate = float(model.engine.rate())
    return Situation(
        int(chosen.batch),
        Judge(scoring, rate),
        math.inf if contamination else scoring.threshold,
        rate,
        (prior_mean - level) / math.sqrt(noise),
        prior_var / noise,
        1.0 / (noise / prior_var + stays * int(chosen.batch)),
        stays,
        odds if enter is None else odds._replace(enter=enter),
        chosen.particles // chosen.n_islands(),
    )


def _learnt_situation(model: RegimeModel) -> tuple[float, float, float]:
    """Return level and visits of the reported regime, and log odds of a new one against staying."""
    engine = model.engine
    assert engine is not None
    names, regimes = model.reporter.names, model.regimes()
    present = names.get(int(engine.clock.reported))
    regime = next((r for r in regimes if r.id == present), regimes[-1])
    current, p = np.asarray(engine.particles.current), engine.particles
    new = stay = 0.0
    for i in np.flatnonzero(current >= 0).tolist():
        row = engine.transitions_of(i)[current[i]]
        weight = math.exp(p.log_weight[i])
        new += weight * row[-1]
        stay += weight * row[current[i]]
    visits = max(1.0, regime.visits / int(model.chosen.batch))
    return float(regime.mean[0]), visits, math.log(new / stay)


def _takeover(s: Situation, cases: int, known: Array | None) -> Takeover:
    """A new regime, or one known at the levels `known`, against the present one."""
    present = Belief(0.0, s.present_var, cases, s.present_var)
    if known is None:
        rival, enter = Belief(s.prior_mean, s.prior_var, cases), s.odds.enter
    else:
        rival, enter = Belief(known, s.present_var, cases, s.present_var), s.odds.back
    return Takeover(present, rival, known is None, enter, s.odds.stay, s.odds.hold, s.particles)


def _shift_course(
    s: Situation, shifts: Array, phases: Array, horizon: int, known: Array | None
) -> Course:
    """Every shift at every phase: (Z * phases) cases over `horizon` batches."""
    time = np.arange(horizon * s.batch)
    signal = shifts[:, None, None] * (time >= phases[:, None])
    levels = None if known is None else np.repeat(known, phases.size)
    takeover = _takeover(s, shifts.size * phases.size, levels)
    course: Course = expected_course(signal.reshape(-1, time.size), s.batch, takeover, s.judge)
    return course


def _opened(course: Course, batch: int, phases: Array) -> Array:
    """Return (Z, T) shares of phases with the regime open 1 .. T observations after the shift."""
    so_far = np.maximum.accumulate(course.probability, axis=1)
    return np.asarray(_by_time(so_far, batch, phases).mean(axis=1))


def _by_time(by_batch: Array, batch: int, phases: Array) -> Array:
    """(Z, phases, T): the value at the latest end of a batch, 1 .. T observations on."""
    batches = by_batch.shape[1]
    by_batch = by_batch.reshape(-1, phases.size, batches)
    after = np.arange(1, batches * batch - int(phases.max()) + 1)
    ended = (after + phases[:, None]) // batch  # batches ended by then, for each phase
    padded = np.concatenate([np.zeros((*by_batch.shape[:2], 1)), by_batch], axis=2)
    at = np.take_along_axis(padded, np.broadcast_to(ended, (len(padded), *ended.shape)), axis=2)
    return np.asarray(at)


def _median(opened: Array) -> Array:
    """First number of observations with probability 1/2; infinity if there is none."""
    reached = opened >= 0.5
    return np.where(reached.any(axis=1), reached.argmax(axis=1) + 1.0, math.inf)


def _burst_opens(s: Situation, lengths: Array, heights: Array, phases: Array) -> Array:
    """(K, H): probability that a burst opens a regime, at its worst phase, conservatively."""
    batches = math.ceil((int(lengths.max()) + s.batch - 1) / s.batch)
    time = np.arange(batches * s.batch)
    opens = np.empty((lengths.size, heights.size))
    careful = s._replace(odds=s.odds._replace(enter=s.odds.enter + BURST_MARGIN))
    for k, length in enumerate(lengths):
        inside = (time >= phases[:, None]) & (time < phases[:, None] + length)
        signal = (heights[:, None, None] * inside).reshape(-1, time.size)
        takeover = _takeover(careful, len(signal), None)
        course = expected_course(signal, s.batch, takeover, s.judge)
        worst = course.probability.max(axis=1).reshape(heights.size, phases.size)
        opens[k] = worst.max(axis=1)
    return opens


def _count(n: float) -> str:
    return f"{n:.0f}" if math.isfinite(n) else "-"


def _row(cells: list[Any]) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"
