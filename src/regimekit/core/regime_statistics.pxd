from libc.stdint cimport int64_t

cdef class RegimeStatistics:
    cdef public Py_ssize_t dim, room, n_regimes, current
    cdef public int64_t start, committed, n_rows, open_length
    cdef double[:, ::1] ring
    cdef int64_t[::1] ring_regime
    cdef double[::1] last
    cdef public int64_t[:, ::1] table
    cdef public int64_t[::1] id, count, n_visits, last_row, n_seen
    cdef public int64_t[::1] stride, size, n_lengths, length_stride, length_size
    cdef public double[:, :, ::1] sample
    cdef public int64_t[:, ::1] sample_row
    cdef public int64_t[:, ::1] length
    cpdef void extend(self, const double[:, :] y, const int64_t[:] regime)
    cpdef void push(self, const double[:] y, int64_t regime)
    cpdef void reassign(self, int64_t since, int64_t stop, int64_t regime)
    cdef void commit(self)
    cdef void close_visit(self)
    cdef Py_ssize_t find(self, int64_t regime)
    cdef Py_ssize_t add(self, int64_t regime)
    cdef void add_to_sample(self, Py_ssize_t k, Py_ssize_t at, int64_t row)
