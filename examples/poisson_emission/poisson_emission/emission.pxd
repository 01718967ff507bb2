# The types of emission.py. `Emission` and its C methods come from the .pxd files of regimekit.
from regimekit.core.random cimport RandomSource
from regimekit.ihmm.emissions.base cimport Emission


cdef class Poisson(Emission):
    cdef public double prior_events, prior_time
    cdef public double[::1] events
    cdef public double[::1] time
    cdef public double[::1] work_events
    cdef public double[::1] work_time
    cdef double judged_score, judged_weight, judged_update
    cdef void begin(self, Py_ssize_t place, Py_ssize_t row) noexcept nogil
    cdef void predict(self, Py_ssize_t place, Py_ssize_t row) noexcept nogil
    cdef double update(self, Py_ssize_t place, Py_ssize_t row, bint fresh) noexcept nogil
    cdef void judge(self, double log_mass, double z, double scale, bint fresh) noexcept nogil
    cdef void finalize(self, Py_ssize_t place, Py_ssize_t row, Py_ssize_t into) noexcept nogil
    cdef void draw_prior(
        self, Py_ssize_t prior, Py_ssize_t row, RandomSource random
    ) noexcept nogil
    cdef double coefficient_distance(self, Py_ssize_t a, Py_ssize_t b) noexcept nogil
    cdef double joint_distance(self, Py_ssize_t a, Py_ssize_t b) noexcept nogil


cdef double log_negative_binomial(double y, double events, double time) noexcept nogil
