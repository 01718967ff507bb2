cimport cython
from libc.stdint cimport int64_t
from regimekit.distributions.mixture cimport Mixture
from regimekit.distributions.student_t cimport t_cdf

@cython.final
cdef class KnownValues:
    cdef public int64_t count
    cdef public double new_share
    cdef Py_ssize_t size
    cdef double[::1] value, last, mass
    cpdef void update(self, double y) noexcept nogil
    cpdef bint repeats(self) noexcept nogil
    cpdef void round(self, Mixture law) noexcept nogil
    cdef void add_room(self, Mixture law) noexcept with gil
    cdef bint weigh(self, Mixture law) noexcept nogil
    cdef double edge(self, Py_ssize_t i) noexcept nogil
    cdef double probability(self, Mixture law, Py_ssize_t i) noexcept nogil
