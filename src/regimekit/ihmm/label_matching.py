"""The reported regime, and one label for a regime that particles opened at different times.

The reported regime is the label with the largest total weight. The regime of the heaviest particle
would change from batch to batch.

A regime gets its label when it is opened; particles of an island that open one in the same batch
share it. Some particles open a new regime a batch earlier than others, and islands open it at
different times, so one regime gets several labels, and which of them has most of the weight changes
from batch to batch. Labels that are present at the same time, that no particle stores side by side,
and whose coefficients agree within their posterior uncertainty (D12) cannot be distinguished. They
become one label, if together they have most of the weight. Established labels that agree are merged
even if a particle stores both: it has opened a regime twice.
"""

from __future__ import annotations

import cython
import numpy as np
from cython.cimports.libc.math import exp

if not cython.compiled:
    from regimekit.ihmm.state import START, UNBORN

# Posterior standard deviations within which coefficients agree, and beyond which they differ.
AGREE = cython.declare(cython.double, 3.0)
DIFFER = cython.declare(cython.double, 5.0)
# Numbers of batches, and of observations per coefficient, from which coefficients alone decide.
ESTABLISHED_BATCHES = cython.declare(cython.Py_ssize_t, 4)
ESTABLISHED_VISITS = cython.declare(cython.Py_ssize_t, 3)
# Share of the weight above which a group of labels is renamed.
MAJORITY = cython.declare(cython.double, 0.5)
# A regime is known if particles with this share of the weight store it.
KNOWN_SHARE = 0.5
# Pairs of rows whose distances are stored.
N_PAIRS = cython.declare(cython.Py_ssize_t, 256)
KNOWN = cython.declare(cython.double, 0.5 - 1e-9)


class LabelMatcher:
    """Labels of regimes over particles.

    Args:
        particles: the particles.
        pool: the rows.
        clock: the clock.
        emission: the emission, for distances between rows.
        compare: D12, labels are merged only if their coefficients agree.
        width: number of coefficients of a coordinate.
    """

    def __init__(self, particles, pool, clock, emission, compare, width):
        self.particles = particles
        self.pool = pool
        self.clock = clock
        self.emission = emission
        self.compare = compare
        self.width = width
        n = particles.alpha.shape[0]
        self.weight, self.shares = np.zeros(n), np.zeros(n)
        self.labels, self.order, self.group = (np.zeros(n, np.int64) for _ in range(3))
        self.senior = np.zeros(n, np.int64)
        self.n_labels = 0
        self.pairs = np.full((N_PAIRS, 4), -1, np.int64)
        self.distance = np.zeros((N_PAIRS, 2))

    def write_weights(self):
        """Write the share of every particle among all particles."""
        islands: cython.Py_ssize_t = self.clock.size.shape[0]
        for g in range(islands):
            for i in range(self.clock.first[g], self.clock.first[g + 1]):
                self.weight[i] = exp(self.particles.log_weight[i]) / islands

    def present_labels(self):
        """Write the labels of the present regimes with their weights; return their number."""
        n: cython.Py_ssize_t = 0
        at: cython.Py_ssize_t
        label: cython.Py_ssize_t
        for i in range(self.weight.shape[0]):
            if self.particles.current[i] == START:
                continue
            label = self.pool.label[self.particles.slots[i, self.particles.current[i]]]
            at = find(self.labels, n, label)
            if at == n:
                self.labels[n] = label
                self.shares[n] = 0.0
                n += 1
            self.shares[at] += self.weight[i]
        return n

    def vote(self):
        """Set the reported label (the oldest on a tie) and the numbers of known regimes."""
        self.write_weights()
        n: cython.Py_ssize_t = self.present_labels()
        winner: cython.Py_ssize_t = UNBORN
        best: cython.double = 0.0
        for a in range(n):
            if self.shares[a] > best + 1e-12 or (
                self.shares[a] > best - 1e-12 and (winner == UNBORN or self.labels[a] < winner)
            ):
                winner = self.labels[a]
                best = self.shares[a]
        self.clock.reported = winner
        if winner != UNBORN:
            for row in range(self.pool.owners.shape[0]):
                if self.pool.owners[row] > 0 and self.pool.label[row] == winner:
                    self.pool.reported[row] = 1
        self.count_known()

    def count_known(self):
        """Count the reported regimes in particles with most of the weight, and in any particle."""
        n: cython.Py_ssize_t = 0
        at: cython.Py_ssize_t
        row: cython.Py_ssize_t
        known: cython.Py_ssize_t = 0
        for i in range(self.weight.shape[0]):
            for l in range(self.particles.n_regimes[i]):
                row = self.particles.slots[i, l]
                if self.pool.reported[row] == 1 and not self.stored_before(i, l):
                    at = find(self.pool.held, n, self.pool.label[row])
                    if at == n:
                        self.pool.held[n] = self.pool.label[row]
                        self.pool.mass[n] = 0.0
                        n += 1
                    self.pool.mass[at] += self.weight[i]
        for a in range(n):
            if self.pool.mass[a] >= KNOWN:
                known += 1
        self.clock.n_known = known
        self.clock.n_remembered = n

    def stored_before(self, i, l):
        """Return whether an earlier slot of particle `i` has the label of slot `l`."""
        label: cython.Py_ssize_t = self.pool.label[self.particles.slots[i, l]]
        for earlier in range(l):
            if self.pool.label[self.particles.slots[i, earlier]] == label:
                return True
        return False

    def probability(self, label, candidates):
        """Return the posterior probability of a label.

        Right after a batch it is that of the particles, inside a batch that of the candidates.
        """
        total: cython.double = 0.0
        islands: cython.Py_ssize_t = self.clock.size.shape[0]
        place: cython.Py_ssize_t
        for g in range(islands):
            if self.clock.position[g] > 0:
                for k in range(self.clock.candidates[g]):
                    place = g * candidates.capacity + k
                    if self.pool.label[candidates.row[place]] == label:
                        total += candidates.mass[place] / islands
                continue
            for i in range(self.clock.first[g], self.clock.first[g + 1]):
                if self.particles.current[i] != START:
                    if self.pool.label[self.particles.slots[i, self.particles.current[i]]] == label:
                        total += exp(self.particles.log_weight[i]) / islands
        return min(1.0, total)

    def reconcile(self):
        """Give present labels that cannot be distinguished the oldest of their labels."""
        total: cython.double
        self.write_weights()
        if self.compare:
            self.split()
        n: cython.Py_ssize_t = self.present_labels()
        if n < 2:
            return
        self.n_labels = n
        self.sort_by_seniority(n)
        for a in range(n):
            self.group[a] = -1
        for a in range(n):
            self.find_group(a)
        for head in range(n):
            total = 0.0
            for a in range(n):
                if self.group[a] == head:
                    total += self.shares[a]
            if total > MAJORITY:
                for a in range(n):
                    if self.group[a] == head and a != head:
                        self.rename(self.labels[a], self.labels[head])

    def find_group(self, a):
        """Add the `a`-th label by seniority to the first group that it can join, or start a group.

        Only a group with most of the weight is renamed: labels are not compared if this and all
        later groups together have less.
        """
        at: cython.Py_ssize_t = self.order[a]
        head: cython.Py_ssize_t
        rest: cython.double = 0.0
        for b in range(self.n_labels):
            rest += self.shares[b]
        for b in range(a):
            head = self.order[b]
            if self.group[head] != head:
                continue
            if rest < MAJORITY - 1e-9:
                break
            if self.joins(head, at):
                self.group[at] = head
                return
            for member in range(self.n_labels):
                if self.group[member] == head:
                    rest -= self.shares[member]
        self.group[at] = at

    def sort_by_seniority(self, n):
        """Order `n` labels: those that were reported first, then the others, the oldest first."""
        at: cython.Py_ssize_t
        place: cython.Py_ssize_t
        for a in range(n):
            self.senior[a] = 0
        for row in range(self.pool.owners.shape[0]):
            if self.pool.reported[row] == 1 and self.pool.owners[row] > 0:
                at = find(self.labels, n, self.pool.label[row])
                if at < n:
                    self.senior[at] = 1
        for a in range(n):
            place = 0
            for b in range(n):
                if self.senior[b] > self.senior[a] or (
                    self.senior[b] == self.senior[a] and self.labels[b] < self.labels[a]
                ):
                    place += 1
            self.order[place] = a

    def joins(self, head, at):
        """Return whether the label at place `at` is compatible with the group of `head`."""
        a: cython.Py_ssize_t
        b: cython.Py_ssize_t
        established: cython.bint
        for member in range(self.n_labels):
            if self.group[member] != head:
                continue
            a = self.heaviest_row(self.labels[member])
            b = self.heaviest_row(self.labels[at])
            established = self.compare and self.is_established(a) and self.is_established(b)
            if not established and self.side_by_side(self.labels[member], self.labels[at]):
                return False
            if self.compare:  # Deviation D12
                if not self.within(a, b, AGREE):
                    return False
                a = self.main_row(self.labels[member])
                b = self.main_row(self.labels[at])
                if not self.within(a, b, DIFFER):  # `split` would separate them again
                    return False
        return True

    def within(self, a, b, most):
        """Return whether the distances of rows `a` and `b`, each and joint, are at most `most`."""
        if not self.coefficient_distance(a, b) <= most:
            return False
        at: cython.Py_ssize_t = self.pair(a, b)
        if self.distance[at, 1] < 0.0:
            self.distance[at, 1] = self.emission.joint_distance(a, b)
        return self.distance[at, 1] <= most

    def coefficient_distance(self, a, b):
        """Return the largest distance between coefficients of rows `a` and `b`."""
        at: cython.Py_ssize_t = self.pair(a, b)
        if self.distance[at, 0] < 0.0:
            self.distance[at, 0] = self.emission.coefficient_distance(a, b)
        return self.distance[at, 0]

    def pair(self, a, b):
        """Return where the distances of rows `a` and `b` are stored; those not computed yet are -1.

        Rows do not change between their writes, and one pair is compared many times.
        """
        at: cython.Py_ssize_t = (31 * self.pool.version[a] + self.pool.version[b]) % N_PAIRS
        if (
            self.pairs[at, 0] != a
            or self.pairs[at, 1] != b
            or self.pairs[at, 2] != self.pool.version[a]
            or self.pairs[at, 3] != self.pool.version[b]
        ):
            self.pairs[at, 0] = a
            self.pairs[at, 1] = b
            self.pairs[at, 2] = self.pool.version[a]
            self.pairs[at, 3] = self.pool.version[b]
            self.distance[at, 0] = -1.0
            self.distance[at, 1] = -1.0
        return at

    def is_established(self, row):
        """Return whether `row` has enough observations to identify its regime."""
        return (
            self.pool.batches[row] >= ESTABLISHED_BATCHES
            and self.pool.visits[row] >= ESTABLISHED_VISITS * self.width
        )

    def split(self):
        """Give rows that differ from the main version of their label another label (D12).

        Labels that agreed while they were uncertain may turn out to be two regimes, and the regime
        of a particle that missed a change moves to the new level.
        """
        n: cython.Py_ssize_t = self.present_labels()
        fresh: cython.Py_ssize_t = self.clock.next_label
        head: cython.Py_ssize_t
        for a in range(n):
            head = self.main_row(self.labels[a])
            for row in range(self.pool.owners.shape[0]):
                if (
                    self.pool.owners[row] == 0
                    or self.pool.label[row] != self.labels[a]
                    or row == head
                ):
                    continue
                if self.coefficient_distance(row, head) > DIFFER:
                    self.pool.label[row] = self.clock.next_label + a
                    self.pool.reported[row] = 0
                    fresh = max(fresh, self.clock.next_label + a + 1)
        self.clock.next_label = fresh

    def side_by_side(self, one, other):
        """Return whether any particle stores both labels."""
        has_one: cython.bint
        has_other: cython.bint
        label: cython.Py_ssize_t
        for i in range(self.particles.alpha.shape[0]):
            has_one = False
            has_other = False
            for l in range(self.particles.n_regimes[i]):
                label = self.pool.label[self.particles.slots[i, l]]
                if label == one:
                    has_one = True
                if label == other:
                    has_other = True
            if has_one and has_other:
                return True
        return False

    def heaviest_row(self, label):
        """Return the row of a regime that most of the weight is in now."""
        best: cython.Py_ssize_t = -1
        row: cython.Py_ssize_t
        for row in range(self.pool.mass.shape[0]):
            self.pool.mass[row] = 0.0
        for i in range(self.weight.shape[0]):
            if self.particles.current[i] == START:
                continue
            row = self.particles.slots[i, self.particles.current[i]]
            if self.pool.label[row] == label:
                self.pool.mass[row] += self.weight[i]
                if best < 0 or self.pool.mass[row] > self.pool.mass[best]:
                    best = row
        return best

    def main_row(self, label):
        """Return the heaviest of the versions of a regime that agree and together weigh most.

        A version weighs the weight of its particles times its batches. Every island has its own
        versions, so one that moved with a change may outweigh each of the others, but not all of
        them together.
        """
        n: cython.Py_ssize_t = 0
        at: cython.Py_ssize_t
        row: cython.Py_ssize_t
        leader: cython.Py_ssize_t
        best: cython.Py_ssize_t = -1
        most: cython.double = -1.0
        support: cython.double
        for i in range(self.weight.shape[0]):
            for l in range(self.particles.n_regimes[i]):
                row = self.particles.slots[i, l]
                if self.pool.label[row] == label:
                    at = find(self.pool.held, n, row)
                    if at == n:
                        self.pool.held[n] = row
                        self.pool.mass[n] = 0.0
                        n += 1
                    self.pool.mass[at] += self.weight[i] * self.pool.batches[row]
        while True:
            leader = -1
            for k in range(n):
                if self.pool.held[k] >= 0 and (
                    leader < 0 or self.pool.mass[k] > self.pool.mass[leader]
                ):
                    leader = k
            if leader < 0:
                return best
            row = self.pool.held[leader]
            support = 0.0
            for k in range(n):
                if self.pool.held[k] >= 0 and (
                    k == leader or self.coefficient_distance(self.pool.held[k], row) <= DIFFER
                ):
                    support += self.pool.mass[k]
                    self.pool.held[k] = -1
            if support > most:
                best = row
                most = support

    def rename(self, old, new):
        """Give every row of label `old` the label `new`."""
        reported: cython.Py_ssize_t = 0
        for row in range(self.pool.owners.shape[0]):
            if self.pool.label[row] == old or self.pool.label[row] == new:
                reported = max(reported, self.pool.reported[row])
        for row in range(self.pool.owners.shape[0]):
            if self.pool.label[row] == old:
                self.pool.label[row] = new
            if self.pool.label[row] == new:
                self.pool.reported[row] = reported

    # For callers in Python.

    def reconcile_labels(self):
        """Give present labels that cannot be distinguished one label."""
        self.reconcile()

    def report_label(self):
        """Set the reported label, and the numbers of known and remembered regimes."""
        self.vote()

    def present_shares(self):
        """Return the weight of the particles by the label of their present regime."""
        self.write_weights()
        n = self.present_labels()
        return {int(self.labels[a]): float(self.shares[a]) for a in range(n)}


def find(labels, n, label):
    """Return the index of a label among the first `n` of `labels`, or `n` if it is not there."""
    for a in range(n):
        if labels[a] == label:
            return a
    return n
