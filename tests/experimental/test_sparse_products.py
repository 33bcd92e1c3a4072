"""Products of sparse arrays are those of the dense ones: batch dims, two sparse operands, places of a product, convolutions."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.experimental import sparse
from shardwise.experimental.sparse import BCOO

RNG = np.random.default_rng(2)


def some(*shape: int) -> np.ndarray:
    return ((RNG.random(shape) < 0.5) * RNG.integers(-3, 4, shape)).astype(np.float32)


A, B = some(2, 3, 4), some(2, 4, 5)
NUMBERS = {
    "batch": (((2,), (1,)), ((0,), (0,))),
    "batch at the end": (((0,), (0,)), ((2,), (1,))),
    "all": (((0, 2), (0, 1)), ((), ())),
    "none": (((), ()), ((0,), (0,))),
}


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("n_batch", [0, 1])
def test_products_over_dims(name, n_batch):
    numbers = NUMBERS[name]
    expected = lax.dot_general(jnp.asarray(A), jnp.asarray(B), numbers)
    a, b = BCOO.fromdense(A, n_batch=n_batch, nse=12), BCOO.fromdense(B, n_batch=n_batch)
    for left, right in ((a, B), (A, b), (a, b)):
        found = sw.jit(lambda x, y: sparse.bcoo_dot_general(x, y, dimension_numbers=numbers))(left, right)
        assert isinstance(found, BCOO) == (left is a and right is b)
        np.testing.assert_array_equal(sparse.todense(found), expected)


@pytest.mark.parametrize(
    ("left", "right"), [((2, 3, 4), (4,)), ((2, 3, 4), (4, 5)), ((3, 4), (2, 4, 5)), ((2, 3, 4), (3, 2, 4, 5)), ((4,), (2, 4, 5)),
                        ((3, 2, 3, 4), (2, 4, 5))]
)  # fmt: skip
def test_operators_are_those_of_matmul(left, right):
    a, b = some(*left), some(*right)
    np.testing.assert_array_equal(BCOO.fromdense(a) @ b, a @ b)
    np.testing.assert_array_equal(a @ BCOO.fromdense(b), a @ b)


def test_batch_dims_of_operators_do_not_broadcast():
    with pytest.raises(NotImplementedError, match="do not broadcast"):
        _ = BCOO.fromdense(some(1, 3, 4)) @ some(2, 4, 5)
    with pytest.raises(TypeError, match="different sizes"):
        sparse.bcoo_dot_general(BCOO.fromdense(A), some(2, 3, 5), dimension_numbers=(((2,), (1,)), ((0,), (0,))))


@pytest.mark.parametrize("n_batch", [0, 1])
def test_elements_of_a_product(n_batch):
    whole = A @ B
    places = BCOO.fromdense(whole, n_batch=n_batch, nse=20).indices
    found = sparse.bcoo_dot_general_sampled(A, B, places, dimension_numbers=NUMBERS["batch"])
    rebuilt = BCOO((found, places), shape=whole.shape).todense()
    np.testing.assert_array_equal(rebuilt, whole)


def test_gradients_of_products_with_batch_dims():
    a = BCOO.fromdense(A, n_batch=1)
    loss = lambda data: ((BCOO((data, a.indices), shape=a.shape) @ B) ** 2).sum()  # noqa: E731
    expected = sw.grad(lambda x: ((x @ B) ** 2).sum())(jnp.asarray(A))
    found = BCOO((sw.grad(loss)(a.data), a.indices), shape=a.shape).todense()
    np.testing.assert_array_equal(found, expected * (A != 0))


def test_windows_beyond_the_end_move_inside():
    rows = lax.GatherDimensionNumbers(offset_dims=(0,), collapsed_slice_dims=(0,), start_index_map=(0,))
    places = jnp.array([[1], [7]])
    found = sparse.bcoo_gather(BCOO.fromdense(A[0]), places, rows, (1, 3), mode="clip")
    np.testing.assert_array_equal(found.todense(), lax.gather(jnp.asarray(A[0]), places, rows, (1, 3), mode="clip"))
    with pytest.raises(NotImplementedError, match="moves windows inside"):
        sparse.bcoo_gather(BCOO.fromdense(A[0]), places, rows, (1, 3), mode="fill")
    with pytest.raises(NotImplementedError, match="one group"):
        sparse.bcoo_conv_general_dilated(A, A, window_strides=(1,), padding="SAME", feature_group_count=2)
