"""Sums of pads with strides: the equations that the pass makes, and that no bit changes."""

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.ir import ShapedArray, trace_program, verify
from shardwise.passes.pad_sums import with_pad_sums
from shardwise.runtime.env import Env

P = jax.sharding.PartitionSpec
X = np.random.default_rng(0).normal(size=(128, 320)).astype(np.float32)
X[:, 3] = -0.0


def passed(f):
    """The names of the equations after the pass."""
    program = trace_program(lambda x: [f(x)], [ShapedArray(X.shape, X.dtype)])[0]
    program = with_pad_sums(program, Env())
    verify(program, after="pad_sums")
    return [e.op.name for e in program.equations]


def between(x, low, fill=0.0):
    """Two values with zeros between them, each twice the size of `x` along dim 0."""
    return lax.pad(x, jnp.float32(fill), [(low, 1 - low, 1), (0, 0, 0)])


def interleaved(x):
    return between(x, 0) + between(jnp.sin(x), 1)


def three(x):
    return between(x, 0) + between(x * 3, 1) + lax.pad(x[:1], jnp.float32(0), [(0, 255, 0), (0, 0, 0)])


def halves(x):
    return jax.grad(lambda x: (x[::2] * jnp.cos(x[1::2])).sum())(x)


def scanned(x):
    return jax.grad(lambda x: (lax.associative_scan(jnp.multiply, x) ** 2).sum())(x)


def around(x):
    return jnp.pad(x, ((0, 1), (0, 0))) + jnp.pad(x, ((1, 0), (0, 0)))


def filled(x):
    return between(x, 0, 1.0) + between(x, 1)


def read_twice(x):
    p = between(x, 0)
    return p + between(x, 1) + p * 2


def many_cells(x):
    pads = [lax.pad(x[:1], jnp.float32(0), [(7 * k, 255 - 7 * k, 0), (0, 0, 0)]) for k in range(1, 20)]
    return sum(pads, between(x, 0))


def unordered(x):
    """A sum of two sums, which one sum would add in another order."""
    return (between(x, 0) + between(x, 1)) + (between(x * x, 0) + between(x / 3, 1))


def small(x):
    return between(x[:4, :4], 0) + between(x[:4, :4], 1)


SUMS = {interleaved: 1, three: 1, halves: 1, around: 0, filled: 0, read_twice: 0, small: 0, unordered: 2}


@pytest.mark.parametrize("f", SUMS, ids=lambda f: f.__name__)
def test_the_sums_that_it_makes(f):
    names = passed(f)
    assert names.count("padded_sum") == SUMS[f]
    assert not SUMS[f] or "pad" not in names


def test_sums_of_many_cells_keep_some_pads():
    names = passed(many_cells)
    assert names.count("padded_sum") == 1
    assert "pad" in names


@pytest.mark.parametrize("spec", [P(), P("x"), P(None, "x"), P("x", "y")])
def test_no_bit_changes(spec):
    mesh = jax.make_mesh((4, 2), ("x", "y"))
    x = jax.device_put(X, jax.NamedSharding(mesh, spec))
    functions = [*SUMS, many_cells, scanned]
    got = jax.jit(lambda x: [f(x) for f in functions])(x)
    with config.override("shardwise_fused", "off"):
        want = jax.jit(lambda x: [f(x) for f in functions])(x)
    for f, a, b in zip(functions, got, want, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b), f.__name__)
        assert f is scanned or np.array_equal(np.signbit(a), np.signbit(b))
