cdef class BatchSchedule:
    cdef public Py_ssize_t fixed, largest, smallest
    cdef public double outlier_weight, tolerance, shape, rate
    cdef Py_ssize_t next_size(self, double[::1] counts) noexcept nogil


cpdef double probability_of_fewer(
    double a, double b, Py_ssize_t size, Py_ssize_t limit
) noexcept nogil
