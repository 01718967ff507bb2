cdef Py_ssize_t SHARE, LOCATION, SCALE, DOF, PEAK

cpdef double log_peak(double dof) noexcept nogil
cpdef double log_growth(double z, double dof) noexcept nogil
cpdef double log_standard(double z, double dof) noexcept nogil
cpdef (double, double) student_tail(double z, double dof, double peak) noexcept nogil
cdef double stirling_series(double n) noexcept nogil
cdef double tail_sum(double first, double growth, double w, double dof) noexcept nogil
cdef double gaussian_integral(double v2, double dof) noexcept nogil
cpdef double standardized(double x, double location, double scale) noexcept nogil
cpdef double log_mixture(
    double y, const double[:] share, const double[:] location, const double[:] spread,
    const double[:] dof, Py_ssize_t n, Py_ssize_t start=*) noexcept nogil
cpdef double mixture_tail(
    double y, const double[:] share, const double[:] location, const double[:] spread,
    const double[:] dof, Py_ssize_t n, Py_ssize_t start=*) noexcept nogil
cpdef (double, double) mixture_cdf_pdf(double x, double[:, ::1] part, Py_ssize_t n) noexcept nogil
cpdef void fill_log_peaks(double[:, ::1] part, Py_ssize_t n) noexcept nogil
cpdef double mixture_quantile(double q, double[:, ::1] part, Py_ssize_t n) noexcept nogil
cdef (double, double, double) upper_tail(
    double x, double sign, double[:, ::1] part, Py_ssize_t n, double far) noexcept nogil
cdef (double, double) approximate_tail(
    double x, double sign, double[:, ::1] part, Py_ssize_t n) noexcept nogil
cdef double approximate_quantile(
    double p, double sign, double[:, ::1] part, Py_ssize_t n, double low, double start,
    double high) noexcept nogil
cdef double upper_quantile(
    double p, double sign, double[:, ::1] part, Py_ssize_t n) noexcept nogil
cdef (double, double, double) bracket(
    double p, double sign, double[:, ::1] part, Py_ssize_t n) noexcept nogil
cdef double midpoint(double low, double high) noexcept nogil
cdef double approximate_normal_quantile(double p) noexcept nogil
cdef double normal_cdf(double u) noexcept nogil
cdef double normal_density(double u) noexcept nogil
cpdef double t_cdf(double x, double dof) noexcept nogil
