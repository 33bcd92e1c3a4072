"""Small programs in parts: devices that compute apart give what they give together, and threads share them."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.runtime import costs
from shardwise.runtime.small import parts as runtime_parts
from shardwise.runtime.small.kernel import available
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P

pytestmark = pytest.mark.skipif(not available(), reason="nothing can be compiled here")
GRID = sw.make_mesh((4, 2), ("x", "y"))


@pytest.fixture
def cut(monkeypatch):
    """Programs of any length are cut; the parts of each call."""
    found = []
    before = runtime_parts.run_in_parts

    def run_in_parts(work, count, step, threads):
        found.append(count)
        before(work, count, step, threads)

    monkeypatch.setattr(runtime_parts, "run_in_parts", run_in_parts)
    monkeypatch.setattr(costs, "SMALL_PART", 1)
    return found


def values(*shape, dtype=np.float32):
    return np.random.default_rng(5).normal(size=shape).astype(dtype)


def placed(value, *spec):
    return sw.device_put(value, NamedSharding(GRID, P(*spec)))


def agree(fun, *args):
    """`fun` compiled in parts, and op by op."""
    out = sw.jit(lambda *a: fun(*a))(*args)
    with config.override("shardwise_fused", "off"):
        expected = sw.jit(lambda *a: fun(*a))(*args)
    for a, b in zip(sw.tree_util.tree_leaves(out), sw.tree_util.tree_leaves(expected), strict=True):
        assert a.dtype == b.dtype
        assert a.sharding == b.sharding
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    return out


@pytest.mark.parametrize("spec", [("x",), ("y",), (("x", "y"),), (("y", "x"),)])
def test_a_recurrence_whose_rows_are_split(cut, spec):
    """Operands with a dim in front of the split one do not lie in C order."""
    w, h, xs = placed(0.1 * values(24, 24)), placed(values(8, 24), *spec), placed(values(50, 8, 24), None, *spec)
    agree(lambda w, h, xs: lax.scan(lambda h, x: (jnp.tanh(h @ w + x), h.sum(1)), h, xs), w, h, xs)
    assert cut == [2 if spec == ("y",) else 4]


def test_large_operands_that_are_read_where_they_lie(cut):
    w, h, xs = placed(0.1 * values(64, 64)), placed(values(64, 64), "x"), placed(values(80, 64, 64), None, "x")
    agree(lambda w, h, xs: lax.scan(lambda h, x: (jnp.tanh(h @ w + x), None), h, xs)[0], w, h, xs)
    assert cut == [4]


def test_results_that_are_the_same_on_all_devices(cut):
    """They are in memory of one device: only one part may write them."""

    def fun(x, y):
        def step(i, held):
            x, y = held
            return jnp.sin(x) + y[0], jnp.cos(y) * 0.5 + i

        return lax.fori_loop(0, 9, step, (x, y))

    agree(fun, placed(values(8, 40), "x"), placed(values(40)))
    assert cut == [4]


def test_parts_do_not_depend_on_threads(cut, monkeypatch):
    x = placed(values(8, 333), "x")
    f = sw.jit(lambda x: lax.fori_loop(0, 40, lambda i, c: jnp.tanh(c * 3 - c.sum(1, keepdims=True)), x))
    first = np.asarray(f(x))
    monkeypatch.setattr(runtime_parts, "thread_count", lambda: 1)
    np.testing.assert_array_equal(first, f(x))
    monkeypatch.setattr(runtime_parts, "thread_count", lambda: 3)
    np.testing.assert_array_equal(first, f(x))
    assert cut == [4, 4, 4]


def test_several_callers_at_once(cut):
    x = placed(values(8, 100), "x")
    f = sw.jit(lambda x, s: lax.fori_loop(0, 300, lambda i, c: jnp.sin(c) * s, x))
    expected = [np.asarray(f(x, float(s))) for s in range(4)]
    out = [None] * 4

    def call(s):
        for _ in range(20):
            out[s] = np.asarray(f(x, float(s)))

    threads = [threading.Thread(target=call, args=(s,)) for s in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    np.testing.assert_array_equal(out, expected)


def _looped(step, checked=True):
    body = lambda x: lax.fori_loop(0, 7, step, x)  # noqa: E731
    return sw.shard_map(body, mesh=GRID, in_specs=P("x", "y"), out_specs=P("x", "y"), check_vma=checked)


@pytest.mark.parametrize(
    "fun",
    [
        _looped(lambda i, c: c * 0.5 + lax.psum(c, "x") * 0.1, checked=False),
        _looped(lambda i, c: c * 0.5 + lax.axis_index("x")),
        lambda x: lax.while_loop(lambda h: h[0] < 9, lambda h: (h[0] + 1, jnp.sin(h[1])), (0, x))[1],
        lambda x: lax.fori_loop(0, 7, lambda i, c: c + 0.1 * c.sum(0), x),
        lambda x: lax.fori_loop(0, 7, lambda i, c: jnp.sin(c) + lax.broadcasted_iota(jnp.float32, (8, 6), 0), x),
    ],
    ids=["psum", "axis_index", "while_loop", "sum over devices", "iota"],
)
def test_devices_that_know_of_each_other_are_one_part(cut, fun):
    agree(fun, placed(values(8, 6), "x", "y"))
    assert not cut


def test_the_other_axis_may_know_of_its_devices(cut):
    agree(_looped(lambda i, c: c * 0.5 + lax.psum(c, "y") * 0.1, checked=False), placed(values(8, 6), "x", "y"))
    assert cut == [4]


def test_results_that_vary_over_an_earlier_axis_than_the_operands(cut):
    """Parts of them would lie apart."""

    def body(x):
        return lax.fori_loop(0, 7, lambda i, c: c * 0.5 + lax.axis_index("x"), lax.pvary(x, "x"))

    fun = sw.shard_map(body, mesh=GRID, in_specs=P("y"), out_specs=P(("x", "y")))
    agree(fun, placed(values(8, 6), "y"))
    assert not cut


def test_short_programs_are_one_part(cut, monkeypatch):
    monkeypatch.setattr(costs, "SMALL_PART", 1 << 26)
    agree(lambda x: lax.fori_loop(0, 7, lambda i, c: jnp.sin(c) * 2, x), placed(values(8, 6), "x"))
    assert not cut


def test_a_signal_ends_all_parts(cut):
    """Others than the caller's thread cannot see the signal: they are told."""
    x = placed(values(8, 400), "x")
    f = sw.jit(lambda x: lax.fori_loop(0, 20_000_000, lambda i, c: jnp.sin(c) * 2, x)).lower(x).compile()

    def interrupt():
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs of a shell ignore it
    sender = threading.Thread(target=interrupt)
    sender.start()
    begin = time.perf_counter()
    try:
        with pytest.raises(KeyboardInterrupt):
            f(x)
        assert time.perf_counter() - begin < 5
    finally:
        sender.join()
        signal.signal(signal.SIGINT, before)
