"""Contractions of blocks: values, memory layout and the law that loop dims are independent products."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from shardwise.ops.products.gemm import contract_as
from shardwise.runtime.products.contraction import contract, gemm_plan
from tests.rounding import assert_einsum, assert_normwise, assert_same_products

RNG = np.random.default_rng(0)


def block(lead: tuple[int, ...], shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
    full = RNG.normal(size=(*lead, *shape))
    return (full * 10).astype(dtype) if np.dtype(dtype).kind in "iu" else full.astype(dtype)


def per_device(lhs: np.ndarray, rhs: np.ndarray, lead: int, dims, sum_dims=()) -> np.ndarray:
    """The lead-0 einsum of every loop index, by Python loops."""
    (lc, rc), (lb, rb) = dims
    names = iter("abcdefghijklmnopqrstuvwxyz")
    left, right = [next(names) for _ in range(lhs.ndim - lead)], [""] * (rhs.ndim - lead)
    for i, j in (*zip(lc, rc, strict=True), *zip(lb, rb, strict=True)):
        right[j] = left[i]
    right = [r or next(names) for r in right]
    out = [left[i] for i in lb] + [c for i, c in enumerate(left) if i not in lc and i not in lb]
    out += [c for i, c in enumerate(right) if i not in rc and i not in rb]
    spec = f"{''.join(left)},{''.join(right)}->{''.join(out)}"
    extents = np.broadcast_shapes(lhs.shape[:lead], rhs.shape[:lead])
    grid = {}
    for at in itertools.product(*map(range, extents)):
        pick = lambda x: x[tuple(min(i, n - 1) for i, n in zip(at, x.shape[:lead], strict=True))]  # noqa: B023, E731
        grid[at] = np.einsum(spec, pick(lhs), pick(rhs))
    first = grid[(0,) * lead]
    result = np.empty((*extents, *first.shape), first.dtype)
    for at, value in grid.items():
        result[at] = value
    return result.sum(axis=tuple(sum_dims), keepdims=True) if sum_dims else result


DIMS = [
    (((1,), (0,)), ((), ())),
    (((0,), (1,)), ((), ())),
    (((2,), (1,)), ((0,), (0,))),
    (((3,), (3,)), ((0, 2), (0, 2))),
    (((1, 2), (2, 0)), ((), ())),
    (((0,), (0,)), ((), ())),
    (((), ()), ((0,), (0,))),
    (((), ()), ((), ())),
]


def shapes(dims, n=3):
    (lc, rc), (lb, rb) = dims
    ln = max((*lc, *lb, 0)) + 1 + (not lb)
    rn = max((*rc, *rb, 0)) + 1 + (not rb)
    left, right = [2 + i for i in range(ln)], [5 - i % 3 for i in range(rn)]
    for i, j in (*zip(lc, rc, strict=True), *zip(lb, rb, strict=True)):
        right[j] = left[i]
    return tuple(left), tuple(right)


@pytest.mark.parametrize("dims", DIMS)
@pytest.mark.parametrize(
    "lead", [((), ()), ((3,), (3,)), ((3,), (1,)), ((1,), (3,)), ((2, 1), (2, 3)), ((1, 3), (2, 1)), ((1, 1), (1, 1))]
)
def test_loop_dims_are_independent_products(dims, lead):
    left, right = shapes(dims)
    a, b = block(lead[0], left, np.float64), block(lead[1], right, np.float64)
    n = len(lead[0])
    got = contract(a, b, n, dims)
    want = per_device(a, b, n, dims)
    assert got.shape == want.shape
    assert_normwise(got, want, 1e-14)


@pytest.mark.parametrize("extents", [((3, 2), (3, 2)), ((3, 2), (1, 2)), ((1, 2), (3, 1)), ((3, 1), (3, 1))])
@pytest.mark.parametrize("sum_dims", [(0,), (1,), (0, 1)])
def test_summed_loop_dims(extents, sum_dims):
    a, b = block(extents[0], (4, 5), np.float64), block(extents[1], (5, 6), np.float64)
    dims = DIMS[0]
    full = np.broadcast_to(a, (3, 2, 4, 5)), np.broadcast_to(b, (3, 2, 5, 6))
    want = per_device(*full, 2, dims, sum_dims)
    alike = int(np.prod([(3, 2)[d] for d in sum_dims if extents[0][d] == extents[1][d] == 1]))
    got = contract(a, b, 2, dims, sum_dims, alike)
    assert all(got.shape[d] == 1 for d in sum_dims)
    assert_normwise(np.broadcast_to(got, want.shape), want, 1e-14)


def views(x: np.ndarray):
    """The same values under other strides."""
    yield x
    yield np.asfortranarray(x)
    big = np.zeros(tuple(2 * n for n in x.shape), x.dtype)
    cut = big[tuple(slice(None, None, 2) for _ in x.shape)]
    cut[...] = x
    yield cut
    back = x[..., ::-1].copy()
    yield back[..., ::-1]


@pytest.mark.parametrize("dims", [DIMS[0], DIMS[2], DIMS[4]])
def test_strided_operands(dims):
    left, right = shapes(dims)
    a, b = block((2,), left, np.float64), block((1,), right, np.float64)
    want = per_device(a, b, 1, dims)
    for x, y in itertools.product(views(a), views(b)):
        assert_normwise(contract(x, y, 1, dims), want, 1e-14)
    stretched = np.broadcast_to(a[:1, :1], a.shape)
    assert_normwise(contract(stretched, b, 1, dims), per_device(stretched, b, 1, dims), 1e-14)


def split(x: np.ndarray, dim: int, n: int) -> np.ndarray:
    """The block of a dense global array split n ways along dim: a view."""
    x = x.reshape(*x.shape[:dim], n, x.shape[dim] // n, *x.shape[dim + 1 :])
    return np.moveaxis(x, dim, 0)


def joined(block: np.ndarray, dim: int) -> np.ndarray:
    x = np.moveaxis(block, 0, dim)
    return x.reshape(*x.shape[:dim], -1, *x.shape[dim + 2 :])


MATMUL = DIMS[0]


def operand_copies(a, b, lead, dims, sum_dims=()):
    plan = gemm_plan(lead, dims, sum_dims, a.shape, a.strides, b.shape, b.strides, a.itemsize, True)
    moved = []
    for x, perm, shape, copy in (
        (a, plan.a_perm, plan.a_shape, plan.a_copy),
        (b, plan.b_perm, plan.b_shape, plan.b_copy),
    ):
        y = x if perm is None else x.transpose(perm)
        y = y if shape is None else y.reshape(shape)
        moved.append(copy or not np.shares_memory(x, y))
    return moved, plan


@pytest.mark.parametrize("where", ["rows", "columns", "both", "depth", "transposed", "two axes"])
def test_a_sharded_matmul_is_one_gemm_without_copies(where):
    a, b = block((), (64, 32)), block((), (32, 48))
    sums: tuple[int, ...] = ()
    if where == "rows":
        x, y = split(a, 0, 4), b[None]
    elif where == "columns":
        x, y = a[None], split(b, 1, 4)
    elif where == "both":
        x, y = split(a, 0, 4)[None], split(b, 1, 2)[:, None]
    elif where == "depth":
        x, y, sums = split(a, 1, 4), split(b, 0, 4), (0,)
    elif where == "transposed":
        x, y = split(a.T.copy().T, 0, 4), b[None]
    else:
        x, y, sums = split(split(a, 0, 4), 2, 2), split(b, 0, 2)[:, None], (0,)
    copies, plan = operand_copies(x, y, x.ndim - 2, MATMUL, sums)
    assert copies == [False, False]
    out_sizes = [n for n in plan.out_alloc if n != 1]
    assert out_sizes == [64, 48], "one product of the unsplit size"
    got = contract(x, y, x.ndim - 2, MATMUL, sums)
    want, sizes, depth = a @ b, np.abs(a) @ np.abs(b), a.shape[1]
    if where in ("rows", "transposed"):
        assert_same_products(joined(got, 0), want, sizes, depth)
        assert np.shares_memory(joined(got, 0), got)
    elif where == "columns":
        assert_same_products(joined(got, 1), want, sizes, depth)
        assert np.shares_memory(joined(got, 1), got)
    elif where == "depth":
        assert_same_products(got[0], want, sizes, depth)
    elif where == "two axes":
        assert_same_products(joined(got[0], 0), want, sizes, depth)
    else:
        whole = got.transpose(1, 2, 0, 3).reshape(64, 48)
        assert_same_products(whole, want, sizes, depth)
        assert np.shares_memory(whole, got)


def test_attention_products_do_not_copy():
    q, k = block((), (4, 16, 8, 32)), block((), (4, 16, 8, 32))  # b q h d, heads split two ways
    x, y = split(split(q, 0, 2), 3, 2), split(split(k, 0, 2), 3, 2)
    dims = (((3,), (3,)), ((0, 2), (0, 2)))
    copies, _ = operand_copies(x, y, 2, dims)
    assert copies == [False, False]
    got = contract(x, y, 2, dims)  # heads, batch | b h q k
    want, sizes = (np.einsum("bqhd,bkhd->bhqk", *pair) for pair in ((q, k), (np.abs(q), np.abs(k))))
    assert_same_products(got.transpose(1, 2, 0, 3, 4, 5).reshape(4, 8, 16, 16), want, sizes, q.shape[-1])


def test_dims_that_do_not_merge_are_looped_over():
    a = block((), (3, 128, 5, 64)).transpose(0, 2, 1, 3)  # rows (3, 5, 128) cannot merge
    b = block((), (64, 7))
    dims = (((3,), (0,)), ((), ()))
    copies, _ = operand_copies(a, b, 0, dims)
    assert copies == [False, False]
    assert_same_products(contract(a, b, 0, dims), a @ b, np.abs(a) @ np.abs(b), 64)
    c = block((), (64, 3, 128, 5)).transpose(0, 1, 3, 2)
    want, sizes = (np.einsum("ik,kabc->iabc", *pair) for pair in ((b.T, c), (np.abs(b.T), np.abs(c))))
    assert_same_products(contract(b.T.copy(), c, 0, (((1,), (0,)), ((), ()))), want, sizes, 64)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("size", [4, 40])
def test_integers_are_exact_and_wrap(dtype, size):
    info = np.iinfo(dtype)
    for high in (100, None):
        a, b = (
            RNG.integers(max(info.min, -high) if high else info.min, high or info.max, (2, size, size), dtype)
            for _ in "ab"
        )
        got = contract_as(np.dtype(dtype), a, b, 1, MATMUL)
        assert got.dtype == dtype
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(got, np.matmul(a, b))
        wide = contract_as(np.dtype("int64"), a, b, 1, MATMUL)
        np.testing.assert_array_equal(wide, np.matmul(a.astype("int64"), b.astype("int64")))


def test_bool_and_small_types():
    a, b = RNG.random((3, 4, 5)) > 0.7, RNG.random((1, 5, 6)) > 0.7
    got = contract_as(np.dtype(bool), a, b, 1, MATMUL)
    assert got.dtype == bool
    np.testing.assert_array_equal(got, a @ b)
    np.testing.assert_array_equal(contract_as(np.dtype("int32"), a, b, 1, MATMUL), a.astype(int) @ b.astype(int))
    four = ml_dtypes.int4
    x, y = RNG.integers(-8, 8, (4, 5)).astype(four), RNG.integers(-8, 8, (5, 6)).astype(four)
    np.testing.assert_array_equal(contract_as(np.dtype("int32"), x, y, 0, MATMUL), x.astype(int) @ y.astype(int))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn"])
def test_narrow_floats_add_up_in_float32(dtype):
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    a, b = block((2,), (8, 300)).astype(dtype), block((1,), (300, 4)).astype(dtype)
    assert_einsum(contract_as(np.dtype("float32"), a, b, 1, MATMUL), "aij,bjk->aik", a, b)
    got = contract_as(dtype, a, b, 1, MATMUL)
    assert got.dtype == dtype
    assert_einsum(got, "aij,bjk->aik", a, b)


def test_complex_and_mixed_types():
    a = (block((), (3, 4)) + 1j * block((), (3, 4))).astype("complex64")
    b = block((), (4, 5))
    got = contract_as(np.dtype("complex64"), a, b, 0, MATMUL)
    assert got.dtype == "complex64"
    assert_einsum(got, "ij,jk->ik", a, b)
    wide = contract_as(np.dtype("float64"), b.T, b, 0, MATMUL)
    assert_einsum(wide, "ji,jk->ik", b, b)


def test_empty_and_unit_sizes():
    assert contract(np.ones((2, 0, 3)), np.ones((1, 3, 4)), 1, MATMUL).shape == (2, 0, 4)
    np.testing.assert_array_equal(contract(np.ones((2, 2, 0)), np.ones((1, 0, 4)), 1, MATMUL), np.zeros((2, 2, 4)))
    np.testing.assert_array_equal(contract(np.ones((1, 1)), np.full((1, 1), 3.0), 0, MATMUL), [[3.0]])


def test_vectors_and_matrices():
    m, v = block((), (300, 200), np.float64), block((), (200,), np.float64)
    assert_einsum(contract(m, v, 0, (((1,), (0,)), ((), ()))), "ij,j->i", m, v)
    assert_einsum(contract(v, m, 0, (((0,), (1,)), ((), ()))), "ij,j->i", m, v)
    assert_einsum(contract(v, v, 0, (((0,), (0,)), ((), ()))), "i,i->", v, v)
    assert_einsum(contract(m[:200].T, v, 0, (((1,), (0,)), ((), ()))), "ji,j->i", m[:200], v)


def test_operands_are_never_written_and_may_be_read_only():
    a, b = block((2,), (4, 4)), block((2,), (4, 4))
    a.flags.writeable = b.flags.writeable = False
    contract(a, b, 1, MATMUL, (0,), 1)


def test_products_that_both_sides_split_are_a_batch_of_views():
    a, b = block((), (64, 32)), block((), (32, 48))
    x, y = split(a, 0, 4), split(b, 1, 4)
    copies, plan = operand_copies(x, y, 1, MATMUL)
    assert copies == [False, False]
    assert [n for n in plan.out_alloc if n != 1] == [4, 16, 12]


@pytest.mark.parametrize("depth", [1024, 1025, 3000])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_deep_products_of_small_integers_are_exact(dtype, depth):
    info = np.iinfo(dtype)
    a, b = RNG.integers(info.min, info.max + 1, (30, depth)), RNG.integers(info.min, info.max + 1, (depth, 20))
    for out in ("int32", "int64", dtype, "uint16"):
        got = contract_as(np.dtype(out), a.astype(dtype), b.astype(dtype), 0, (((1,), (0,)), ((), ())))
        np.testing.assert_array_equal(got, (a @ b).astype(out))
    extreme = np.full((2, depth), info.min or info.max, dtype)
    got = contract_as(np.dtype(np.int32), np.tile(extreme, (20, 1)), extreme, 0, (((1,), (1,)), ((), ())))
    assert (got == depth * (info.min or info.max) ** 2).all()


def test_deep_products_over_two_dims_and_devices():
    a, b = (
        RNG.integers(-128, 128, (3, 20, 6, 400)).astype("int8"),
        RNG.integers(-128, 128, (3, 6, 400, 10)).astype("int8"),
    )
    got = contract_as(np.dtype(np.int32), a, b, 1, (((1, 2), (0, 1)), ((), ())))
    np.testing.assert_array_equal(got, np.einsum("bijk,bjkn->bin", a.astype(int), b.astype(int)))


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16], ids=["float16", "bfloat16"])
@pytest.mark.parametrize("wanted", [None, np.float32], ids=["narrow", "wide"])
def test_large_products_of_16_bit_floats(dtype, wanted):
    a, b = block((), (300, 200), dtype), block((), (200, 250), dtype)
    out = np.dtype(wanted or dtype)
    got = contract_as(out, a, b, 0, (((1,), (0,)), ((), ())))
    assert got.dtype == out
    assert_einsum(got, "ij,jk->ik", a, b)
