"""Norms of vectors and matrices, and condition numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from shardwise.base.dtypes import to_floating
from shardwise.ir import Array, literal
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import (
    Axis,
    array,
    canonical_axes,
    canonical_axis,
    convert,
    is_complex,
    promote_inexact,
    values,
)
from shardwise.numpy.reductions import max as amax
from shardwise.numpy.reductions import min as amin
from shardwise.numpy.reductions import sum as total
from shardwise.ops.linalg.spectral import svd
from shardwise.transforms.jit.composed import composed_function
from shardwise.transforms.jit.shown_calls import shown_call

__all__ = ["matrix_norm", "norm", "vector_norm"]


def _to_floating(name: str, x: Any) -> Array:
    (value,) = promote_inexact(*values(name, array(name, x)))
    return value  # type: ignore[return-value]


def _length(x: Array, axis: Axis, keepdims: bool) -> Array:
    """The root of the sum of squared magnitudes."""
    squares = lax.real(lax.mul(x, lax.conj(x))) if is_complex(x.dtype) else lax.mul(x, x)
    return lax.sqrt(total(squares, axis=axis, keepdims=keepdims))


def vector_norm(x: Any, /, *, axis: Axis = None, keepdims: bool = False, ord: Any = 2) -> Array:
    """The norm of the vectors in `x` along `axis` (default: of all elements): the `ord`-th root of summed powers of
    magnitudes.

    inf and -inf give the largest and smallest magnitude, 0 counts nonzero elements. ValueError for names.

    Args:
        keepdims: keep the reduced dims, with size 1.

    >>> jnp.linalg.vector_norm(jnp.array([3.0, 4.0]))
    Array(5., dtype=float32)
    """
    value = _to_floating("jnp.linalg.vector_norm", x)
    if ord is None or ord == 2:
        return _length(value, axis, keepdims)
    if isinstance(ord, str):
        hint = {"inf": " Use jnp.inf instead.", "-inf": " Use -jnp.inf instead."}.get(ord, "")
        raise ValueError(f"Invalid order '{ord}' for vector norm.{hint}")
    if ord == 0:
        there = lax.convert_element_type(lax.ne(value, literal(0, value.dtype)), to_floating(value.dtype))
        return total(there, axis=axis, keepdims=keepdims)
    size = lax.abs(value)
    if ord == math.inf:
        return amax(size, axis=axis, keepdims=keepdims, initial=0)
    if ord == -math.inf:
        return amin(size, axis=axis, keepdims=keepdims)
    if ord == 1:
        return total(size, axis=axis, keepdims=keepdims)
    powers = total(lax.pow(size, literal(ord, size.dtype)), axis=axis, keepdims=keepdims)
    return lax.pow(powers, literal(1 / ord, size.dtype))


@composed_function(1)
@shown_call("ord axis keepdims")
def norm(
    x: Any, ord: float | str | None = None, axis: tuple[int, ...] | int | None = None, keepdims: bool = False
) -> Array:
    """The norm of `x` as a vector (one axis) or matrix (two axes); without `ord` and `axis` the length of the vector
    of all elements.

    Matrix norms: 'fro' (default), 'nuc', 1 and inf (largest column and row sums), 2 (largest singular value), and
    their negatives for the smallest. ValueError for other orders and for more than two axes.

    Args:
        keepdims: keep the reduced dims, with size 1.

    >>> jnp.linalg.norm(jnp.array([3.0, 4.0]))
    Array(5., dtype=float32)
    """
    value = _to_floating("jnp.linalg.norm", x)
    if axis is None:
        if ord is None:
            return _length(value, None, keepdims)
        axes = tuple(range(value.ndim))
    else:
        axes = tuple(canonical_axis(a, value.ndim) for a in (axis if isinstance(axis, tuple | list) else (axis,)))
    if len(axes) == 1:
        return vector_norm(value, ord=2 if ord is None else ord, axis=axes, keepdims=keepdims)
    if len(axes) != 2:
        raise ValueError(
            f"Improper number of axes for norm: axis={axes!r}. Pass one axis to compute a vector-norm, or two axes to "
            "compute a matrix-norm."
        )
    return _matrix_norm(value, ord, axes, keepdims)


def _matrix_norm(x: Array, ord: float | str | None, axes: tuple[int, ...], keepdims: bool) -> Array:
    row, column = canonical_axes(axes, x.ndim)
    if ord is None or ord in ("f", "fro"):
        return _length(x, axes, keepdims)
    if ord in (1, -1, math.inf, -math.inf):
        summed_axis, compared_axis = (row, column) if ord in (1, -1) else (column, row)
        sums = total(lax.abs(x), axis=summed_axis, keepdims=True)
        out = (
            amax(sums, axis=compared_axis, keepdims=True, initial=0)
            if ord > 0
            else amin(sums, axis=compared_axis, keepdims=True)
        )  # type: ignore
        return out if keepdims else lax.squeeze(out, axes)
    if ord not in (2, -2, "nuc"):
        raise ValueError(f"Invalid order '{ord}' for matrix norm.")
    order = (*(d for d in range(x.ndim) if d not in axes), row, column)
    s = svd(lax.transpose(x, order), compute_uv=False)
    if ord == "nuc":
        out = total(s, axis=-1)
    else:
        out = amax(s, axis=-1, initial=0) if ord == 2 else amin(s, axis=-1)
    return lax.expand_dims(out, sorted(axes)) if keepdims else out


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: float | str = "fro") -> Array:
    """The norms of the matrices in the last two dims of `x`: [..., n, m] -> [...]. `ord` as for `norm`; `keepdims`
    keeps the two dims, with size 1.

    >>> jnp.linalg.matrix_norm(jnp.array([[4.0, 2.0], [2.0, 3.0]])).round(4)
    Array(5.7446, dtype=float32)
    """
    return norm(x, ord=ord, keepdims=keepdims, axis=(-2, -1))


def not_a_number(x: Array, axis: tuple[int, ...]) -> Array:
    """Whether there is a NaN along these dims."""
    return lax.reduce_or(lax.ne(x, x), canonical_axes(axis, x.ndim))


def real_scalar(value: Any, dtype: Any) -> Any:
    """A tolerance, which may be an array, as values of a real type."""
    if isinstance(value, Array):
        return convert(value, dtype)
    return array("tolerance", np.asarray(value, dtype))
