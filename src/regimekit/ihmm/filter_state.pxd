from libc.stdint cimport int64_t

from regimekit.core.random cimport RandomSource
from regimekit.distributions.mixture cimport Mixture
from regimekit.ihmm.batch_schedule cimport BatchSchedule
from regimekit.ihmm.emissions.base cimport Emission
from regimekit.ihmm.hdp cimport Concentration
from regimekit.ihmm.label_matching cimport LabelMatcher
from regimekit.ihmm.resampling cimport Resampler
from regimekit.ihmm.state cimport UNBORN, Candidates, Clock, Particles, RegimePool
from regimekit.ihmm.weights cimport Scoring


cdef class FilterSettings:
    cdef public Scoring scoring
    cdef public BatchSchedule schedule
    cdef public Concentration concentration
    cdef public double ess_threshold
    cdef public Py_ssize_t max_regimes, prune_pool, sweeps, stride, width
    cdef public int resampling
    cdef public double[::1] outlier_prior
    cdef public bint keep_diagonal, keep_start, mixture, one_noise, shared_prior, agree
    cdef public bint date_changes, keep_weights, follow, fade, renew


cdef class FilterState:
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
    cdef public double[::1] base, reach
    cdef double[::1] levels, level
    cdef int64_t[::1] order
    cdef public bint predicted
    cdef public object change
    cdef public double weight, change_probability, regime_probability, ess
    cdef public int64_t regime, n_regimes, settled
    cdef void write_lookup(self, Py_ssize_t g) noexcept nogil
    cdef void write_pool(
        self, Py_ssize_t g, Py_ssize_t row, Py_ssize_t into, Py_ssize_t new_label
    ) noexcept nogil
    cdef bint all_opened(self, Py_ssize_t g) noexcept nogil
    cdef void remember(self, double[::1] y) noexcept nogil
    cdef bint same_design(self, double[:, ::1] design) noexcept nogil
    cdef void ensure_room(self) noexcept nogil
    cdef void grow(self) noexcept with gil
