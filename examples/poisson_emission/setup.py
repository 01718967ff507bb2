"""Compile the emission against the .pxd files of the installed regimekit."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup

import regimekit

# The kernels of regimekit are built with the same directives.
DIRECTIVES = {
    "language_level": 3,
    "infer_types": True,
    "boundscheck": False,
    "wraparound": False,
    "cdivision": True,
    "initializedcheck": False,
}
UNIX = ["-O2", "-ffp-contract=off"]

extension = Extension(
    "poisson_emission.emission",
    ["poisson_emission/emission.py"],
    include_dirs=[numpy.get_include()],
    extra_compile_args=["/O2", "/fp:precise"] if sys.platform == "win32" else UNIX,
)
setup(
    ext_modules=cythonize(
        [extension],
        compiler_directives=DIRECTIVES,
        include_path=[str(Path(regimekit.__file__).parents[1])],
    )
)
