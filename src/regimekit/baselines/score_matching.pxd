from regimekit.baselines.run_length cimport Segments
from regimekit.distributions.mixture cimport Mixture
from regimekit.ihmm.weights cimport IMQ, MAX_LENGTH, log_score, log_weight2


cdef class ScoreMatching(Segments):
    cdef public object setup
    cdef double p11, p12, p22, h1, h2, schur, floor, pinned, omega, center, scale, threshold
    cdef public double[:, ::1] sums
    cdef double[::1] eta, share, term
    cdef public double y
    cdef double update(self, Py_ssize_t row, bint fresh) noexcept nogil
    cdef void predict(self, Py_ssize_t row, Mixture out, Py_ssize_t at) noexcept nogil
    cdef double add(self, Py_ssize_t row, double y) noexcept nogil
    cdef (double, double, double, double, double) posterior(self, Py_ssize_t row) noexcept nogil
    cdef void fill_nodes(
        self, double mean, double precision, const double[:] nodes, const double[:] weights,
        double[::1] eta, double[::1] share
    ) noexcept nogil
    cdef double log_predictive(
        self, double y, double p11, double p12, double h1
    ) noexcept nogil
