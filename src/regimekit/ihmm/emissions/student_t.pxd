from regimekit.core.random cimport RandomSource
from regimekit.ihmm.emissions.base cimport Emission
from regimekit.ihmm.emissions.linear cimport (
    WIDE, RowCovariances, Steps, beyond_chance, beyond_chance_jointly, bounded, dot,
)
from regimekit.ihmm.weights cimport CONTAMINATION, LOG_PI, MAX_LENGTH, OUTLIER_DOF, update_weight2


cdef class StudentT(Emission):
    cdef public object prior_noise, prior_mean, prior_root, prior_factor
    cdef public double prior_dof
    cdef public double[::1] kappa
    cdef public double[:, :, ::1] mean
    cdef public double[:, :, ::1] root
    cdef public double[:, :, ::1] factor
    cdef public double[::1] dof
    cdef public Steps steps
    cdef public double[:, :, ::1] work_factor
    cdef public double[::1] work_dof, q, start_q
    cdef double[:, ::1] lower, basis, copy
    cdef RowCovariances covariances
    cdef double[::1] white, residual, rest, column, gap
    cdef void begin(self, Py_ssize_t place, Py_ssize_t row) noexcept nogil
    cdef void predict(self, Py_ssize_t place, Py_ssize_t row) noexcept nogil
    cdef double fit(self, Py_ssize_t row, Py_ssize_t j) noexcept nogil
    cdef void write_spread(
        self, double[:, :, ::1] factor, Py_ssize_t at, double scale, double[:, :, ::1] out,
        Py_ssize_t place,
    ) noexcept nogil
    cdef double update(self, Py_ssize_t place, Py_ssize_t row, bint fresh) noexcept nogil
    cdef void standardize(
        self, double[:, :, ::1] factor, Py_ssize_t at, double[:, ::1] location, Py_ssize_t place
    ) noexcept nogil
    cdef (double, double, double, double) lengths(self, double q, double dof) noexcept nogil
    cdef void learn(self, Py_ssize_t place, double w2, double kappa) noexcept nogil
    cdef void impute(self, Py_ssize_t place) noexcept nogil
    cdef void add_unexplained(self, Py_ssize_t place, double share) noexcept nogil
    cdef void rank_one(self, Py_ssize_t place, double[::1] x) noexcept nogil
    cdef void finalize(self, Py_ssize_t place, Py_ssize_t row, Py_ssize_t into) noexcept nogil
    cdef void draw_prior(
        self, Py_ssize_t prior, Py_ssize_t row, RandomSource random
    ) noexcept nogil
    cdef void shift_prior(
        self, Py_ssize_t prior, Py_ssize_t row, double[::1] level
    ) noexcept nogil
    cdef double coefficient_distance(self, Py_ssize_t a, Py_ssize_t b) noexcept nogil
    cdef double joint_distance(self, Py_ssize_t a, Py_ssize_t b) noexcept nogil


cpdef double log_geometric(double dof, Py_ssize_t dim) noexcept nogil
cpdef double digamma(double x) noexcept nogil
