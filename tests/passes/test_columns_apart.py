"""Positions of several numbers are read and written at columns that nobody joins."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ir import ShapedArray, trace_program, verify
from shardwise.passes.columns_apart import with_columns_apart
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.machine.llvm import available
from shardwise.sharding import NamedSharding, PartitionSpec

pytestmark = pytest.mark.skipif(not available(), reason="no compiler for loops")
RNG = np.random.default_rng(0)
TABLE = RNG.normal(size=(30, 40, 2)).astype(np.float32)
COUNT = 9000  # enough that loops pay


def places(low=-30, high=30, dtype=np.int32):
    return [RNG.integers(low, high, COUNT).astype(dtype) for _ in range(2)]


def names(f, *args):
    program, _ = trace_program(f, tuple(ShapedArray(np.shape(a), np.asarray(a).dtype) for a in args))
    return [e.op.name for e in verify(with_columns_apart(program, Env())).equations]


def joins(f, *args):
    """Whether the scheduled program joins columns."""
    program = sw.jit(f).lower(*args).compile().runtime_executable().plan.program
    return "concatenate" in str(program)


def test_reads():
    i, j = places()
    for table in (TABLE, TABLE[..., 0]):
        assert not joins(lambda x, i, j: x[i, j], table, i, j)
        np.testing.assert_array_equal(sw.jit(lambda x, i, j: x[i, j])(table, i, j), table[i, j])


@pytest.mark.parametrize("mode, fill", [("fill", 5.0), ("clip", None)])
def test_out_of_bounds(mode, fill):
    i, j = places(-50, 50)
    f = lambda x, i, j: x.at[i, j].get(mode=mode, fill_value=fill)  # noqa: E731
    np.testing.assert_array_equal(sw.jit(f)(TABLE, i, j), f(jnp.asarray(TABLE), i, j))
    g = lambda x, i, j, v: x.at[i, j].add(v, mode="drop" if mode == "fill" else mode)  # noqa: E731
    v = RNG.integers(0, 9, COUNT).astype(np.float32)
    table = np.rint(TABLE[..., 0] * 8)
    want = table.copy()
    for a, b, c in zip(i, j, v, strict=True):
        a, b = (a + 30 if a < 0 else a), (b + 40 if b < 0 else b)
        if mode == "clip":
            a, b = np.clip(a, 0, 29), np.clip(b, 0, 39)
        if 0 <= a < 30 and 0 <= b < 40:
            want[a, b] += c
    np.testing.assert_array_equal(sw.jit(g)(table, i, j, v), want)


@pytest.mark.parametrize("method", ["add", "multiply", "max", "set"])
@pytest.mark.parametrize("columns", [False, True])
def test_writes(method, columns):
    """Repeated places take every update, in order."""
    table = TABLE if columns else TABLE[..., 0]
    i, j = places()
    v = RNG.uniform(0.5, 1.5, (COUNT, *table.shape[2:])).astype(np.float32)
    f = lambda x, i, j, v: getattr(x.at[i, j], method)(v)  # noqa: E731
    assert not joins(f, table, i, j, v)
    combine = {"add": np.add, "multiply": np.multiply, "max": np.maximum, "set": lambda old, new: new}[method]
    want = table.copy()
    for a, b, c in zip(i, j, v, strict=True):
        want[a, b] = combine(want[a, b], c)
    np.testing.assert_array_equal(sw.jit(f)(table, i, j, v), want)
    donated = sw.jit(f, donate_argnums=0)(jnp.array(table), i, j, v)
    np.testing.assert_array_equal(donated, want)


def test_columns_that_broadcast():
    i, j = np.arange(90)[:, None] % 30, np.arange(100) % 40
    np.testing.assert_array_equal(sw.jit(lambda x, i, j: x[i, j])(TABLE, i, j), TABLE[i, j])


def test_three_numbers_and_other_orders():
    x = RNG.normal(size=(7, 8, 9)).astype(np.float32)
    i, j, k = (RNG.integers(0, n, COUNT) for n in x.shape)
    np.testing.assert_array_equal(sw.jit(lambda x, i, j, k: x[i, j, k])(x, i, j, k), x[i, j, k])
    np.testing.assert_array_equal(sw.jit(lambda x, i, j: x[:, i, j])(x, j, k), x[:, j, k])
    np.testing.assert_array_equal(sw.jit(lambda x, i, j: x[i, :, j])(x, i, k), x[i, :, k])


def test_joined_values_that_are_no_columns_stay(monkeypatch):
    monkeypatch.setattr(costs, "FUSED_FEWEST", 0)
    numbers = lax.GatherDimensionNumbers((), (0, 1), (0, 1))
    at = lambda x, *parts: lax.gather(x, jnp.concatenate(parts, -1), numbers, (1, 1))  # noqa: E731
    numbers3 = lax.GatherDimensionNumbers((), (0, 1, 2), (0, 1, 2))
    wide = lambda x, *parts: lax.gather(x, jnp.concatenate(parts, -1), numbers3, (1, 1, 1))  # noqa: E731
    one, two = np.zeros((5, 1), np.int32), np.zeros((5, 2), np.int32)
    rows = lambda x, a, b: lax.gather(x, jnp.concatenate([a, b], 0), numbers, (1, 1))  # noqa: E731
    assert "read_at_columns" in names(lambda x, a, b: [at(x, a, b)], TABLE[..., 0], one, one)
    assert "gather" in names(lambda x, a, b: [wide(x, a, b)], TABLE, one, two)
    assert "gather" in names(lambda x, a, b: [rows(x, a, b)], TABLE[..., 0], two, two)


def test_few_positions_stay():
    i = np.zeros(5, np.int32)
    assert "gather" in names(lambda x, i: [x[i, i]], TABLE, i)


@pytest.mark.parametrize("split", ["places", "table"])
def test_on_a_mesh(split):
    """Devices that have other places, or other parts of the table."""
    mesh = sw.make_mesh((2, 2), ("x", "y"))
    x = RNG.normal(size=(32, 40)).astype(np.float32)
    i, j = places(0, 32)
    v = RNG.integers(0, 9, COUNT).astype(np.float32)
    put = lambda a, *spec: sw.device_put(a, NamedSharding(mesh, PartitionSpec(*spec)))  # noqa: E731
    given = (put(x, "x", "y"), i, j, v) if split == "table" else (x, put(i, "x"), put(j, ("x", "y")), put(v, "y"))
    want = np.rint(x)
    np.add.at(want, (i, j), v)
    f = sw.jit(lambda x, i, j, v: (x[i, j], jnp.rint(x).at[i, j].add(v)))
    read, written = f(*given)
    np.testing.assert_array_equal(read, x[i, j])
    np.testing.assert_array_equal(written, want)


def test_under_vmap_and_derivatives():
    i, j = places(0)
    x = TABLE[..., 0]
    f = lambda x, i, j: (x[i, j] ** 2).sum()  # noqa: E731
    want = np.zeros_like(x)
    np.add.at(want, (i, j), 2 * x[i, j])
    # sums of about 7 numbers in another order
    np.testing.assert_allclose(sw.jit(sw.grad(f))(x, i, j), want, rtol=1e-5, atol=1e-5)
    many = sw.jit(sw.vmap(lambda i, j: jnp.asarray(x)[i, j]))(i.reshape(9, -1), j.reshape(9, -1))
    np.testing.assert_array_equal(many, x[i, j].reshape(9, -1))
