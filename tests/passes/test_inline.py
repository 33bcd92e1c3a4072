"""Equations that have a simpler form for literal operands take it before layouts are found."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ir import ShapedArray, trace_program
from shardwise.passes.inline import inline_calls
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P


def put(x):
    mesh = Mesh(np.array(sw.devices()[:4]).reshape(2, 2), ("x", "y"))
    return sw.device_put(x, NamedSharding(mesh, P("x", "y")))


def test_a_dynamic_slice_at_known_starts_is_a_slice_and_stays_split():
    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    for starts in ((0, 0), (2, 0), (-3, 0), (9, -9)):
        cut = sw.jit(lambda a: lax.dynamic_slice(a, starts, (4, 8)))  # noqa: B023
        found: Any = cut(put(x))
        assert found.sharding.spec == P("x", "y")
        np.testing.assert_array_equal(found, lax.dynamic_slice(jnp.asarray(x), starts, (4, 8)))
    moving: Any = sw.jit(lambda a, i: lax.dynamic_slice(a, (i, 0), (4, 8)))(put(x), 2)
    assert moving.sharding.spec == P(None, "y")


def test_the_gradient_of_weights_lies_as_the_cotangent_does():
    a = put(np.ones((8, 8), np.float32))
    slope = sw.jit(lambda a, w: sw.grad(lambda w: jnp.sum(jnp.tanh(a @ w)))(w))(a, a)
    assert slope.sharding.spec == P(None, "y")


@pytest.mark.parametrize("calls", [True, False])
def test_equal_params_are_one_object(calls):
    """Later passes know params by their ids."""

    def f(x):
        summed = lambda x: lax.reduce_sum(x, axes=(0,))  # noqa: E731
        inner = (sw.jit(summed) if calls else summed)(x)
        return [inner, lax.reduce_sum(x, axes=(0,)), lax.reduce_sum(x, axes=(1,))]

    program = inline_calls(trace_program(f, [ShapedArray((4, 4), np.dtype("float32"))])[0])
    first, second, other = [e.params for e in program.equations]
    assert first is second
    assert other is not first and other["axes"] == (1,)
