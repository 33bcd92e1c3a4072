"""Donated buffers are written over, and only where nobody else can see them."""

from __future__ import annotations

import copy
import gc
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.base.config import use_dialect
from shardwise.runtime.memory import alone, pool
from shardwise.sharding import NamedSharding, PartitionSpec

N = 1 << 16  # elements: enough for a fused loop, and for the pool


def fresh(shape: tuple[int, ...] = (N,), dtype: Any = np.float32) -> Any:
    """An array that a program made, so that its memory is the pool's."""
    x = jnp.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape).astype(dtype)
    return jax.jit(lambda x: x + 1)(x)


def as_any(x) -> Any:
    return np.asarray(x)


def made(call):
    """How many large arrays `call` makes, and what it returns."""
    gc.collect()
    before = pool.stats()["num_allocs"]
    out = call()
    return pool.stats()["num_allocs"] - before, out


@pytest.mark.parametrize("shape", [(N,), (256, 256), (4, 128, 128)])
def test_the_result_takes_the_buffer(shape):
    f = jax.jit(lambda x: 2 * jnp.sin(x) + 1, donate_argnums=0)
    want = np.asarray(jax.jit(lambda x: 2 * jnp.sin(x) + 1)(fresh(shape)))
    f(fresh(shape))
    x = fresh(shape)
    address = x.unsafe_buffer_pointer()
    count, y = made(lambda: f(x))
    assert count == 0 and x.is_deleted() and y.unsafe_buffer_pointer() == address
    np.testing.assert_array_equal(np.asarray(y), want)


@pytest.mark.parametrize("spec", [PartitionSpec(), PartitionSpec("x"), PartitionSpec("x", "y")])
def test_axes_of_size_one_do_not_stand_in_the_way(spec):
    mesh = jax.make_mesh((1, 1), ("x", "y"), devices=jax.devices()[:1])
    f = jax.jit(lambda x: x.at[5].set(1.0), donate_argnums=0)
    x = f(jax.device_put(fresh((256, 256)), NamedSharding(mesh, spec)))
    address = x.unsafe_buffer_pointer()
    count, y = made(lambda: f(x))
    assert count == 0 and x.is_deleted() and y.unsafe_buffer_pointer() == address


def holders():
    """Ways to keep sight of an array's memory: each gives something, and a function that reads it."""
    devices = jax.devices()
    replicated = NamedSharding(jax.make_mesh((len(devices),), ("i",)), PartitionSpec())
    return {
        "numpy": (np.asarray, np.asarray),
        "numpy row": (lambda x: np.asarray(x)[3:5], np.asarray),
        "memoryview": (lambda x: memoryview(as_any(x)), np.asarray),
        "dlpack": (lambda x: np.from_dlpack(x), np.asarray),
        "capsule": (lambda x: x.__dlpack__(), None),
        "shard": (lambda x: x.addressable_shards[0].data, np.asarray),
        "reshaped": (lambda x: x.reshape(2, -1), np.asarray),
        "sliced": (lambda x: x[5:], np.asarray),
        "elsewhere": (lambda x: jax.device_put(x, devices[-1]), np.asarray),
        "replicated": (lambda x: jax.device_put(x, replicated), np.asarray),
        "identity": (jax.jit(lambda x: x), np.asarray),
        "transposed": (jax.jit(lambda x: x.reshape(16, -1).T), np.asarray),
        "rows": (lambda x: list(x.reshape(4, -1)), lambda rows: np.stack([np.asarray(r) for r in rows])),
        "tree": (lambda x: jax.jit(lambda x: {"a": x, "b": x + 1})(x)["a"], np.asarray),
    }


@pytest.mark.parametrize("name", sorted(holders()))
def test_what_others_see_stays(name):
    hold, read = holders()[name]
    f = jax.jit(lambda x: x + 1, donate_argnums=0)
    x = fresh()
    want = np.asarray(x).copy() + 1
    held = hold(x)
    seen = None if read is None else read(held).copy()
    y = f(x)
    assert x.is_deleted()
    np.testing.assert_array_equal(np.asarray(y), want)
    if read is None:  # a capsule, to be read by whoever imports it
        held = np.from_dlpack(_Exporter(held))
        np.testing.assert_array_equal(held, want - 1)
    else:
        np.testing.assert_array_equal(read(held), seen)
    for _ in range(3):  # nor does what comes after
        y = f(y)
    if read is not None:
        np.testing.assert_array_equal(read(held), seen)


class _Exporter:
    def __init__(self, capsule):
        self.capsule = capsule

    def __dlpack__(self, **_) -> Any:
        return self.capsule

    def __dlpack_device__(self):
        return (1, 0)


def test_users_memory_is_never_written():
    mine = np.arange(N, dtype=np.float32)
    frozen = mine.copy()
    frozen.flags.writeable = False
    for given in (mine, frozen, jnp.asarray(frozen), jax.device_put(frozen)):
        f = jax.jit(lambda x: x * 2, donate_argnums=0)
        np.testing.assert_array_equal(np.asarray(f(given)), np.arange(N) * 2)
    np.testing.assert_array_equal(mine, np.arange(N))
    np.testing.assert_array_equal(frozen, np.arange(N))


def test_copies_are_apart():
    x = fresh()
    other, deep = copy.copy(x), copy.deepcopy(x)
    want = np.asarray(x).copy()
    jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    np.testing.assert_array_equal(np.asarray(other), want)
    np.testing.assert_array_equal(np.asarray(deep), want)


@pytest.mark.parametrize("size", [N - 1, N + 7, 3 * 21_931])
def test_rows_that_no_vector_divides(size):
    f = jax.jit(lambda x: x * 2 + 1, donate_argnums=0)
    x = fresh((size,))
    want = np.asarray(x) * 2 + 1
    np.testing.assert_array_equal(np.asarray(f(x)), want)
    rows = fresh((3, size))
    want = np.asarray(rows) * 2 + 1
    np.testing.assert_array_equal(np.asarray(f(rows)), want)


def test_results_that_are_laid_out_otherwise():
    cases = [
        (lambda x: x + x[:1], (256, 256)),  # a row of itself
        (lambda x: x + x.T, (256, 256)),
        (lambda x: x[::-1] + x, (N,)),
        (lambda x: jnp.broadcast_to(x[:1], x.shape) * x, (256, 256)),
        (lambda x: x - x.mean(0), (256, 256)),
        (lambda x: (x.reshape(-1, 16) + 1).reshape(x.shape), (256, 256)),
        (lambda x: jnp.cumsum(x) + x, (N,)),
        (lambda x: jnp.roll(x, 1) * 2 + x, (N,)),
        (lambda x: x.at[3].add(x[4]) + x, (N,)),
    ]
    for fun, shape in cases:
        want = np.asarray(jax.jit(fun)(fresh(shape)))
        np.testing.assert_array_equal(np.asarray(jax.jit(fun, donate_argnums=0)(fresh(shape))), want)


def test_other_dtypes_of_the_same_size():
    with use_dialect("latest"):  # the seed era wants one dtype
        for source, target in ((np.int32, np.float32), (np.float32, np.int32), (np.uint32, np.int32)):
            f = jax.jit(lambda x, t=target: x.astype(t) + 1, donate_argnums=0)
            y = f(fresh(dtype=source))
            assert y.dtype == target
            np.testing.assert_array_equal(np.asarray(y), np.arange(N) + 2)


def test_an_update_of_many_leaves():
    def step(params, moments, g):
        moments = {k: 0.9 * m + 0.1 * g for k, m in moments.items()}
        return {k: p - 0.1 * moments[k] for k, p in params.items()}, moments

    plain, donating = jax.jit(step), jax.jit(step, donate_argnums=(0, 1))
    g = fresh()
    want = [{k: fresh() for k in "abc"}, {k: fresh() for k in "abc"}]
    have = [{k: fresh() for k in "abc"}, {k: fresh() for k in "abc"}]
    for _ in range(3):
        want = plain(want[0], want[1], g)
        have = donating(have[0], have[1], g)
    for a, b in zip(jax.tree.leaves(want), jax.tree.leaves(have), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))
    count, have = made(lambda: donating(have[0], have[1], g))
    assert count == 0


def test_an_array_given_twice():
    f = jax.jit(lambda x, y: (x + 1, y + 1), donate_argnums=0)
    x = fresh()
    for _ in range(2):
        with pytest.raises(Exception, match="donate"):
            f(x, x)
        assert not x.is_deleted()
        f(fresh(), fresh())


def test_sharded_arrays():
    mesh = jax.make_mesh((4, 2), ("x", "y"))
    for spec in (PartitionSpec("x", "y"), PartitionSpec("y"), PartitionSpec(None, "x"), PartitionSpec()):
        placed = jax.device_put(fresh((256, 256)), NamedSharding(mesh, spec))
        x = jax.jit(lambda x: x * 1.5)(placed)
        want = np.asarray(x) + 1
        f = jax.jit(lambda x: x + 1, donate_argnums=0)
        shard = x.addressable_shards[1].data
        seen = np.asarray(shard).copy()
        y = f(x)
        np.testing.assert_array_equal(np.asarray(y), want)
        np.testing.assert_array_equal(np.asarray(shard), seen)
        f(y)  # compiled for its layout
        y = jax.jit(lambda x: x * 1.5)(placed)
        count, y = made(lambda f=f, y=y: f(y))
        assert count == 0 or spec == PartitionSpec()
        np.testing.assert_array_equal(np.asarray(y), want)


def test_temporaries_are_written_over_within_a_program():
    def fun(x):
        for _ in range(4):
            x = jnp.flip(jnp.tanh(x) * 2)  # a reversed view between the loops
            x = jnp.sort(x) + 1
        return x

    want = fun(jnp.asarray(np.linspace(-1, 1, N, dtype=np.float32)))
    have = jax.jit(fun)(jnp.asarray(np.linspace(-1, 1, N, dtype=np.float32)))
    np.testing.assert_allclose(np.asarray(have), np.asarray(want), rtol=1e-6)


def test_loops_do_not_write_over_what_they_keep():
    def fun(x):
        def body(c, _):
            return c * 0.5 + 1, c

        return jax.lax.scan(body, x, None, length=4)

    last, kept = jax.jit(fun, donate_argnums=0)(fresh())
    want, each = np.arange(N, dtype=np.float32) + 1, []
    for _ in range(4):
        each.append(want)
        want = want * np.float32(0.5) + 1
    np.testing.assert_array_equal(np.asarray(last), want)
    np.testing.assert_array_equal(np.asarray(kept), np.stack(each))


def test_calls_from_several_threads():
    f = jax.jit(lambda x: x * 2 + 1, donate_argnums=0)
    f(fresh())
    wrong = []

    def work(k):
        x = fresh() + k
        want = np.asarray(x).copy()
        for _ in range(20):
            x = f(x)
            want = want * 2 + 1
        if not np.array_equal(np.asarray(x), want):
            wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_ahead_of_time_calls_donate():
    f = jax.jit(lambda x: x + 1, donate_argnums=0)
    compiled = f.lower(fresh()).compile()
    x = fresh()
    count, y = made(lambda: compiled(x))
    assert count == 0 and x.is_deleted()
    np.testing.assert_array_equal(np.asarray(y), np.arange(N) + 2)


def test_alone_sees_every_reference():
    x = pool.empty((N,), np.float32)
    holder = [x]
    assert not alone(holder, 0)
    del x
    assert alone(holder, 0)
    holder = [holder[0].reshape(256, 256).T]
    assert alone(holder, 0)
    view = holder[0][0]
    assert not alone(holder, 0)
    del view
    assert alone(holder, 0)
    whole: Any = holder[0]
    buffer = memoryview(whole)
    del whole
    assert not alone(holder, 0)
    buffer.release()
    del buffer
    assert alone(holder, 0)
    assert alone([np.ones(N, np.float32)], 0)  # NumPy's own, too
    assert not alone([np.ones(2 * N, np.float32)[:N]], 0)
    assert not alone([np.broadcast_to(np.ones(N, np.float32), (N,))], 0)  # read-only
    assert not alone([np.frombuffer(bytearray(4 * N), np.float32)], 0)  # somebody else's
    mine = np.ones(N, np.float32)
    assert not alone([mine.reshape(256, 256)], 0)
    del mine
    assert not alone([pool.empty((2 * N,), np.float32)[:N]], 0)  # a part of a larger buffer


# -- calls that raise --------------------------------------------------------------------------------------------------------


def no(*args):
    raise ValueError("the user's")


def _interrupted(*args):
    raise KeyboardInterrupt


def _late(call):
    """`call` after and before work that would take the memory of its operand."""

    def f(x):
        y = 2 * jnp.sin(x) + 1
        z = jax.pure_callback(call, jax.ShapeDtypeStruct((), jnp.float32), y[:3])
        return jnp.cos(y) * z

    return f


def _in_loop(call):
    def step(i, x):
        return x + jax.pure_callback(call, jax.ShapeDtypeStruct((), jnp.float32), x[0])

    return lambda x: jax.lax.fori_loop(0, 3, step, x * 2) + 1


def _ordered(call):
    def f(x):
        x = x.at[3].set(7)
        jax.debug.callback(call, x[0], ordered=True)
        return x + 1

    return f


RAISING = {
    "trace": (lambda x: no(), ValueError),
    "type": (lambda x: x @ jnp.ones(3), TypeError),
    "callback": (_late(no), Exception),
    "callback in a loop": (_in_loop(no), Exception),
    "debug callback": (_ordered(no), Exception),
    "interrupt": (_late(_interrupted), BaseException),
    "check of a result": (lambda x: jnp.log(-x), FloatingPointError),
}


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("stage", list(RAISING))
def test_a_call_that_raises_leaves_what_was_donated(stage, devices):
    body, error = RAISING[stage]
    x, want = fresh(), np.asarray(fresh()).copy()
    if devices > 1:
        x = jax.device_put(x, NamedSharding(jax.make_mesh((devices,), ("i",)), PartitionSpec("i")))
    f = jax.jit(body, donate_argnums=0)
    with jax.debug_nans(stage == "check of a result"):
        for _ in range(2):  # when it is compiled, and from the cache
            with pytest.raises(error):
                f(x)
            assert not x.is_deleted()
            np.testing.assert_array_equal(np.asarray(x), want)
            gc.collect()
    y = jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    assert x.is_deleted()
    np.testing.assert_array_equal(np.asarray(y), want + 1)


@pytest.mark.parametrize("error", [MemoryError, KeyboardInterrupt])
@pytest.mark.parametrize(
    "body", [lambda x: 2 * jnp.sin(x) + 1, lambda x: x.at[3].add(1), lambda x: (x[::-1] * 2).cumsum() + x[5]]
)
def test_an_error_at_any_point_leaves_it_as_it_was_or_deletes_it(monkeypatch, body, error):
    """Every allocation fails in turn: whatever has not been taken by then is whole."""
    from shardwise.runtime.memory import Pool

    f, want = jax.jit(body, donate_argnums=0), np.asarray(fresh()).copy()
    f(fresh())
    take, left = Pool.empty, []
    for failing in range(12):
        x, count = fresh(), [0]

        def empty(self, *args, count=count, failing=failing, **kwargs):
            count[0] += 1
            if count[0] > failing:
                raise error
            return take(self, *args, **kwargs)

        monkeypatch.setattr(Pool, "empty", empty)
        try:
            f(x)
            done = True
        except error:
            done = False
        finally:
            monkeypatch.undo()
        if done:
            assert x.is_deleted()
            break
        left.append(not x.is_deleted())
        if left[-1]:
            np.testing.assert_array_equal(np.asarray(x), want)
    else:
        raise AssertionError("it never succeeded")
    assert all(left[:1])


def test_what_others_see_stays_after_a_call_that_raises():
    x = fresh()
    seen = np.asarray(x)
    with pytest.raises(Exception, match="the user's"):
        jax.jit(_late(no), donate_argnums=0)(x)
    np.testing.assert_array_equal(np.asarray(x), seen)
    assert np.asarray(x).ctypes.data == seen.ctypes.data


def test_a_program_with_a_callback_takes_the_memory_behind_it():
    def f(x):
        jax.debug.callback(lambda v: None, x[0])
        return 2 * jnp.sin(x) + 1

    step = jax.jit(f, donate_argnums=0)
    step(fresh())
    x = fresh()
    address = x.unsafe_buffer_pointer()
    assert step(x).unsafe_buffer_pointer() == address


# What JAX 0.10.2 does with a donated float32[8]: d(eletes it), k(eeps it), w(arns and keeps it), e(rror). Three groups by in_shardings
# (none, R: on all devices, S: split), in each by out_shardings (none, R, and S where the result divides).
ON_A_MESH = {
    ("uncommitted", "sum"): "ddw ddw kwk", ("uncommitted", "part"): "ww kw kw", ("uncommitted", "ones"): "kkk kkk kkk",
    ("R", "sum"): "ddw ddw eee", ("R", "part"): "kw kw ee", ("R", "ones"): "kkk kkk eee",
    ("S", "sum"): "dwd eee dwd", ("S", "part"): "kw ee kw", ("S", "ones"): "kkk eee kkk",
}  # fmt: skip
BODIES = {"sum": lambda x: x + 1, "part": lambda x: x[:3] * 2, "ones": lambda x: jnp.ones(8)}


@pytest.mark.parametrize(("layout", "body"), list(ON_A_MESH))
def test_arrays_are_deleted_where_jax_deletes_them(layout, body):
    """An argument that the program does not use stays, and so does one of which its devices get copies of parts."""
    mesh = jax.make_mesh((4,), ("x",), devices=jax.devices()[:4], axis_types=(jax.sharding.AxisType.Auto,))
    shardings = {None: None, "R": NamedSharding(mesh, PartitionSpec()), "S": NamedSharding(mesh, PartitionSpec("x"))}
    with use_dialect("latest"):
        for placed, marks in zip(shardings, ON_A_MESH[layout, body].split(), strict=True):
            for wanted, mark in zip(shardings, marks, strict=False):
                x = jnp.arange(8.0)
                if layout != "uncommitted":
                    x = jax.device_put(x, shardings[layout])
                given: dict[str, Any] = {"in_shardings": shardings[placed], "out_shardings": shardings[wanted]}
                f = jax.jit(BODIES[body], donate_argnums=0, **{k: v for k, v in given.items() if v is not None})
                with warnings.catch_warnings(record=True) as heard:
                    warnings.simplefilter("always")
                    if mark == "e":
                        with pytest.raises(ValueError, match="sharding"):
                            f(x)
                    else:
                        np.testing.assert_array_equal(np.asarray(f(x)), np.asarray(BODIES[body](np.arange(8.0))))
                seen = [str(w.message) for w in heard if "donated" in str(w.message)]
                assert (x.is_deleted(), bool(seen)) == (mark == "d", mark == "w"), (placed, wanted)


def test_an_unused_argument_stays_whatever_the_results_are():
    x, y = fresh(), fresh()
    jax.jit(lambda x, y: y + 1, donate_argnums=0)(x, y)
    assert not x.is_deleted()
    jax.jit(lambda x, y: y + 1, donate_argnums=0, keep_unused=True)(x, y)
    assert x.is_deleted()
