from libc.stdint cimport int64_t

from regimekit.baselines.beam_regression cimport MAX_RESIDUAL, MIN_VARIANCE, Regression
from regimekit.core.logspace cimport draw_index, logaddexp, logsumexp, normalize
from regimekit.core.random cimport RandomSource
from regimekit.ihmm.hdp cimport antoniak, log_gamma_draw


cdef class Chain:
    cdef public Regression regression
    cdef public RandomSource random
    cdef public Py_ssize_t size
    cdef public int64_t[::1] path
    cdef public double[::1] log_beta, noise, concentration, log_slices
    cdef public double[:, ::1] log_rows, coefficients, concentration_prior, log_filter
    cdef int64_t[::1] sources
    cdef int64_t[:, ::1] order
    cdef public int64_t[:, ::1] counts
    cdef double[::1] log_mass, shares, pair
    cdef void represent(self) noexcept nogil
    cdef void split(
        self, double[::1] log_shares, Py_ssize_t last, double part, double rest
    ) noexcept nogil
    cdef void log_dirichlet(self, double[::1] shapes, Py_ssize_t n) noexcept nogil
    cdef void filter_loop(self) noexcept nogil
    cdef Py_ssize_t weigh_reached(self, Py_ssize_t t) noexcept nogil
    cdef void backward_loop(self) noexcept nogil
    cdef double log_density(self, Py_ssize_t t, Py_ssize_t k) noexcept nogil
    cdef double draw_concentration(
        self, double value, double tables, double[::1] customers, Py_ssize_t n, Py_ssize_t which
    ) noexcept nogil
