"""Permutations, draws from a collection, and draws of categories."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.dtypes import default_dtype, issubdtype, to_inexact
from shardwise.base.shapes import Shape
from shardwise.ir import Array, Tracer, literal
from shardwise.lax import adaptive as lax
from shardwise.numpy.sorting_search import searchsorted
from shardwise.ops.elementwise.casts import convert
from shardwise.ops.random.random_bits import random_bits
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.ops.rules.dims import dim_index, shape_tuple
from shardwise.ops.shapes.transpose import transpose
from shardwise.random.arguments import check_shape, draw_in_mesh, reshard_sample, sampler_in_calls, shape_of
from shardwise.random.continuous import gumbel_mode, gumbel_of
from shardwise.random.keys import checked_key
from shardwise.random.uniform import randint_between, subkeys, unit
from shardwise.sharding import NamedSharding
from shardwise.transforms.jit.shown_calls import shown_call

__all__ = ["categorical", "choice", "permutation"]


@shown_call("axis", name="_shuffle")
def _shuffle(key: Array, x: Array, axis: int) -> Array:
    """`x` sorted by random bits along `axis`, often enough that ties of the bits do not matter."""
    rounds = math.ceil(3 * np.log(max(1, x.size)) / np.log(2**32 - 1))
    for _ in range(rounds):
        key, subkey = subkeys(key, 2)
        _, x = lax.sort_key_val(random_bits(subkey, 32, x.shape), x, axis)
    return x


def rows_at(x: Array, indices: Array, axis: int) -> Array:
    """`x` at an index array along one dim; the dims of the indices replace it."""
    batch = indices.ndim
    offsets = (*range(axis), *range(axis + batch, x.ndim - 1 + batch))
    numbers = lax.GatherDimensionNumbers(offset_dims=offsets, collapsed_slice_dims=(axis,), start_index_map=(axis,))
    sizes = (*x.shape[:axis], min(1, x.shape[axis]), *x.shape[axis + 1 :])
    return lax.gather(x, lax.expand_dims(indices, (batch,)), numbers, sizes, mode="promise_in_bounds")


def _count(x: Any, name: str) -> int:
    if isinstance(x, Tracer):
        raise x.concretization_error(f"the number of elements in random.{name}()")
    return operator.index(x if isinstance(x, int) else np.asarray(x).item())


@sampler_in_calls
def _permuted_range(key: Array, *, n: int, sharding: NamedSharding | None) -> Array:
    return reshard_sample(_shuffle(key, lax.iota(default_dtype("i"), n), 0), sharding)


@sampler_in_calls
def _permutation(key: Array, x: Array, *, axis: int, independent: bool, sharding: NamedSharding | None) -> Array:
    if independent or x.ndim == 1:
        return reshard_sample(_shuffle(key, x, axis), sharding)
    order = _shuffle(key, lax.iota(default_dtype("i"), x.shape[axis]), 0)
    return reshard_sample(rows_at(x, order, axis), sharding)


def permutation(key: Any, x: Any, axis: int = 0, independent: bool = False, *, out_sharding: Any = None) -> Array:
    """`x` shuffled along `axis`, or the numbers below `x` if it is an integer.

    Args:
        x: an array, or a concrete integer.
        axis: the dim along which elements are permuted.
        independent: shuffle every vector along `axis` on its own, instead of whole slices.
        out_sharding: how the result is split over Explicit axes.

    Raises:
        TypeError: `x` is a scalar but no integer.
        ValueError: `axis` is out of range.

    >>> jax.random.permutation(jax.random.key(0), 5)
    Array([0, 1, 4, 3, 2], dtype=int32)
    """
    own_key = checked_key("permutation", key)
    value = as_value(x)
    axis = dim_index(axis, value.ndim or 1, "permutation")
    if value.ndim:
        return draw_in_mesh(
            "permutation",
            out_sharding,
            value.ndim,
            lambda sharding: _permutation(own_key, value, axis=axis, independent=independent, sharding=sharding),
        )
    if not issubdtype(value.dtype, np.integer):
        raise TypeError(f"permutation: x must be an integer or at least 1-dimensional, got {x!r}.")
    n = _count(x, "permutation")
    return draw_in_mesh(
        "permutation", out_sharding, 1, lambda sharding: _permuted_range(own_key, n=n, sharding=sharding)
    )


# -- choice -----------------------------------------------------------------------------------------------------------------------------


@sampler_in_calls
def _choice(
    key: Array, *arrays: Array, n: int, shape: Shape, replace: bool, weighted: bool, axis: int, mode: str
) -> Array:
    a = arrays[0] if len(arrays) > weighted else None
    draws = math.prod(shape)
    if not weighted and not replace:
        items = lax.iota(default_dtype("i"), n) if a is None else a
        if items.ndim == 1:
            shuffled_items = _shuffle(key, items, axis)
        else:
            shuffled_items = rows_at(items, _shuffle(key, lax.iota(default_dtype("i"), n), 0), axis)
        return lax.reshape(
            lax.slice_in_dim(shuffled_items, 0, draws, axis=axis), _replace_dim(items.shape, axis, shape)
        )
    index = default_dtype("i")
    indices = (
        _choose_weighted(key, arrays[-1], shape, replace, mode)
        if weighted
        else randint_between(key, 0, n, shape, index)
    )
    return indices if a is None else rows_at(a, indices, axis)


def _replace_dim(shape: Shape, axis: int, new: Shape) -> Shape:
    return (*shape[:axis], *new, *shape[axis + 1 :])


def _choose_weighted(key: Array, p: Array, shape: Shape, replace: bool, mode: str) -> Array:
    """Indices of `p` drawn with these probabilities."""
    index = default_dtype("i")
    if not replace:  # the largest of the perturbed logarithms are a sample without replacement
        perturbed_logits = lax.add(gumbel_of(key, p.shape, p.dtype, mode), lax.log(p))
        return lax.reshape(convert(lax.top_k(perturbed_logits, math.prod(shape))[1], index), shape)

    sums = lax.cumsum(p, 0)
    total = lax.index_in_dim(sums, p.shape[0] - 1, 0, keepdims=False)
    position = lax.mul(total, lax.sub(literal(1.0, p.dtype), unit(key, shape, p.dtype)))
    return as_array(convert(searchsorted(sums, position), index))


def choice(
    key: Any, a: Any, shape: Any = (), replace: bool = True, p: Any = None, axis: int = 0, mode: str | None = None
) -> Array:
    """Elements of `a` (or of the numbers below `a`, if it is an integer) drawn at random.

    Args:
        a: an array, or a concrete integer.
        shape: the shape of the draws; in the result it takes the place of dim `axis` of `a`.
        replace: whether an element may be drawn again.
        p: the probability of each element, 1-d; all equal by default.
        axis: the dim of `a` along which elements are drawn.
        mode: how `gumbel` resolves small probabilities where `p` is given and `replace` is False.

    Raises:
        TypeError: `shape` is no sequence.
        ValueError: more draws than elements without replacement, nothing to draw from, or a `p` of another size.

    >>> jax.random.choice(jax.random.key(0), jnp.array([10, 20, 30]), (2,), replace=False)
    Array([10, 20], dtype=int32)
    """
    own_key = checked_key("choice", key)
    if not isinstance(shape, Sequence):
        raise TypeError(f"choice: shape must be a sequence of ints, got {shape!r}.")
    full_shape = shape_tuple(shape, "choice")
    value = as_value(a)
    axis = dim_index(axis, value.ndim, "choice") if value.ndim else 0
    n = value.shape[axis] if value.ndim else _count(a, "choice")
    draws = math.prod(full_shape)
    if not draws:
        return lax.full(full_shape, 0, value.dtype)
    if n <= 0:
        raise ValueError(
            f"choice: there is nothing to draw from: a has {n} elements. It must have more than 0 unless no samples "
            "are taken."
        )
    if not replace and draws > n:
        raise ValueError(f"Cannot take a larger sample (size {draws}) than population (size {n}) when 'replace=False'.")
    arrays = [as_array(a)] if value.ndim else []
    if p is not None:
        weights = as_array(p)
        if weights.shape != (n,):
            raise ValueError(
                f"choice: p must be None or a 1D vector with the same size as a.shape[axis]. p has shape "
                f"{weights.shape} and a.shape[axis] is {n}."
            )
        arrays.append(as_array(convert(weights, to_inexact(weights.dtype))))
    return _choice(
        own_key,
        *arrays,
        n=n,
        shape=full_shape,
        replace=bool(replace),
        weighted=p is not None,
        axis=axis,
        mode=gumbel_mode(mode, "choice"),
    )


# -- categories -------------------------------------------------------------------------------------------------------------------------


@sampler_in_calls
def _categorical(
    key: Array, logits: Array, *, shape: Shape, axis: int, replace: bool, mode: str, sharding: NamedSharding | None
) -> Array:
    index = default_dtype("i")
    batch = logits.shape[:axis] + logits.shape[axis + 1 :]
    prefix = shape[: len(shape) - len(batch)]
    if replace:
        kept_shape = shape[len(prefix) :]
        full = (*prefix, *kept_shape[:axis], logits.shape[axis], *kept_shape[axis:])
        noise = gumbel_of(key, full, logits.dtype, mode)
        total = lax.add(noise, lax.expand_dims(logits, tuple(range(len(prefix)))))
        return reshard_sample(lax.argmax(total, len(prefix) + axis, index), sharding)
    draws = math.prod(prefix)
    if draws > logits.shape[axis]:
        raise ValueError(
            f"Number of samples without replacement ({draws}) cannot exceed number of categories of categorical "
            f"({logits.shape[axis]})."
        )
    noisy = lax.add(logits, gumbel_of(key, logits.shape, logits.dtype, mode))
    last = transpose(noisy, (*(d for d in range(noisy.ndim) if d != axis), axis))
    _, indices = lax.top_k(last, draws)
    front = transpose(indices, (indices.ndim - 1, *range(indices.ndim - 1)))
    return reshard_sample(lax.reshape(front, shape), sharding)


def categorical(
    key: Any,
    logits: Any,
    axis: int = -1,
    shape: Any = None,
    replace: bool = True,
    mode: str | None = None,
    *,
    out_sharding: Any = None,
) -> Array:
    """Categories drawn with probabilities ``softmax(logits, axis)``: int[*shape].

    Args:
        logits: logarithms of the probabilities, up to a constant.
        axis: the dim of `logits` that holds the categories.
        shape: the result's; it ends in a shape to which the other dims of `logits` broadcast, which is the default.
        replace: whether a category may be drawn again by the dims of `shape` in front of those.
        mode: as in `gumbel`.
        out_sharding: how the result is split over Explicit axes.

    Raises:
        ValueError: `shape` does not fit, or more draws than categories without replacement.

    >>> jax.random.categorical(jax.random.key(0), jnp.log(jnp.array([0.1, 0.9])), shape=(4,))
    Array([1, 1, 1, 1], dtype=int32)
    """
    own_key, chosen = checked_key("categorical", key), gumbel_mode(mode, "categorical")
    value = as_array(logits)
    axis = dim_index(axis, value.ndim, "categorical")
    batch = shape_of(value)[:axis] + shape_of(value)[axis + 1 :]
    wanted_shape = batch if shape is None else shape_tuple(shape, "categorical")
    check_shape("categorical", wanted_shape, batch)
    floats = convert(value, to_inexact(value.dtype))
    return draw_in_mesh(
        "categorical",
        out_sharding,
        len(wanted_shape),
        lambda sharding: _categorical(
            own_key, floats, shape=wanted_shape, axis=axis, replace=bool(replace), mode=chosen, sharding=sharding
        ),
    )
