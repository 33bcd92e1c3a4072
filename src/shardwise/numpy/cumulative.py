"""Running sums and products, differences, gradients and integrals.

In: an array and an axis. Out: an array of the same rank.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base.dtypes import default_dtype, reduction_dtype
from shardwise.ir import Array, Literal, literal
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import (
    align_ranks,
    array,
    as_array,
    astype,
    broadcast_to_shape,
    canonical_axes,
    canonical_axis,
    cast_as_asked,
    concrete_int,
    constant,
    is_bool,
    is_inexact,
    is_integer,
    no_out,
    promote_dtypes,
    promote_inexact,
    promote_shapes,
    requested_dtype,
    strong,
    value,
    zero_like,
)
from shardwise.numpy._ufunc_forms import where_
from shardwise.numpy.binary import remainder
from shardwise.numpy.predicates import isnan, not_equal
from shardwise.numpy.unary import absolute
from shardwise.ops.shapes.pieces import rows_between
from shardwise.transforms.jit.shown_calls import shown_call


def _accumulate(
    name: str, a: Any, axis: int | None, dtype: Any, out: None, accumulate: Any, promote: bool = True
) -> Array:
    no_out(name, out)
    x = array(name, a)
    result_dtype = requested_dtype(name, dtype)
    if axis is None or not x.ndim:
        if axis is not None:
            canonical_axis(axis, int(x.aval.weak_type))  # Python's numbers are taken for vectors of one
        x, d = lax.reshape(x, (x.size,)), 0
    else:
        d = canonical_axis(axis, x.ndim)
    if result_dtype is None:
        result_dtype = reduction_dtype(x.dtype) if promote else default_dtype("i") if is_bool(x.dtype) else x.dtype
    if is_bool(result_dtype):
        counts = astype(astype(x, result_dtype), default_dtype("i"))
        return as_array(astype(accumulate(as_array(counts), d), result_dtype))
    return accumulate(as_array(cast_as_asked(x, result_dtype)), d)


@shown_call("axis dtype out")
def cumsum(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Array:
    """The sums of the first 1, 2, ... elements of `a` along `axis` (None: of the flattened array).

    Args:
        dtype: the result's; by default that of `a`, for bools the default integer.
        out: only None, as arrays are immutable; NotImplementedError otherwise.

    >>> jnp.cumsum(jnp.array([[1, 2], [3, 4]]), axis=1)
    Array([[1, 3],
           [3, 7]], dtype=int32)
    """
    return _accumulate("cumsum", a, axis, dtype, out, lax.cumsum, promote=False)


@shown_call("axis dtype out")
def cumprod(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Array:
    """The products of the first 1, 2, ... elements of `a` along `axis` (None: of the flattened array). `dtype` and
    `out` as for `cumsum`.

    >>> jnp.cumprod(jnp.array([1, 2, 3, 4]))
    Array([ 1,  2,  6, 24], dtype=int32)
    """
    return _accumulate("cumprod", a, axis, dtype, out, lax.cumprod, promote=False)


@shown_call("axis dtype out")
def nancumsum(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Array:
    """The sums of the first 1, 2, ... elements of `a` along `axis` (None: of the flattened array), with NaN as 0.

    Args:
        dtype: the result's.
        out: only None, as arrays are immutable; NotImplementedError otherwise.

    >>> jnp.nancumsum(jnp.array([2.0, jnp.nan, 3.0]))
    Array([2., 2., 5.], dtype=float32)
    """
    return cumsum(_replace_nan("nancumsum", a, 0), axis, dtype, out)


@shown_call("axis dtype out")
def nancumprod(a: Any, axis: int | None = None, dtype: Any = None, out: None = None) -> Array:
    """The products of the first 1, 2, ... elements of `a` along `axis` (None: of the flattened array), with NaN as 1.

    Args:
        dtype: the result's.
        out: only None, as arrays are immutable; NotImplementedError otherwise.

    >>> jnp.nancumprod(jnp.array([2.0, jnp.nan, 3.0]))
    Array([2., 2., 6.], dtype=float32)
    """
    return cumprod(_replace_nan("nancumprod", a, 1), axis, dtype, out)


def _replace_nan(name: str, a: Any, number: int) -> Array:
    x = array(name, a)
    return where_(isnan(x), constant(x, number), x) if is_inexact(x.dtype) else x


def cumulative_sum(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Array:
    """`cumsum` as in the array API: `axis` is needed unless `x` is 1-d; `include_initial` puts a 0 in front.

    >>> jnp.cumulative_sum(jnp.array([2, 3]), include_initial=True)
    Array([0, 2, 5], dtype=int32)
    """
    return _cumulative("cumulative_sum", x, axis, dtype, include_initial, lax.cumsum, 0)


def cumulative_prod(x: Any, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False) -> Array:
    """`cumprod` as in the array API: `axis` is needed unless `x` is 1-d; `include_initial` puts a 1 in front.

    >>> jnp.cumulative_prod(jnp.array([2, 3]), include_initial=True)
    Array([1, 2, 6], dtype=int32)
    """
    return _cumulative("cumulative_prod", x, axis, dtype, include_initial, lax.cumprod, 1)


def _cumulative(
    name: str, x: Any, axis: int | None, dtype: Any, include_initial: bool, accumulate: Any, first: int
) -> Array:
    v = array(name, x)
    if not v.ndim:
        raise ValueError(
            f"The input must be non-scalar to take {name}, however a scalar value or scalar array was given."
        )
    if axis is None:
        if v.ndim > 1:
            raise ValueError(
                f"The input array has rank {v.ndim}, however axis was not set to an explicit value. "
                f"The axis argument is only optional for one-dimensional arrays; give one to {name}."
            )
        axis = 0
    d = canonical_axis(axis, v.ndim)
    out = _accumulate(name, v, d, dtype, None, accumulate)
    if include_initial:
        shape = tuple(1 if i == d else n for i, n in enumerate(out.shape))
        out = lax.concatenate([lax.full(shape, first, out.dtype), out], d)
    return out


# -- differences -----------------------------------------------------------------------------------------------


@shown_call("n axis")
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Array:
    """The `n`-th differences of neighbours along `axis`; `prepend` and `append` are joined to `a` first.

    Raises:
        ValueError: `n` is negative, or `a` has no dims.

    >>> jnp.diff(jnp.array([1, 4, 9, 16]))
    Array([3, 5, 7], dtype=int32)
    """
    x = array("diff", a)
    n = concrete_int(n, "n of diff")
    if n == 0:
        return x
    if n < 0:
        raise ValueError(f"order must be non-negative but got {n}")
    if not x.ndim:
        raise ValueError("diff requires input that is at least one dimensional; got a scalar.")
    d = canonical_axis(axis, x.ndim)
    parts = []
    for extra in (prepend, None, append):
        part = x if extra is None else array("diff", extra)
        if extra is None and part is x and len(parts) != (1 if prepend is not None else 0):
            continue
        if not part.ndim:
            part = broadcast_to_shape(part, tuple(1 if i == d else m for i, m in enumerate(x.shape)))
        parts.append(part)
    if len(parts) > 1:
        x = lax.concatenate(promote_dtypes(*parts), d)
    for _ in range(n):
        size = x.shape[d]
        high, low = rows_between(x, min(1, size), size, d), rows_between(x, 0, max(size - 1, 0), d)
        x = not_equal(high, low) if is_bool(x.dtype) else lax.sub(high, low)
    return x


@shown_call()
def ediff1d(ary: Any, to_end: Any = None, to_begin: Any = None) -> Array:
    """The differences of neighbours in the flattened `ary`, with `to_begin` in front and `to_end` behind.

    >>> jnp.ediff1d(jnp.array([1, 4, 9]))
    Array([3, 5], dtype=int32)
    """
    x = array("ediff1d", ary)
    flat = lax.reshape(x, (x.size,))
    x = lax.sub(flat[1:], flat[:-1])
    parts = []
    for extra, place in ((to_begin, 0), (to_end, 1)):
        if extra is not None:
            e = array("ediff1d", extra, place + 1)
            parts.append((place, as_array(astype(lax.reshape(e, (e.size,)), x.dtype))))
    before = [e for place, e in parts if place == 0]
    after = [e for place, e in parts if place == 1]
    return lax.concatenate([*before, x, *after], 0) if parts else x


@shown_call("axis edge_order")
def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: int | None = None) -> Any:
    """Derivatives of the samples `f` by central differences inside and one-sided ones at the ends: one array per axis
    of `axis` (a list for several).

    `varargs`: nothing for distance 1, one distance for all axes, or per axis a distance or the coordinates (1-d).

    Raises:
        TypeError: `varargs` has another number of items than there are axes.
        ValueError: a dim is smaller than 2, or coordinates have another size than the dim.
        NotImplementedError: `edge_order` is given.

    >>> jnp.gradient(jnp.array([0.0, 1.0, 4.0, 9.0]))
    Array([1., 2., 4., 5.], dtype=float32)
    """
    if edge_order is not None:
        raise NotImplementedError("gradient: edge_order is not supported; the ends use first differences.")
    x, *distances = promote_inexact(array("gradient", f), *(value("gradient", h, i) for i, h in enumerate(varargs, 1)))
    x = as_array(x)
    axes = canonical_axes(axis, x.ndim)
    if any(x.shape[d] < 2 for d in axes):
        raise ValueError(
            "Shape of array too small to calculate a numerical gradient, at least 2 elements are required."
        )
    if not axes:
        return []
    steps: list[Any] = distances or [constant(x, 1)]
    steps *= len(axes) if len(steps) == 1 else 1
    if len(steps) != len(axes):
        raise TypeError(f"gradient takes 0, 1 or {len(axes)} distances for {len(axes)} axes, got {len(varargs)}.")
    results = [_gradient_along(x, h, d) for h, d in zip(steps, axes, strict=True)]
    return results[0] if len(axes) == 1 else results


def _gradient_along(x: Array, step: Array | Literal, d: int) -> Array:
    n = x.shape[d]

    def part(start: int, stop: int) -> Array:
        return lax.slice_in_dim(x, start, stop, axis=d)

    if step.ndim > 1:
        raise ValueError(f"gradient: distances are scalars or 1-d coordinates, got shape {step.shape}.")
    if not step.ndim:
        inner = lax.div(lax.sub(part(2, n), part(0, n - 2)), lax.mul(step, constant(x, 2)))
        first, last = (
            lax.div(lax.sub(part(1, 2), part(0, 1)), step),
            lax.div(lax.sub(part(n - 1, n), part(n - 2, n - 1)), step),
        )
        return lax.concatenate([first, inner, last], d)
    if step.shape[0] != n:
        raise ValueError(
            f"Spacing arrays must have the same length as the dimension along which the gradient is calculated: "
            f"got {step.shape[0]}, expected {n}."
        )
    gaps = lax.broadcast_in_dim(diff(step), tuple(n - 1 if i == d else 1 for i in range(x.ndim)), (d,))
    left, right = lax.slice_in_dim(gaps, 0, n - 2, axis=d), lax.slice_in_dim(gaps, 1, n - 1, axis=d)
    slopes = lax.div(lax.sub(part(1, n), part(0, n - 1)), gaps)
    slope_left, slope_right = lax.slice_in_dim(slopes, 0, n - 2, axis=d), lax.slice_in_dim(slopes, 1, n - 1, axis=d)
    weighted_slopes = lax.add(lax.mul(slope_left, right), lax.mul(slope_right, left))
    inner = lax.div(weighted_slopes, lax.add(left, right))
    ends = lax.slice_in_dim(slopes, 0, 1, axis=d), lax.slice_in_dim(slopes, n - 2, n - 1, axis=d)
    return lax.concatenate([ends[0], inner, ends[1]], d)


@shown_call("axis")
def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Array:
    """The integral of `y` along `axis` by the trapezoidal rule, at the points `x` or at distance `dx`.

    >>> jnp.trapezoid(jnp.array([0.0, 1.0, 4.0]))
    Array(3., dtype=float32)
    """
    if x is None:
        (y_,) = promote_inexact(array("trapezoid", y))
        y_ = as_array(y_)
        d = canonical_axis(axis, y_.ndim)
        widths: Any = astype(value("trapezoid", dx), y_.dtype)
    else:
        y_, x_ = map(as_array, promote_inexact(array("trapezoid", y), array("trapezoid", x, 1)))
        d = canonical_axis(axis, y_.ndim)
        if x_.ndim == 1:
            x_ = lax.broadcast_in_dim(x_, tuple(x_.shape[0] if i == d else 1 for i in range(y_.ndim)), (d,))
            widths = diff(x_, axis=d)
        else:
            widths = diff(x_, axis=axis)
    n = y_.shape[d]
    sums = lax.add(lax.slice_in_dim(y_, 1, n, axis=d), lax.slice_in_dim(y_, 0, n - 1, axis=d))
    # Distances broadcast by definition; points, an array like `y`, as its elements do.
    areas = lax.mul(*(align_ranks(widths, sums) if x is None else promote_shapes("trapezoid", widths, sums)))
    integral = lax.mul(lax.reduce_sum(areas, (d,)), constant(areas, 0.5))
    return integral if x is None else strong(integral)


@shown_call("axis")
def unwrap(p: Any, discont: Any = None, axis: int = -1, period: Any = 2 * np.pi) -> Array:
    """`p` with jumps of more than `discont` (default half a period) along `axis` taken out by adding whole periods.

    Raises:
        ValueError: `p` is complex.

    >>> jnp.unwrap(jnp.array([0.0, 3.0, 6.5]), period=6.0)
    Array([0. , 3. , 0.5], dtype=float32)
    """
    x = array("unwrap", p)
    if np.issubdtype(x.dtype, np.complexfloating):
        raise ValueError("unwrap takes real numbers, got complex values.")
    x, whole = map(as_array, promote_dtypes(x, value("unwrap", period, 3)))
    if is_bool(x.dtype):
        x, whole = as_array(astype(x, default_dtype("i"))), as_array(astype(whole, default_dtype("i")))
    d = canonical_axis(axis, x.ndim)
    if not x.shape[d]:
        return x
    if is_integer(x.dtype):
        half, odd = (
            lax.div(whole, literal(2, x.dtype)),
            lax.eq(lax.rem(whole, literal(2, x.dtype)), literal(0, x.dtype)),
        )
    else:
        half, odd = lax.div(whole, constant(whole, 2)), as_array(literal(np.True_))
    limit = half if discont is None else astype(value("unwrap", discont, 1), x.dtype)
    jumps = diff(x, axis=d)
    wrapped_jumps = lax.sub(remainder(lax.add(jumps, half), whole), half)
    # A jump of exactly half a period keeps its direction.
    at_edge = lax.bitwise_and(
        lax.bitwise_and(lax.eq(wrapped_jumps, lax.neg(half)), lax.gt(jumps, zero_like(jumps))), odd
    )
    wrapped_jumps = where_(at_edge, half, wrapped_jumps)
    correction = where_(lax.lt(absolute(jumps), limit), zero_like(jumps), lax.sub(wrapped_jumps, jumps))
    first = lax.slice_in_dim(x, 0, 1, axis=d)
    rest = lax.add(lax.slice_in_dim(x, 1, x.shape[d], axis=d), lax.cumsum(correction, d))
    return strong(lax.concatenate([first, rest], d))


__all__ = ["cumprod", "cumsum", "cumulative_prod", "cumulative_sum", "diff", "ediff1d", "gradient", "nancumprod", "nancumsum",
           "trapezoid", "unwrap"]  # fmt: skip
