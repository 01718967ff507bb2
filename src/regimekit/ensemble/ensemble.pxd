cimport cython
from libc.stdint cimport int64_t
from regimekit.core.logspace cimport logaddexp
from regimekit.distributions.mixture cimport joint_log_density
from regimekit.ensemble.aggregation cimport Aggregation, SleepingExperts, set_log_densities
from regimekit.ensemble.members cimport SPLIT_SCALE, Components, RegimeMember, SimpleMembers
from regimekit.preprocessing.lag_buffer cimport (
    ADDITIVE, INNOVATIONAL, SUSPECT, LagBuffer, flag_unmoved, log_outlier, median_of,
)

@cython.final
cdef class Ensemble:
    cdef public Py_ssize_t dim
    cdef public int64_t time
    cdef public Py_ssize_t n_regime_members
    cdef public object members
    cdef public RegimeMember first
    cdef public SimpleMembers simple
    cdef public LagBuffer buffer
    cdef public Aggregation aggregation
    cdef public SleepingExperts sleeping
    cdef public double outlier_count
    cdef public double regular_count
    # The forecast of the next observation.
    cdef public Components parts
    cdef public Py_ssize_t cut
    cdef public double[::1] weight
    cdef public double[::1] centre
    cdef public double[::1] noise
    # The latest update.
    cdef public double regular_probability
    cdef public double[::1] log_scores
    cdef double[:, ::1] each
    cdef double[::1] term, top, along, column, bounded_z, clean, raw, total, white
    cdef double[:, ::1] root, point
    cdef int64_t[::1] order, keep
    cpdef void set_logs(self, double offset, double lowest, bint wide) noexcept nogil
    cdef void predict(self, double[::1] covariates) noexcept nogil
    cdef void collect(self, Py_ssize_t version, double[::1] covariates) noexcept nogil
    cdef void predict_members(self, RegimeMember member, Py_ssize_t version, double[::1] covariates) noexcept nogil
    cdef void add_room(self) noexcept with gil
    cdef void drop_followers(self) noexcept nogil
    cdef void set_weights(self) noexcept nogil
    cpdef void limit_weights(self) noexcept nogil
    cdef void update(self, double[::1] z, double[::1] covariates) noexcept nogil
    cdef void skip(self, double[::1] z, double[::1] covariates) noexcept nogil
    cdef void set_densities(self, Py_ssize_t version, double[::1] z) noexcept nogil
    cdef double mixed(self, Py_ssize_t version) noexcept nogil
    cdef Py_ssize_t decide(self, double rate, double log_q) noexcept nogil
    cdef void sleep(self) noexcept nogil
    cdef void set_active(self, RegimeMember member) noexcept nogil
    cdef void update_members(self, RegimeMember member, double[::1] z, Py_ssize_t version, double[::1] covariates) noexcept nogil
