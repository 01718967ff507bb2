from libc.stdint cimport int64_t

cdef int NONE, IMQ, HUBER, MAHALANOBIS, CONTAMINATION
cdef double MAX_LENGTH, MIN_WEIGHT, OUTLIER_DOF, MAX_OUTLIER_RATE, LOG_PI


cdef class Scoring:
    cdef public int kind
    cdef public double threshold
    cdef public bint weigh_regimes, unit_free, predictive, weigh_births, sequential
    cdef public double log_rate, log_regular, log_density
    cdef void set_outlier_density(self, double rate, double log_density) noexcept nogil
    cdef (double, double, double) judge(
        self, double log_plain, double z, double length, double log_scale, Py_ssize_t dim, bint fresh
    ) noexcept nogil
    cdef (double, double) judge_contamination(self, double log_plain) noexcept nogil


cdef class PythonScoring(Scoring):
    cdef public object function, error
    cdef (double, double, double) judge(
        self, double log_plain, double z, double length, double log_scale, Py_ssize_t dim, bint fresh
    ) noexcept with gil


cpdef double log_weight2(int kind, double z, double threshold) noexcept nogil
cpdef double update_weight2(int kind, double z, double threshold) noexcept nogil
cpdef double log_score(double z, double log_scale, double log_w2, Py_ssize_t dim) noexcept nogil
cpdef double log_normal(double z, double log_scale, Py_ssize_t dim) noexcept nogil
cpdef double log_outlier_density(double z, double log_scale, Py_ssize_t dim) noexcept nogil
cpdef double factorize(
    double[:, ::1] matrix, int64_t[::1] seen, Py_ssize_t n, double[:, ::1] out_lower
) noexcept nogil
