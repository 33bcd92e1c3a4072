"""The bytes that groups move, by which the heaviest branch of a conditional is found."""

from __future__ import annotations

import pytest

import shardwise as jax
from shardwise import lax
from shardwise.planner.executed import executed_groups
from shardwise.planner.fuse import groups
from shardwise.planner.target import CPU_XLA, GPU, TPU
from shardwise.planner.work import moved_bytes
from tests.planner.device_programs import array, device_program, names

X, P = array(512, 512), array(dtype="bool")
TRIPS = 50


def loops(x):
    return lax.fori_loop(0, TRIPS, lambda i, c: lax.tanh(lax.dot(c, x)), x)


def elementwise(x):
    return lax.add(lax.tanh(x), x)


def here(f):
    types = [jax.ShapeDtypeStruct(t.shape, t.dtype) for t in (P, X)]
    executable = jax.jit(f).lower(*types).compile().runtime_executable()  # type: ignore[attr-defined]
    return executed_groups(executable.plan.program, {})


def there(target):
    return lambda f: groups(device_program(lambda *operands: [f(*operands)], P, X), target)


GROUPINGS = {"here": here, "tpu": there(TPU), "gpu": there(GPU), "cpu-xla": there(CPU_XLA)}


@pytest.mark.parametrize("light", [elementwise, lambda x: x], ids=["elementwise", "identity"])
@pytest.mark.parametrize("heavy_first", [True, False])
@pytest.mark.parametrize("where", GROUPINGS)
def test_the_branch_with_a_long_loop_is_the_heaviest(where, heavy_first, light):
    branches = (loops, light) if heavy_first else (light, loops)
    cond = GROUPINGS[where](lambda p, x: lax.cond(p, *branches, x))[-1]
    (loop,) = [g for g in cond.body if g.kind == "loop"]
    assert loop.trips == TRIPS
    assert "dot_general" in [name for g in loop.body for name in names(g)]


@pytest.mark.parametrize("where", GROUPINGS)
def test_a_loop_moves_its_bytes_in_every_trip(where):
    (loop,) = [g for g in GROUPINGS[where](lambda p, x: loops(x)) if g.kind == "loop"]
    assert moved_bytes([loop]) == TRIPS * moved_bytes(loop.body) >= TRIPS * 3 * X.nbytes
