"""Structures of trees in the bytes that JAX's checkpoints keep them in.

In: a structure as plain data (`tree_data`). Out: one FlatBuffers table per node, and back. A table begins with the way to its vtable, which
tells where its fields stand. Texts, lists and tables are named by their distance from the field, which is positive: parents come before
children. Source: "FlatBuffer Internals" of flatbuffers.dev, and the fields of JAX's `PyTreeDef`: kind, children, names of children, name of
a class, bytes of a class.
"""

from __future__ import annotations

import base64
import struct
from typing import Any, Final

_KINDS: Final = ("*", "NoneType", "tuple", "list", "dict", "node")  # the numbers of kinds are the places here
_VTABLE: Final = struct.Struct("<7H")  # its own size, that of the table, and where the five fields stand
_TABLE: Final = struct.Struct("<ib3x4I")  # the way back to the vtable, the kind, and the distances of four fields
_FIELDS: Final = (8, 12, 16, 20)  # where these distances stand in the table
_NUMBER: Final = struct.Struct("<I")


def tree_as_bytes(data: Any) -> bytes:
    """The bytes of a tree that is given as plain data.

    Raises:
        TypeError: a dict has keys that are no texts.
    """
    out = bytearray(_NUMBER.size)
    _NUMBER.pack_into(out, 0, _write(out, data))
    return bytes(out)


def tree_of_bytes(data: bytes) -> Any:
    """The plain data of a tree that is given as bytes.

    Raises:
        ValueError: the bytes are no tree.
    """
    try:
        return _read(data, _number(data, 0))
    except (struct.error, IndexError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(
            "the bytes hold no structure of a tree: the file is cut off, or another program wrote it."
        ) from error


def _write(out: bytearray, data: Any) -> int:
    """Append a node and what it refers to; where its table stands."""
    kind, children, *own = ("*", []) if data == "*" else data
    names = [_key(k) for k in own[0]] if kind == "dict" else []
    present_fields = (bool(children), bool(names), kind == "node", kind == "node")
    fields = [place if present else 0 for place, present in zip(_FIELDS, present_fields, strict=True)]
    _align(out)
    vtable = len(out)
    out += _VTABLE.pack(_VTABLE.size, _TABLE.size, 4, *fields) + b"\0\0"
    table = len(out)
    out += _TABLE.pack(table - vtable, _KINDS.index(kind), 0, 0, 0, 0)
    if children:
        _refer(out, table + _FIELDS[0], _list(out, children, _write))
    if names:
        _refer(out, table + _FIELDS[1], _list(out, names, _text))
    if kind == "node":
        name, content = own
        _refer(out, table + _FIELDS[2], _text(out, name.encode()))
        _refer(out, table + _FIELDS[3], _text(out, base64.b64decode(content)))
    return table


def _key(key: Any) -> bytes:
    if not isinstance(key, str):
        raise TypeError(
            f"checkpoints keep dicts whose keys are texts, and one is {key!r} of {type(key)}. Use texts as keys."
        )
    return key.encode()


def _list(out: bytearray, items: list[Any], write: Any) -> int:
    _align(out)
    start = len(out)
    out += _NUMBER.pack(len(items)) + bytes(4 * len(items))
    for i, item in enumerate(items):
        _refer(out, start + 4 * (i + 1), write(out, item))
    return start


def _text(out: bytearray, text: bytes) -> int:
    _align(out)
    start = len(out)
    out += _NUMBER.pack(len(text)) + text + b"\0"
    return start


def _align(out: bytearray) -> None:
    out += bytes(-len(out) % 4)


def _refer(out: bytearray, field: int, target: int) -> None:
    _NUMBER.pack_into(out, field, target - field)


def _number(data: bytes, place: int) -> int:
    return _NUMBER.unpack_from(data, place)[0]


def _read(data: bytes, table: int) -> Any:
    vtable = table - struct.unpack_from("<i", data, table)[0]

    def field(number: int) -> int | None:
        """Where a field of the table stands, if it has it."""
        place = 4 + 2 * number
        if place >= struct.unpack_from("<H", data, vtable)[0]:
            return None
        offset = struct.unpack_from("<H", data, vtable + place)[0]
        return table + offset if offset else None

    kind_field = field(0)
    kind = _KINDS[data[kind_field] if kind_field is not None else 0]
    if kind == "*":
        return kind
    children = [_read(data, place) for place in _items(data, field(1))]
    if kind == "dict":
        return [kind, children, [_content(data, place).decode() for place in _items(data, field(2))]]
    if kind != "node":
        return [kind, children]
    name, content = (
        b"" if place is None else _content(data, place + _number(data, place)) for place in (field(3), field(4))
    )
    return [kind, children, name.decode(), base64.b64encode(content).decode()]


def _items(data: bytes, field: int | None) -> list[int]:
    """Where the items of the list that a field refers to stand."""
    if field is None:
        return []
    start = field + _number(data, field)
    count = _number(data, start)
    if 4 * count > len(data):
        raise IndexError("a list is longer than the bytes")
    return [place + _number(data, place) for place in range(start + 4, start + 4 * (count + 1), 4)]


def _content(data: bytes, start: int) -> bytes:
    size = _number(data, start)
    if start + 4 + size > len(data):
        raise IndexError("a text is longer than the bytes")
    return data[start + 4 : start + 4 + size]
