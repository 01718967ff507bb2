"""What a snapshot claims is compared with limits before it costs anything."""

from __future__ import annotations

import io
import json
import struct
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

import crafted
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import regimekit as rk
from regimekit.core.registry import REGISTRY
from regimekit.serialization import compact, snapshot


def refused(data: bytes) -> str:
    with pytest.raises(rk.SnapshotError) as caught:
        rk.from_bytes(data)
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


@pytest.mark.parametrize("place", ["unknown", "known", "header", "lanes", "zeros"])
def test_a_compact_bomb_is_not_inflated(place: str) -> None:
    """The same in the container of today, and an array of zeros that nobody wants."""
    header, _ = crafted.opened(crafted.stored("bocd"))
    blanks = b" " * 60_000_000
    deflated = zlib.compress(blanks, 9)
    name = "bomb" if place == "unknown" else "rows_0"
    large = [[name, "f8", len(deflated), [7_500_000]]]
    match place:
        case "unknown" | "known":
            text = json.dumps(header | {"arrays": {}, "large": large}).encode()
            data = crafted.sealed(text, behind=deflated)
        case "header":
            data = crafted.sealed(json.dumps(header).encode() + blanks)
        case "lanes":
            table = {"f8": {"rows_0": [7500000]}}
            data = crafted.sealed(json.dumps(header | {"arrays": table}).encode(), blanks)
        case _:
            table = {"sparse f8": {"rows_0": [0, 1_600_000]}}
            text = json.dumps(header | {"arrays": table, "large": []}).encode()
            data = crafted.sealed(text, bytes(200_000))
    assert len(data) < 100_000
    words = {"header": "header.json", "lanes": "at most"}
    assert words.get(place, "snapshot") in refused_cheaply(data)


@pytest.mark.parametrize("version", [2, 3])
def test_wrong_sizes_of_a_compact_snapshot_are_refused(version: int) -> None:
    header, _ = crafted.opened(crafted.stored("bocd"))
    text = json.dumps(header | {"arrays": {}, "large": []}).encode()
    for claims in (
        {"header": 2**31},
        {"header": 2**23},
        {"header": len(text) - 1},
        {"lanes": 1},
        {"lanes": 2**31},
        {"packed": 10},
        {"packed": 2**31},
    ):
        assert refused_cheaply(crafted.sealed(text, version=version, **claims))
    for noise in (1, 8, 2**31):
        assert refused_cheaply(crafted.sealed(text, noise=noise))
        assert refused_cheaply(crafted.sealed(text, bytes(8), noise=noise))
    whole = crafted.stored("bocd")
    assert "truncated" in refused(whole + b"more")
    assert "newer format" in refused(whole[:9] + b"\x04" + whole[10:])


def test_what_is_not_deflated_has_a_checksum() -> None:
    """Also in large arrays, of which each has its own."""
    whole = crafted.stored("bocd")
    for at in range(26, 200, 7):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        assert "checksum" in refused(bytes(damaged))
    large = {"a": np.random.default_rng(0).standard_normal(10_000)}
    data = bytearray(compact.write({}, large))
    assert compact.read(bytes(data))[1]["a"].tobytes() == large["a"].tobytes()
    data[-70_000] ^= 1
    with pytest.raises(rk.SnapshotError, match="checksum"):
        compact.read(bytes(data))[1]["a"]


@pytest.mark.parametrize(
    ("table", "large"),
    [
        (None, []),
        ([], []),
        ({}, None),
        ({}, {}),
        ({"f8": []}, []),
        ({"c16": {"a": [1]}}, []),
        ({"f8": {"a": [-1]}}, []),
        ({"f8": {"a": [1.5]}}, []),
        ({"f8": {"a": [True]}}, []),
        ({"f8": {"a": [10**12]}}, []),
        ({"f8": {"a": [1]}, "i8": {"a": [1]}}, []),
        ({"sparse f8": {"a": []}}, []),
        ({"sparse f8": {"a": [5, 2]}}, []),
        ({"distinct f8": {"a": [3, 2]}}, []),
        ({"f8": {"a": [1] * 40}}, []),
        ({}, [["a", "f8", 0, [1]]]),
        ({}, [["a", "f8", -1, [1]]]),
        ({}, [["a", "f8", 9, 1]]),
        ({}, [["a", "x", 9, [1]]]),
        ({}, [["a", "f8", 9, [2**31, 2]]]),
        ({}, [3]),
        ({"f8": {str(n): [0] for n in range(2000)}}, []),
    ],
)
def test_corrupt_tables_raise_an_error(table: Any, large: Any) -> None:
    header, _ = crafted.opened(crafted.stored("bocd"))
    text = json.dumps(header | {"arrays": table, "large": large}).encode()
    assert refused_cheaply(crafted.sealed(text, behind=b"123456789"))
    assert refused_cheaply(crafted.sealed(text))


def test_numbers_that_are_not_there_are_refused() -> None:
    """A sparse array with more bits than numbers, and a distinct one that points beyond."""
    for table, body in (
        ({"sparse f8": {"rows_0": [1, 8]}}, np.ones(1).tobytes() + b"\xff"),
        ({"distinct f8": {"rows_0": [2, 3]}}, np.ones(2).tobytes() + bytes([0, 1, 2])),
        ({"distinct f8": {"rows_0": [2, 3]}}, np.ones(2).tobytes() + bytes([0, 1, 255])),
    ):
        header, _ = crafted.opened(crafted.stored("bocd"))
        text = json.dumps(header | {"arrays": table, "large": []}).encode()
        arrays = compact.read(crafted.sealed(text, body))[1]
        with pytest.raises(rk.SnapshotError, match="rows_0"):
            arrays["rows_0"]


def test_a_claimed_size_costs_nothing() -> None:
    """A file of 6 kB whose directory says that an array has 2 GB, or 200 MB."""
    for claim in (2**31, 2 * 10**8):
        data = bytearray(crafted.packed(crafted.members(crafted.stored("bocd"))))
        at = data.index(b"rows_0.npy", data.index(b"PK\x01\x02")) - 46
        data[at + 24 : at + 28] = struct.pack("<I", claim)
        assert "bytes" in (message := refused_cheaply(bytes(data))) or "rows_0" in message


def test_an_array_with_another_length_than_its_shape_raises() -> None:
    data = crafted.stored("bocd")
    content = crafted.members(data)["rows_0.npy"]
    for shape in (b"(10000000000, 5)", b"(1,)", b"(-1, 5)", b"(2.0, 5)", b"(9**9, 5)", b"(,)"):
        start = content.index(b"(")
        corrupt = content[:start] + shape + content[content.index(b")") + 1 :]
        assert "rows_0" in refused(crafted.with_part(data, "rows_0.npy", corrupt))


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
    header, arrays = crafted.opened(data)
    for array in arrays:
        rest_of = {part: content for part, content in arrays.items() if part != array}
        assert array in refused(compact.write(header, rest_of))
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
    target = io.BytesIO(crafted.packed(crafted.members(data)))
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(target, "a") as archive:
        archive.writestr("rows_0.npy", b"")
    assert "twice" in refused(target.getvalue())


def test_a_header_without_bottom_is_refused() -> None:
    data = crafted.stored("bocd")
    assert "JSON" in refused(crafted.with_part(data, "header.json", b"[" * 100_000))
    digits = b'{"magic": ' + b"9" * 10_000 + b"}"
    assert "JSON" in refused(crafted.with_part(data, "header.json", digits))
    for text in (b"[" * 100_000, digits):
        assert "JSON" in refused(crafted.sealed(text))


def test_the_state_of_another_release_is_refused_by_name() -> None:
    data = crafted.stored("bocd")
    assert "newer" in refused(crafted.with_header(data, lambda h: h.update(state=2)))
    assert "garbles the state" in refused(crafted.with_header(data, lambda h: h.update(state="2")))
    content = snapshot.read(data)._replace(state=1)
    with pytest.raises(
        rk.SnapshotError, match=r"regimekit 0\.1 wrote.*Read it with regimekit 0\.1"
    ):
        content.check_state(2)


def test_a_snapshot_of_the_first_release_loads() -> None:
    """0.1.0 wrote no version of the state."""
    data = crafted.stored("bocd")
    first = crafted.members(crafted.with_header(data, lambda h: h.pop("state")))
    assert rk.from_bytes(crafted.packed(first)).to_bytes() == data


def test_a_large_array_of_format_2_is_read() -> None:
    array = np.random.default_rng(0).standard_normal(10_000)
    planes = array.view(np.uint8).reshape(-1, 8).T.tobytes()
    deflated = zlib.compress(planes)
    table = {"arrays": {}, "large": [["a", "f8", len(deflated), [10_000]]]}
    data = crafted.sealed(json.dumps(table).encode(), behind=deflated, version=2)
    np.testing.assert_array_equal(compact.read(data)[1]["a"], array)


def test_a_model_too_large_to_be_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    model = rk.from_bytes(crafted.stored("bocd"))
    monkeypatch.setattr(snapshot, "LARGEST", 100)
    with pytest.raises(rk.RegimekitError, match="bytes"):
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
        model = rk.from_bytes(bytes(damaged))
    except rk.SnapshotError as error:
        assert str(error)
    else:
        assert model.to_bytes() == whole


def test_memory_is_measured() -> None:
    """The yardstick of the bombs sees an allocation when there is one."""
    assert cost_of(lambda: len(b"1" * 50_000_000)) > 45
