from libc.stdint cimport int64_t

cdef Py_ssize_t PRIOR_ROW, UNBORN, START


cdef class Particles:
    cdef public double[::1] log_weight, alpha, gamma
    cdef public int64_t[::1] current, n_regimes
    cdef public int64_t[:, ::1] slots, start
    cdef public int64_t[:, :, ::1] counts
    cdef public double[:, ::1] log_beta, log_row, log_nu
    cdef void copy(self, Py_ssize_t source, Py_ssize_t target) noexcept nogil


cdef class RegimePool:
    cdef public int64_t[::1] owners, label, reported, first_seen, last_seen, visits, batches
    cdef public int64_t[::1] lookup, held, version
    cdef public int64_t n_writes
    cdef public double[::1] mass
    cdef Py_ssize_t first_free(self, Py_ssize_t start) noexcept nogil
    cdef void note_write(self, Py_ssize_t row) noexcept nogil
    cdef void clear(self, Py_ssize_t row) noexcept nogil
    cdef void count_owners(self, Particles particles) noexcept nogil


cdef class Candidates:
    cdef public Py_ssize_t islands, capacity
    cdef public int64_t[::1] row, outliers
    cdef public double[::1] score, weight, log_prior, log_stay, log_current, mass, fade


cdef class Clock:
    cdef public int64_t[::1] first, candidates, size, position, observed, commits
    cdef public double[::1] ess, outliers, batch_outliers
    cdef public int64_t time, next_label, reported, n_known, n_remembered
