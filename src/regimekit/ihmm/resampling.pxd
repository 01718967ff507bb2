from libc.stdint cimport int64_t

from regimekit.core.random cimport RandomSource


cdef class Resampler:
    cdef public int scheme
    cdef public double[::1] points
    cdef public int64_t[::1] parents
    cdef void draw(
        self, double[::1] log_weight, Py_ssize_t first, Py_ssize_t n, RandomSource random
    ) noexcept nogil
    cdef void select(self, double[::1] log_weight, Py_ssize_t first, Py_ssize_t n) noexcept nogil
    cdef void sort_points(self, Py_ssize_t n) noexcept nogil


cpdef double effective_sample_size(
    double[::1] log_weight, Py_ssize_t first, Py_ssize_t n
) noexcept nogil
