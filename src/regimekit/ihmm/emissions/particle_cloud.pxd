from libc.stdint cimport int64_t


cdef class KernelSmoother:
    cdef public Py_ssize_t size, side
    cdef public double bandwidth
    cdef public double[:, ::1] points, redrawn
    cdef public double[::1] share, equal, mean, centre, xi
    cdef public double[:, ::1] root
    cdef public int64_t[::1] drawn
    cdef bint is_uneven(self, double[::1] log_weight) noexcept nogil
    cdef void redraw(self, double[::1] log_weight, int64_t redraws) noexcept nogil
    cdef bint temper(self, double[::1] log_weight) noexcept nogil
    cdef void write_moments(self, double[::1] share, double[::1] out_mean) noexcept nogil
    cdef void draw_systematically(self, double offset) noexcept nogil


cpdef double effective_points(double[::1] log_weight, double power) noexcept nogil
cpdef void quasi_normal(int64_t index, double[::1] out_xi) noexcept nogil
