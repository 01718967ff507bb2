cimport cython
from libc.stdint cimport int64_t
from regimekit.distributions.mixture cimport Mixture
from regimekit.distributions.student_t cimport t_cdf
from regimekit.preprocessing.lag_buffer cimport sort_order

@cython.final
cdef class Calibration:
    cdef public double size, usual_size, peak
    cdef public int64_t n_inside, n_checked
    cdef public Py_ssize_t dim
    cdef Py_ssize_t n_parts
    cdef double part_share[5]
    cdef double part_factor[5]
    cdef double part_narrow[5]
    cdef double[:, ::1] part_offset
    cdef double[::1] centre, column, weight
    cdef int64_t[::1] order
    cdef double[:, ::1] root
    cdef void set_parts(self) noexcept nogil
    cdef double middle(self, Mixture law, Py_ssize_t j) noexcept nogil
    cdef void add_room(self, Mixture law, Mixture out) noexcept with gil
    cdef void apply(self, Mixture law, Mixture out, bint far) noexcept nogil
    cdef void factorize(self, Mixture law, Py_ssize_t k) noexcept nogil
    cdef void update(self, Mixture corrected, double[::1] y) noexcept nogil

cdef double below(Mixture law, Py_ssize_t j, double y) noexcept nogil
