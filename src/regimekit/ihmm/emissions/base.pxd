from libc.stdint cimport int64_t

from regimekit.core.random cimport RandomSource
from regimekit.ihmm.weights cimport Scoring


cdef class Observation:
    cdef public double[::1] y
    cdef public int64_t[::1] seen
    cdef public Py_ssize_t n_seen
    cdef public double extra_noise
    cdef public double[:, ::1] design
    cdef public int64_t number
    cdef public double[:, ::1] lower
    cdef void set_design(self, double[:, ::1] design) noexcept nogil
    cdef void set_value(self, double[::1] y) noexcept nogil


cdef class Predictive:
    cdef public double[:, ::1] location
    cdef public double[:, :, ::1] spread
    cdef public double[::1] dof
    cdef public double[:, ::1] start_location
    cdef public double[:, :, ::1] start_spread
    cdef public double[::1] start_dof


cdef class Emission:
    cdef public object shape, feature_limit
    cdef public Scoring scoring
    cdef public Py_ssize_t dim
    cdef public bint timeless, need_start
    cdef public double weight
    cdef public tuple row_arrays, candidate_arrays
    cdef public Observation observation
    cdef public Predictive predictive
    cdef void begin(self, Py_ssize_t place, Py_ssize_t row) noexcept nogil
    cdef void predict(self, Py_ssize_t place, Py_ssize_t row) noexcept nogil
    cdef double update(self, Py_ssize_t place, Py_ssize_t row, bint fresh) noexcept nogil
    cdef void skip(self, Py_ssize_t place) noexcept nogil
    cdef void time_update(self, Py_ssize_t place, Py_ssize_t row) noexcept nogil
    cdef void finalize(self, Py_ssize_t place, Py_ssize_t row, Py_ssize_t into) noexcept nogil
    cdef void draw_prior(
        self, Py_ssize_t prior, Py_ssize_t row, RandomSource random
    ) noexcept nogil
    cdef void shift_prior(
        self, Py_ssize_t prior, Py_ssize_t row, double[::1] level
    ) noexcept nogil
    cdef double coefficient_distance(self, Py_ssize_t a, Py_ssize_t b) noexcept nogil
    cdef double joint_distance(self, Py_ssize_t a, Py_ssize_t b) noexcept nogil


cdef class PythonEmission(Emission):
    cdef public object inner, error
    cdef void begin(self, Py_ssize_t place, Py_ssize_t row) noexcept with gil
    cdef void predict(self, Py_ssize_t place, Py_ssize_t row) noexcept with gil
    cdef double update(self, Py_ssize_t place, Py_ssize_t row, bint fresh) noexcept with gil
    cdef void skip(self, Py_ssize_t place) noexcept with gil
    cdef void time_update(self, Py_ssize_t place, Py_ssize_t row) noexcept with gil
    cdef void finalize(self, Py_ssize_t place, Py_ssize_t row, Py_ssize_t into) noexcept with gil
    cdef void draw_prior(
        self, Py_ssize_t prior, Py_ssize_t row, RandomSource random
    ) noexcept with gil
    cdef double coefficient_distance(self, Py_ssize_t a, Py_ssize_t b) noexcept with gil
    cdef double joint_distance(self, Py_ssize_t a, Py_ssize_t b) noexcept with gil
