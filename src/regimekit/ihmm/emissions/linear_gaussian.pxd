from regimekit.ihmm.emissions.linear cimport LinearEmission, bounded, dot
from regimekit.ihmm.weights cimport MAX_LENGTH, factorize, log_normal


cdef class LinearGaussian(LinearEmission):
    cdef public double[:, ::1] noise
    cdef double[::1] residual, scratch, moved
    cdef double[:, ::1] lines
    cdef void write_spread(self, Py_ssize_t place) noexcept nogil
    cdef double update_scalar(self, Py_ssize_t place, bint fresh) noexcept nogil
    cdef double update_vector(self, Py_ssize_t place, bint fresh) noexcept nogil
    cdef void whiten(self, Py_ssize_t place, bint at_start) noexcept nogil
    cdef (double, double) trial(self, Py_ssize_t place, double unit) noexcept nogil
    cdef void learn_lines(self, Py_ssize_t place, double noise) noexcept nogil
