"""Sums over devices that loops only add up are taken once, behind the loops."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ir import verify
from shardwise.passes.late_sums import with_late_sums
from shardwise.passes.transfers import transfers_of
from shardwise.runtime import costs
from shardwise.runtime.plan import Plan
from shardwise.runtime.stepped import SteppedPlan
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.rounding import assert_normwise

RNG = np.random.default_rng(11)
MESH = Mesh(np.array(sw.devices()[:4]), ("x",))
SQUARE = Mesh(np.array(sw.devices()[:4]).reshape(2, 2), ("x", "y"))
ROUNDS = 3


def sums_of(f, *given, specs, mesh=MESH):
    """How often each all-reduce of `f` runs. The results of its device program are those of `f` on whole arrays."""
    args = [sw.device_put(x, NamedSharding(mesh, s)) for x, s in zip(given, specs, strict=True)]
    executable = sw.jit(f).lower(*args).compile().runtime_executable()
    program, blocks = executable.device_program, executable.blocks(args)
    verify(program, after="late_sums")
    expected = [np.asarray(v) for v in sw.tree.leaves(sw.jit(f)(*args))]
    for plan in (SteppedPlan, Plan):  # each device alone, which checks what the types say of them; all at once
        for block, want in zip(plan(program, executable.env).run(*blocks), expected, strict=True):
            assert_normwise(np.asarray(block).reshape(-1), want.reshape(-1), 1e-6)
    return sorted(t.trips for t in executable.transfers if t.kind == "all_reduce")


WHOLE = P()


def mapped(f, mesh=MESH, out: Any = WHOLE):
    """`f` of a part of the second argument, in shard_map."""
    return sw.shard_map(f, mesh=mesh, in_specs=(P(), P(None, "x")), out_specs=out)


def start_and_rows(dtype: Any = np.float32, shape=(8, 5)):
    first = RNG.integers(-4, 5, shape[1:]).astype(dtype)
    return first, RNG.integers(-4, 5, (ROUNDS, *shape)).astype(dtype)


def test_gradients_of_parts_of_a_batch_are_summed_once():
    def loss(w, x):
        return jnp.mean(jnp.tanh(jnp.tanh(x @ w["in"]) @ w["out"]) ** 2)

    def gradient(w_in, w_out, parts):
        w = {"in": w_in, "out": w_out}
        zero = sw.tree.map(jnp.zeros_like, w)
        return lax.scan(lambda g, x: (sw.tree.map(jnp.add, g, sw.grad(loss)(w, x)), None), zero, parts)[0]

    given = [RNG.standard_normal(s).astype(np.float32) for s in ((4, 6), (6, 2), (ROUNDS, 16, 4))]
    assert sums_of(gradient, *given, specs=(P(), P(), P(None, "x"))) == [1, 1]


@pytest.mark.parametrize("dtype", [np.float32, np.int32, jnp.bfloat16])
def test_loops_of_each_kind(dtype):
    first, rows = start_and_rows(dtype)

    def total(first, rows):
        return lax.scan(lambda c, x: (c + lax.psum(x.sum(0), "x"), None), first, rows)[0]

    def counted(first, rows):
        return lax.fori_loop(0, ROUNDS, lambda i, c: lax.psum(rows[i].sum(0), "x") + c, first)

    def stopped(first, rows):
        return lax.while_loop(
            lambda c: c[0] < ROUNDS, lambda c: (c[0] + 1, c[1] + lax.psum(rows[c[0]].sum(0), "x")), (0, first)
        )[1]

    for f in (total, counted, stopped):
        assert sums_of(mapped(f), first, rows, specs=(P(), P(None, "x"))) == [1]


BEFORE = {  # ops between a sum and a carry that must see the sum
    "wrapped, then widened": (np.int8, lambda s: s.astype(np.int32), -112),
    "padded with ones": (np.int32, lambda s: jnp.pad(s, (0, 3), constant_values=1), [400, 1, 1, 1]),
    "rounded on purpose": (np.float32, lambda s: lax.reduce_precision(s, 8, 1), 384),
}


@pytest.mark.parametrize("name", BEFORE)
def test_what_does_not_commute_with_sums_keeps_them_before_it(name):
    """100 on each of 4 devices: behind the loop the sum would wrap no more, and there would be ones of each device."""
    dtype, change, each = BEFORE[name]
    rows = np.full((ROUNDS, 4), 100, dtype)
    first = np.zeros(np.shape(each) or 1, np.float32 if dtype == np.float32 else np.int32)

    def total(first, rows):
        return lax.scan(lambda c, x: (c + change(lax.psum(x, "x")), None), first, rows)[0]

    assert sums_of(mapped(total), first, rows, specs=(P(), P(None, "x"))) == [ROUNDS]
    np.testing.assert_array_equal(sw.jit(mapped(total))(first, rows), np.full_like(first, each) * ROUNDS)


def test_two_sums_in_one_carry_and_two_carries():
    first, rows = start_and_rows()

    def f(first, rows):
        def step(c, x):
            a, b = c
            s, t = lax.psum(x[0], "x"), lax.psum(x[1] * x[0], "x")
            return (a + (s + t), b - s.T), None  # the sum in both carries stays: others read it

        return lax.scan(step, (first, first), rows)[0]

    assert sums_of(mapped(f, out=(P(), P())), first, rows, specs=(P(), P(None, "x"))) == [ROUNDS, ROUNDS]

    def apart(first, rows):
        def step(c, x):
            s, t, u = [lax.psum(v, "x") for v in (x[0], x[1] * x[0], x[1])]
            return (c[0] + (s + t), (c[1].reshape(1, -1) - u[None]).reshape(-1)), None

        return lax.scan(step, (first, jnp.zeros_like(first)), rows)[0]

    assert sums_of(mapped(apart, out=(P(), P())), first, rows, specs=(P(), P(None, "x"))) == [1, 1]


CHANGED = {
    "doubled": lambda c, s: (c + c) + s,
    "doubled on two ways": lambda c, s: c + (c + s),
    "subtracted": lambda c, s: s - c,
    "chosen": lambda c, s: jnp.where(jnp.arange(5) < 2, c + s, c),
    "shifted": lambda c, s: jnp.concatenate([c[1:], c[:1]]) + s,
}


@pytest.mark.parametrize("name", CHANGED)
@pytest.mark.parametrize("empty", [True, False])
def test_carries_that_are_more_than_added_to(name, empty):
    first, rows = start_and_rows()

    def f(first, rows):
        start = jnp.zeros_like(first) if empty else first
        return lax.scan(lambda c, x: (CHANGED[name](c, lax.psum(x.sum(0), "x")), None), start, rows)[0]

    found = sums_of(mapped(f), first, rows, specs=(P(), P(None, "x")))
    assert found == ([1] if empty else [ROUNDS])


def test_loops_in_loops():
    first, rows = start_and_rows()

    def f(first, rows):
        def outer(c, _):
            return lax.scan(lambda c, x: (c + lax.psum(x.sum(0), "x"), None), c, rows)[0], None

        return lax.scan(outer, first, None, length=2)[0]

    assert sums_of(mapped(f), first, rows, specs=(P(), P(None, "x"))) == [1]


def test_casts_to_wider_types_come_along_and_narrow_ones_stay():
    first, rows = start_and_rows(jnp.bfloat16)

    def f(dtype, first, rows):
        def step(c, x):
            return c + lax.psum(x.sum(0), "x").astype(dtype), None

        return lax.scan(step, first.astype(dtype), rows)[0]

    specs = (P(), P(None, "x"))
    assert sums_of(mapped(partial(f, np.float32)), first, rows, specs=specs) == [1]
    assert sums_of(mapped(partial(f, np.int32)), first, rows, specs=specs) == [ROUNDS]
    rows = rows.astype(np.float32)
    assert sums_of(mapped(partial(f, jnp.bfloat16)), first, rows, specs=specs) == [ROUNDS]


def test_updates_of_parts_at_places_that_all_devices_share():
    first, rows = np.zeros(ROUNDS + 1, np.float32), RNG.standard_normal((ROUNDS, 8)).astype(np.float32)

    def shared(first, rows):
        return lax.fori_loop(0, ROUNDS, lambda i, c: c.at[i].add(lax.psum(rows[i].sum(), "x")), jnp.zeros_like(first))

    assert sums_of(mapped(shared), first, rows, specs=(P(), P(None, "x"))) == [1]

    def own(first, rows):  # each device adds the sum at a place of its own: those of others would be wrong
        here = lax.axis_index("x")
        first = lax.pcast(first, ("x",), to="varying")

        def step(i, c):
            return c.at[here].add(lax.pcast(lax.psum(rows[i].sum(), "x"), ("x",), to="varying"))

        return lax.psum(lax.fori_loop(0, ROUNDS, step, first), "x")

    assert sums_of(mapped(own), first, rows, specs=(P(), P(None, "x"))) == [1, ROUNDS]


STAYING = {
    "others read the carry": lambda c, x: (c + lax.psum(x.sum(0), "x"), c),
    "others read the new carry": lambda c, x: ((n := c + lax.psum(x.sum(0), "x")), n),
    "others read the sum": lambda c, x: (c + (s := lax.psum(x.sum(0), "x")), 2 * s),
    "the carry is scaled": lambda c, x: (2 * c + lax.psum(x.sum(0), "x"), None),
    "the sum is scaled": lambda c, x: (c + lax.psum(x.sum(0), "x") * 3, None),
    "something else is added": lambda c, x: (c + lax.psum(x.sum(0), "x") + 1, None),
    "the carry is in the sum": lambda c, x: (c + lax.psum(c * x.sum(0), "x"), None),
    "an extremum": lambda c, x: (c + lax.pmax(x.sum(0), "x"), None),
}


@pytest.mark.parametrize("name", STAYING)
def test_what_stays_in_the_loop(name):
    first, rows = start_and_rows()

    def f(first, rows):
        return lax.scan(STAYING[name], first, rows)

    out = (P(), None if name in list(STAYING)[3:] else P())
    assert sums_of(mapped(f, out=out), first, rows, specs=(P(), P(None, "x"))) == [ROUNDS]


def test_a_test_that_reads_the_sum():
    first, rows = start_and_rows()

    def f(first, rows):
        return lax.while_loop(
            lambda c: (c[0] < ROUNDS) & (c[1][0] < 1e9),
            lambda c: (c[0] + 1, c[1] + lax.psum(rows[c[0]][0], "x")),
            (0, first),
        )[1]

    (trips,) = sums_of(mapped(f), first, rows, specs=(P(), P(None, "x")))
    assert trips is None


def test_no_round_leaves_what_was_there():
    first, rows = start_and_rows()

    def f(first, rows):
        return lax.fori_loop(2, 2, lambda i, c: c + lax.psum(rows[i].sum(0), "x"), first)

    assert sums_of(mapped(f), first, rows, specs=(P(), P(None, "x"))) == [1]


def test_sums_over_axes_along_which_nothing_varies_count_all_devices():
    first, rows = start_and_rows()

    def f(first, rows):
        def step(c, x):
            return c + lax.psum(lax.pcast(x.sum(0), ("y",), to="varying"), ("x", "y")), None

        return lax.scan(step, first, rows)[0]

    assert sums_of(mapped(f, SQUARE), first, rows, specs=(P(), P(None, "x")), mesh=SQUARE) == [1]


def test_sums_over_axes_that_differ_stay():
    first, rows = start_and_rows()

    def f(first, rows):
        def step(c, x):
            along_y = lax.psum(lax.pcast(x[1], ("y",), to="varying"), "y")
            return c + (lax.pcast(lax.psum(x[0], "x"), ("x",), to="varying") + along_y), None

        return lax.psum(lax.scan(step, lax.pcast(first, ("x",), to="varying"), rows)[0], "x")

    found = sums_of(mapped(f, SQUARE), first, rows, specs=(P(), P(None, "x")), mesh=SQUARE)
    assert found == [1, ROUNDS, ROUNDS]


FAR = {
    "means": lambda c, x: (c + lax.pmean(x.sum(0), "x"), None),
    "multiples": lambda c, x: (c + 3 * lax.psum(x.sum(0), "x") / 2, None),
    "stacked by an inner loop": lambda c, x: (c + lax.map(lambda v: lax.psum(v, "x"), x)[0], None),
    "stacked, in another type": lambda c, x: (
        c + lax.map(lambda v: lax.psum(v, "x").astype(np.float32), x.astype(jnp.bfloat16)).sum(0),
        None,
    ),
}


@pytest.mark.parametrize("name", FAR)
def test_sums_that_compilers_leave_can_be_moved_to_see_what_that_would_bring(name, monkeypatch):
    monkeypatch.setattr(costs, "STACKED_SUM_BYTES", 0)  # all stacked sums are large
    first, rows = start_and_rows()
    specs = (P(), P(None, "x"))

    def f(first, rows):
        return lax.scan(FAR[name], first, rows)[0]

    before = sums_of(mapped(f), first, rows, specs=specs)
    assert before != [1]
    args = [sw.device_put(x, NamedSharding(MESH, s)) for x, s in zip((first, rows), specs, strict=True)]
    executable = sw.jit(mapped(f)).lower(*args).compile().runtime_executable()
    moved = verify(with_late_sums(executable.device_program, far=True), after="late_sums")
    assert [t.trips for t in transfers_of(moved, {"x": 4})] == [1]
    (block,) = SteppedPlan(moved, executable.env).run(*executable.blocks(args))
    assert_normwise(np.asarray(block).reshape(-1), np.asarray(sw.jit(mapped(f))(*args)), 1e-6)


def test_small_sums_that_a_loop_stacks_are_taken_behind_it_and_large_ones_in_it():
    for width, trips in ((costs.STACKED_SUM_BYTES // 4, 1), (costs.STACKED_SUM_BYTES // 4 + 1, ROUNDS)):
        first, rows = start_and_rows(shape=(4, width))

        def losses(first, rows):
            return lax.scan(lambda c, x: (c + 1, lax.psum((x * c).sum(0), "x")), first, rows)[1]

        assert sums_of(mapped(losses), first, rows, specs=(P(), P(None, "x"))) == [trips]


def test_multiples_that_no_sum_is_stay():
    first, rows = start_and_rows(np.int32)

    def f(first, rows):
        def step(c, x):
            return c + lax.psum(x.sum(0), "x") // 4, None  # of integers, no mean

        return lax.scan(step, first, rows)[0]

    args = [sw.device_put(x, NamedSharding(MESH, s)) for x, s in ((first, P()), (rows, P(None, "x")))]
    program = sw.jit(mapped(f)).lower(*args).compile().runtime_executable().device_program
    assert with_late_sums(program, far=True) is program
