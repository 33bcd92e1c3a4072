"""Arrays do not change: not through what users get, nor through what they gave."""

from __future__ import annotations

import mmap
import pickle
from typing import Any, cast

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.ops.rules.order import comparable
from shardwise.runtime.handout import is_constant, read_only
from shardwise.sharding import NamedSharding, PartitionSpec

DTYPES = ("bool", "int8", "uint16", "int32", "float16", "bfloat16", "float32", "complex64", "float8_e5m2", "int4")
LAYOUTS = {
    "plain": lambda x: x,
    "transposed": lambda x: x.T,
    "reversed": lambda x: x[::-1],
    "part": lambda x: x[1:, 1:],
    "broadcast": lambda x: np.broadcast_to(x[:1], x.shape),
    "element": lambda x: x[1, 1, ...],
    "empty": lambda x: x[:0],
}


def bases(x):
    """The arrays below an array."""
    while isinstance(x, np.ndarray):
        yield x
        x = x.base


def check_kept(x):
    """No array that can be reached from `x` can be made writable."""
    for y in [*bases(x), *bases(x.view()), *bases(x[...]), *bases(x.reshape(-1)), *bases(x.T)]:
        if x.size and not np.may_share_memory(x, y):  # a copy
            continue
        assert not y.flags.writeable
        with pytest.raises(ValueError, match="cannot set WRITEABLE flag to True"):
            y.flags.writeable = True
    with pytest.raises(ValueError, match="read-only"):
        x[...] = 0


@pytest.mark.parametrize("layout", LAYOUTS)
def test_read_only_views_stay_so(layout):
    for dtype in DTYPES:
        own = np.arange(12).reshape(3, 4).astype(jnp.dtype(dtype))
        x = LAYOUTS[layout](own)
        y = read_only(x)
        assert (y.dtype, y.shape, type(y)) == (x.dtype, x.shape, np.ndarray)
        assert np.array_equal(y, x) and (not x.size or np.shares_memory(x, y))
        check_kept(y)


@pytest.mark.parametrize("dtype", ["complex128", "float64", "int64", "bool"])
def test_dtypes_that_a_library_made_anew(dtype):
    x = pickle.loads(pickle.dumps(np.arange(300).astype(dtype)))
    assert x.dtype.isbuiltin == 0
    shown = read_only(x)
    np.testing.assert_array_equal(shown, x)
    check_kept(shown)
    assert comparable(x) is x


@pytest.mark.parametrize("size", [3, 300])  # of the pool
def test_what_users_get(size):
    mesh = jax.make_mesh((2, 2), ("x", "y"))
    x = jnp.arange(4.0 * size * size).reshape(2 * size, 2 * size) + 1
    split = jax.device_put(x, NamedSharding(mesh, PartitionSpec("x", "y")))
    shard = split.addressable_shards[3].data
    for array in (x, x * 2, x.T, x[0], x[0, 0], x.astype(jnp.bfloat16), split, split + 1, shard, next(iter(x))):
        before = np.array(array)
        for given in (np.asarray(array), array.__array__(), jax.device_get(array), cast(Any, array)._value):
            check_kept(given)
        assert np.array_equal(before, array)


def test_views_keep_memory_in_use():
    x = jnp.arange(1 << 18, dtype=jnp.float32) + 1
    given = np.asarray(x)
    part = given[5:9]
    del x, given
    others = [jnp.zeros(1 << 18, jnp.float32) + i for i in range(8)]
    assert part.tolist() == [6, 7, 8, 9]
    del others


def test_what_users_give(tmp_path):
    """Users who freeze their own array can thaw it."""
    for dtype in (np.float32, jnp.bfloat16):
        for size in (8, 1 << 20):
            mine = np.arange(size).astype(dtype)
            mine.flags.writeable = False
            view = mine[:]
            arrays = [
                f(x)
                for f in (jnp.asarray, jax.device_put, jnp.array, lambda x: jax.jit(lambda x: x)(x))
                for x in (mine, view)
            ]
            mine.flags.writeable = True
            mine[:] = 0
            for array in arrays:
                assert int(array[3]) == 3


def test_constant_memory_is_not_copied(tmp_path):
    content = np.arange(64, dtype=np.float32).tobytes()
    (tmp_path / "file").write_bytes(content)
    read = np.memmap(tmp_path / "file", np.float32, mode="r")
    with open(tmp_path / "file", "r+b") as file:
        shared = mmap.mmap(file.fileno(), 0)
    cases = [
        (np.frombuffer(content, np.float32), True),
        (np.frombuffer(memoryview(content), np.float32), True),
        (read, True),
        (np.frombuffer(bytearray(content), np.float32), False),
        (np.frombuffer(memoryview(bytearray(content)).toreadonly(), np.float32), False),
        (np.frombuffer(memoryview(cast(Any, np.zeros(64, np.float32))).toreadonly(), np.float32), False),
        (np.frombuffer(shared, np.float32), False),
        (np.memmap(tmp_path / "file", np.float32, mode="c"), False),
    ]
    for i, (x, expected) in enumerate(cases):
        assert is_constant(x) == expected, i
        assert np.shares_memory(np.asarray(jnp.asarray(x)), x) == expected, i
