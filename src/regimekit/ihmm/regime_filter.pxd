from libc.stdint cimport int64_t

from regimekit.distributions.mixture cimport Mixture
from regimekit.distributions.student_t cimport log_mixture, mixture_tail
from regimekit.ihmm.algorithm cimport Algorithm
from regimekit.ihmm.hdp cimport transition_matrix


cdef class Trace:
    cdef public double[::1] weight, change, ess, probability
    cdef public int64_t[::1] regime, n_known, settled, offset
    cdef public Mixture components
    cdef public list changes


cdef class RegimeFilter(Algorithm):
    cdef Mixture scored
    cdef double log_score(self, double y, double centre, double scale) noexcept nogil
    cdef double scored_tail(self, double y, bint outliers) noexcept nogil
    cdef Py_ssize_t loop(
        self, double[:, ::1] y, double[:, :, ::1] designs, double stop_below, Trace trace
    ) noexcept nogil
    cdef void append_forecast(self, Trace trace, Py_ssize_t t) noexcept nogil
    cdef void append_change(self, Trace trace) noexcept with gil
