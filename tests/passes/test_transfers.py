"""The record of communication: bytes, times, causes and lines of all collectives of a device program."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

MESH = Mesh(np.array(sw.devices()[:8]).reshape(2, 4), ("x", "y"))


def arg(shape, *spec, dtype: Any = np.float32):
    return sw.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(MESH, P(*spec)))


def compiled(f, *args, outs=None):
    return sw.jit(f, out_shardings=outs).lower(*args).compile()


def record(f, *args, outs=None):
    return compiled(f, *args, outs=outs).runtime_executable().transfers


def here():
    return sys._getframe(1).f_lineno


def test_a_product_in_one_process_is_what_it_is_between_devices():
    """The kernel folds the sum over devices; the record has the reduce-scatter that devices would run."""
    executable = compiled(jnp.matmul, arg((8, 8), None, "y"), arg((8, 8), "y"), outs=NamedSharding(MESH, P("y")))
    assert "sum_axes=('y',)" in executable.as_text()
    (t,) = executable.runtime_executable().transfers
    assert (t.kind, t.axes, t.devices, t.dtype, t.value) == ("reduce_scatter", ("y",), 4, np.float32, "f32[8,8]")
    assert (t.bytes, t.total, t.trips) == (8 * 8 * 4 * 3 // 4,) * 2 + (1,)
    assert executable.cost_analysis()["collective bytes"] == t.total


def test_loops_multiply():
    def f(a, w):
        def inner(_, c):
            return lax.with_sharding_constraint(c @ w, NamedSharding(MESH, P()))

        return lax.scan(lambda c, _: (lax.fori_loop(0, 3, inner, c), None), a, None, length=5)[0]

    (t,) = record(f, arg((8, 8)), arg((8, 8), "x"))
    assert (t.trips, t.total) == (15, 15 * t.bytes)
    text = compiled(f, arg((8, 8)), arg((8, 8), "x")).explain()
    assert f"{t.bytes} bytes, 15 times, inserted" in text
    assert f"sending {15 * t.bytes} bytes per device" in text


def test_loops_of_unknown_length_count_once_and_say_so():
    def f(a, w, n):
        def step(state):
            i, c = state
            return i + 1, lax.with_sharding_constraint(c @ w, NamedSharding(MESH, P()))

        def body(c, _):
            return lax.while_loop(lambda state: state[0] < n, step, (0, c))[1], None

        return lax.scan(body, a, None, length=5)[0]

    args = arg((8, 8)), arg((8, 8), "x"), arg((), dtype=np.int32)
    (t,) = record(f, *args)
    assert t.trips is None
    assert t.total == 5 * t.bytes
    assert "as often as its loop or branch runs (counted once)" in compiled(f, *args).explain()


def product(x, w):
    return jnp.tanh(x @ w)


LINE = product.__code__.co_firstlineno + 1


@pytest.mark.parametrize("wrap", [lambda f: f, sw.checkpoint, sw.jit, lambda f: sw.jit(sw.checkpoint(f))])
@pytest.mark.parametrize("loop", [False, True])
def test_backward_ones_have_the_line_of_the_forward_op(wrap, loop):
    def loss(w, x):
        if loop:
            x = lax.scan(lambda c, _: (wrap(product)(c, w), None), x, None, length=3)[0]
        else:
            x = wrap(product)(x, w)
        return x.sum()

    w, x = arg((8, 8), "y"), arg((64, 8), ("x", "y"))
    found = record(sw.value_and_grad(loss), w, x, outs=(None, w.sharding))
    found = [t for t in found if t.source[:2] == (__file__, LINE)]
    assert {t.kind for t in found if not t.backward} == {"all_gather"}
    assert {"reduce_scatter"} <= {t.kind for t in found if t.backward} <= {"reduce_scatter", "all_gather", "all_reduce"}
    assert "test_transfers.py" in compiled(sw.grad(loss), w, x).explain()


def test_users_rules_have_their_own_lines():
    @sw.custom_vjp
    def f(x, w):
        return x @ w

    line = here() + 3

    def backward(saved, g):
        return g @ saved[1].T, saved[0].T @ g

    f.defvjp(lambda x, w: (f(x, w), (x, w)), backward)
    w = arg((8, 8), "y")
    found = record(sw.grad(lambda w, x: f(x, w).sum()), w, arg((64, 8), ("x", "y")), outs=w.sharding)
    gradient = next(t for t in found if t.backward)
    assert gradient.source[:2] == (__file__, line)


def test_what_nobody_needs_is_not_in_it_and_what_is_equal_is_once():
    def f(a, b):
        whole = NamedSharding(MESH, P())
        lax.with_sharding_constraint(b, whole)
        return lax.with_sharding_constraint(a, whole) + lax.with_sharding_constraint(a, whole)

    (t,) = record(f, arg((8, 8), "x"), arg((16, 8), "x"))
    assert (t.kind, t.value, t.implicit) == ("all_gather", "f32[8,8]", True)


def test_written_ones_are_told_from_inserted_ones():
    f = sw.shard_map(lambda x: lax.psum(x, "x"), mesh=MESH, in_specs=P("x"), out_specs=P())
    (t,) = record(f, arg((8, 8), "x"))
    assert (t.kind, t.implicit, t.unasked, t.cause, t.bytes) == ("all_reduce", False, False, "all_reduce", 4 * 8 * 4)
    mapped = sw.shard_map(sw.vmap(lambda x: lax.psum(x, "x")), mesh=MESH, in_specs=P("x"), out_specs=P())
    (t,) = record(mapped, arg((8, 8), "x"))
    assert (t.kind, t.axes, t.implicit, t.bytes) == ("all_reduce", ("x",), False, 4 * 8 * 4)
