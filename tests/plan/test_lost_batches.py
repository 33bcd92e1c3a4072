"""A step whose batch meets weights that are split over the same axis: what carries the whole batch is found, and constrained."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ir import ShapedArray, trace_program
from shardwise.plan import advise, plan, search
from shardwise.plan.lost_batches import Pin, with_pins
from shardwise.plan.points import point_of
from shardwise.sharding import AbstractMesh, P
from shardwise.sharding import NamedSharding as NS

MESH = AbstractMesh((4, 2), ("fsdp", "model"))
WIDTH, LAYERS, WORDS = 512, 4, 4096


def language_model(constrain=None, split=("fsdp",), scanned=False, batch=64):
    """A step of a model whose embedding is split along the width, over the axis that splits the tokens."""

    def layer(x, w):
        return x + jnp.tanh(x @ w["up"]) @ w["down"], None

    def loss(params, tokens):
        x = params["words"][tokens]
        if constrain is not None:
            x = lax.with_sharding_constraint(x, NS(MESH, constrain))
        if scanned:
            x, _ = lax.scan(layer, x, params["layers"])
        else:
            for i in range(LAYERS):
                x, _ = layer(x, {k: w[i] for k, w in params["layers"].items()})
        return jnp.mean((x @ params["words"].T) ** 2)

    def step(params, tokens):
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, tokens))

    def at(shape, *spec, dtype=jnp.float32):
        return jax.ShapeDtypeStruct(shape, dtype, sharding=NS(MESH, P(*spec)))

    params = {
        "words": at((WORDS, WIDTH), "model", "fsdp"),
        "layers": {
            "up": at((LAYERS, WIDTH, 4 * WIDTH), None, "fsdp", "model"),
            "down": at((LAYERS, 4 * WIDTH, WIDTH), None, "model", "fsdp"),
        },
    }
    return jax.jit(step, donate_argnums=0), (params, at((batch, 256), split or None, dtype=jnp.int32))


def constraints(advice):
    return [a for a in advice if a.change.startswith("Constrain")]


@pytest.mark.parametrize("scanned", [False, True])
def test_the_constraint_has_the_effect_that_writing_it_has(scanned):
    f, args = language_model(scanned=scanned)
    own = plan(f, *args, on="v5e-8")
    (advice,) = constraints(own.advice)
    assert "gather to P('fsdp')" in advice.change
    assert advice.source is not None and advice.source[0].endswith("test_lost_batches.py")
    f, args = language_model(P("fsdp"), scanned=scanned)
    written = plan(f, *args, on="v5e-8")
    assert not constraints(written.advice)
    assert written.seconds.likely < 0.8 * own.seconds.likely
    assert advice.seconds == pytest.approx(own.seconds.likely - written.seconds.likely, rel=1e-6)
    assert advice.nbytes == pytest.approx(own.peak - written.peak, rel=1e-6)


def test_a_batch_that_no_axis_splits():
    """The batch is split over an axis along which all devices do the same, with the constraint that this needs."""
    f, args = language_model(split=())
    first, *_ = advise(f, args, on="v5e-8")
    assert re.match(r"Split dim 0 of tokens over '(fsdp|model)'", first.change)
    assert first.seconds > 0


def test_a_batch_that_is_kept_needs_nothing():
    f, args = language_model(P(("fsdp",), None, None))
    assert not constraints(advise(f, args, on="v5e-8"))


def test_search_finds_layouts_that_keep_the_batch():
    f, args = language_model()
    found = search(f, args, on="v5e-8", layouts=40, processes=1)
    assert found.own.loses_batch and any("carry all of a split batch" in words for words in found.varied)
    point = point_of(found.step, replace(found.own.layout, keep_batch=True))
    assert point.seconds < 0.8 * found.own.seconds and not point.loses_batch
    code = found.code(point)
    assert "# f32[64,256,512] of gather at test_lost_batches.py" in code
    assert "x = jax.lax.with_sharding_constraint(x, P('fsdp'))" in code


def test_the_value_of_the_last_equation_is_constrained_too():
    program, _ = trace_program(lambda x: [lax.sin(x)], [ShapedArray((8, 4), np.dtype("float32"))])
    (last,) = program.equations[-1].outputs
    changed = with_pins(program, [Pin(last, (("data",), ()), "sin", None)], jax.make_mesh((4,), ("data",)))
    assert [e.op.name for e in changed.equations] == ["sin", "sharding_constraint"]
    assert changed.outputs == changed.equations[-1].outputs
