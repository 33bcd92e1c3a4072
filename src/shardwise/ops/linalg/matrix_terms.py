"""Terms of the derivatives of matrices, on stacks of them: products, transposes, triangles, diagonals, parts."""

from __future__ import annotations

from typing import Any

from shardwise.ir import ShapedArray, literal
from shardwise.ops.indexing.along_dims import take_along
from shardwise.ops.rules.derivative import do, positions


def times(x: Any, y: Any) -> Any:
    """Matrix products of stacks."""
    batch = tuple(range(x.ndim - 2))
    return do.dot_general(
        x,
        y,
        dimension_numbers=(((x.ndim - 1,), (x.ndim - 2,)), (batch, batch)),
        precision=None,
        preferred_element_type=None,
        out_sharding=None,
    )


def flip(x: Any) -> Any:
    """Transposes."""
    return do.transpose(x, permutation=(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def conj(x: Any) -> Any:
    """Complex conjugates."""
    return do.conj(x) if x.dtype.kind == "c" else x


def adjoint(x: Any) -> Any:
    """Conjugate transposes."""
    return conj(flip(x))


def real(x: Any) -> Any:
    """Real parts."""
    return do.real(x) if x.dtype.kind == "c" else x


def cast_like(x: Any, dtype: Any) -> Any:
    """`x` in another dtype."""
    return x if x.dtype == dtype else do.convert_element_type(x, new_dtype=dtype, weak_type=False)


def places(aval: ShapedArray) -> tuple[Any, Any]:
    """Row and column numbers of matrices of this type."""
    return positions(aval, aval.ndim - 2), positions(aval, aval.ndim - 1)


def batch_of(x: Any, rows: int, columns: int) -> ShapedArray:
    """The type of matrices of another size."""
    return x.aval.update(shape=(*x.shape[:-2], rows, columns), spec=(*x.aval.spec[:-2], (), ()))


def triangle(x: Any, lower: bool, offset: int = 0) -> Any:
    """The lower or upper triangle, `offset` diagonals up; zeros elsewhere."""
    row, column = places(x.aval)
    shifted_rows = do.add(row, literal(offset, row.dtype))
    return do.select_n(do.ge(shifted_rows, column) if lower else do.le(shifted_rows, column), 0, x)


def identity(like: Any, rows: int, columns: int) -> Any:
    """Identity matrices of the batch and dtype of `like`."""
    row, column = places(batch_of(like, rows, columns))
    return cast_like(do.eq(row, column), like.dtype)


def diagonal(x: Any) -> Any:
    """The diagonals of square matrices."""
    row, column = places(x.aval)
    return do.reduce_sum(do.select_n(do.eq(row, column), 0, x), axes=(x.ndim - 1,))


def trace(x: Any) -> Any:
    """The sums of diagonals."""
    row, column = places(x.aval)
    return do.reduce_sum(do.select_n(do.eq(row, column), 0, x), axes=(x.ndim - 2, x.ndim - 1))


def columns(x: Any) -> Any:
    """Vectors f[..., n] as f[..., 1, n]: one factor per column."""
    return do.broadcast_in_dim(
        x, shape=(*x.shape[:-1], 1, x.shape[-1]), broadcast_dimensions=(*range(x.ndim - 1), x.ndim), out_sharding=None
    )


def rows(x: Any) -> Any:
    """Vectors f[..., n] as f[..., n, 1]: one factor per row."""
    return do.broadcast_in_dim(x, shape=(*x.shape, 1), broadcast_dimensions=tuple(range(x.ndim)), out_sharding=None)


def inverse_or_zero(x: Any) -> Any:
    """1 / x, and 0 where x is 0."""
    zero = do.eq(x, literal(0, x.dtype))
    return do.select_n(zero, do.div(literal(1, x.dtype), do.select_n(zero, x, 1)), 0)


def inverse_off_diagonal(x: Any) -> Any:
    """1 / x, infinite for zeros, and 0 on the diagonals."""
    row, column = places(x.aval)
    on = do.eq(row, column)
    return do.select_n(on, do.div(literal(1, x.dtype), do.select_n(on, x, 1)), 0)


def solve_triangular(
    a: Any, b: Any, *, left: bool, lower: bool, transpose: bool = False, conjugate: bool = False, unit: bool = False
) -> Any:
    """`triangular_solve`, with its usual options."""
    return do.triangular_solve(
        a, b, left=left, lower=lower, transpose=transpose, conjugate=conjugate and a.dtype.kind == "c", unit=unit
    )


def part(x: Any, rows: tuple[int, int], columns: tuple[int, int]) -> Any:
    """Some rows and columns, each from one number up to another."""
    before = (0,) * (x.ndim - 2)
    return do.slice(
        x,
        start_indices=(*before, rows[0], columns[0]),
        limit_indices=(*x.shape[:-2], rows[1], columns[1]),
        strides=None,
    )


def pad_to_size(x: Any, rows: int, columns: int) -> Any:
    """Zeros below and to the right, to this size."""
    edges = ((0, rows - x.shape[-2], 0), (0, columns - x.shape[-1], 0))
    return do.pad(x, 0, padding_config=(*((0, 0, 0),) * (x.ndim - 2), *edges))


def permute_rows(x: Any, order: Any) -> Any:
    """Rows in another order: row i of the result is row ``order[i]``."""
    dims = tuple(range(order.ndim))
    return take_along(
        x, do.broadcast_in_dim(order, shape=x.shape, broadcast_dimensions=dims, out_sharding=None), x.ndim - 2
    )
