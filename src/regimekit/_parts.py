"""Kernels that are called by kernels are parts of them, optimised and translated with the whole.

Numba optimises and translates each callee for itself, then again inside each of its callers, and
so on up to the one that Python calls: a loop over a few layers of small functions is compiled many
times over. Here a callee is linked into its caller as it was written. Only what Python calls is
optimised, with all its parts, and kept on disk.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numba
from numba.core import codegen as _codegen
from numba.core.compiler_lock import global_compiler_lock as _lock
from numba.core.registry import cpu_target as _cpu

# It rests on workings of Numba that later versions may change; those compile the usual, slower way.
UNDERSTOOD = numba.__version__.split(".")[:2] == ["0", "68"]
_library: Any = _codegen.JITCodeLibrary


def in_parts(whole: Any, part: Any) -> None:
    """Let Python call the dispatcher `whole`, and kernels that call it take `part` instead."""
    if not UNDERSTOOD:
        return
    whole.get_call_template, whole.get_overload = part.get_call_template, part.get_overload
    compile_whole = whole.compile

    def compile_with_parts(signature: Any) -> Any:
        with _parted():
            return compile_whole(signature)

    whole.compile = compile_with_parts


@contextmanager
def _parted() -> Iterator[None]:
    """Whatever is compiled inside is a part, until somebody asks for its machine code."""
    maker = _cpu.target_context.codegen()
    with _lock:
        before, maker._library_class = maker._library_class, _Part
        try:
            yield
        finally:
            maker._library_class = before


class _Unplaced:
    """The code generator of a part, which has no place in memory yet."""

    def __init__(self, codegen: Any) -> None:
        self._codegen = codegen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._codegen, name)

    def set_env(self, name: str, environment: Any) -> None:
        """Compiled code reaches Python objects by its environment; kernels reach for none."""


class _Part(_library):
    """Code of one function and all it calls, optimised when its address is asked for."""

    whole = False

    @property
    def codegen(self) -> Any:
        return self._codegen if self.whole else _Unplaced(self._codegen)

    def finalize(self) -> None:
        """Link what is called, and leave it at that."""
        self._raise_if_finalized()
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalized = True

    def get_pointer_to_function(self, name: str) -> int:
        """Where the machine code of a function is; 0 where there is no such function."""
        self._ensure_finalized()
        if not self.whole:
            if not self._defines(name):
                return 0
            self._optimize_final_module()
            self._final_module.verify()
            self._finalize_final_module()
        return int(super().get_pointer_to_function(name))

    def _defines(self, name: str) -> bool:
        return any(f.name == name and not f.is_declaration for f in self.get_defined_functions())

    def _finalize_final_module(self) -> None:
        self.whole = True
        super()._finalize_final_module()
