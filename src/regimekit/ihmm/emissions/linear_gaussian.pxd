from regimekit.core.random cimport RandomSource
from regimekit.ihmm.emissions.base cimport Emission
from regimekit.ihmm.emissions.linear cimport (
    WIDE, RowCovariances, Steps, beyond_chance, beyond_chance_jointly, bounded, dot,
)
from regimekit.ihmm.weights cimport MAX_LENGTH, factorize, log_normal


cdef class LinearGaussian(Emission):
    cdef public double[:, ::1] noise
    cdef public object prior_mean, prior_root
    cdef public double[:, :, ::1] mean
    cdef public double[:, :, ::1] root
    cdef public Steps steps
    cdef double[::1] residual, scratch, moved
    cdef double[:, ::1] lines
    cdef RowCovariances covariances
    cdef void begin(self, Py_ssize_t place, Py_ssize_t row) noexcept nogil
    cdef void predict(self, Py_ssize_t place, Py_ssize_t row) noexcept nogil
    cdef double fit(self, Py_ssize_t row, Py_ssize_t j) noexcept nogil
    cdef void write_spread(self, Py_ssize_t place) noexcept nogil
    cdef double update(self, Py_ssize_t place, Py_ssize_t row, bint fresh) noexcept nogil
    cdef double update_scalar(self, Py_ssize_t place, bint fresh) noexcept nogil
    cdef double update_vector(self, Py_ssize_t place, bint fresh) noexcept nogil
    cdef void whiten(self, Py_ssize_t place, bint at_start) noexcept nogil
    cdef (double, double) trial(self, Py_ssize_t place, double unit) noexcept nogil
    cdef void learn_lines(self, Py_ssize_t place, double noise) noexcept nogil
    cdef void finalize(self, Py_ssize_t place, Py_ssize_t row, Py_ssize_t into) noexcept nogil
    cdef void draw_prior(
        self, Py_ssize_t prior, Py_ssize_t row, RandomSource random
    ) noexcept nogil
    cdef void shift_prior(
        self, Py_ssize_t prior, Py_ssize_t row, double[::1] level
    ) noexcept nogil
    cdef double coefficient_distance(self, Py_ssize_t a, Py_ssize_t b) noexcept nogil
    cdef double joint_distance(self, Py_ssize_t a, Py_ssize_t b) noexcept nogil
