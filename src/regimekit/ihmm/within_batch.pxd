from regimekit.core.logspace cimport logaddexp, logsumexp
from regimekit.ihmm.filter_state cimport FilterState
from regimekit.ihmm.hdp cimport log_transition_row
from regimekit.ihmm.state cimport START, UNBORN
from regimekit.ihmm.weights cimport (
    CONTAMINATION, MAX_LENGTH, MAX_OUTLIER_RATE, OUTLIER_DOF, factorize, log_outlier_density,
)


cdef class WithinBatch(FilterState):
    cdef void learn_candidate(self, Py_ssize_t place) noexcept nogil
    cdef void prior_masses(self, Py_ssize_t g, bint births) noexcept nogil
    cdef double posterior_masses(self, Py_ssize_t g) noexcept nogil
    cdef double outlier_rate(self) noexcept nogil
    cdef void write_centre(self) noexcept nogil
    cdef void set_outlier_density(self) noexcept nogil
    cdef void learn_outlier_rate(self, double weight) noexcept nogil
    cdef double write_fading(self) noexcept nogil
    cdef double fading(self, Py_ssize_t place, Py_ssize_t heaviest) noexcept nogil
    cdef void write_forecast(self) noexcept nogil
    cdef void write_component(
        self, Py_ssize_t at, double share, Py_ssize_t place, Py_ssize_t g
    ) noexcept nogil
