"""Values of small programs are those of the ops: special floats, orders of memory, large operands, results that are operands."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.engine.array import shared_array
from shardwise.runtime.small import kernel
from shardwise.runtime.small.kernel import available
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.runtime.small.agreement import agree, chain, f32

pytestmark = pytest.mark.skipif(not available(), reason="nothing can be compiled here")


def test_special_floats():
    x = jnp.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-40, 3e38, -1.5], f32)

    def f(x):
        y = x[::-1]
        return (
            x / y,
            x * y,
            jnp.maximum(x, y),
            jnp.minimum(x, y),
            x.max(),
            x.sum(),
            x.argmin(),
            jnp.sqrt(x),
            jnp.sign(x),
            x == y,
            jnp.where(x > y, x, y),
            x.astype(jnp.int32),
            jnp.exp(x),
            jnp.log(x),
            jnp.floor(x),
            jnp.isfinite(x),
        )

    agree(f, x)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int8, np.uint16])
def test_known_and_unknown_divisors(dtype):
    """Many divisions share a function, but for those by integers that the text has."""
    x = jnp.asarray(
        np.random.default_rng(0).integers(np.iinfo(dtype).min, np.iinfo(dtype).max, 40, dtype, endpoint=True)
    )
    known = [dtype(n) for n in (0, 1, 2, 7, 100, np.iinfo(dtype).max, np.iinfo(dtype).min)]

    def f(x):
        divisors = [*known, *(x[::-1] + n for n in known)]
        return [g(x, jnp.broadcast_to(jnp.asarray(y), x.shape)) for y in divisors for g in (lax.div, lax.rem)], [
            g(x, lax.full_like(x, y)) for y in known for g in (lax.div, lax.rem)
        ]

    agree(f, x)


@pytest.mark.parametrize(
    ("shape", "axis"), [((16,), 0), ((32,), 0), ((37,), 0), ((2, 8), 0), ((8, 2), 1), ((16, 8), 1)]
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_extrema_of_zeros_of_both_signs(made, shape, axis, dtype):
    x = np.where(np.random.default_rng(0).random((8, *shape)) < 0.7, -0.0, 0.0).astype(dtype)

    def extrema(x):
        for _ in range(10):
            x = -x
        return jnp.max(x, axis=axis), jnp.min(x, axis=axis)

    for row in x:
        most, least = sw.jit(extrema)(jnp.asarray(row))
        np.testing.assert_array_equal(np.signbit(np.asarray(most, f32)), np.signbit(row).all(axis=axis))
        np.testing.assert_array_equal(np.signbit(np.asarray(least, f32)), np.signbit(row).any(axis=axis))
    assert made


@pytest.mark.parametrize("shape", [(5, 7), (3, 16), (4, 50), (33, 9), (2, 3, 40)])
@pytest.mark.parametrize("axis", [0, -1, None])
def test_reductions_in_the_loop_of_what_they_reduce(made, shape, axis):
    x = jnp.asarray(np.random.default_rng(0).standard_normal(shape), f32)

    def moments(x):
        y = x * 2 + 1
        scale = jnp.max(jnp.abs(y), axis=axis, keepdims=True)
        return y, (y * y).sum(axis), y.min(axis), (y > 0).sum(axis), jnp.argmax(y, -1), (y / scale).sum(axis)

    agree(moments, x)
    assert made


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32])
def test_integers_divide_and_shift_as_the_ops_say(dtype):
    info = np.iinfo(dtype)
    x = jnp.array([info.min, info.max, 0, 1, 7, info.min, 5, 100], dtype)
    y = jnp.array([-1 if info.min else 3, 2, 0, 0, 40, 1, 31, 33], dtype)

    def f(x, y):
        shifts = lax.shift_left(x, y), lax.shift_right_logical(x, y), lax.shift_right_arithmetic(x, y)
        return (*shifts, lax.div(x, y), lax.rem(x, y), x * x, x - y, x // y, x % y, x > y, x ^ y)

    agree(f, x, y)


def test_blocks_in_any_order_of_memory(made):
    x = np.arange(24, dtype=f32).reshape(4, 6)
    for laid in (x.T, x[:, ::2], x[::-1], np.asfortranarray(x), np.frombuffer(b"\0" * 97, np.uint8)[1:].view(f32)):
        wanted = np.asarray(sw.jit(chain)(jnp.asarray(np.ascontiguousarray(laid))))
        np.testing.assert_array_equal(np.asarray(sw.jit(chain)(laid)), wanted)
    assert made


_WIDE = np.random.default_rng(1).normal(size=(640, 1280)).astype(f32)
_LAID = {
    "turned": _WIDE[:, :640].T,
    "every other column": _WIDE[:, ::2],
    "backwards": _WIDE[::-1, :640],
    "repeated": np.broadcast_to(_WIDE[0, :640], (640, 640)),
}


@pytest.mark.parametrize("devices", [1, 8])
@pytest.mark.parametrize("laid", _LAID)
def test_large_operands_are_read_where_they_lie(monkeypatch, laid, devices):
    """A loop that reads rows of an array copies nothing large, whatever the strides of the array."""
    copied: list[int] = []
    before = kernel._fit_operand
    monkeypatch.setattr(kernel, "_fit_operand", lambda x, dtype: copied.append(x.size) or before(x, dtype))
    x, columns = shared_array(_LAID[laid]), NamedSharding(Mesh(np.array(sw.devices()[:devices]), ("d",)), P(None, "d"))
    x = sw.device_put(x, columns)
    assert not x.block.flags.c_contiguous

    def f(x, i):
        def step(k, rows):
            return rows + jnp.tanh(lax.dynamic_slice(x, (k + i, 0), (2, 640))) * x[k]

        return lax.fori_loop(0, 5, step, jnp.zeros((2, 640)))

    agree(f, x, 3)
    assert max(copied, default=0) < x.size


def test_large_operands_of_many_layouts_are_copied_from_some_number_on(made):
    last = lambda x: lax.fori_loop(0, 9, lambda k, s: s + x[k + 1, :16] * x[k, 1], jnp.zeros(16))  # noqa: E731
    run = sw.jit(last)
    wanted = np.asarray(run(jnp.asarray(_WIDE)))
    for apart in range(2 * kernel._MOST_STRIDES):
        x = np.empty((640, 1281 + apart), f32)[:, :1280]
        x[:] = _WIDE
        np.testing.assert_array_equal(np.asarray(run(shared_array(x))), wanted)
    assert len(made) == 1 + kernel._MOST_STRIDES


@pytest.mark.parametrize("turned", [False, True])
def test_a_large_operand_in_another_order_is_updated_in_a_copy(turned):
    x = np.ascontiguousarray(_WIDE[:, :640])
    given = shared_array(_LAID["turned"] if turned else x)

    def f(x, y):
        write = lambda k, x: x.at[k].set(x[k + 1] + y[k, :640])  # noqa: E731
        return lax.fori_loop(0, 5, write, x)

    agree(f, given, shared_array(_WIDE[:, ::-1]))
    np.testing.assert_array_equal(np.asarray(given), _LAID["turned"] if turned else x)


def test_results_that_are_operands_or_come_twice():
    def f(x, y):
        z = chain(x)
        c = lax.fori_loop(0, 3, lambda i, c: (c[1], c[0], c[2]), (x, z, y))
        return x, z, z, c[0], c[1], c[2], y

    agree(f, jnp.arange(40.0), jnp.arange(3.0))


def test_donated_operands():
    x = jnp.arange(20.0) / 9
    wanted = np.asarray(sw.jit(chain)(x))
    np.testing.assert_array_equal(np.asarray(sw.jit(chain, donate_argnums=0)(x)), wanted)
    assert x.is_deleted()
