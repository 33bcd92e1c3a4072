"""Reductions over devices inside small programs: what `shard_map` bodies and split loops compute is what their ops compute one by one."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.runtime.small.kernel import available
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P

pytestmark = pytest.mark.skipif(not available(), reason="nothing can be compiled here")
GRID = sw.make_mesh((4, 2), ("x", "y"))


def values(*shape, dtype=np.float32):
    drawn = np.random.default_rng(3).normal(size=shape)
    return (drawn * 4).astype(dtype) if np.dtype(dtype).kind in "iu" else drawn.astype(dtype)


def agree(body, *args, specs, checked=True):
    """`body` in a loop inside of shard_map, compiled and op by op."""
    found = []
    for choice in ("auto", "off"):
        with config.override("shardwise_fused", choice):
            f = sw.shard_map(lambda *a: body(*a), mesh=GRID, in_specs=specs, out_specs=P(("x", "y")), check_vma=checked)
            found.append(np.asarray(sw.jit(f)(*args)))
    np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axes", ["x", "y", ("x", "y"), ("y", "x")])
@pytest.mark.parametrize("reduce", [lax.psum, lax.pmax, lax.pmin, lax.pmean])
@pytest.mark.parametrize("size", [1, 2, 24])
def test_reductions_over_axes(made, reduce, axes, size):
    def body(x):
        return lax.fori_loop(0, 7, lambda i, c: c * 0.5 + reduce(c * 0.1 + i, axes), x)

    agree(body, values(8, size), specs=P(("x", "y")), checked=False)
    assert len(made) == 1


@pytest.mark.parametrize("dtype", [np.int32, np.float16, np.float64, np.uint8])
def test_reductions_of_other_dtypes(dtype):
    with config.override("jax_enable_x64", True):
        agree(
            lambda x: lax.fori_loop(0, 3, lambda i, c: lax.psum(c, "x") // 2, x),
            values(8, 12, dtype=dtype),
            specs=P(("x", "y")),
            checked=False,
        )


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128, np.int8, np.float16])
def test_sums_of_what_is_the_same_on_devices_are_multiples(dtype):
    with config.override("jax_enable_x64", True):
        x = (np.arange(400) % 5 - 2 + (0.5j if np.dtype(dtype).kind == "c" else 0)).astype(dtype)
        body = sw.shard_map(
            lambda x: lax.psum(x, ("x", "y")), mesh=GRID, in_specs=P("x"), out_specs=P(), check_vma=False
        )
        got = np.asarray(sw.jit(body)(x))
    np.testing.assert_array_equal(got, 2 * x.reshape(4, -1).sum(0, dtype=dtype))


def test_what_is_the_same_on_devices_counts_once_for_each(made):
    def body(x, y):
        def step(i, c):
            return c * 0.1 + lax.psum(y, ("x", "y")) + lax.psum(jnp.float32(0.5), "x") + lax.pmax(y.sum(), "y")

        return lax.fori_loop(0, 5, step, x)

    agree(body, values(8, 6), values(4, 6), specs=(P(("x", "y")), P("x")), checked=False)
    agree(body, values(8, 6), values(1, 6), specs=(P(("x", "y")), P()), checked=False)
    assert len(made) == 2


def test_a_method_of_conjugate_gradients(made):
    """Products and inner products whose reductions over devices their kernels take in."""

    def body(a, b):
        def step(i, s):
            x, r, p, old = s
            q = lax.psum(a @ p, "x")
            alpha = old / lax.psum(jnp.vdot(p, lax.psum(a @ p, "x")) / 4, "x")
            x, r = x + alpha * p, r - alpha * q
            new = jnp.vdot(r, r)
            return x, r, r + new / old * p, new

        return lax.fori_loop(0, 4, step, (b * 0, b, b, jnp.vdot(b, b)))[0]

    m = values(4, 24, 24)
    parts = np.einsum("kij,klj->kil", m, m) + 5 * np.eye(24, dtype=np.float32)
    found = []
    for choice in ("auto", "off"):
        with config.override("shardwise_fused", choice):
            f = sw.shard_map(lambda a, b: body(a[0], b), mesh=GRID, in_specs=(P("x"), P()), out_specs=P())
            found.append(np.asarray(sw.jit(f)(parts, np.ones(24, np.float32))))
    np.testing.assert_allclose(*found, rtol=5e-5, atol=1e-6)
    assert made


def test_devices_know_where_they_are(made):
    def body(x):
        return lax.fori_loop(0, 3, lambda i, c: c + lax.axis_index(("y", "x")) * i + lax.axis_index("y"), x)

    agree(body, values(8, 5), specs=P(("x", "y")), checked=False)
    agree(body, values(8, 40), specs=P(("x", "y")), checked=False)
    assert len(made) == 2


def test_loops_until_all_devices_agree(made):
    def body(x):
        def more(s):
            return (s[1] > 1e-3) & (s[0] < 50)

        def step(s):
            x = s[2] * 0.7
            return s[0] + 1, lax.pmax(jnp.abs(x).max(), ("x", "y")), x

        return lax.while_loop(more, step, (0, jnp.float32(1), x))[2]

    agree(body, values(8, 6), specs=P(("x", "y")))
    assert len(made) == 1


def test_split_loops_outside_of_shard_map(made):
    x = sw.device_put(values(8, 6), NamedSharding(GRID, P(("x", "y"))))

    def f(x):
        return lax.fori_loop(0, 6, lambda i, c: c * 0.5 + c.sum(0) / 16 + jnp.max(c), x)

    found = []
    for choice in ("auto", "off"):
        with config.override("shardwise_fused", choice):
            found.append(np.asarray(sw.jit(lambda x: f(x))(x)))
    np.testing.assert_allclose(*found, rtol=1e-5)
    assert len(made) == 1


@pytest.mark.parametrize("spec", [P(("x", "y")), P("x"), P("y", "x"), P(None, "x"), P()])
@pytest.mark.parametrize("columns", [1, 5, 40, 96])
def test_products_with_split_rows(made, spec, columns):
    """Devices' rows are rows of one product where the other operand is the same for all."""
    x = sw.device_put(values(16, 40), NamedSharding(GRID, spec))
    w, v = values(40, columns) * 0.1, values(columns, 40) * 0.1

    def f(x, w, v):
        return lax.fori_loop(0, 5, lambda i, c: jnp.tanh(c @ w) @ v + c[:, :1], x)

    found = []
    for choice in ("auto", "off"):
        with config.override("shardwise_fused", choice):
            found.append(np.asarray(sw.jit(lambda x, w, v: f(x, w, v))(x, w, v)))
    np.testing.assert_allclose(*found, rtol=2e-5, atol=1e-5)
    if "x" not in spec[1:] or columns >= 40:  # of columns that stay split, the first is fetched by an exchange
        assert made


def test_rows_that_are_scanned_across_devices(made):
    """A recurrent step whose product the library would compute with one thread is part of the loop; scanned rows lie apart."""
    w, x, h = values(256, 256) * 0.02, values(6, 64, 256), np.zeros((64, 256), np.float32)
    x, h = (sw.device_put(v, NamedSharding(GRID, s)) for v, s in ((x, P(None, ("x", "y"))), (h, P(("x", "y")))))

    def f(w, h, x):
        return lax.scan(lambda h, x: (jnp.tanh(h @ w + x), h[:, 0]), h, x)

    found = []
    for choice in ("auto", "off"):
        with config.override("shardwise_fused", choice):
            found.append([np.asarray(v) for v in sw.jit(lambda w, h, x: f(w, h, x))(w, h, x)])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-5)
    assert len(made) == 1
