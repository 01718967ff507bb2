cimport cython
from libc.stdint cimport int64_t
from regimekit.ensemble.segmentation cimport MedianWindow, Segmentation

@cython.final
cdef class Cleaner:
    cdef public Py_ssize_t dim, size
    cdef public double[:, ::1] latest
    cdef public int64_t[::1] times, on_grid
    cdef public int64_t date
    cdef public MedianWindow sizes, changes
    cdef public double[::1] repeated
    cdef double[::1] sorting, cleaned
    cdef bint push(self, double[::1] y, int64_t time) noexcept nogil
    cdef void move(self, Py_ssize_t j, double size) noexcept nogil
    cdef double grid(self, Py_ssize_t j) noexcept nogil
    cdef double clean(self, Py_ssize_t j) noexcept nogil

@cython.final
cdef class View:
    cdef public Py_ssize_t dim, n_regimes
    cdef public int64_t regime, since, n_changes
    cdef public bint changed
    cdef public Segmentation segmentation
    cdef double different
    cdef public double[:, :, ::1] statistics
    cdef double[:, ::1] fresh
    cpdef void update(self, double[::1] row, int64_t date) noexcept nogil
    cdef void switch_regime(self, Py_ssize_t tau) noexcept nogil
    cdef void absorb(self) noexcept nogil
    cdef int64_t identify(self) noexcept nogil
    cdef double difference(self, Py_ssize_t k) noexcept nogil
    cdef void grow(self) noexcept with gil
    cdef double change_probability(self) noexcept nogil

@cython.final
cdef class LevelView:
    cdef public Py_ssize_t dim, n_signs
    cdef public Cleaner cleaner
    cdef public View view
    cdef double[::1] row
    cdef public double[:, ::1] before
    cdef double bend(self, Py_ssize_t j) noexcept nogil
    cdef void update(self, double[::1] y, int64_t time) noexcept nogil
