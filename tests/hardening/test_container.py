"""What a snapshot claims is compared with limits before it costs anything."""

from __future__ import annotations

import json
import tracemalloc
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
from regimekit.serialization import container, snapshot


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
def test_a_bomb_is_not_decompressed(place: str) -> None:
    """60 MB in 60 kB: an unknown array, one of another shape, the text of the header."""
    header, _ = crafted.opened(crafted.stored("bocd"))
    blanks = b" " * 60_000_000
    if place == "header":
        data = crafted.sealed(json.dumps(header).encode() + blanks)
    else:
        name = "bomb" if place == "unknown" else "rows_0"
        content = zlib.compress(blanks, 9)
        data = crafted.with_entry(crafted.stored("bocd"), name, "f8", content, [7_500_000])
    assert len(data) < 100_000
    words = {"unknown": "bomb", "known": "rows_0", "header": "at most"}
    assert words[place] in refused_cheaply(data)


def test_wrong_sizes_are_refused() -> None:
    header, _ = crafted.opened(crafted.stored("bocd"))
    text = json.dumps(header | {"arrays": {}}).encode()
    for claims in (
        {"header": 2**31},
        {"header": 2**23},
        {"header": len(text) - 1},
        {"packed": 10},
        {"packed": 2**31},
    ):
        assert refused_cheaply(crafted.sealed(text, **claims))
    whole = crafted.stored("bocd")
    assert "truncated" in refused(whole + b"more")
    for version in (0, 1, 2, 3, container.FORMAT + 1):
        assert "format" in refused(whole[:9] + bytes([version]) + whole[10:])


def test_snapshots_of_earlier_versions_are_refused_by_name() -> None:
    assert "0.2 and earlier" in refused(b"PK\x03\x04 a zip file")


def test_every_array_has_a_checksum() -> None:
    array = np.random.default_rng(0).standard_normal(10_000)
    data = bytearray(container.write({}, {"a": array}))
    assert container.read(bytes(data))[1]["a"].tobytes() == array.tobytes()
    data[-30_000] ^= 1
    with pytest.raises(rk.SnapshotError, match="truncated or damaged"):
        container.read(bytes(data))[1]["a"]


@pytest.mark.parametrize(
    "table",
    [
        None,
        [],
        {"a": []},
        {"a": 3},
        {"a": {}},
        {"a": ["c16", 9, 1]},
        {"a": ["x", 9, 1]},
        {"a": [8, 9, 1]},
        {"a": ["f8", 9, -1]},
        {"a": ["f8", 9, 1.5]},
        {"a": ["f8", 9, True]},
        {"a": ["f8", 9, [1]]},
        {"a": ["f8", 9, 10**12]},
        {"a": ["f8", 9, 2**31, 2]},
        {"a": ["f8", 9, *[1] * 40]},
        {"a": ["f8", 0, 1]},
        {"a": ["f8", -1, 1]},
        {"a": ["f8", 10, 1]},
        {"a": ["f8", 8, 1]},
        {str(n): ["f8", 1, 0] for n in range(2000)},
    ],
)
def test_corrupt_tables_raise_an_error(table: Any) -> None:
    header, _ = crafted.opened(crafted.stored("bocd"))
    text = json.dumps(header | {"arrays": table}).encode()
    assert refused_cheaply(crafted.sealed(text, b"123456789"))
    assert refused_cheaply(crafted.sealed(text))


def test_a_claimed_size_costs_nothing() -> None:
    """An entry of a few bytes that claims 400 MB, or more than a snapshot may have."""
    for count in (5 * 10**7, 2**31):
        data = crafted.with_entry(crafted.stored("bocd"), "rows_0", "f8", b"123", [count])
        assert "bytes" in (message := refused_cheaply(data)) or "rows_0" in message


def test_an_array_with_another_length_than_its_shape_raises() -> None:
    data = crafted.stored("bocd")
    array = crafted.array_of(data, "rows_0")
    content = zlib.compress(array.tobytes())
    same = crafted.with_entry(data, "rows_0", "f8", content, array.shape)
    assert rk.from_bytes(same).to_bytes() == data
    longer, shorter = zlib.compress(array.tobytes() + b"1"), zlib.compress(array.tobytes()[1:])
    for corrupt in (longer, shorter, content[:-1], content[:-4], b"plain bytes"):
        changed = crafted.with_entry(data, "rows_0", "f8", corrupt, array.shape)
        assert "rows_0" in refused(changed)


@pytest.mark.parametrize("name", list(REGISTRY))
def test_unknown_arrays_and_values_are_refused(name: str) -> None:
    data = crafted.stored(name)
    assert "'stowaway'" in refused(crafted.with_array(data, "stowaway", np.zeros(2)))
    assert "'stray'" in refused(crafted.with_header(data, lambda h: h["values"].update(stray=1)))


@pytest.mark.parametrize("name", list(REGISTRY))
def test_missing_arrays_and_values_are_named(name: str) -> None:
    data = crafted.stored(name)
    header, arrays = crafted.opened(data)
    for array in arrays:
        rest = {part: content for part, content in arrays.items() if part != array}
        assert array in refused(container.write(header, rest))
    for value in header["values"]:
        message = refused(crafted.with_header(data, lambda h, v=value: h["values"].pop(v)))
        # Without the columns the first x has no names; without their dim statistics are unknown.
        unknown = value == "statistics.dim" and "unknown value 'statistics." in message
        assert value in message or value == "columns" or unknown


@pytest.mark.parametrize("code", ["O", "U3", "c16", "f4", "M8[s]", "V8", "u8", "i1", "b1"])
def test_arrays_of_other_types_are_refused(code: str) -> None:
    data = crafted.stored("bocd")
    array = crafted.array_of(data, "book_log_mass")
    content = zlib.compress(array.tobytes())
    changed = crafted.with_entry(data, "book_log_mass", code, content, array.shape)
    assert "book_log_mass" in refused(changed)


def test_a_header_without_bottom_is_refused() -> None:
    for text in (b"[" * 100_000, b'{"magic": ' + b"9" * 10_000 + b"}", b"{", b"\xff\xfe"):
        assert "JSON" in refused(crafted.sealed(text))
    for text in (b"[1, 2]", b"null"):
        assert "header" in refused(crafted.sealed(text))


def test_the_state_of_another_version_is_refused() -> None:
    data = crafted.stored("bocd")
    assert "newer" in refused(crafted.with_header(data, lambda h: h.update(state=2)))
    assert "earlier" in refused(crafted.with_header(data, lambda h: h.update(state=0)))
    assert "state must be" in refused(crafted.with_header(data, lambda h: h.update(state="2")))


def test_a_model_too_large_to_be_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    model = rk.from_bytes(crafted.stored("bocd"))
    monkeypatch.setattr(snapshot, "MAX_SNAPSHOT_BYTES", 100)
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
