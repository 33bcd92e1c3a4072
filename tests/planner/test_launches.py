"""Kernels that a GPU runs besides those of groups."""

from __future__ import annotations

from dataclasses import replace

import pytest

import shardwise.numpy as jnp
from shardwise import lax
from shardwise.planner.fuse import groups
from shardwise.planner.launches import before_trips, between_trips, more_kernels
from shardwise.planner.machines import find
from shardwise.planner.target import GPU
from tests.planner.device_programs import array, device_program, program_of

H100, V5P = find("h100-1").chip, find("v5p-8").chip
KERNEL = H100.overhead
REDUCTIONS = {"all": (jnp.sum, 1), "rows": (lambda x: x.sum(1), 0), "columns": (lambda x: x.sum(0), 1)}


@pytest.mark.parametrize("case", REDUCTIONS)
def test_reductions_in_two_kernels(case):
    f, count = REDUCTIONS[case]
    equations = program_of(lambda x: [f(x)], array(64, 64)).equations
    assert more_kernels(equations, H100) == count * KERNEL
    assert more_kernels(equations, V5P) == 0


def test_a_loop_counts_its_trips_copies_its_carries_and_fills_its_stacks():
    def f(x):
        return list(lax.scan(lambda x, _: (jnp.roll(x, 1) + x, x), x, None, 5))

    (loop,) = groups(device_program(f, array(1 << 20)), GPU)
    moved = 2 * 4 * (1 << 20) / (0.9 * H100.hbm_bandwidth)
    assert between_trips(loop, H100) == pytest.approx(moved + 2 * KERNEL)
    assert between_trips(replace(loop, carried=0), H100) == KERNEL
    assert before_trips(loop, H100) == pytest.approx(2.5 * moved + KERNEL)
    assert between_trips(loop, V5P) == 0 == before_trips(replace(loop, filled=0), H100)
