from libc.stdint cimport int64_t

from regimekit.core.logspace cimport draw_index, logaddexp, logsumexp, normalize
from regimekit.core.random cimport RandomSource
from regimekit.distributions.mixture cimport Mixture
from regimekit.distributions.student_t cimport log_mixture
from regimekit.ihmm.batch_schedule cimport BatchSchedule
from regimekit.ihmm.emissions.base cimport Emission, PythonEmission
from regimekit.ihmm.hdp cimport (
    Concentration, count_transition, least_used, log_stick_rest, log_transition_row, remove_regime,
    transition_matrix,
)
from regimekit.ihmm.label_matching cimport LabelMatcher
from regimekit.ihmm.resampling cimport Resampler, effective_sample_size
from regimekit.ihmm.state cimport (
    PRIOR_ROW, START, UNBORN, Candidates, Clock, Particles, RegimePool,
)
from regimekit.ihmm.weights cimport (
    CONTAMINATION, MAX_LENGTH, MAX_OUTLIER_RATE, OUTLIER_DOF, Scoring, factorize,
    log_outlier_density,
)


cdef class FilterSettings:
    cdef public Scoring scoring
    cdef public BatchSchedule schedule
    cdef public Concentration concentration
    cdef public double ess_threshold
    cdef public Py_ssize_t max_regimes, prune_pool, sweeps, stride, width
    cdef public int resampling
    cdef public double[::1] outlier_prior
    cdef public bint keep_diagonal, keep_start, mixture, one_noise, shared_prior, agree


cdef class Trace:
    cdef public double[::1] weight, change, ess, probability
    cdef public int64_t[::1] regime, n_known, settled, offset
    cdef public Mixture components
    cdef public list changes


cdef class RegimeFilter:
    cdef public Emission emission
    cdef public FilterSettings settings
    cdef public Scoring scoring
    cdef public RandomSource random
    cdef public object build_probe, cached_probe
    cdef public Py_ssize_t islands, longest
    cdef public double[:, ::1] noise, outlier_scale
    cdef public Particles particles
    cdef public RegimePool pool
    cdef public Candidates candidates
    cdef public Clock clock
    cdef public Resampler resampler
    cdef public LabelMatcher matcher
    cdef public Mixture forecast
    cdef int64_t[::1] drawn, written, visits, taken
    cdef double[::1] shares, centre, white
    cdef public double[:, ::1] recent_y
    cdef public double[:, :, ::1] recent_design
    cdef public int64_t n_recent, reported, changed, since
    cdef public set reported_ever
    cdef public bint predicted
    cdef public object change
    cdef public double weight, change_probability, regime_probability, ess
    cdef public int64_t regime, n_regimes, settled
    cdef void predict(self, double[:, ::1] design) noexcept nogil
    cdef void update(self, double[::1] y, double[:, ::1] design) noexcept nogil
    cdef double learn(self) noexcept nogil
    cdef void learn_candidate(self, Py_ssize_t place) noexcept nogil
    cdef void end_batch(self, Py_ssize_t g) noexcept nogil
    cdef void weigh(self, Py_ssize_t g) noexcept nogil
    cdef double settle_weights(self, Py_ssize_t g) noexcept nogil
    cdef void resample(self, Py_ssize_t g) noexcept nogil
    cdef void assign(self, Py_ssize_t g) noexcept nogil
    cdef void finalize(self, Py_ssize_t g) noexcept nogil
    cdef void prune(self, Py_ssize_t g) noexcept nogil
    cdef void structure(self, Py_ssize_t g) noexcept nogil
    cdef void begin_batch(self, Py_ssize_t g) noexcept nogil
    cdef void write_lookup(self, Py_ssize_t g) noexcept nogil
    cdef void prior_masses(self, Py_ssize_t g, bint births) noexcept nogil
    cdef double posterior_masses(self, Py_ssize_t g) noexcept nogil
    cdef double outlier_rate(self) noexcept nogil
    cdef void write_centre(self) noexcept nogil
    cdef void set_outlier_density(self) noexcept nogil
    cdef void learn_outlier_rate(self, double weight) noexcept nogil
    cdef void count_outliers(self, Py_ssize_t g) noexcept nogil
    cdef void write_forecast(self) noexcept nogil
    cdef void write_start_component(
        self, Py_ssize_t at, Py_ssize_t place, Py_ssize_t g
    ) noexcept nogil
    cdef bint all_opened(self, Py_ssize_t g) noexcept nogil
    cdef void write_pool(
        self, Py_ssize_t g, Py_ssize_t row, Py_ssize_t into, Py_ssize_t new_label
    ) noexcept nogil
    cdef void draw_prior_rows(self, Py_ssize_t g) noexcept nogil
    cdef void remember(self, double[::1] y) noexcept nogil
    cdef bint same_design(self, double[:, ::1] design) noexcept nogil
    cdef void ensure_room(self) noexcept nogil
    cdef void grow(self) noexcept with gil
    cdef Py_ssize_t loop(
        self, double[:, ::1] y, double[:, :, ::1] designs, double stop_below, Trace trace
    ) noexcept nogil
    cdef void append_forecast(self, Trace trace, Py_ssize_t t) noexcept nogil
    cdef void note_change(self, Trace trace) noexcept with gil
    cdef void record_change(self) noexcept with gil
