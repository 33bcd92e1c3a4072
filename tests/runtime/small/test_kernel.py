"""Small programs as one function: results are those of NumPy's functions op by op, whatever is drawn, on one device and on eight."""

import random
import signal
import threading
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.engine.array import shared_array
from shardwise.runtime.small import kernel
from shardwise.runtime.small.kernel import available
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

pytestmark = pytest.mark.skipif(not available(), reason="nothing can be compiled here")
drawn = settings(
    max_examples=12,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
f32 = np.float32


def both(f, *args):
    """Results of `f` with and without compiled programs, flat."""
    out = []
    for choice in ("auto", "off"):
        with config.override("shardwise_fused", choice):
            out.append(sw.tree.leaves(sw.jit(lambda *a: f(*a))(*args)))
    return out


def agree(f, *args, tolerance=1e-5):
    for got, wanted in zip(*both(f, *args), strict=True):
        assert got.aval == wanted.aval
        a, b = np.asarray(got), np.asarray(wanted)
        if np.dtype(a.dtype).kind in "biu":
            np.testing.assert_array_equal(a, b)
        else:
            loose = {2: 1e-2, 4: tolerance, 8: 1e-12}[
                a.dtype.itemsize
            ]  # two bytes are bfloat16's: a unit of the last place
            np.testing.assert_allclose(a.astype(np.float64), b.astype(np.float64), rtol=loose, atol=loose)


# -- drawn programs ----------------------------------------------------------------------------------------------------


class Maker:
    """Draws ops over a growing list of values; floats stay within a few units."""

    def __init__(self, seed, depth=2):
        self.random = random.Random(seed)
        self.depth = depth

    def pick(self, values: Any, want: Any = lambda v: True) -> Any:
        found = [v for v in values if want(v)]
        return self.random.choice(found) if found else None

    def step(self, values):
        r = self.random
        x = self.pick(values)
        kind = np.dtype(x.dtype).kind
        real = kind not in "biu"
        choice = r.choice([*range(11), *((11, 12, 13, 14) if self.depth else ()), 15, 16, 17])
        if choice <= 2:
            y = self.pick(values, lambda v: v.dtype == x.dtype and v.shape == x.shape)
            y = y[..., :1] if x.ndim and r.random() < 0.3 else y
            if kind == "b":
                return r.choice([x & y, x | y, x ^ y])
            out = r.choice(
                [lambda: x + y, lambda: x - y, lambda: x * y, lambda: jnp.maximum(x, y), lambda: jnp.minimum(x, y)]
            )()
            return jnp.tanh(out) * 2 if real else out
        if choice == 3:
            if real:
                return r.choice(
                    [jnp.sin, jnp.tanh, jnp.abs, lambda v: jnp.exp(-v * v), jnp.negative, lambda v: v / (v * v + 1)]
                )(x)
            return ~x if kind == "b" else r.choice([lambda: x // 3, lambda: x % 5, lambda: x << 1, lambda: -x])()
        if choice == 4 and not real:
            y = self.pick(values, lambda v: v.dtype == x.dtype and v.shape == x.shape)
            return jnp.where(x > y, x, y ^ 1) if kind != "b" else x.astype(r.choice([np.int8, f32, np.uint32]))
        if choice == 5 and x.ndim:
            return x.transpose(r.sample(range(x.ndim), x.ndim))
        if choice == 6 and x.ndim:
            d = r.randrange(x.ndim)
            n = x.shape[d]
            a = r.randrange(n)
            cut = slice(a, r.randrange(a, n) + 1) if r.random() < 0.7 else slice(None, None, -1)
            return x[(slice(None),) * d + (cut,)]
        if choice == 7:
            y = x.reshape(-1)
            return jnp.broadcast_to(y, (r.randrange(1, 4), y.size)) if y.size < 60 else y.reshape(1, -1)
        if choice == 8 and x.ndim:
            d = r.randrange(x.ndim)
            if r.random() < 0.5 or kind == "b":
                y = self.pick(values, lambda v: v.dtype == x.dtype and v.shape == x.shape)
                return jnp.concatenate([x, y, x], d) if x.size < 200 else None
            return jnp.pad(x, [(r.randrange(3), r.randrange(3)) for _ in x.shape]) if x.size < 200 else None
        if choice == 9 and x.ndim:
            d = r.choice([None, *range(x.ndim)])
            if kind == "b":
                return r.choice([jnp.any, jnp.all])(x, axis=d)
            out = r.choice([jnp.sum, jnp.max, jnp.min, jnp.argmax])(x, axis=d)
            return jnp.tanh(out) if real and out.dtype == x.dtype else out.astype(x.dtype)
        if choice == 10 and x.ndim:
            i = self.pick(values, lambda v: v.dtype == np.int32)
            at = (i.sum() % 7 if i is not None else jnp.int32(0)).astype(np.int32) - 2
            size = r.randrange(1, x.shape[0] + 1)
            window = lax.dynamic_slice_in_dim(x, at, size, 0)
            return window if r.random() < 0.5 else lax.dynamic_update_slice_in_dim(x, window[::-1], at + 1, 0)
        if choice == 17 and x.ndim and kind != "b":
            out = r.choice([lax.cumsum, lax.cummax, lax.cummin])(x, r.randrange(x.ndim), reverse=r.random() < 0.5)
            return jnp.tanh(out) if real else out
        if choice == 17:
            return lax.bitcast_convert_type(x, np.uint32) if x.dtype in (f32, np.int32) else None
        if choice in (15, 16):
            i = self.pick(values, lambda v: v.dtype == np.int32 and v.size < 20)
            if i is None or not x.ndim:
                return None
            i = i.reshape(-1) % 9 - 4 if choice == 15 else i.sum() % 9 - 4
            if r.random() < 0.5:
                return x[i] if r.random() < 0.5 else x.at[..., i].get(mode=r.choice(["clip", "fill"]))
            new = self.pick(values, lambda v: v.dtype == x.dtype and v.ndim <= 1)
            if new is None or kind == "b":
                return None
            out = r.choice(["set", "add", "max", "min", "multiply"])
            out = getattr(x.at[i] if x.ndim == 1 else x.at[i.sum(), ..., i], out)(new.reshape(-1)[0])
            return jnp.tanh(out) if real else out
        if choice >= 11:
            return self.control(values, x, choice)
        return None

    def control(self, values, x, choice):
        r = self.random
        inner = Maker(r.randrange(1 << 30), self.depth - 1)
        y = self.pick(values)
        if choice == 11:

            def body(i, c):
                new = inner.values([*values[:3], c[0], c[1], i], 4)
                return inner.like(new, c[0]), inner.like(new[::-1], c[1])

            return lax.fori_loop(0, r.choice([0, 1, 3, x.size % 4]), body, (x, y))[r.randrange(2)]
        if choice == 12:

            def step(c, row):
                new = inner.values([c, y, *([] if row is None else [row])], 4)
                return inner.like(new, c), inner.like(new[1:], c)

            xs = x if x.ndim and r.random() < 0.7 else None
            c, ys = lax.scan(step, y, xs, length=None if xs is not None else 3, reverse=r.random() < 0.5)
            return r.choice([c, ys])
        if choice == 13:

            def test(c):
                return (c[0] < 5) & (c[0] >= 0)

            def body_(c):
                new = inner.values([c[1], y], 3)
                return c[0] + 1 + (new[-1].size % 2), inner.like(new, c[1])

            return lax.while_loop(test, body_, (jnp.int32(r.randrange(7)), x))[1]
        which = self.pick(values, lambda v: v.dtype == np.int32)
        index = (which.sum() if which is not None else jnp.int32(1)) % 3
        a, b, c = (Maker(r.randrange(1 << 30), 0) for _ in range(3))
        return lax.switch(index, [lambda v, m=m: m.like(m.values([v, y], 3), v) for m in (a, b, c)], x)

    def values(self, values, count):
        out = list(values)
        for _ in range(count):
            new = self.step(out)
            if new is not None and 0 < new.size < 3000:
                out.append(new)
        return out

    def like(self, values, x):
        """The last value that can stand for `x` in a carry."""
        return next((v for v in reversed(values) if v.shape == x.shape and v.dtype == x.dtype), x)


def inputs(seed, dtypes=(f32, np.int32, bool)):
    rng = np.random.default_rng(seed)
    shapes = [(), (3,), (2, 4), (5, 7), (4, 3, 6)]
    out = []
    for k, dtype in enumerate((*dtypes, f32)):
        shape = shapes[(seed + k) % len(shapes)]
        out.append(jnp.asarray((rng.normal(size=shape) * 3).astype(dtype)))
    return [*out, jnp.asarray(rng.normal(size=(3, 5)).astype(f32)), jnp.asarray(rng.integers(0, 9, 4).astype(np.int32))]


@drawn
@given(st.integers(0, 10**6))
def test_drawn_programs(seed):
    agree(lambda *values: Maker(seed).values(values, 14), *inputs(seed))


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.float16, ml_dtypes.bfloat16, np.float64, np.uint8, np.int64])
def test_drawn_programs_of_other_types(dtype):
    with config.override("jax_enable_x64", True):
        agree(lambda *values: Maker(7, 1).values(values, 20), *inputs(3, (dtype, np.int32, dtype)))


@drawn
@given(st.integers(0, 10**6))
def test_drawn_programs_on_eight_devices(seed):
    mesh = Mesh(np.array(sw.devices()[:8]).reshape(2, 4), ("x", "y"))
    values = []
    for v in inputs(seed):
        v = jnp.concatenate([v.reshape(1, -1)] * 8)
        values.append(sw.device_put(v, NamedSharding(mesh, random.Random(seed).choice([P("x"), P(("x", "y")), P()]))))
    agree(lambda *given: Maker(seed, 1).values(given, 8), *values)


# -- what is compiled --------------------------------------------------------------------------------------------------


def chain(x):
    for _ in range(6):
        x = jnp.sin(x) * 0.5 + x
    return x


def test_many_ops_are_one_function_and_few_are_none(made):
    x = jnp.arange(8.0)
    sw.jit(lambda x: jnp.sin(x) * 2 + x)(x)
    assert not made
    agree(chain, x)
    assert [len(p.equations) for p in made] == [18]


def test_a_loop_is_one_function(made):
    agree(lambda x: lax.fori_loop(0, 100, lambda i, c: c * 0.5 + i, x), jnp.float32(1))
    assert [e.op.name for p in made for e in p.equations] == ["scan"]


def test_what_cannot_be_compiled_stays_outside(made):
    def step(c, x):
        c = jnp.fft.irfft(jnp.fft.rfft(c * 0.5 + x), 8)  # has no form
        for _ in range(4):
            c = jnp.tanh(c) + x
        return c, c

    agree(lambda x: lax.scan(step, x, jnp.arange(5.0)), jnp.arange(8.0))
    assert made and all(e.op.name not in ("fft", "scan") for p in made for e in p.equations)


@pytest.mark.parametrize("n", [15, 16, 17, 31, 33, 64, 100, 1000])
def test_sizes_around_those_of_registers(n):
    def f(x, y):
        z = chain(x) - y[:1]
        return z, z.sum(), z.max(), z.argmax(), z[::-1], z[1:] - z[:-1], x.reshape(-1, 1) * y[:3]

    agree(f, jnp.linspace(-0.5, 1, n), jnp.linspace(0, 3, n))


# -- values ------------------------------------------------------------------------------------------------------------


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
    before = kernel._fitting
    monkeypatch.setattr(kernel, "_fitting", lambda x, dtype: copied.append(x.size) or before(x, dtype))
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


# -- loops -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 2, 7])
@pytest.mark.parametrize("size", [1, 3, 50])
def test_carries_that_change_places(n, size):
    a, b = jnp.arange(1.0 * size), jnp.ones(size)
    agree(lambda a, b: lax.fori_loop(0, n, lambda i, c: (c[1] + 1, c[0], c[0] * c[1]), (a, b, a)), a, b)
    agree(lambda a, k: lax.fori_loop(0, k, lambda i, c: (c[1] + i, c[0]), (a, a + 1)), a, jnp.int32(n))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [1, 5])
def test_scans_over_rows(reverse, length):
    def outer(c, x):
        def inner(d, y):
            return d * 0.5 + y, (d, y)

        d, (ds, ys) = lax.scan(inner, x[:, 0], x.T, reverse=not reverse)
        return jnp.tanh(c + d.sum()), (ds, ys.sum(), c, x[0, 0])

    xs = jnp.sin(jnp.arange(length * 12.0)).reshape(length, 3, 4)
    agree(lambda c, xs: lax.scan(outer, c, xs, reverse=reverse), jnp.float32(0.5), xs)


def test_a_loop_that_fills_an_array():
    agree(lambda x: lax.fori_loop(2, 50, lambda i, c: c.at[i].set(c[i - 1] * 0.5 + c[i - 2] * 0.25), x), jnp.ones(50))
    agree(lambda x: lax.fori_loop(0, 9, lambda i, c: c.at[i, -i].add(1.0).at[:, 3].mul(2), x), jnp.ones((6, 40)))


@pytest.mark.parametrize(
    "m, n, k", [(16, 64, 64), (1, 20, 33), (20, 1, 7), (3, 3, 3), (5, 17, 1), (1, 1, 50), (9, 35, 10)]
)
def test_products_in_a_loop(m, n, k):
    rng = np.random.default_rng(0)
    h, w, v = (jnp.asarray(rng.normal(size=s).astype(f32) / 4) for s in ((m, k), (k, n), (k, n)))

    def f(h, w, v):
        def step(h, i):
            out = h @ w
            return jnp.tanh(out @ v.T + jnp.einsum("mn,kn->mk", out, w)), (h.T @ out, out.T[0] @ out[:, 0])

        return lax.scan(step, h, None, length=4)

    agree(f, h, w, v, tolerance=1e-4)  # each of four steps magnifies the rounding of the one before up to tenfold


# Rows of several vectors, with and without a rest; and one of columns, whose matrix is copied turned before the loop.
@pytest.mark.parametrize("n, k", [(1, 515), (3, 128), (9, 1001), (150, 40)])
def test_matrices_times_vectors_in_a_loop(n, k):
    rng = np.random.default_rng(0)
    w, v = (jnp.asarray(rng.normal(size=s).astype(f32) / k**0.5) for s in ((n, k), (k,)))

    def f(w, v):
        def step(v, i):
            out = w @ v
            return jnp.tanh(v + out @ w), (out, jnp.vdot(v, v), jnp.stack([v, v * 2]) @ v)

        return lax.scan(step, v, None, length=3)

    agree(f, w, v)


@pytest.mark.parametrize("length", [1, 2])
def test_copies_for_products_are_made_before_the_loop_around_them(length):
    def f(w, h):
        def outer(h, i):
            own = jnp.tanh(w + i)
            return lax.fori_loop(0, length, lambda _, h: jnp.tanh(h @ own.T), h), own

        h, ys = lax.scan(outer, h, jnp.arange(3.0))
        return h, ys[-1] @ h.T

    agree(f, jnp.sin(jnp.arange(400.0)).reshape(20, 20), jnp.ones((5, 20)))


def test_gradients_of_loops(made):
    def loss(w, h, xs):
        def step(h, x):
            h = jnp.tanh(h @ w + x)
            return h, h

        h, ys = lax.scan(step, h, xs)
        return (ys * ys).sum() + h.sum()

    rng = np.random.default_rng(0)
    args = [jnp.asarray(rng.normal(size=s).astype(f32) / 4) for s in ((12, 12), (5, 12), (20, 5, 12))]
    agree(sw.grad(loss, (0, 1, 2)), *args, tolerance=2e-5)
    assert made


def test_loops_under_vmap():
    def newton(x):
        return lax.while_loop(lambda c: jnp.abs(c * c - x) > 1e-4, lambda c: 0.5 * (c + x / c), x)

    agree(sw.vmap(newton), jnp.arange(1.0, 9))
    agree(sw.vmap(lambda x: lax.fori_loop(0, 5, lambda i, c: jnp.where(c > i, c - i, c * 2), x)), jnp.arange(9.0))


def test_positions_that_differ_under_vmap(made):
    def f(x, i, v):
        def step(c, k):
            c = c.at[i + k].add(v).at[k, 1:].max(v * 2)
            return c, (c[i[0] - k], c[k, i], c.at[1].get(mode="fill"), lax.optimization_barrier(c).cumsum(1))

        return lax.scan(step, x, jnp.arange(3))

    i = jnp.array([[0, 3], [2, -1], [4, 1], [9, 0]])
    agree(sw.vmap(f), jnp.arange(80.0).reshape(4, 5, 4), i, jnp.arange(4.0))
    agree(sw.vmap(f, (None, 0, None)), jnp.arange(20.0).reshape(5, 4), i, jnp.float32(2))
    assert any(e.op.name == "scan" for p in made for e in p.equations)


def test_scratch_memory_beyond_the_stack():
    def f(x):
        y = [jnp.tanh(x * k) for k in range(1, 9)]
        total = jnp.float32(0)
        for v in y:
            total = total + v.sum()
        return sum(v[::-1] * total for v in y)

    agree(f, jnp.linspace(0, 1, 12000))


def test_an_endless_loop_hears_signals():
    main = threading.get_ident()
    timer = threading.Timer(0.3, lambda: signal.pthread_kill(main, signal.SIGINT))  # needs to get a turn, too
    f = sw.jit(lambda x: lax.while_loop(lambda c: c >= 0, lambda c: (c + 1) % 1000, x))
    assert f(jnp.int32(-5)) == -5
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            f(jnp.int32(0)).block_until_ready()
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert f(jnp.int32(-7)) == -7


def test_nans_are_still_looked_for():
    with config.override("jax_debug_nans", True), pytest.raises(FloatingPointError):
        sw.jit(lambda x: chain(x) / (x - x))(jnp.arange(8.0))


@pytest.mark.parametrize("make", ["key", "PRNGKey"])
def test_random_numbers_in_loops(make, made):
    key = getattr(sw.random, make)(3)

    def walk(carry, i):
        key, x = carry
        key, own = sw.random.split(key)
        parts = sw.random.split(sw.random.fold_in(own, i), (2, 9))
        many = sw.random.uniform(parts[0, 1], (40,)), sw.random.bits(own, (3,), np.uint8), sw.random.bernoulli(own, 0.3)
        x = x + sw.random.normal(own, (2,)) + sw.random.uniform(parts[1, 0])
        return (key, x), (x, many, sw.random.randint(parts[0, 8], (5,), 0, 9))

    def f(key):
        (key, x), ys = lax.scan(walk, (key, jnp.zeros(2)), jnp.arange(4))
        return x, ys, sw.random.bits(key, (17,))

    agree(f, key)
    assert {e.op.name for p in made for e in p.equations} >= {"scan"}


# -- several devices ---------------------------------------------------------------------------------------------------


def test_bodies_of_shard_map(made):
    mesh = Mesh(np.array(sw.devices()[:8]), ("x",))

    def body(x):
        x = lax.fori_loop(0, 5, lambda i, c: jnp.sin(c) * 0.5 + i, x)
        total = lax.psum(x, "x")
        c, ys = lax.scan(lambda c, i: (c * 0.5 + total[0] + i, c), x, jnp.arange(4.0))
        return chain(c + ys.sum(0)) + lax.axis_index("x")

    agree(sw.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x")), jnp.arange(32.0))
    assert made


def test_carries_come_to_vary_over_devices():
    mesh = Mesh(np.array(sw.devices()[:8]).reshape(2, 4), ("x", "y"))

    def body(x):
        start = jnp.zeros(3), jnp.float32(0)
        return lax.fori_loop(0, 4, lambda i, c: (c[0] + x[0, :3] + c[1], c[1] + x.sum()), start)[0][None]

    f = sw.shard_map(body, mesh=mesh, in_specs=P("x", "y"), out_specs=P("x", "y"), check_vma=False)
    agree(f, jnp.arange(96.0).reshape(2, 48))


@pytest.mark.parametrize("reduce", [lax.psum, lax.pmax, lax.pmin])
def test_reductions_over_one_device_are_part_of_a_loop(made, reduce):
    mesh = Mesh(np.array(sw.devices()[:1]), ("x",))

    def body(x):
        return lax.fori_loop(0, 50, lambda i, x: lax.pvary(reduce(x * 0.99, "x"), "x"), x)

    f = sw.jit(sw.shard_map(body, mesh=mesh, in_specs=P("x"), out_specs=P("x")))
    x = np.array([-0.0, 1.0, np.nan, -np.inf], np.float32)
    want = x
    for _ in range(50):
        want = want * np.float32(0.99)
    np.testing.assert_array_equal(np.asarray(f(x)), want)
    assert len(made) == 1


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize("shift", [1, 2, 3])
def test_turned_rows_that_are_repeated(dtype, shift):
    """LLVM ended the process where 1 and 3 lanes were put together and the 4 repeated 4 times."""

    def f(x, y):
        row, s = jnp.roll(x, shift), x
        for _ in range(4):
            s = 2 * s + y
        mixed = jnp.concatenate([x[:shift], y[shift:]])
        return jnp.broadcast_to(row, (4, 4)), jnp.broadcast_to(mixed + 1, (4, 4)) * s, s

    agree(f, np.arange(4).astype(dtype), 10 - np.arange(4).astype(dtype))
