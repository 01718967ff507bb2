from regimekit.ihmm.emissions.linear cimport LinearEmission, bounded, dot
from regimekit.ihmm.weights cimport CONTAMINATION, LOG_PI, MAX_LENGTH, OUTLIER_DOF, update_weight2


cdef class StudentT(LinearEmission):
    cdef public object prior_noise, prior_factor
    cdef public double prior_dof
    cdef public double[::1] kappa
    cdef public double[:, :, ::1] factor
    cdef public double[::1] dof
    cdef public double[:, :, ::1] work_factor
    cdef public double[::1] work_dof, q, start_q
    cdef double[:, ::1] lower, basis, copy
    cdef double[::1] white, residual, rest, column
    cdef void write_spread(
        self, double[:, :, ::1] factor, Py_ssize_t at, double scale, double[:, :, ::1] out,
        Py_ssize_t place,
    ) noexcept nogil
    cdef void standardize(
        self, double[:, :, ::1] factor, Py_ssize_t at, double[:, ::1] location, Py_ssize_t place
    ) noexcept nogil
    cdef (double, double, double, double) lengths(self, double q, double dof) noexcept nogil
    cdef void learn(self, Py_ssize_t place, double w2, double kappa) noexcept nogil
    cdef void impute(self, Py_ssize_t place) noexcept nogil
    cdef void add_unexplained(self, Py_ssize_t place, double share) noexcept nogil
    cdef void rank_one(self, Py_ssize_t place, double[::1] x) noexcept nogil
    cdef void copy_noise(
        self, double[:, :, ::1] factor, double[::1] dof, Py_ssize_t source, Py_ssize_t row
    ) noexcept nogil


cpdef double log_geometric(double dof, Py_ssize_t dim) noexcept nogil
cpdef double digamma(double x) noexcept nogil
