"""Values along dims of few elements, of which slices are read apart: the equations that the pass makes, and that no bit changes."""

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.ir import ShapedArray, live_equations, trace_program, verify
from shardwise.passes.dims_apart import with_dims_apart
from shardwise.runtime.env import Env
from shardwise.runtime.machine import llvm

pytestmark = pytest.mark.skipif(not llvm.available(), reason="no compiler for fused loops")

N = 1 << 13
POINTS = np.random.default_rng(0).normal(size=(N, 3)).astype(np.float32)
POINTS[:4] = [[np.nan, 1, 2], [np.inf, -np.inf, 0], [-0.0, -0.0, -0.0], [1e38, 1e38, 1e38]]
ODD = np.array([0, 1, 1], np.uint32)


def passed(f, *args):
    """The equations after the pass."""
    program = trace_program(lambda *a: [f(*a)], [ShapedArray(a.shape, a.dtype) for a in args])[0]
    program = with_dims_apart(live_equations(program), Env())
    verify(program, after="dims_apart")
    return program.equations


def hashed(p):
    c = jnp.floor(p * 16).astype(jnp.int32).astype(jnp.uint32) + ODD
    return c[:, 0] ^ (c[:, 1] * np.uint32(2654435761)) ^ (c[:, 2] * np.uint32(805459861))


def weighed(p):
    w = p - jnp.floor(p)
    return jnp.prod(jnp.where(ODD == 1, w, 1 - w), 1) * w[:, 1]


def turned(p):
    a, b, c = (p.T + 1)[:, None] * jnp.arange(4.0)[:, None]
    return a * b + c


def of_columns(p):
    q = jnp.tanh(jnp.stack([p[:, 2], p[:, 0]], 1)[:, None] * p[:, :2, None])  # [n, 2, 2]
    return q[:, 0, 0] * q[:, 1, 1] - q[:, 0, 1] * q[:, 1, 0]


APART = {
    "hash": hashed,
    "weights": weighed,
    "along the first dim": turned,
    "along two dims": of_columns,
    "sum": lambda p: (q := p * p).sum(1) + q[:, 0],
    "sum of -0": lambda p: (q := p * 1).sum(1) * (1 + 0 * q[:, 0]),
    "sum of integers": lambda p: (q := lax.bitcast_convert_type(p, jnp.int32) >> 3).sum(1) + q[:, 1],
    "some of the rows": lambda p: (p * 2)[5::2, 1],
    "a result of one column": lambda p: (p * 2)[:, 1:2],
}


@pytest.mark.parametrize("f", APART.values(), ids=APART)
def test_no_value_has_the_short_dim(f):
    computed = [e for e in passed(f, POINTS) if e.op.emit is not None and not e.op.emit.moves]
    assert computed
    assert not [e for e in computed if set(e.outputs[0].aval.shape) & {2, 3}]
    compiled = np.asarray(jax.jit(f)(POINTS))
    with config.override("shardwise_fused", "off"):
        np.testing.assert_array_equal(compiled.view(np.int32), np.asarray(jax.jit(f)(POINTS)).view(np.int32))


@pytest.mark.parametrize(
    "f",
    [
        lambda p: [(q := p * 2), q[:, 0]],  # a result
        lambda p: (q := p * 2)[:, 0] + jnp.sort(q, 1)[:, 0],  # read as a whole
        lambda p: (q := p * 2)[:, 0] + q[:, :2].sum(1),  # not one by one
        lambda p: (q := p * 2)[:, 0] + q.max(1),
        lambda p: lax.reduce(q := p.astype(jnp.bfloat16) * 2, jnp.bfloat16(0), lax.add, (1,)) + q[:, 0],
        lambda p: (p * 2).sum(1),  # no slices
        lambda p: (p[:64] * 2)[:, 0],  # few elements
        lambda p: (p.reshape(-1, 12) * 2)[:, 0],  # a dim of many
    ],
)
def test_other_values_stay_whole(f):
    program = trace_program(lambda p: jax.tree.leaves(f(p)), [ShapedArray(POINTS.shape, POINTS.dtype)])[0]
    program = live_equations(program)
    assert with_dims_apart(program, Env()) is program
