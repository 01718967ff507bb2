"""What a snapshot claims is compared with limits before it costs anything."""

from __future__ import annotations

import io
import json
import struct
import tracemalloc
import zipfile
from collections.abc import Callable

import crafted
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast as hf
from holdfast import snapshot
from holdfast.models.registry import REGISTRY


def refused(data: bytes) -> str:
    with pytest.raises(hf.SnapshotError) as caught:
        hf.from_bytes(data)
    return str(caught.value)


def cost_of(action: Callable[[], object]) -> float:
    """Peak memory of an action, in MB."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def refused_cheaply(data: bytes) -> str:
    """The refusal, which must cost no more than a few MB beside the file itself."""
    messages: list[str] = []
    assert cost_of(lambda: messages.append(refused(data))) < 5
    return messages[0]


@pytest.mark.parametrize("place", ["unknown", "known", "header"])
def test_a_bomb_is_not_inflated(place: str) -> None:
    """60 MB of blanks in 60 kB, as an array nobody wants, as one of another shape, as text."""
    blanks = b" " * 60_000_000
    head = crafted.npy(np.zeros(7_500_000))[:128]
    parts = crafted.members(crafted.stored("bocd"))
    if place == "header":
        parts["header.json"] += blanks
    else:
        parts["bomb.npy" if place == "unknown" else "rows_0.npy"] = head + blanks
    data = crafted.packed(parts, zipfile.ZIP_DEFLATED)
    assert len(data) < 100_000
    word = {"unknown": "bomb", "known": "rows_0", "header": "header.json"}[place]
    assert word in refused_cheaply(data)


def test_a_claimed_size_costs_nothing() -> None:
    """A file of 6 kB whose directory says that an array has 2 GB, or 200 MB."""
    for claim in (2**31, 2 * 10**8):
        data = bytearray(crafted.stored("bocd"))
        at = data.index(b"rows_0.npy", data.index(b"PK\x01\x02")) - 46
        data[at + 24 : at + 28] = struct.pack("<I", claim)
        assert "bytes" in (message := refused_cheaply(bytes(data))) or "rows_0" in message


def test_an_array_as_long_as_its_shape_says() -> None:
    data = crafted.stored("bocd")
    content = crafted.members(data)["rows_0.npy"]
    for shape in (b"(10000000000, 5)", b"(1,)", b"(-1, 5)", b"(2.0, 5)", b"(9**9, 5)", b"(,)"):
        start = content.index(b"(")
        garbled = content[:start] + shape + content[content.index(b")") + 1 :]
        assert "rows_0" in refused(crafted.with_part(data, "rows_0.npy", garbled))


@pytest.mark.parametrize("name", list(REGISTRY))
def test_unknown_arrays_and_values_are_refused(name: str) -> None:
    data = crafted.stored(name)
    assert "'stowaway'" in refused(crafted.with_array(data, "stowaway", np.zeros(2)))
    assert "'stray'" in refused(crafted.with_header(data, lambda h: h["values"].update(stray=1)))


@pytest.mark.parametrize("name", list(REGISTRY))
def test_missing_arrays_and_values_are_named(name: str) -> None:
    data = crafted.stored(name)
    parts = crafted.members(data)
    for array in [part for part in parts if part.endswith(".npy")]:
        rest = {part: content for part, content in parts.items() if part != array}
        assert array.removesuffix(".npy") in refused(crafted.packed(rest))
    for value in json.loads(parts["header.json"])["values"]:
        message = refused(crafted.with_header(data, lambda h, v=value: h["values"].pop(v)))
        assert value in message or value == "columns"  # without it the first x is the riddle


@pytest.mark.parametrize("dtype", ["O", "U3", "c16", "f4", "M8[s]", "V8", "u8"])
def test_arrays_of_other_types_are_refused(dtype: str) -> None:
    data = crafted.stored("bocd")
    array = crafted.array_of(data, "book_log_mass")
    content = crafted.npy(np.zeros(array.shape).astype(dtype), allow_pickle=True)
    assert "book_log_mass" in refused(crafted.with_part(data, "book_log_mass.npy", content))


def test_other_parts_and_packings_are_refused() -> None:
    data = crafted.stored("bocd")
    assert "README" in refused(crafted.with_part(data, "README", b"hello"))
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        assert "packed" in refused(crafted.packed(crafted.members(data), method))
    target = io.BytesIO(data)
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(target, "a") as archive:
        archive.writestr("rows_0.npy", b"")
    assert "twice" in refused(target.getvalue())


def test_a_header_without_bottom_is_refused() -> None:
    data = crafted.stored("bocd")
    assert "JSON" in refused(crafted.with_part(data, "header.json", b"[" * 100_000))
    digits = b'{"magic": ' + b"9" * 10_000 + b"}"
    assert "JSON" in refused(crafted.with_part(data, "header.json", digits))


def test_the_state_of_another_release_is_refused_by_name() -> None:
    data = crafted.stored("bocd")
    assert "newer" in refused(crafted.with_header(data, lambda h: h.update(state=2)))
    assert "garbles the state" in refused(crafted.with_header(data, lambda h: h.update(state="2")))
    content = snapshot.read(data)._replace(state=1)
    with pytest.raises(hf.SnapshotError, match=r"holdfast 0\.1 wrote.*Read it with holdfast 0\.1"):
        content.check_state(2)


def test_a_snapshot_of_the_first_release_loads() -> None:
    """0.1.0 wrote no version of the state."""
    data = crafted.stored("bocd")
    first = crafted.with_header(data, lambda h: h.pop("state"))
    assert hf.from_bytes(first).to_bytes() == data


def test_a_model_too_large_to_be_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    model = hf.from_bytes(crafted.stored("bocd"))
    monkeypatch.setattr(snapshot, "LARGEST", 100)
    with pytest.raises(hf.HoldfastError, match="bytes"):
        model.to_bytes()


@pytest.mark.parametrize("name", list(REGISTRY))
@settings(max_examples=60, deadline=None, derandomize=True)
@given(data=st.data())
def test_damaged_bytes_are_refused_or_harmless(name: str, data: st.DataObject) -> None:
    whole = crafted.stored(name)
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        match data.draw(st.sampled_from(["flip", "cut", "insert", "copy"])):
            case "flip":
                damaged[at] ^= data.draw(st.integers(1, 255))
            case "cut":
                del damaged[at : at + data.draw(st.integers(1, 50))]
            case "insert":
                damaged[at:at] = data.draw(st.binary(min_size=1, max_size=20))
            case "copy":
                damaged[at:at] = damaged[: data.draw(st.integers(1, 100))]
        if not damaged:
            break
    try:
        model = hf.from_bytes(bytes(damaged))
    except hf.SnapshotError as error:
        assert str(error)
    else:
        assert model.to_bytes() == whole


def test_memory_is_measured() -> None:
    """The yardstick of the bombs sees an allocation when there is one."""
    assert cost_of(lambda: len(b"1" * 50_000_000)) > 45
