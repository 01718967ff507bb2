cimport cython
from libc.stdint cimport int64_t
from regimekit.preprocessing.lag_buffer cimport sort_order

@cython.final
cdef class Standardizer:
    cdef public Py_ssize_t dim
    cdef public Py_ssize_t window
    cdef public Py_ssize_t start
    cdef public Py_ssize_t size
    cdef public int64_t count
    cdef public int64_t rows
    cdef public double[::1] centre
    cdef public double[::1] scale
    cdef public double[::1] reported_scale
    cdef public int64_t[::1] alive
    cdef public bint all_alive
    cdef double[:, ::1] storage
    cpdef bint update(self, double[::1] y) noexcept nogil
    cdef void append(self, double[::1] y) noexcept nogil
    cdef bint refines(self) noexcept nogil
    cdef bint moves_again(self) noexcept nogil
    cdef bint refine(self) noexcept with gil
    cdef bint restart(self) noexcept with gil
    cdef double[::1] window_steps
    cdef int64_t[::1] window_order
    cdef bint still_fits(self) noexcept nogil
    cdef bint check_again(self) noexcept with gil
    cdef void standardize(self, double[::1] y, double[::1] out) noexcept nogil
    cdef void set_reported_scale(self) noexcept nogil

@cython.final
cdef class CovariateScaler:
    cdef public Py_ssize_t width
    cdef public double[::1] centre
    cdef public double[::1] scale
    cdef void standardize(self, double[::1] raw, double[::1] out) noexcept nogil
