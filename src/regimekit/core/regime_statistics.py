"""Statistics of the observations that were assigned to each regime.

A change becomes known some rows after it began. The latest `PENDING` rows are therefore not final,
and `reassign` may move them to another regime. Each regime has a sample of its rows: every
`stride`-th one; when the sample is full, every second one is dropped and the stride doubles. The
lengths of its visits are sampled in the same way. So time and memory per row are constant, and
nothing is random.
"""

from __future__ import annotations

import cython
import numpy as np
from cython.cimports.libc.math import isinf

NAN = cython.declare(cython.double, float("nan"))
PENDING = 128  # rows that are not final
MAX_REGIMES = 64  # regimes with statistics; the one not seen for longest is dropped
N_LENGTHS = 32  # lengths of visits per regime
_PENDING = cython.declare(cython.longlong, PENDING)
_N_LENGTHS = cython.declare(cython.longlong, N_LENGTHS)
_LATEST = 2**53


def sample_size(dim):
    """Return the number of rows in a sample of a regime for `dim` coordinates."""
    return max(16, min(128, 1024 // dim))


class RegimeStatistics:
    """Statistics of each regime of one stream.

    Args:
        dim: number of coordinates d.
        start: index of the first row.

    Attributes:
        start: index of the first row; n_rows: index of the next row.
        committed: index of the first pending row.
        n_regimes: number of regimes with statistics.
    """

    FIELDS = {
        "start": ("int64", (), 0, _LATEST),
        "committed": ("int64", (), "start", _LATEST),
        "n_regimes": ("int64", (), 0, MAX_REGIMES),
        "current": ("int64", (), -1, "last_slot"),
        "open_length": ("int64", (), 0, _LATEST),
        "pending_values": ("float64", (None, "dim"), -np.inf, np.inf, "missing"),
        "pending_regimes": ("int64", (None,), -1, _LATEST),
        "previous": ("float64", ("dim",), -np.inf, np.inf, "missing"),
        "regimes": ("int64", ("10", "n_regimes"), 0, _LATEST),
        "samples": ("float64", (None, "width"), -np.inf, np.inf, "missing"),
        "sample_rows": ("int64", (None,), 0, _LATEST),
        "lengths": ("int64", (None,), 1, _LATEST),
    }

    def __init__(self, dim, start=0):
        self.dim = dim
        self.room = sample_size(dim)
        self.start = self.committed = self.n_rows = start
        self.n_regimes = 0
        self.current = -1
        self.open_length = 0
        self.ring = np.full((PENDING, dim), np.nan)
        self.ring_regime = np.full(PENDING, -1, np.int64)
        self.last = np.full(dim, np.nan)
        self.table = np.zeros((10, 0), np.int64)
        self.sample = np.zeros((0, self.room, 2 * dim))
        self.sample_row = np.zeros((0, self.room), np.int64)
        self.length = np.zeros((0, N_LENGTHS), np.int64)
        self.reserve(4)

    def reserve(self, capacity):
        """Make room for `capacity` regimes."""
        n = self.sample.shape[0]
        for name in ("sample", "sample_row", "length"):
            old = np.asarray(getattr(self, name))
            grown = np.zeros((capacity, *old.shape[1:]), old.dtype)
            grown[:n] = old
            setattr(self, name, grown)
        table = np.zeros((10, capacity), np.int64)
        table[:, :n] = self.table
        self.table = table
        self.id, self.count, self.n_visits, self.last_row, self.n_seen = table[:5]
        self.stride, self.size, self.n_lengths, self.length_stride, self.length_size = table[5:]

    def extend(self, y, regime):
        """Append rows y (T, d) with their regimes, `regime` (T,)."""
        t: cython.Py_ssize_t
        for t in range(y.shape[0]):
            self.push(y[t], regime[t])

    def push(self, y, regime):
        """Append one row y (d,) with its regime; NaN means missing, -1 no regime."""
        j: cython.Py_ssize_t
        if self.n_rows - self.committed == _PENDING:
            self.commit()
        at: cython.Py_ssize_t = self.n_rows % _PENDING
        for j in range(self.dim):
            self.ring[at, j] = y[j]
        self.ring_regime[at] = regime
        self.n_rows += 1

    def reassign(self, since, stop, regime):
        """Assign the pending rows `since` to `stop` - 1 to a regime."""
        t: cython.longlong
        for t in range(max(since, self.committed), min(stop, self.n_rows)):
            self.ring_regime[t % _PENDING] = regime

    def commit(self):
        """Add the oldest pending row to the statistics of its regime."""
        j: cython.Py_ssize_t
        row: cython.longlong = self.committed
        at: cython.Py_ssize_t = row % _PENDING
        regime: cython.longlong = self.ring_regime[at]
        self.committed += 1
        if self.current >= 0 and self.id[self.current] != regime:
            self.close_visit()
        if regime >= 0:
            if self.current < 0:
                self.current = self.find(regime)
                self.n_visits[self.current] += 1
            self.open_length += 1
            self.count[self.current] += 1
            self.last_row[self.current] = row
            self.add_to_sample(self.current, at, row)
        for j in range(self.dim):
            self.last[j] = self.ring[at, j]

    def close_visit(self):
        """Add the length of the visit that has ended to those of its regime."""
        k: cython.Py_ssize_t = self.current
        i: cython.Py_ssize_t
        if self.n_lengths[k] % self.length_stride[k] == 0:
            if self.length_size[k] == _N_LENGTHS:
                for i in range(_N_LENGTHS // 2):
                    self.length[k, i] = self.length[k, 2 * i]
                self.length_size[k] = _N_LENGTHS // 2
                self.length_stride[k] *= 2
            if self.n_lengths[k] % self.length_stride[k] == 0:
                self.length[k, self.length_size[k]] = self.open_length
                self.length_size[k] += 1
        self.n_lengths[k] += 1
        self.current = -1
        self.open_length = 0

    def find(self, regime):
        """Return the place of a regime; a new one is added."""
        k: cython.Py_ssize_t
        for k in range(self.n_regimes):
            if self.id[k] == regime:
                return k
        return self.add(regime)

    def add(self, regime):
        """Add a regime and return its place; the oldest one is dropped if there are too many."""
        k: cython.Py_ssize_t = self.n_regimes
        if k == MAX_REGIMES:
            k = int(np.argmin(np.asarray(self.last_row)[:k]))
        else:
            if k == self.sample.shape[0]:
                self.reserve(min(2 * k, MAX_REGIMES))
            self.n_regimes += 1
        np.asarray(self.table)[:, k] = 0
        self.id[k] = regime
        self.stride[k] = self.length_stride[k] = 1
        return k

    def add_to_sample(self, k, at, row):
        """Add the pending row at `at` to the sample of the regime at place `k`, once per stride."""
        i: cython.Py_ssize_t
        j: cython.Py_ssize_t
        d: cython.Py_ssize_t = self.dim
        n: cython.Py_ssize_t = self.size[k]
        if self.n_seen[k] % self.stride[k] == 0:
            if n == self.room:
                n = (n + 1) // 2
                for i in range(n):
                    self.sample_row[k, i] = self.sample_row[k, 2 * i]
                    for j in range(2 * d):
                        self.sample[k, i, j] = self.sample[k, 2 * i, j]
                self.size[k] = n
                self.stride[k] *= 2
            if self.n_seen[k] % self.stride[k] == 0:
                for j in range(d):
                    self.sample[k, n, j] = self.ring[at, j]
                    gap: cython.double = self.ring[at, j] - self.last[j]
                    self.sample[k, n, d + j] = NAN if isinf(gap) else gap
                self.sample_row[k, n] = row
                self.size[k] = n + 1
        self.n_seen[k] += 1

    # ------------------------------------------------------------------ questions

    def rows_of(self, regime):
        """Return (n, d) values and (n, d) differences of a sample of a regime, and (n,) rows.

        Pending rows are included at the same rate as the others.
        """
        values, rows, stride = np.empty((0, 2 * self.dim)), np.empty(0, np.int64), 1
        for k in range(self.n_regimes):
            if self.id[k] == regime:
                n, stride = int(self.size[k]), int(self.stride[k])
                values = np.asarray(self.sample)[k, :n]
                rows = np.asarray(self.sample_row)[k, :n]
        own = np.flatnonzero(self.pending_regimes == regime)[::stride]
        late = self.pending_values
        before = np.concatenate([np.asarray(self.last)[None], late])[: len(late)]
        with np.errstate(over="ignore"):
            late = np.concatenate([late, late - before], axis=1)[own]
        values = np.concatenate([values, late])
        return (
            values[:, : self.dim],
            values[:, self.dim :],
            np.concatenate([rows, self.committed + own]),
        )

    def visits_of(self, regime):
        """Return number of rows, number of visits and the median length of a visit of a regime.

        The present visit counts with its length so far.
        """
        count, n_visits, lengths, stride = 0, 0, [], 1
        for k in range(self.n_regimes):
            if self.id[k] == regime:
                count, n_visits = int(self.count[k]), int(self.n_visits[k])
                stride = int(self.length_stride[k])
                lengths = np.asarray(self.length)[k, : int(self.length_size[k])].tolist()
        now = self.current >= 0 and self.id[self.current] == regime
        open_length, late = (int(self.open_length) if now else 0), []
        for other in [*self.pending_regimes.tolist(), -2]:
            if other == regime:
                count += 1
                n_visits += open_length == 0
                open_length += 1
            elif open_length:
                late.append(open_length)
                open_length = 0
        lengths += late[::stride] if lengths else late
        return count, n_visits, float(np.median(lengths)) if lengths else float("nan")

    def normal_tail(self, y, faults):
        """Return the largest two-sided tail probability of y (d,) in a regime without a fault.

        It is that of the smallest coordinate in the sample of the regime, 1 if no regime is left.

        Args:
            y: (d,) observation.
            faults: ids of the regimes with the status "fault".
        """
        ids = {*np.asarray(self.id)[: self.n_regimes].tolist(), *self.pending_regimes.tolist()}
        best, known = 0.0, False
        seen = ~np.isnan(y)
        for regime in sorted(ids - {-1, *faults}):
            values = self.rows_of(regime)[0][:, seen]
            values = values[~np.isnan(values).any(axis=1)]
            if not len(values):
                continue
            known = True
            below, above = (values <= y[seen]).sum(axis=0), (values >= y[seen]).sum(axis=0)
            tail = 2.0 * (np.minimum(below, above) + 0.5) / (len(values) + 1.0)
            best = max(best, min(1.0, float(tail.min()) * tail.size))
        return best if known else 1.0

    # ------------------------------------------------------------------ state

    @property
    def last_slot(self):
        """Largest place of a regime."""
        return self.n_regimes - 1

    @property
    def width(self):
        """Columns of a sample: values and differences."""
        return 2 * self.dim

    @property
    def pending_values(self):
        """(n, d) pending rows, oldest first."""
        order = np.arange(self.committed, self.n_rows) % PENDING
        return np.asarray(self.ring)[order]

    @pending_values.setter
    def pending_values(self, given):
        if len(given) > PENDING:
            raise ValueError(f"{len(given)} rows are pending, at most {PENDING} can be")
        self.n_rows = self.committed + len(given)
        order = np.arange(self.committed, self.n_rows) % PENDING
        np.asarray(self.ring)[order] = given

    @property
    def pending_regimes(self):
        """(n,) their regimes."""
        order = np.arange(self.committed, self.n_rows) % PENDING
        return np.asarray(self.ring_regime)[order]

    @pending_regimes.setter
    def pending_regimes(self, given):
        order = np.arange(self.committed, self.n_rows) % PENDING
        np.asarray(self.ring_regime)[order] = given

    @property
    def regimes(self):
        """(10, n_regimes) ids, counts and places of the samples."""
        return np.asarray(self.table)[:, : self.n_regimes]

    @regimes.setter
    def regimes(self, given):
        self.reserve(max(4, self.n_regimes))
        np.asarray(self.table)[:, : self.n_regimes] = given

    @property
    def previous(self):
        """(d,) values of the row before the pending ones."""
        return np.asarray(self.last)

    @previous.setter
    def previous(self, given):
        np.asarray(self.last)[:] = given

    @property
    def samples(self):
        """(n, 2 d) samples of all regimes, one after another."""
        return np.asarray(self.sample)[self._used(self.room, self.size)]

    @samples.setter
    def samples(self, given):
        used = self._used(self.room, self.size)
        np.asarray(self.sample)[used] = given

    @property
    def sample_rows(self):
        """(n,) their rows."""
        return np.asarray(self.sample_row)[self._used(self.room, self.size)]

    @sample_rows.setter
    def sample_rows(self, given):
        used = self._used(self.room, self.size)
        np.asarray(self.sample_row)[used] = given

    @property
    def lengths(self):
        """(n,) lengths of visits of all regimes, one after another."""
        return np.asarray(self.length)[self._used(N_LENGTHS, self.length_size)]

    @lengths.setter
    def lengths(self, given):
        used = self._used(N_LENGTHS, self.length_size)
        np.asarray(self.length)[used] = given

    def _used(self, room, size):
        """Return which entries of (capacity, room) are used."""
        used = np.arange(room) < np.asarray(size)[:, None]
        return used & (np.arange(len(used)) < self.n_regimes)[:, None]

    def refresh(self):
        """Raise SnapshotError if the state is impossible."""
        n = self.n_regimes
        sizes, lengths = np.asarray(self.size)[:n], np.asarray(self.length_size)[:n]
        strides = np.concatenate([np.asarray(self.stride)[:n], np.asarray(self.length_stride)[:n]])
        if (sizes > self.room).any() or (lengths > N_LENGTHS).any() or (strides < 1).any():
            raise ValueError("the statistics of the regimes have the wrong size")
