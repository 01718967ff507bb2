from libc.stdint cimport int64_t

from regimekit.core.logspace cimport logsumexp
from regimekit.ihmm.emissions.base cimport Emission
from regimekit.ihmm.emissions.particle_cloud cimport KernelSmoother
from regimekit.ihmm.weights cimport (
    CONTAMINATION, IMQ, MAHALANOBIS, MAX_LENGTH, NONE, log_weight2, update_weight2,
)


cdef class Garch(Emission):
    cdef public Py_ssize_t size
    cdef public double centre, score_scale, drive_scale
    cdef public double[::1] spread
    cdef public double[:, ::1] prior
    cdef public KernelSmoother smoother
    cdef public double[:, :, ::1] parameters, work_parameters
    cdef public double[:, ::1] variance, work_variance
    cdef public double[:, ::1] log_weight, work_log_weight
    cdef public int64_t[::1] redraws, work_redraws
    cdef double[::1] plain, robust, w2, drive, share
    cdef (double, double) match_moments(
        self, Py_ssize_t place, double[:, ::1] log_weight, Py_ssize_t at
    ) noexcept nogil
    cdef void assess(self, Py_ssize_t place, double y) noexcept nogil
    cdef void advance(self, Py_ssize_t place) noexcept nogil
    cdef void read_points(self, Py_ssize_t row) noexcept nogil
    cdef void write_points(self, double[:, ::1] points, Py_ssize_t row) noexcept nogil
    cdef (double, double) long_run(self, Py_ssize_t row) noexcept nogil


cdef double limited(double x, double limit) noexcept nogil
