"""Small programs as one function: results are those of NumPy's functions op by op, whatever is drawn, on one device and on eight."""

import signal
import threading

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.runtime.small.kernel import available
from shardwise.sharding import Mesh
from shardwise.sharding import PartitionSpec as P
from tests.runtime.small.agreement import agree, chain, f32

pytestmark = pytest.mark.skipif(not available(), reason="nothing can be compiled here")

# -- what is compiled --------------------------------------------------------------------------------------------------


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
        c = lax.igamma_grad_a(c * 0.5 + x, x)  # has no form
        for _ in range(4):
            c = jnp.tanh(c) + x
        return c, c

    agree(lambda x: lax.scan(step, x, jnp.arange(1.0, 6.0)), jnp.arange(8.0))
    assert made and all(e.op.name not in ("igamma_grad_a", "scan") for p in made for e in p.equations)


@pytest.mark.parametrize("n", [15, 16, 17, 31, 33, 64, 100, 1000])
def test_sizes_around_those_of_registers(n):
    def f(x, y):
        z = chain(x) - y[:1]
        return z, z.sum(), z.max(), z.argmax(), z[::-1], z[1:] - z[:-1], x.reshape(-1, 1) * y[:3]

    agree(f, jnp.linspace(-0.5, 1, n), jnp.linspace(0, 3, n))


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


@pytest.mark.parametrize("n", [2, 7, 17])  # all in registers, the vector alone, nothing
def test_complex_vectors_times_matrices_in_a_loop(n):
    rng = np.random.default_rng(0)
    m, v = (jnp.asarray(rng.normal(size=s) + 1j * rng.normal(size=s), np.complex64) for s in ((n, n), (n,)))

    def f(m, v):
        out = lax.fori_loop(0, 3, lambda _, m: m * 0.5 + (v @ m) * 0.01 + (m @ v)[:, None] * 0.01, m)
        return out.real, out.imag

    agree(f, m, v)


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


@pytest.mark.parametrize("n", [8, 12])
def test_each_of_some_loaded_lanes_scales_a_growing_row(n):
    """LLVM ended the process when it made a draft of this: jnp.poly of 8 complex roots."""

    def f(x):
        p = jnp.ones(1, x.dtype)
        for k in range(n):
            p = jnp.pad(p, (0, 1)) - x[k] * jnp.pad(p, (1, 0))
        return p

    agree(f, (np.arange(n) / n + 0.5j).astype(np.complex64), tolerance=2e-5)
