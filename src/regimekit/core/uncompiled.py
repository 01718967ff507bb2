"""Run the kernels as plain Python although compiled ones are installed.

Set the environment variable REGIMEKIT_UNCOMPILED=1 before regimekit is imported. The tests use it
to run the same suite on the source of the kernels.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from importlib.util import find_spec
from types import ModuleType


class SourceFinder:
    """Find modules of this package by their source alone."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec of the source file of a module of regimekit, or None.

        Args:
            name, path, target: as for `importlib.abc.MetaPathFinder`.
        """
        if not name.startswith("regimekit.") or path is None:
            return None
        for folder in path:
            spec = FileFinder(folder, (SourceFileLoader, SOURCE_SUFFIXES)).find_spec(name, target)
            if spec is not None:
                return spec
        return None


def prefer_source() -> None:
    """Import modules of this package from their source from now on.

    Raises:
        ImportError: If Cython, whose types the source imports, is not installed.
    """
    if find_spec("cython") is None:
        raise ImportError("REGIMEKIT_UNCOMPILED needs Cython. Install it with pip install cython.")
    sys.meta_path.insert(0, SourceFinder())
