"""Copies before products, updates and loops."""

from __future__ import annotations

import pytest

import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ir import verify
from shardwise.planner.copies import with_copies
from shardwise.planner.fuse import groups
from shardwise.planner.memory import memory_of
from shardwise.planner.target import CPU_XLA, GPU, TPU
from tests.planner.device_programs import array, device_program, names, program_of

BATCH, HEADS = array(4, 64, 32), array(4, 64, 8, 32)
COPY = "convert_element_type"

PRODUCTS = {  # products, the types of their operands, and how many of these are copied
    "matrices": (lambda x, y: [x @ y], [array(64, 32), array(32, 16)], 0),
    "transposed": (lambda x, y: [x.T @ y], [array(32, 64), array(32, 16)], 0),
    "batch": (lambda x, y: [x @ y.swapaxes(1, 2)], [BATCH, BATCH], 0),
    "batch between": (lambda x, y: [jnp.einsum("ibk,bkj->bij", x, y)], [array(5, 4, 32), array(4, 32, 3)], 0),
    "batch last": (lambda x, y: [jnp.einsum("ikb,bkj->bij", x, y)], [array(5, 32, 4), array(4, 32, 3)], 1),
    "heads apart": (lambda q, k: [jnp.einsum("bqhd,bkhd->bhqk", q, k)], [HEADS, HEADS], 2),
    "heads first": (lambda q, k: [jnp.einsum("bhqd,bkhd->bhqk", q, k)], [array(4, 8, 64, 32), HEADS], 1),
    "one of each": (lambda q, k: [jnp.einsum("bqhd,bkhd->bhqk", q, k)], [array(4, 1, 8, 32), HEADS], 0),
    "joined apart": (lambda x, y: [x.swapaxes(1, 2).reshape(4, 256) @ y], [array(4, 32, 8), array(256, 3)], 1),
    "joined side by side": (lambda x, y: [x.reshape(4, 256) @ y], [array(4, 32, 8), array(256, 3)], 0),
    "bytes": (
        lambda x, y: [lax.dot(x, y, preferred_element_type="int32")],
        [array(64, 32, dtype="int8"), array(32, 16, dtype="int8")],
        1,
    ),
}


def copies(program):
    return [e.op.name for e in program.equations].count(COPY)


@pytest.mark.parametrize("case", PRODUCTS)
def test_operands_that_are_no_matrices_are_copied(case):
    f, types, count = PRODUCTS[case]
    program = program_of(f, *types)
    assert copies(verify(with_copies(program, GPU))) == count
    assert with_copies(program, TPU) is program


def test_a_copy_is_part_of_the_kernel_that_makes_the_operand():
    found = groups(device_program(lambda q, k: [jnp.einsum("bqhd,bkhd->bhqk", jnp.exp(q), k)], HEADS, HEADS), GPU)
    assert [names(g) for g in found] == [["exp", COPY], [COPY], ["dot_general"]]


def test_an_operand_of_several_products_is_copied_once():
    def f(q, k):
        return [jnp.einsum("bqhd,bkhd->bhqk", q, k), jnp.einsum("bqhd,bkhd->bhqk", k, q)]

    assert copies(with_copies(program_of(f, HEADS, HEADS), GPU)) == 2


@pytest.mark.parametrize(("donated", "count"), [((), 1), ((0,), 0)])
def test_what_an_update_would_write_over_is_copied(donated, count):
    program = device_program(
        lambda x, i, y: [x.at[i].add(y)], array(999), array(7, dtype="int32"), array(7), donated=donated
    )
    found = groups(program, GPU)
    assert sum(names(g) == [COPY] for g in found) == count
    assert memory_of(program, found, GPU).temporaries < 999 * 4  # the copy lies where the result will


def body(f, *types):
    (loop,) = [g for g in groups(device_program(f, *types), GPU) if g.body]
    return loop


def test_entries_for_products_are_cut_out_and_those_of_products_written_afterwards():
    def f(x, weights):
        def step(x, w):
            y = x @ w
            return jnp.tanh(y), y

        return list(lax.scan(step, x, weights))

    loop = body(f, array(64, 64), array(5, 64, 64))
    assert [names(g) for g in loop.body] == [[COPY], ["dot_general"], ["tanh", COPY]]
    assert loop.filled == 5 * 64 * 64 * 4


def test_entries_that_one_kernel_reads_are_read_where_they_lie():
    loop = body(lambda x, ws: [lax.scan(lambda x, w: (jnp.sin(x) * w, None), x, ws)[0]], array(64), array(5, 64))
    assert [names(g) for g in loop.body] == [["sin", "mul"]]
    assert loop.filled == 0


CARRIES = {  # a step from two carries to two, and how many of 64 float32 are copied in each trip
    "in place": (lambda x, y: (x + y, y), 0),
    "elsewhere": (lambda x, y: (x + jnp.roll(x, 1), y), 1),
    "shifted": (lambda x, y: (y, x + y), 1),
}


@pytest.mark.parametrize("case", CARRIES)
def test_carries_that_are_made_elsewhere_are_copied(case):
    step, count = CARRIES[case]

    def f(x, y):
        return list(lax.fori_loop(0, 9, lambda _, xy: step(*xy), (x, y)))

    assert body(f, array(64), array(64)).carried == count * 64 * 4


def test_convolutions_with_uneven_pads_copy_their_images():
    def f(x, k):
        return [lax.conv(x, k, (2, 2), "SAME"), lax.conv(x, k, (1, 1), "SAME")]

    assert copies(with_copies(program_of(f, array(1, 3, 8, 8), array(4, 3, 3, 3)), GPU)) == 1


def test_other_targets_copy_nothing():
    program = program_of(lambda q, k: [jnp.einsum("bqhd,bkhd->bhqk", q, k)], HEADS, HEADS)
    assert with_copies(program, CPU_XLA) is program
