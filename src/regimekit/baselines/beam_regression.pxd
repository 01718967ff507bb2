from libc.stdint cimport int64_t

from regimekit.core.random cimport RandomSource

cdef double MAX_RESIDUAL
cdef double MIN_VARIANCE


cdef class Regression:
    cdef public double[::1] y, prior_mean, seen, misfit
    cdef public double[:, ::1] design, prior_precision, prior_root, mean
    cdef public double[:, :, ::1] root
    cdef public bint known
    cdef public double noise, shape, scale
    cdef void add_observations(self, int64_t[::1] path) noexcept nogil
    cdef void solve(self, Py_ssize_t k) noexcept nogil
    cdef void factorize(self, Py_ssize_t k) noexcept nogil
    cdef void solve_upper(self, Py_ssize_t k, double[::1] vector) noexcept nogil
    cdef double shrinkage(self, Py_ssize_t k) noexcept nogil
    cdef double residual(
        self, Py_ssize_t t, double[:, ::1] coefficients, Py_ssize_t k
    ) noexcept nogil
    cdef double draw_noise(self, double seen, double misfit, RandomSource random) noexcept nogil
    cdef void draw_prior_coefficients(
        self, double noise, RandomSource random, double[::1] out
    ) noexcept nogil
    cdef void draw_coefficients(
        self, Py_ssize_t k, double noise, RandomSource random, double[::1] out
    ) noexcept nogil
