"""Matrices as their nonzero elements, against the dense ones."""

from typing import Any

import numpy as np
import pytest
import scipy.sparse

import shardwise as jax
from shardwise import numpy as jnp
from shardwise.experimental import sparse
from shardwise.experimental.sparse import BCOO

DENSE = np.array([[0, 2, 0], [1, 0, 3]], np.float32)


@pytest.mark.parametrize("make", [BCOO.fromdense, lambda m: BCOO.from_scipy_sparse(scipy.sparse.csr_matrix(m))])
def test_products(make):
    matrix: Any = make(DENSE)
    assert (matrix.shape, matrix.nse, matrix.ndim) == ((2, 3), 3, 2)
    assert np.array_equal(matrix.todense(), DENSE)
    assert np.array_equal(matrix.T.todense(), DENSE.T)
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    for right in (x[0], x, x[0, :, 0]):
        assert np.array_equal(jax.jit(lambda m, v: m @ v)(matrix, right), DENSE @ right)
    for left in (x[:, :2, 0], x[:, :2].swapaxes(1, 2), x[0, :2, 0]):
        assert np.array_equal(left @ DENSE, matrix.__rmatmul__(left))


def test_derivatives_and_padding():
    matrix: Any = BCOO.fromdense(DENSE, nse=5)
    assert np.array_equal(matrix.todense(), DENSE)
    v = jnp.arange(3.0)
    assert np.array_equal(matrix @ v, DENSE @ np.arange(3.0))
    got = jax.grad(lambda d: (BCOO((d, matrix.indices), shape=(2, 3)) @ v).sum())(matrix.data)
    assert got[:3].tolist() == [1.0, 0.0, 2.0]


def test_layouts_sums_and_arithmetic():
    cube = np.where(np.random.default_rng(0).random((2, 3, 4)) < 0.5, np.arange(1.0, 25).reshape(2, 3, 4), 0).astype(
        np.float32
    )
    for nse in (None, 20):
        m: Any = BCOO.fromdense(cube, nse=nse)
        for got, expected in [
            (m.transpose((2, 0, 1)), cube.transpose(2, 0, 1)),
            (m.reshape(6, -1), cube.reshape(6, 4)),
            (m.sum((0, 2)), cube.sum((0, 2))),
            (-m * 2, -2 * cube),
            (m * cube[0], cube * cube[0]),
            (m + m, 2 * cube),
            (m - m, 0 * cube),
            (m.astype(np.int32), cube),
            ((m + m).sum_duplicates(), 2 * cube),
            (sparse.bcoo_reduce_sum(m, axes=(1,)), cube.sum(1)),
            (sparse.eye(3, 4, k=1), np.eye(3, 4, k=1)),
        ]:
            np.testing.assert_array_equal(np.asarray(got.todense()), expected)
        assert float(m.sum()) == cube.sum()
        right = np.arange(20, dtype=np.float32).reshape(4, 5)
        product = lambda a, b, i, j: sparse.bcoo_dot_general(a, b, dimension_numbers=(((i,), (j,)), ((), ())))  # noqa: E731
        np.testing.assert_array_equal(np.asarray(jax.jit(product, static_argnums=(2, 3))(m, right, 2, 0)), cube @ right)
        np.testing.assert_array_equal(np.asarray(product(right, m, 0, 2)), np.einsum("ab,ija->bij", right, cube))
    twice = BCOO((np.array([1.0, 2, 3, 0]), np.array([[1, 1], [0, 2], [1, 1], [1, 0]])), shape=(2, 3))
    assert twice.sum_duplicates().data.tolist() == [2, 4]
    assert sparse.bcoo_sum_duplicates(twice, nse=4).data.tolist() == [2, 0, 4, 0]
    assert jax.jit(lambda m: m.sum_duplicates(nse=2).data)(twice).tolist() == [2, 4]
    assert twice.sort_indices().indices.tolist() == [[0, 2], [1, 0], [1, 1], [1, 1]]
    assert (np.ones(2, np.float32) @ BCOO.fromdense(DENSE)).tolist() == [1, 2, 3]


def test_what_is_not_there():
    with pytest.raises(TypeError, match="cannot be multiplied"):
        _ = BCOO.fromdense(DENSE) @ jnp.ones((2, 2))


def test_shapes_of_more_elements_than_an_index_counts():
    places = jnp.asarray([[70000, 5], [3, 69999], [70000, 2], [100000, 100000], [70000, 5]])
    m: Any = BCOO((jnp.arange(5.0), places), shape=(100000, 100000))
    ordered = m.sort_indices()
    assert ordered.indices.tolist() == [[3, 69999], [70000, 2], [70000, 5], [70000, 5], [100000, 100000]]
    assert ordered.data.tolist() == [1, 2, 0, 4, 3]
    for merged in (m.sum_duplicates(), jax.jit(lambda m: m.sum_duplicates(3))(m)):
        assert merged.indices.tolist() == [[3, 69999], [70000, 2], [70000, 5]]
        assert merged.data.tolist() == [1, 2, 4]
    assert sparse.bcoo_sum_duplicates(m, nse=5).indices.tolist()[3:] == [[100000, 100000]] * 2
    assert m.reshape(1, 100, 1000, 100000, 1).indices[0].tolist() == [0, 70, 0, 5, 0]
    assert m.reshape(100, 1000, 100000).indices[3].tolist() == [100, 1000, 100000]
    with pytest.raises(ValueError, match="than an index of type int32 counts"):
        m.reshape(10000, 1000000)
    v = jnp.zeros((100000, 1)).at[5].set(1)
    assert sparse.bcoo_dot_general(m, v, dimension_numbers=(((1,), (0,)), ((), ())))[70000, 0] == 4
    none: Any = BCOO((jnp.zeros(2), jnp.asarray([[0, 3]] * 2)), shape=(0, 3))
    assert none.reshape(3, 0).indices.tolist() == [[3, 0]] * 2


def test_the_precision_of_products():
    m: Any = BCOO.fromdense(np.full((1, 3), 1 + 2**-8, "f")).astype(jnp.bfloat16)
    x = jnp.full((3, 1), 1 + 2**-7, jnp.bfloat16)
    product = lambda **kwargs: sparse.bcoo_dot_general(m, x, dimension_numbers=(((1,), (0,)), ((), ())), **kwargs)  # noqa: E731
    wide = product(preferred_element_type=np.float32, precision="highest")
    assert wide.dtype == np.float32
    np.testing.assert_allclose(wide, np.asarray(m.todense(), "f") @ np.asarray(x, "f"), rtol=1e-6)
    with pytest.raises(NotImplementedError, match="dot algorithms"):
        product(precision="BF16_BF16_F32_X3")
    with pytest.raises(ValueError, match="precision"):
        product(precision="sharp")
