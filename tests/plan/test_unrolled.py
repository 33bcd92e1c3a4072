"""Layers that follow each other in a program share what is worked out for one of them, and nothing of the plan tells."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.plan import on
from shardwise.planner.device_program import device_program_of
from shardwise.planner.plan import make_plan
from shardwise.planner.target import for_chip
from shardwise.sharding import Mesh, P
from shardwise.sharding import NamedSharding as NS

LAYERS = 4
SPECS = {"up": P("data", "model"), "down": P("model", "data")}


def summed_parts(x):
    """Each device's own rows through a loop."""
    return lax.scan(lambda c, row: (c + jnp.tanh(row), c * row), jnp.zeros_like(x[0]), x)[1]


def layer(x, w, mesh):
    pinned = lax.with_sharding_constraint(x, NS(mesh, P("data")))
    local = jax.shard_map(summed_parts, mesh=mesh, in_specs=P("data", "model"), out_specs=P("data", "model"))
    return x + local(jnp.tanh(pinned @ w["up"]) @ w["down"])


def planned(shares: bool, policy):
    """The device program and the plan of a training step whose layers share their function, or have one each."""

    def loss(weights, x):
        one = jax.checkpoint(partial(layer, mesh=mesh), policy=policy)
        for w in weights:
            x = one(x, w) if shares else jax.checkpoint(partial(layer, mesh=mesh), policy=policy)(x, w)
        return jnp.sum(x * x)

    with on("v5e-16") as run:
        mesh = Mesh(np.array(jax.devices()).reshape(4, 4), ("data", "model"))
        at = lambda shape, spec: jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NS(mesh, spec))  # noqa: E731
        weights = [{k: at((1024, 1024), s) for k, s in SPECS.items()} for _ in range(LAYERS)]
        lowered = jax.jit(jax.value_and_grad(loss)).lower(weights, at((512, 1024), P("data")))
    program = device_program_of(lowered._entry.executable, for_chip(run.machine.chip))
    return program, make_plan(program, run.machine)


POLICIES = [None, jax.checkpoint_policies.dots_saveable, jax.checkpoint_policies.everything_saveable]


@pytest.mark.parametrize("policy", POLICIES)
def test_layers_with_one_function_are_planned_as_layers_with_one_each(policy):
    (shared, plan), (own, expected) = [planned(shares, policy) for shares in (True, False)]
    assert str(shared.program) == str(own.program)
    assert replace(plan, planning_seconds=0.0) == replace(expected, planning_seconds=0.0)
    assert plan.seconds.likely > 0
