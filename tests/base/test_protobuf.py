"""Protocol buffers' wire format: what is written is read again."""

from __future__ import annotations

import struct

import pytest

from shardwise.base.protobuf import block, double, fields, number, numbers, text


def test_fields_are_read_as_written():
    message = number(1, 300) + block(2, number(1, 0)) + text(40, "né") + double(5, -0.5) + numbers(6, [1, 2**40])
    message += number(7, 2**64 - 1)
    assert list(fields(message)) == [
        (1, 300), (2, b"\x08\x00"), (40, "né".encode()), (5, struct.pack("<d", -0.5)), (6, b"\x01" + b"\x80\x80\x80\x80\x80\x20"),
        (7, 2**64 - 1),
    ]  # fmt: skip


def test_four_bytes_are_read():
    assert list(fields(b"\x0d\x01\x02\x03\x04" + number(2, 5))) == [(1, b"\x01\x02\x03\x04"), (2, 5)]


@pytest.mark.parametrize("end", range(1, 8))
def test_a_message_that_is_cut_is_none(end: int):
    whole = text(300, "abcde")
    assert len(whole) == 8
    with pytest.raises(ValueError, match="no message"):
        list(fields(whole[:end]))
