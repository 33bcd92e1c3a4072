"""Arrays as programs look at them: rows, shards, copies, and what building one under a trace says."""

from __future__ import annotations

import ctypes
import gc
import pickle
import subprocess
import sys
import weakref

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.errors import UnexpectedTracerError
from shardwise.sharding import Mesh, NamedSharding, PmapSharding, SingleDeviceSharding
from shardwise.sharding import PartitionSpec as P


@pytest.fixture
def mesh():
    return Mesh(np.array(sw.devices()).reshape(4, 2), ("x", "y"))


def test_rows_of_a_replicated_array_stay_on_its_mesh_those_of_a_split_one_do_not(mesh):
    x = np.arange(16.0, dtype=np.float32).reshape(8, 2)
    for spec in (P(), P(None)):
        row = list(sw.device_put(x, NamedSharding(mesh, spec)))[3]
        assert row.sharding == NamedSharding(mesh, P()) and row.committed
    row = list(sw.device_put(x, NamedSharding(mesh, P("x"))))[3]
    assert isinstance(row.sharding, SingleDeviceSharding) and not row.committed
    np.testing.assert_array_equal(row, x[3])
    single = Mesh(np.array(sw.devices()[1:2]), "z")
    assert next(iter(sw.device_put(x, NamedSharding(single, P("z"))))).sharding == NamedSharding(single, P())


@pytest.mark.parametrize("make", [lambda: jnp.zeros((3, 5)), lambda: jnp.broadcast_to(jnp.arange(5.0), (3, 5))])
def test_every_element_lies_behind_the_address_of_a_buffer(make):
    x = make()
    expected = np.asarray(x).copy()
    address = x.unsafe_buffer_pointer()
    seen = np.ctypeslib.as_array((ctypes.c_float * 15).from_address(address)).reshape(3, 5)
    np.testing.assert_array_equal(seen, expected)
    np.testing.assert_array_equal(np.asarray(x), expected)
    assert sw.jit(lambda x: x.at[0, 0].add(1), donate_argnums=0)(x).unsafe_buffer_pointer() == address


def test_shards_are_as_committed_as_their_array_and_replicas_share_the_first(mesh):
    first = jnp.arange(3).addressable_shards[0].data
    assert first is not None and not first.committed
    x = sw.device_put(np.arange(8.0), NamedSharding(mesh, P()))
    assert {x.addressable_data(i).devices().pop() for i in range(8)} == {sw.devices()[0]}


def test_pieces_of_what_pmap_gave_stay_where_they_are():
    rows = sw.pmap(lambda x: x * 2)(jnp.arange(6).reshape(2, 3))
    assert isinstance(rows.sharding, PmapSharding) and rows.copy().sharding == rows.sharding
    for i, row in enumerate(rows):
        assert row.devices() == {sw.devices()[i]} == rows[i].devices() and not row.committed
        np.testing.assert_array_equal(row, np.arange(6).reshape(2, 3)[i] * 2)


def test_an_empty_array_shows_its_shape():
    assert repr(jnp.zeros((0,))) == "Array([], shape=(0,), dtype=float32)"
    assert repr(jnp.arange(16.0)) == (
        "Array([ 0.,  1.,  2.,  3.,  4.,  5.,  6.,  7.,  8.,  9., 10., 11., 12.,\n       13., 14., 15.], dtype=float32)"
    )
    # No line is broken for the dtype: JAX fills up with spaces.
    wide = ", ".join(f"{i}." for i in range(10, 22))
    assert repr(jnp.arange(10.0, 22.0)) == f"Array([{wide}],      dtype=float32)"
    assert repr(jnp.arange(24)[:17]).endswith("15, 16],      dtype=int32)")


def test_arrays_are_not_built_from_traced_parts(mesh):
    whole = NamedSharding(mesh, P())
    with pytest.raises(UnexpectedTracerError, match="traced context"):
        sw.jit(lambda x: sw.make_array_from_callback(x.shape, whole, lambda index: x[index]))(jnp.arange(8))
    with pytest.raises(ValueError, match="list of concrete arrays"):
        sw.jit(lambda x: sw.make_array_from_single_device_arrays(x.shape, whole, [x]))(jnp.arange(8))


def test_a_callback_may_fill_the_same_memory_again(mesh):
    part = np.empty((2, 1))

    def fill(index):
        part[...] = index[0].start
        return part

    x = sw.make_array_from_callback((8, 2), NamedSharding(mesh, P("x", "y")), fill)
    assert x.dtype == np.float32
    np.testing.assert_array_equal(x, np.repeat([0, 2, 4, 6], 2)[:, None] * np.ones(2))


def test_parts_from_a_callback_are_of_one_type(mesh):
    split = NamedSharding(mesh, P("x"))
    with pytest.raises(ValueError, match=r"matching dtypes\. Got int32, expected float32"):
        sw.make_array_from_callback((4,), split, lambda i: np.zeros(1, np.int32 if i[0].start else np.float32))
    with pytest.raises(ValueError, match=r"Got dtype=int32 and shard dtype=float32"):
        sw.make_array_from_callback((4,), split, lambda i: np.zeros(1, np.float32), dtype=np.int32)
    for dtype in (np.int32, np.float32, np.int32):  # what is kept of earlier calls says nothing of types
        x = sw.make_array_from_callback((4,), split, lambda i, dtype=dtype: np.arange(4, dtype=dtype)[i])
        assert (x.dtype, np.asarray(x).tolist()) == (dtype, [0, 1, 2, 3])
    with pytest.raises(ValueError, match="shard shape"):
        sw.make_array_from_callback((4,), split, lambda i: np.zeros(2, np.float32))
    keys = sw.make_array_from_callback((4,), split, lambda i: sw.random.split(sw.random.key(0), 4)[i])
    assert keys.dtype == sw.random.key(0).dtype and keys.sharding == split


def test_a_struct_keeps_its_dtype_and_arrays_like_it_lie_as_it_says(mesh):
    split = NamedSharding(mesh, P("x", "y"))
    struct = sw.ShapeDtypeStruct((4, 4), np.float64, sharding=split)
    assert struct.dtype == np.float64 and sw.typeof(struct).dtype == np.float32
    for like in (jnp.zeros_like(struct), jnp.ones_like(struct), jnp.full_like(struct, 2)):
        assert like.sharding == split
    assert not jnp.full(2, 3, device=sw.devices()[1]).weak_type


def test_keys_do_not_add():
    with pytest.raises(TypeError):
        _ = sw.random.key(0) + 1


def test_the_class_has_its_attributes_before_numpy_is_loaded():
    program = """
import sys
import shardwise as jax
assert "shardwise.numpy" not in sys.modules
names = set(vars(jax.Array))
assert {"sharding", "addressable_shards", "item"} <= names
assert jax.Array.sum.__name__ == "sum" and isinstance(jax.Array.T, property)
assert set(vars(jax.Array)) == names, "the NumPy face defines names that have no stand-in"
left = [n for n, v in vars(jax.Array).items() if type(v).__name__ == "_StandIn"]
assert not left, left
assert jax.jit(lambda x: x.mT @ x)(jax.numpy.ones((2, 3))).shape == (3, 3)
assert not hasattr(jax.numpy.ones(2), "nothing")
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_scalars_of_single_device_arrays_may_have_an_entry_that_is_none():
    """As checkpoint libraries write them; JAX takes it, too."""
    mesh = sw.make_mesh((4,), ("x",), devices=sw.devices()[:4])
    parts = [sw.device_put(2.0, d) for d in sw.devices()[:4]]
    whole = sw.make_array_from_single_device_arrays((), NamedSharding(mesh, P(None)), parts)
    assert whole.shape == () and whole == 2 and whole.sharding.is_fully_replicated
    with pytest.raises(ValueError, match="rank at least 1"):
        sw.make_array_from_single_device_arrays((), NamedSharding(mesh, P("x")), parts)


def test_parts_of_blocks_that_hold_equal_parts_once(mesh):
    """Arrays of one signature share their shards' places, whatever their blocks look like."""
    split = NamedSharding(mesh, P("x", "y"))
    arrays = [
        sw.device_put(np.arange(64.0, dtype=np.float32).reshape(8, 8), split),
        sw.jit(lambda: jnp.ones((8, 8), jnp.float32), out_shardings=split)(),
        sw.jit(lambda x: jnp.broadcast_to(x, (8, 8)), out_shardings=split)(np.arange(8, dtype=np.float32)),
        sw.jit(lambda x: x.T, out_shardings=split)(np.arange(64.0, dtype=np.float32).reshape(8, 8)),
    ]
    for x in [*arrays, *reversed(arrays)]:
        assert x.sharding == split
        whole = np.asarray(x)
        for shard in sw.numpy.array(x, copy=True).addressable_shards + x.addressable_shards:
            assert shard.data is not None
            assert shard.data.shape == (2, 4)
            assert shard.data.sharding == SingleDeviceSharding(shard.device)
            np.testing.assert_array_equal(shard.data, whole[shard.index])


def test_shards_of_a_deleted_array_have_the_data_that_they_gave(mesh):
    x = sw.device_put(np.ones((8, 2), np.float32), NamedSharding(mesh, P("x")))
    first, second = x.addressable_shards[:2]
    np.testing.assert_array_equal(first.data, np.ones((2, 2)))
    x.delete()
    np.testing.assert_array_equal(first.data, np.ones((2, 2)))
    with pytest.raises(RuntimeError, match="deleted"):
        _ = second.data


def test_a_pickle_of_64_bits_is_narrowed_where_those_are_off():
    with sw.enable_x64(True):
        written = pickle.dumps(jnp.arange(3.0))
        assert pickle.loads(written).dtype == np.float64
    assert pickle.loads(written).dtype == np.float32


def test_shards_do_not_keep_an_array_from_being_freed(mesh):
    x = sw.device_put(jnp.arange(8.0), NamedSharding(mesh, P("x"))) + 1
    shards = x.addressable_shards
    assert [s.data.tolist() for s in x.addressable_shards[::2]] == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]]
    seen = weakref.ref(x)
    gc.disable()
    try:
        del x
        assert seen() is None
    finally:
        gc.enable()
    assert shards[2].data.tolist() == [3.0, 4.0]


def test_shards_of_a_deleted_array_have_no_data(mesh):
    x = sw.device_put(jnp.arange(8.0), NamedSharding(mesh, P("x"))) + 1
    first = x.addressable_shards[0]
    x.delete()
    with pytest.raises(RuntimeError, match=r"deleted with shape=float32\[8\]"):
        _ = first.data


ATTRIBUTES = "foo name data sum shape dtype T at sharding aval __dict__ __class__".split()


@pytest.mark.parametrize("attribute", ATTRIBUTES)
@pytest.mark.parametrize("make", [lambda lib: lib.numpy.ones(3), lambda lib: lib.random.key(0)], ids=["array", "key"])
def test_users_hang_attributes_on_arrays_as_on_those_of_jax(make, attribute):
    found = []
    for lib in (sw, pytest.importorskip("jax")):
        x = make(lib)
        try:
            setattr(x, attribute, 1)
            found.append(getattr(x, attribute))
        except (AttributeError, TypeError) as error:
            found.append(type(error).__mro__[0].__name__)
    assert attribute == "aval" or found[0] == found[1]
    assert "attribute" not in vars(make(sw))


DELETED = {
    "devices": lambda lib, x: x.devices(),
    "device": lambda lib, x: x.device,
    "op": lambda lib, x: x + 1,
    "compiled": lambda lib, x: lib.jit(lambda v: v + 1)(x),
    "closed over": lambda lib, x: lib.jit(lambda: x + 1)(),
    "device_put": lambda lib, x: lib.device_put(x, lib.devices()[0]),
    "NumPy": lambda lib, x: np.asarray(x),
    "index": lambda lib, x: x[0],
    "pickle": lambda lib, x: pickle.dumps(x),
    "DLPack": lambda lib, x: x.__dlpack__(),
    "repr": lambda lib, x: repr(x),
    "wait": lambda lib, x: x.block_until_ready(),
    "shards": lambda lib, x: x.addressable_shards,
    "tracing": lambda lib, x: lib.make_jaxpr(lambda v: v + 1)(x).out_avals[0].shape,
    "shape": lambda lib, x: (x.shape, str(x.dtype), len(x), x.committed, x.is_deleted()),
}


@pytest.mark.parametrize("donated", [False, True], ids=["deleted", "donated"])
@pytest.mark.parametrize("name", DELETED)
def test_a_deleted_array_raises_what_that_of_jax_raises(name, donated):
    found = []
    for lib in (sw, pytest.importorskip("jax")):
        x = lib.numpy.arange(8.0)
        if donated:
            lib.jit(lambda v: v + 1, donate_argnums=0)(x)
        else:
            x.delete()
        try:
            found.append(DELETED[name](lib, x))
        except (RuntimeError, ValueError, TypeError) as error:
            found.append((isinstance(error, RuntimeError), isinstance(error, ValueError), "deleted" in str(error)))
    assert found[0] == found[1]
