"""The pool gives memory back for use only when nobody can reach it."""

from __future__ import annotations

import gc
import pickle
import resource
import threading
import weakref
from typing import Any, cast

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.runtime import costs, memory
from shardwise.runtime.memory import Pool, pool

N = costs.POOLED_FROM // 4  # float32 elements of the smallest pooled array


def address(x: np.ndarray) -> int:
    return x.__array_interface__["data"][0]


@pytest.fixture
def fresh(monkeypatch):
    """A pool of its own, which leases report to."""
    made = Pool(limit=64 << 20)
    monkeypatch.setattr(memory, "pool", made)
    return made


def test_buffers_are_used_again(fresh):
    x = fresh.empty((N,), np.float32)
    where = address(x)
    assert x.flags.c_contiguous and x.flags.writeable and type(x) is np.ndarray and x.shape == (N,)
    del x
    assert address(fresh.empty((2, N // 2), np.int32)) == where


def test_small_arrays_are_numpys(fresh):
    assert fresh.empty((10,), np.float32).base is None
    assert fresh.stats()["num_allocs"] == 0


VIEWS = {
    "itself": lambda x: x,
    "slice": lambda x: x[5:7],
    "slice of a slice": lambda x: x[5:][1:][::2],
    "reshape": lambda x: x.reshape(4, -1).T[1:],
    "other dtype": lambda x: x.view(np.uint8)[3:],
    "asarray": lambda x: np.asarray(x)[None],
    "memoryview": lambda x: memoryview(x[1:]),
    "frombuffer": lambda x: np.frombuffer(memoryview(x), np.uint8),
    "dlpack": lambda x: np.from_dlpack(x[2:]),
    "capsule": lambda x: x.__dlpack__(),
    "broadcast": lambda x: np.broadcast_to(x, (3, *x.shape)),
    "subclass": lambda x: x.view(np.matrix),
    "record": lambda x: x.view([("a", "f4")]).view(np.recarray),
    "iterator": lambda x: iter(x.reshape(4, -1)),
    "flat": lambda x: x.flat,
    "base": lambda x: x[3:].base,
    "strided": lambda x: np.lib.stride_tricks.as_strided(x, (4,), (4,)),
    "window": lambda x: np.lib.stride_tricks.sliding_window_view(x, 3),
    "ctypes": lambda x: x.ctypes,
    "interface": lambda x: np.asarray(type("Holder", (), {"__array_interface__": x.__array_interface__, "kept": x})()),
    "element by position": lambda x: x[...],
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*matrix.*:PendingDeprecationWarning")
def test_views_keep_their_memory(fresh):
    held, places = {}, {}
    for kind, view in VIEWS.items():
        x = fresh.empty((N,), np.float32)
        x[:] = 1
        places[kind] = address(x)
        held[kind] = view(x)
        del x
    gc.collect()
    others = [fresh.empty((N,), np.float32) for _ in range(len(VIEWS))]
    taken = {address(x) for x in others}
    assert not [kind for kind, place in places.items() if place in taken]
    held.clear()
    gc.collect()
    more = [fresh.empty((N,), np.float32) for _ in range(len(VIEWS))]
    taken = {address(x) for x in more}
    assert not [kind for kind, place in places.items() if place not in taken]


def test_copies_do_not_keep_memory(fresh):
    x = fresh.empty((N,), np.float32)
    where, held = address(x), x.copy()
    del x
    assert address(fresh.empty((N,), np.float32)) == where
    assert held.base is None


def test_cycles_are_collected(fresh):
    class Node:
        me: Any
        x: Any

    node = Node()
    node.me, node.x = node, fresh.empty((N,), np.float32)
    where, seen = address(node.x), weakref.ref(node)
    del node
    gc.collect()
    assert seen() is None
    assert address(fresh.empty((N,), np.float32)) == where


def test_the_limit_drops_the_oldest():
    local = Pool(limit=3 * costs.POOLED_FROM)
    buffers = [local._take(costs.POOLED_FROM) for _ in range(5)]
    for b in buffers:
        local.put_back(b)
    assert local.held <= 3 * costs.POOLED_FROM
    kept = [local._take(costs.POOLED_FROM) for _ in range(3)]
    assert {id(b) for b in kept} == {id(b) for b in buffers[2:]}
    local.put_back(kept.pop())
    local.trim()
    assert local.held == 0


def test_counts(fresh):
    x, y = fresh.empty((N,), np.float32), fresh.empty((3 * N,), np.float32)
    stats = fresh.stats()
    assert stats["num_allocs"] == 2 and stats["bytes_in_use"] >= 16 * N
    del x, y
    stats = fresh.stats()
    assert stats["bytes_in_use"] == 0 and stats["peak_bytes_in_use"] >= 16 * N
    assert stats["pool_bytes"] >= 16 * N


def test_size_classes_waste_at_most_an_eighth():
    for size in (costs.POOLED_FROM, costs.POOLED_FROM + 1, 10**6, 10**7 + 3, 1 << 26, (1 << 26) + 1):
        room = memory.room_of(size)
        assert size <= room <= size * 1.13 + 4096
        assert memory.room_of(room) == room


def test_threads_never_share_a_buffer(fresh):
    failures = []

    def work(seed):
        rng = np.random.default_rng(seed)
        mine = []
        for i in range(300):
            x = fresh.empty((N + int(rng.integers(0, 3)) * N,), np.float32)
            mark = seed * 1000 + i
            x[0] = x[-1] = mark
            mine.append((mark, x[::2] if i % 2 else x))
            if len(mine) > 6:
                mark, view = mine.pop(int(rng.integers(0, len(mine))))
                if view[0] != mark:
                    failures.append(mark)
        failures.extend(mark for mark, view in mine if view[0] != mark)

    workers = [threading.Thread(target=work, args=(s,)) for s in range(4)]
    for t in workers:
        t.start()
    for t in workers:
        t.join()
    assert not failures


def test_a_destructor_inside_of_the_lock_does_not_block(fresh):
    x = fresh.empty((N,), np.float32)
    with fresh._lock:
        del x
    assert fresh.stats()["bytes_in_use"] == 0


# -- results that users hold -----------------------------------------------------------------------------------------


HOLDERS = {
    "array": lambda y: y,
    "asarray": lambda y: np.asarray(y),
    "view": lambda y: np.asarray(y)[1:][::-1],
    "shard": lambda y: y.addressable_shards[1].data,
    "shard as ndarray": lambda y: np.asarray(y.addressable_shards[3].data),
    "dlpack": lambda y: np.from_dlpack(y.addressable_data(0)),
    "memoryview": lambda y: memoryview(cast(Any, np.asarray(y))),
    "element": lambda y: y[3],
    "iterator": lambda y: list(iter(y))[2],
    "reshaped": lambda y: y.reshape(-1)[::2],
    "transposed": lambda y: y.T,
    "resharded": lambda y: jax.device_put(y, jax.devices()[0]),
    "identity jit": lambda y: jax.jit(lambda v: v)(y),
}  # fmt: skip


@pytest.mark.parametrize("split", [False, True])
def test_results_are_never_overwritten(split):
    x = jnp.arange(512 * 512, dtype=np.float32).reshape(512, 512) / 1000
    if len(jax.devices()) < 4:
        pytest.skip("needs 4 devices")
    mesh = jax.make_mesh((4,), ("x",), devices=jax.devices()[:4])
    spec = jax.sharding.PartitionSpec("x" if split else None)
    x = jax.device_put(x, jax.sharding.NamedSharding(mesh, spec))
    f = jax.jit(lambda x: jnp.sin(x) * 2 + 1)
    held = {kind: hold(f(x)) for kind, hold in HOLDERS.items()}
    before = {kind: np.array(value, copy=True) for kind, value in held.items()}
    g = jax.jit(lambda x: x * 0 - 7)
    for _ in range(2):
        for _ in range(3 * len(HOLDERS)):
            g(x)
        gc.collect()
    for kind, value in held.items():
        np.testing.assert_array_equal(np.asarray(value), before[kind], err_msg=kind)


def test_buffers_of_dead_results_come_back():
    x = jnp.ones(1 << 18, np.float32)
    f = jax.jit(lambda x: jnp.tanh(x) + x)
    f(x)
    before = pool.stats()["pool_bytes"]
    for _ in range(10):
        f(x)
    assert pool.stats()["pool_bytes"] <= before + 3 * (1 << 20)


def test_devices_tell_what_the_pool_holds():
    stats = jax.devices()[0].memory_stats()
    held = pool.stats()
    assert stats is not None and stats.keys() == held.keys() and stats["bytes_in_use"] >= held["bytes_in_use"]
    assert stats["num_allocs"] == held["num_allocs"] and stats["bytes_limit"] == held["bytes_limit"]
    assert stats["bytes_limit"] > 0


def test_a_refused_array_is_not_counted_and_is_named():
    x = jnp.ones(1 << 22, np.float32)

    def square(x):
        one = x[0] + 1
        return jnp.broadcast_to(x, (x.size, x.size)) * one  # 64 TiB

    line = square.__code__.co_firstlineno + 2
    for compute in (jax.jit(square), square):
        before = pool.stats()["bytes_in_use"]
        with pytest.raises(
            jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED: Out of memory allocating 70368744177664"
        ) as caught:
            compute(x)
        assert isinstance(caught.value, MemoryError)
        assert "64 TiB for an array with shape (4194304, 4194304) and data type float32" in str(caught.value)
        assert compute is square or f"The memory was needed at {__file__}:{line}." in caught.value.__notes__
        assert pool.stats()["bytes_in_use"] == before
        again = pickle.loads(pickle.dumps(caught.value))
        assert type(again) is type(caught.value) and str(again) == str(caught.value)
    with pytest.raises(MemoryError, match="Unable to allocate"):
        pool.empty((1 << 50, 1 << 12), np.int8)


@pytest.mark.parametrize(
    "compute",
    [
        lambda n: jax.random.normal(jax.random.key(0), (n, n)),
        lambda n: jax.jit(lambda x: jnp.dot(x, x.T).sum())(jnp.ones((n, n))),
        lambda n: jnp.linalg.svd(jnp.ones((n, n))),
        lambda n: jax.jit(jnp.linalg.det)(jnp.ones((n, n))),
    ],
    ids=["random", "dot", "svd", "det"],
)
def test_arrays_that_numpy_makes_are_refused_alike(compute):
    with pytest.raises(jax.errors.JaxRuntimeError, match="RESOURCE_EXHAUSTED: Out of memory") as caught:
        compute(1 << 25)
    assert isinstance(caught.value, MemoryError)


def test_waiting_buffers_make_room(fresh, monkeypatch):
    """What waits for use is given back before an array is refused."""
    x = fresh.empty((N,), np.float32)
    del x
    assert fresh.stats()["pool_bytes"]
    aligned, refused = memory._aligned_buffer, [True]

    def once(size):
        if refused.pop() if refused else False:
            raise MemoryError
        return aligned(size)

    monkeypatch.setattr(memory, "_aligned_buffer", once)
    y = fresh.empty((2 * N,), np.float32)
    assert y.size == 2 * N and fresh.held == 0 and fresh.used == memory.room_of(y.nbytes)


def test_memory_stats_count_arrays_in_other_memory():
    def in_use(name: str = "bytes_in_use") -> int:
        stats = jax.devices()[0].memory_stats()
        assert stats is not None
        return stats[name]

    gc.collect()
    before = in_use()
    x = jnp.asarray(np.random.default_rng(0).random(1 << 20, np.float32))
    assert in_use() - before == 4 << 20
    view = x.reshape(1024, 1024)
    assert in_use() - before == 4 << 20, "one buffer, however many arrays lie in it"
    y = (x * 2).block_until_ready()
    assert in_use() - before == 8 << 20
    del x, y
    assert in_use() - before == 4 << 20
    del view
    assert in_use() == before
    assert in_use("peak_bytes_in_use") >= 8 << 20


def test_results_of_middling_size_cost_no_page_faults():
    results = 12
    f = jax.jit(lambda x: [x * (i + 2.0) for i in range(results)])
    x = jnp.ones((1024, 32))  # 32 pages, which C's allocator gives back to the system each time
    for _ in range(10):
        f(x)
    calls, before = 40, resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(calls):
        f(x)
    # A quarter of the pages, since LLVM works in another thread meanwhile.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < calls * results * 8
