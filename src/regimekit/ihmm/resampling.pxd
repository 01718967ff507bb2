from libc.stdint cimport int64_t

from regimekit.core.random cimport RandomSource


cdef class Resampler:
    cdef public int scheme
    cdef public double[::1] points, floats
    cdef public int64_t[::1] parents, integers
    cdef void draw(
        self, double[::1] log_weight, Py_ssize_t first, Py_ssize_t n, RandomSource random
    ) noexcept nogil
    cdef void select(self, double[::1] log_weight, Py_ssize_t first, Py_ssize_t n) noexcept nogil
    cdef void sort_points(self, Py_ssize_t n) noexcept nogil
    cdef void copy_floats(self, double[::1] array, Py_ssize_t first, Py_ssize_t n) noexcept nogil
    cdef void copy_integers(
        self, int64_t[::1] array, Py_ssize_t first, Py_ssize_t n
    ) noexcept nogil
    cdef void copy_float_columns(
        self, double[:, ::1] array, Py_ssize_t first, Py_ssize_t n, Py_ssize_t width
    ) noexcept nogil
    cdef void copy_integer_columns(
        self, int64_t[:, ::1] array, Py_ssize_t first, Py_ssize_t n, Py_ssize_t width
    ) noexcept nogil
    cdef void copy_counts(
        self, int64_t[:, :, ::1] counts, Py_ssize_t first, Py_ssize_t n, Py_ssize_t width
    ) noexcept nogil


cpdef double effective_sample_size(
    double[::1] log_weight, Py_ssize_t first, Py_ssize_t n
) noexcept nogil
