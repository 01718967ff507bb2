cimport cython
from libc.stdint cimport int64_t

@cython.final
cdef class MedianWindow:
    cdef public Py_ssize_t dim
    cdef public int64_t[::1] size, start
    cdef double[:, ::1] ring, ordered
    cpdef void push(self, Py_ssize_t j, double value) noexcept nogil
    cdef double median(self, Py_ssize_t j) noexcept nogil
    cdef double typical(self, Py_ssize_t j) noexcept nogil
    cdef Py_ssize_t count(self, Py_ssize_t j, double bound) noexcept nogil

@cython.final
cdef class Segmentation:
    cdef public Py_ssize_t dim, size, waiting
    cdef public int64_t n_rows
    cdef public double excess, cost
    cdef public bint drifts, adds_up
    cdef public double[:, ::1] storage
    cdef public int64_t[::1] dates
    cdef public double[:, ::1] earlier
    cdef public MedianWindow steps
    cdef double[:, ::1] total
    cdef double[::1] residual, gain
    cdef double[:, ::1] errors
    cdef double[:, :, ::1] sums
    cdef double[::1] evidence
    cdef public double[::1] floor, phi, least, rounding
    cdef double fit_before, fit_after, rest_before, rest_jump, rest_after
    cdef double noise_before, noise_after, tail_weight, square_weight
    cdef bint append(self, double[::1] row, int64_t date) noexcept nogil
    cdef void drop(self, Py_ssize_t n) noexcept nogil
    cdef void merge(self, Py_ssize_t first, Py_ssize_t last, double[:, ::1] into) noexcept nogil
    cdef bint set_floor(self) noexcept nogil
    cdef Py_ssize_t test(self) noexcept nogil
    cdef double pool(self) noexcept nogil
    cdef double correlation2(self, Py_ssize_t i, Py_ssize_t j, Py_ssize_t length) noexcept nogil
    cdef void accumulate(self, Py_ssize_t j) noexcept nogil
    cdef double step_fit(self, Py_ssize_t g, Py_ssize_t tau) noexcept nogil
    cdef double prior(self, Py_ssize_t j, Py_ssize_t g, Py_ssize_t n) noexcept nogil
    cdef double spread_gain(self, Py_ssize_t j, Py_ssize_t g, Py_ssize_t tau) noexcept nogil
    cdef double constant_fit(self, Py_ssize_t g) noexcept nogil
    cdef void choose_phi(self, Py_ssize_t j) noexcept nogil
    cdef double judge(self, Py_ssize_t j, Py_ssize_t tau) noexcept nogil
    cdef double beyond_drifts(self, Py_ssize_t j, Py_ssize_t g, Py_ssize_t tau, double level, double whole, double prior) noexcept nogil
    cdef void moments(self, Py_ssize_t j, Py_ssize_t g, Py_ssize_t tau) noexcept nogil
    cdef double smooth_fit(self, Py_ssize_t j, Py_ssize_t g, double centre, double width) noexcept nogil
