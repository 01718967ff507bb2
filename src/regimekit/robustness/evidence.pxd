from regimekit.core.random cimport RandomSource
from regimekit.ihmm.hdp cimport Concentration, log_transition_row
from regimekit.ihmm.state cimport Particles
from regimekit.ihmm.weights cimport (
    CONTAMINATION, MAX_LENGTH, Scoring, log_normal, log_outlier_density,
)


cdef class Belief:
    cdef public double[::1] mean, precision, wobble


cdef class Judge:
    cdef public Scoring scoring
    cdef public double[::1] nodes, node_weights
    cdef (double, double) score(
        self, double residual, double spread, double log_scale, bint fresh
    ) noexcept nogil
    cdef void observe(
        self, Belief belief, Belief scored, double[:, ::1] level, double[:, :, ::1] density,
        Py_ssize_t b, bint fresh, double[:, ::1] out_expected, double[:, :, ::1] out_at_nodes,
    ) noexcept nogil


cdef void sweep_all(
    Particles p, Concentration prior, Py_ssize_t passes, RandomSource random
) noexcept nogil
cdef void write_densities(double[::1] lengths, double log_scale, double[::1] out) noexcept nogil
