"""Build the kernels: plain Python modules with a .pxd file beside each, compiled by Cython.

If there is no C compiler, the package is built without them and runs uncompiled, slowly; then
Cython is a run-time dependency, because the modules import its types.

Environment variables:
    REGIMEKIT_BUILD=python   build without compiled kernels.
    REGIMEKIT_BUILD=checked  compile with bounds checks, for the tests.
    REGIMEKIT_BUILD_DIR      folder of the C files, by default build/cython or build/checked.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCE = Path("src")
# No contraction: the same bits wherever it is compiled. Sums are not reordered.
FLAGS = ["-O2", "-g0", "-ffp-contract=off", "-ftree-vectorize", "-fvect-cost-model=dynamic"]
RUNTIME = ["numpy>=1.26", "narwhals>=1.20"]
MODE = os.environ.get("REGIMEKIT_BUILD", "compiled")


def kernel_modules() -> list[str]:
    """Return the dotted names of the modules that have a .pxd file beside them."""
    files = sorted(SOURCE.glob("regimekit/**/*.pxd"))
    return [
        ".".join(file.relative_to(SOURCE).with_suffix("").parts)
        for file in files
        if file.with_suffix(".py").exists()
    ]


def has_compiler() -> bool:
    """Return whether a C file can be compiled here."""
    from setuptools._distutils.ccompiler import new_compiler
    from setuptools._distutils.errors import CCompilerError, DistutilsError
    from setuptools._distutils.sysconfig import customize_compiler

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "probe.c"
        source.write_text("int main(void) { return 0; }\n")
        try:
            compiler = new_compiler()
            customize_compiler(compiler)
            compiler.compile([str(source)], output_dir=folder)
        except (CCompilerError, DistutilsError, OSError):
            return False
    return True


def extensions() -> list[Extension]:
    """Return the extension modules, translated to C."""
    import numpy
    from Cython.Build import cythonize

    random_library = Path(numpy.__file__).parent / "random" / "lib"
    math_library = Path(numpy.get_include()).parent / "lib"
    windows = sys.platform == "win32"
    checked = MODE == "checked"
    # Checked kernels run once, in the tests: compiling quickly matters more.
    flags = [*FLAGS, "-O1"] if checked else FLAGS
    made = [
        Extension(
            name,
            [str(SOURCE.joinpath(*name.split(".")).with_suffix(".py"))],
            include_dirs=[numpy.get_include()],
            library_dirs=[str(random_library), str(math_library)],
            libraries=["npyrandom", "npymath"] if name == "regimekit.core.random" else [],
            define_macros=[("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")],
            extra_compile_args=["/O2", "/fp:precise"] if windows else flags,
        )
        for name in kernel_modules()
    ]
    directives = {
        "language_level": 3,
        "infer_types": True,
        "boundscheck": checked,
        "wraparound": False,
        "cdivision": True,
        "initializedcheck": checked,
        "embedsignature": True,
        "binding": True,
    }
    return cythonize(
        made,
        nthreads=os.cpu_count() or 1,
        compiler_directives=directives,
        include_path=[str(SOURCE)],
        build_dir=os.environ.get(
            "REGIMEKIT_BUILD_DIR", "build/cython" if MODE == "compiled" else f"build/{MODE}"
        ),
    )


class ParallelBuild(build_ext):
    """Compile on all cores."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()


compiled = MODE != "python" and has_compiler()
if not compiled:
    print("regimekit: built without compiled kernels; it will run slowly.", file=sys.stderr)
setup(
    ext_modules=extensions() if compiled else [],
    install_requires=RUNTIME if compiled else [*RUNTIME, "cython>=3.1"],
    cmdclass={"build_ext": ParallelBuild},
)
