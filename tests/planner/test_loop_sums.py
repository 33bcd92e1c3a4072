"""Advice to sum over devices behind loops says what the program with that line changed then needs."""

from __future__ import annotations

from typing import Any

import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.plan import plan
from shardwise.sharding import AbstractMesh, P
from shardwise.sharding import NamedSharding as NS

MESH = AbstractMesh((16,), ("data",))
LAYERS, WIDTH, PARTS, ROWS = 4, 2048, 8, 4096


def struct(shape, *spec):
    return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NS(MESH, P(*spec)))


ARGS = struct((LAYERS, WIDTH, WIDTH)), struct((PARTS, ROWS, WIDTH), None, "data")


def loss(w, x):
    return jnp.mean(lax.scan(lambda h, w: (jax.nn.relu(h @ w), None), x, w)[0].astype(jnp.float32) ** 2)


def added(gradient):
    """A step over parts of a batch, whose gradients a loop adds up."""

    def step(w, parts):
        zero = jax.tree.map(jnp.zeros_like, w)
        return lax.scan(lambda g, x: (jax.tree.map(jnp.add, g, gradient(w, x)), None), zero, parts)[0]

    return step


def advised(step) -> tuple[Any, Any]:
    """The advice on sums of a planned step, and the plan."""
    found = plan(jax.jit(step), *ARGS, on="v5p-32")
    return [a for a in found.advice if a.change.startswith("Sum ")], found


def mapped(f):
    return jax.shard_map(f, mesh=MESH, in_specs=(P(), P(None, "data")), out_specs=P())


def own_gradients(w, parts):
    return lax.psum(added(jax.grad(loss))(lax.pcast(w, ("data",), to="varying"), parts), "data")


def same_mean(gradient):
    return lambda w, x: lax.pmean(gradient(lax.pcast(w, ("data",), to="varying"), x), "data")


def mean_behind(w, parts):
    return lax.pmean(added(jax.grad(loss))(lax.pcast(w, ("data",), to="varying"), parts), "data")


CHANGES = {
    "gradients of weights that are the same on all devices": (
        mapped(added(jax.grad(loss))),
        mapped(own_gradients),
        "let the weights vary before the loops (jax.lax.pcast(w, ('data',), to='varying'))",
        LAYERS * PARTS,
    ),
    "means": (
        mapped(added(same_mean(jax.grad(loss)))),
        mapped(mean_behind),
        "add up each device's own part, and psum that",
        PARTS,
    ),
    "sums of the partitioner": (
        added(jax.grad(loss)),
        mapped(own_gradients),
        "jax.shard_map over 'data'",
        LAYERS * PARTS,
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_the_changed_program_takes(name):
    before, after, how, times = CHANGES[name]
    (advice,), old = advised(before)
    none, new = advised(after)
    assert how in advice.change and f"over 'data' once in place of {times} times" in advice.change
    # Weights that vary are other programs: a cast or a copy more.
    assert advice.seconds == pytest.approx(old.schedule.seconds - new.schedule.seconds, rel=0.02)
    assert advice.seconds > old.schedule.seconds / 4 and not none


def test_what_compilers_do_themselves_is_no_advice():
    flat = struct((WIDTH, WIDTH)), ARGS[1]
    step = added(jax.grad(lambda w, x: jnp.mean(jax.nn.relu(x @ w).astype(jnp.float32) ** 2)))
    found = plan(jax.jit(step), *flat, on="v5p-32")
    assert not [a for a in found.advice if a.change.startswith("Sum ")]
    assert [t.trips for t in found.traffic if t.kind == "all_reduce"] == [1]


def test_parts_of_a_cut_axis_have_the_axis_name():
    """The program cuts 'data' in two, for rows that are reshaped."""

    def in_blocks(w, x):
        return loss(w, jax.nn.relu(x.reshape(8, ROWS // 8, WIDTH)).reshape(ROWS, WIDTH))

    (advice,), _ = advised(added(jax.grad(in_blocks)))
    assert "over 'data' once" in advice.change and "('data',)" in advice.change and "data." not in advice.change
