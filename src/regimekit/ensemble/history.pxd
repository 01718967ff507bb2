cimport cython

@cython.final
cdef class History:
    cdef public Py_ssize_t dim, window, width, first, size
    cdef double[:, ::1] storage
    cdef void append(self, double[::1] y, double[::1] centre, double[::1] noise, double[::1] shift, double[::1] scale, double regular) noexcept nogil
    cdef void set_regular(self, double regular) noexcept nogil
    cpdef void keep(self, Py_ssize_t n) noexcept nogil
