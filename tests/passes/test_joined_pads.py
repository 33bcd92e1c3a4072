"""Pads that loops read: the equations that the pass makes, and that no bit changes."""

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.base import config
from shardwise.ir import ShapedArray, live_equations, trace_program, verify
from shardwise.passes.cut_pieces import with_cut_pieces
from shardwise.passes.joined_pads import with_joined_pads
from shardwise.runtime.env import Env
from shardwise.runtime.machine import llvm

pytestmark = pytest.mark.skipif(not llvm.available(), reason="no compiler for fused loops")
P = jax.sharding.PartitionSpec
X = np.random.default_rng(0).normal(size=(128, 320)).astype(np.float32)


def passed(f):
    """The names of the equations after the passes for pads and slices."""
    program = trace_program(lambda x: [f(x)], [ShapedArray(X.shape, X.dtype)])[0]
    for change in (with_joined_pads, with_cut_pieces):
        program = change(program, Env())
        verify(program, after=change.__name__)
    return [e.op.name for e in live_equations(program).equations]


def cross(x):
    p = jnp.pad(x, 1, constant_values=2.0)
    return p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * x


def slopes(x):
    return jax.grad(lambda x: ((x[1:] - x[:-1]) ** 2).sum() + ((x[:, 1:] - x[:, :-1]) ** 3).sum())(x)


def shifted(x):
    return jnp.pad(x[:, 3:], ((0, 0), (1, 2))) * 2 + x


def of_joined(x):
    tall = jnp.concatenate([x[:, -1:], x, x[:, :1]], 1)
    p = jnp.pad(tall, ((1, 1), (0, 0)))
    return p[:-2, 1:-1] + p[2:, 1:-1] + tall[:, :-2] * tall[:, 2:]


def corners(x):
    p = jnp.pad(x, 1)
    return p[2:, 2:] * p[:-2, :-2]


def short_rows(x):
    p = jnp.pad(x.reshape(128, 40, 8), ((0, 0), (1, 1), (0, 0)))
    return p[:, 2:] + p[:, :-2]


def summed(x):
    p = jnp.pad(x, 1)
    return p[2:, 1:-1] * 2 + p.sum()


@pytest.mark.parametrize(
    "f, joined", [(cross, True), (slopes, True), (shifted, True), (of_joined, True)]
    + [(f, False) for f in (corners, short_rows, summed)],
)  # fmt: skip
def test_pads_that_loops_read(f, joined):
    assert ("pad" not in passed(f)) == joined


@pytest.mark.parametrize("spec", [P(), P("x"), P(None, "x"), P("x", "y")])
def test_no_bit_changes(spec):
    mesh = jax.make_mesh((4, 2), ("x", "y"))
    x = jax.device_put(X, jax.NamedSharding(mesh, spec))
    functions = cross, slopes, shifted, of_joined, corners, short_rows
    got = jax.jit(lambda x: [f(x) for f in functions])(x)
    with config.override("shardwise_fused", "off"):
        want = jax.jit(lambda x: [f(x) for f in functions])(x)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
