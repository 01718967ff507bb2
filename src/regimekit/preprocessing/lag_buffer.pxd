cimport cython
from libc.stdint cimport int64_t
from regimekit.core.logspace cimport logaddexp
from regimekit.distributions.student_t cimport log_standard

cdef Py_ssize_t ADDITIVE
cdef Py_ssize_t INNOVATIONAL
cdef double OUTLIER_SCALE
cdef double SUSPECT

@cython.final
cdef class LagBuffer:
    cdef public Py_ssize_t depth
    cdef public Py_ssize_t dim
    cdef public Py_ssize_t start
    cdef public Py_ssize_t count
    cdef public double[:, :, ::1] storage
    cdef public double[:, ::1] dropped
    cdef public double dropped_probability
    cdef public double largest
    cdef public double n_additive
    cdef public double n_innovational
    cdef public double log_size
    cdef public double p_innovational
    cdef public double error
    cdef public bint pending
    cdef public int64_t n_pushed
    cdef public double[:, ::1] low
    cdef public double[:, ::1] high
    cdef bint range_known[2]
    cdef double at(self, Py_ssize_t version, Py_ssize_t lag, Py_ssize_t j) noexcept nogil
    cpdef void push(self, double[::1] clean, double[::1] raw=*) noexcept nogil
    cdef void append(self, Py_ssize_t version, Py_ssize_t j, double value) noexcept nogil
    cpdef void doubt(self, double[::1] clean, double[::1] raw, double error, double rate) noexcept nogil
    cdef double log_innovation(self, double error) noexcept nogil
    cpdef Py_ssize_t decide(self, double log_additive, double log_innovational) noexcept nogil
    cpdef void settle(self, Py_ssize_t version) noexcept nogil
    cdef double mass(self, Py_ssize_t version) noexcept nogil
    cdef double jump_of(self, Py_ssize_t j) noexcept nogil
    cdef void find_range(self, Py_ssize_t version) noexcept nogil
    cdef double bounded(self, Py_ssize_t version, Py_ssize_t j, double value) noexcept nogil
    cdef double lag(self, Py_ssize_t version, int64_t[::1] steps, Py_ssize_t i, Py_ssize_t j) noexcept nogil

cpdef double log_outlier(double error) noexcept nogil
cdef void sort_order(double[::1] values, Py_ssize_t first, Py_ssize_t n, int64_t[::1] order) noexcept nogil
cdef double median_of(double[::1] values, double[::1] weight, Py_ssize_t first, Py_ssize_t n, int64_t[::1] order) noexcept nogil
cdef void flag_unmoved(double[::1] share, double[:, ::1] location, int64_t[::1] owner, Py_ssize_t n, LagBuffer buffer, double[::1] along, int64_t[::1] order, int64_t[::1] keep) noexcept nogil
