"""The one door to Numba: the `@kernel` decorator.

Kernels see arrays, scalars and NamedTuples of them; they never validate and never raise.
Compiled code is cached on disk. Numba notices an edit of the kernel itself but not of a helper
in another module, so the cache folder is keyed by a hash of the kernel's module and of every
kernel module it imports.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import re
from collections.abc import Callable
from functools import cache, update_wrapper
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import config as _config
from numba.extending import overload

Function = TypeVar("Function", bound=Callable[..., Any])
config: Any = _config  # its attributes are made at run time

# `ninf` and `nnan` stay out: -inf is an honest log-weight here.
FASTMATH = {"nsz", "arcp", "contract", "afn", "reassoc"}

_SOURCE = Path(__file__).parent.parent
_IMPORT = re.compile(r"^from (holdfast[\w.]*) import ([\w ,]*)", re.MULTILINE)


def cache_root() -> Path:
    """Folder of all compiled kernels; HOLDFAST_CACHE moves it."""
    return Path(os.environ.get("HOLDFAST_CACHE") or Path.home() / ".cache" / "holdfast")


@cache
def cache_folder(module: str) -> Path:
    """Folder of the compiled kernels of exactly this module and what it imports."""
    digest = hashlib.sha256()
    for source in sorted(_kernel_sources(module)):
        digest.update(source.read_bytes())
    return cache_root() / f"{module.rpartition('.')[2]}-{digest.hexdigest()[:16]}"


def _kernel_sources(module: str) -> set[Path]:
    """Source files with kernels that `module` reaches by imports, itself included."""
    found: dict[Path, None] = {}
    queue = [module]
    while queue:
        path = _SOURCE.joinpath(*queue.pop().split(".")).with_suffix(".py")
        if path in found or not path.exists():
            continue
        text = path.read_text()
        if "@kernel" in text:
            found[path] = None
            for package, names in _IMPORT.findall(text):  # a name may itself be a module
                queue += [package, *(f"{package}.{name}" for name in re.findall(r"\w+", names))]
    return set(found)


def kernel(function: Function) -> Function:
    """Compile on first use and cache on disk; plain Python under NUMBA_DISABLE_JIT."""
    if config.DISABLE_JIT:
        return function
    before = config.CACHE_DIR
    config.CACHE_DIR = str(cache_folder(function.__module__))  # read while Numba decorates
    try:
        return cast(Function, numba.njit(cache=True, fastmath=FASTMATH)(function))
    finally:
        config.CACHE_DIR = before


def generic(stub: Function) -> Function:
    """A function with one kernel for each type of its first argument, a NamedTuple of arrays.

    `@stub.of(Rows)` adds the kernel for `Rows`. Compiled callers are specialised by the type;
    Python looks it up.
    """
    table: dict[type, Callable[..., Any]] = {}

    def call(rows: Any, *arguments: Any) -> Any:
        return table[type(rows)](rows, *arguments)

    def add(kind: type) -> Callable[[Function], Function]:
        def keep(implementation: Function) -> Function:
            table[kind] = implementation
            return implementation

        return keep

    update_wrapper(call, stub)
    call.of = add  # type: ignore[attr-defined]
    if not config.DISABLE_JIT:
        overload(call, strict=False)(_chooser(stub, table))
    return cast(Function, call)


def _chooser(stub: Callable[..., Any], table: dict[type, Callable[..., Any]]) -> Any:
    """What Numba asks for the implementation: a function with the stub's own signature."""

    def choose(*arguments: Any) -> Any:
        found = table.get(getattr(arguments[0], "instance_class", None))  # type: ignore[arg-type]
        return getattr(found, "py_func", found)

    names = ", ".join(inspect.signature(stub).parameters)
    return eval(f"lambda {names}: choose({names})", {"choose": choose})
