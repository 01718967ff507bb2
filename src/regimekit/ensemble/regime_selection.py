"""What is reported as the regime, given one or several models that infer regimes.

Regimes of the dynamics are inferred by members of the ensemble, one of which is selected by
evidence; those of level and spread come from `regime_views`, which decides for good.

A model that forecasts well with three lags has no regimes, and regimes of the level alone tile a
drifting series. So a few regime models (level; lag 1; season) are ordered, the simplest first,
and a later one is selected if its lead over the earlier one,

    lead <- 0.995 lead + clip(log score of the later - log score of the earlier, -1/2, 1/2)

is large. The clip is essential: a level that jumps costs the level's model many nats at once and is
no evidence against it; a drift costs it a little all the time. Every change of a model's regime
costs it `CHANGE_COST` nats: of two models that fit alike the one with fewer changes is selected.
What is reported:

    a regime of the selected model counts after it has been the model's regime for `HOLD`
    observations; its first observation is that of the model
    ids are 0, 1, 2, .. in the order first reported, and belong to this module: when another model
    is selected, its regimes get the ids they overlap with in the recent past, or those that they
    had when the model was selected before
"""

from __future__ import annotations

import cython
import numpy as np

from regimekit.core.exceptions import SnapshotError
from regimekit.results import NO_REGIME, OPENED, RETURNED, Event

WARM_UP = 60  # observations before the first selection
EARLY, EARLY_HOLD = 100, 20  # a change must last longer for so long: a season may not be known yet
HOLD = 6  # observations a new regime must last before it is reported
TRACE = 300  # observations over which regimes of two models are compared
# Leads with which a later model is selected, and stays selected, in nats.
_SELECT = cython.declare(cython.double, 6.0)
_STAY = cython.declare(cython.double, 3.0)
# Largest difference of two log scores, and cost of a change, in nats.
_CLIP = cython.declare(cython.double, 0.5)
CHANGE_COST = 2.0
_CHANGE_COST = cython.declare(cython.double, CHANGE_COST)
_DISCOUNT = cython.declare(cython.double, 0.995)
_WARM_UP = cython.declare(cython.longlong, WARM_UP)
_EARLY = cython.declare(cython.longlong, EARLY)
_EARLY_HOLD = cython.declare(cython.longlong, EARLY_HOLD)
_HOLD = cython.declare(cython.longlong, HOLD)
_TRACE = cython.declare(cython.Py_ssize_t, TRACE)
_NONE = cython.declare(cython.longlong, NO_REGIME)
_MAX_LEAD = (0.5 + CHANGE_COST) / 0.005 + 10.0


class RegimeSelection:
    """Which regime model is selected, and what has been reported.

    Args:
        n_models: number of regime models.
        start: index of the model that is selected at first.
        decided: whether the models decide their regimes for good, so that a change is reported at
            once, and the caller selects the model; see `regime_views`.

    Attributes:
        chosen: index of the selected model.
        lead: (n_models, n_models) [i, j] is the lead of j over i.
        regime: the reported regime; `began` its first observation.
        visits, first_seen, last_seen: of each reported regime (the first `n_regimes` entries).
        moves: [i, j] number of moves from regime i to regime j.
        memory: for each model, its ids -> reported ids.
        ages: observations that belong to each model's present regime.
        events: changes that became known, as `Event`; the caller empties the list.
    """

    FIELDS = {
        "n_heard": ("int64", (), 0, 2**53),
        "chosen": ("int64", (), 0, "last_model"),
        "n_regimes": ("int64", (), 0, 2**24),
        "regime": ("int64", (), -1, "last_regime"),
        "candidate": ("int64", (), -1, 2**53),
        "candidate_since": ("int64", (), 0, 2**53),
        "began": ("int64", (), 0, 2**53),
        "lead": ("float64", ("n_models", "n_models"), -_MAX_LEAD, _MAX_LEAD),
        "book": ("int64", ("3", "n_regimes"), 0, 2**53),
        "reported_moves": ("float64", ("n_regimes", "n_regimes"), 0.0, 2.0**53),
        "traces": ("int64", ("n_traces", "trace_size"), -1, 2**53),
        "trace_length": ("int64", ("n_traces",), 0, "trace_size"),
        "ages": ("int64", ("n_models",), 0, 2**53),
        "names": ("int64", (None, "3"), -1, 2**53),
    }

    def __init__(self, n_models, start=0, decided=False):
        self.chosen = start
        self.decided = decided
        self.n_heard = 0
        self.regime = NO_REGIME
        self.n_regimes = 0
        self.candidate = NO_REGIME
        self.candidate_since = 0
        self.began = 0
        self.visits, self.first_seen, self.last_seen = (np.zeros(8, np.int64) for _ in range(3))
        self.moves = np.zeros((8, 8))
        self.lead = np.zeros((n_models, n_models))
        # The last row is the trace of the reported regime.
        self.trace_storage = np.zeros((n_models + 1, 2 * TRACE), np.int64)
        self.trace_length = np.zeros(n_models + 1, np.int64)
        self.trace_start = np.zeros(n_models + 1, np.int64)
        self.events = []
        self.set_models(n_models)

    def set_models(self, n_models):
        """Set the number of models; none has been observed."""
        self.n_models = n_models
        reported = self.trace(np.asarray(self.trace_length).size - 1)
        self.trace_storage = np.zeros((n_models + 1, 2 * TRACE), np.int64)
        self.trace_length = np.zeros(n_models + 1, np.int64)
        self.trace_start = np.zeros(n_models + 1, np.int64)
        np.asarray(self.trace_storage)[n_models, : len(reported)] = reported
        self.trace_length[n_models] = len(reported)
        self.ages = np.zeros(n_models, np.int64)
        self.memory = [{} for _ in range(n_models)]
        self.name_known = False

    @property
    def names(self):
        """(k, 3) rows: model, its id, reported id."""
        rows = [[i, *pair] for i, own in enumerate(self.memory) for pair in own.items()]
        return np.array(rows, np.int64).reshape(-1, 3)

    @names.setter
    def names(self, given):
        self.memory = [{} for _ in range(self.n_models)]
        for model, theirs, ours in np.asarray(given).tolist():
            if not (0 <= model < self.n_models and 0 <= ours < self.n_regimes):
                raise SnapshotError(
                    f"Invalid snapshot: names has the row {[model, theirs, ours]}, expected one of "
                    f"{self.n_models} models and one of {self.n_regimes} regimes."
                )
            self.memory[model][theirs] = ours
        self.name_known = False

    @property
    def selected_names(self):
        """Ids of the selected model -> reported ids."""
        return self.memory[self.chosen]

    @property
    def last_model(self):
        """Largest index of a model."""
        return self.n_models - 1

    @property
    def last_regime(self):
        """Largest reported id."""
        return self.n_regimes - 1

    @property
    def n_traces(self):
        """Number of traces: of each model, and of the reported regime."""
        return self.n_models + 1

    @property
    def trace_size(self):
        """Length of a stored trace."""
        return _TRACE

    @property
    def book(self):
        """(3, n_regimes) visits, first and last observation of each reported regime."""
        n = self.n_regimes
        return np.stack([self.visits[:n], self.first_seen[:n], self.last_seen[:n]])

    @book.setter
    def book(self, given):
        n = given.shape[1]
        room = max(8, n)
        columns = [np.zeros(room, np.int64) for _ in range(3)]
        for column, row in zip(columns, given, strict=True):
            column[:n] = row
        self.visits, self.first_seen, self.last_seen = columns
        self.moves = np.zeros((room, room))

    @property
    def reported_moves(self):
        """(n_regimes, n_regimes) counts of moves."""
        n = self.n_regimes
        return np.asarray(self.moves)[:n, :n].copy()

    @reported_moves.setter
    def reported_moves(self, given):
        n = len(given)
        np.asarray(self.moves)[:n, :n] = given

    @property
    def traces(self):
        """(n_models + 1, TRACE) recent regimes of each model, and the reported ones."""
        out = np.full((self.n_traces, _TRACE), NO_REGIME, np.int64)
        for i in range(self.n_traces):
            own = self.trace(i)
            out[i, : len(own)] = own
        return out

    @traces.setter
    def traces(self, given):
        np.asarray(self.trace_storage)[:, :_TRACE] = given
        np.asarray(self.trace_start)[:] = 0

    def refresh(self):
        """Refuse states that cannot be."""
        reported = self.trace(self.n_models)
        if reported.size and not 0 <= reported.min() <= reported.max() < self.n_regimes:
            raise SnapshotError(
                f"Invalid snapshot: the reported regimes must be 0 to {self.n_regimes - 1}."
            )
        if self.regime == NO_REGIME and self.n_regimes:
            raise SnapshotError("Invalid snapshot: regimes are known, but none is reported.")
        self.name_known = False

    def trace(self, i):
        """Return the recent regimes of model i, or the reported ones for i = n_models."""
        first = int(self.trace_start[i])
        return np.asarray(self.trace_storage)[i, first : first + int(self.trace_length[i])].copy()

    def latest(self, i, back):
        """Return entry `back` (1 is the latest) of the trace of model i."""
        return self.trace_storage[i, self.trace_start[i] + self.trace_length[i] - back]

    def push(self, i, regime):
        """Append to a trace, which keeps its latest entries."""
        k: cython.Py_ssize_t
        if self.trace_length[i] == _TRACE:
            self.trace_start[i] += 1
            self.trace_length[i] -= 1
        if self.trace_start[i] + self.trace_length[i] == 2 * _TRACE:
            for k in range(self.trace_length[i]):
                self.trace_storage[i, k] = self.trace_storage[i, self.trace_start[i] + k]
            self.trace_start[i] = 0
        self.trace_storage[i, self.trace_start[i] + self.trace_length[i]] = regime
        self.trace_length[i] += 1

    def note(self, i, regime, changed, time, since):
        """Note the regime of model i after one observation.

        Args:
            since: the model's own index of the first observation of the regime, if it changed.
        """
        same: cython.bint = self.trace_length[i] > 0 and self.latest(i, 1) == regime
        self.push(i, regime)
        if changed:
            self.ages[i] = time - since + 1
        else:
            self.ages[i] = (self.ages[i] if same else 0) + 1

    def restart(self, n_models):
        """The models are new: `note` will be called for the recent past, then `match`."""
        lead = np.zeros((n_models, n_models))
        n = min(n_models, self.n_models)
        lead[:n, :n] = np.asarray(self.lead)[:n, :n]
        self.lead = lead
        self.set_models(n_models)

    def add_model(self, replaced, selected):
        """Append a model, or replace the one at `replaced`; it may be selected at once."""
        memory, ages, n = self.memory, np.asarray(self.ages), self.n_models
        traces = [self.trace(i) for i in range(n + 1)]
        lead = np.asarray(self.lead)
        if replaced is None:
            lead = np.pad(lead, (0, 1))
            replaced = n
            n += 1
        self.set_models(n)
        for i in range(len(ages)):
            if i != replaced:
                np.asarray(self.trace_storage)[i, : len(traces[i])] = traces[i]
                self.trace_length[i] = len(traces[i])
                self.memory[i], self.ages[i] = memory[i], ages[i]
        ahead = _SELECT + _STAY if selected else 0.0
        lead[:, replaced], lead[replaced] = ahead, -ahead
        lead[replaced, replaced] = 0.0
        self.lead = np.ascontiguousarray(lead)
        if self.chosen == replaced:
            self.match()

    def match(self):
        """Give the selected model's regimes the ids they overlap with, or had before."""
        recent = _overlaps(self.trace(self.chosen), self.trace(self.n_models))
        taken = set(recent.values())
        before = {
            theirs: own for theirs, own in self.memory[self.chosen].items() if own not in taken
        }
        self.memory[self.chosen] = before | recent
        self.candidate = NO_REGIME
        self.name_known = False

    def revise(self, model, time, segments):
        """Select a model that knows the past regimes of the stream only now.

        The regime that the stream began with is the first one reported, the others are those that
        they overlap with in the recent past. If other regimes were reported, an event dates the
        first one back, and the path in retrospect is that of the model.

        Args:
            model: its index; `note` was called for the present observation.
            time: the present observation.
            segments: its regimes and their first observations, the oldest first.
        """
        self.chosen = model
        n, first = int(self.trace_length[model]), int(self.trace_start[model])
        for own, since in segments:
            begin = min(max(since - (time - n + 1), 0), n)
            np.asarray(self.trace_storage)[model, first + begin : first + n] = own
        recent = _overlaps(self.trace(model), self.trace(self.n_models))
        origin, since = segments[0]
        self.memory[model] = {k: own for k, own in recent.items() if k != origin and own != 0}
        self.memory[model][origin] = 0
        if self.n_regimes > 1:
            self.events.append(Event(time, RETURNED, 0, self.regime, since))
            self.regime, self.began = 0, since
        for own, since in segments[1:]:
            self.ages[model] = time - since + 1
            self.change(time, own)
        self.ages[model] = time - since + 1
        self.candidate = NO_REGIME
        self.name_known = False

    def observe(self, model, regime, changed=False, time=0, since=0):
        """Note the regime of a model after one observation, for Python; see `note`."""
        self.note(model, regime, changed, time, since)

    def hear(self, time, log_scores):
        """Take one observation that `note` was called for; return the events known now."""
        self.update(time, np.ascontiguousarray(log_scores, np.float64))
        events, self.events = self.events, []
        return events

    def update(self, time, log_scores):
        """Take the log scores of the models for one observation that `note` was called for."""
        self.n_heard += 1
        if not self.decided:
            self.compare(log_scores)
            self.choose()
        self.report(time, self.latest(self.chosen, 1))
        previous: cython.longlong = self.regime
        if self.trace_length[self.n_models] > 0:
            previous = self.latest(self.n_models, 1)
        self.moves[previous, self.regime] += 1.0
        self.visits[self.regime] += 1
        self.last_seen[self.regime] = time
        self.push(self.n_models, self.regime)

    def compare(self, log_scores):
        """Update the leads."""
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        for i in range(self.n_models):
            for j in range(self.n_models):
                ahead: cython.double = log_scores[j] - log_scores[i]
                ahead = min(max(ahead, -_CLIP), _CLIP)
                ahead += _CHANGE_COST * (self.moved(i) - self.moved(j))
                self.lead[i, j] = _DISCOUNT * self.lead[i, j] + ahead

    def moved(self, i):
        """Return 1 if the regime of model i has just changed, else 0."""
        if self.trace_length[i] < 2:
            return 0.0
        before: cython.longlong = self.latest(i, 2)
        return 1.0 if self.latest(i, 1) != before and before != _NONE else 0.0

    def choose(self):
        """Select a model by the leads."""
        if self.n_heard < _WARM_UP:
            return
        best: cython.Py_ssize_t = 0
        later: cython.Py_ssize_t
        for later in range(1, self.n_models):
            if self.lead[best, later] > (_STAY if later == self.chosen else _SELECT):
                best = later
        if best != self.chosen:
            self.switch_model(best)

    def switch_model(self, model):
        """Select another model."""
        self.chosen = model
        self.match()

    def report(self, time, vote):
        """Report the regime, given the selected model's."""
        if self.regime == _NONE:
            self.open_first(time)
            return
        if vote == _NONE:
            return
        if not self.name_known or vote != self.known_vote:
            self.look_up(vote)
        if self.known_regime == self.regime:
            self.candidate = _NONE
            return
        if vote != self.candidate:
            self.candidate = vote
            self.candidate_since = time
        hold: cython.longlong = _HOLD if self.n_heard > _EARLY else _EARLY_HOLD
        if self.decided or time - self.candidate_since + 1 >= hold:
            self.change(time, vote)

    def look_up(self, vote):
        """Find the reported id of a regime of the selected model."""
        names = self.memory[self.chosen]
        if not names:
            names[vote] = self.regime
        self.known_vote = vote
        self.known_regime = names.get(vote, NO_REGIME)
        self.name_known = True

    def change(self, time, vote):
        """Report another regime."""
        names = self.memory[self.chosen]
        self.candidate = NO_REGIME
        since = max(time - self.ages[self.chosen] + 1, self.began + 1)
        previous = self.regime
        if vote in names:
            self.regime, kind = names[vote], RETURNED
            self.began = since
        else:
            kind = OPENED
            self._open(since)
            names[vote] = self.regime
        self.events.append(Event(time, kind, self.regime, previous, since))
        self.name_known = False

    def open_first(self, time):
        """Report the first regime."""
        self._open(time)
        self.events.append(Event(time, OPENED, self.regime, NO_REGIME, time))

    def _open(self, since):
        """Add a regime and report it."""
        new = self.n_regimes
        if new == self.visits.shape[0]:
            for name in ("visits", "first_seen", "last_seen"):
                grown = np.zeros(2 * new, np.int64)
                grown[:new] = getattr(self, name)
                setattr(self, name, grown)
            moves = np.zeros((2 * new, 2 * new))
            moves[:new, :new] = self.moves
            self.moves = moves
        self.n_regimes = new + 1
        self.regime = new
        self.began = since
        self.visits[new] = 0
        self.first_seen[new] = self.last_seen[new] = since


def _overlaps(trace, reported):
    """Return a model's ids -> reported ids, by the majority of shared observations; one to one."""
    n = min(len(trace), len(reported))
    if n == 0:
        return {}
    theirs, ours = trace[len(trace) - n :], reported[len(reported) - n :]
    names = {}
    now, present = int(theirs[n - 1]), int(ours[n - 1])
    known, counts = np.unique(theirs[theirs != NO_REGIME], return_counts=True)
    order = known[np.argsort(-counts, kind="stable")].tolist()
    rival = max((int((ours[theirs == own] == present).sum()) for own in order), default=0)
    if now != NO_REGIME and int((ours[theirs == now] == present).sum()) == rival:
        names[now] = present  # no other regime overlaps more with the present one
    for own in order:
        values, overlap = np.unique(ours[theirs == own], return_counts=True)
        best = int(values[np.argmax(overlap)])
        if own not in names and best not in names.values():
            names[own] = best
    return names
