"""State of the source: a hash of all code that determines an outcome.

Imports are followed from a module, or from a file outside the library. A module that imports the
registry may make any model, so all models are followed unless the caller names them. Comments,
docstrings, layout and modules that only produce text or files (`_TEXT_ONLY`) are ignored,
so that such changes do not invalidate stored runs. The versions of NumPy and SciPy are included.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from types import ModuleType

import regimekit
from regimekit.core.registry import REGISTRY

SOURCE = Path(regimekit.__file__).parents[1]
_PACKAGE = "regimekit"
_REGISTRY = "regimekit.core.registry"
# Modules for display, messages and storage, which determine no number of a run.
_TEXT_ONLY = (
    "regimekit.core.display",
    "regimekit.core.exceptions",
    "regimekit.core.warnings",
    "regimekit.serialization.snapshot",
    "regimekit.serialization",
    "regimekit.ihmm.snapshots",
    "regimekit.core.advice",
    "regimekit.core.explain",
    "regimekit.ensemble.explain",
)


def state(
    modules: Iterable[str],
    files: Iterable[Path] = (),
    beside: Iterable[Path] = (),
    root: Path = SOURCE,
    made: Iterable[str] | None = None,
) -> str:
    """Return a hash of these modules and files and of all that they import.

    Args:
        modules: modules of the library, by name.
        files: files outside the library; their imports from it are followed too.
        beside: further files whose imports are not followed.
        root: folder that contains the library.
        made: modules of the models that may be made; by default all of the registry.

    Example:
        >>> state(["regimekit.baselines.bocd"]) == state(["regimekit.baselines.naive"])
        False
    """
    digest = hashlib.sha256(_versions().encode())
    queue = list(modules)
    for path in (*files, *beside):
        digest.update(meaning(path).encode())
    for path in files:
        queue += imported(path)
    for name in sorted(reached(queue, root, made)):
        digest.update(f"{name}\n{meaning(_path(name, root))}\n".encode())
    return digest.hexdigest()[:12]


def reached(
    modules: Iterable[str], root: Path = SOURCE, made: Iterable[str] | None = None
) -> set[str]:
    """Return the modules of the library on which these depend, including themselves."""
    found: set[str] = set()
    queue = list(modules)
    models = [entry.module for entry in REGISTRY.values()] if made is None else list(made)
    while queue:
        name = queue.pop()
        if name in found or _is_text_only(name):
            continue
        found.add(name)
        queue += imported(_path(name, root))
        if name == _REGISTRY:
            queue += models
    return found


def meaning(path: Path) -> str:
    """Return a hash of the source without comments, docstrings and layout."""
    return _meaning(path.read_text("utf-8"))


def imported(path: Path) -> tuple[str, ...]:
    """Return the modules of the library that a file imports, except for type checking."""
    return _imported(path.read_text("utf-8"))


@lru_cache(maxsize=1024)
def _meaning(text: str) -> str:
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and _documented(node):
            node.body = node.body[1:]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()


@lru_cache(maxsize=1024)
def _imported(text: str) -> tuple[str, ...]:
    nodes = list(_running(ast.parse(text)))
    found: set[str] = set()
    aliases: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and _ours(node.module or ""):
            found |= {_home(f"{node.module}.{one.name}") for one in node.names}
        elif isinstance(node, ast.Import):
            found |= {one.name for one in node.names if _ours(one.name)}
            aliases |= {one.asname or _PACKAGE for one in node.names if one.name == _PACKAGE}
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found |= {_home(f"{_PACKAGE}.{node.attr}")} if node.value.id in aliases else set()
    return tuple(sorted(found))


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes except those for type checking."""
    yield node
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        yield from _running(child)


def _home(name: str) -> str:
    """Return the module of a name: itself, its package, or where a public name is defined."""
    if _exists(name, SOURCE):
        return name
    package, _, attribute = name.rpartition(".")
    if package != _PACKAGE:
        return package
    public = getattr(regimekit, attribute)
    if isinstance(public, ModuleType):
        return public.__name__
    return str(getattr(public, "__module__", _PACKAGE))


def _path(module: str, root: Path) -> Path:
    place = root.joinpath(*module.split("."))
    file = place.with_suffix(".py")
    return file if file.exists() else place / "__init__.py"


def _exists(module: str, root: Path) -> bool:
    return _path(module, root).exists()


def _documented(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> bool:
    return ast.get_docstring(node, clean=False) is not None


def _ours(module: str) -> bool:
    return module.partition(".")[0] == _PACKAGE


def _is_text_only(module: str) -> bool:
    inside = any(module.startswith(f"{one}.") for one in _TEXT_ONLY)
    return module == _PACKAGE or module in _TEXT_ONLY or inside


@lru_cache
def _versions() -> str:
    return " ".join(metadata.version(name) for name in ("numpy", "scipy"))
