from libc.stdint cimport int64_t
from regimekit.distributions.mixture cimport Mixture

cdef class RegimeFilter:
    cdef public object model
    cdef public object result
    cdef public Mixture forecast
    cdef public double weight, change_probability, regime_probability, ess
    cdef public int64_t regime
    cdef public int64_t n_regimes, settled
    cdef public int64_t since
    cdef void predict(self, double[:, ::1] design) noexcept nogil
    cdef void update(self, double[::1] y, double[:, ::1] design) noexcept nogil
    cdef void ask(self, double[:, ::1] design) noexcept with gil
    cdef void learn(self, double[::1] y, double[:, ::1] design) noexcept with gil
