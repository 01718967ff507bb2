cimport cython
from libc.stdint cimport int64_t
from regimekit.ensemble.regime_views cimport View

@cython.final
cdef class ShapeView:
    cdef public Py_ssize_t dim, size, start, length
    cdef public int64_t count, origin, waiting, period
    cdef public bint found
    cdef public object segments
    cdef public View view
    cdef public double[:, ::1] units
    cdef double[:, ::1] storage
    cdef double[::1] row, window, cosine, sine, real, imaginary, power, cleaned
    cdef double[:, ::1] waves, harmonics
    cdef int64_t[::1] band, place
    cdef void prepare(self) noexcept with gil
    cdef void update(self, double[::1] y, int64_t time) noexcept nogil
    cdef bint is_due(self) noexcept nogil
    cdef bint push(self, double[::1] y) noexcept nogil
    cdef void search(self, int64_t time) noexcept with gil
    cdef void describe(self, Py_ssize_t last, int64_t end) noexcept nogil
    cdef void clean(self, Py_ssize_t first, Py_ssize_t j) noexcept nogil
    cdef double scaled(self, Py_ssize_t i, Py_ssize_t j) noexcept nogil
    cdef void transform(self) noexcept nogil
    cdef void couple(self, Py_ssize_t at) noexcept nogil
    cdef double asymmetry(self, Py_ssize_t lag) noexcept nogil
    cdef double change_probability(self) noexcept nogil
