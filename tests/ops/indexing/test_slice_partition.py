"""Windows at computed places of split dims: rows are summed over devices, not all of them gathered."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.ir import ShapedArray
from shardwise.ops.indexing.slice_partition import window_part
from shardwise.runtime.env import Env
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

MESH = Mesh(np.array(sw.devices()[:8]).reshape(4, 2), ("x", "y"))
X = np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)
X[3], X[5], X[7] = -0.0, np.nan, np.inf


def ran(f, x, *others, spec=("x",)):
    """The result of `f` on split rows beside the one on whole rows, to the bit; and what it sends."""
    split = sw.device_put(x, NamedSharding(MESH, P(*spec)))
    got, want = np.asarray(sw.jit(f)(split, *others)), np.asarray(sw.jit(f)(x, *others))
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    np.testing.assert_array_equal(got, want)
    if got.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(got), np.signbit(want))
    return sw.jit(f).lower(split, *others).compile().runtime_executable().transfers


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("start", [0, 3, 60, 63, 100, -1, -3, -64, -100])
def test_starts_count_and_are_clamped_as_on_one_device(dtype, start):
    if start < 0 and dtype.startswith("u"):
        pytest.skip("unsigned")
    with sw.enable_x64():
        (sent,) = ran(lambda x, i: lax.dynamic_slice_in_dim(x, i, 4), X, np.array(start, dtype))
        assert (sent.kind, sent.bytes) == ("all_reduce", 2 * 3 * 4 * 8 * 4 // 4)


@pytest.mark.parametrize("spec", [("x",), ("x", "y"), (("x", "y"),), (None, "x")])
def test_windows_of_any_layout(spec):
    ran(lambda x, i: x[i], X, np.int32(5), spec=spec)
    ran(lambda x, i: lax.dynamic_slice(x, (i, i), (6, 3)), X, np.int32(4), spec=spec)
    ran(lambda x, i: sw.vmap(lambda i: lax.dynamic_slice(x, (i, 0), (4, 8)))(i), X, np.arange(3), spec=spec)
    ran(lambda x, i: sw.vmap(lambda c: lax.dynamic_slice(c, (i,), (4,)), 1)(x), X, np.int32(4), spec=spec)
    ran(lambda x, i: lax.dynamic_slice_in_dim(x, i, 5) > 0, X, np.int32(4), spec=spec)


def test_a_row_of_what_a_loop_changes():
    x = np.nan_to_num(X, posinf=0)
    sent = ran(lambda x: lax.fori_loop(0, 9, lambda i, x: x.at[i + 1].add(x[i]), x), x)
    assert [(t.kind, t.bytes, t.trips) for t in sent] == [("all_reduce", 2 * 3 * 8 * 4 // 4, 9)]


@pytest.mark.parametrize("rounds", [9, 400])
def test_a_constant_of_a_loop_is_moved_once_where_that_sends_less(rounds):
    x = np.nan_to_num(X, posinf=0)
    sent = ran(lambda x: lax.fori_loop(0, rounds, lambda i, s: jnp.maximum(s, x[i % 64]), jnp.zeros(8)), x)
    row, whole = 2 * 3 * 8 * 4 // 4, 3 * x.nbytes // 4
    assert sum(t.total for t in sent) == (9 * row if rounds == 9 else whole)


@pytest.mark.parametrize("spec", [("x",), ("x", "y"), (None, "x")])
def test_device_by_device(spec):
    f = lambda x, i: lax.dynamic_slice(x, (i, i), (6, 3))  # noqa: E731
    split = sw.device_put(X, NamedSharding(MESH, P(*spec)))
    with config.override("shardwise_stepped", True):
        np.testing.assert_array_equal(sw.jit(f)(split, 4), f(X, 4))


AXES = Env(("x", "y"), (4, 2))


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (2, 0, 1, 3), (3, 1, 0, 2)])
@pytest.mark.parametrize("axes", [("x",), ("y",), ("x", "y"), ("y", "x")])
@pytest.mark.parametrize("start", [-100, -3, 0, 3, 5, 11, 100])
def test_the_prepared_kernel_gives_what_the_kernel_gives(order, axes, start):
    """However the parts lie in memory, and for windows of one part and of several."""
    lead = tuple(n if a in axes else 1 for a, n in (("x", 4), ("y", 2)))
    shape = (*lead, 2, 6)
    dense = np.arange(np.prod(shape), dtype=np.float32).reshape([shape[d] for d in order])
    block = dense.transpose(np.argsort(order))
    n = 2 * int(np.prod(lead))
    for sizes in ((1, 6), (2, 3), (n - 1, 1)):
        params = {"dim": 0, "axes": axes, "slice_sizes": sizes, "wrap": (True, False), "sum_axes": axes}
        types = [ShapedArray((2, 6), np.float32, vma=frozenset(axes)), *[ShapedArray((), np.int32)] * 2]
        assert window_part.compile is not None
        prepared = window_part.compile(AXES, types, [ShapedArray(sizes, np.float32)], params)
        starts = [np.full((1, 1), i, np.int32) for i in (start, 2)]
        got, want = prepared(block, *starts), window_part.block_kernel(AXES, block, *starts, **params)
        np.testing.assert_array_equal(got, want)
        at = min(max(start + n if start < 0 else start, 0), n - sizes[0])
        if at // 2 == (at + sizes[0] - 1) // 2:
            assert np.shares_memory(got, block)
        many = [np.arange(8, dtype=np.int32).reshape(4, 2), starts[1]]
        np.testing.assert_array_equal(prepared(block, *many), window_part.block_kernel(AXES, block, *many, **params))


def test_windows_of_parts_that_lie_side_by_side_are_views():
    block = np.arange(4 * 16 * 8, dtype=np.float32).reshape(4, 1, 16, 8)
    params = {"dim": 0, "axes": ("x",), "slice_sizes": (32, 8), "wrap": (True, True), "sum_axes": ("x",)}
    types = [ShapedArray((16, 8), np.float32, vma=frozenset("x")), *[ShapedArray((), np.int32)] * 2]
    assert window_part.compile is not None
    prepared = window_part.compile(AXES, types, [ShapedArray((32, 8), np.float32)], params)
    zero = np.zeros((1, 1), np.int32)
    got = prepared(block, zero + 5, zero)
    assert np.shares_memory(got, block)
    np.testing.assert_array_equal(got[0, 0], block.reshape(64, 8)[5:37])
    copied = prepared(np.pad(block, ((0, 0), (0, 0), (0, 1), (0, 0)))[:, :, :16], zero + 5, zero)
    np.testing.assert_array_equal(copied, got)
