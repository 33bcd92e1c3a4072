"""Functions of dense arrays called with sparse ones, and derivatives by sparse arrays, against the dense ones."""

from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax, nn
from shardwise import numpy as jnp
from shardwise.experimental import sparse
from shardwise.experimental.sparse import BCOO, linalg

RNG = np.random.default_rng(1)
M = ((RNG.random((4, 6)) < 0.5) * RNG.normal(size=(4, 6))).astype(np.float32)
N = ((RNG.random((4, 6)) < 0.5) * RNG.normal(size=(4, 6))).astype(np.float32)
V = np.arange(1.0, 7.0, dtype=np.float32)

SPARSE: dict[str, Any] = {
    "sin": lambda m, n, v: jnp.sin(m),
    "sum of two": lambda m, n, v: m + n,
    "difference": lambda m, n, v: m - 2 * n,
    "product of two": lambda m, n, v: m * n,
    "scaled": lambda m, n, v: m * v,
    "quotient": lambda m, n, v: m / v,
    "transposed": lambda m, n, v: m.T,
    "columns": lambda m, n, v: m.sum(0),
    "row": lambda m, n, v: m[1],
    "cut": lambda m, n, v: m[-3:, ::2],
    "new dim": lambda m, n, v: m[None, :, 2:4],
    "shape": lambda m, n, v: m.reshape(2, 12),
    "joined": lambda m, n, v: jnp.concatenate([m, n]),
    "repeated": lambda m, n, v: jnp.broadcast_to(m, (2, 4, 6)),
    "powers": lambda m, n, v: jnp.square(m) + m**3,
    "without vector code": lambda m, n, v: lax.bessel_i1e(m),
    "called": lambda m, n, v: sw.jit(lambda m: jnp.abs(-m))(m),
    "flipped": lambda m, n, v: jnp.flip(m),
    "squeezed": lambda m, n, v: jnp.squeeze(m[:1]),
    "window": lambda m, n, v: lax.dynamic_slice(m, (v[0].astype(int), 2), (2, 3)),
    "cast": lambda m, n, v: (10 * m).astype(jnp.int32),
    "rows": lambda m, n, v: m[jnp.array([2, 0, -1])],
    "a row for each": lambda m, n, v: m[:, jnp.array([[1, 2], [0, 5]])],
    "chosen": lambda m, n, v: lax.cond(v[0] > 0, lambda m: jnp.sin(m), lambda m: m * 2, m),
    "doubled in a loop": lambda m, n, v: lax.fori_loop(0, 3, lambda i, c: 2 * c, m),
    "doubled while": lambda m, n, v: lax.while_loop(lambda c: c[1] < 3, lambda c: (-2 * c[0], c[1] + 1), (m, 0))[0],
    "of two": lambda m, n, v: m @ n.T,
    "convolved": lambda m, n, v: lax.conv_general_dilated(
        m[None, None], n[None, None, :2, :3], (2, 1), [(1, 0), (2, 1)], (1, 2), (2, 1)
    ),
}
DENSE: dict[str, Any] = {
    "product": lambda m, n, v: (2 * m) @ v + 1,
    "product from the left": lambda m, n, v: v[:4] @ m,
    "einsum": lambda m, n, v: jnp.einsum("ij,j->i", m, v),
    "whole sum": lambda m, n, v: m.sum(),
    "dense sum": lambda m, n, v: m + jnp.ones((4, 6)),
    "power method": lambda m, n, v: lax.scan(lambda c, s: (n.T @ (m @ c) * s, c.sum()), v, jnp.arange(3.0))[0],
    "dense after a step": lambda m, n, v: lax.fori_loop(0, 2, lambda i, c: c + 1, m),
    "a dense branch": lambda m, n, v: lax.cond(v[0] > 9, lambda m: 2 * m, lambda m: m + 1, m),
    "rows of a loop": lambda m, n, v: lax.scan(lambda c, x: (c, m @ v * x), 0.0, v)[1],
}


@pytest.mark.parametrize("name", [*SPARSE, *DENSE])
def test_the_sparse_form_is_that_of_the_dense_function(name):
    f = {**SPARSE, **DENSE}[name]
    given = BCOO.fromdense(M), BCOO.fromdense(N, nse=20), V
    expected = f(jnp.asarray(M), jnp.asarray(N), jnp.asarray(V))
    for call in (sparse.sparsify(f), sw.jit(sparse.sparsify(f))):
        found = call(*given)
        assert isinstance(found, BCOO) == (name in SPARSE)
        np.testing.assert_allclose(sparse.todense(found), expected, rtol=1e-5, atol=1e-6)


def test_elements_at_one_place_are_summed_before_they_are_squared():
    twice = BCOO((jnp.array([1.0, 2.0]), jnp.array([[1], [1]])), shape=(3,))
    assert sparse.sparsify(jnp.square)(twice).todense().tolist() == [0.0, 9.0, 0.0]
    assert sparse.sparsify(lambda m: -m)(twice).nse == 2


def test_trees_and_other_formats():
    f = sparse.sparsify(lambda tree, n: {"a": tree["m"] * n, "b": tree["v"]})
    for make in (sparse.BCSR.fromdense, sparse.COO.fromdense, sparse.CSR.fromdense):
        found = f({"m": make(M), "v": V}, 3)
        np.testing.assert_allclose(found["a"].todense(), 3 * M, rtol=1e-6)
        np.testing.assert_array_equal(found["b"], V)


@pytest.mark.parametrize("f", [jnp.cos, jnp.max, nn.relu, lambda m: 1 / m, lambda m: lax.sort(m)])
def test_what_is_not_sparse_refuses(f):
    with pytest.raises(NotImplementedError, match=r"BCOO\(float32\[4, 6\].*todense"):
        sparse.sparsify(f)(BCOO.fromdense(M))


def test_derivatives_go_through():
    mat = BCOO.fromdense(M)
    f = sparse.sparsify(lambda m, v: jnp.sin(m) @ v)
    got = sw.grad(lambda d: f(BCOO((d, mat.indices), shape=mat.shape), V).sum())(mat.data)
    expected = np.cos(M) * V
    np.testing.assert_allclose(got, expected[M != 0], rtol=1e-5)


def test_indices_of_arrays():
    mat = BCOO.fromdense(M)
    for index in (1, -1, slice(1, 3), (slice(None), 2), (..., slice(1, 5, 2)), (None, 1), slice(None, None, -1)):
        np.testing.assert_array_equal(mat[index].todense(), M[index])
    np.testing.assert_array_equal(np.stack([np.asarray(row.todense()) for row in mat]), M)
    assert mat[jnp.array([0, 1])].shape == (2, 6)


def test_carries_keep_their_number_of_elements():
    with pytest.raises(NotImplementedError, match=r"sum_duplicates\(nse"):
        sparse.sparsify(lambda m: lax.fori_loop(0, 2, lambda i, c: c + m, m))(BCOO.fromdense(M))
    with pytest.raises(NotImplementedError, match="todense"):
        sparse.sparsify(lambda m: lax.scan(lambda c, row: (c, row.sum()), 0.0, m))(BCOO.fromdense(M, n_batch=1))


@pytest.mark.parametrize("of", [sparse.jacfwd, sparse.jacrev, sparse.jacobian])
def test_jacobians_are_sparse_arrays_with_batch_dims(of):
    mat = BCOO.fromdense(M)
    f = lambda m, v: (m @ v) ** 2  # noqa: E731
    by_m, by_v = of(f, argnums=(0, 1))(mat, V)
    dense = sw.jacfwd(f, argnums=(0, 1))(jnp.asarray(M), jnp.asarray(V))
    assert (by_m.shape, by_m.n_batch) == ((4, 4, 6), 1)
    np.testing.assert_allclose(by_m.todense(), np.where(M != 0, dense[0], 0), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(by_v, dense[1], rtol=1e-5, atol=1e-5)
    scalar, aux = of(lambda m: ((m @ V).sum(), m.nse), has_aux=True)(mat)
    np.testing.assert_allclose(scalar.todense(), np.where(M != 0, V, 0), rtol=1e-6)
    assert aux == mat.nse
    with pytest.raises(NotImplementedError, match="todense"):
        of(lambda m: m * 2)(mat)


def test_quotients_are_those_of_the_elements():
    tiny = BCOO.fromdense(jnp.array([1e-38, 0.0, 2e38]))
    for found in (
        tiny / jnp.array([4e-39, 1.0, 3e38]),
        sparse.sparsify(jnp.divide)(tiny, jnp.array([4e-39, 1.0, 3e38])),
    ):
        np.testing.assert_allclose(
            found.todense(), [2.5, 0.0, 2 / 3], rtol=1e-6
        )  # the reciprocals are infinite or subnormal
    whole = sparse.sparsify(lax.div)(BCOO.fromdense(jnp.array([7, 0, -7])), 2).todense()
    assert whole.dtype == np.int32
    assert whole.tolist() == [3, 0, -3]
    parts = BCOO((jnp.array([1, 1]), jnp.array([[1], [1]])), shape=(3,))
    assert sparse.sparsify(lax.div)(parts, 2).todense().tolist() == [0, 1, 0]


def test_elements_at_one_place_are_summed_before_a_cast_that_loses_parts():
    halves = BCOO((jnp.array([0.5, 0.5]), jnp.array([[1], [1]])), shape=(3,))
    assert halves.astype("int32").todense().tolist() == [0, 1, 0]
    assert sparse.sparsify(lambda m: m.astype("int32"))(halves).todense().tolist() == [0, 1, 0]
    assert np.array_equal(halves.astype("complex64").indices, halves.indices)


@pytest.mark.parametrize("op", [jnp.real, jnp.imag, jnp.conj])
def test_parts_of_complex_elements(op):
    dense = jnp.array([[0, 1 + 2j], [3j, 0]])
    found = sparse.sparsify(op)(BCOO.fromdense(dense))
    assert found.nse == 2
    np.testing.assert_array_equal(found.todense(), op(dense))


def test_rows_give_rows():
    rows = sparse.BCSR.fromdense(M)
    found = sparse.sparsify(jnp.negative)(rows)
    assert isinstance(found, sparse.BCSR)
    np.testing.assert_array_equal(found.indices, rows.indices)
    np.testing.assert_array_equal(found.indptr, rows.indptr)
    np.testing.assert_array_equal(found.todense(), -M)
    unsorted = sparse.BCSR(([1.0, 2.0, 3.0, 4.0], [2, 0, 2, 2], [0, 3, 4]), shape=(2, 3))
    assert sparse.sparsify(jnp.negative)(unsorted).indices.tolist() == [2, 0, 2, 2]
    assert isinstance(sparse.sparsify(jnp.add)(rows, BCOO.fromdense(M)), BCOO)


def test_strict_promotion_is_no_matter_of_the_inside():
    def results():
        m = BCOO.fromdense(jnp.asarray(M))
        pieces = [m[1:3, ::2], sparse.bcoo_rev(m, (0,)), sparse.bcoo_concatenate([m, m], dimension=1), m / 2, m.sum(0)]
        pieces += [
            sparse.bcoo_dynamic_slice(m, (jnp.int32(1), jnp.int32(0)), (2, 2)),
            BCOO.fromdense(jnp.arange(3)) / 2,
        ]
        found = [x.todense() for x in pieces]
        found.append(m @ jnp.ones((2, 6, 3)))
        found.append(linalg.lobpcg_standard(jnp.diag(jnp.arange(20.0)), jnp.eye(20, 2), m=5)[0])
        return found

    expected = results()
    with sw.numpy_rank_promotion("raise"), sw.numpy_dtype_promotion("strict"):
        for found, wanted in zip(results(), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
