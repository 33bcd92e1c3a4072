"""`associative_scan`: all prefixes under an associative operation, in a logarithmic number of steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base.tree import tree_flatten, tree_unflatten
from shardwise.ops.elementwise.casts import strong
from shardwise.ops.rules.convert import as_array
from shardwise.ops.rules.dims import dim_index
from shardwise.ops.shapes import concatenate, rev
from shardwise.ops.shapes.broadcast import expand_dims
from shardwise.ops.shapes.pieces import slice_in_dim
from shardwise.ops.shapes.reshape import reshape


def associative_scan(fn: Callable[[Any, Any], Any], elems: Any, reverse: bool = False, axis: int = 0) -> Any:
    """All prefixes of `elems` along `axis` under an associative function of two trees.

    Args:
        fn: maps two trees shaped as slices of `elems` to one; ``fn(fn(a, b), c) == fn(a, fn(b, c))``. Each call has many
            elements.
        elems: a tree of arrays of one size along `axis`.
        reverse: compute suffixes instead of prefixes.
        axis: the dim to scan.

    Raises:
        TypeError: `fn` is not callable.
        ValueError: the arrays differ in size along `axis`, or have no such dim.

    >>> lax.associative_scan(jnp.maximum, jnp.array([3, 1, 4, 1, 5]))
    Array([3, 3, 4, 4, 5], dtype=int32)
    """
    if not callable(fn):
        raise TypeError("lax.associative_scan: fn argument should be callable.")
    leaves, tree = tree_flatten(elems)
    arrays = [as_array(leaf) for leaf in leaves]
    dims = [dim_index(axis, x.ndim, "associative_scan") for x in arrays]
    sizes = [x.shape[d] for x, d in zip(arrays, dims, strict=True)]
    if len(set(sizes)) > 1:
        raise ValueError(
            f"Array inputs to associative_scan must have the same first dimension. (saw: {[x.shape for x in arrays]})"
        )
    if not arrays or not sizes[0]:
        return elems

    def combine(a: Sequence[Any], b: Sequence[Any]) -> list[Any]:
        out = fn(tree_unflatten(tree, a), tree_unflatten(tree, b))
        return [as_array(x) for x in tree_flatten(out)[0]]

    def flip_all(xs: Sequence[Any]) -> list[Any]:

        return [rev(x, (d,)) for x, d in zip(xs, dims, strict=True)]

    start = flip_all(arrays) if reverse else arrays
    prefixes = _prefixes(combine, start, dims)
    return tree_unflatten(tree, flip_all(prefixes) if reverse else prefixes)


def _prefixes(combine: Callable[..., list[Any]], xs: Sequence[Any], dims: Sequence[int]) -> list[Any]:
    """Combine neighbours, recurse on the pairs, and compute the remaining prefixes from the pairs' prefixes."""
    n = xs[0].shape[dims[0]]
    if n < 2:
        return list(xs)

    def every_second(values: Sequence[Any], start: int, stop: int | None) -> list[Any]:
        return [slice_in_dim(x, start, stop, 2, d) for x, d in zip(values, dims, strict=True)]

    pairs = combine(every_second(xs, 0, n - 1), every_second(xs, 1, n))
    odd = _prefixes(combine, pairs, dims)  # the prefixes that end at positions 1, 3, ...
    before = odd if n % 2 else [slice_in_dim(x, 0, x.shape[d] - 1, 1, d) for x, d in zip(odd, dims, strict=True)]
    even = [slice_in_dim(x, 0, 1, 1, d) for x, d in zip(xs, dims, strict=True)]
    if n > 2:
        rest = combine(before, every_second(xs, 2, n))
        even = [concatenate([first, later], d) for first, later, d in zip(even, rest, dims, strict=True)]
    return [strong(_interleave(e, o, d)) for e, o, d in zip(even, odd, dims, strict=True)]


def _interleave(even: Any, odd: Any, dim: int) -> Any:
    """Interleave two arrays along `dim`, beginning with the first one, which may have one element more."""
    n = odd.shape[dim]
    extra = even.shape[dim] > n
    whole = slice_in_dim(even, 0, n, 1, dim) if extra else even
    pairs = concatenate([expand_dims(whole, (dim + 1,)), expand_dims(odd, (dim + 1,))], dim + 1)
    split = None if odd.aval.mesh is None else odd.aval.sharding  # a dim of size 1 may be split, too
    merged_pairs = reshape(pairs, (*odd.shape[:dim], 2 * n, *odd.shape[dim + 1 :]), out_sharding=split)
    return concatenate([merged_pairs, slice_in_dim(even, n, n + 1, 1, dim)], dim) if extra else merged_pairs
