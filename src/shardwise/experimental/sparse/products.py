"""Products of `BCOO` arrays: with dense arrays, with one another, at some places of a dense product, and convolutions.

In: arrays and the dims that a product sums over or shares, as in `lax.dot_general`. Out: dense arrays where one operand is dense, else
`BCOO`s. Products of two sparse arrays look at every pair of elements.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.base.shapes import Ints
from shardwise.engine.inspection import ShapeDtypeStruct
from shardwise.experimental.sparse.batches import add_at, are_inside
from shardwise.experimental.sparse.bcoo import BCOO
from shardwise.experimental.sparse.formats import JAXSparse
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.ops.rules.precision import canonicalize_precision
from shardwise.transforms.jit.jaxpr import eval_shape, make_jaxpr

__all__ = ["bcoo_conv_general_dilated", "bcoo_dot_general", "bcoo_dot_general_sampled"]


def _dims(numbers: Any) -> tuple[tuple[Ints, Ints], tuple[Ints, Ints]]:
    (left, right), (left_batch, right_batch) = numbers
    return (tuple(left), tuple(right)), (tuple(left_batch), tuple(right_batch))


def _free(x: Any, *taken: Ints) -> Ints:
    dims_in_use = {d for dims in taken for d in dims}
    return tuple(d for d in range(x.ndim) if d not in dims_in_use)


def _sizes(x: Any, dims: Ints) -> Ints:
    return tuple(x.shape[d] for d in dims)


def bcoo_dot_general(
    lhs: Any,
    rhs: Any,
    *,
    dimension_numbers: Any,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Any:
    """`lax.dot_general` of `lhs` and `rhs`, of which one is a `BCOO` and the other one a dense array: dense. Of two `BCOO`s it is one.
    `dimension_numbers` as there.

    Elements are multiplied and added in their type, or in that of `preferred_element_type` if that is wider, whatever
    the `precision`.

    Raises:
        NotImplementedError: dot algorithms; `out_sharding` is given.
        TypeError: sizes of dims that are summed over, or shared, differ.

    >>> m = jax.experimental.sparse.BCOO.fromdense(jnp.array([[0.0, 2.0], [3.0, 0.0]]))
    >>> jax.experimental.sparse.bcoo_dot_general(m, jnp.array([1.0, 10.0]), dimension_numbers=(((1,), (0,)), ((), ())))
    Array([20.,  3.], dtype=float32)
    """
    (left, right), (left_batch, right_batch) = _dims(dimension_numbers)
    if isinstance(canonicalize_precision(precision), (lax.DotAlgorithm, lax.DotAlgorithmPreset)):
        raise NotImplementedError(
            f"bcoo_dot_general has no dot algorithms, got precision={precision}; leave it out, or use todense()."
        )
    if out_sharding is not None:
        raise NotImplementedError("bcoo_dot_general gives an array that is not split; leave out_sharding out.")
    if isinstance(rhs, BCOO) and not isinstance(lhs, BCOO):
        product = bcoo_dot_general(
            rhs,
            lhs,
            dimension_numbers=((right, left), (right_batch, left_batch)),
            preferred_element_type=preferred_element_type,
        )
        free_count, batch_count = len(_free(rhs, right, right_batch)), len(right_batch)
        return jnp.moveaxis(
            product, range(batch_count, batch_count + free_count), range(product.ndim - free_count, product.ndim)
        )
    if not isinstance(rhs, BCOO):
        rhs = jnp.asarray(rhs)
    for a, b in zip((*left, *left_batch), (*right, *right_batch), strict=True):
        if lhs.shape[a] != rhs.shape[b]:
            raise TypeError(
                f"bcoo_dot_general of shapes {lhs.shape} and {rhs.shape}: dims {a} and {b} have different sizes."
            )
    if preferred_element_type is not None:
        lhs = lhs.astype(jnp.promote_types(lhs.dtype, preferred_element_type))
    numbers = (left, right), (left_batch, right_batch)
    if isinstance(rhs, BCOO):
        out = _sparse_product(lhs, rhs, numbers)
    elif left_batch:
        out = _batched_product(lhs, rhs, numbers)
    else:
        out = _matrix_product(lhs, rhs, left, right)
    return out if preferred_element_type is None else out.astype(preferred_element_type)


def _matrix_product(lhs: BCOO, rhs: Array, left: Ints, right: Ints) -> Array:
    free, others = _free(lhs, left), _free(rhs, right)
    sizes = _sizes(lhs, free)
    matrix = lhs.transpose((*free, *left)).reshape(math.prod(sizes), math.prod(_sizes(lhs, left)))
    columns = lax.reshape(
        lax.transpose(rhs, (*right, *others)), (matrix.shape[1], math.prod(rhs.shape[d] for d in others))
    )
    return jnp.reshape(matrix @ columns, (*sizes, *_sizes(rhs, others)))


def _batched_product(lhs: BCOO, rhs: Array, numbers: Any) -> Array:
    """Each element times the row of the dense array at its shared and summed dims, added up by its other dims."""
    (left, right), (left_batch, right_batch) = numbers
    free, others = _free(lhs, left, left_batch), _free(rhs, right, right_batch)
    own = lhs.all_sparse()
    column = lambda dims: tuple(own.indices[:, d] for d in dims)  # noqa: E731
    rows = lax.transpose(rhs, (*right_batch, *right, *others)).at[column((*left_batch, *left))]
    inside = are_inside(own.indices, own.shape)
    data = jnp.where(inside, own.data, 0).reshape(-1, *(1,) * len(others))
    products = data * rows.get(mode="fill", fill_value=0)
    zeros = jnp.zeros((*_sizes(lhs, (*left_batch, *free)), *_sizes(rhs, others)), products.dtype)
    return add_at(zeros, column((*left_batch, *free)), products)


def _pairs(left: BCOO, right: BCOO) -> tuple[Array, Array, Array, Array]:
    """For each pair of elements: their product, whether both are inside, and their places."""
    n, m = left.nse, right.nse
    repeat = lambda x: jnp.repeat(x, m, axis=0, total_repeat_length=n * m)  # noqa: E731
    tile = lambda x: jnp.tile(x, (n, *(1,) * (x.ndim - 1)))  # noqa: E731
    inside = repeat(are_inside(left.indices, left.shape)) & tile(are_inside(right.indices, right.shape))
    return repeat(left.data) * tile(right.data), inside, repeat(left.indices), tile(right.indices)


def _sum_at_places(data: Array, places: Array, kept: Array, shape: Ints) -> BCOO:
    """Elements, those that are not `kept` outside, one for each place."""
    outside = jnp.broadcast_to(jnp.asarray(shape, places.dtype), places.shape)
    sums = BCOO((jnp.where(kept, data, 0), jnp.where(kept[:, None], places, outside)), shape=shape)
    return sums.sum_duplicates(min(sums.nse, math.prod(shape)), remove_zeros=False)


def _sparse_product(lhs: BCOO, rhs: BCOO, numbers: Any) -> BCOO:
    (left, right), (left_batch, right_batch) = numbers
    a, b = lhs.all_sparse(), rhs.all_sparse()
    data, is_pair, here, there = _pairs(a, b)
    for d, e in zip((*left, *left_batch), (*right, *right_batch), strict=True):
        is_pair = is_pair & (here[:, d] == there[:, e])
    free, others = _free(a, left, left_batch), _free(b, right, right_batch)
    columns = [*(here[:, d] for d in (*left_batch, *free)), *(there[:, e] for e in others)]
    places = jnp.stack(columns, axis=-1) if columns else jnp.zeros((*data.shape, 0), np.int32)
    return _sum_at_places(data, places, is_pair, (*_sizes(a, (*left_batch, *free)), *_sizes(b, others)))


def bcoo_dot_general_sampled(A: Any, B: Any, indices: Any, *, dimension_numbers: Any) -> Array:
    """The elements of the product of the dense arrays `A` and `B` at `indices`, those of a `BCOO` of the product's shape: its data.

    `dimension_numbers` as in `lax.dot_general`. Elements at places outside are 0.

    >>> places = jnp.array([[0, 1], [1, 1]])
    >>> numbers = (((1,), (0,)), ((), ()))
    >>> jax.experimental.sparse.bcoo_dot_general_sampled(jnp.eye(2), jnp.ones((2, 2)), places, dimension_numbers=numbers)
    Array([1., 1.], dtype=float32)
    """
    (left, right), (left_batch, right_batch) = _dims(dimension_numbers)
    a, b, places = jnp.asarray(A), jnp.asarray(B), jnp.asarray(indices)
    free, others = _free(a, left, left_batch), _free(b, right, right_batch)
    batch_count = len(left_batch)
    if places.ndim == 2 and places.shape[-1] == batch_count + len(free) + len(others):
        columns = [places[:, d] for d in range(places.shape[-1])]
        middle = batch_count + len(free)
        rows = lax.transpose(a, (*left_batch, *free, *left)).at[tuple(columns[:middle])]
        others_rows = lax.transpose(b, (*right_batch, *others, *right)).at[(*columns[:batch_count], *columns[middle:])]
        products = rows.get(mode="fill", fill_value=0) * others_rows.get(mode="fill", fill_value=0)
        return jnp.sum(products, axis=tuple(range(1, products.ndim)))
    whole = lax.dot_general(a, b, ((left, right), (left_batch, right_batch)))
    n_batch, n_sparse = places.ndim - 2, places.shape[-1]
    grid = [
        lax.broadcasted_iota(places.dtype, (*whole.shape[:n_batch], places.shape[-2]), d).reshape(
            *whole.shape[:n_batch], places.shape[-2]
        )
        for d in range(n_batch)
    ]
    return whole.at[(*grid, *(places[..., d] for d in range(n_sparse)))].get(mode="fill", fill_value=0)


def bcoo_conv_general_dilated(
    lhs: Any,
    rhs: Any,
    *,
    window_strides: Any,
    padding: Any,
    lhs_dilation: Any = None,
    rhs_dilation: Any = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> BCOO:
    """`lax.conv_general_dilated` of `lhs` and `rhs`, each a `BCOO` or dense: a `BCOO` all of whose dims are sparse.

    `window_strides`, `padding`, `lhs_dilation`, `rhs_dilation`, `dimension_numbers`, `precision` and `preferred_element_type` as there.
    Every pair of elements is looked at.

    Raises:
        NotImplementedError: `feature_group_count` or `batch_group_count` is not 1, or `out_sharding` is given.

    >>> from shardwise.experimental import sparse
    >>> m = sparse.BCOO.fromdense(jnp.array([[[1.0, 0.0, 2.0]]]))
    >>> sparse.bcoo_conv_general_dilated(m, jnp.ones((1, 1, 2)), window_strides=(1,), padding="VALID").todense()
    Array([[[1., 2.]]], dtype=float32)
    """
    if (feature_group_count, batch_group_count) != (1, 1) or out_sharding is not None:
        raise NotImplementedError(
            "bcoo_conv_general_dilated has one group and no out_sharding; use todense() and lax.conv_general_dilated for others."
        )
    types = [ShapeDtypeStruct(x.shape, x.dtype) for x in (lhs, rhs)]

    def dense(x: Any, k: Any) -> Any:
        return lax.conv_general_dilated(
            x,
            k,
            window_strides,
            padding,
            lhs_dilation,
            rhs_dilation,
            dimension_numbers,
            precision=precision,
            preferred_element_type=preferred_element_type,
        )

    out = eval_shape(dense, *types)
    (eqn,) = make_jaxpr(dense)(*types).eqns
    params, numbers = eqn.params, eqn.params["dimension_numbers"]
    a, b = (x.all_sparse() if isinstance(x, BCOO) else BCOO.fromdense(x, nse=jnp.size(x)) for x in (lhs, rhs))
    if preferred_element_type is not None:
        a = a.astype(jnp.promote_types(a.dtype, preferred_element_type))
    data, is_pair, here, there = _pairs(a, b)
    is_pair = is_pair & (here[:, numbers.lhs_spec[1]] == there[:, numbers.rhs_spec[1]])
    columns: dict[int, Any] = {
        numbers.out_spec[0]: here[:, numbers.lhs_spec[0]],
        numbers.out_spec[1]: there[:, numbers.rhs_spec[0]],
    }
    spatial = zip(numbers.lhs_spec[2:], numbers.rhs_spec[2:], numbers.out_spec[2:], strict=True)
    for k, (d, e, o) in enumerate(spatial):
        low, stride = params["padding"][k][0], params["window_strides"][k]
        at = here[:, d] * params["lhs_dilation"][k] + low - there[:, e] * params["rhs_dilation"][k]
        place = at // stride
        is_pair = is_pair & (at % stride == 0) & (place >= 0) & (place < out.shape[o])
        columns[o] = place
    places = jnp.stack([columns[d] for d in range(len(out.shape))], axis=-1)
    return _sum_at_places(data, places, is_pair, out.shape).astype(out.dtype)


# -- operators -----------------------------------------------------------------------------------------------------------------------


def as_bcoo(x: Any) -> BCOO:
    """A sparse array of any format as a `BCOO`."""
    return x if isinstance(x, BCOO) else x.to_bcoo() if hasattr(x, "to_bcoo") else x._as_bcoo()


def _product_dims(left: Any, right: Any) -> Any:
    """The dims of ``left @ right``, and the batch dims of both, from the last on."""
    batch_count = min(left.ndim, right.ndim) - 2
    return (
        ((left.ndim - 1,), (max(right.ndim - 2, 0),)),
        (
            tuple(range(left.ndim - 2 - batch_count, left.ndim - 2)),
            tuple(range(right.ndim - 2 - batch_count, right.ndim - 2)),
        )
        if batch_count > 0
        else ((), ()),
    )


def _multiply(left: Any, right: Any) -> Any:
    numbers = _product_dims(left, right)
    (_, _), (left_batch, right_batch) = numbers
    if _sizes(left, left_batch) != _sizes(right, right_batch):
        raise NotImplementedError(
            f"products of arrays of shapes {left.shape} and {right.shape}, one of them sparse, do not broadcast batch dims: use "
            "bcoo_dot_general, or todense()."
        )
    out = bcoo_dot_general(left, right, dimension_numbers=numbers)
    # Batch dims that only one of the operands has go to the front, its own rows and columns behind them.
    extra = max(left.ndim, right.ndim) - 2 - len(left_batch) if min(left.ndim, right.ndim) >= 2 else 0
    if extra <= 0 or isinstance(out, BCOO):
        return out
    batch_count = len(left_batch)
    rows = int(left.ndim > 1)
    at = batch_count if left.ndim > right.ndim else batch_count + rows
    return jnp.moveaxis(out, range(at, at + extra), range(extra))


def _matmul(self: BCOO, other: Any) -> Any:
    right = as_bcoo(other) if isinstance(other, JAXSparse) else jnp.asarray(other)
    if isinstance(right, BCOO) or self.ndim > 2:
        return _multiply(self, right)
    return self.times(right)


def _rmatmul(self: BCOO, other: Any) -> Any:
    if isinstance(other, JAXSparse):
        return _multiply(as_bcoo(other), self)
    dense = jnp.asarray(other)
    if self.ndim > 2:
        return _multiply(dense, self)
    if dense.ndim == 1:
        return self.T.times(dense)
    columns = self.T.times(jnp.swapaxes(dense, -1, -2))
    return columns if self.ndim == 1 else jnp.swapaxes(columns, -1, -2)


BCOO.__matmul__ = _matmul
BCOO.__rmatmul__ = _rmatmul

__dir__ = _listing(__name__)
