"""Reductions over devices as one collective."""

from __future__ import annotations

import dataclasses

import shardwise.numpy as jnp
from shardwise import lax
from shardwise.planner.fuse import groups
from shardwise.planner.memory import memory_of
from shardwise.planner.target import TPU
from tests.planner.device_programs import device_program, names, scattered, varying

X = varying(256, 256)
N = 256 * 256 * 4


def two_sums(x):
    a = scattered(lax.dot(x, x), 8)
    b = scattered(lax.dot(lax.mul(x, 2.0), x), 8)
    return [lax.exp(a), lax.exp(b)]


def collectives(f, **fields):
    program = device_program(f, X)
    target = dataclasses.replace(TPU, rings_from=0, order="program", asynchronous=False, **fields)
    found = groups(program, target)
    return [names(g) for g in found if g.kind == "collective"], memory_of(program, found, target).temporaries


def test_sums_that_do_not_wait_for_each_other_are_one():
    apart, less = collectives(two_sums)
    one, more = collectives(two_sums, combine_bytes=2 * N)
    assert apart == [["reduce_scatter"], ["reduce_scatter"]]
    assert one == [["reduce_scatter"] * 2]
    assert more > less  # both operands are there


def test_types_that_alternate_are_joined_each():
    def f(x):
        half = lax.convert_element_type(x, jnp.bfloat16)
        return [scattered(lax.dot(y * i, y), 8) for i in (1, 2) for y in (x, half)]

    assert collectives(f, combine_bytes=8 * N)[0] == [["reduce_scatter"] * 2] * 2


def test_up_to_so_many_bytes():
    apart, _ = collectives(two_sums, combine_bytes=N)
    assert len(apart) == 2


def test_not_where_one_waits_for_the_other():
    def f(x):
        a = scattered(lax.dot(x, x), 8)
        return [scattered(lax.dot(x, lax.concatenate([a] * 8, 0)), 8)]

    assert len(collectives(f, combine_bytes=8 * N)[0]) == 2


def test_readers_follow_it():
    program = device_program(two_sums, X)
    target = dataclasses.replace(TPU, rings_from=0, order="program", combine_bytes=2 * N)
    made = set(program.program.inputs)
    for group in groups(program, target):
        assert made.issuperset(group.reads)
        made.update(group.writes)


def test_without_reduce_scatter_each_device_has_the_whole_sum():
    assert collectives(two_sums, scatters=False)[1] > collectives(two_sums)[1]
