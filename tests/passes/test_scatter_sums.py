"""Sums with values scattered into zeros: the equations that the pass makes, and that no bit changes."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.base import config
from shardwise.ir import ShapedArray, trace_program, verify
from shardwise.passes.inline import inline_calls
from shardwise.passes.scatter_sums import with_scatter_sums
from shardwise.runtime.env import Env

P = jax.sharding.PartitionSpec
SHAPE = (64, 1024)
X = np.random.default_rng(0).normal(size=SHAPE).astype(np.float32)
X[:, ::3] = -0.0
X[0, 7:9] = np.nan, np.inf
PLACES = np.random.default_rng(1).integers(-3, 1030, 64).astype(np.int32)
PLACES[:4] = 0, 3, 7, 1024  # at -0, NaN, beyond the end


def passed(f, dtype="float32"):
    """The names of the equations after the pass."""
    types = [ShapedArray(SHAPE, np.dtype(dtype)), ShapedArray((64,), np.dtype(np.int32))]
    program = inline_calls(trace_program(lambda x, i: [f(x, i)], types)[0])
    program = with_scatter_sums(program, Env())
    verify(program, after="scatter_sums")
    return [e.op.name for e in program.equations]


def added(x, i, update=-0.0):
    row = jax.vmap(lambda x, i: jnp.zeros_like(x).at[i].add(jnp.asarray(update, x.dtype)))
    return row(x, i) + x


def turned(x, i):
    return jnp.abs(x) * 2 + jax.vmap(lambda x, i: jnp.zeros_like(x).at[i].add(x[3]))(x, i)


def unique(x, i):
    places = jnp.cumsum(jnp.abs(i) % 2 + 1)
    return x + jnp.zeros_like(x).at[0, places].add((i * 3).astype(x.dtype), unique_indices=True)


def several(x, i):
    one = jax.vmap(lambda x, i: jnp.zeros_like(x).at[i].add(1))
    return one(x, i) + (x + one(x, (i + 1) % 7))


def cross_entropy(x, i):
    def loss(x):
        return (jax.nn.logsumexp(x, -1) - jnp.take_along_axis(x, i[:, None], -1)[:, 0]).sum()

    return jax.grad(loss)(x)


def repeated(x, i):
    return x + jnp.zeros_like(x).at[i].add(1)


def filled(x, i):
    return x + jax.vmap(lambda x, i: jnp.full_like(x, -0.0).at[i].add(1))(x, i)


def read_twice(x, i):
    s = jax.vmap(lambda x, i: jnp.zeros_like(x).at[i].add(x[2]))(x, i)
    return (x + s) * s


def spread(x, i):
    return x[0] + jax.vmap(lambda x, i: jnp.zeros_like(x).at[i].add(1))(x, i)


@pytest.mark.parametrize("f", [added, turned, unique, several, cross_entropy])
def test_values_are_scattered_where_they_are_added(f):
    found = passed(f)
    assert found.count("scatter_add") == (2 if f is several else 1)
    assert found[-1] == "scatter_add"


@pytest.mark.parametrize("f", [repeated, filled, read_twice, spread])
def test_other_sums_stay(f):
    assert passed(f)[-1] != "scatter_add"


def test_integers_need_no_zero():
    assert passed(added, "int32").count("add") == 0


SUMS = [added, turned, unique, several, repeated, filled, read_twice, spread]
DTYPES = ["float32", "bfloat16", "int32", "complex64"]
CASES = [(f, dtype) for f in SUMS for dtype in DTYPES] + [(cross_entropy, dtype) for dtype in DTYPES[:2]]


@pytest.mark.parametrize(("f", "dtype"), CASES)
def test_no_bit_changes(f, dtype):
    with np.errstate(invalid="ignore"):
        x = X.astype(jnp.dtype(dtype))
    with config.override("shardwise_fused", "off"):
        expected = np.asarray(jax.jit(f)(x, PLACES))
    found = np.asarray(jax.jit(f)(x, PLACES))
    if f is cross_entropy:
        # Loops and NumPy round exp otherwise, and bfloat16 keeps 8 bits.
        np.testing.assert_allclose(found.astype(np.float32), expected.astype(np.float32), 1e-2, 1e-6)
        return
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("spec", [P("x"), P(None, "x"), P("x", "y")])
def test_over_devices(spec):
    mesh = jax.make_mesh((4, 2), ("x", "y"))
    x, i = jax.device_put(X[1:].repeat(2, 0)[:64], jax.NamedSharding(mesh, spec)), jnp.asarray(PLACES)
    for f in (added, several, cross_entropy):
        np.testing.assert_array_equal(jax.jit(f)(x, i), jax.jit(f)(np.asarray(x), i))
