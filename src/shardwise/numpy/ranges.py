"""Arrays of numbers in steps: ranges, grids and window functions.

In: bounds and sizes known while tracing. Out: arrays, computed on their own devices.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.base.dtypes import canonicalize, default_dtype, finfo, issubdtype, result_type, to_inexact
from shardwise.engine.device_put import place_created
from shardwise.ir import Array, literal
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import (
    Value,
    align_ranks,
    as_array,
    astype,
    broadcast_to_shape,
    broadcast_together,
    canonical_axis,
    concrete,
    concrete_int,
    constant,
    host_or_value,
    is_complex,
    is_integer,
    promote_dtypes,
    promote_inexact,
    requested_dtype,
    value,
    values,
)
from shardwise.numpy._ufunc_forms import where_
from shardwise.numpy.creation import asarray, its_mesh, on_its_mesh
from shardwise.numpy.transcendental import i0
from shardwise.ops.rules.convert import wide_int
from shardwise.transforms.jit.composed import composed_function


def arange(
    start: Any, stop: Any = None, step: Any = None, dtype: Any = None, *, device: Any = None, out_sharding: Any = None
) -> Array:
    """The numbers from `start` (default 0) to below `stop` in steps of `step`: ``ceil((stop - start) / step)`` of them.

    Bounds must be known while tracing. ValueError for complex ones, TypeError for anything but numbers.

    Args:
        device: where the result lives: a Device or Sharding.
        out_sharding: how the result is split over Explicit axes: a NamedSharding or PartitionSpec.

    >>> jnp.arange(5)
    Array([0, 1, 2, 3, 4], dtype=int32)
    >>> jnp.arange(0.0, 1.0, 0.25)
    Array([0.  , 0.25, 0.5 , 0.75], dtype=float32)
    """
    given = [x for x in (start, stop, step) if x is not None]
    if start is None:
        raise TypeError("arange requires ndarray, scalar, or None arguments; start must be a number, got None.")
    result_dtype = requested_dtype("arange", dtype)
    bounds = values("arange", *(given if result_dtype is None else [wide_int(x, result_dtype) for x in given]))
    if any(x.ndim for x in bounds):
        raise TypeError(f"arange takes scalars, got shapes {', '.join(str(x.shape) for x in bounds)}.")
    if any(is_complex(x.dtype) for x in bounds):
        raise ValueError("arange does not take complex start, stop or step. Use jnp.linspace.")
    if result_dtype is None:
        result_dtype = result_type(*bounds)
    arrays = any(isinstance(x, Array) for x in given)
    numbers = [x if x is None else _bound_of(x, arrays) for x in (start, stop, step)]
    first, last, width = (0, numbers[0], numbers[2]) if stop is None else numbers
    assert first is not None and last is not None
    span = last - first
    n = max(0, math.ceil(span if width is None else span / width))
    # Small floats are computed in float32, but not where the step is 1 of itself.
    small = width is not None and issubdtype(result_dtype, np.floating) and finfo(result_dtype).bits < 32
    compute = np.dtype(np.float32) if small else result_dtype
    with its_mesh(out_sharding):
        out = lax.broadcasted_iota(compute, (n,), 0, out_sharding=out_sharding)
        if width is not None and width != 1:
            out = lax.mul(out, literal(width, compute))
        if first != 0:
            out = lax.add(out, literal(first, compute))
        if compute != result_dtype:
            out = lax.convert_element_type(out, result_dtype)
        return place_created(out, device) if out_sharding is None else on_its_mesh(out, out_sharding)


def _bound_of(x: Any, arrays: bool) -> Any:
    """A bound of `arange` as a number that computes in its own type: Python's floats in 64 bits, arrays' elements as they are.

    Beside `arrays`, NumPy's numbers have the types that arrays of them have.
    """
    if type(x) in (int, float):
        return x
    host_bound = np.asarray(concrete(host_or_value("arange", x), "a bound of arange"))
    own = host_bound if arrays else np.asarray(x)
    return own.item() if own.dtype.kind in "biu" else own[()]


def linspace(
    start: Any,
    stop: Any,
    num: int = 50,
    endpoint: bool = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: Any = None,
) -> Any:
    """`num` numbers at equal distances from `start` to `stop` (arrays broadcast; the numbers go along a new dim `axis`).

    Integers are rounded down. With `retstep` also the distance. ValueError for a negative `num`.

    Args:
        endpoint: `stop` is the last number; else the one after the last.
        device: where the result lives: a Device or Sharding.

    >>> jnp.linspace(0.0, 1.0, 5)
    Array([0.  , 0.25, 0.5 , 0.75, 1.  ], dtype=float32)
    """
    results = _linspace(
        start, stop, requested_dtype("linspace", dtype), concrete_int(num, "num of linspace"), endpoint, axis
    )
    out = place_created(results[0], device)
    return (out, results[1]) if retstep else out


@composed_function(2, numbers=True)
def _linspace(start: Any, stop: Any, wanted_dtype: Any, num: int, endpoint: bool, axis: int) -> tuple[Array, Array]:
    """The numbers, and their distance."""
    if num < 0:
        raise ValueError(f"Number of samples, {num}, must be non-negative.")
    lower, upper = values("linspace", start, stop)
    if wanted_dtype is None:
        wanted_dtype = to_inexact(result_type(lower, upper))
    compute = canonicalize(to_inexact(wanted_dtype))
    shape = lax.broadcast_shapes(lower.shape, upper.shape)
    first = broadcast_to_shape(astype(lower, compute), shape)
    last = broadcast_to_shape(astype(upper, compute), shape)
    axis = canonical_axis(axis, len(shape) + 1)
    divisions = num - 1 if endpoint else num
    if num > 1:
        delta = lax.div(lax.sub(last, first), literal(divisions, compute))
        real = lax.real(first).dtype if is_complex(compute) else compute
        part = lax.div(lax.iota(real, divisions), literal(divisions, real))
        part = lax.expand_dims(astype(part, compute), range(1, len(shape) + 1))
        low, high = lax.expand_dims(first, (0,)), lax.expand_dims(last, (0,))
        out = lax.add(lax.mul(low, lax.sub(literal(1, compute), part)), lax.mul(high, part))
        if endpoint:
            out = lax.concatenate([out, high], 0)
    else:
        delta = as_array(literal(np.nan, compute) if endpoint else lax.sub(last, first))
        out = broadcast_to_shape(lax.expand_dims(first, (0,)), (num, *shape))
    if axis:
        out = lax.transpose(out, [*range(1, axis + 1), 0, *range(axis + 1, out.ndim)])
    if is_integer(wanted_dtype):
        out = lax.floor(out)
    return as_array(astype(out, wanted_dtype)), delta


def logspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, base: Any = 10.0, dtype: Any = None, axis: int = 0
) -> Array:
    """`base` to `num` powers at equal distances from `start` to `stop`; `endpoint` and `axis` as for `linspace`.

    >>> jnp.logspace(0, 2, 3)
    Array([  1.,  10., 100.], dtype=float32)
    """
    result_dtype = requested_dtype("logspace", dtype) or to_inexact(result_type(*values("logspace", start, stop)))
    compute = canonicalize(to_inexact(result_dtype))
    powers = linspace(
        astype(value("logspace", start), compute),
        astype(value("logspace", stop), compute),
        num,
        endpoint,
        dtype=compute,
        axis=axis,
    )
    b, powers = align_ranks(astype(value("logspace", base), compute), powers)
    return as_array(astype(lax.pow(broadcast_to_shape(b, powers.shape), powers), result_dtype))


def geomspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0) -> Array:
    """`num` numbers with equal ratios from `start` to `stop`; `endpoint` and `axis` as for `linspace`.

    >>> jnp.geomspace(1.0, 8.0, 4).round(3)
    Array([1., 2., 4., 8.], dtype=float32)
    """
    result_dtype = requested_dtype("geomspace", dtype) or to_inexact(result_type(*values("geomspace", start, stop)))
    compute = canonicalize(to_inexact(result_dtype))
    first, last = (astype(x, compute) for x in values("geomspace", start, stop))
    first, last = align_ranks(first, last)
    sign = lax.sign(first)
    first, last = lax.div(first, sign), lax.div(*align_ranks(last, sign))
    ten = literal(math.log(10), compute)
    out = logspace(lax.div(lax.log(first), ten), lax.div(lax.log(last), ten), num, endpoint, 10.0, compute, 0)
    if num > 0:
        out = _with_exact_ends(out, first, last, endpoint and num > 1)
    if is_integer(result_dtype):  # rounding errors below an integer must not cost a whole one
        out = lax.mul(out, constant(out, 1 + 8 * float(finfo(compute).eps)))
    out = lax.mul(*align_ranks(out, sign))
    axis = canonical_axis(axis, out.ndim)
    if axis:
        out = lax.transpose(out, [*range(1, axis + 1), 0, *range(axis + 1, out.ndim)])
    return as_array(astype(out, result_dtype))


def _with_exact_ends(out: Any, first: Any, last: Any, closed: bool) -> Any:
    """Rows that begin with `first`, and end with `last` if they are `closed`, without the rounding of logarithms. NaN stays."""

    def exact(row: Any, bound: Any) -> Any:
        bound = lax.expand_dims(broadcast_to_shape(bound, out.shape[1:]), (0,))
        row, bound = broadcast_together("geomspace", row, bound, same=True)
        return where_(lax.ne(row, row), row, bound)

    count = out.shape[0]
    rows = [exact(lax.slice_in_dim(out, 0, 1), first), lax.slice_in_dim(out, 1, count - closed)]
    if closed:
        rows.append(exact(lax.slice_in_dim(out, count - 1, count), last))
    return lax.concatenate(rows, 0)


# -- grids -----------------------------------------------------------------------------------------------------


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> list[Array]:
    """The coordinates of a grid from those along its sides, the 1-d arrays `xi`, one array per side.

    ValueError for arrays that are not 1-d or an `indexing` other than 'xy' and 'ij', and for copy=False.

    Args:
        sparse: the result's arrays have size 1 along all sides but their own.

    >>> jnp.meshgrid(jnp.array([1, 2, 3]), jnp.array([10, 20]))
    [Array([[1, 2, 3],
           [1, 2, 3]], dtype=int32), Array([[10, 10, 10],
           [20, 20, 20]], dtype=int32)]
    """
    sides = values("meshgrid", *xi)
    if not copy:
        raise ValueError("jax.numpy.meshgrid only supports copy=True: arrays are never views of each other here.")
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing must be 'xy' or 'ij', got {indexing!r}.")
    if any(x.ndim != 1 for x in sides):
        raise ValueError(f"Arguments to jax.numpy.meshgrid must be 1D, got shapes {[x.shape for x in sides]}")
    order = list(range(len(sides)))
    if indexing == "xy" and len(sides) > 1:
        order[:2] = [1, 0]
    shape = [1] * len(sides)
    for d, x in zip(order, sides, strict=True):
        shape[d] = x.shape[0]
    result = []
    for d, x in zip(order, sides, strict=True):
        sizes = [1] * len(sides)
        sizes[d] = x.shape[0]
        result.append(lax.broadcast_in_dim(x, tuple(sizes if sparse else shape), (d,)))
    return result


def indices(dimensions: Any, dtype: Any = None, sparse: bool = False) -> Any:
    """For each dim of a grid of the sizes `dimensions`, the index of every point along it; sparse: a tuple of
    broadcastable arrays.

    >>> jnp.indices((2, 2))
    Array([[[0, 0],
            [1, 1]],
    <BLANKLINE>
           [[0, 1],
            [0, 1]]], dtype=int32)
    """
    result_dtype = requested_dtype("indices", dtype) or default_dtype("i")
    sizes = tuple(operator.index(n) for n in dimensions)
    if sparse:
        return tuple(
            lax.broadcasted_iota(result_dtype, tuple(n if i == d else 1 for i in range(len(sizes))), d)
            for d, n in enumerate(sizes)
        )
    if not sizes:
        return asarray(np.zeros((0,)), result_dtype)
    return lax.concatenate(
        [lax.expand_dims(lax.broadcasted_iota(result_dtype, sizes, d), (0,)) for d in range(len(sizes))], 0
    )


def fromfunction(function: Callable[..., Any], shape: Any, *, dtype: Any = float, **kwargs: Any) -> Any:
    """`function` called once with `kwargs` and the coordinates of a grid: one array per dim of `shape`, each of that
    shape.

    >>> jnp.fromfunction(lambda i, j: 10 * i + j, (2, 3), dtype=int)
    Array([[ 0,  1,  2],
           [10, 11, 12]], dtype=int32)
    """
    sizes = tuple(operator.index(n) for n in (shape if hasattr(shape, "__iter__") else (shape,)))
    result_dtype = requested_dtype("fromfunction", dtype)
    return function(*[lax.broadcasted_iota(result_dtype, sizes, d) for d in range(len(sizes))], **kwargs)


def ix_(*args: Any) -> tuple[Array, ...]:
    """The 1-d arrays `args` reshaped so that together they index a rectangle. NotImplementedError for bools.

    Raises:
        ValueError: one has other than one dim.

    >>> jnp.ix_(jnp.array([0, 2]), jnp.array([1]))
    (Array([[0],
           [2]], dtype=int32), Array([[1]], dtype=int32))
    """
    n = len(args)
    result = []
    for d, arg in enumerate(values("ix_", *args)):
        x = as_array(arg)
        if x.ndim != 1:
            raise ValueError(f"Arguments to jax.numpy.ix_ must be 1-dimensional, got shape {x.shape}.")
        if x.dtype == np.bool_:
            raise NotImplementedError("ix_ of bools; use jnp.nonzero of them.")
        if x.size == 0:
            x = as_array(astype(x, default_dtype("i")))
        result.append(lax.expand_dims(x, [i for i in range(n) if i != d]))
    return tuple(result)


def _step(key: slice) -> Array:
    start = 0 if key.start is None else key.start
    step = 1 if key.step is None else key.step
    if isinstance(step, complex):
        return linspace(start, key.stop, int(abs(step)))
    return arange(start, key.stop, step)


class _Grid:
    """``mgrid[0:3, 0:1:5j]``: the coordinates of a grid; an imaginary step is the number of points."""

    def __init__(self, sparse: bool) -> None:
        self.sparse = sparse

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return _step(key)
        sides = [_step(k) for k in key]
        if not sides:
            return [] if self.sparse else as_array(np.zeros(0, default_dtype("i")))
        with config.override("jax_numpy_dtype_promotion", "standard"):  # nobody asked for these dtypes
            dtype = result_type(*sides)
        grid = meshgrid(*[astype(x, dtype) for x in sides], indexing="ij", sparse=self.sparse)
        return grid if self.sparse else lax.concatenate([lax.expand_dims(x, (0,)) for x in grid], 0)


mgrid = _Grid(sparse=False)
ogrid = _Grid(sparse=True)


class _Join:
    """``r_[1:4, 0, x]``: ranges and arrays put together along an axis; a leading text chooses axis and rank, 'r' or 'c' a matrix."""

    axis = 0
    ndmin = 1
    trans1d = -1

    def __getitem__(self, key: Any) -> Array:
        items = list(key) if isinstance(key, tuple) else [key]
        axis, ndmin, trans1d = self.axis, self.ndmin, self.trans1d
        matrix = ""
        if items and isinstance(items[0], str):
            words = items.pop(0).split(",")
            if words[0] in ("r", "c"):
                matrix = words.pop(0)
            if len(words) > 3:
                raise ValueError(f"r_: expected up to three comma-separated integers, got {','.join(words)!r}.")
            numbers = [int(w) for w in words]
            axis, ndmin, trans1d = numbers + [axis, ndmin, trans1d][len(numbers) :]
        parts = []
        for item in items:
            x = _step(item) if isinstance(item, slice) else asarray(item)
            rank = x.ndim
            if rank < ndmin:
                new = ndmin - rank
                place = new if rank == 0 or trans1d == -1 else trans1d % ndmin
                dims = [d for d in range(ndmin) if not place <= d < place + rank] if rank else range(new)
                x = lax.expand_dims(x, dims)
            parts.append(x)
        joined_parts = lax.concatenate(promote_dtypes(*parts), axis % parts[0].ndim)
        return (
            lax.expand_dims(joined_parts, (0 if matrix == "r" else 1,))
            if matrix and joined_parts.ndim == 1
            else joined_parts
        )


class _JoinColumns(_Join):
    """``c_[x, y]``: 1-d arrays put together as the columns of a matrix."""

    axis = -1
    ndmin = 2
    trans1d = 0


r_ = _Join()
c_ = _JoinColumns()
s_ = np.s_
index_exp = np.index_exp


# -- window functions ------------------------------------------------------------------------------------------


def _window(name: str, M: Any, function: Callable[[Array, int], Array]) -> Array:
    n = int(concrete(M, f"M of {name}"))
    dtype = default_dtype("f")
    if n < 0:
        raise TypeError(f"{name}: the number of points M is at least 0, got {n}.")
    if n <= 1:
        return lax.full((n,), 1, dtype)
    return function(lax.iota(dtype, n), n)


def _cosines(n: Array, M: int, *weights: float) -> Array:
    """weights[0] - weights[1] cos(2 pi n / (M - 1)) + weights[2] cos(4 pi n / (M - 1))."""
    total: Value = constant(n, weights[0])
    for k, weight in enumerate(weights[1:], 1):
        wave = lax.cos(lax.div(lax.mul(n, constant(n, 2 * np.pi * k)), constant(n, M - 1)))
        total = lax.add(total, lax.mul(wave, constant(n, weight if k % 2 == 0 else -weight)))
    return as_array(total)


def bartlett(M: int) -> Array:
    """The triangular window of `M` points.

    >>> jnp.bartlett(5)
    Array([0. , 0.5, 1. , 0.5, 0. ], dtype=float32)
    """

    def triangle(n: Array, M: int) -> Array:
        one = constant(n, 1)
        position = lax.sub(lax.div(lax.mul(n, constant(n, 2)), constant(n, M - 1)), one)
        return lax.sub(one, lax.abs(position))

    return _window("bartlett", M, triangle)


def blackman(M: int) -> Array:
    """The Blackman window of `M` points.

    >>> jnp.blackman(5).round(2)
    Array([-0.  ,  0.34,  1.  ,  0.34, -0.  ], dtype=float32)
    """
    return _window("blackman", M, lambda n, M: _cosines(n, M, 0.42, 0.5, 0.08))


def hamming(M: int) -> Array:
    """The Hamming window of `M` points.

    >>> jnp.hamming(3).round(2)
    Array([0.08, 1.  , 0.08], dtype=float32)
    """
    return _window("hamming", M, lambda n, M: _cosines(n, M, 0.54, 0.46))


def hanning(M: int) -> Array:
    """The Hann window of `M` points.

    >>> jnp.hanning(5)
    Array([0. , 0.5, 1. , 0.5, 0. ], dtype=float32)
    """
    return _window("hanning", M, lambda n, M: _cosines(n, M, 0.5, 0.5))


def kaiser(M: int, beta: Any) -> Array:
    """The Kaiser window of `M` points with shape parameter `beta`.

    >>> jnp.kaiser(3, 1.0).round(3)
    Array([0.79, 1.  , 0.79], dtype=float32)
    """

    def bessel(n: Array, M: int) -> Array:
        half = 0.5 * (M - 1)
        position = lax.div(lax.sub(n, constant(n, half)), constant(n, half))
        root = lax.sqrt(lax.sub(constant(n, 1), lax.square(position)))
        (b,) = promote_inexact(value("kaiser", beta, 1))
        b = astype(b, n.dtype)
        return lax.div(i0(lax.mul(root, b)), i0(b))

    return _window("kaiser", M, bessel)


__all__ = [
    "arange", "bartlett", "blackman", "c_", "fromfunction", "geomspace", "hamming", "hanning", "index_exp", "indices", "ix_",
    "kaiser", "linspace", "logspace", "meshgrid", "mgrid", "ogrid", "r_", "s_",
]  # fmt: skip
