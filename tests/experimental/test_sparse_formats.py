"""BCSR matrices and what formats share, against JAX and scipy.sparse."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from jax.experimental import sparse as jax_sparse

import shardwise as jax
from shardwise import numpy as jnp
from shardwise.experimental import sparse
from shardwise.experimental.sparse import BCOO, BCSR, JAXSparse

DENSE = np.array([[0, 2, 0], [0, 0, 0], [1, 0, 3], [0, 0, 0]], np.float32)


def parts(matrix: Any) -> list[Any]:
    return [np.asarray(x) for x in (matrix.data, matrix.indices, matrix.indptr)]


@pytest.mark.parametrize("nse", [None, 3, 5, 2])
def test_rows_are_as_in_jax(nse):
    theirs = pytest.importorskip("jax.experimental.sparse")
    ours, expected = BCSR.fromdense(DENSE, nse=nse), theirs.BCSR.fromdense(DENSE, nse=nse)
    for a, b in zip(parts(ours), parts(expected), strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype
    assert repr(ours) == repr(expected)
    assert (len(ours), ours.size, ours.ndim, ours.n_sparse) == (4, 12, 2, 2)
    np.testing.assert_array_equal(ours.todense(), expected.todense())
    np.testing.assert_array_equal(jax.jit(lambda m: m.to_bcoo().todense())(ours), expected.to_bcoo().todense())
    np.testing.assert_array_equal(sparse.bcsr_todense(ours), expected.todense())


def test_to_and_from_other_formats():
    rows = scipy.sparse.csr_matrix(DENSE)
    matrix = BCSR.from_scipy_sparse(rows)
    for a, b in zip(parts(matrix), (rows.data, rows.indices, rows.indptr), strict=True):
        np.testing.assert_array_equal(a, b)
    unsorted = BCOO.fromdense(DENSE).T.sort_indices().T
    again = BCSR.from_bcoo(unsorted)
    for a, b in zip(parts(again), parts(matrix), strict=True):
        np.testing.assert_array_equal(a, b)
    twice = BCSR((jnp.ones(3), jnp.array([1, 1, 0]), jnp.array([0, 2, 3])), shape=(2, 2))
    assert twice.todense().tolist() == [[0.0, 2.0], [1.0, 0.0]]
    assert twice.sum_duplicates().data.tolist() == [2.0, 1.0]


def test_new_dims_in_front_are_batch_dims():
    x = BCSR.fromdense(DENSE)[None]
    assert (x.shape, x.n_batch) == ((1, *DENSE.shape), 1)
    np.testing.assert_array_equal(x.todense(), DENSE[None])
    with pytest.raises(NotImplementedError, match="two sparse dims"):
        BCSR.fromdense(DENSE)[0]


def test_products_and_derivatives():
    matrix: Any = sparse.bcsr_fromdense(DENSE, nse=5)
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.testing.assert_array_equal(jax.jit(lambda m, v: m @ v)(matrix, x), DENSE @ x)
    np.testing.assert_array_equal(x.T @ BCSR.fromdense(DENSE.T), x.T @ DENSE.T)
    grads = jax.grad(lambda m: (m @ jnp.arange(3.0)).sum(), allow_int=True)(matrix)
    assert grads.data[:3].tolist() == [1.0, 0.0, 2.0]


@pytest.mark.parametrize("kind", [BCOO, BCSR])
@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint8, np.float16, np.complex64])
def test_element_types(kind, dtype):
    dense = DENSE.astype(dtype)
    matrix = kind.fromdense(dense)
    np.testing.assert_array_equal(matrix.todense(), dense)
    np.testing.assert_array_equal(matrix.sum_duplicates().todense(), dense)
    np.testing.assert_array_equal(matrix @ dense.T, dense @ dense.T)
    assert matrix.todense().dtype == (matrix @ dense.T).dtype == dense.dtype


@pytest.mark.parametrize("left", [BCOO, BCSR])
@pytest.mark.parametrize("right", [BCOO, BCSR])
def test_two_sparse_matrices_are_multiplied(left, right):
    a, b = left.fromdense(DENSE), right.fromdense(DENSE.T)
    assert isinstance(a @ b, BCOO)
    np.testing.assert_array_equal((a @ b).todense(), DENSE @ DENSE.T)
    np.testing.assert_array_equal(a.__rmatmul__(b).todense(), DENSE.T @ DENSE)
    with pytest.raises(NotImplementedError, match="todense"):
        _ = BCOO.fromdense(DENSE) / right.fromdense(DENSE)
    np.testing.assert_array_equal((BCOO.fromdense(DENSE) * BCOO.fromdense(DENSE)).todense(), DENSE * DENSE)


@pytest.mark.parametrize(("n_batch", "n_dense"), [(1, 0), (0, 1), (1, 1), (2, 0)])
def test_rows_with_batch_and_dense_dims(n_batch, n_dense):
    rng = np.random.default_rng(n_batch)
    shape = (2, 3)[:n_batch] + DENSE.shape + (2,) * n_dense
    dense = ((rng.random(shape) < 0.5) * rng.normal(size=shape)).astype(np.float32)
    dims = {"n_batch": n_batch, "n_dense": n_dense}
    ours, theirs = BCSR.fromdense(dense, **dims), jax_sparse.BCSR.fromdense(dense, **dims)
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
    assert (ours.n_batch, ours.n_dense, ours.nse, repr(ours)) == (n_batch, n_dense, theirs.nse, repr(theirs))
    np.testing.assert_array_equal(ours.todense(), dense)
    np.testing.assert_array_equal(ours.sum_duplicates().todense(), dense)
    np.testing.assert_array_equal(sparse.bcsr_extract(ours.indices, ours.indptr, dense), ours.data)
    joined = sparse.bcsr_concatenate([ours, ours], dimension=n_batch)
    np.testing.assert_array_equal(joined.todense(), np.concatenate([dense, dense], n_batch))
    if n_batch:
        doubled = jax.vmap(lambda m: BCSR((2 * m.data, m.indices, m.indptr), shape=m.shape))(ours)
        assert doubled.shape == shape
        np.testing.assert_array_equal(doubled.todense(), 2 * dense)


def test_formats_share_a_class():
    assert all(issubclass(kind, JAXSparse) for kind in (BCOO, BCSR))
    with pytest.raises(TypeError, match="unhashable"):
        hash(BCSR.fromdense(DENSE))


def test_wrong_shapes():
    with pytest.raises(ValueError, match="indptr"):
        BCSR((jnp.ones(2), jnp.zeros(2, int), jnp.zeros(2, int)), shape=(2, 2))
    with pytest.raises(ValueError, match="indptr"):
        BCSR((jnp.ones((2, 3)), jnp.zeros((2, 3), int), jnp.zeros((2, 2), int)), shape=(2, 2, 2))
    with pytest.raises(ValueError, match="takes an array of two dims"):
        BCSR.fromdense(np.ones(3))
    with pytest.raises(NotImplementedError, match="to_bcoo"):
        BCSR.fromdense(DENSE).transpose()


def test_functions_of_dense_arrays_take_both():
    f = sparse.sparsify(lambda tree: tree["x"] * 2)
    assert f({"x": jnp.arange(2.0)}).tolist() == [0.0, 2.0]
    assert np.array_equal(f({"x": BCOO.fromdense(DENSE)}).todense(), 2 * DENSE)
