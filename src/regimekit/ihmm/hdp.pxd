from libc.stdint cimport int64_t

from regimekit.core.random cimport RandomSource
from regimekit.ihmm.state cimport START, Particles


cdef class Concentration:
    cdef public double alpha_shape, alpha_rate, gamma_shape, gamma_rate, sticky
    cdef public Py_ssize_t customers
    cdef public int64_t[::1] tables
    cdef Py_ssize_t row_tables(
        self, Particles p, Py_ssize_t i, Py_ssize_t source, bint diagonal, RandomSource random
    ) noexcept nogil
    cdef void sweep(
        self, Particles p, Py_ssize_t i, bint diagonal, RandomSource random
    ) noexcept nogil
    cdef double draw_gamma(
        self, double gamma, Py_ssize_t n, Py_ssize_t total, RandomSource random
    ) noexcept nogil
    cdef void draw_beta(self, Particles p, Py_ssize_t i, RandomSource random) noexcept nogil


cpdef void log_transition_row(Particles p, Py_ssize_t i, double sticky) noexcept nogil
cpdef double log_stick_rest(double gamma, RandomSource random) noexcept nogil
cpdef void count_transition(
    Particles p, Py_ssize_t i, Py_ssize_t choice, RandomSource random
) noexcept nogil
cpdef Py_ssize_t antoniak(
    Py_ssize_t n, double concentration, double bias, RandomSource random
) noexcept nogil
cpdef double log_gamma_draw(double shape, RandomSource random) noexcept nogil
cpdef double log_beta_draw(double a, double b, RandomSource random) noexcept nogil
cdef void normalize_beta(Particles p, Py_ssize_t i, Py_ssize_t n) noexcept nogil
cpdef Py_ssize_t least_used(
    Particles p, Py_ssize_t i, Py_ssize_t pool, int64_t[::1] last_seen, int64_t[::1] visits,
    int64_t[::1] taken,
) noexcept nogil
cpdef void remove_regime(
    Particles p, Py_ssize_t i, Py_ssize_t victim, bint keep_start
) noexcept nogil
cpdef void transition_matrix(
    Particles p, Py_ssize_t i, double sticky, double[:, ::1] out
) noexcept nogil
