cimport cython
from libc.stdint cimport int64_t
from regimekit.distributions.mixture cimport Mixture
from regimekit.ihmm.regime_filter cimport RegimeFilter
from regimekit.preprocessing.lag_buffer cimport ADDITIVE, LagBuffer

cdef double SMOOTHING_DOF
cdef Py_ssize_t N_SMOOTHERS
cdef Py_ssize_t N_SEASONAL
cdef Py_ssize_t N_SPLIT
cdef double SPLIT_SCALE

cdef class Components(Mixture):
    cdef public int64_t[::1] owner
    cdef public double[:, ::1] scale
    cdef void add_room(self, Py_ssize_t capacity) noexcept with gil
    cdef void copy_component(self, Py_ssize_t source, Py_ssize_t target) noexcept nogil

@cython.final
cdef class SeasonalProfile:
    cdef public Py_ssize_t period
    cdef public Py_ssize_t dim
    cdef public double[:, :, ::1] season
    cdef public double[:, ::1] slope
    cdef public double[:, :, ::1] level
    cdef Py_ssize_t n_weights
    cdef double[:, ::1] weight
    cdef int64_t stamp[2]
    cdef bint known[2]
    cdef bint update(self, LagBuffer buffer, Py_ssize_t version) noexcept nogil
    cdef void fit(self, LagBuffer buffer, Py_ssize_t version, Py_ssize_t cycles, Py_ssize_t j) noexcept nogil
    cdef void set_weights(self, Py_ssize_t n) noexcept nogil
    cdef double point(self, LagBuffer buffer, Py_ssize_t version, Py_ssize_t member, Py_ssize_t j) noexcept nogil

@cython.final
cdef class SimpleMembers:
    cdef public Py_ssize_t dim
    cdef public Py_ssize_t n_squares
    cdef public Py_ssize_t max_width
    cdef public Py_ssize_t n_smoothers
    cdef public Py_ssize_t n_seasonal
    cdef public Py_ssize_t period
    cdef public object specs
    cdef public SeasonalProfile profile
    cdef int64_t[:, ::1] steps
    cdef int64_t[::1] n_steps, first_column, n_columns, difference
    cdef public int64_t[::1] logs, split
    cdef public double offset, lowest
    cdef public bint wide
    cdef public double[:, :, ::1] level, slope, variance
    cdef public double[:, ::1] seen
    cdef public double[:, :, :, ::1] coefficient
    cdef public double[:, :, :, :, ::1] covariance
    cdef public double[:, :, ::1] square_variance, square_seen
    cdef public double[:, :, ::1] season_variance
    cdef public double[:, ::1] season_seen
    cdef public double[::1] x, gain
    cpdef Py_ssize_t size(self) noexcept nogil
    cpdef Py_ssize_t room(self) noexcept nogil
    cpdef void set_logs(self, double offset, double lowest, bint wide) noexcept nogil
    cpdef bint used(self, Py_ssize_t i) noexcept nogil
    cpdef bint forecasts(self, Py_ssize_t i) noexcept nogil
    cpdef double view(self, Py_ssize_t i, double z) noexcept nogil
    cdef void write_logs(self, Components parts, Py_ssize_t first, Py_ssize_t i) noexcept nogil
    cdef void write_ratio(self, Components parts, Py_ssize_t k, double location, double size) noexcept nogil
    cpdef Py_ssize_t set_row(self, Py_ssize_t i, Py_ssize_t j, LagBuffer buffer, Py_ssize_t version, double[::1] covariates) noexcept nogil
    cdef double base(self, Py_ssize_t i, Py_ssize_t j, LagBuffer buffer, Py_ssize_t version) noexcept nogil
    cpdef void predict(self, Py_ssize_t state, LagBuffer buffer, Py_ssize_t version, double[::1] covariates, Components parts, Py_ssize_t first_owner) noexcept nogil
    cdef void set_component(self, Components parts, Py_ssize_t k, Py_ssize_t j, double location, double variance) noexcept nogil
    cpdef void update(self, Py_ssize_t state, double[::1] z, LagBuffer buffer, Py_ssize_t version, double[::1] covariates, double trust) noexcept nogil
    cpdef void skip(self, Py_ssize_t state) noexcept nogil
    cdef void smooth(self, Py_ssize_t state, Py_ssize_t j, double y, double trust) noexcept nogil
    cdef void regress(self, Py_ssize_t state, Py_ssize_t i, Py_ssize_t j, Py_ssize_t width, double y, double trust) noexcept nogil
    cpdef void copy_state(self, Py_ssize_t source, Py_ssize_t target) noexcept nogil

@cython.final
cdef class RegimeMember:
    cdef public object spec
    cdef public RegimeFilter filter
    cdef public RegimeMember next
    cdef public SeasonalProfile profile
    cdef public bint active
    cdef public bint infers
    cdef public bint changed
    cdef public Py_ssize_t index
    cdef Py_ssize_t dim, n_columns, first_column
    cdef int64_t[::1] steps
    cdef public double[:, ::1] design
    cdef double[::1] target
    cpdef bint set_design(self, LagBuffer buffer, Py_ssize_t version, double[::1] covariates) noexcept nogil
    cdef void predict(self, LagBuffer buffer, Py_ssize_t version, double[::1] covariates, Components parts) noexcept nogil
    cdef void update(self, double[::1] z, LagBuffer buffer, Py_ssize_t version, double[::1] covariates) noexcept nogil

cdef void insert(double* sorted_values, Py_ssize_t n, double value) noexcept nogil
cdef double middle_of(double* sorted_values, Py_ssize_t n) noexcept nogil
cpdef (double, double) update_scale(double variance, double error, double count) noexcept nogil
cpdef (double, double) smoothing_gains(Py_ssize_t member, double n) noexcept nogil
