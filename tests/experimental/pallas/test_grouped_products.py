"""`megablox.gmm` and `tgmm` beside a product for each group; JAX 0.10.2's kernels, interpreted, give the same."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.experimental.pallas.ops.tpu.megablox import gmm
from shardwise.sharding import PartitionSpec as P

kernels = importlib.import_module("shardwise.experimental.pallas.ops.tpu.megablox.gmm")
M, K, N, GROUPS = 32, 8, 16, 4
SIZES = np.array([5, 0, 20, 7], np.int32)
TILING = (8, 8, 16)


def operands(dtype: Any = np.float32, transposed: bool = False, groups: int = GROUPS) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    a = jnp.asarray(rng.normal(size=(M, K)), dtype)
    return a, jnp.asarray(rng.normal(size=(groups, N, K) if transposed else (groups, K, N)), dtype)


def products(a: Any, b: Any, first: int = 0, transposed: bool = False) -> np.ndarray:
    """Each group's rows times its matrix; zeros in rows of other groups."""
    ends = np.cumsum(SIZES)
    out = np.zeros((M, N))
    for i in range(b.shape[0]):
        rows = slice(ends[first + i] - SIZES[first + i], ends[first + i])
        matrix = np.asarray(b[i], np.float64)
        out[rows] = np.asarray(a, np.float64)[rows] @ (matrix.T if transposed else matrix)
    return out


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
@pytest.mark.parametrize(("first", "groups"), [(None, 4), (1, 2), (2, 2), (3, 1)])
def test_each_group_meets_its_matrix(first, groups, dtype, transposed):
    a, b = operands(dtype, transposed, groups)
    offset = None if first is None else jnp.int32(first)
    want = products(a, b, first or 0, transposed)
    given = (SIZES, np.float32, TILING, offset)
    np.testing.assert_allclose(gmm(a, b, *given, None, transposed, True), want, rtol=1e-5, atol=1e-5)
    narrow = gmm(a, b, SIZES, jnp.bfloat16, TILING, offset, None, transposed)
    assert narrow.dtype == jnp.bfloat16
    old = jnp.full((M, N), 9.0)
    start = SIZES[: first or 0].sum()
    rows = np.arange(M)[:, None]
    inside = (rows >= start) & (rows < start + SIZES[first or 0 :][:groups].sum())
    over = jax.jit(lambda a, b, old: gmm(a, b, *given, old, transposed))(a, b, old)
    np.testing.assert_allclose(over, np.where(inside, want, 9.0), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("first", [None, 1])
def test_derivatives(first):
    groups = GROUPS if first is None else 2
    a, b = operands(groups=groups)
    offset = None if first is None else jnp.int32(first)
    ct = jnp.asarray(np.random.default_rng(1).normal(size=(M, N)), np.float32)
    of_a, of_b = jax.grad(lambda a, b: (gmm(a, b, SIZES, np.float32, TILING, offset) * ct).sum(), (0, 1))(a, b)
    np.testing.assert_allclose(of_a, products_of_cotangents(ct, b, first or 0), rtol=1e-5, atol=1e-5)
    ends = np.cumsum(SIZES)
    for i in range(groups):
        rows = slice(ends[i + (first or 0)] - SIZES[i + (first or 0)], ends[i + (first or 0)])
        np.testing.assert_allclose(of_b[i], np.asarray(a)[rows].T @ np.asarray(ct)[rows], rtol=1e-5, atol=1e-5)


def products_of_cotangents(ct: Any, b: Any, first: int) -> np.ndarray:
    ends, out = np.cumsum(SIZES), np.zeros((M, K))
    for i in range(b.shape[0]):
        rows = slice(ends[first + i] - SIZES[first + i], ends[first + i])
        out[rows] = np.asarray(ct, np.float64)[rows] @ np.asarray(b[i], np.float64).T
    return out


def test_existing_results_are_added_to_products_of_groups():
    a, _ = operands()
    ct = jnp.ones((M, N))
    old = jnp.full((2, K, N), 3.0)
    found = kernels.tgmm(a.T, ct, SIZES, np.float32, TILING, jnp.int32(1), 2, old)
    want = np.stack([np.zeros((K, N)), np.asarray(a)[5:25].T @ np.ones((20, N))]) + 3.0
    np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


def test_experts_on_their_devices():
    """Each device has its experts' matrices, and the sum over devices is the whole product."""
    mesh = jax.make_mesh((4,), ("expert",), devices=jax.devices()[:4])
    a, b = operands()

    def local(a: Any, b: Any) -> Any:
        return jax.lax.psum(gmm(a, b, SIZES, np.float32, TILING, jax.lax.axis_index("expert")), "expert")

    split = jax.shard_map(local, mesh=mesh, in_specs=(P(), P("expert")), out_specs=P())
    np.testing.assert_allclose(jax.jit(split)(a, b), products(a, b), rtol=1e-5, atol=1e-5)


BAD = {
    "Expected 2-tensor for 'lhs'": lambda a, b: gmm(a[0], b, SIZES),
    "Expected 3-tensor for 'rhs'": lambda a, b: gmm(a, b[0], SIZES),
    "Expected bfloat16 or float32": lambda a, b: gmm(a.astype(np.float16), b, SIZES),
    "32-bit integer 'group_sizes'": lambda a, b: gmm(a, b, SIZES.astype(np.float32)),
    "32 must be divisible by x-dimension tile size .7.": lambda a, b: gmm(a, b, SIZES, tiling=(7, 8, 8)),
    "group_offset must be a ..-shaped": lambda a, b: gmm(a, b, SIZES, group_offset=jnp.array([1]), tiling=TILING),
    "No tuned tiling found": lambda a, b: gmm(a, b, SIZES, tiling=lambda m, k, n: None),
    "dtype must match": lambda a, b: gmm(a, b, SIZES, jnp.bfloat16, TILING, existing_out=jnp.zeros((M, N))),
    "existing_out has shape": lambda a, b: gmm(a, b, SIZES, np.float32, TILING, existing_out=jnp.zeros((N, M))),
    "the matrices of rhs take 16": lambda a, b: gmm(a, b.swapaxes(1, 2), SIZES, tiling=TILING),
    "lhs has 8 columns, rhs 32 rows": lambda a, b: kernels.tgmm(a, a, SIZES, tiling=TILING),
}


@pytest.mark.parametrize("text", list(BAD))
def test_misfits_are_refused(text):
    with pytest.raises(ValueError, match=text):
        BAD[text](*operands())
