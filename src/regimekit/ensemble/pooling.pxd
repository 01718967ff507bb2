from libc.stdint cimport int64_t
from regimekit.preprocessing.lag_buffer cimport sort_order

cdef double _LOGISTIC

cpdef void pool(double[:, ::1] error, double[::1] importance, double[::1] prior, double strength, Py_ssize_t rounds, double[::1] weight, double[::1] residual) noexcept nogil
cpdef void distribute(double[:, ::1] error, double[::1] importance, double[::1] log_ratio, double[::1] penalty, double[::1] inflation, double[::1] dof, double[:, ::1] work, int64_t[::1] order, double[:, ::1] share, double[:, ::1] mean, double[:, ::1] variance) noexcept nogil
cdef double _exponent(double[::1] value, double[::1] weight, double[::1] ratio, Py_ssize_t n, double total, double penalty) noexcept nogil
