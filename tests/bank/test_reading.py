"""What is reported about regimes: evidence, patience, ids that never jump."""

from __future__ import annotations

import numpy as np

from regimekit.ensemble.regime_selection import EARLY, HOLD, TRACE, WARM, Reading
from regimekit.results import Event, Step
from regimekit.serialization.validation import Arrays, Values


def hear(reading: Reading, time: int, regimes: list[int], scores: list[float]) -> list[str]:
    steps = [Step(regime=regime) for regime in regimes]
    return [event.kind for event in reading.hear(time, steps, np.array(scores))]


def test_a_short_excursion_is_not_reported() -> None:
    reading = Reading(1)
    votes = [4] * 10 + [5] * (HOLD - 1) + [4] * 10 + [5] * (HOLD + 5) + [4] * (HOLD + 5)
    for t in range(EARLY):
        hear(reading, t, [4], [0.0])
    kinds = [hear(reading, EARLY + t, [vote], [0.0]) for t, vote in enumerate(votes)]
    assert [k for kind in kinds for k in kind] == ["regime opened", "regime returned"]
    assert set(reading.public) == {0, 1} and reading.regime == 0


def test_a_reader_that_drifts_loses_and_one_that_jumps_does_not() -> None:
    drifting, jumping = Reading(2, start=0), Reading(2, start=1)
    for t in range(300):
        hear(drifting, t, [t // 10, 0], [-1.0, -0.8])
        hear(jumping, t, [0, 0], [-30.0 if t % 100 == 99 else -1.0, -1.01])
    assert drifting.chosen == 1 and jumping.chosen == 0


def test_ids_do_not_jump_when_the_reader_changes() -> None:
    """Two readers call the same two regimes by other names."""
    reading = Reading(2, start=1)
    truth = np.repeat([0, 1, 0, 1, 0, 1], 60)
    for t, regime in enumerate(truth.tolist()):
        late = t > WARM + 160
        hear(reading, t, [7 + regime, 3 - regime], [-1.0, -1.5] if late else [-3.0, -1.0])
    assert reading.chosen == 0
    reported = np.array(reading.public)
    assert (reported != truth[-reported.size :]).mean() < 0.15
    assert set(reading.public) == {0, 1}


def test_names_are_remembered_when_a_reader_is_believed_again() -> None:
    """Another one is believed for longer than the two are compared over; regime 0 comes back."""
    reading = Reading(2, start=0)
    spans = [(0, 0, 100), (1, 0, 100), (1, 1, 2 * TRACE), (1, 0, 300), (0, 0, 100)]
    t = 0
    for regime, believed, length in spans:
        for _ in range(length):
            hear(reading, t, [7 + regime, 3], [-2.0, -1.0] if believed else [-1.0, -2.0])
            t += 1
        assert reading.chosen == believed
    assert reading.regime == 0 and len(reading.book) == 2


def test_a_new_reader_may_have_to_earn_belief() -> None:
    for believed in (False, True):
        reading = Reading(1)
        for t in range(WARM + 20):
            hear(reading, t, [0], [-1.0])
        reading.enlarge(None, believed)
        hear(reading, t + 1, [0, 0], [-1.0, -1.0])
        assert reading.chosen == int(believed)
        for _ in range(20):
            t += 1
            hear(reading, t + 1, [0, 0], [-1.0, -3.0])  # the first one earns it back ..
        reading.enlarge(1, believed)  # .. and another takes the second one's place
        hear(reading, t + 2, [0, 0], [-1.0, -1.0])
        assert reading.chosen == int(believed)


def test_snapshot_of_a_reading() -> None:
    reading = Reading(2, start=1)
    for t in range(90):
        hear(reading, t, [t // 20, t // 40], [-1.0, -1.1])
    values, arrays = reading.pack()
    twin = Reading(2)
    twin.unpack(Values(values), Arrays(arrays))
    for t in range(90, 130):
        votes = [t // 20, t // 40]
        assert hear(reading, t, votes, [-1.0, -1.1]) == hear(twin, t, votes, [-1.0, -1.1])
    assert reading.pack()[0] == twin.pack()[0]


def test_a_change_is_dated_as_the_reader_dates_it() -> None:
    """The reader knows at 150 that regime 5 began at 143; it is reported HOLD observations on."""
    reading, told = Reading(1), []
    for t in range(200):
        events = (Event(t, "regime opened", 5, 4, 143),) if t == 150 else ()
        step = Step(regime=4 if t < 150 else 5, events=events)
        told += reading.hear(t, [step], np.zeros(1))
    assert [(e.time, e.since) for e in told[1:]] == [(150 + HOLD - 1, 143)]
    assert reading.book[1].first == 143


def test_a_change_begins_after_the_one_before_it() -> None:
    reading, told = Reading(1), []
    for t in range(200):
        date = {150: 143, 170: 140}.get(t)
        events = () if date is None else (Event(t, "regime opened", t // 10, 4, date),)
        vote = 4 if t < 150 else 15 if t < 170 else 17
        told += reading.hear(t, [Step(regime=vote, events=events)], np.zeros(1))
    assert [e.since for e in told[1:]] == [143, 144]
