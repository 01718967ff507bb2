cimport cython
from libc.stdint cimport int64_t

@cython.final
cdef class RegimeSelection:
    cdef public Py_ssize_t n_models
    cdef public int64_t chosen, n_heard, regime, candidate, candidate_since, began
    cdef public int64_t n_regimes
    cdef public double[:, ::1] lead
    cdef public int64_t[::1] visits, first_seen, last_seen
    cdef public double[:, ::1] moves
    cdef public int64_t[:, ::1] trace_storage
    cdef public int64_t[::1] trace_length, trace_start
    cdef public int64_t[::1] ages
    cdef public object memory
    cdef public object events
    cdef int64_t known_vote, known_regime
    cdef bint name_known
    cdef public bint decided
    cdef void compare(self, double[::1] log_scores) noexcept nogil
    cdef void note(self, Py_ssize_t i, int64_t regime, bint changed, int64_t time, int64_t since) noexcept nogil
    cdef int64_t latest(self, Py_ssize_t i, Py_ssize_t back) noexcept nogil
    cdef void push(self, Py_ssize_t i, int64_t regime) noexcept nogil
    cdef void update(self, int64_t time, double[::1] log_scores) noexcept nogil
    cdef double moved(self, Py_ssize_t i) noexcept nogil
    cdef void choose(self) noexcept nogil
    cdef void switch_model(self, Py_ssize_t model) noexcept with gil
    cdef void report(self, int64_t time, int64_t vote) noexcept nogil
    cdef void look_up(self, int64_t vote) noexcept with gil
    cdef void change(self, int64_t time, int64_t vote) noexcept with gil
    cdef void open_first(self, int64_t time) noexcept with gil
