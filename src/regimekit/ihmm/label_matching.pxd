from libc.stdint cimport int64_t

from regimekit.ihmm.emissions.base cimport Emission
from regimekit.ihmm.state cimport START, UNBORN, Candidates, Clock, Particles, RegimePool


cdef class LabelMatcher:
    cdef public Particles particles
    cdef public RegimePool pool
    cdef public Clock clock
    cdef public Emission emission
    cdef public bint compare
    cdef public Py_ssize_t width, n_labels
    cdef public double[::1] weight, shares
    cdef public int64_t[::1] labels, order, group, senior
    cdef int64_t[:, ::1] pairs
    cdef double[:, ::1] distance
    cdef double coefficient_distance(self, Py_ssize_t a, Py_ssize_t b) noexcept nogil
    cdef Py_ssize_t pair(self, Py_ssize_t a, Py_ssize_t b) noexcept nogil
    cdef void write_weights(self) noexcept nogil
    cdef Py_ssize_t present_labels(self) noexcept nogil
    cdef void vote(self) noexcept nogil
    cdef void count_known(self) noexcept nogil
    cdef bint stored_before(self, Py_ssize_t i, Py_ssize_t l) noexcept nogil
    cdef double probability(self, Py_ssize_t label, Candidates candidates) noexcept nogil
    cdef void reconcile(self) noexcept nogil
    cdef void find_group(self, Py_ssize_t a) noexcept nogil
    cdef void sort_by_seniority(self, Py_ssize_t n) noexcept nogil
    cdef bint joins(self, Py_ssize_t head, Py_ssize_t at) noexcept nogil
    cdef bint within(self, Py_ssize_t a, Py_ssize_t b, double most) noexcept nogil
    cdef bint is_established(self, Py_ssize_t row) noexcept nogil
    cdef void split(self) noexcept nogil
    cdef bint side_by_side(self, Py_ssize_t one, Py_ssize_t other) noexcept nogil
    cdef Py_ssize_t heaviest_row(self, Py_ssize_t label) noexcept nogil
    cdef Py_ssize_t main_row(self, Py_ssize_t label) noexcept nogil
    cdef void rename(self, Py_ssize_t old, Py_ssize_t new) noexcept nogil


cdef Py_ssize_t find(int64_t[::1] labels, Py_ssize_t n, Py_ssize_t label) noexcept nogil
