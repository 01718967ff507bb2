"""Snapshots: what is in them, and how everything that is none is refused."""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import holdfast as hf
from holdfast import snapshot


def small_model(updates: int = 9) -> Any:
    model = hf.br_ihmm(particles=3, batch=4, max_regimes=4, features=hf.features.lags(1))
    model.run(np.random.default_rng(0).standard_normal(updates))
    return model


@pytest.fixture(scope="module")
def data() -> bytes:
    return bytes(small_model().to_bytes())


def rewritten(data: bytes, change: Callable[[dict[str, bytes]], None]) -> bytes:
    """The archive after `change` of its members."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return target.getvalue()


def header_with(data: bytes, **fields: Any) -> bytes:
    def change(members: dict[str, bytes]) -> None:
        header = json.loads(members["header.json"]) | fields
        members["header.json"] = json.dumps(header).encode()

    return rewritten(data, change)


def refused(data: bytes) -> str:
    with pytest.raises(hf.SnapshotError) as caught:
        hf.from_bytes(data)
    return str(caught.value)


def test_format_is_a_header_and_plain_arrays(data: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = archive.namelist()
        assert names[0] == "header.json" and archive.testzip() is None
        header = json.loads(archive.read("header.json"))
        for name in names[1:]:
            array = np.load(io.BytesIO(archive.read(name)), allow_pickle=False)
            assert name.endswith(".npy") and array.dtype.kind in "fib"
    assert set(header) == {"magic", "format", "model", "state", "settings", "values"}
    assert header["magic"] == snapshot.MAGIC and header["format"] == snapshot.FORMAT == 1
    assert header["model"] == "br_ihmm"
    assert header["settings"] == small_model().settings()
    assert header["values"]["rng"]["bit_generator"] == "PCG64"


def test_equal_states_are_equal_bytes(data: bytes) -> None:
    model = small_model()
    assert model.to_bytes() == model.to_bytes() == small_model().to_bytes() == data
    model.update(0.1)
    assert model.to_bytes() != data


def test_cut_short_anywhere_it_is_refused(data: bytes) -> None:
    for cut in range(0, len(data), 10):
        assert "truncated" in refused(data[:cut])
    assert "truncated" in refused(data[:-1])


def test_a_damaged_byte_is_refused_or_harmless(data: bytes) -> None:
    """A flip in the file's own bookkeeping may change nothing; anything else is an error."""
    for at in range(0, len(data), 23):
        damaged = bytearray(data)
        damaged[at] ^= 0x55
        try:
            model = hf.from_bytes(bytes(damaged))
        except hf.SnapshotError as error:
            assert str(error)
        else:
            assert model.to_bytes() == data


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "truncated"),
        (b"garbage", "foreign"),
        (bytes(range(256)) * 40, "foreign"),
        (pickle.dumps({"model": "br_ihmm"}), "foreign"),
        (json.dumps({"magic": snapshot.MAGIC}).encode(), "foreign"),
    ],
    ids=["empty", "text", "bytes", "pickle", "json"],
)
def test_what_is_no_archive_is_refused(content: bytes, word: str) -> None:
    assert word in refused(content)


def test_a_foreign_archive_is_refused() -> None:
    target = io.BytesIO()
    np.savez(target, mean=np.zeros(3))
    assert "not a holdfast snapshot" in refused(target.getvalue())


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"format": snapshot.FORMAT + 1}, f"format {snapshot.FORMAT + 1}"),
        ({"format": "1"}, "format 1"),
        ({"format": None}, "format None"),
        ({"magic": "something else"}, "not a holdfast snapshot"),
        ({"model": "oracle"}, "'oracle'"),
        ({"model": ["br_ihmm"]}, "br_ihmm"),
        ({"settings": {"particels": 3}}, "particels"),
        ({"settings": {"particles": -3}}, "particles"),
        ({"settings": 3}, "garbles"),
        ({"values": {}}, "started"),
        ({"values": {"started": True}}, "shape"),
        ({"values": None}, "garbles"),
    ],
)
def test_a_strange_header_is_refused(data: bytes, fields: dict[str, Any], word: str) -> None:
    assert word in refused(header_with(data, **fields))


def test_an_older_format_number_than_any_is_refused(data: bytes) -> None:
    assert "format" in refused(header_with(data, format=0))


@pytest.mark.parametrize("key", ["model", "settings", "values"])
def test_a_header_without_a_field_is_refused(data: bytes, key: str) -> None:
    def change(members: dict[str, bytes]) -> None:
        header = json.loads(members["header.json"])
        del header[key]
        members["header.json"] = json.dumps(header).encode()

    assert key in refused(rewritten(data, change))


def test_an_unreadable_header_is_refused(data: bytes) -> None:
    for text in (b"{", b"[1, 2]", b"\xff\xfe", b"null"):
        message = refused(rewritten(data, lambda m, text=text: m.update({"header.json": text})))
        assert "header" in message


def test_a_missing_array_is_refused(data: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = [name for name in archive.namelist() if name.endswith(".npy")]
    for name in names:
        message = refused(rewritten(data, lambda m, name=name: m.pop(name)))
        assert name.removesuffix(".npy") in message


def npy(array: np.ndarray, allow_pickle: bool = False) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=allow_pickle)
    return buffer.getvalue()


@pytest.mark.parametrize("name", ["particle_alpha", "particle_counts", "running_0", "past"])
def test_an_array_of_another_shape_is_refused(data: bytes, name: str) -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        array = np.load(io.BytesIO(archive.read(f"{name}.npy")))
    for wrong in (array[:-1], np.concatenate([array, array]), array[..., None]):
        assert refused(rewritten(data, lambda m, w=wrong: m.update({f"{name}.npy": npy(w)})))


def test_a_pickled_array_is_never_unpickled(data: bytes) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (pytest.fail, ("a snapshot was unpickled",))

    trap = np.empty(1, dtype=object)
    trap[0] = Trap()
    content = npy(trap, allow_pickle=True)
    message = refused(rewritten(data, lambda m: m.update({"particle_alpha.npy": content})))
    assert "arrays" in message


def test_save_and_load(tmp_path: Path, data: bytes) -> None:
    model = small_model()
    for path in (tmp_path / "model.holdfast", str(tmp_path / "other")):
        model.save(path)
        assert Path(path).read_bytes() == data
        assert hf.load(path).to_bytes() == data
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.holdfast", "other"]


def test_save_is_all_or_nothing(
    tmp_path: Path, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash before the new file is whole leaves the old one as it was."""
    path = tmp_path / "model"
    small_model().save(path)

    def crash(*_: Any) -> None:
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", crash)
        with pytest.raises(OSError, match="disk full"):
            small_model(30).save(path)
    assert path.read_bytes() == data
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", crash)
        with pytest.raises(OSError, match="disk full"):
            small_model(30).save(path)
    assert path.read_bytes() == data and [p.name for p in tmp_path.iterdir()] == ["model"]
    small_model(30).save(path)
    assert hf.load(path).to_bytes() == small_model(30).to_bytes()


def test_a_path_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(hf.HoldfastError, match="path"):
        hf.load(tmp_path / "nowhere")
    with pytest.raises(hf.HoldfastError, match="path"):
        hf.load(tmp_path)
