from libc.stdint cimport int64_t

from regimekit.core.logspace cimport logsumexp
from regimekit.distributions.mixture cimport Mixture
from regimekit.ihmm.emissions.base cimport Emission


cdef class Segments:
    cdef public object shape
    cdef public double weight
    cdef public Py_ssize_t n_components
    cdef double update(self, Py_ssize_t row, bint fresh) noexcept nogil
    cdef void predict(self, Py_ssize_t row, Mixture out, Py_ssize_t at) noexcept nogil


cdef class EmissionSegments(Segments):
    cdef public Emission emission
    cdef double update(self, Py_ssize_t row, bint fresh) noexcept nogil
    cdef void predict(self, Py_ssize_t row, Mixture out, Py_ssize_t at) noexcept nogil


cdef class RunLengths:
    cdef public Segments segments
    cdef public double hazard, dropped, latest_dropped
    cdef public Py_ssize_t kept, n, time, gap
    cdef public object trail
    cdef public int64_t[::1] starts, visits
    cdef public double[::1] log_mass, log_best
    cdef double[::1] score, weight
    cdef public Mixture mixture
    cdef void update_rows(self) noexcept nogil
    cdef Py_ssize_t weigh(self, double log_stay) noexcept nogil
    cdef void fill_mixture(self, double log_stay) noexcept nogil
