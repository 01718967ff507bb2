cimport cython
from libc.stdint cimport int64_t
from regimekit.distributions.mixture cimport Mixture, joint_log_density, joint_tail
from regimekit.distributions.student_t cimport log_mixture, mixture_tail
from regimekit.ensemble.calibration cimport Calibration
from regimekit.ensemble.ensemble cimport Ensemble
from regimekit.ensemble.history cimport History
from regimekit.ensemble.known_values cimport KnownValues
from regimekit.ensemble.members cimport RegimeMember
from regimekit.ensemble.regime_selection cimport RegimeSelection
from regimekit.ensemble.regime_views cimport LevelView, View
from regimekit.ensemble.shape_view cimport ShapeView
from regimekit.preprocessing.scaling cimport CovariateScaler, Standardizer

@cython.final
cdef class Columns:
    cdef public Py_ssize_t size, n_components
    cdef public int64_t[::1] offset, regime, n_regimes
    cdef public double[::1] weight, regime_probability, change_probability, ess
    cdef public int64_t[::1] outlier
    cdef public Mixture parts
    cdef void add_forecast(self, Mixture law) noexcept nogil
    cdef void add_room(self, Py_ssize_t n) noexcept with gil

@cython.final
cdef class Engine:
    cdef public Py_ssize_t dim, n_x
    cdef public int64_t time
    cdef public int64_t seed
    cdef public object lineup, advice
    cdef public Standardizer scaling
    cdef public CovariateScaler covariate_scaler
    cdef public History history
    cdef public KnownValues known_values
    cdef public Ensemble ensemble
    cdef public Calibration calibration
    cdef public RegimeSelection selection
    cdef public LevelView level
    cdef public ShapeView shape
    cdef public Py_ssize_t shape_model
    cdef public bint viewed
    cdef public double regime_probability, change_probability
    cdef public object seasons, proposed, outliers
    cdef public int64_t n_outliers
    cdef public double outlier_share
    cdef public double[::1] lowest, highest
    cdef public Mixture law, corrected, forecast
    cdef double[:, ::1] row_storage
    cdef public Py_ssize_t row_start, n_rows
    cdef double[::1] z, x, predicted_x
    cdef public bint predicted
    cdef bint advised_outliers, advised_coverage
    cdef double[:, ::1] model_results
    cdef double[::1] model_scores, model_probability, model_change, model_ess
    cdef int64_t[::1] season_checks
    cdef double[::1] scored_share, white
    cdef double[:, :, ::1] tail_scratch
    cdef double[:, ::1] point, root
    cdef void set_logs(self, Ensemble ensemble) noexcept nogil
    cdef double log_score(self, double[::1] y) noexcept nogil
    cdef double scored_tail(self, double[::1] y) noexcept nogil
    cdef void add_scored(self) noexcept with gil
    cdef void predict(self, double[::1] raw) noexcept nogil
    cdef bint same_row(self, double[::1] raw) noexcept nogil
    cdef void thin(self) noexcept nogil
    cdef void add_room(self) noexcept with gil
    cdef void publish(self) noexcept nogil
    cdef double within_range(self, Py_ssize_t k) noexcept nogil
    cdef void update(self, double[::1] y, double[::1] raw) noexcept nogil
    cdef bint update_scaling(self, double[::1] y, double[::1] raw) noexcept nogil
    cdef void rebuild(self) noexcept with gil
    cdef void note_models(self, RegimeMember member, Py_ssize_t model) noexcept nogil
    cdef void infer_regime(self, double[::1] y) noexcept nogil
    cdef void note_view(self, Py_ssize_t model, View view) noexcept nogil
    cdef bint shape_speaks(self) noexcept nogil
    cdef void revise(self) noexcept with gil
    cdef void record_outlier(self) noexcept with gil
    cdef void check_advice(self, bint outlier) noexcept nogil
    cdef void advise(self) noexcept with gil
    cdef void find_seasons(self) noexcept with gil
    cdef void loop(self, double[:, ::1] y, double[:, ::1] raw, Columns out) noexcept nogil
