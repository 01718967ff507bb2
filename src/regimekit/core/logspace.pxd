cpdef double logsumexp(double[::1] values, Py_ssize_t first, Py_ssize_t n) noexcept nogil
cpdef double logaddexp(double a, double b) noexcept nogil
cpdef double normalize(double[::1] log_values, Py_ssize_t n, double[::1] out_shares) noexcept nogil
cpdef Py_ssize_t draw_index(double[::1] shares, Py_ssize_t n, double uniform) noexcept nogil
