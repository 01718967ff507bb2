cimport cython
from libc.stdint cimport int64_t

@cython.final
cdef class Hindcast:
    cdef public Py_ssize_t n, horizon, n_origins, n_members, capacity
    cdef public double[::1] x
    cdef public double[::1] start
    cdef public int64_t[::1] slot
    cdef public double[:, :, ::1] point
    cdef public object names
    cdef double[::1] u, path, season, season2, coefficient, gain, row, reflection, work
    cdef double[:, ::1] covariance, base
    cdef double[::1] base_start
    cdef void smooth(self, Py_ssize_t m, double a, double b, double damping) noexcept nogil
    cdef void hold_start(self, Py_ssize_t m) noexcept nogil
    cdef void theta(self, Py_ssize_t m, double a) noexcept nogil
    cdef void season_ago(self, Py_ssize_t m, Py_ssize_t period, bint adjusted) noexcept nogil
    cdef void winters(self, Py_ssize_t m, Py_ssize_t period, Py_ssize_t inner, double a, double b, double damping, double g, bint keep) noexcept nogil
    cdef void difference(self, Py_ssize_t period) noexcept nogil
    cdef void clear_base(self) noexcept nogil
    cdef void regress(self, Py_ssize_t m, Py_ssize_t first, Py_ssize_t n_lags, Py_ssize_t long_lag, double prior_mean) noexcept nogil
    cdef void begin_squares(self, Py_ssize_t width, double variance, double own) noexcept nogil
    cdef double update_squares(self, Py_ssize_t width, double y, double variance, double count) noexcept nogil
    cdef void roll(self, Py_ssize_t m, Py_ssize_t t, Py_ssize_t o, Py_ssize_t n_lags, Py_ssize_t long_lag, double largest, bint from_start) noexcept nogil
    cdef void stabilize(self, Py_ssize_t n_lags) noexcept nogil
    cdef void fourier(self, Py_ssize_t m, double period, Py_ssize_t harmonics, double damping) noexcept nogil
    cdef void set_waves(self, double t, double period, Py_ssize_t harmonics) noexcept nogil
    cdef void bound(self, Py_ssize_t m, double[:, ::1] low, double[:, ::1] high) noexcept nogil
