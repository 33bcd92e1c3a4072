"""Products that sum over nothing are written out as multiplications, so that they join the loops around them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ir import ShapedArray, trace_program, verify
from shardwise.passes.outer_products import with_outer_products
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.machine.llvm import available
from shardwise.sharding import NamedSharding, PartitionSpec

pytestmark = pytest.mark.skipif(not available(), reason="no compiler for fused loops")


@pytest.fixture(autouse=True)
def every_size_pays(monkeypatch):
    monkeypatch.setattr(costs, "FUSED_FEWEST", 0)


def written(f, *shapes, dtype: Any = np.float32):
    program, _ = trace_program(f, tuple(ShapedArray(s, np.dtype(dtype)) for s in shapes))
    return [e.op.name for e in verify(with_outer_products(program, Env())).equations]


NUMBERS = (((), ()), ((), ())), (((), ()), ((0,), (0,))), (((), ()), ((1,), (1,))), (((), ()), ((1, 0), (0, 1)))


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values(numbers, dtype):
    """Batch dims in any order, none, or all dims."""
    from shardwise.experimental import enable_x64

    rng = np.random.default_rng(0)
    a = rng.normal(size=(3, 4)).astype(dtype)
    b = rng.normal(size=(4, 3) if numbers[1][0] == (1, 0) else (5, 4) if 1 in numbers[1][1] else (3, 6)).astype(dtype)
    product = lambda a, b: [lax.dot_general(a, b, numbers) + 1]  # noqa: E731
    with enable_x64():
        assert "dot_general" not in written(product, a.shape, b.shape, dtype=dtype)
        letters = {(): "ij,kl->ijkl", (0,): "ij,il->ijl", (1,): "ji,li->ijl", (1, 0): "ji,ij->ij"}[numbers[1][0]]
        np.testing.assert_allclose(sw.jit(product)(a, b)[0], np.einsum(letters, a, b) + 1, rtol=1e-6)


@pytest.mark.parametrize("order", [(0, 2, 1), (2, 1, 0), (1, 2, 0)])
def test_a_product_that_is_only_transposed_is_written_so(order):
    a, b = np.arange(12, dtype=np.float32).reshape(3, 4), np.arange(15, dtype=np.float32).reshape(3, 5)
    turned = lambda a, b: [lax.transpose(lax.dot_general(a, b, (((), ()), ((0,), (0,)))), order)]  # noqa: E731
    assert written(turned, a.shape, b.shape).count("mul") == 1
    both = lambda a, b: [x := lax.dot_general(a, b, (((), ()), ((0,), (0,)))), lax.transpose(x, order)]  # noqa: E731
    assert "transpose" in written(both, a.shape, b.shape)
    product = a[:, :, None] * b[:, None, :]
    np.testing.assert_array_equal(sw.jit(turned)(a, b)[0], product.transpose(order))
    for found, expected in zip(sw.jit(both)(a, b), (product, product.transpose(order)), strict=True):
        np.testing.assert_array_equal(found, expected)


def test_what_sums_stays():
    assert written(lambda a, b: [a @ b], (3, 4), (4, 5)) == ["dot_general"]
    assert written(lambda a, b: [a @ b], (3, 1), (1, 5)) == ["dot_general"]
    precise = lambda a, b: [jnp.einsum("i,j->ij", a, b, precision="highest")]  # noqa: E731
    assert "dot_general" in written(precise, (3,), (4,))
    assert "dot_general" in written(lambda a, b: [jnp.einsum("i,j->ij", a, b)], (3,), (4,), dtype=np.int32)


def test_small_ones_stay(monkeypatch):
    monkeypatch.setattr(costs, "FUSED_FEWEST", 1 << 14)
    assert "dot_general" in written(lambda a, b: [jnp.einsum("i,j->ij", a, b)], (3,), (4,))


def test_on_a_mesh_and_under_sums_over_devices():
    mesh = sw.make_mesh((2, 2), ("x", "y"))
    a, b = np.arange(24.0, dtype=np.float32).reshape(4, 6), np.arange(32.0, dtype=np.float32).reshape(4, 8)
    put = lambda v: sw.device_put(v, NamedSharding(mesh, PartitionSpec("x", "y")))  # noqa: E731
    outer = lambda a, b: jnp.einsum("bi,bj->bij", a, b)  # noqa: E731
    np.testing.assert_array_equal(sw.jit(outer)(put(a), put(b)), np.einsum("bi,bj->bij", a, b))
    slope = sw.jit(sw.grad(lambda a, b: (outer(a, b) ** 2).sum()))(put(a), put(b))
    np.testing.assert_allclose(slope, 2 * a * (b**2).sum(1, keepdims=True), rtol=1e-5)
    spec = PartitionSpec("x")
    summed = sw.shard_map(
        lambda a, b: lax.psum(jnp.einsum("bi,bj->bij", a, b), "x"),
        mesh=mesh,
        in_specs=(spec, spec),
        out_specs=PartitionSpec(),
    )
    np.testing.assert_array_equal(
        sw.jit(summed)(a, b), np.einsum("bi,bj->bij", a[:2], b[:2]) + np.einsum("bi,bj->bij", a[2:], b[2:])
    )
