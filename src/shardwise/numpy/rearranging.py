"""Elements repeated, rotated and turned around: repeat, tile, resize, roll, flip, rot90, trim_zeros.

In: arrays and scalars. Out: arrays of the same elements in other places; static changes are slices and views.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.small_integers import is_below_byte
from shardwise.ir import Array, Literal
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import array as checked
from shardwise.numpy._promote import (
    as_array,
    astype,
    canonical_axes,
    canonical_axis,
    concrete,
    concrete_int,
    host_or_value,
)
from shardwise.numpy.binary import remainder
from shardwise.numpy.indexing import take
from shardwise.numpy.shapes import flat, index_tuple
from shardwise.ops.indexing.search import searchsorted
from shardwise.ops.rules.out_sharding import resolve_out_sharding
from shardwise.sharding.context import get_abstract_mesh
from shardwise.transforms.jit.jit import jit
from shardwise.transforms.jit.shown_calls import shown_call
from shardwise.transforms.manual.explicit import auto_axes

__all__ = ["flip", "fliplr", "flipud", "repeat", "resize", "roll", "rot90", "tile", "trim_zeros"]

_INT32 = np.dtype(np.int32)


# -- repetition ------------------------------------------------------------------------------------------------


def repeat(
    a: Any, repeats: Any, axis: int | None = None, *, total_repeat_length: int | None = None, out_sharding: Any = None
) -> Array:
    """Each slice of `a` along `axis` (None: each element of the flattened array) repeated.

    Args:
        repeats: how often: an integer, or one per slice. Known while tracing, unless `total_repeat_length` is given.
        total_repeat_length: the size of the result's dim: excess slices are cut off, missing ones repeat the last slice.
        out_sharding: how the result is split over Explicit axes. Needed if the dim is, unless all slices are repeated as often and no mesh
            is in context: then the dim stays split.

    Raises:
        ConcretizationTypeError: `repeats` is traced and there is no `total_repeat_length`.
        ValueError: `repeats` does not fit the dim, or a repeated dim is explicitly split. TypeError for floats.

    >>> jnp.repeat(jnp.array([1, 2]), jnp.array([2, 1]))
    Array([1, 1, 2], dtype=int32)
    """
    x, times = checked("repeat", a), host_or_value("repeat", repeats, 1)
    if out_sharding is not None:
        sharding = resolve_out_sharding(out_sharding, "repeat", 1 if axis is None else x.ndim)
        assert sharding is not None
        body = functools.partial(_repeat, axis=axis, total=total_repeat_length)
        on_auto_axes = functools.partial(auto_axes, axes=sharding.mesh.explicit_axes, out_sharding=out_sharding)  # type: ignore[union-attr]
        if total_repeat_length is None:
            return on_auto_axes(lambda x: body(x, times))(x)
        return on_auto_axes(body)(x, as_array(times))
    split = x.aval.spec if axis is None else (x.aval.spec[canonical_axis(axis, x.ndim)],) if x.ndim else ()
    as_often = total_repeat_length is None and not times.shape
    if any(split) and not (as_often and get_abstract_mesh().empty):
        raise ValueError(
            f"repeat along a dim that is split, of {x.aval.str_short()}: please pass the sharding of the result to "
            "`jnp.repeat` via `out_sharding` parameter."
        )
    return _repeat(x, times, axis, total_repeat_length)


def _repeat(x: Array, times: Array | Literal | np.ndarray[Any, Any], axis: int | None, total: int | None) -> Array:
    if axis is None or not x.ndim:
        axis, scalar, x = 0, not x.ndim, flat(x)
    else:
        axis, scalar = canonical_axis(axis, x.ndim), False
    n = x.shape[axis]
    if total is not None:
        return _repeat_dynamic(x, as_array(times), axis, concrete_int(total, "total_repeat_length of repeat"))
    counts = concrete(times, "repeats of repeat, if total_repeat_length is not given,")
    if counts.dtype.kind not in "iub" and not is_below_byte(counts.dtype):
        raise TypeError(f"repeat takes an integer number of repeats, got {counts.dtype}.")
    if is_below_byte(counts.dtype):
        counts = counts.astype(np.int32)
    if counts.size != 1 and counts.size != n:
        what = "a scalar" if scalar else f"a dim of size {n}"
        raise ValueError(f"repeat of {what}: operands could not be broadcast together, got {counts.size} repeats.")
    if (counts < 0).any():
        raise TypeError(f"repeat takes repeats of at least 0, got {counts.min()}.")
    if counts.size == 1 and n != 1:
        return _repeat_all(x, int(counts.reshape(())), axis)
    if n == 1:
        return _repeat_all(x, int(counts.sum()), axis)
    index = np.repeat(np.arange(n, dtype=np.int32), counts.ravel())
    return take(x, index, axis, indices_are_sorted=True, mode="clip")


def _repeat_all(x: Array, times: int, axis: int) -> Array:
    """Every slice `times` times: a broadcast, and a reshape."""
    sizes = list(x.shape)
    sizes.insert(axis + 1, times)
    wide = lax.broadcast_in_dim(x, sizes, [d for d in range(len(sizes)) if d != axis + 1])
    return lax.reshape(wide, (*x.shape[:axis], x.shape[axis] * times, *x.shape[axis + 1 :]))


def _repeat_dynamic(x: Array, times: Array, axis: int, total: int) -> Array:
    n = x.shape[axis]
    times = flat(times)
    if times.shape[0] not in (1, n):
        raise ValueError(f"repeat along a dim of size {n} takes one or {n} repeats, got {times.shape[0]}.")
    if not n:
        return x
    ends = lax.cumsum(lax.broadcast_in_dim(times, (n,), (0,)))
    index = searchsorted(ends, lax.iota(ends.dtype, total), right=True)
    return take(x, index, axis, indices_are_sorted=True, mode="clip")


def tile(A: Any, reps: Any) -> Array:
    """`A` repeated ``reps[d]`` times along each dim; the shorter of shape and `reps` is filled up with ones in front.

    >>> jnp.tile(jnp.array([1, 2]), (2, 2))
    Array([[1, 2, 1, 2],
           [1, 2, 1, 2]], dtype=int32)
    """
    x = checked("tile", A)
    times = index_tuple(reps)
    rank = max(x.ndim, len(times))
    times = (1,) * (rank - len(times)) + times
    return lax.tile(lax.expand_dims(x, range(rank - x.ndim)), times)


def resize(a: Any, new_shape: Any) -> Array:
    """The elements of `a`, again and again or cut off, in the shape `new_shape`; zeros if `a` is empty.

    Raises:
        ValueError: a size is negative.

    >>> jnp.resize(jnp.array([1, 2]), (3,))
    Array([1, 2, 1], dtype=int32)
    """
    x = flat(checked("resize", a))
    sizes = index_tuple(new_shape)
    if any(n < 0 for n in sizes):
        raise ValueError(f"all elements of `new_shape` of resize must be non-negative, got {new_shape}.")
    wanted_size = math.prod(sizes)
    if not wanted_size or not x.size:
        return lax.full(sizes, 0, x.dtype)
    if wanted_size > x.size:
        x = lax.tile(x, (-(-wanted_size // x.size),))
    return lax.reshape(lax.slice_in_dim(x, 0, wanted_size), sizes)


# -- rotation --------------------------------------------------------------------------------------------------


@shown_call("shift axis", name="_roll_static")
def roll(a: Any, shift: Any, axis: int | Sequence[int] | None = None) -> Array:
    """`a` with its elements moved by `shift` places along `axis` (None: of the flattened array), around the end.

    Shifts and axes may be several and broadcast; shifts may be traced. ValueError where they do not fit.

    >>> jnp.roll(jnp.arange(4), 1)
    Array([3, 0, 1, 2], dtype=int32)
    """
    x = checked("roll", a)
    if axis is None:
        return lax.reshape(roll(flat(x), shift, 0), x.shape)
    axes = tuple(canonical_axis(d, x.ndim) for d in index_tuple(axis))
    try:
        shifts: Any = index_tuple(shift)
    except TypeError:
        return _roll_dynamic(x, checked("roll", shift, 1), axes)
    return _roll_static(x, tuple(zip(*_match_shifts(axes, shifts), strict=True)))


@functools.partial(jit, inline=True, static_argnums=1)  # as one program: the parts of a split dim are not moved
def _roll_static(x: Array, moves: tuple[tuple[int, int], ...]) -> Array:
    for d, by in moves:
        n = x.shape[d]
        start = -by % n if n else 0
        if start:
            x = lax.concatenate([lax.slice_in_dim(x, start, n, axis=d), lax.slice_in_dim(x, 0, start, axis=d)], d)
    return x


def _match_shifts(axes: tuple[int, ...], shifts: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    n = len(shifts) if len(axes) == 1 else len(axes)
    if len(axes) not in (1, n) or len(shifts) not in (1, n):
        raise ValueError(f"roll: shape mismatch, {len(shifts)} shifts do not broadcast against {len(axes)} axes.")
    return (axes if len(axes) == n else axes * n), (shifts if len(shifts) == n else shifts * n)


def _roll_dynamic(x: Array, shift: Array, axes: tuple[int, ...]) -> Array:
    if shift.ndim > 1:
        raise ValueError(f"roll: shift must be a scalar or have one dim, got shape {shift.shape}.")
    shifts = [shift] if not shift.ndim else lax.unstack(shift)
    for d, i in zip(*_match_shifts(axes, tuple(range(len(shifts)))), strict=True):
        n = x.shape[d]
        if n:
            start = remainder(lax.neg(astype(shifts[i], _INT32)), np.int32(n))
            x = lax.dynamic_slice_in_dim(lax.concatenate([x, x], d), start, n, axis=d)
    return x


# -- turning around --------------------------------------------------------------------------------------------


@shown_call("axis", name="_flip")
def flip(m: Any, axis: int | Sequence[int] | None = None) -> Array:
    """`m` with the order of elements reversed along `axis` (None: along all).

    >>> jnp.flip(jnp.array([[1, 2], [3, 4]]), axis=1)
    Array([[2, 1],
           [4, 3]], dtype=int32)
    """
    x = checked("flip", m)
    dims = range(x.ndim) if axis is None else [canonical_axis(d, x.ndim) for d in index_tuple(axis)]
    return lax.rev(x, dims)


def fliplr(m: Any) -> Array:
    """`m` reversed along its second dim.

    >>> jnp.fliplr(jnp.array([[1, 2], [3, 4]]))
    Array([[2, 1],
           [4, 3]], dtype=int32)
    """
    return flip(checked("fliplr", m), 1)


def flipud(m: Any) -> Array:
    """`m` reversed along its first dim.

    >>> jnp.flipud(jnp.array([[1, 2], [3, 4]]))
    Array([[3, 4],
           [1, 2]], dtype=int32)
    """
    return flip(checked("flipud", m), 0)


@shown_call("k axes")
def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    """`m` turned by `k` quarters in the plane of the two dims `axes`, from the first towards the second.

    Raises:
        ValueError: `m` has fewer than two dims, or `axes` are the same dim.

    >>> jnp.rot90(jnp.array([[1, 2], [3, 4]]))
    Array([[2, 4],
           [1, 3]], dtype=int32)
    """
    x = checked("rot90", m)
    if x.ndim < 2:
        raise ValueError(f"rot90 requires its first argument to have ndim at least two, got shape {x.shape}.")
    first, second = (canonical_axis(d, x.ndim) for d in axes)
    if first == second:
        raise ValueError(f"rot90: Axes must be different, got {axes}.")
    turns = operator.index(k) % 4
    x = lax.rev(x, ((), (second,), (first, second), (first,))[turns])
    if turns % 2 == 0:
        return x
    order = list(range(x.ndim))
    order[first], order[second] = second, first
    return lax.transpose(x, order)


def trim_zeros(filt: Any, trim: str = "fb", axis: int | Sequence[int] | None = None) -> Array:
    """`filt` without the zeros at its front ('f') and back ('b') along `axis` (None: all). Values must be known.

    ConcretizationTypeError under jit, where the result's shape would depend on values. `trim` says where: 'f', 'b' or
    both.

    >>> jnp.trim_zeros(jnp.array([0, 1, 0, 2, 0]))
    Array([1, 0, 2], dtype=int32)
    """
    x = checked("trim_zeros", filt)
    present = concrete(x, "filt of trim_zeros, on whose values the result's shape depends,") != 0
    sides = trim.lower()
    if not set("fb") & set(sides):
        return x
    for d in canonical_axes(axis, x.ndim):
        rows_present = np.flatnonzero(present.any(axis=tuple(i for i in range(x.ndim) if i != d)))
        first = int(rows_present[0]) if len(rows_present) and "f" in sides else 0
        end = 0 if not len(rows_present) else int(rows_present[-1]) + 1 if "b" in sides else x.shape[d]
        x = lax.slice_in_dim(x, first, end, axis=d)
    return x
