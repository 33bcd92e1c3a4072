"""Advice says what a changed program then needs."""

from __future__ import annotations

import re

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.plan import plan
from shardwise.sharding import AbstractMesh, P
from shardwise.sharding import NamedSharding as NS

MESH = AbstractMesh((4, 2), ("data", "model"))
WIDTH = 16384


def struct(shape, *spec):
    return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NS(MESH, P(*spec)))


def step(params, x):
    grads = jax.grad(lambda p: jnp.sum(jnp.tanh(x @ p["w"])))(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)


def planned(*spec, donated=()):
    params = {"w": struct((WIDTH, WIDTH), *spec)}
    return plan(jax.jit(step, donate_argnums=donated), params, struct((1024, WIDTH), "data"), on="v5e-8")


def test_what_results_replace_is_to_be_donated():
    before, after = planned("data", "model"), planned("data", "model", donated=0)
    (advice,) = before.advice
    assert "Donate params (" in advice.change
    assert advice.nbytes == before.peak - after.peak > 0
    assert f"to {after.peak / 2**30:.2f} GiB" in advice.effect
    assert after.advice == ()


def test_what_is_whole_over_an_axis_is_to_be_split():
    (advice,) = planned(None, "model", donated=0).advice
    assert re.match(r"Split dim 0 of params\['w'\] over 'data'", advice.change)
    assert advice.nbytes == WIDTH * WIDTH * 4 // 2 * 3 // 4
    whole = planned(None, "model", donated=0).arguments - planned("data", "model", donated=0).arguments
    assert advice.nbytes == whole


def test_small_things_are_not_worth_a_line():
    x = struct((64, 64))
    assert plan(lambda x: x + 1, x, on="v5e-8").advice == ()
