"""Matrices as their nonzero elements, against the dense ones."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse

import shardwise as jax
from shardwise import numpy as jnp
from shardwise.experimental.sparse import BCOO

DENSE = np.array([[0, 2, 0], [1, 0, 3]], np.float32)


@pytest.mark.parametrize("make", [BCOO.fromdense, lambda m: BCOO.from_scipy_sparse(scipy.sparse.csr_matrix(m))])
def test_products(make):
    sparse: Any = make(DENSE)
    assert (sparse.shape, sparse.nse, sparse.ndim) == ((2, 3), 3, 2)
    assert np.array_equal(sparse.todense(), DENSE)
    assert np.array_equal(sparse.T.todense(), DENSE.T)
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for right in (x[0], x, x[0, :, 0]):
        assert np.array_equal(jax.jit(lambda m, v: m @ v)(sparse, right), DENSE @ right)
    for left in (x[:, :2, 0], x[:, :2].swapaxes(1, 2), x[0, :2, 0]):
        assert np.allclose(left @ DENSE, sparse.__rmatmul__(left))


def test_derivatives_and_padding():
    sparse: Any = BCOO.fromdense(DENSE, nse=5)
    assert np.array_equal(sparse.todense(), DENSE)
    v = jnp.arange(3.0)
    assert np.array_equal(sparse @ v, DENSE @ np.arange(3.0))
    got = jax.grad(lambda d: (BCOO((d, sparse.indices), shape=(2, 3)) @ v).sum())(sparse.data)
    assert got[:3].tolist() == [1.0, 0.0, 2.0]


def test_what_is_not_there():
    with pytest.raises(NotImplementedError, match="vmap"):
        BCOO((jnp.ones((2, 2)), jnp.ones((2, 1), int)), shape=(3,))
    with pytest.raises(NotImplementedError, match="todense"):
        _ = BCOO.fromdense(DENSE) @ BCOO.fromdense(DENSE.T)
    with pytest.raises(TypeError, match="cannot be multiplied"):
        _ = BCOO.fromdense(DENSE) @ jnp.ones((2, 2))
