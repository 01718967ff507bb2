from regimekit.distributions.student_t cimport (
    DOF, LOCATION, SCALE, SHARE, fill_log_peaks, log_mixture, log_peak, log_standard,
    mixture_cdf_pdf, mixture_quantile, mixture_tail, student_tail,
)


cdef class Mixture:
    cdef public Py_ssize_t size
    cdef public Py_ssize_t dim
    cdef public double[::1] share
    cdef public double[:, ::1] location
    cdef public double[:, :, ::1] spread
    cdef public double[::1] dof
    cdef void reserve(self, Py_ssize_t capacity) noexcept with gil
    cdef void put(
        self, Py_ssize_t at, double share, double[:, ::1] location, double[:, :, ::1] spread,
        double dof, Py_ssize_t k,
    ) noexcept nogil


cpdef normalize_shares(const Py_ssize_t[:] offset, double[:] share)
cpdef fill_moments(
    const Py_ssize_t[:] offset, const double[:] share, const double[:, :] location,
    const double[:, :, :] spread, const double[:] dof, const double[:] outlier,
    double[:, :] mean, double[:, :] sd)
cpdef fill_quantiles(
    const double[:] level, const Py_ssize_t[:] offset, const double[:] share,
    const double[:, :] location, const double[:, :, :] spread, const double[:] dof,
    double[:, :, :] out)
cpdef fill_log_densities(
    const double[:, :] y, const Py_ssize_t[:] offset, const double[:] share,
    const double[:, :] location, const double[:, :, :] spread, const double[:] dof,
    double[:] out)
cpdef fill_cdf(
    const double[:, :] y, const Py_ssize_t[:] offset, const double[:] share,
    const double[:, :] location, const double[:, :, :] spread, const double[:] dof,
    double[:, :] out)
cpdef fill_tails(
    const double[:, :] y, const Py_ssize_t[:] offset, const double[:] share,
    const double[:, :] location, const double[:, :, :] spread, const double[:] dof,
    const double[:] outlier, double[:] out)
cpdef Py_ssize_t max_components(const Py_ssize_t[:] offset) noexcept nogil
cdef void load_marginal(
    const double[:] share, const double[:, :] location, const double[:, :, :] spread,
    const double[:] dof, Py_ssize_t j, Py_ssize_t start, Py_ssize_t n,
    double[:, ::1] out) noexcept nogil
cdef double joint_tail(
    const double[:, :] y, Py_ssize_t row, const double[:] share, const double[:, :] location,
    const double[:, :, :] spread, const double[:] dof, Py_ssize_t start, Py_ssize_t n,
    double[:, ::1] root, double[:, :, ::1] scratch) noexcept nogil
cdef Py_ssize_t whiten(
    const double[:, :] y, Py_ssize_t row, const double[:, :] location,
    const double[:, :, :] spread, Py_ssize_t k, double[:, ::1] root, double[:] white) noexcept nogil
cdef void conditional_tails(
    const double[:] y, double share, double dof, double[:, ::1] root, double[:, :] out
) noexcept nogil
cdef double joint_log_density(
    const double[:, :] y, Py_ssize_t row, const double[:] share, const double[:, :] location,
    const double[:, :, :] spread, const double[:] dof, Py_ssize_t start, Py_ssize_t n,
    double[:, ::1] root, double[::1] white) noexcept nogil
cdef double log_student(double z2, double log_scale, double dof, Py_ssize_t d) noexcept nogil
