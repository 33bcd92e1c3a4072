"""Equations and eigenvalues of sparse matrices, against NumPy's of the dense ones."""

import numpy as np
import pytest

import shardwise as sw
from shardwise import numpy as jnp
from shardwise.experimental.sparse import BCOO, BCSR, linalg

RNG = np.random.default_rng(0)
A = (np.eye(8) * 4 + (RNG.random((8, 8)) < 0.3) * RNG.normal(size=(8, 8))).astype(np.float32)
B = RNG.normal(size=8).astype(np.float32)


@pytest.mark.parametrize("reorder", [0, 1])
def test_solutions_and_their_derivatives(reorder):
    m = BCSR.fromdense(A)
    f = lambda d, b: linalg.spsolve(d, m.indices, m.indptr, b, reorder=reorder)  # noqa: E731
    for call in (f, sw.jit(f)):
        np.testing.assert_allclose(call(m.data, B), np.linalg.solve(A, B), rtol=1e-4)  # times the condition of A
    loss = lambda x: (x**2).sum()  # noqa: E731
    by_data, by_b = sw.grad(lambda d, b: loss(f(d, b)), (0, 1))(m.data, B)
    dense = sw.grad(lambda a, b: loss(jnp.linalg.solve(a, b)), (0, 1))(jnp.asarray(A), jnp.asarray(B))
    np.testing.assert_allclose(by_data, np.asarray(dense[0])[A != 0], rtol=1e-3, atol=1e-5)  # its square
    np.testing.assert_allclose(by_b, dense[1], rtol=1e-3, atol=1e-5)  # its square


def test_equations_of_other_shapes_are_refused():
    m = BCSR.fromdense(A)
    with pytest.raises(ValueError, match="indptr of shape"):
        linalg.spsolve(m.data, m.indices, m.indptr, B[:7])


def test_greatest_eigenvalues():
    s = (A + A.T) @ (A + A.T)
    s = np.kron(np.eye(4, dtype=np.float32), s) + np.diag(np.arange(32.0)).astype(np.float32)
    start = RNG.normal(size=(32, 3)).astype(np.float32)
    for given in (s, BCOO.fromdense(s), lambda x: jnp.asarray(s) @ x):
        values, vectors, steps = linalg.lobpcg_standard(given, start)
        np.testing.assert_allclose(values, np.linalg.eigvalsh(s)[::-1][:3], rtol=1e-3)  # where the iteration stops
        np.testing.assert_allclose(
            s @ np.asarray(vectors), np.asarray(vectors) * np.asarray(values), atol=0.3
        )  # residuals of eigenvalues of some hundred
        np.testing.assert_allclose(
            np.asarray(vectors).T @ np.asarray(vectors), np.eye(3), atol=1e-4
        )  # where the iteration stops
        assert 0 < int(steps) < 100
    assert int(linalg.lobpcg_standard(s, start, m=2)[2]) == 2
    with pytest.raises(ValueError, match="5 \\* k < n"):
        linalg.lobpcg_standard(s, np.ones((32, 7), np.float32))
    for wrong in (
        s[:20],
        s[:, :20],
        s[0],
        np.eye(40, dtype=np.float32),
        lambda x: x[:20],
        lambda x: x.astype(np.float16),
    ):
        with pytest.raises(ValueError, match="matrix A for X"):
            linalg.lobpcg_standard(wrong, start)
