from regimekit.distributions.mixture cimport load_marginal, max_components
from regimekit.distributions.student_t cimport DOF, LOCATION, SCALE, SHARE, log_growth, log_peak


cpdef fill_crps(
    const double[:, :] y, const Py_ssize_t[:] offset, const double[:] share,
    const double[:, :] location, const double[:, :, :] spread, const double[:] dof,
    double[:, :] out)
cpdef double mixture_crps(
    double y, const double[:] share, const double[:] location, const double[:] scale,
    const double[:] dof)
cdef double gaussian_crps(double y, double[:, ::1] part, Py_ssize_t n) noexcept nogil
cdef double mean_distance(double gap, double scale) noexcept nogil
cdef double difference(double a, double b, double unit) noexcept nogil
cdef double hazard(double z, double dof) noexcept nogil
cdef double log_shape(double z, double dof) noexcept nogil


cdef class TailIntegral:
    cdef Py_ssize_t size
    cdef double[::1] gap, scale, dof, log_height, smooth, reach, tail, rate, density
    cdef double[:, ::1] apart
    cdef double crps(self, double y, double[:, ::1] part, Py_ssize_t n) noexcept nogil
    cdef void load(self, double y, double[:, ::1] part, Py_ssize_t n, double unit) noexcept nogil
    cdef void mirror(self) noexcept nogil
    cdef double upper(self) noexcept nogil
    cdef (Py_ssize_t, double) outset(self) noexcept nogil
    cdef (double, double) beyond(self, Py_ssize_t near, double offset) noexcept nogil
    cdef (Py_ssize_t, double) panel(self, Py_ssize_t near, double offset) noexcept nogil
    cdef void fill_density(self, Py_ssize_t near, double middle, double half) noexcept nogil
    cdef (double, double) integrate(self, double half, double survival) noexcept nogil
