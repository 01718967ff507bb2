cimport cython
from libc.stdint cimport int64_t
from regimekit.distributions.student_t cimport log_standard, normal_cdf, t_cdf
from regimekit.ensemble.members cimport Components

cdef Py_ssize_t N_NODES

@cython.final
cdef class Aggregation:
    cdef public Py_ssize_t n_members
    cdef public double[::1] prior, weight, regret, square, largest
    cdef public double[:, ::1] tally
    cdef public int64_t[::1] forecasting, present
    cdef public double[::1] rate, exponent, gradient, loss, total_gradient, total_loss, nodes
    cdef double[:, ::1] distribution
    cdef double mixed_loss
    cpdef void begin(self) noexcept nogil
    cpdef void score(self, Components parts, Py_ssize_t j, double y, double centre, double noise) noexcept nogil
    cdef double set_losses(self, double y) noexcept nogil
    cpdef void finish(self) noexcept nogil
    cdef void set_rates(self) noexcept nogil
    cdef void set_weights(self) noexcept nogil

@cython.final
cdef class SleepingExperts:
    cdef public Py_ssize_t n_members
    cdef public int64_t[::1] may_sleep, active, elapsed
    cdef public double[::1] peak
    cdef public double min_weight
    cdef public int64_t trial, sleep
    cdef bint update(self, double[::1] weight) noexcept nogil

cdef void set_distribution(Components parts, Py_ssize_t j, double[::1] nodes, double[:, ::1] out) noexcept nogil
cdef void set_log_densities(Components parts, Py_ssize_t first, Py_ssize_t last, double y, double mass, double[::1] term, double[::1] out, double[::1] top) noexcept nogil
