"""Products of vectors, matrices and stacks of them, in terms of `dot_general`."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from shardwise.base.dtypes import check_requested, lattice_result_type
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import (
    array,
    canonical_axis,
    convert,
    is_complex,
    no_out,
    promote_dtypes,
    report_rank_promotion,
)
from shardwise.ops.rules.precision import PrecisionLike
from shardwise.transforms.jit.composed import composed_function
from shardwise.transforms.jit.shown_calls import shown_call

__all__ = ["dot", "inner", "kron", "matmul", "matvec", "outer", "tensordot", "vdot", "vecdot", "vecmat"]

DotDims = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]


def _result(name: str, preferred: Any, *xs: Array) -> tuple[Any, bool]:
    """dtype and weakness of a product: the user's preference, else the operands' common type."""
    if preferred is None:
        return lattice_result_type(*xs)
    return check_requested(preferred, name), False


def _product(
    a: Array, b: Array, dims: DotDims, precision: PrecisionLike, result: tuple[Any, bool], out_sharding: Any = None
) -> Array:
    dtype, weak = result
    out = lax.dot_general(a, b, dims, precision=precision, preferred_element_type=dtype, out_sharding=out_sharding)
    return convert(out, dtype, weak)  # type: ignore[return-value]


@composed_function(2)
def dot(
    a: Any, b: Any, *, precision: PrecisionLike = None, preferred_element_type: Any = None, out_sharding: Any = None
) -> Array:
    """The product of vectors or matrices: last dim of `a` by the last but one of `b` (its only one if `b` is a vector).

    Scalars multiply. TypeError unless the paired dims have one size.

    Args:
        precision: a `lax.Precision`, its name, or a pair of these; on CPUs all give the same result.
        preferred_element_type: the dtype to add products up in, and the result's.
        out_sharding: how the result is split over Explicit axes: a NamedSharding or PartitionSpec.

    >>> jnp.dot(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 1]))
    Array([3, 7], dtype=int32)
    """
    a, b = array("dot", a, 0), array("dot", b, 1)
    contracted_dims: Any = ((), ())
    if a.ndim and b.ndim:
        contracted_dims = ((a.ndim - 1,), (max(b.ndim - 2, 0),))
    return _product(
        a, b, (contracted_dims, ((), ())), precision, _result("dot", preferred_element_type, a, b), out_sharding
    )


@composed_function(2)
def matmul(
    a: Any, b: Any, *, precision: PrecisionLike = None, preferred_element_type: Any = None, out_sharding: Any = None
) -> Array:
    """The matrix product of `a` and `b`: [..., n, k] x [..., k, m] -> [..., n, m], batch dims broadcasting; vectors
    are rows or columns.

    Raises ValueError for scalars and for batch dims that do not broadcast, TypeError if the contracted sizes differ.
    `precision`, `preferred_element_type` and `out_sharding` as for `dot`.

    >>> jnp.matmul(jnp.array([[1, 2], [3, 4]]), jnp.array([[1, 2], [3, 4]]))
    Array([[ 7, 10],
           [15, 22]], dtype=int32)
    """
    a, b = array("matmul", a, 0), array("matmul", b, 1)
    for i, x in enumerate((a, b)):
        if x.ndim < 1:
            raise ValueError(f"matmul input operand {i} must have ndim at least 1, but it is a scalar. Use multiply.")
    result = _result("matmul", preferred_element_type, a, b)
    a_matrix, b_matrix = a.ndim > 1, b.ndim > 1
    a_batch, b_batch = max(a.ndim - 2, 0), max(b.ndim - 2, 0)
    count = max(a_batch, b_batch)
    # Per batch dim of the result: does it run on both sides (batch), or on one (a free dim of that side)?
    both: list[int] = []
    a_only: list[int] = []
    b_only: list[int] = []
    a_dims: dict[int, int] = {}
    b_dims: dict[int, int] = {}
    a_drop: list[int] = []
    b_drop: list[int] = []
    for i in range(count):
        d, e = i - (count - a_batch), i - (count - b_batch)
        a_size, a_spec = (a.shape[d], a.aval.spec[d]) if d >= 0 else (None, ())
        b_size, b_spec = (b.shape[e], b.aval.spec[e]) if e >= 0 else (None, ())
        a_one, b_one = a_size == 1 and not a_spec, b_size == 1 and not b_spec
        if a_size is None or (a_one and b_size is not None and not b_one):
            b_only.append(i)
            b_dims[i] = e
            if a_size is not None:
                a_drop.append(d)
        elif b_size is None or (b_one and not a_one):
            a_only.append(i)
            a_dims[i] = d
            if b_size is not None:
                b_drop.append(e)
        elif a_size == b_size and a_spec == b_spec:
            both.append(i)
            a_dims[i], b_dims[i] = d, e
        else:
            raise ValueError(
                f"matmul: batch dims of {a.aval.str_short()} and {b.aval.str_short()} do not fit: they must be "
                "equal (and split alike) or 1."
            )
    x = lax.squeeze(a, a_drop) if a_drop else a
    y = lax.squeeze(b, b_drop) if b_drop else b
    place_of = lambda d, dropped: d - sum(e < d for e in dropped)  # noqa: E731
    batch = ([place_of(a_dims[i], a_drop) for i in both], [place_of(b_dims[i], b_drop) for i in both])
    contracted_dims = ((x.ndim - 1,), (y.ndim - 1 - b_matrix,))
    out = _product(x, y, (contracted_dims, batch), precision, result, out_sharding)
    # dot_general gives batch dims, free dims of a (its rows last), free dims of b (its columns last).
    order = [*both, *a_only, *([count] if a_matrix else []), *b_only, *([count + 1] if b_matrix else [])]
    perm = tuple(sorted(range(len(order)), key=order.__getitem__))
    return lax.transpose(out, perm) if perm != tuple(range(len(perm))) else out


@composed_function(2)
def vdot(a: Any, b: Any, *, precision: PrecisionLike = None, preferred_element_type: Any = None) -> Array:
    """The sum of products of all elements of `a` and `b`, those of `a` conjugated; TypeError unless the sizes agree.
    `precision` and `preferred_element_type` as for `dot`.

    >>> jnp.vdot(jnp.array([1j]), jnp.array([2j]))
    Array(2.+0.j, dtype=complex64)
    """
    a, b = array("vdot", a, 0), array("vdot", b, 1)
    if is_complex(a.dtype):
        a = lax.conj(a)
    flat = lambda x: lax.reshape(x, (x.size,)) if x.ndim != 1 else x  # noqa: E731
    return dot(flat(a), flat(b), precision=precision, preferred_element_type=preferred_element_type)


@composed_function(2)
def vecdot(
    x1: Any, x2: Any, /, *, axis: int = -1, precision: PrecisionLike = None, preferred_element_type: Any = None
) -> Array:
    """Sums of products of `x1` and `x2` along `axis`, `x1` conjugated; the other dims broadcast.

    ValueError if the sizes along `axis` differ. `precision` and `preferred_element_type` as for `dot`.

    >>> jnp.vecdot(jnp.array([[1, 2], [3, 4]]), jnp.array([[1, 2], [3, 4]]))
    Array([ 5, 25], dtype=int32)
    """
    a, b = array("jnp.vecdot", x1, 0), array("jnp.vecdot", x2, 1)
    a_axis, b_axis = canonical_axis(axis, a.ndim), canonical_axis(axis, b.ndim)
    if a.shape[a_axis] != b.shape[b_axis]:
        raise ValueError(f"vecdot: axes must match; got shapes {a.shape} and {b.shape} with {axis=!r}")
    if is_complex(a.dtype):
        a = lax.conj(a)
    a, b = last(a, a_axis), last(b, b_axis)
    _check_loops("vecdot", a, 1, b, 1)
    row, column = lax.expand_dims(a, (a.ndim - 1,)), lax.expand_dims(b, (b.ndim,))
    out = matmul(row, column, precision=precision, preferred_element_type=preferred_element_type)
    return lax.squeeze(out, (out.ndim - 2, out.ndim - 1))


def last(x: Array, axis: int) -> Array:
    """`x` with one dim moved to the end."""
    return x if axis == x.ndim - 1 else lax.transpose(x, (*(d for d in range(x.ndim) if d != axis), axis))


@shown_call()
def matvec(x1: Any, x2: Any, /) -> Array:
    """The matrices `x1` times the vectors `x2`: [..., n, m] x [..., m] -> [..., n], batch dims broadcasting;
    ValueError if sizes differ.

    >>> jnp.matvec(jnp.array([[1, 2], [3, 4]]), jnp.array([1, 1]))
    Array([3, 7], dtype=int32)
    """
    a, b = array("matvec", x1, 0), array("matvec", x2, 1)
    _check_core("matvec", a, 2, b, 1, a.shape[-1:] == b.shape[-1:])
    _check_loops("matvec", a, 2, b, 1)
    out = matmul(a, lax.expand_dims(b, (b.ndim,)))
    return lax.squeeze(out, (out.ndim - 1,))


@shown_call()
def vecmat(x1: Any, x2: Any, /) -> Array:
    """The conjugated vectors `x1` times the matrices `x2`: [..., n] x [..., n, m] -> [..., m], batch dims
    broadcasting.

    >>> jnp.vecmat(jnp.array([1, 1]), jnp.array([[1, 2], [3, 4]]))
    Array([4, 6], dtype=int32)
    """
    a, b = array("vecmat", x1, 0), array("vecmat", x2, 1)
    _check_core("vecmat", a, 1, b, 2, a.shape[-1:] == b.shape[-2:-1])
    _check_loops("vecmat", a, 1, b, 2)
    if is_complex(a.dtype):
        a = lax.conj(a)
    out = matmul(lax.expand_dims(a, (a.ndim - 1,)), b)
    return lax.squeeze(out, (out.ndim - 2,))


def _check_core(name: str, a: Array, a_rank: int, b: Array, b_rank: int, fits: bool) -> None:
    if a.ndim < a_rank or b.ndim < b_rank or not fits:
        raise ValueError(
            f"{name} takes operands with at least {a_rank} and {b_rank} dims whose core sizes agree, got shapes "
            f"{a.shape} and {b.shape}."
        )


def _check_loops(name: str, a: Array, a_rank: int, b: Array, b_rank: int) -> None:
    if a.ndim - a_rank != b.ndim - b_rank:
        report_rank_promotion(name, [a.shape, b.shape])


@composed_function(2)
def tensordot(
    a: Any,
    b: Any,
    axes: int | Sequence[int] | Sequence[Sequence[int]] = 2,
    *,
    precision: PrecisionLike = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Array:
    """Sum products over the last `axes` dims of `a` and the first of `b`, or over pairs of dims ``(a_axes, b_axes)``.

    TypeError if the axes do not pair up or their sizes differ. `precision`, `preferred_element_type` and
    `out_sharding` as for `dot`.

    >>> jnp.tensordot(jnp.ones((2, 3, 4)), jnp.ones((3, 4, 5))).shape
    (2, 5)
    """
    a, b = array("tensordot", a, 0), array("tensordot", b, 1)
    if not isinstance(axes, tuple | list):
        try:
            n = operator.index(axes)  # type: ignore[arg-type]
        except TypeError:
            raise TypeError(
                f"tensordot axes must be an int, a pair of ints, or a pair of lists of ints, got {axes!r}."
            ) from None
        if n > min(a.ndim, b.ndim):
            raise TypeError(
                f"tensordot over {n} axes exceeds the ranks of the operands, of shapes {a.shape} and {b.shape}."
            )
        contracted_dims = (tuple(range(a.ndim - n, a.ndim)), tuple(range(n)))
    else:
        contracted_dims = _axis_pairs(axes, a.ndim, b.ndim)
    result = _result("tensordot", preferred_element_type, a, b)
    return _product(a, b, (contracted_dims, ((), ())), precision, result, out_sharding)


def _axis_pairs(axes: Any, a_ndim: int, b_ndim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if len(axes) != 2:
        raise TypeError(f"tensordot axes must be an int, a pair of ints, or a pair of lists of ints, got {axes!r}.")
    lists = [isinstance(x, tuple | list) for x in axes]
    if lists == [False, False]:
        axes = [(x,) for x in axes]
    elif lists != [True, True]:
        raise TypeError(f"tensordot axes must be both ints or both lists of ints, got {axes!r}.")
    if len(axes[0]) != len(axes[1]):
        raise TypeError(
            f"tensordot requires axes lists to have equal length, for it pairs the axes of both operands; got {axes!r}."
        )
    return tuple(canonical_axis(x, a_ndim) for x in axes[0]), tuple(canonical_axis(x, b_ndim) for x in axes[1])


@composed_function(2)
def inner(a: Any, b: Any, *, precision: PrecisionLike = None, preferred_element_type: Any = None) -> Array:
    """Sums of products over the last dims of `a` and `b`: [..., n] x [..., n]; scalars multiply. `precision` and
    `preferred_element_type` as for `dot`.

    >>> jnp.inner(jnp.array([1, 2]), jnp.array([3, 4]))
    Array(11, dtype=int32)
    """
    a, b = array("inner", a, 0), array("inner", b, 1)
    if a.ndim and b.ndim:
        return tensordot(a, b, (-1, -1), precision=precision, preferred_element_type=preferred_element_type)
    if preferred_element_type is None:
        return _times(*promote_dtypes(a, b))
    dtype, _ = _result("inner", preferred_element_type, a, b)
    return _times(convert(a, dtype), convert(b, dtype))


def _times(x: Any, y: Any) -> Array:
    """Elementwise products; of bools, whether both are true."""
    return lax.bitwise_and(x, y) if x.dtype == bool else lax.mul(x, y)


@composed_function(2)
def outer(a: Any, b: Any, out: None = None) -> Array:
    """All products of an element of `a` and one of `b`: [n], [m] -> [n, m], operands flattened.

    Args:
        out: only None, as arrays are immutable; NotImplementedError otherwise.

    >>> jnp.outer(jnp.array([1, 2]), jnp.array([10, 20]))
    Array([[10, 20],
           [20, 40]], dtype=int32)
    """
    no_out("jnp.outer", out)
    x, y = promote_dtypes(array("outer", a, 0), array("outer", b, 1))
    column, row = (
        lax.expand_dims(v if v.ndim == 1 else lax.reshape(v, (v.aval.size,)), (d,)) for v, d in ((x, 1), (y, 0))
    )
    return _times(column, row)


@shown_call()
def kron(a: Any, b: Any) -> Array:
    """The Kronecker product: every element of `a` times the whole of `b`; ranks are padded with 1 in front.

    >>> jnp.kron(jnp.array([1, 10]), jnp.array([1, 2]))
    Array([ 1,  2, 10, 20], dtype=int32)
    """
    x, y = promote_dtypes(array("kron", a, 0), array("kron", b, 1))
    rank = max(x.ndim, y.ndim)
    x, y = (lax.expand_dims(v, range(rank - v.ndim)) for v in (x, y))
    spread = _times(lax.expand_dims(x, range(1, 2 * rank, 2)), lax.expand_dims(y, range(0, 2 * rank, 2)))
    return lax.reshape(spread, tuple(m * n for m, n in zip(x.shape, y.shape, strict=True)))
