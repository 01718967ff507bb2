cpdef double log_peak(double dof) noexcept nogil
cpdef double log_growth(double z, double dof) noexcept nogil
cpdef double log_standard(double z, double dof) noexcept nogil
cpdef double log_add(double a, double b) noexcept nogil
