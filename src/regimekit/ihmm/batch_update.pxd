from regimekit.core.logspace cimport draw_index, logsumexp, normalize
from regimekit.ihmm.hdp cimport count_transition, least_used, log_stick_rest, remove_regime
from regimekit.ihmm.resampling cimport effective_sample_size
from regimekit.ihmm.state cimport PRIOR_ROW, UNBORN
from regimekit.ihmm.within_batch cimport WithinBatch
from regimekit.preprocessing.lag_buffer cimport sort_order


cdef class BatchUpdate(WithinBatch):
    cdef void weigh(self, Py_ssize_t g) noexcept nogil
    cdef double settle_weights(self, Py_ssize_t g) noexcept nogil
    cdef void resample(self, Py_ssize_t g) noexcept nogil
    cdef void assign(self, Py_ssize_t g) noexcept nogil
    cdef void finalize(self, Py_ssize_t g) noexcept nogil
    cdef void prune(self, Py_ssize_t g) noexcept nogil
    cdef void structure(self, Py_ssize_t g) noexcept nogil
    cdef void follow_stream(self, Py_ssize_t g) noexcept nogil
    cdef bint stream_level(self) noexcept nogil
    cdef bint are_levels(self) noexcept nogil
    cdef void begin_batch(self, Py_ssize_t g) noexcept nogil
    cdef void count_outliers(self, Py_ssize_t g) noexcept nogil
    cdef void draw_prior_rows(self, Py_ssize_t g) noexcept nogil
