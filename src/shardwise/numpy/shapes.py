"""Other shapes and orders of dims for the same elements: reshape, transpose, new and gone dims, broadcasts.

In: arrays and scalars. Out: arrays of the same elements; nothing is copied that a view can show.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import array as checked
from shardwise.numpy._promote import (
    broadcast_to_shape,
    broadcast_together,
    canonical_axis,
    concrete_int,
    insertion_axes,
    value,
    values,
)
from shardwise.ops.rules.dims import shape_tuple
from shardwise.ops.rules.out_sharding import resolve_out_sharding, sharding_spec
from shardwise.ops.shapes.broadcast import require_kept_axes
from shardwise.sharding import NamedSharding, PartitionSpec
from shardwise.transforms.jit.shown_calls import shown_call

__all__ = [
    "atleast_1d", "atleast_2d", "atleast_3d", "broadcast_arrays", "broadcast_shapes", "broadcast_to", "expand_dims",
    "matrix_transpose", "moveaxis", "permute_dims", "ravel", "reshape", "rollaxis", "squeeze",
    "swapaxes", "transpose",
]  # fmt: skip

Axes = int | Sequence[int]


def index_tuple(axes: Any) -> tuple[int, ...]:
    """An int or a sequence of ints as a tuple of ints. TypeError for anything else."""
    try:
        return (operator.index(axes),)
    except TypeError:
        return tuple(operator.index(a) for a in axes)


# -- reshape ---------------------------------------------------------------------------------------------------


def reshape(a: Any, shape: Any, order: str = "C", *, copy: bool | None = None, out_sharding: Any = None) -> Array:
    """The elements of `a` in another shape, read and placed in row-major ('C') or column-major ('F') order.

    Args:
        shape: sizes; one may be -1 and is found from the others.
        copy: without effect, arrays are immutable.
        out_sharding: how the result is split over Explicit axes; needed where dims merge or split ambiguously.

    Raises:
        TypeError: the sizes do not multiply to that of `a`, or are no concrete ints. ValueError for another `order`.
        NotImplementedError: `order` is 'A'.

    >>> jnp.reshape(jnp.arange(6), (2, -1))
    Array([[0, 1, 2],
           [3, 4, 5]], dtype=int32)
    """
    del copy
    if isinstance(a, (np.ndarray, np.generic)) and out_sharding is None and order in ("C", "F"):
        return a.reshape(_complete_shape(a, shape), order=order)  # type: ignore[return-value]
    x = checked("reshape", a)
    sizes = _complete_shape(x, shape)
    if order == "C":
        return lax.reshape(x, sizes, out_sharding=out_sharding)
    if order == "F":
        backwards = lax.reshape(_reversed_dims(x), sizes[::-1], out_sharding=_reversed_spec(out_sharding, len(sizes)))
        return _reversed_dims(backwards)
    if order == "A":
        raise NotImplementedError("reshape: order='A' is not supported; arrays have no memory order. Use 'C' or 'F'.")
    raise ValueError(f"Unexpected value for 'order' argument of reshape: {order!r}. Expected 'C' or 'F'.")


def _complete_shape(x: Array, shape: Any) -> tuple[int, ...]:
    """`shape` with a size for -1."""
    try:
        sizes = index_tuple(shape)
    except TypeError:
        return shape_tuple(shape, "reshape")  # raises the error
    unknown_count = sizes.count(-1)
    if unknown_count > 1:
        raise TypeError(f"reshape can only specify one unknown axis size with a `-1` value, got {sizes}.")
    if unknown_count:
        known_size = -math.prod(sizes)
        if not known_size or x.size % known_size:
            raise TypeError(
                f"cannot reshape array of shape {x.shape} (size {x.size}) into shape {sizes}: the size at -1 would have to "
                f"be {x.size} / {known_size}."
            )
        sizes = tuple(x.size // known_size if n == -1 else n for n in sizes)
    if any(n < 0 for n in sizes):
        raise TypeError(f"reshape takes sizes of at least 0, and one -1, got {shape}.")
    if math.prod(sizes) != x.size:
        raise TypeError(
            f"cannot reshape array of shape {x.shape} (size {x.size}) into shape {sizes} (size {math.prod(sizes)})"
        )
    return sizes


def _reversed_dims(x: Array) -> Array:
    return lax.transpose(x, range(x.ndim)[::-1])


def _reversed_spec(out_sharding: Any, ndim: int) -> Any:
    if out_sharding is None:
        return None

    spec = out_sharding.spec if isinstance(out_sharding, NamedSharding) else out_sharding
    entries = [*spec.partitions, *[None] * (ndim - len(spec))][::-1]
    reversed_spec = PartitionSpec(*entries)
    return NamedSharding(out_sharding.mesh, reversed_spec) if isinstance(out_sharding, NamedSharding) else reversed_spec


def ravel(a: Any, order: str = "C", *, out_sharding: Any = None) -> Array:
    """The elements of `a` as one dim, in row-major ('C') or column-major ('F') order.

    Args:
        out_sharding: how the result is split over Explicit axes: a NamedSharding or PartitionSpec.

    Raises:
        NotImplementedError: `order` is 'A' or 'K'.

    >>> jnp.ravel(jnp.array([[1, 2], [3, 4]]), order='F')
    Array([1, 3, 2, 4], dtype=int32)
    """
    x = checked("ravel", a)
    if order == "K":
        raise NotImplementedError("ravel: order='K' is not supported; arrays have no memory order. Use 'C' or 'F'.")
    return reshape(x, (x.size,), order, out_sharding=out_sharding)


def flat(x: Array) -> Array:
    """`x` as one dim."""
    return x if x.ndim == 1 else lax.reshape(x, (x.size,))


# -- order of dims ---------------------------------------------------------------------------------------------


def transpose(a: Any, axes: Sequence[int] | None = None) -> Array:
    """`a` with its dims in the order `axes` (None: reversed). Raises where `axes` is no permutation of the dims.

    >>> jnp.transpose(jnp.ones((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    x = checked("transpose", a)
    return _reversed_dims(x) if axes is None else lax.transpose(x, [canonical_axis(d, x.ndim) for d in axes])


def permute_dims(a: Any, /, axes: tuple[int, ...]) -> Array:
    """`a` with its dims in the order `axes`, counted from the front.

    >>> jnp.permute_dims(jnp.ones((2, 3, 4)), (2, 0, 1)).shape
    (4, 2, 3)
    """
    return lax.transpose(checked("permute_dims", a), axes)


def matrix_transpose(x: Any, /) -> Array:
    """`x` with its last two dims swapped. ValueError below two dims.

    >>> jnp.matrix_transpose(jnp.array([[1, 2], [3, 4]]))
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    m = checked("matrix_transpose", x)
    if m.ndim < 2:
        raise ValueError(f"matrix_transpose takes an array of at least two dims, got shape {m.shape}.")
    return lax.transpose(m, (*range(m.ndim - 2), m.ndim - 1, m.ndim - 2))


def swapaxes(a: Any, axis1: int, axis2: int) -> Array:
    """`a` with the dims `axis1` and `axis2` exchanged.

    >>> jnp.swapaxes(jnp.ones((2, 3, 4)), 0, 2).shape
    (4, 3, 2)
    """
    x = checked("swapaxes", a)
    first, second = canonical_axis(axis1, x.ndim), canonical_axis(axis2, x.ndim)
    order = list(range(x.ndim))
    order[first], order[second] = second, first
    return lax.transpose(x, order)


def moveaxis(a: Any, source: Axes, destination: Axes) -> Array:
    """`a` with the dims `source` moved to the positions `destination`, the others keeping their order.

    Raises:
        TypeError: a dim occurs twice. ValueError: `source` and `destination` differ in number, or a dim is out of
            range.

    >>> jnp.moveaxis(jnp.ones((2, 3, 4)), 0, -1).shape
    (3, 4, 2)
    """
    x = checked("moveaxis", a)
    sources, targets = index_tuple(source), index_tuple(destination)
    if len(sources) != len(targets):
        raise ValueError(
            f"moveaxis: Inconsistent number of elements: {len(sources)} in source, {len(targets)} in destination."
        )
    origin = dict(
        zip((canonical_axis(d, x.ndim) for d in targets), (canonical_axis(d, x.ndim) for d in sources), strict=True)
    )
    if len(origin) != len(targets) or len(set(origin.values())) != len(sources):
        raise TypeError(f"moveaxis takes each dim once, got source {source} and destination {destination}.")
    rest = iter([d for d in range(x.ndim) if d not in origin.values()])
    return lax.transpose(x, [origin[d] if d in origin else next(rest) for d in range(x.ndim)])


@shown_call("axis start")
def rollaxis(a: Any, axis: int, start: int = 0) -> Array:
    """`a` with the dim `axis` moved to stand before the dim `start`. Prefer `moveaxis`.

    Raises:
        ValueError: `axis` or `start` is out of range.

    >>> jnp.rollaxis(jnp.ones((2, 3, 4)), 2).shape
    (4, 2, 3)
    """
    x = checked("rollaxis", a)
    start = concrete_int(start, "start of rollaxis")
    axis = canonical_axis(axis, x.ndim)
    if not -x.ndim <= start <= x.ndim:
        raise ValueError(f"rollaxis: start={start} must lie between {-x.ndim} and {x.ndim}.")
    target = start + x.ndim if start < 0 else start
    return moveaxis(x, axis, target - (target > axis))


# -- dims that come and go -------------------------------------------------------------------------------------


def squeeze(a: Any, axis: Axes | None = None) -> Array:
    """`a` without the dims `axis` (None: without any) of size 1. ValueError if one has another size.

    >>> jnp.squeeze(jnp.ones((1, 3, 1)), 0).shape
    (3, 1)
    """
    x = checked("squeeze", a)
    return lax.squeeze(x, [d for d, n in enumerate(x.shape) if n == 1] if axis is None else index_tuple(axis))


def expand_dims(a: Any, axis: Axes) -> Array:
    """`a` with new dims of size 1 at the positions `axis` of the result.

    >>> jnp.expand_dims(jnp.arange(3), 0)
    Array([[0, 1, 2]], dtype=int32)
    """
    x = checked("expand_dims", a)
    return lax.expand_dims(x, insertion_axes(index_tuple(axis), x.ndim))


@shown_call()
def atleast_1d(*arys: Any) -> Any:
    """Each of the arrays `arys` with one dim if it has none; a list if there are several.

    >>> jnp.atleast_1d(3.0)
    Array([3.], dtype=float32, weak_type=True)
    """
    return _at_least("atleast_1d", 1, arys)


@shown_call()
def atleast_2d(*arys: Any) -> Any:
    """Each of the arrays `arys` with new dims in front, to have at least two; a list if there are several.

    >>> jnp.atleast_2d(jnp.arange(3))
    Array([[0, 1, 2]], dtype=int32)
    """
    return _at_least("atleast_2d", 2, arys)


@shown_call()
def atleast_3d(*arys: Any) -> Any:
    """Each of the arrays `arys` with at least three dims: shapes (), (n,), (n, m) become (1, 1, 1), (1, n, 1), (n, m,
    1).

    >>> jnp.atleast_3d(jnp.arange(2)).shape
    (1, 2, 1)
    """
    return _at_least("atleast_3d", 3, arys)


def _at_least(name: str, rank: int, arys: Sequence[Any]) -> Any:
    xs = [with_rank(checked(name, a, i), rank) for i, a in enumerate(arys)]
    return xs[0] if len(xs) == 1 else xs


def with_rank(x: Array, rank: int) -> Array:
    """`x` with at least `rank` dims, for `atleast_1d`, `atleast_2d` and `atleast_3d`."""
    return lax.expand_dims(x, new_dims(x.ndim, rank)) if x.ndim < rank else x


def new_dims(ndim: int, rank: int) -> Sequence[int]:
    """Where an array of `ndim` dims gets new ones, to have at least `rank`."""
    if rank == 3:
        return {0: (0, 1, 2), 1: (0, 2), 2: (2,)}.get(ndim, ())
    return range(max(rank - ndim, 0))


# -- broadcasts ------------------------------------------------------------------------------------------------


def broadcast_shapes(*shapes: Any) -> tuple[int, ...]:
    """The shape to which `shapes` broadcast together. ValueError if they do not.

    >>> jnp.broadcast_shapes((3, 1), (4,))
    (3, 4)
    """
    return lax.broadcast_shapes(*shapes)


def broadcast_to(array: Any, shape: Any, *, out_sharding: Any = None) -> Array:
    """`array` repeated to `shape`: its dims line up with the last ones, and those of size 1 grow. ValueError otherwise.

    `out_sharding`: how the result is split over Explicit axes. ValueError if it splits a dim otherwise that `array` splits.

    >>> jnp.broadcast_to(jnp.array([1, 2]), (2, 2))
    Array([[1, 2],
           [1, 2]], dtype=int32)
    """
    x = value("broadcast_to", array)
    sizes = shape_tuple(shape, "broadcast_to")
    if out_sharding is None:
        return broadcast_to_shape(x, sizes)
    if lax.broadcast_shapes(x.shape, sizes) != sizes:
        raise ValueError(f"Incompatible shapes for broadcasting: {x.shape} and requested shape {sizes}.")
    wanted_sharding = resolve_out_sharding(out_sharding, "broadcast_to", len(sizes))
    assert wanted_sharding is not None
    require_kept_axes("broadcast_to", x, sharding_spec(wanted_sharding, len(sizes)), out_sharding)
    return lax.broadcast_in_dim(x, sizes, range(len(sizes) - x.ndim, len(sizes)), out_sharding=wanted_sharding)


def broadcast_arrays(*args: Any) -> list[Array]:
    """All arrays `args` repeated to the one shape to which they broadcast. ValueError if there is none.

    >>> jnp.broadcast_arrays(jnp.array([1, 2]), jnp.array([[3], [4]]))
    [Array([[1, 2],
           [1, 2]], dtype=int32), Array([[3, 3],
           [4, 4]], dtype=int32)]
    """
    xs = values("broadcast_arrays", *args)
    sizes = lax.broadcast_shapes(*[x.shape for x in xs])
    return [broadcast_to_shape(x, sizes) for x in broadcast_together("broadcast_arrays", *xs)]
