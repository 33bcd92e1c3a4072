"""Views become per-device values: only the rows that cross a border travel, whatever puts them there."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec

P = PartitionSpec
N, ROW = 64, 16 * 4  # rows, bytes of a row


def rows_sent(f, *specs, shape=(N, 16), sizes=(8,)):
    """How many rows each device sends in `f` of arrays that lie so, and the kinds of transfers."""
    mesh = Mesh(np.array(sw.devices()[: int(np.prod(sizes))]).reshape(sizes), ("x", "y")[: len(sizes)])
    args = [sw.ShapeDtypeStruct(shape, np.float32, sharding=NamedSharding(mesh, s)) for s in specs or (P("x"),)]
    transfers = sw.jit(f).lower(*args).compile().runtime_executable().transfers
    return sum(t.bytes for t in transfers) / ROW, {t.kind for t in transfers}


@pytest.mark.parametrize(
    "f, rows",
    [
        (lambda x: jnp.roll(x, 1, 0), 1),
        (lambda x: jnp.roll(x, -3, 0), 3),
        (lambda x: jnp.roll(x, 8, 0), 8),  # a whole part: both slices could be split as they are
        (lambda x: jnp.roll(x, N // 2, 0), 8),
        (lambda x: jnp.roll(x, 1, 0) + jnp.roll(x, -1, 0), 2),
        (lambda x: jnp.roll(x, (1, 1), (0, 1)), 1),
        (lambda x: jnp.concatenate([x[1:], x[:1]]), 1),
        (lambda x: jnp.concatenate([jnp.zeros((1, 16)), x[:-1]]), 1),
        (lambda x: jnp.pad(x, ((2, 0), (0, 0)))[:-2], 2),
        (lambda x: jnp.pad(x, ((1, 1), (0, 0)))[2:], 1),
        (lambda x: jnp.pad(x, 1, mode="wrap")[2:, 1:-1], 1),
        (lambda x: jnp.diff(x, axis=0, prepend=0), 1),
        (lambda x: jnp.flip(x, 0), 8),
        (lambda x: x.at[1:].set(x[:-1]), 1),
        (lambda x: x.at[1:].add(x[:-1]), 1),
        (lambda x: lax.dynamic_update_slice(x, x[:-2], (2, 0)), 2),
        (lambda x: lax.dynamic_slice(jnp.roll(x, 1, 0), (0, 0), (N, 16)), 1),
        (lambda x: x.at[3].set(7.0), 0),
        (lambda x: jnp.concatenate(jnp.split(x, [1])[::-1]), 1),
        (lambda x: x[5], 1),
        (lambda x: x[5:7] * 2, 2),
    ],
)  # fmt: skip
def test_the_rows_that_cross_a_border_are_sent(f, rows):
    sent, kinds = rows_sent(f)
    assert sent == rows
    assert kinds <= {"permute"}


def test_gradients_send_as_many():
    assert rows_sent(sw.grad(lambda x: (jnp.roll(x, 1, 0) * x).sum())) == (3, {"permute"})
    assert rows_sent(sw.grad(lambda x: (x.at[1:].set(x[:-1]) ** 2).sum())) == (2, {"permute"})


def test_both_dims_of_a_grid():
    sent, _ = rows_sent(lambda x: jnp.roll(x, (1, 1), (0, 1)), P("x", "y"), shape=(64, 64), sizes=(4, 2))
    assert sent * ROW == (32 + 16) * 4  # a row of 32 and a column of 16


def test_operands_that_lie_otherwise():
    sent, _ = rows_sent(lambda x, y: jnp.concatenate([x, y]), P("x"), P())
    assert sent == 16  # rows 48 to 64 of the first operand go to device 3; every device has the second one
    sent, _ = rows_sent(lambda x: x[:32], P("x"))
    assert sent == 4


def test_loops():
    def f(u):
        return lax.scan(lambda u, _: (u + jnp.roll(u, 1, 0), None), u, None, length=5)[0]

    assert rows_sent(f) == (1, {"permute"})  # of the body, which is counted once


MESHES = [((8,), P("x")), ((2, 4), P("x", "y")), ((4, 2), P(("x", "y"))), ((4, 2), P("y", "x")), ((2, 2), P(None, "x"))]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(MESHES), st.sampled_from([8, 16, 40]), st.integers(-50, 50), st.integers(0, 1), st.data())
def test_values_are_those_of_one_device(where, n, by, axis, data):
    """Rolls, pads, slices and updates on every mesh, for shapes that parts divide in all ways."""
    sizes, spec = where
    x = np.random.RandomState(abs(by)).randn(n, 16).astype(np.float32)
    size = x.shape[axis]
    first = data.draw(st.integers(0, size - 1))
    last = data.draw(st.integers(first + 1, size))
    at = (slice(None),) * axis + (slice(first, last),)
    low, high = data.draw(st.integers(0, 3)), data.draw(st.integers(-1, 3))

    def f(x):
        rolled = jnp.roll(x, by, axis)
        padded = lax.pad(x, np.float32(2), [(low, high, 0) if d == axis else (0, 0, 0) for d in range(2)])
        updated = rolled.at[at].set(jnp.flip(x, axis)[at])
        return rolled, padded, x[at], updated, jnp.concatenate([padded, x[at], updated], axis)

    mesh = Mesh(np.array(sw.devices()[: int(np.prod(sizes))]).reshape(sizes), ("x", "y")[: len(sizes)])
    placed = sw.device_put(x, NamedSharding(mesh, spec))
    for got, want in zip(sw.jit(f)(placed), f(sw.device_put(x, sw.devices()[0])), strict=True):
        np.testing.assert_array_equal(got, want)
