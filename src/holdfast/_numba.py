"""The one door to Numba: the `@kernel` decorator.

Kernels see arrays, scalars and NamedTuples of them; they never validate and never raise.
Compiled code is cached on disk. Numba notices an edit of the kernel itself but not of a
helper in another module, so the cache folder is keyed by a hash of every kernel source.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import config as _config

Function = TypeVar("Function", bound=Callable[..., Any])

config: Any = _config  # its attributes are made at run time

# `ninf` and `nnan` stay out: -inf is an honest log-weight here.
FASTMATH = {"nsz", "arcp", "contract", "afn", "reassoc"}


@cache
def cache_folder() -> Path:
    """Folder of the compiled kernels of exactly these sources."""
    package = Path(__file__).parent
    digest = hashlib.sha256()
    for source in sorted(package.rglob("*.py")):
        text = source.read_bytes()
        if b"@kernel" in text:
            digest.update(text)
    root = os.environ.get("HOLDFAST_CACHE") or Path.home() / ".cache" / "holdfast"
    return Path(root) / f"kernels-{digest.hexdigest()[:16]}"


def kernel(function: Function) -> Function:
    """Compile on first use and cache on disk; plain Python under NUMBA_DISABLE_JIT."""
    if config.DISABLE_JIT:
        return function
    before = config.CACHE_DIR
    config.CACHE_DIR = str(cache_folder())  # read by Numba while it decorates, and only then
    try:
        return cast(Function, numba.njit(cache=True, fastmath=FASTMATH)(function))
    finally:
        config.CACHE_DIR = before
