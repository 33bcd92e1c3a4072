"""Advice says what a changed program then needs."""

from __future__ import annotations

import re

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.plan import plan
from shardwise.planner import LEAST_TIME
from shardwise.sharding import AbstractMesh, AxisType, P
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
    (advice,) = (a for a in before.advice if a.change.startswith("Donate"))
    assert "Donate params (" in advice.change
    assert advice.nbytes == before.peak - after.peak > 0
    assert f"to {after.peak / 2**30:.2f} GiB" in advice.effect
    assert not any(a.change.startswith("Donate") for a in after.advice)


def test_what_is_whole_over_an_axis_is_to_be_split():
    before, after = planned(None, "model", donated=0), planned("data", "model", donated=0)
    advice = next(a for a in before.advice if a.change.startswith("Split"))
    assert re.match(r"Split dim 0 of params\['w'\] over 'data'", advice.change)
    assert advice.nbytes == before.peak - after.peak > 0
    assert f"to {after.peak / 2**30:.2f} GiB, a step takes " in advice.effect and "estimated" not in advice.effect


def test_programs_that_cannot_be_laid_out_anew_have_estimates():
    typed = AbstractMesh((4, 2), ("data", "model"), axis_types=(AxisType.Explicit,) * 2)
    w = jax.ShapeDtypeStruct((WIDTH, WIDTH), jnp.float32, sharding=NS(typed, P(None, "model")))
    (advice,) = plan(lambda w: jnp.sum(jnp.sin(w)), w, on="v5e-8").advice
    assert re.match(r"Split dim 0 of w over 'data'", advice.change) and advice.effect.startswith("estimated: ")
    assert advice.nbytes == WIDTH * WIDTH * 4 // 2 * 3 // 4


def test_values_laid_out_anew_at_a_price_are_named_with_their_line():
    def clashing(a, b):
        x = jnp.sin(a) + 1.0
        return x * b  # rows there, columns here

    shape = (WIDTH, WIDTH)
    found = plan(clashing, struct(shape, ("data", "model")), struct(shape, None, ("data", "model")), on="v5e-8")
    advice = next(a for a in found.advice if a.change.startswith("Lay out"))
    assert "all_to_all over data, model" in advice.change and "mul" in advice.change
    assert advice.source == (__file__, clashing.__code__.co_firstlineno + 2)
    assert LEAST_TIME * found.seconds.likely < advice.seconds <= found.seconds.likely
    assert "estimated: up to " in advice.effect


def test_arguments_gathered_where_they_are_needed_are_meant_to_be():
    typed = AbstractMesh((8,), ("data",), axis_types=(AxisType.Explicit,))
    x = jax.ShapeDtypeStruct((2**14, 4096), jnp.bfloat16, sharding=NS(typed, P("data")))
    w = jax.ShapeDtypeStruct((4096, 16, 256), jnp.bfloat16, sharding=NS(typed, P(None, "data")))
    found = plan(lambda x, w: jnp.einsum("bd,dhk->bhk", x, w, out_sharding=NS(typed, P("data"))), x, w, on="v5e-8")
    (gather,) = found.traffic
    assert gather.kind == "all_gather" and gather.implicit and "@data" in gather.value
    assert not any(a.change.startswith("Lay out") for a in found.advice)


def test_gathers_in_float32_could_be_bfloat16():
    def casts(dtype):
        args = {"w": struct((WIDTH, WIDTH), "data", "model")}, struct((1024, WIDTH), "data")
        args = jax.tree.map(lambda v: jax.ShapeDtypeStruct(v.shape, dtype, sharding=v.sharding), args)
        return [a for a in plan(step, *args, on="v5e-8").advice if a.change.startswith("Cast")]

    (advice,) = casts(jnp.float32)
    assert re.match(r"Cast f32\[1024,16384\] to bfloat16 before dot_general", advice.change)
    assert advice.source == (__file__, step.__code__.co_firstlineno + 1) and advice.seconds > 0
    assert casts(jnp.bfloat16) == []


def test_small_things_are_not_worth_a_line():
    x = struct((64, 64))
    assert plan(lambda x: x + 1, x, on="v5e-8").advice == ()
