"""BCOO with batch and dense dims, against JAX and the dense arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as jax
from shardwise import numpy as jnp
from shardwise.experimental import sparse
from shardwise.experimental.sparse import BCOO, BCSR

DENSE = np.zeros((2, 3, 4, 2), np.float32)
DENSE[0, 1, 2, 0], DENSE[0, 1, 3], DENSE[0, 2, 0, 1], DENSE[1, 0, 0] = 1, (2, 3), 4, 5


_SUMS: tuple[dict[str, Any], ...] = ({}, {"nse": 2}, {"remove_zeros": False})


def _close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-6)


def _is_same(ours: Any, theirs: Any) -> None:
    for a, b in ((ours.data, theirs.data), (ours.indices, theirs.indices)):
        _close(a, b)
        assert a.dtype.name == b.dtype.name
    assert repr(ours) == repr(theirs)
    for name in ("n_batch", "n_sparse", "n_dense", "nse", "shape", "ndim"):
        assert getattr(ours, name) == getattr(theirs, name)


@pytest.mark.parametrize(("n_batch", "n_dense", "nse"), [(1, 0, None), (0, 2, 1), (1, 1, 6)])
def test_layouts_are_those_of_jax(n_batch: int, n_dense: int, nse: int | None) -> None:
    theirs = pytest.importorskip("jax.experimental.sparse")
    options: Any = {"n_batch": n_batch, "n_dense": n_dense, "nse": nse}
    ours, expected = BCOO.fromdense(DENSE, **options), theirs.BCOO.fromdense(DENSE, **options)
    _is_same(ours, expected)
    _close(ours.todense(), expected.todense())
    _close(ours.all_sparse().todense(), expected.todense())
    if nse is None:
        return
    _close(jax.jit(lambda x: BCOO.fromdense(x, **options).todense())(DENSE), ours.todense())
    for name in ("sort_indices", "sum_duplicates"):
        _is_same(getattr(ours, name)(), getattr(expected, name)())


@pytest.mark.parametrize(("n_batch", "n_dense"), [(0, 0), (2, 0), (0, 1), (1, 2)])
def test_results_are_those_of_the_dense_array(n_batch: int, n_dense: int) -> None:
    m = BCOO.fromdense(DENSE, n_batch=n_batch, n_dense=n_dense, nse=7)
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    _close((m * x).todense(), DENSE * x)
    _close((3 * m).todense(), DENSE * 3)
    _close((-m + m**3).todense(), DENSE**3 - DENSE)
    assert (m * 2).n_batch == n_batch and (m**2).n_dense == n_dense
    _close(m.sum((0, 2)).todense(), DENSE.sum((0, 2)))
    _close(m.reshape(6, 8).todense(), DENSE.reshape(6, 8))
    for axes in ((3, 2, 1, 0), (1, 0, 2, 3), (0, 2, 1, 3), (0, 1, 3, 2)):
        _close(m.transpose(axes).todense(), DENSE.transpose(axes))
    matrix = BCOO.fromdense(DENSE[:, 1, :, 0], n_batch=min(n_batch, 1), n_dense=min(n_dense, 1))
    _close(matrix @ x, DENSE[:, 1, :, 0] @ x)
    _close(x.T[:, :2] @ matrix, x.T[:, :2] @ DENSE[:, 1, :, 0])
    _close(BCSR.from_bcoo(matrix).todense(), DENSE[:, 1, :, 0])
    assert sparse.bcoo_fromdense(DENSE, n_batch=n_batch, n_dense=n_dense).n_dense == n_dense


def test_dims_become_sparse() -> None:
    theirs = pytest.importorskip("jax.experimental.sparse")
    options: Any = {"n_batch": 2, "n_dense": 1, "nse": 3}
    ours, expected = BCOO.fromdense(DENSE, **options), theirs.BCOO.fromdense(DENSE, **options)
    layouts: Any = ({"n_batch": 1}, {"n_dense": 0}, {"n_batch": 0, "n_dense": 0}, {})
    for wanted in layouts:
        one, other = ours.update_layout(**wanted), sparse.bcoo_update_layout(ours, **wanted)
        assert repr(one) == repr(other) == repr(expected.update_layout(**wanted))
        _close(one.todense(), DENSE)
    assert BCOO.fromdense(np.zeros((0, 3)), n_batch=1).update_layout(n_batch=0).todense().shape == (0, 3)
    assert jax.eval_shape(lambda m: m.update_layout(n_batch=0), ours).nse == 18


def test_rows_of_columns_with_duplicates() -> None:
    """A matrix built row by row: batches share indices or elements, some of which are twice and some outside."""
    theirs = pytest.importorskip("jax.experimental.sparse")
    data = np.array([[1, 2, 3], [4, -4, 6]], np.float32)
    places = np.array([[[1], [1], [0]], [[2], [2], [3]]], np.int32)
    for d, p in ((data, places), (data[:1], places)):
        ours, expected = BCOO((d, p), shape=(2, 3)), theirs.BCOO((d, p), shape=(2, 3))
        _is_same(ours, expected)
        for options in _SUMS:
            one, other = ours.sum_duplicates(**options), expected.sum_duplicates(**options)
            assert repr(one) == repr(other)
            _close(one.indices, other.indices)
            _close(one.todense(), other.todense())  # what lies outside of the shape is not said
        _close((ours**2).todense(), (expected**2).todense())
        _close(ours @ jnp.ones(3), expected @ np.ones(3, np.float32))
    grad = jax.grad(lambda d: (BCOO((d, places), shape=(2, 3)).todense() ** 2).sum())(data)
    _close(grad, 2 * np.array([[3, 3, 3], [0, 0, 0]]))


def test_wrong_shapes_and_powers() -> None:
    for shapes in (((2, 2), (2, 1)), ((2,), (3, 1)), ((2,), (2,)), ((3, 2), (2, 2, 1)), ((2, 3), (2, 1))):
        with pytest.raises(ValueError, match=r"BCOO of shape \(3,\) has data"):
            BCOO((jnp.ones(shapes[0]), jnp.ones(shapes[1], int)), shape=(3,))
    wrong: Any = ({"n_batch": 3}, {"n_dense": 2, "n_batch": 1}, {"n_dense": -1})
    for options in wrong:
        with pytest.raises(ValueError, match=r"shape \(2, 2\) has no n_batch"):
            BCOO.fromdense(np.eye(2), **options)
    exponents: Any = (0, -1, 0.5, True, jnp.ones(2))
    wrong = ({"n_batch": 2}, {"n_dense": 1}, {"n_batch": -1})
    for options in wrong:
        with pytest.raises(NotImplementedError, match="use fromdense"):
            BCOO.fromdense(np.eye(2), n_batch=1).update_layout(**options)
    with pytest.raises(ValueError, match="on_inefficient"):
        BCOO.fromdense(np.eye(2)).update_layout(on_inefficient="no")
    for exponent in exponents:
        with pytest.raises(NotImplementedError, match="positive int"):
            _ = BCOO.fromdense(np.eye(2)) ** exponent


@pytest.mark.parametrize(("n_batch", "n_dense"), [(1, 0), (1, 1), (2, 0), (2, 1)])
def test_vmap_maps_batch_dims(n_batch, n_dense):
    dense = np.where(np.arange(24) % 3 == 0, np.arange(24.0), 0).reshape(2, 3, 4).astype(np.float32)
    m = BCOO.fromdense(dense, n_batch=n_batch, n_dense=n_dense)
    np.testing.assert_array_equal(jax.vmap(lambda one: one.todense())(m), dense)
    scaled = jax.vmap(lambda one, k: one * k)(m, jnp.arange(1.0, 3.0))
    assert scaled.shape == (2, 3, 4)
    np.testing.assert_array_equal(scaled.todense(), dense * np.array([1, 2], np.float32)[:, None, None])
    assert jax.tree.map(lambda x: x, m).shape == m.shape


def test_vmap_needs_a_batch_dim():
    with pytest.raises(ValueError, match="without batch dims cannot be mapped"):
        jax.vmap(lambda one: one.todense())(BCOO.fromdense(np.eye(3)))
