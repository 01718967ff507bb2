"""The date of a change of regime, which is known only after batches have ended."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

MAX_DATING_EVIDENCE = 6.0  # nats that one observation may contribute to the date of a change


class Change(NamedTuple):
    """A change of the reported regime, or of the regimes that particles store.

    Attributes:
        time: the observation after which it was known.
        since: the first observation that belongs to the new regime.
        regime: label reported now.
        previous: label reported before.
        lost: labels once reported that no particle remembers any more.
    """

    time: int
    since: int
    regime: int
    previous: int
    lost: tuple[int, ...]


def record_change(filtering: Any) -> None:
    """Record and date a change of the reported regime or of the remembered regimes.

    Args:
        filtering: the `RegimeFilter`.
    """
    # Labels are Python integers in uncompiled code too, because they go into snapshots.
    now, before = int(filtering.clock.reported), int(filtering.reported)
    filtering.reported = now
    held = filtering.remembered()
    lost = tuple(sorted(filtering.reported_ever - held))
    filtering.reported_ever = (filtering.reported_ever & held) | ({now} if now != -1 else set())
    if now == before and not lost:
        return
    time = filtering.clock.time - 1
    since = time
    if now != before and before != -1 and not filtering.settings.date_changes:
        # Deviation D14: the paper's labels are those of whole batches.
        since = time + 1 - max(int(filtering.settled), 1)
    elif now != before and before != -1:
        since = max(date_change(filtering, before, now), min(filtering.changed + 1, since))
    elif now != before:
        since = 0
    if now != before:
        filtering.changed = since
        filtering.since = since
    filtering.change = Change(time, since, now, before, lost)


def date_change(filtering: Any, old: int, new: int) -> int:
    """Return the first observation of a regime that followed another one.

    With the latest observations and the present posteriors of both regimes, it is

        argmax over tau of   sum_{t < tau} log p_old(y_t)  +  sum_{t >= tau} log p_new(y_t).

    Args:
        filtering: the `RegimeFilter`.
        old: label reported before.
        new: label reported now.
    """
    time = filtering.clock.time
    if not filtering.emission.timeless:
        return max(int(time - np.asarray(filtering.clock.size).max()), 0)
    rows = [filtering.version_of(label) for label in (old, new)]
    if min(rows) < 0:
        return time - 1
    y, designs = (values[-2 * filtering.longest :] for values in filtering.recent())
    probe = filtering.probe()
    location, spread = probe.filter_rows(rows, y, designs, False, True)[2:4]
    variance = np.einsum("rtii->rti", spread)
    residual = np.minimum(np.abs(y - location), 1e100)
    each = -0.5 * (np.log(variance) + residual * residual / variance)
    score = np.where(np.isnan(y), 0.0, each).sum(axis=2)
    # Bounded like the scores of the filter, so that no single value decides.
    gain = np.clip(score[1] - score[0], -MAX_DATING_EVIDENCE, MAX_DATING_EVIDENCE)
    after = np.cumsum(gain[::-1])[::-1]  # evidence of all observations from tau on
    return max(time - len(y) + int(np.argmax(after)), 0)
