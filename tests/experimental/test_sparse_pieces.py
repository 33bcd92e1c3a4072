"""Cuts, joins, repetitions and places of sparse arrays, against the dense ones, with and without batch and dense dims."""

from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import numpy as jnp
from shardwise.experimental import sparse
from shardwise.experimental.sparse import BCOO

RNG = np.random.default_rng(0)
DENSE = ((RNG.random((4, 6, 3)) < 0.4) * RNG.normal(size=(4, 6, 3))).astype(np.float32)
LAYOUTS = [(0, 0), (1, 0), (0, 1), (1, 1)]
CASES: dict[str, tuple[Any, Any]] = {
    "slice": (
        lambda m: sparse.bcoo_slice(m, start_indices=(1, 0, 1), limit_indices=(3, 6, 3), strides=(1, 2, 1)),
        DENSE[1:3, ::2, 1:],
    ),
    "dynamic slice": (lambda m: sparse.bcoo_dynamic_slice(m, (1, -3, jnp.int32(5)), (2, 2, 2)), DENSE[1:3, 3:5, 1:]),
    "reverse": (lambda m: sparse.bcoo_rev(m, (0, 1, 2)), DENSE[::-1, ::-1, ::-1]),
    "reverse one": (lambda m: sparse.bcoo_rev(m, (1,)), DENSE[:, ::-1]),
    "join 0": (lambda m: sparse.bcoo_concatenate([m, -m], dimension=0), np.concatenate([DENSE, -DENSE], 0)),
    "join 1": (lambda m: sparse.bcoo_concatenate([m, -m], dimension=1), np.concatenate([DENSE, -DENSE], 1)),
    "join 2": (lambda m: sparse.bcoo_concatenate([m, -m], dimension=2), np.concatenate([DENSE, -DENSE], 2)),
    "repeat": (
        lambda m: sparse.bcoo_broadcast_in_dim(m, shape=(2, 4, 6, 3), broadcast_dimensions=(1, 2, 3)),
        np.broadcast_to(DENSE, (2, 4, 6, 3)),
    ),
    "repeat around": (
        lambda m: sparse.bcoo_broadcast_in_dim(m, shape=(4, 2, 6, 3, 2), broadcast_dimensions=(0, 2, 3)),
        np.broadcast_to(DENSE[:, None, :, :, None], (4, 2, 6, 3, 2)),
    ),
    "join unlike": (
        lambda m: sparse.bcoo_concatenate(
            [m, sparse.BCOO.fromdense(DENSE, nse=72, n_batch=m.n_batch, n_dense=m.n_dense)], dimension=0
        ),
        np.concatenate([DENSE, DENSE], 0),
    ),
    "stretch": (
        lambda m: sparse.bcoo_broadcast_in_dim(
            sparse.bcoo_slice(m, start_indices=(0, 2, 0), limit_indices=(4, 3, 3)),
            shape=(4, 5, 3),
            broadcast_dimensions=(0, 1, 2),
        ),
        np.broadcast_to(DENSE[:, 2:3], (4, 5, 3)),
    ),
    "squeeze": (
        lambda m: sparse.bcoo_squeeze(
            sparse.bcoo_slice(m, start_indices=(1, 0, 2), limit_indices=(2, 6, 3)), dimensions=(0, 2)
        ),
        DENSE[1, :, 2],
    ),
    "places": (lambda m: sparse.bcoo_extract(m, np.full((4, 6, 3), 2.0, np.float32)), None),
    "size": (
        lambda m: (
            abs(BCOO((jnp.concatenate([m.data, -2 * m.data]), jnp.concatenate([m.indices] * 2)), shape=m.shape))
            if not (m.n_batch or m.n_dense)
            else abs(m)
        ),
        abs(DENSE),
    ),
    "product": (lambda m: sparse.bcoo_multiply_sparse(m, m), DENSE**2),
    "operator": (lambda m: m * m, DENSE**2),
    "scalar": (lambda m: m.reshape(72) @ m.reshape(72), (DENSE**2).sum()),
}
# The numbers of batch and dense dims of a result, by those of the operand.
KEPT = {
    "join 0": lambda batch, dense: (batch, dense),
    "repeat": lambda batch, dense: (batch + 1, dense),
    "repeat around": lambda batch, dense: (2, dense + 1) if batch and dense else (0, 0),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", CASES)
def test_pieces_are_those_of_the_dense_array(name, layout):
    n_batch, n_dense = layout
    mat = BCOO.fromdense(DENSE, n_batch=n_batch, n_dense=n_dense)
    f, expected = CASES[name]
    if expected is None:
        kept = np.any(DENSE != 0, axis=2, keepdims=True) if n_dense else DENSE != 0
        kept = np.broadcast_to(kept, DENSE.shape)
        found = np.asarray(f(mat).todense())
        assert ((found == 2) | (found == 0)).all()
        assert (found[DENSE != 0] == 2).all()
        assert (found[~kept] == 0).all()
        return
    for call in (f, sw.jit(f)):
        found = call(mat)
        np.testing.assert_allclose(found.todense(), expected, rtol=1e-6)
        if name in KEPT:
            assert (found.n_batch, found.n_dense) == KEPT[name](*layout)


@pytest.mark.parametrize(
    ("layout", "found"),
    [  # as JAX: of x[None], x[:, None] and x[..., None]
        ((0, 0), [(1, 0), (0, 0), (0, 0)]),
        ((0, 1), [(1, 1), (0, 1), (0, 2)]),
        ((0, 2), [(1, 2), (0, 3), (0, 3)]),
        ((1, 0), [(2, 0), (2, 0), (1, 0)]),
        ((1, 1), [(2, 1), (2, 1), (1, 2)]),
        ((2, 0), [(3, 0), (3, 0), (3, 0)]),
    ],
)
def test_the_layouts_of_new_dims(layout, found):
    dense = np.arange(6.0, dtype=np.float32).reshape(2, 3)
    mat = BCOO.fromdense(dense, n_batch=layout[0], n_dense=layout[1])
    for index, kept in zip((None, (slice(None), None), (..., None)), found, strict=True):
        assert (mat[index].n_batch, mat[index].n_dense) == kept
        np.testing.assert_array_equal(mat[index].todense(), dense[index])


def test_elements_outside_stay_outside():
    padded = BCOO.fromdense(DENSE, nse=60)
    for name in ("slice", "dynamic slice", "reverse", "join 1", "repeat", "squeeze", "product"):
        f, expected = CASES[name]
        np.testing.assert_allclose(f(padded).todense(), expected, rtol=1e-6)


def test_products_of_two_sparse_arrays_broadcast_and_sum_duplicates():
    left = BCOO((jnp.array([1.0, 2.0, 3.0]), jnp.array([[0, 1], [0, 1], [1, 2]])), shape=(2, 3))
    right = BCOO((jnp.array([5.0, 7.0, 1.0]), jnp.array([[0, 1], [0, 1], [0, 0]])), shape=(1, 3))
    got = sparse.bcoo_multiply_sparse(left, right)
    np.testing.assert_array_equal(got.todense(), left.todense() * right.todense())


@pytest.mark.parametrize(("n_batch", "n_dense"), [(0, 0), (1, 0), (2, 0), (0, 1), (1, 1), (1, 2), (3, 0)])
def test_extracted_elements_lie_as_those_of_the_sparse_array(n_batch, n_dense):
    x = np.arange(24.0, dtype=np.float32).reshape(2, 3, 4)
    mat = BCOO.fromdense(np.where(x % 3 == 0, x, 0), n_batch=n_batch, n_dense=n_dense)
    got = sparse.bcoo_extract(mat, 2 * x)
    assert (got.n_batch, got.n_dense, got.nse) == (n_batch, n_dense, mat.nse)
    assert (got.indices_sorted, got.unique_indices) == (mat.indices_sorted, mat.unique_indices)
    filled = x * 0 + 1 if n_batch == 3 else np.asarray(mat.todense())  # without sparse dims all places have elements
    inside = np.any(filled != 0, axis=tuple(range(3 - n_dense, 3)), keepdims=True)
    # In batches with fewer elements than others, those that fill up are outside.
    np.testing.assert_array_equal(got.todense(), np.where(inside, 2 * x, 0))
    if n_batch == 2:
        mapped = sw.vmap(sparse.bcoo_extract, in_axes=(1, 1), out_axes=1)(mat, x)
        np.testing.assert_array_equal(mapped.todense(), mat.todense())


def test_of_several_elements_at_one_place_one_is_read():
    mat = BCOO((jnp.ones(3), jnp.array([[1], [1], [0]])), shape=(3,))
    np.testing.assert_array_equal(sparse.bcoo_extract(mat, np.array([4.0, 5.0, 6.0])).todense(), [4.0, 5.0, 0.0])


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda m: sparse.bcoo_slice(m, start_indices=(0, 0), limit_indices=(1, 1)), TypeError, "one entry per dim"),
        (lambda m: sparse.bcoo_slice(m, start_indices=(0, 0, 0), limit_indices=(5, 6, 3)), TypeError, "limit <= size"),
        (lambda m: sparse.bcoo_dynamic_slice(m, (0, 0, 0), (5, 1, 1)), TypeError, "do not fit"),
        (lambda m: sparse.bcoo_squeeze(m, dimensions=(0,)), ValueError, "size 1"),
        (lambda m: sparse.bcoo_rev(m, (0, 0)), ValueError, "unique"),
        (lambda m: sparse.bcoo_concatenate([], dimension=0), ValueError, "at least one"),
        (lambda m: sparse.bcoo_concatenate([m, m[:, :2]], dimension=0), TypeError, "only in dim 0"),
        (
            lambda m: sparse.bcoo_broadcast_in_dim(m, shape=(4, 6), broadcast_dimensions=(0, 1)),
            TypeError,
            "not possible",
        ),
        (lambda m: sparse.bcoo_extract(m, np.ones((4, 6))), ValueError, "one shape"),
        (lambda m: sparse.random_bcoo(sw.random.key(0), (2, 2), nse=4), ValueError, "number of places"),
        (lambda m: sparse.random_bcoo(sw.random.key(0), (2, 2), n_batch=3), ValueError, "n_batch=3"),
    ],
)
def test_errors(call, error, match):
    with pytest.raises(error, match=match):
        call(BCOO.fromdense(DENSE))


def test_random_arrays():
    mat = sparse.random_bcoo(sw.random.key(0), (5, 7), nse=0.3)
    assert (mat.shape, mat.nse) == ((5, 7), 11)
    assert len({tuple(p) for p in np.asarray(mat.indices).tolist()}) == 11
    mat = sparse.random_bcoo(sw.random.key(0), (5, 7, 2), nse=3, n_batch=1, n_dense=1, sorted_indices=True)
    assert (mat.data.shape, mat.indices.shape) == ((5, 3, 2), (5, 3, 1))
    assert (np.diff(np.asarray(mat.indices)[..., 0]) > 0).all()


def test_rows_of_bcsr():
    dense = DENSE[:, :, 0]
    mat = sparse.BCSR.fromdense(dense)
    np.testing.assert_array_equal(sparse.bcsr_extract(mat.indices, mat.indptr, dense), mat.data)
    two = sparse.bcsr_concatenate([mat, mat], dimension=1)
    np.testing.assert_array_equal(two.todense(), np.concatenate([dense, dense], 1))
    got = sparse.bcsr_dot_general(mat, np.ones((6, 2), np.float32), dimension_numbers=(((1,), (0,)), ((), ())))
    np.testing.assert_allclose(got, dense @ np.ones((6, 2)), rtol=1e-5)
    assert sparse.bcsr_sum_duplicates(mat).nse == mat.nse


def test_products_with_dense_arrays_are_the_elements_alone():
    mat, row = BCOO.fromdense(DENSE), np.array([2.0, 3.0, 5.0], np.float32)
    found = sparse.bcoo_multiply_dense(mat, row)
    np.testing.assert_allclose(BCOO((found, mat.indices), shape=mat.shape).todense(), DENSE * row)
    np.testing.assert_array_equal(
        sparse.bcoo_multiply_dense(BCOO.fromdense(DENSE, n_dense=1), 2), 2 * BCOO.fromdense(DENSE, n_dense=1).data
    )
    with pytest.raises(NotImplementedError, match="n_dense=1"):
        sparse.bcoo_multiply_dense(BCOO.fromdense(DENSE, n_dense=1), row)
