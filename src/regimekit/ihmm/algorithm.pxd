from regimekit.ihmm.batch_update cimport BatchUpdate
from regimekit.ihmm.weights cimport CONTAMINATION, MAX_LENGTH


cdef class Algorithm(BatchUpdate):
    cdef void predict(self, double[:, ::1] design) noexcept nogil
    cdef void update(self, double[::1] y, double[:, ::1] design) noexcept nogil
    cdef double learn(self) noexcept nogil
    cdef void end_batch(self, Py_ssize_t g) noexcept nogil
    cdef void note_change(self) noexcept with gil
