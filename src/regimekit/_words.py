"""NamedTuples of arrays, handed to kernels as one pointer.

Kernels that take dozens of arrays by value compile slowly and are slow to call. A *reference* is
a row of 64-bit words: for each array where its data lie, its shape and its strides; for each number
the number. Python writes the words once, and kernels read fields by their names as
they would from the NamedTuple; a NamedTuple inside is a reference again, further along the row.
Arrays are borrowed: whoever keeps the reference keeps them, and kernels count nothing.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numba import extending as _extending
from numba import typeof as _typeof
from numba.core import cgutils as _cgutils
from numba.core import config as _config
from numba.core import types as _types
from numba.core.typing.templates import AttributeTemplate as _AttributeTemplate
from numba.np.arrayobj import populate_array as _populate_array

cgutils: Any = _cgutils
config: Any = _config
extending: Any = _extending
types: Any = _types
typeof: Any = _typeof
populate_array: Any = _populate_array
attribute_template: Any = _AttributeTemplate
_POINTERS: dict[Any, Pointer] = {}
_RANDOM = ("state_address", "state", "next_uint64", "next_uint32", "next_double", "bit_generator")


class Reference:
    """The words of a NamedTuple, and the NamedTuple itself so that its arrays stay."""

    __slots__ = ("address", "kept", "kind", "words")

    def __init__(self, value: Any) -> None:
        self.kept, self.kind = value, _pointer_to(value)
        self.words = np.array(list(_words(value)), np.int64)
        self.address = self.words.__array_interface__["data"][0]


def reference(value: Any) -> Any:
    """A NamedTuple as kernels take it: the same fields, by one pointer."""
    return value if config.DISABLE_JIT else Reference(value)


def _pointer_to(value: Any) -> Pointer:
    """The type of a reference; Numba takes long to tell it, so it is asked once for each form."""
    form = _form(value)
    if form not in _POINTERS:
        _POINTERS[form] = Pointer(typeof(value))
    return _POINTERS[form]


def _form(value: Any) -> Any:
    """All that the type of a value depends on."""
    if isinstance(value, tuple):
        return type(value), *map(_form, value)
    if isinstance(value, np.ndarray):
        return value.dtype, value.ndim, value.flags.c_contiguous, value.flags.writeable
    return value.kind if isinstance(value, Reference) else type(value)


def _words(value: Any) -> Iterator[int]:
    """The words of a value, in the order of `_size` and `_load`."""
    if isinstance(value, tuple):
        for part in value:
            yield from _words(part)
    elif isinstance(value, np.ndarray):
        yield value.__array_interface__["data"][0]
        yield from value.shape
        yield from value.strides
    elif isinstance(value, np.random.Generator):
        yield from _random_words(value.bit_generator.ctypes)
    elif isinstance(value, Reference):
        yield value.address
    elif isinstance(value, float):
        yield int(np.float64(value).view(np.int64))
    else:
        yield int(value)


def _random_words(interface: Any) -> Iterator[int]:
    for name in _RANDOM:
        part = getattr(interface, name)
        yield part if isinstance(part, int) else ctypes.cast(part, ctypes.c_void_p).value or 0


class Pointer(types.Type):
    """The type of a reference to a NamedTuple of type `kind`."""

    def __init__(self, kind: Any) -> None:
        self.kind, self.instance_class = kind, kind.instance_class
        digest = hashlib.sha256(str(kind).encode()).hexdigest()[:16]  # full names are pages long
        super().__init__(f"Pointer({kind.instance_class.__name__}, {digest})")

    def field(self, name: str) -> tuple[int, Any]:
        """How many words are before a field, and its type."""
        at = self.kind.fields.index(name)
        return sum(_size(kind) for kind in self.kind.types[:at]), self.kind.types[at]


def _size(kind: Any) -> int:
    """How many words a value of this type takes."""
    if isinstance(kind, types.Array):
        return 1 + 2 * int(kind.ndim)
    if isinstance(kind, types.BaseTuple):
        return sum(_size(part) for part in kind.types)
    return len(_RANDOM) if isinstance(kind, types.NumPyRandomGeneratorType) else 1


def _kind(value: Reference, context: Any) -> Any:
    return value.kind


@extending.register_model(Pointer)
class _PointerModel(extending.models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, cgutils.intp_t.as_pointer())


def _unbox(kind: Any, value: Any, c: Any) -> Any:
    address = c.pyapi.object_getattr_string(value, "address")
    native = c.unbox(types.uintp, address).value
    c.pyapi.decref(address)
    return extending.NativeValue(c.builder.inttoptr(native, cgutils.intp_t.as_pointer()))


@extending.infer_getattr
class _Fields(attribute_template):
    key = Pointer

    def generic_resolve(self, pointer: Any, name: str) -> Any:
        if name not in pointer.kind.fields:
            return None
        _, kind = pointer.field(name)
        return Pointer(kind) if isinstance(kind, types.NamedTuple) else kind


def _read(context: Any, builder: Any, pointer: Any, words: Any, name: str) -> Any:
    before, kind = pointer.field(name)
    place = _along(builder, words, before)
    return place if isinstance(kind, types.NamedTuple) else _load(context, builder, kind, place)


def _along(builder: Any, words: Any, n: int) -> Any:
    return builder.gep(words, [cgutils.intp_t(n)], inbounds=True)


def _load(context: Any, builder: Any, kind: Any, words: Any) -> Any:
    """The value of this type that begins with the word at `words`."""
    native = context.get_value_type(kind)
    if isinstance(kind, types.Array):
        return _load_array(context, builder, kind, words)
    if isinstance(kind, types.NumPyRandomGeneratorType):
        return _load_random(context, builder, kind, words)
    if isinstance(kind, types.BaseTuple):
        parts, at = [], 0
        for part in kind.types:
            parts.append(_load(context, builder, part, _along(builder, words, at)))
            at += _size(part)
        return context.make_tuple(builder, kind, parts)
    if isinstance(kind, (types.Float, Pointer)):
        return builder.load(builder.bitcast(words, native.as_pointer()))
    word = builder.load(words)
    return word if native == word.type else builder.trunc(word, native)


def _load_array(context: Any, builder: Any, kind: Any, words: Any) -> Any:
    """A borrowed array: nobody owns it, so nobody counts who uses it."""
    read = [builder.load(_along(builder, words, at)) for at in range(_size(kind))]
    array = context.make_array(kind)(context, builder)
    populate_array(
        array,
        data=builder.inttoptr(read[0], context.get_data_type(kind.dtype).as_pointer()),
        shape=cgutils.pack_array(builder, read[1 : 1 + kind.ndim]),
        strides=cgutils.pack_array(builder, read[1 + kind.ndim :]),
        itemsize=context.get_constant(types.intp, kind.dtype.bitwidth // 8),
        meminfo=None,
    )
    return array._getvalue()


def _load_random(context: Any, builder: Any, kind: Any, words: Any) -> Any:
    """A random generator: where its state lies, and which functions draw from it."""
    generator = cgutils.create_struct_proxy(kind)(context, builder)
    inner = cgutils.create_struct_proxy(types.NumPyRandomBitGeneratorType("bit_generator"))
    bits = inner(context, builder)
    for at, name in enumerate(_RANDOM):
        field = f"fnptr_{name}" if name.startswith("next") else name
        setattr(bits, field, builder.load(_along(builder, words, at)))
    generator.bit_generator = bits._getvalue()
    return generator._getvalue()


extending.typeof_impl.register(Reference)(_kind)
extending.unbox(Pointer)(_unbox)
extending.lower_getattr_generic(Pointer)(_read)
