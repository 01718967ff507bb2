from libc.stdint cimport int64_t

from regimekit.core.random cimport RandomSource
from regimekit.ihmm.emissions.base cimport Emission

cdef double MAX_RESIDUAL


cdef class Steps:
    cdef public double[:, :, ::1] u
    cdef public double[:, ::1] shrink
    cdef public double[:, :, ::1] gain
    cdef public int64_t[::1] taken
    cdef public double[:, :, ::1] raw
    cdef public double[:, :, ::1] ahead
    cdef public int64_t[::1] passed, design
    cdef void begin(self, Py_ssize_t place) noexcept nogil
    cdef bint starts(self, Py_ssize_t place, int64_t design) noexcept nogil
    cdef void project(
        self, Py_ssize_t place, Py_ssize_t j, double[:, :, ::1] root, Py_ssize_t row,
        double[:, ::1] design,
    ) noexcept nogil
    cdef void pass_through(
        self, Py_ssize_t place, Py_ssize_t first, double[::1] v, double[::1] moved
    ) noexcept nogil
    cdef void advance(self, Py_ssize_t place, Py_ssize_t j, double[:, ::1] location) noexcept nogil
    cdef double dot_ahead(self, Py_ssize_t place, Py_ssize_t step, Py_ssize_t j) noexcept nogil
    cdef double product(self, Py_ssize_t place, Py_ssize_t j, Py_ssize_t k) noexcept nogil
    cdef double add_ahead(self, Py_ssize_t place, double noise) noexcept nogil
    cdef double add(self, Py_ssize_t place, double[::1] v, double noise) noexcept nogil
    cdef void move(self, Py_ssize_t place, Py_ssize_t j, double amount) noexcept nogil
    cdef void apply(
        self, Py_ssize_t place, Py_ssize_t row, Py_ssize_t into, double[:, :, ::1] mean,
        double[:, :, ::1] root,
    ) noexcept nogil


cdef class RowCovariances:
    cdef public double[:, ::1] variance
    cdef public int64_t[::1] known
    cdef public double[:, :, ::1] covariance
    cdef public int64_t[::1] owner
    cdef Py_ssize_t latest
    cdef double[:, ::1] total, lines
    cdef void forget(self, Py_ssize_t row) noexcept nogil
    cdef void write_variance(self, double[:, :, ::1] root, Py_ssize_t row) noexcept nogil
    cdef Py_ssize_t place(
        self, double[:, :, ::1] root, Py_ssize_t row, Py_ssize_t taken
    ) noexcept nogil
    cdef double squared_distance(
        self, double[:, :, ::1] root, Py_ssize_t a, double noise_a, Py_ssize_t b, double noise_b,
        double[::1] gap,
    ) noexcept nogil


cdef class LinearEmission(Emission):
    cdef public object prior_mean, prior_root
    cdef public double[:, :, ::1] mean, root
    cdef public Steps steps
    cdef RowCovariances covariances
    cdef double[::1] gap
    cdef bint write_location(self, Py_ssize_t place, Py_ssize_t row) noexcept nogil
    cdef void copy_root(self, Py_ssize_t prior, Py_ssize_t row) noexcept nogil
    cdef double noise_variance(self, Py_ssize_t row, Py_ssize_t s) noexcept nogil
    cdef double squared_noise_gap(self, Py_ssize_t a, Py_ssize_t b, Py_ssize_t s) noexcept nogil


cdef void add_rows(
    double[:, ::1] design, Py_ssize_t j, double[:, :, ::1] root, Py_ssize_t row,
    double[:, :, ::1] out, Py_ssize_t place,
) noexcept nogil
cdef void add_scaled(double factor, double[::1] x, double[::1] out) noexcept nogil
cpdef double dot(double[::1] u, double[::1] v) noexcept nogil
cpdef double bounded(double residual) noexcept nogil
cpdef void write_covariance(double[:, ::1] lines, double[:, ::1] out) noexcept nogil
cpdef double squared_mahalanobis(double[:, ::1] covariance, double[::1] gap) noexcept nogil
