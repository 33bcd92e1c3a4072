"""Loops in pieces: which are, and that no bit of an elementwise one changes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.ir import ShapedArray, trace_program, verify
from shardwise.passes.inline import inline_calls
from shardwise.passes.loop_pieces import with_loops_in_pieces
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.machine import llvm

pytestmark = pytest.mark.skipif(not llvm.available(), reason="no compiler for loops")

P = jax.sharding.PartitionSpec


def some(*shape):
    return np.random.default_rng(0).uniform(0.1, 1, shape).astype(np.float32)


def program_of(f, *args):
    return trace_program(lambda *a: jax.tree.leaves(f(*a)), [ShapedArray(a.shape, a.dtype) for a in args])[0]


def passed(f, *args):
    """The names of the equations after the pass."""
    program = with_loops_in_pieces(inline_calls(program_of(f, *args)), Env())
    verify(program, after="loop_pieces")
    return [e.op.name for e in program.equations]


def parts_of(f, *args):
    """The sizes of the parts that threads share."""
    program = with_loops_in_pieces(inline_calls(program_of(f, *args)), Env())
    return next(e.params["pieces"].sizes for e in program.equations if e.op.name == "in_pieces")


def check(f, *args, exact=True):
    """The same as without compiled loops."""
    got = jax.tree.leaves(jax.jit(lambda *a: f(*a))(*args))
    with config.override("shardwise_fused", "off"):
        expected = jax.tree.leaves(jax.jit(lambda *a: f(*a))(*args))
    for x, y in zip(got, expected, strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        if exact:
            np.testing.assert_array_equal(np.asarray(x), np.asarray(y))
        else:
            np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-5)


def rounds(x, count=12):
    return lax.fori_loop(0, count, lambda i, x: x * 0.75 + i * 0.5, x)


@pytest.mark.parametrize("shape", [(256, 256), (70001,), (1, 50000), (3, 30000), (1009, 33), (2, 3, 7001)])
def test_an_elementwise_loop_goes_through_memory_once(shape):
    x = some(*shape)
    assert "in_pieces" in passed(rounds, x)
    check(rounds, x)


@pytest.mark.parametrize("count", [6, 12, 40, 120])
def test_parts_are_of_as_equal_a_size_as_possible(count):
    *sizes, tail = parts_of(lambda x: rounds(x, count), some(70001))
    assert sum(sizes) + tail == 70001
    assert {(max(sizes) - n) // 4096 for n in sizes} <= {0, 1} and tail < 4096


def until(x, t):
    """Rounds of a carry of any shape; how many, each element says."""
    return lax.while_loop(lambda s: s[0] < t, lambda s: (s[0] + 1, s[1] * 0.75 + 0.5), (0, x))


@pytest.mark.parametrize("shape", [(40000,), (33333,), (17, 4096), (64, 1025), (2, 65536)])
def test_elements_that_stop_at_different_times(shape):
    x, t = some(*shape), (np.arange(shape[0]) % 7).astype(np.int32)
    f = jax.vmap(until)
    assert "in_pieces" in passed(f, x, t)
    check(f, x, t)


def test_two_vmaps():
    x, t = some(5, 40, 301), (np.arange(200) % 7).astype(np.int32).reshape(5, 40)
    f = jax.vmap(jax.vmap(until))
    assert "in_pieces" in passed(f, x, t)
    check(f, x, t)


def test_reductions_within_an_element():
    def f(x):
        return lax.while_loop(lambda x: x.sum() > 1, lambda x: x * 0.5, x)

    x = some(64, 1024)
    assert "in_pieces" in passed(jax.vmap(f), x)
    check(jax.vmap(f), x, exact=False)


def test_inner_loops_and_branches():
    def f(x):
        def step(x):
            x = lax.fori_loop(0, 3, lambda _, x: x * 0.9, x)
            return lax.cond(x[0] > 0.1, lambda x: x - 0.05, lambda x: x * 0.5, x)

        return lax.while_loop(lambda x: x[0] > 0.01, step, x)

    x = some(4096, 16)
    assert "in_pieces" in passed(jax.vmap(f), x)
    check(jax.vmap(f), x)


def test_values_of_many_types():
    def f(n, flag):
        def step(s):
            n, c, flag = s
            return jnp.where(n % 2 == 0, n // 2, 3 * n + 1), c + 1, ~flag

        return lax.while_loop(lambda s: s[0] > 1, step, (n, np.int8(0), flag))

    n = np.arange(1, 40002, dtype=np.int32) % 100
    assert "in_pieces" in passed(jax.vmap(f), n, n > 50)
    check(jax.vmap(f), n, n > 50)


def test_nans_and_infinities_stay_with_their_elements():
    x = some(40000)
    x[[0, 1, 15, 16, 39999]] = [np.nan, np.inf, -np.inf, -0.0, np.nan]
    check(lambda x: lax.fori_loop(0, 5, lambda _, x: x * x - x, x), x)
    check(jax.vmap(lambda x: lax.while_loop(lambda x: x < 4, lambda x: x + 1, x)), np.abs(x))


def test_loops_whose_parts_meet_stay_whole():
    x = some(40000)
    shifted = lambda x: lax.fori_loop(0, 5, lambda _, x: jnp.roll(x, 1) * 0.5, x)  # noqa: E731
    normed = lambda x: lax.fori_loop(0, 5, lambda _, x: x / x.sum(), x)  # noqa: E731
    asked = lambda x: lax.while_loop(lambda x: jnp.any(x > 0.5), lambda x: x - 0.1, x)  # noqa: E731
    few = lambda x: rounds(x, 2)  # noqa: E731
    for f in (shifted, normed, asked, few):
        assert "in_pieces" not in passed(f, x)
    check(asked, x)  # all elements go on as long as one asks for it


def test_what_is_the_same_for_all_elements():
    def f(x):
        return lax.while_loop(lambda s: s[0] < 7, lambda s: (s[0] + 1, s[1] * 0.75 + s[0], s[2] * 2), (0, x, 1.0))

    x = some(300, 300)
    assert "in_pieces" in passed(f, x)
    check(f, x)


def test_loops_inside_of_others():
    def f(x, t):
        def step(x, _):
            return jnp.cumsum(jax.vmap(until)(x, t)[1], 0) * 0.01, None

        return lax.scan(step, x, None, length=3)[0]

    x, t = some(64, 1024), (np.arange(64) % 7).astype(np.int32)
    (loop,) = [
        e for e in with_loops_in_pieces(inline_calls(program_of(f, x, t)), Env()).equations if e.op.name == "scan"
    ]
    assert "in_pieces" in [e.op.name for e in loop.params["body"].equations]
    check(f, x, t)


def test_many_devices_with_few_elements_each_stay_together():
    env = Env(("x",), (4096,))
    x = ShapedArray((8,), np.dtype("float32"), vma=frozenset("x"))
    program = inline_calls(trace_program(lambda x: [rounds(x)], [x])[0])
    assert with_loops_in_pieces(program, env) is program


def test_operands_in_any_order_and_constants():
    x, y = some(200, 300), some(300)
    f = lambda x, y: lax.fori_loop(0, 5, lambda _, s: s * 0.75 + y, x)  # noqa: E731
    check(f, x, y)
    check(lambda x, y: f(x.T, y[:200]), x, y)


def test_on_devices():
    mesh = jax.make_mesh((jax.device_count(),), ("x",))
    n = jax.device_count()
    x, t = some(8 * n, 4096), (np.arange(8 * n) % 7).astype(np.int32)
    expected = jax.vmap(until)(x, t)
    for spec in (P("x"), P(None, "x")):
        placed = jax.device_put(x, jax.NamedSharding(mesh, spec))
        plan = jax.jit(jax.vmap(until)).lower(placed, t).compile().runtime_executable().plan
        names = [e.op.name for e in plan.program.equations]
        assert "in_pieces" in names  # no device asks the others whether it goes on
        for got in (jax.jit(jax.vmap(until))(placed, t), jax.jit(rounds)(placed)):
            value = got[1] if isinstance(got, tuple) else got
            whole = expected[1] if isinstance(got, tuple) else rounds(x)
            np.testing.assert_allclose(np.asarray(value), np.asarray(whole), rtol=1e-6)


def joined_axes(f, *args):
    """Of loops that run in pieces, the axes along which devices' parts are one."""
    plan = jax.jit(f).lower(*args).compile()._entry.executable.plan
    return [e.params["joined"] for e in plan.program.equations if e.op.name == "in_pieces"]


SPECS = [
    (P("x"), ("x",)),
    (P("x", "y"), ("x", "y")),
    (P(("y", "x")), ("x", "y")),
    (P(None, "x"), ("x",)),
    (P(), ()),
]


@pytest.mark.parametrize("spec, joined", SPECS)
def test_small_parts_of_many_devices_go_through_as_one(monkeypatch, spec, joined):
    for name in ("LOOP_PIECE", "LOOP_PIECE_MOST"):
        monkeypatch.setattr(costs, name, 1 << 15)  # as large as a device's part
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("x", "y"))
    x, y = (jax.device_put(some(512, 256), jax.sharding.NamedSharding(mesh, spec)) for _ in range(2))

    def both(x, y):
        return lax.fori_loop(0, 12, lambda i, c: (c[0] * 0.75 + c[1] * i, c[1] * 0.5), (x, y))

    cases: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [(rounds, (x,)), (both, (x, y))]
    for f, given in cases:
        assert joined_axes(f, *given) == [joined]
        check(f, *given)
        found = jax.tree.leaves(jax.jit(f)(*given))
        assert all(v.sharding.is_equivalent_to(x.sharding, 2) for v in found)


def test_a_row_per_device_stops_when_it_is_done():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]), ("x",))
    x = jax.device_put(some(8, 16384), jax.sharding.NamedSharding(mesh, P("x")))
    counts = jax.device_put(np.arange(8) * 5, jax.sharding.NamedSharding(mesh, P("x")))

    def one(x, n):
        return lax.while_loop(lambda c: c[1] < n, lambda c: (c[0] * 0.9 + 0.1 * c[0] * c[0], c[1] + 1), (x, 0))

    f = jax.vmap(one)
    assert len(joined_axes(f, x, counts)) == 1
    check(f, x, counts)


def test_parts_that_differ_in_how_they_vary_stay_apart():
    """Constants that are the same on all devices, and loops that devices leave by themselves."""
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:8]), ("x",))
    x = jax.device_put(some(512, 256), jax.sharding.NamedSharding(mesh, P("x")))
    row = some(256)
    check(lambda x, row: lax.fori_loop(0, 12, lambda i, x: x * 0.75 + row, x), x, row)
    alone = jax.shard_map(
        lambda x: lax.while_loop(lambda x: (x * x).sum() > 1, lambda x: x * 0.75, x),
        mesh=mesh,
        in_specs=P("x"),
        out_specs=P("x"),
    )
    check(alone, x, exact=False)
