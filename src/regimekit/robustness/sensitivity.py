"""What the batch buys: which shifts will be seen, after how long, and which bursts will be ignored.

A new regime must earn its place. Before any evidence its odds against staying are

    P(new | s) / P(s | s) = alpha beta_new / (n + alpha beta_s)

and every observation adds its expected difference of scores (`regimekit.robustness.expected_evidence`). It is opened
with probability 1/2 when the expected log odds reach 0. docs/robustness.md derives the numbers and
sets them beside simulations of the whole model.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from regimekit.core.exceptions import RegimekitError, numbers, share, whole
from regimekit.core.model import Array
from regimekit.robustness.expected_evidence import Course, Takeover, believe, play
from regimekit.robustness.situation import Situation, read_model, situation_of

SHIFTS = (1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 15.0, 20.0, 30.0)
MARGIN = 1.0  # nats by which the evidence of a burst may exceed what the theory expects
CLEAR = 6.0  # sd: a value that far off is taken for no ordinary one
_REACH = 48  # observations that the question looks ahead at least
_PHASES = 6  # positions within a batch at which a shift is tried
_TALLEST = 1e3  # burst heights up to here; beyond it a burst says even less


@dataclass(frozen=True, eq=False)
class Sensitivity:
    """Answers about one setting; heights and shifts in standard deviations of the noise.

    Attributes:
        batch: B.
        threshold: c; infinite under contamination, which has none.
        rate: eps, the rate of outliers; 0 without contamination.
        visits: batches that the present regime has been visited for.
        odds: P(new) / P(stay) from batch to batch before any evidence.
        risk: a burst is ignored where the chance that it opens a regime is at most this.
        shift: (Z,) level shifts z.
        evidence: (Z, B) expected evidence for a new regime of each observation of a first full
            batch after the shift.
        delay: (Z,) observations until a new regime is reported with probability 1/2, the shift
            falling anywhere in a batch; infinity beyond the horizon.
        delay_known: (Z,) the same for a return to a regime already known at that level.
        opened: (Z, T) probability that the regime is reported 1 .. T observations after the shift.
        burst_length: (K,) lengths.
        burst_height: (H,) heights.
        burst_opens: (K, H) probability that such a burst opens a regime, at the worst phase:
            of an island, and hence at most that of the vote of several.
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
        """Bursts up to this length are ignored whatever their height."""
        return self.longest_burst_from(0.0)

    def longest_burst_from(self, height: float) -> int:
        """Bursts up to this length are ignored at this height and at any greater one."""
        tall = self.burst_height >= height
        if not tall.any():
            raise RegimekitError(f"height must be at most {self.burst_height.max():g}.")
        opens = (self.burst_opens[:, tall] > self.risk).any(axis=1)
        return int(self.burst_length[opens].min() - 1 if opens.any() else self.burst_length.max())

    @property
    def smallest_shift(self) -> float:
        """The smallest shift of `shift` that is seen within the horizon; infinity for none."""
        return float(self.shift[np.isfinite(self.delay)].min(initial=math.inf))

    def ignored_height(self, length: int) -> float:
        """Bursts of this length up to this height are ignored; infinity for any height."""
        if length > self.burst_length.max():
            raise RegimekitError(f"length must be at most {self.burst_length.max():.0f}.")
        opens = self.burst_opens[: whole("length", length)].max(axis=0) > self.risk
        if not opens.any():
            return math.inf
        first = int(np.argmax(opens))
        return float(self.burst_height[first - 1]) if first else 0.0

    @property
    def _judged(self) -> str:
        return f"outlier rate {self.rate:.2g}" if self.rate else f"c = {self.threshold:g}"

    def __str__(self) -> str:
        lines = [
            f"B = {self.batch}, {self._judged}; the present regime was visited for "
            f"{self.visits:.0f} batches; prior odds of a new one {self.odds:.2g}",
            "shift / sd   evidence per obs.   opened after   returned after",
        ]
        for k, z in enumerate(self.shift):
            lines.append(
                f"{z:10g}   {self.evidence[k].mean():17.2f}   {_count(self.delay[k]):>12}   "
                f"{_count(self.delay_known[k]):>14}"
            )
        lines.append(
            f"ignored, whatever their height: bursts of up to {self.longest_burst} observations "
            f"(risk {self.risk:g}); {CLEAR:g} sd high or more: up to "
            f"{self.longest_burst_from(CLEAR)}"
        )
        return "\n".join(lines)

    def figure(self) -> Any:
        """A matplotlib figure: delay over the shift, and which bursts open a regime."""
        from matplotlib.figure import Figure

        figure = Figure(figsize=(9, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        for delay, label in ((self.delay, "a new regime"), (self.delay_known, "a known one")):
            left.plot(self.shift, delay, marker="o", label=label)
        left.set(xlabel="shift / sd", ylabel="observations until seen", xscale="log")
        left.set_ylim(bottom=0)
        left.set_title(f"B = {self.batch}, {self._judged}")
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
    """Which shifts will be seen, after how long, and which bursts will be ignored.

    For a level (an intercept) of one coordinate with known noise. A fitted model answers for the
    regime that it is in now; settings answer for a regime at the prior mean.

    Args:
        model: a model of the infinite HMM family, or a mapping of `br_ihmm` settings.
        shift: level shifts, in standard deviations of the noise.
        visits: batches that the present regime has been visited for; a fitted model knows.
        openness: alpha beta_new; by default what the prior over regimes makes of the visits, or
            what a fitted model has learnt.
        longest: the longest burst to try; twice the batch, and at least 8, by default.
        risk: how likely a burst may open a regime and still count as ignored.

    Example:
        >>> import regimekit as rk
        >>> from regimekit.robustness.sensitivity import sensitivity
        >>> answer = sensitivity({"batch": 4}, shift=[1, 4], longest=4)
        >>> bool(answer.delay[1] < answer.delay[0]), answer.longest_burst >= 1
        (True, True)
    """
    read = read_model(model)
    shifts, batch = np.atleast_1d(numbers("shift", shift)), int(read.chosen.batch)
    farthest = max(2 * batch, 8) if longest is None else whole("longest", longest)
    accepted = share("risk", risk)
    situation = situation_of(read, visits, openness)
    phases = np.unique(np.linspace(0, batch - 1, min(batch, _PHASES)).round().astype(int))
    horizon = max(math.ceil(_REACH / batch), 6)
    heights = np.geomspace(0.5, _TALLEST, 34)
    lengths = np.arange(1.0, farthest + 1)
    course = _shift_course(situation, shifts, phases, horizon, None)
    returned = _shift_course(situation, shifts, phases, horizon, shifts)
    opened, known = (_opened(each, batch, phases) for each in (course, returned))
    whole_batch = course.evidence.reshape(shifts.size, phases.size, -1)[:, 0, :batch]
    return Sensitivity(
        batch,
        situation.threshold,
        situation.rate,
        situation.visits,
        math.exp(situation.chances.enter),
        accepted,
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
    """A Markdown table to choose B from, and c where a weight has one.

    Args:
        batches: values of B, down the table.
        thresholds: values of c under `imq`; None is contamination.
        observations: how many the present regime has been given.
        settings: other settings of `br_ihmm`.

    Example:
        >>> print(choice_table((4,)).splitlines()[0])
        | B | c | new: 2 sd | 3 sd | 5 sd | 10 sd | known: 3 sd | bursts ignored | 6 sd and more |
    """
    shifts = (2.0, 3.0, 5.0, 10.0)
    columns = ["B", "c", "new: 2 sd", "3 sd", "5 sd", "10 sd", "known: 3 sd", "bursts ignored"]
    columns.append(f"{CLEAR:g} sd and more")
    lines = [_row(columns), _row(["---"] * len(columns))]
    for batch in batches:
        for threshold in thresholds:
            chosen = {**settings, "batch": batch, "threshold": threshold}
            answer = sensitivity(chosen, shift=shifts, visits=max(observations // batch, 1))
            lengths = (answer.longest_burst, answer.longest_burst_from(CLEAR))
            cells = [batch, "none" if threshold is None else f"{threshold:g}"]
            cells += [*map(_count, answer.delay), _count(answer.delay_known[1])]
            most = answer.burst_length.max()
            lines.append(_row([*cells, *(f"{n}{'+' if n == most else ''}" for n in lengths)]))
    return "\n".join(lines)


def _takeover(s: Situation, cases: int, known: Array | None) -> Takeover:
    """A new regime, or one known at the levels `known`, against the present one."""
    holder = believe(0.0, s.present_var, cases, s.present_var)
    if known is None:
        rival, enter = believe(s.prior_mean, s.prior_var, cases), s.chances.enter
    else:
        rival, enter = believe(known, s.present_var, cases, s.present_var), s.chances.back
    chances, fresh = s.chances, known is None
    branches = s.branches if fresh else 0
    return Takeover(holder, rival, fresh, branches, enter, chances.stay, chances.hold, s.particles)


def _shift_course(
    s: Situation, shifts: Array, phases: Array, horizon: int, known: Array | None
) -> Course:
    """Every shift at every phase: (Z * phases) cases over `horizon` batches."""
    time = np.arange(horizon * s.batch)
    signal = shifts[:, None, None] * (time >= phases[:, None])
    levels = None if known is None else np.repeat(known, phases.size)
    takeover = _takeover(s, shifts.size * phases.size, levels)
    return play(signal.reshape(-1, time.size), s.batch, takeover, s.terms)


def _opened(course: Course, batch: int, phases: Array) -> Array:
    """(Z, T): probability of being open 1 .. T observations after the shift, over the phases.

    With islands at every phase it is the share of them that has opened the regime.
    """
    so_far = np.maximum.accumulate(course.probability, axis=1)
    return np.asarray(_by_time(so_far, batch, phases).mean(axis=1))


def _by_time(by_batch: Array, batch: int, phases: Array) -> Array:
    """(Z, phases, T): what holds at the latest end of a batch, 1 .. T observations on."""
    batches = by_batch.shape[1]
    by_batch = by_batch.reshape(-1, phases.size, batches)
    after = np.arange(1, batches * batch - int(phases.max()) + 1)
    ended = (after + phases[:, None]) // batch  # batches ended by then, for each phase
    padded = np.concatenate([np.zeros((*by_batch.shape[:2], 1)), by_batch], axis=2)
    at = np.take_along_axis(padded, np.broadcast_to(ended, (len(padded), *ended.shape)), axis=2)
    return np.asarray(at)


def _median(opened: Array) -> Array:
    """First number of observations with probability 1/2; infinity where there is none."""
    reached = opened >= 0.5
    return np.where(reached.any(axis=1), reached.argmax(axis=1) + 1.0, math.inf)


def _burst_opens(s: Situation, lengths: Array, heights: Array, phases: Array) -> Array:
    """(K, H): probability that a burst opens a regime, at its worst phase, on the safe side."""
    batches = math.ceil((int(lengths.max()) + s.batch - 1) / s.batch)
    time = np.arange(batches * s.batch)
    opens = np.empty((lengths.size, heights.size))
    careful = s._replace(chances=s.chances._replace(enter=s.chances.enter + MARGIN))
    for k, length in enumerate(lengths):
        inside = (time >= phases[:, None]) & (time < phases[:, None] + length)
        signal = (heights[:, None, None] * inside).reshape(-1, time.size)
        course = play(signal, s.batch, _takeover(careful, len(signal), None), s.terms)
        worst = course.probability.max(axis=1).reshape(heights.size, phases.size)
        opens[k] = worst.max(axis=1)
    return opens


def _count(n: float) -> str:
    return f"{n:.0f}" if math.isfinite(n) else "-"


def _row(cells: list[Any]) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"
