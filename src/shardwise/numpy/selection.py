"""Choosing elements: by condition, by number, by position of nonzero elements.

In: masks or indices, and arrays. Out: arrays; where the size of a result depends on values it must be given (`size=`)
while tracing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.dtypes import default_dtype, iinfo, result_type
from shardwise.ir import Array, Tracer, bind, literal, primal_of
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import (
    Value,
    align_ranks,
    array,
    as_array,
    astype,
    broadcast_shapes,
    broadcast_to_shape,
    broadcast_together,
    canonical_axis,
    concrete,
    concrete_int,
    constant,
    convert,
    is_bool,
    is_integer,
    no_out,
    promote_dtypes,
    promote_shapes,
    requested_dtype,
    value,
    values,
)
from shardwise.numpy._ufunc_forms import where_
from shardwise.numpy.at import at
from shardwise.numpy.binary import floor_divide, remainder
from shardwise.numpy.creation import asarray
from shardwise.numpy.indexing import take
from shardwise.numpy.predicates import to_bool
from shardwise.ops.elementwise.selection import select_n_p
from shardwise.transforms.jit.composed import composed_function
from shardwise.transforms.jit.shown_calls import shown_call


@composed_function(3, numbers=True)
@shown_call("size fill_value", name="_where")
def where(condition: Any, x: Any = None, y: Any = None, /, *, size: int | None = None, fill_value: Any = None) -> Any:
    """Elementwise `x` where `condition` is true (not 0), else `y`; with `condition` alone `nonzero` of it.

    Args:
        size: the number of results, needed under transformations; more are cut off.
        fill_value: what fills the result where there are fewer than `size`.

    Raises:
        ValueError: `size` or `fill_value` is given with `x` and `y`.

    >>> x = jnp.array([-1.0, 2.0])
    >>> jnp.where(x > 0, x, 0.0)
    Array([0., 2.], dtype=float32)
    """
    if x is None and y is None:
        return nonzero(value("where", condition), size=size, fill_value=fill_value)
    c, a, b = values("where", condition, x, y)
    if size is not None or fill_value is not None:
        raise ValueError("size and fill_value arguments cannot be used in three-term where function.")
    chooser, *cases = to_bool(c), *promote_dtypes(a, b)
    if chooser.ndim == 0:
        return where_(chooser, *broadcast_together("where", *cases))
    if c.shape != a.shape or c.shape != b.shape:
        broadcast_shapes(c.shape, a.shape, b.shape)
    return where_(*broadcast_together("where", chooser, *cases))


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Array:
    """Elementwise the item of `choicelist` that belongs to the first true condition in `condlist`, else `default`.

    Raises:
        ValueError: the lists differ in length or are empty.

    >>> jnp.select([jnp.array([True, False])], [jnp.array([1, 2])], 9)
    Array([1, 9], dtype=int32)
    """
    if len(condlist) != len(choicelist):
        raise ValueError(f"condlist must have length equal to choicelist ({len(condlist)} vs {len(choicelist)})")
    if len(condlist) == 0:
        raise ValueError("condlist must be non-empty")
    conditions = values("select", *condlist)
    choices = promote_dtypes(*values("select", *choicelist, default))
    shape = broadcast_shapes(*[v.shape for v in (*conditions, *choices)])
    masks = [to_bool(c) for c in conditions]
    together = broadcast_together("select", *masks, *choices)
    masks, choices, result = list(together[: len(masks)]), together[len(masks) : -1], together[-1]
    for condition, choice in zip(reversed(masks), reversed(choices), strict=True):
        result = where_(condition, choice, result)
    return broadcast_to_shape(result, shape)


def _outside(name: str) -> str:
    """Advice where a traced index cannot be looked at."""
    return f"Under jit, {name} takes mode='wrap' or mode='clip', which need not look at the indices."


def choose(a: Any, choices: Any, out: None = None, mode: str = "raise") -> Array:
    """Elementwise ``choices[a]``; indices out of range raise, wrap around or are clipped.

    With mode 'raise' the indices must be known while tracing. ValueError for one out of range, or not of integers.

    >>> jnp.choose(jnp.array([0, 1]), [jnp.array([1, 2]), jnp.array([10, 20])])
    Array([ 1, 20], dtype=int32)
    """
    no_out("choose", out)
    index = array("choose", a)
    if not is_integer(index.dtype):
        raise ValueError(f"choose takes integer indices, got {index.dtype}.")
    n = len(choices)
    cases = list(choices) if not hasattr(choices, "shape") else [as_array(value("choose", c)) for c in choices]
    if mode == "raise":
        host_index = concrete(index, "the indices of choose with mode='raise'", _outside("jnp.choose"))
        if not n or (host_index < 0).any() or (host_index >= n).any():
            raise ValueError("invalid entry in choice array")
    elif mode == "wrap":
        index = remainder(index, n)
    elif mode == "clip":
        index = lax.clamp(constant(index, 0), index, constant(index, n - 1))
    else:
        raise ValueError(f"choose: mode must be 'raise', 'wrap' or 'clip', got {mode!r}.")
    if not cases:
        raise ValueError("choose needs at least one choice.")
    chosen = promote_dtypes(*values("choose", *cases))
    which, *chosen = align_ranks(astype(index, np.dtype(np.int32)), *chosen)
    shape = broadcast_shapes(which.shape, *[c.shape for c in chosen])
    result = bind(select_n_p, which, *chosen) if len(chosen) > 1 else as_array(chosen[0])
    return as_array(astype(broadcast_to_shape(result, shape), result.dtype))


def piecewise(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Array:
    """Elementwise the value of the function that belongs to the last condition of `condlist` that is true.

    `funclist` holds functions of `x` (called with `args` and `kw`) and scalars, one for each condition and perhaps
    one more for where none is true (default 0). ValueError for another number of them.

    >>> jnp.piecewise(jnp.array([-2.0, 3.0]), [jnp.array([True, False])], [lambda x: -x, lambda x: x])
    Array([2., 3.], dtype=float32)
    """
    v = array("piecewise", x)
    count, given = len(condlist), len(funclist)
    if given not in (count, count + 1):
        raise ValueError(
            f"with {count} condition(s), either {count} or {count + 1} functions are expected; got {given}"
        )
    functions = list(funclist)
    default = functions.pop() if given == count + 1 else 0

    def compute_piece(function: Any) -> Value:
        result = function(v, *args, **kw) if callable(function) else function
        return astype(value("piecewise", result), v.dtype)

    result = compute_piece(default)
    for condition, function in zip(condlist, functions, strict=True):
        mask = to_bool(value("piecewise", np.asarray(condition) if isinstance(condition, list) else condition))
        result = where_(*align_ranks(mask, compute_piece(function), result))
    return broadcast_to_shape(result, v.shape)


# -- positions -------------------------------------------------------------------------------------------------


def nonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> tuple[Array, ...]:
    """The indices of the elements that are not 0, one array per dim.

    Args:
        size: the number of indices: more are cut off, missing ones filled up. Needed while tracing.
        fill_value: the padding, a scalar or one per dim; default 0.

    Raises:
        ValueError: `a` has no dims. ConcretizationTypeError: `a` is traced and `size` not given.

    >>> jnp.nonzero(jnp.array([0, 7, 0, 8]))
    (Array([1, 3], dtype=int32),)
    >>> jnp.nonzero(jnp.array([0, 7, 0, 8]), size=3, fill_value=-1)
    (Array([ 1,  3, -1], dtype=int32),)
    """
    x = array("nonzero", a)
    if not x.ndim:
        raise ValueError("Calling nonzero on 0d arrays is not allowed. Use jnp.atleast_1d(scalar).nonzero() instead.")
    index = default_dtype("i")
    fills = fill_value if isinstance(fill_value, tuple) else (fill_value,) * x.ndim
    if len(fills) != x.ndim or any(map(np.ndim, fills)):
        raise ValueError(
            f"nonzero: fill_value must be a scalar or have one for each of {x.ndim} dims, got {fill_value}."
        )
    fills = tuple([None if f is None else value("nonzero", f) for f in fills])
    if size is None:
        nonzero_indices = np.nonzero(concrete(x, "the argument of nonzero without size="))
        x = primal_of(x)
        # The indices are placed on the devices of `a`, and take part in promotion with the fill value.
        if nonzero_indices[0].size and (getattr(x, "committed", False) or fill_value is not None):
            return nonzero(x, size=nonzero_indices[0].size, fill_value=fill_value)
        return tuple(asarray(i.astype(index)) for i in nonzero_indices)
    size = concrete_int(size, "size of nonzero")
    if x.size == 0 or size == 0:
        return tuple(lax.full((size,), 0, index) for _ in range(x.ndim))
    flat = lax.reshape(as_array(to_bool(x)), (x.size,))
    places, count = _true_places(flat, size)
    is_missing = lax.ge(lax.iota(index, size), count)
    result = []
    for stride, n, fill in zip(_strides(x.shape), x.shape, fills, strict=True):
        along = lax.rem(lax.div(places, literal(stride, index)), literal(n, index))
        if fill is None:
            filler = literal(0, index)
        else:  # which may be of another type, such as NaN
            filler, along = promote_dtypes(fill, along)
        result.append(where_(is_missing, filler, along))
    return tuple(result)


def _true_places(mask: Array, size: int) -> tuple[Array, Array]:
    """The positions of the first `size` true elements of a 1-d mask (0 where there are fewer), and how many are true."""

    index = default_dtype("i")
    rank = lax.cumsum(lax.convert_element_type(mask, index), 0)
    # Each true element writes its position at its rank; the others, and those beyond `size`, write nowhere.
    target = where_(mask, lax.sub(rank, literal(1, index)), literal(size, index))
    places = at(lax.full((size,), 0, index))[target].add(lax.iota(index, mask.shape[0]), mode="drop")
    return places, lax.index_in_dim(rank, mask.shape[0] - 1, keepdims=False)


def _strides(shape: tuple[int, ...]) -> list[int]:
    return [math.prod(shape[d + 1 :]) for d in range(len(shape))]


def flatnonzero(a: Any, *, size: int | None = None, fill_value: Any = None) -> Array:
    """The indices of the elements of the flattened `a` that are not 0; see `nonzero`.

    Args:
        size: the number of results, needed under transformations; more are cut off.
        fill_value: what fills the result where there are fewer than `size`.

    >>> jnp.flatnonzero(jnp.array([[0, 7], [8, 0]]))
    Array([1, 2], dtype=int32)
    """
    x = array("flatnonzero", a)
    return nonzero(lax.reshape(x, (x.size,)), size=size, fill_value=fill_value)[0]


def argwhere(a: Any, *, size: int | None = None, fill_value: Any = None) -> Array:
    """The indices of the elements of `a` that are not 0 as the rows of a matrix; see `nonzero`.

    Args:
        size: the number of results, needed under transformations; more are cut off.
        fill_value: what fills the result where there are fewer than `size`.

    >>> jnp.argwhere(jnp.array([[0, 7], [8, 0]]))
    Array([[0, 1],
           [1, 0]], dtype=int32)
    """
    x = array("argwhere", a)
    indices = nonzero(lax.reshape(x, (1,)) if not x.ndim else x, size=size, fill_value=fill_value)
    if not x.ndim:
        return lax.full((indices[0].shape[0], 0), 0, default_dtype("i"))
    return lax.concatenate([lax.expand_dims(as_array(i), (1,)) for i in promote_dtypes(*indices)], 1)


def compress(
    condition: Any, a: Any, axis: int | None = None, *, size: int | None = None, fill_value: Any = 0, out: None = None
) -> Array:
    """The slices of `a` along `axis` (None: elements of the flattened array) where the 1-d `condition` is true.

    With `size` that many slices: more are cut off, missing ones filled with `fill_value`.

    Args:
        out: only None, as arrays are immutable; NotImplementedError otherwise.

    Raises:
        ValueError: `condition` has other than one dim, or is true beyond the dim.

    >>> jnp.compress(jnp.array([False, True]), jnp.array([[1, 2], [3, 4]]), axis=0)
    Array([[3, 4]], dtype=int32)
    """
    no_out("compress", out)
    c, x, _ = array("compress", condition), array("compress", a, 1), value("compress", fill_value, 2)
    if c.ndim != 1:
        raise ValueError(f"condition must be a 1D array, got shape {c.shape}.")
    if axis is None:
        x, d = lax.reshape(x, (x.size,)), 0
    else:
        d = canonical_axis(axis, x.ndim)
    mask = as_array(to_bool(c))
    n = x.shape[d]
    if mask.shape[0] > n:
        if not isinstance(mask, Tracer) and concrete(mask, "condition")[n:].any():
            raise ValueError("condition contains entries that are out of bounds")
        mask = lax.slice_in_dim(mask, 0, n)
    if size is None:
        places = nonzero(mask)[0]
        return take(x, places, axis=d)
    places = nonzero(mask, size=size, fill_value=n)[0]
    return take(x, places, axis=d, mode="fill", fill_value=fill_value)


def extract(condition: Any, arr: Any, *, size: int | None = None, fill_value: Any = 0) -> Array:
    """The elements of the flattened `arr` where the flattened condition is true; see `compress`.

    The result has `size` elements, filled up with `fill_value`.

    >>> jnp.extract(jnp.array([True, False, True]), jnp.array([1, 2, 3]))
    Array([1, 3], dtype=int32)
    """
    c, x = array("extract", condition), array("extract", arr, 1)
    return compress(lax.reshape(c, (c.size,)), lax.reshape(x, (x.size,)), size=size, fill_value=fill_value)


def place(arr: Any, mask: Any, vals: Any, *, inplace: bool = True) -> Array:
    """`arr` with its elements where `mask` is true replaced by those of `vals`, repeated as needed. Needs inplace=False.

    Raises:
        ValueError: `arr` and `mask` differ in size, `vals` is empty, or `inplace` is true.

    >>> jnp.place(jnp.arange(4), jnp.array([True, False, True, False]), jnp.array([9]), inplace=False)
    Array([9, 1, 9, 3], dtype=int32)
    """
    x, m, v = (array("place", y, i) for i, y in enumerate((arr, mask, vals)))
    if inplace:
        raise ValueError(
            "place cannot modify arrays in-place, because arrays are immutable. Pass inplace=False and use the "
            "returned array."
        )
    if m.size != x.size:
        raise ValueError(f"place: arr and mask must be the same size, got shapes {x.shape} and {m.shape}.")
    if not v.size:
        raise ValueError("Cannot place values from an empty array")
    index = default_dtype("i")
    flat_mask = lax.reshape(as_array(to_bool(m)), (m.size,))
    rank = lax.sub(lax.cumsum(lax.convert_element_type(flat_mask, index), 0), literal(1, index))
    flat = lax.reshape(as_array(astype(v, x.dtype)), (v.size,))
    new = take(flat, remainder(rank, v.size), axis=0, mode="clip")
    new = convert(new, x.dtype, x.weak_type)
    return lax.reshape(where_(flat_mask, new, lax.reshape(x, (x.size,))), x.shape)


# -- flat and multiple indices ---------------------------------------------------------------------------------


def unravel_index(indices: Any, shape: Any) -> tuple[Array, ...]:
    """The indices along each dim of `shape` for indices into the flattened array; out of range they are clipped.

    Raises:
        TypeError: `indices` is not of integers.

    >>> jnp.unravel_index(jnp.array([2, 4]), (2, 3))
    (Array([0, 1], dtype=int32), Array([2, 1], dtype=int32))
    """
    x = value("unravel_index", indices)
    size_list: Any = shape if hasattr(shape, "__iter__") else (shape,)
    if isinstance(shape, Tracer) or any(isinstance(n, Tracer) for n in size_list):
        return _unravel_traced(x, shape)
    sizes = tuple(int(n) for n in size_list)
    total = math.prod(sizes)
    if is_bool(x.dtype) or not is_integer(x.dtype):
        raise TypeError(f"unravel_index takes integers, got {x.dtype}.")
    if isinstance(shape, Array | np.ndarray):  # an array's dtype counts, unlike that of numbers
        x, _ = promote_dtypes(x, value("unravel_index", shape, 1))
    x = where_(lax.lt(x, constant(x, 0)), lax.add(x, constant(x, total)), x)
    x = lax.max(lax.min(x, constant(x, total - 1)), constant(x, 0))
    return tuple(
        remainder(floor_divide(x, constant(x, stride)), constant(x, n))
        for stride, n in zip(_strides(sizes), sizes, strict=True)
    )


def _unravel_traced(x: Value, shape: Any) -> tuple[Array, ...]:
    """The indices along dims whose sizes are traced."""
    if is_bool(x.dtype) or not is_integer(x.dtype):
        raise TypeError(f"unravel_index takes integers, got {x.dtype}.")
    given = value("unravel_index", shape, 1) if isinstance(shape, Tracer) else None
    if given is not None:
        x, given = promote_dtypes(x, given)
    size_list = list(shape) if given is None or given.ndim else [given]
    sizes = [astype(value("unravel_index", n, 1), x.dtype) for n in size_list]
    total = functools.reduce(lax.mul, sizes, constant(x, 1))
    x = where_(lax.lt(x, constant(x, 0)), lax.add(x, total), x)
    x = lax.max(lax.min(x, lax.sub(total, constant(x, 1))), constant(x, 0))
    along = []
    for n in reversed(sizes):
        along.append(as_array(remainder(x, n)))
        x = floor_divide(x, n)
    return tuple(reversed(along))


def ravel_multi_index(
    multi_index: Sequence[Any], dims: Sequence[int], mode: str = "raise", order: str = "C", *, dtype: Any = None
) -> Array:
    """The indices into a flattened array of the sizes `dims` for `multi_index`, arrays of integers, one for each dim.

    Args:
        mode: for indices out of range: 'raise' needs concrete ones, 'wrap' takes the remainder, 'clip' clamps, 'ignore' counts on.
        order: 'C' or 'F': row-major or column-major.
        dtype: the result's; by default that of the indices.

    Raises:
        AssertionError: `multi_index` and `dims` differ in length.
        ValueError: an index is no integer or, with mode 'raise', out of range.

    >>> jnp.ravel_multi_index((jnp.array([0, 1]), jnp.array([2, 1])), (2, 3))
    Array([2, 4], dtype=int32)
    """
    sizes = [int(n) for n in dims]
    parts = values("ravel_multi_index", *multi_index)
    if len(parts) != len(sizes):
        raise AssertionError(
            f"ravel_multi_index: multi_index has {len(parts)} arrays, but dims has {len(sizes)} sizes."
        )
    for part in parts:
        if not is_integer(part.dtype):
            raise ValueError(f"ravel_multi_index takes integers, got {part.dtype}.")
    wanted_dtype = requested_dtype("ravel_multi_index", dtype) or result_type(int, *parts)
    if math.prod(sizes) - 1 > iinfo(wanted_dtype).max:
        raise ValueError(
            f"ravel_multi_index: indices into {math.prod(sizes)} elements do not fit {wanted_dtype}. Pass a wider dtype, for example "
            "dtype='int32'."
        )
    if mode == "raise":
        for part, n in zip(parts, sizes, strict=True):
            host_part = concrete(
                part, "the indices of ravel_multi_index with mode='raise'", _outside("ravel_multi_index")
            )
            if (host_part < 0).any() or (host_part >= n).any():
                raise ValueError("invalid entry in coordinates array")
    elif mode == "clip":
        parts = [lax.clamp(constant(p, 0), p, constant(p, n - 1)) for p, n in zip(parts, sizes, strict=True)]
    elif mode == "wrap":
        parts = [remainder(p, n) for p, n in zip(parts, sizes, strict=True)]
    elif mode != "ignore":
        raise ValueError(f"invalid mode={mode!r}. Expected 'raise', 'wrap', 'clip' or 'ignore'")
    if order not in ("C", "F"):
        raise ValueError(f"invalid order={order!r}. Expected 'C' or 'F'")
    strides = _strides(tuple(sizes)) if order == "C" else _strides(tuple(sizes[::-1]))[::-1]
    total: Value = literal(0, wanted_dtype)
    for part, stride in zip(parts, strides, strict=True):
        scaled_part = lax.mul(astype(part, wanted_dtype), literal(stride, wanted_dtype))
        total = lax.add(*promote_shapes("ravel_multi_index", total, scaled_part))
    return as_array(total)


__all__ = [
    "argwhere", "choose", "compress", "extract", "flatnonzero", "nonzero", "piecewise", "place", "ravel_multi_index", "select",
    "unravel_index", "where",
]  # fmt: skip
