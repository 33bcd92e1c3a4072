"""Products beside large gathers and scatters, part by part."""

from __future__ import annotations

import dataclasses

from shardwise import lax
from shardwise.planner.fuse import groups
from shardwise.planner.memory import memory_of
from shardwise.planner.rings import PARTS
from shardwise.planner.target import TPU
from tests.planner.device_programs import array, device_program, gathered, names, scattered, varying

X = array(256, 256)
RINGS = dataclasses.replace(TPU, ring_bytes=2**16)
PART = 32 * 256 * 4


def found(f, *types, target=RINGS):
    program = device_program(f, *types)
    kernels = groups(program, target)
    return kernels, memory_of(program, kernels, target)


def test_a_gathered_operand_never_exists():
    (one,), memory = found(lambda x, part: [lax.dot(x, gathered(part, 8))], X, varying(32, 256))
    assert (one.kind, one.rings, names(one)) == ("product", 8, ["all_gather", "dot_general"])
    assert memory.temporaries == PARTS * PART


def test_a_scattered_result_never_exists():
    (one,), memory = found(lambda x: [scattered(lax.dot(x, x), 8)], varying(256, 256))
    assert (one.kind, one.rings, names(one)) == ("product", 8, ["dot_general", "reduce_scatter"])
    assert memory.temporaries == PARTS * PART


def test_small_ones_are_gathered_first():
    kernels, memory = found(lambda x, part: [lax.dot(x, gathered(part, 8))], X, varying(32, 256), target=TPU)
    assert [g.kind for g in kernels] == ["collective", "product"]
    assert memory.temporaries == 8 * PART


def test_so_are_those_of_few_devices():
    kernels, _ = found(lambda x, part: [lax.dot(x, gathered(part, 2))], X, varying(128, 256))
    assert [g.rings for g in kernels] == [1, 1]


def test_a_gathered_value_that_others_read_exists():
    def f(x, part):
        whole = gathered(part, 8)
        return [lax.dot(x, whole), lax.reduce_sum(whole, axes=(0,))]

    kernels, _ = found(f, X, varying(32, 256))
    assert all(g.rings == 1 for g in kernels)
