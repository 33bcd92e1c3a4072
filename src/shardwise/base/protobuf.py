"""Protocol buffers' wire format, as far as the files need it that profilers and simulators read.

Reading gives the fields of a message in their order: number, and a number, eight or four bytes, or the bytes of a block.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator


def varint(value: int) -> bytes:
    """A number that is not negative, seven bits to a byte."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(tag: int, value: int) -> bytes:
    """A field that holds a number."""
    return varint(tag << 3) + varint(value)


def block(tag: int, value: bytes) -> bytes:
    """A field that holds a message or bytes."""
    return varint(tag << 3 | 2) + varint(len(value)) + value


def text(tag: int, value: str) -> bytes:
    """A field that holds text."""
    return block(tag, value.encode())


def double(tag: int, value: float) -> bytes:
    """A field that holds a float of 64 bits."""
    return varint(tag << 3 | 1) + struct.pack("<d", value)


def numbers(tag: int, values: Iterable[int]) -> bytes:
    """A repeated field of numbers, packed."""
    return block(tag, b"".join(map(varint, values)))


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: tag, and a number, or the bytes of a value with a length or a fixed size. ValueError for other bytes."""
    at = 0
    while at < len(message):
        key, at = _read_varint(message, at)
        tag, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _read_varint(message, at)
            yield tag, value
            continue
        if kind == 2:
            size, at = _read_varint(message, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"no message of protocol buffers: a field of kind {kind} before byte {at}")
        if at + size > len(message):
            raise ValueError(f"no message of protocol buffers: it ends within field {tag}, at byte {len(message)}")
        yield tag, message[at : at + size]
        at += size


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message):
        byte = message[at]
        value |= (byte & 127) << shift
        shift += 7
        at += 1
        if byte < 128:
            return value, at
    raise ValueError(f"no message of protocol buffers: it ends within a number, at byte {at}")
