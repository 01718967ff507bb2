"""One file for a model's whole state: a JSON header and plain arrays in a zip. No pickle.

    header.json   magic, format version, model name, settings, JSON state
    NAME.npy      one member per array

A snapshot is written in the current FORMAT and read in every format up to it.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.errors import SnapshotError

MAGIC = "holdfast snapshot"
FORMAT = 1
_HEADER = "header.json"
# What zipfile raises on damaged bytes; the last two where they ask for a method it has not.
_DAMAGE = (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError)
_STAMP = (1980, 1, 1, 0, 0, 0)  # a fixed date, so that equal states are equal bytes


class Content(NamedTuple):
    """What a snapshot holds."""

    model: str
    settings: dict[str, Any]
    values: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def write(
    model: str, settings: dict[str, Any], values: dict[str, Any], arrays: dict[str, NDArray[Any]]
) -> bytes:
    """Pack a model's name, settings, JSON values and arrays."""
    header = {
        "magic": MAGIC, "format": FORMAT, "model": model, "settings": settings, "values": values,
    }  # fmt: skip
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr(_member(_HEADER), json.dumps(header).encode())
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, np.asarray(array), allow_pickle=False)
            archive.writestr(_member(f"{name}.npy"), buffer.getvalue())
    return target.getvalue()


def read(data: bytes) -> Content:
    """Unpack what `write` packed, or say why that cannot be done."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if _HEADER not in archive.namelist():
                raise SnapshotError("This is a zip file but not a holdfast snapshot: no header.")
            header = _header(archive.read(_HEADER))
            arrays = {
                name.removesuffix(".npy"): np.lib.format.read_array(
                    io.BytesIO(archive.read(name)), allow_pickle=False
                )
                for name in archive.namelist()
                if name != _HEADER
            }
    except _DAMAGE as error:
        raise SnapshotError(
            f"Not a whole holdfast snapshot ({len(data)} bytes): truncated, damaged or foreign "
            f"({error})."
        ) from None
    except SnapshotError:
        raise
    except (ValueError, EOFError, OSError) as error:
        raise SnapshotError(f"The snapshot's arrays cannot be read: {error}.") from None
    return Content(header["model"], header["settings"], header["values"], arrays)


def write_file(path: Path, data: bytes) -> None:
    """Write all or nothing: a crash half-way leaves the earlier file as it was."""
    temporary = path.with_name(path.name + ".part")
    temporary.write_bytes(data)
    os.replace(temporary, path)


def _member(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _STAMP)
    info.compress_type = zipfile.ZIP_DEFLATED
    return info


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except ValueError:
        raise SnapshotError("The snapshot's header is not readable JSON.") from None
    if not isinstance(header, dict) or header.get("magic") != MAGIC:
        raise SnapshotError("This is not a holdfast snapshot: its header says something else.")
    version = header.get("format")
    if type(version) is not int or not 1 <= version <= FORMAT:
        raise SnapshotError(
            f"The snapshot has format {version}; this holdfast reads up to {FORMAT}. "
            "Update holdfast to read it."
        )
    missing = {"model", "settings", "values"} - set(header)
    if missing:
        raise SnapshotError(f"The snapshot's header lacks {', '.join(sorted(missing))}.")
    if not isinstance(header["model"], str):
        raise SnapshotError(f"The snapshot's header garbles the model: {header['model']!r}.")
    return header
