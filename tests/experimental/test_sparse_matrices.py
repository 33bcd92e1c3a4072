"""COO, CSR and CSC matrices, formats by name, and derivatives by the elements of sparse arrays."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.experimental import sparse

DENSE = np.array([[0, 1, 0, 2], [0, 0, 0, 0], [3, 0, 4, 5]], np.float32)
FORMATS = {"coo": sparse.COO, "csr": sparse.CSR, "csc": sparse.CSC}
V, W = np.arange(1, 5, dtype=np.float32), np.arange(8, dtype=np.float32).reshape(4, 2)


@pytest.mark.parametrize("kind", FORMATS.values())
def test_matrices(kind):
    m = kind.fromdense(DENSE)
    assert (m.nse, m.shape, m.dtype, m.ndim) == (5, (3, 4), np.float32, 2)
    assert repr(m) == f"{kind.__name__}(float32[3, 4], nse=5)"
    assert (m.todense() == DENSE).all() and (m.T.todense() == DENSE.T).all() and (m.T.T.todense() == DENSE).all()
    for got, want in (
        (m @ V, DENSE @ V),
        (m @ W, DENSE @ W),
        (m.T @ V[:3], DENSE.T @ V[:3]),
        (V[:3] @ m, V[:3] @ DENSE),
    ):
        np.testing.assert_allclose(got, want, rtol=1e-6)
    np.testing.assert_allclose(jax.jit(lambda m, v: m @ v)(m, V), DENSE @ V, rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(lambda v: m @ v)(W.T), (DENSE @ W).T, rtol=1e-6)
    traced = jax.jit(lambda d: kind.fromdense(d, nse=7).todense())(DENSE)
    assert (traced == DENSE).all()


def test_the_arrays_of_matrices():
    coo, csr, csc = sparse.COO.fromdense(DENSE), sparse.CSR.fromdense(DENSE), sparse.CSC.fromdense(DENSE)
    assert (coo.data.tolist(), coo.row.tolist(), coo.col.tolist()) == (
        [1, 2, 3, 4, 5],
        [0, 0, 2, 2, 2],
        [1, 3, 0, 2, 3],
    )
    assert (csr.data.tolist(), csr.indices.tolist(), csr.indptr.tolist()) == (
        [1, 2, 3, 4, 5],
        [1, 3, 0, 2, 3],
        [0, 2, 2, 5],
    )
    assert (csc.data.tolist(), csc.indices.tolist(), csc.indptr.tolist()) == (
        [3, 1, 4, 2, 5],
        [2, 0, 2, 0, 2],
        [0, 1, 2, 3, 5],
    )
    assert (type(csr.T), type(csc.T), type(coo.T)) == (sparse.CSC, sparse.CSR, sparse.COO)
    assert not isinstance(csc, sparse.CSR) and all(m.block_until_ready() is m for m in (coo, csr, csc))
    twice = sparse.COO(([1.0, 2.0, 4.0], [1, 0, 1], [1, 0, 1]), shape=(2, 2))
    assert twice.todense().tolist() == [[2, 0], [0, 5]]
    assert twice._sort_indices().row.tolist() == [0, 1, 1]


def test_functions_of_matrices():
    coo, csr = sparse.coo_fromdense(DENSE), sparse.csr_fromdense(DENSE, index_dtype=np.int16)
    assert csr.indices.dtype == np.int16
    assert (sparse.coo_todense(coo) == DENSE).all() and (sparse.csr_todense(csr) == DENSE).all()
    functions: list[Any] = [(coo, sparse.coo_matvec, sparse.coo_matmat), (csr, sparse.csr_matvec, sparse.csr_matmat)]
    for m, matvec, matmat in functions:
        np.testing.assert_allclose(matvec(m, V), DENSE @ V)
        np.testing.assert_allclose(matvec(m, V[:3], transpose=True), DENSE.T @ V[:3])
        np.testing.assert_allclose(matmat(m, W), DENSE @ W)
        np.testing.assert_allclose(matmat(m, W[:3], transpose=True), DENSE.T @ W[:3])
        with pytest.raises(ValueError, match="1 dims"):
            matvec(m, W)


def test_matrices_that_are_none():
    for make, why in (
        (lambda: sparse.COO(([1.0], [0, 1], [0]), shape=(2, 2)), r"one shape \(nse,\)"),
        (lambda: sparse.CSR(([1.0], [0], [0, 1]), shape=(2, 2)), r"indptr of shape \(3,\)"),
        (lambda: sparse.CSC(([1.0], [0], [0, 1, 1]), shape=(2, 3)), r"indptr of shape \(4,\)"),
        (lambda: sparse.COO(([1.0], [0], [0]), shape=(2,)), "ndim=2"),
        (lambda: sparse.CSR.fromdense(V), "ndim=2"),
        (lambda: sparse.empty((2, 2, 2), sparse_format="csr"), "ndim=2"),
        (lambda: sparse.eye(2, sparse_format="dense"), "must be one of"),
    ):
        with pytest.raises(ValueError, match=why):
            make()
    m = sparse.CSR.fromdense(DENSE)
    for call, why in (
        (lambda: m @ m, "todense"),
        (lambda: m @ np.ones((2, 4, 3)), "vmap"),
        (lambda: m.transpose((1, 0)), "leave it"),
    ):
        with pytest.raises(NotImplementedError, match=why):
            call()


@pytest.mark.parametrize("name", ["bcoo", "bcsr", *FORMATS])
def test_formats_by_name(name):
    none, ones = sparse.empty((2, 3), np.int32, sparse_format=name), sparse.eye(3, 4, 1, sparse_format=name)
    kind = getattr(sparse, name.upper())
    assert type(none) is type(ones) is kind
    assert (none.todense() == jnp.zeros((2, 3), int)).all() and none.dtype == np.int32
    assert (ones.todense() == np.eye(3, 4, 1)).all()
    assert (sparse.todense(ones) == np.eye(3, 4, 1)).all()
    for extra in ({"nse": 2}, {"n_batch": 1, "n_dense": 1, "nse": 1}):
        taken = name == "bcoo" or (name == "bcsr" and len(extra) == 1)
        with nullcontext() if taken else pytest.raises(TypeError, match="unexpected keyword"):
            found = sparse.empty((2, 3), sparse_format=name, **extra)
            assert not found.todense().any() and all(getattr(found, k) == n for k, n in extra.items())
    ones = sparse.eye(3, 4, -1, n_batch=1)
    assert (ones.todense() == np.eye(3, 4, -1)).all() and ones.n_batch == 1


@pytest.mark.parametrize("name", ["BCOO", "BCSR", "COO", "CSR", "CSC"])
def test_gradients(name):
    m = getattr(sparse, name).fromdense(DENSE)
    f = lambda m, v: ((m @ v) ** 2).sum()  # noqa: E731
    value, (of_m, of_v) = sparse.value_and_grad(f, (0, 1))(m, V)
    dense = jax.grad(lambda d: f(d, V))(DENSE)
    assert float(value) == float(f(DENSE, V)) and type(of_m) is type(m)
    np.testing.assert_allclose(of_m.todense(), np.where(DENSE != 0, dense, 0), rtol=1e-6)
    np.testing.assert_allclose(of_v, jax.grad(f, 1)(DENSE, V), rtol=1e-6)
    np.testing.assert_allclose(jax.jit(sparse.grad(f))(m, V).data, of_m.data, rtol=1e-6)
    found, aux = sparse.grad(lambda d: (f(d["m"], V) * d["s"], 7), has_aux=True)({"m": m, "s": 2.0})
    assert aux == 7 and float(found["s"]) == float(value)
    np.testing.assert_allclose(found["m"].data, 2 * of_m.data, rtol=1e-6)
