"""Random draws for kernels, taken from the C interface of a NumPy generator.

The draws are those of the `numpy.random.Generator` that the source was made from, one for one, so
compiled kernels, uncompiled kernels and a plain-Python reference can be compared draw for draw.
"""

from __future__ import annotations

import os
import warnings

import cython

from regimekit.core.warnings import RegimekitWarning

if cython.compiled:
    from cython.cimports.cpython.pycapsule import PyCapsule_GetPointer
    from cython.cimports.numpy.random import bitgen_t
    from cython.cimports.numpy.random.c_distributions import (
        random_beta,
        random_standard_exponential,
        random_standard_gamma,
        random_standard_normal,
        random_standard_uniform,
    )


class RandomSource:
    """A NumPy generator that kernels can draw from without the GIL.

    Args:
        generator: a `numpy.random.Generator`. The source shares its state.
    """

    def __init__(self, generator):
        self.generator = generator
        if cython.compiled:
            capsule = generator.bit_generator.capsule
            self.state = cython.cast(
                cython.pointer(bitgen_t), PyCapsule_GetPointer(capsule, b"BitGenerator")
            )

    def uniform(self):
        """Return a draw from U(0, 1)."""
        if cython.compiled:
            return random_standard_uniform(self.state)
        return self.generator.random()

    def normal(self):
        """Return a draw from N(0, 1)."""
        if cython.compiled:
            return random_standard_normal(self.state)
        return self.generator.standard_normal()

    def exponential(self):
        """Return a draw from the exponential distribution with mean 1."""
        if cython.compiled:
            return random_standard_exponential(self.state)
        return self.generator.standard_exponential()

    def gamma(self, shape, scale):
        """Return a draw from the Gamma distribution with this `shape` and `scale`."""
        if cython.compiled:
            return scale * random_standard_gamma(self.state, shape)
        return self.generator.gamma(shape, scale)

    def beta(self, a, b):
        """Return a draw from Beta(a, b)."""
        if cython.compiled:
            return random_beta(self.state, a, b)
        return self.generator.beta(a, b)


if not cython.compiled and not os.environ.get("REGIMEKIT_UNCOMPILED"):
    warnings.warn(
        "regimekit runs uncompiled and slowly, because it was installed without a C compiler. "
        "Install a wheel, or a C compiler and reinstall.",
        RegimekitWarning,
        stacklevel=2,
    )
