from numpy.random cimport bitgen_t


cdef class RandomSource:
    cdef public object generator
    cdef bitgen_t* state
    cdef double uniform(self) noexcept nogil
    cdef double normal(self) noexcept nogil
    cdef double exponential(self) noexcept nogil
    cdef double gamma(self, double shape, double scale) noexcept nogil
    cdef double beta(self, double a, double b) noexcept nogil
