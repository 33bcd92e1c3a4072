"""Temporaries on the chip."""

from __future__ import annotations

import dataclasses

from shardwise import lax
from shardwise.planner.fuse import groups
from shardwise.planner.machine import Chip
from shardwise.planner.memory import memory_of
from shardwise.planner.target import SCOPED_BYTES, TPU, for_chip
from tests.planner.device_programs import array, device_program

X = array(256, 256)
N = 256 * 256 * 4


def temporaries(f, near_bytes):
    program = device_program(lambda x, spare: f(x), X, X, donated=(1,))
    target = dataclasses.replace(TPU, near_bytes=near_bytes)
    return memory_of(program, groups(program, target), target).temporaries


def chain(x):
    return [lax.dot(lax.dot(lax.dot(x, x), x), x)]


def test_what_is_read_soon_stays_on_the_chip():
    assert temporaries(chain, 0) == 2 * N
    assert temporaries(chain, 2 * N) == 0


def test_as_far_as_there_is_room():
    assert temporaries(chain, N) == 2 * N  # one value may take half of it


def test_what_is_read_late_does_not():
    def f(x):
        kept = lax.dot(x, x)
        y = x
        for _ in range(TPU.near_groups + 2):
            y = lax.dot(y, x)
        return [lax.dot(y, kept)]

    assert temporaries(f, 64 * N) == N


def test_the_room_is_what_kernels_leave_of_the_chips_memory():
    chip = Chip("TPU", "tpu", {}, 1.0, 2**34, 2**34, 1e12, vmem_bytes=2**27)
    assert for_chip(chip).near_bytes == 2**27 - SCOPED_BYTES
    assert for_chip(dataclasses.replace(chip, platform="gpu")).near_bytes == 0
