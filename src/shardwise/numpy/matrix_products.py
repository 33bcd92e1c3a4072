"""Products of `shardwise.numpy.linalg`: of matrices, of vectors, and of chains of them.

In: arrays whose shapes fit. Out: their product; the functions of one name in `shardwise.numpy` take more forms of operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any

from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import align_ranks, array, canonical_axis, promote_dtypes, strong
from shardwise.numpy.einsum import einsum
from shardwise.numpy.products import last as _last
from shardwise.numpy.products import matmul as _matmul
from shardwise.numpy.products import tensordot as _tensordot
from shardwise.numpy.products import vecdot as _vecdot
from shardwise.ops.rules.precision import PrecisionLike


def matmul(x1: Any, x2: Any, /, *, precision: PrecisionLike = None, preferred_element_type: Any = None) -> Array:
    """The matrix product of `x1` and `x2`: [..., n, k] x [..., k, m] -> [..., n, m]. See `shardwise.numpy.matmul`.

    Args:
        precision: a `lax.Precision`, its name, or a pair of these; on CPUs all give the same result.
        preferred_element_type: the dtype to add products up in, and the result's.

    >>> jnp.linalg.matmul(jnp.array([[4.0, 2.0], [2.0, 3.0]]), jnp.ones((2, 1)))
    Array([[6.],
           [5.]], dtype=float32)
    """
    return _matmul(x1, x2, precision=precision, preferred_element_type=preferred_element_type)


def vecdot(
    x1: Any, x2: Any, /, *, axis: int = -1, precision: PrecisionLike = None, preferred_element_type: Any = None
) -> Array:
    """Sums of products of `x1` and `x2` along `axis`, `x1` conjugated; see `shardwise.numpy.vecdot`. `precision` and
    `preferred_element_type` as for `matmul`.

    >>> jnp.linalg.vecdot(jnp.array([1, 2]), jnp.array([3, 4]))
    Array(11, dtype=int32)
    """
    return _vecdot(x1, x2, axis=axis, precision=precision, preferred_element_type=preferred_element_type)


def tensordot(
    x1: Any,
    x2: Any,
    /,
    *,
    axes: Any = 2,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Array:
    """Sums of products of `x1` and `x2` over several dims, by `axes`; see `shardwise.numpy.tensordot`.

    Args:
        precision: a `lax.Precision`, its name, or a pair of these; on CPUs all give the same result.
        preferred_element_type: the dtype to add products up in, and the result's.
        out_sharding: how the result is split over Explicit axes: a NamedSharding or PartitionSpec.

    >>> jnp.linalg.tensordot(jnp.ones((2, 3)), jnp.ones((3, 4)), axes=1).shape
    (2, 4)
    """
    return _tensordot(
        x1, x2, axes, precision=precision, preferred_element_type=preferred_element_type, out_sharding=out_sharding
    )


def outer(x1: Any, x2: Any, /) -> Array:
    """All products of elements of the vectors `x1` and `x2`: [n], [m] -> [n, m]. ValueError for other ranks.

    >>> jnp.linalg.outer(jnp.array([1, 2]), jnp.array([10, 20]))
    Array([[10, 20],
           [20, 40]], dtype=int32)
    """
    x, y = array("jnp.linalg.outer", x1, 0), array("jnp.linalg.outer", x2, 1)
    if x.ndim != 1 or y.ndim != 1:
        raise ValueError(f"Input arrays must be one-dimensional, but they are x1.ndim={x.ndim} x2.ndim={y.ndim}")
    return _tensordot(x, y, 0)


def cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Array:
    """The cross product of the 3-vectors in `x1` and `x2` along `axis`; the other dims broadcast. ValueError for
    other sizes.

    >>> jnp.linalg.cross(jnp.array([1, 0, 0]), jnp.array([0, 1, 0]))
    Array([0, 0, 1], dtype=int32)
    """
    x, y = array("jnp.linalg.cross", x1, 0), array("jnp.linalg.cross", x2, 1)
    a, b = canonical_axis(axis, x.ndim), canonical_axis(axis, y.ndim)
    if x.shape[a] != 3 or y.shape[b] != 3:
        raise ValueError(
            "Both input arrays must be (arrays of) 3-dimensional vectors, but they have "
            f"x1.shape[axis]={x.shape[a]} and x2.shape[axis]={y.shape[b]}"
        )
    x, y = map(strong, promote_dtypes(x, y))
    x, y = align_ranks(_last(x, a), _last(y, b))  # type: ignore[assignment]
    end = x.ndim - 1

    def part(v: Any, i: int) -> Array:
        return lax.slice_in_dim(v, i % 3, i % 3 + 1, axis=end)

    parts = [
        lax.sub(lax.mul(part(x, i + 1), part(y, i + 2)), lax.mul(part(x, i + 2), part(y, i + 1))) for i in range(3)
    ]
    out = lax.concatenate(parts, end)
    to = canonical_axis(axis, out.ndim)
    order = [*range(to), end, *range(to, end)]
    return lax.transpose(out, order) if to != end else out


def multi_dot(arrays: Sequence[Any], *, precision: PrecisionLike = None) -> Array:
    """The product of the sequence `arrays` of matrices in the cheapest order; the first and the last may be vectors.
    `precision` as for `matmul`.

    Raises:
        ValueError: there are fewer than two arrays, or their shapes do not fit.

    >>> jnp.linalg.multi_dot([jnp.ones((2, 3)), jnp.ones((3, 4)), jnp.ones((4, 5))]).shape
    (2, 5)
    """
    xs = [array("jnp.linalg.multi_dot", x, i) for i, x in enumerate(arrays)]
    shapes = [x.shape for x in xs]
    if len(xs) < 2:
        raise ValueError(f"multi_dot requires at least two arrays; got len(arrays)={len(xs)}")
    if any(x.ndim != 2 for x in xs[1:-1]) or any(x.ndim not in (1, 2) for x in (xs[0], xs[-1])):
        raise ValueError(
            "multi_dot: input arrays must all be two-dimensional, except for the first and last array which may be 1 "
            f"or 2 dimensional. Got array shapes {shapes}"
        )
    if any(a.shape[-1] != b.shape[0] for a, b in pairwise(xs)):
        raise ValueError(
            "multi_dot: last dimension of each array must match first dimension of following array. Got array shapes "
            f"{shapes}"
        )
    labels = [[i, i + 1] for i in range(len(xs))]
    if xs[0].ndim == 1:
        labels[0] = labels[0][1:]
    if xs[-1].ndim == 1:
        labels[-1] = labels[-1][:1]
    return einsum(*chain.from_iterable(zip(xs, labels, strict=True)), precision=precision)
