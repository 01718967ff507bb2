"""The one door to Numba: the `@kernel` decorator.

Kernels see arrays, scalars and NamedTuples of them; they never validate and never raise.
Compiled code is kept on disk, in a folder named by a hash of all that it depends on: the kernel's
module, every module of the package that this one reaches by imports (a NamedTuple or a constant
may live in any of them), and the versions of Python, NumPy and Numba. Each file carries its own
checksum: one that is damaged is compiled anew. Where no lasting folder can be written, a temporary
one serves this process, and a warning says so.

Arithmetic is strict IEEE: no sum is rearranged and nothing contracted. Whether a kernel was
compiled by this process or read from disk, alone or as a part of its caller, its results agree to
the last bit; recovery by replay and runs on several workers rely on that.
"""

from __future__ import annotations

import atexit
import hashlib
import inspect
import os
import pickle
import re
import shutil
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache, update_wrapper
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import numba
import numpy as np
from numba.core import caching as _caching
from numba.core import config as _config
from numba.core import serialize as _serialize
from numba.extending import overload

from regimekit._parts import in_parts
from regimekit._words import reference

__all__ = ["bare", "cache_folder", "cache_root", "config", "generic", "kernel", "reference"]

Function = TypeVar("Function", bound=Callable[..., Any])
config: Any = _config  # its attributes are made at run time
_function_cache: Any = _caching.FunctionCache
_dumps: Any = _serialize.dumps

_SOURCE = Path(__file__).parent.parent
_VERSIONS = (sys.version, np.__version__, numba.__version__)
# `from regimekit.a import b, c`, also over several lines, or `import regimekit.a`.
_IMPORT = re.compile(
    r"^[ \t]*(?:from (regimekit[\w.]*) import +(\((?:[^)#]|#.*)*\)|.*)|import (regimekit[\w.]*))",
    re.M,
)
_NOISE = re.compile(r"#.*|\bas\s+\w+")
_DIGEST = hashlib.sha256().digest_size


def cache_root() -> Path:
    """Folder of all compiled kernels; REGIMEKIT_CACHE moves it."""
    return _roots()[0]


def cache_folder(module: str) -> Path:
    """Folder of the compiled kernels of exactly this module and what it imports."""
    return cache_root() / _folder_name(module)


@cache
def _roots() -> tuple[Path, ...]:
    """Where kernels are written, then where else they may be found."""
    given = os.environ.get("REGIMEKIT_CACHE")
    try:
        wanted = Path(given) if given else Path.home() / ".cache" / "regimekit"
    except RuntimeError:  # a user without a home
        wanted = None
    if wanted is not None and _writable(wanted):
        return (wanted,)
    roots = (_temporary(wanted), wanted)
    return tuple(root for root in roots if root is not None) or (Path("regimekit-kernels"),)


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


def _temporary(wanted: Path | None) -> Path | None:
    """A folder for this process alone: others must not be able to plant code in it."""
    why = "there is no home folder" if wanted is None else f"{wanted} cannot be written"
    folder: Path | None = None
    with suppress(OSError):
        folder = Path(tempfile.mkdtemp(prefix="regimekit-"))
        atexit.register(shutil.rmtree, str(folder), ignore_errors=True)
    warnings.warn(
        f"Compiled kernels are kept for this process only, as {why}; set REGIMEKIT_CACHE to a "
        "folder that can be.",
        RuntimeWarning,
        stacklevel=2,
    )
    return folder


@cache
def _folder_name(module: str) -> str:
    digest = hashlib.sha256(repr(_VERSIONS).encode())
    for source in sorted(_sources(module)):
        digest.update(source.relative_to(_SOURCE).as_posix().encode() + source.read_bytes())
    return f"{module.rpartition('.')[2]}-{digest.hexdigest()[:16]}"


def _sources(module: str) -> set[Path]:
    """Source files that `module` reaches by imports inside the package, itself included."""
    found: set[Path] = set()
    queue = [module]
    while queue:
        path = _path(queue.pop())
        if path is not None and path not in found:
            found.add(path)
            queue += _imports(path)
    return found


@cache
def _path(module: str) -> Path | None:
    """The file of a module, or None for a name that is none."""
    place = _SOURCE.joinpath(*module.split("."))
    for path in (place.with_suffix(".py"), place / "__init__.py"):
        if path.exists():
            return path
    return None


@cache
def _imports(path: Path) -> set[str]:
    """Modules that a source file imports from the package, wherever in it."""
    found: set[str] = set()
    for package, names, module in _IMPORT.findall(path.read_text("utf-8")):
        if module:
            found.add(module)
        for name in re.findall(r"\w+", _NOISE.sub("", names)):
            inner = f"{package}.{name}"  # it may itself be a module
            found.add(inner if _path(inner) else package)
    return found


class _Shelf:
    """Compiled code of one kernel on disk: a file for each signature, its checksum first."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.folder = _folder_name(function.__module__)
        self.name = f"{function.__qualname__}.{sys.implementation.cache_tag}"

    def load(self, key: Any) -> Any:
        """What was saved under `key`, or None: not there, not whole, not readable."""
        for root in _roots():
            try:
                content = self._path(root, key).read_bytes()
            except OSError:
                continue
            if hashlib.sha256(content[_DIGEST:]).digest() == content[:_DIGEST]:
                return pickle.loads(content[_DIGEST:])
        return None

    def save(self, key: Any, data: Any) -> None:
        """Keep `data`; a disk that is full or locked costs the next process a compilation."""
        content = _dumps(data)
        path = self._path(cache_root(), key)
        temporary = path.with_suffix(f".{os.getpid()}.{threading.get_ident()}.part")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(hashlib.sha256(content).digest() + content)
            os.replace(temporary, path)
        except OSError:
            with suppress(OSError):
                temporary.unlink()

    def flush(self) -> None:
        """Forget everything that was kept."""
        for file in (cache_root() / self.folder).glob(f"{self.name}.*.nbc"):
            file.unlink(missing_ok=True)

    def _path(self, root: Path, key: Any) -> Path:
        signature = hashlib.sha256(repr(key).encode()).hexdigest()[:24]
        return root / self.folder / f"{self.name}.{signature}.nbc"


def kernel(function: Function) -> Function:
    """Compile on first use and cache on disk; plain Python under NUMBA_DISABLE_JIT."""
    return _compiled(function, counted=True)


def bare(function: Function) -> Function:
    """A kernel that makes no array and returns none: no references are counted inside."""
    return _compiled(function, counted=False)


def _compiled(function: Function, counted: bool) -> Function:
    if config.DISABLE_JIT:
        return function
    # No branch for divisions by zero, and no wrapper for callers in C: there are none.
    options: Any = {"error_model": "numpy", "no_cfunc_wrapper": True, "_nrt": counted}
    whole: Any = numba.njit(**options)(function)
    options["no_cpython_wrapper"] = True
    in_parts(whole, numba.njit(**options)(function))
    before = config.CACHE_DIR
    config.CACHE_DIR = str(cache_root())  # where Numba looks for room
    try:
        keeper = _function_cache(function)
    except RuntimeError:  # nowhere to write at all: compiled code stays in memory
        return cast(Function, whole)
    finally:
        config.CACHE_DIR = before
    keeper._cache_file = _Shelf(function)
    whole._cache = keeper
    return cast(Function, whole)


class Generic(Protocol):
    """A function with one kernel for each type of its first argument."""

    def __call__(self, *arguments: Any) -> Any: ...

    def of(self, kind: type) -> Callable[[Function], Function]:
        """Register the kernel for rows of a type."""


def generic(stub: Callable[..., Any]) -> Generic:
    """A function with one kernel for each type of its first argument, a NamedTuple of arrays.

    `@stub.of(Rows)` adds the kernel for `Rows`; for other types the stub itself is the kernel.
    Compiled callers are specialised by the type; Python looks it up.
    """
    table: dict[Any, Callable[..., Any]] = {}

    def call(rows: Any, *arguments: Any) -> Any:
        return table.get(type(rows), stub)(rows, *arguments)

    def add(kind: type) -> Callable[[Function], Function]:
        def keep(implementation: Function) -> Function:
            table[kind] = implementation
            return implementation

        return keep

    update_wrapper(call, stub)
    cast(Any, call).of = add
    if not config.DISABLE_JIT:
        overload(call, strict=False)(_chooser(stub, table))
    return cast(Generic, call)


def _chooser(stub: Callable[..., Any], table: dict[Any, Callable[..., Any]]) -> Any:
    """What Numba asks for the implementation: a function with the stub's own signature."""
    names = ", ".join(inspect.signature(stub).parameters)

    def choose(*arguments: Any) -> Any:
        found = table.get(getattr(arguments[0], "instance_class", None))
        return stub if found is None else _through(names, found)

    return eval(f"lambda {names}: choose({names})", {"choose": choose})


@cache
def _through(names: str, found: Callable[..., Any]) -> Any:
    """A function that does nothing but call the kernel, which is compiled by its own options."""
    return eval(f"lambda {names}: found({names})", {"found": found})
