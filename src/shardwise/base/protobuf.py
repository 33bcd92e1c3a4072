"""Protocol buffers' wire format, as far as the files need it that profilers and simulators read."""

from __future__ import annotations

from collections.abc import Iterable


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


def numbers(tag: int, values: Iterable[int]) -> bytes:
    """A repeated field of numbers, packed."""
    return block(tag, b"".join(map(varint, values)))
