"""What is remembered of programs that come once does not fill the memory, and `clear_caches` forgets it."""

from __future__ import annotations

import functools
import gc
import sys
import threading
import weakref
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.base import caches
from shardwise.base.caches import Bounded, InternTable, recent
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec


def test_a_bounded_table_drops_its_older_half():
    table = Bounded(10)
    for i in range(25):
        table[i] = i
        assert len(table) <= 10 and table[i] == i
    assert list(table) == [*range(15, 25)]
    table[20] = "again"
    assert len(table) == 10 and table.get(15) == 15
    one = Bounded(1)
    one["a"] = one["b"] = 0
    assert list(one) == ["b"]


class Thing:
    pass


@pytest.fixture
def table(monkeypatch):
    monkeypatch.setattr(caches, "_intern_tables", [])
    return InternTable(least=8)


def test_interned_objects_live_as_long_as_anybody_has_them(table):
    held = {i: table.keep(i, Thing()) for i in range(0, 100, 5)}
    for i in range(100):
        table.keep(i, Thing())
    assert all(table[i] is x for i, x in held.items())
    assert len(table) < 60
    table.sweep()
    assert table.keys() == held.keys()
    assert table.keep(5, Thing()) is held[5]
    del held
    table.sweep()
    assert not table


class Fickle:
    """A key whose hash changes, as a user's sharding may."""

    def __init__(self):
        self.hash = 0

    def __hash__(self):
        return self.hash


def test_a_sweep_outlives_keys_that_it_cannot_find(table):
    key, held = Fickle(), table.keep(4, Thing())
    table.keep(key, Thing())
    key.hash = 1  # an empty slot of the dict
    table.sweep()
    assert table[4] is held


def test_threads_agree_on_interned_objects(table):
    """An object that one thread has is never made anew for another, while the table is swept."""
    done, wrong = threading.Event(), []

    def use(seed):
        rng = np.random.default_rng(seed)
        while not done.is_set():
            key = int(rng.integers(6))
            found = table.get(key)
            mine = table.keep(key, Thing()) if found is None else found
            if (table.get(key) or mine) is not mine:
                wrong.append(key)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    users = [threading.Thread(target=use, args=(i,)) for i in range(3)]
    try:
        for user in users:
            user.start()
        for _ in range(3000):
            table.sweep()
    finally:
        done.set()
        for user in users:
            user.join()
        sys.setswitchinterval(before)
    assert not wrong


def test_what_is_recent_is_cleared(monkeypatch):
    monkeypatch.setattr(caches, "_clear_functions", [])
    calls = []
    f = recent(2)(lambda x: calls.append(x))
    for x in (1, 1, 2, 3, 1):
        f(x)
    assert calls == [1, 2, 3, 1]
    caches.clear()
    f(1)
    assert calls == [1, 2, 3, 1, 1]


# -- the library's own tables ---------------------------------------------------------------------------------------------------------

total = jax.jit(lambda x: jnp.sum(x * 2 + 1))


def _eager(n):
    (jnp.ones(n) * 2)[1:]


def _jitted(n):
    total(np.ones(n, np.float32))


def _differentiated(n):
    jax.grad(lambda x: (x * x).sum())(np.ones(n, np.float32))


def _product(n):
    jnp.matmul(jnp.ones((n, 3)), np.ones((3, 2), np.float32))


def _mesh(n):
    mesh = Mesh(np.array(jax.devices()[:2]), (f"axis{n}",))
    np.asarray(jax.device_put(np.ones(4, np.float32), NamedSharding(mesh, PartitionSpec(f"axis{n}"))) + 1)


def _compiled(n):
    jax.jit(lambda x: jnp.tanh(x) * 2 + n)(np.ones((300, 301), np.float32))


def _loop(n):
    jax.lax.scan(lambda c, x: (c + x * n, c), np.float32(0), np.ones(3, np.float32))


def _big(n):
    jax.jit(lambda x: jax.nn.softmax(x) + 1)(np.ones((40, 300 + n), np.float32))


WAYS = {f.__name__.strip("_"): f for f in (_eager, _jitted, _differentiated, _product, _mesh, _compiled, _loop, _big)}


def _dicts():
    """Dicts and caches by identity, with the entries they have and the most that they may have."""
    limits, found = {}, {}
    objects: list[Any] = gc.get_objects()
    for o in objects:
        if isinstance(o, (weakref.WeakValueDictionary, weakref.WeakKeyDictionary)):
            limits[id(vars(o)["data"])] = 0
        elif type(o) is functools._lru_cache_wrapper:
            most: Any = o.cache_parameters()["maxsize"]
            limits |= {id(d): most for d in gc.get_referents(o) if type(d) is dict and most is not None}
    for o in objects:
        if isinstance(o, Bounded):
            found[id(o)] = len(o), o.limit, o
        elif isinstance(o, dict) and not isinstance(o, InternTable):
            found[id(o)] = len(o), limits.get(id(o), sys.maxsize), o
    return found


def test_nothing_grows_for_good(shell):
    """With each new shape, mesh or function some tables grow. All of them have a limit, and are emptied by `clear_caches`.

    In a process of its own: here the garbage collector would look at all objects of all tests from then on.
    """
    check = "from tests.base import test_caches; test_caches.check_growth()"
    done = shell("-c", check, cwd=Path(__file__).parents[2], JAX_NUM_CPU_DEVICES="8")
    assert done.returncode == 0, done.stderr


def check_growth():
    """Fail if something that one of `WAYS` makes stays for good.

    A table that grows once is none of these: the first kernel that is not on disk imports LLVM, whose types enter Python's tables.
    """
    count = 20
    _run(range(5, 8))
    counted, blocks = [_dicts()], 0
    for first in (100, 200):
        _cleared()
        blocks = sys.getallocatedblocks()
        _run(range(first, first + count))
        counted.append(_dicts())
    endless = [
        d
        for name, (_, most, d) in counted[-1].items()
        if most > 8192
        and all(name in old and new[name][0] - old[name][0] >= count // 2 for old, new in pairwise(counted))
    ]
    assert not [list(d.items())[-1] for d in endless]
    del endless, counted
    _cleared()
    grown = (sys.getallocatedblocks() - blocks) / count / len(WAYS)
    assert grown < 20, f"{grown} objects are left of each"  # hundreds, where a program is


def _run(sizes):
    for run in WAYS.values():
        for n in sizes:
            run(n)


def _cleared():
    """Twice: some objects go only when the garbage is collected that others left."""
    jax.clear_caches()
    jax.clear_caches()
