cdef class Mixture:
    cdef public Py_ssize_t size
    cdef public Py_ssize_t dim
    cdef public double[::1] share
    cdef public double[:, ::1] location
    cdef public double[:, :, ::1] spread
    cdef public double[::1] dof
    cdef void reserve(self, Py_ssize_t capacity) noexcept with gil
