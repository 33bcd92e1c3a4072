"""Operands of the strict layer: scalars adapt to arrays, then dtypes and shapes must agree.

Comes in: what users pass to `lax` functions, and the types of op operands. Goes out: values for `bind`, result types, or a
TypeError that says what does not fit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base.dtypes import KeyDtype, float0, isdtype
from shardwise.ir import Array, Literal, Op, ShapedArray, define_op, literal
from shardwise.ops.convert import as_value
from shardwise.runtime.env import Env

Block = np.ndarray[Any, Any]
Value = Array | Literal
Shape = tuple[int, ...]
DTypeMap = Callable[[Any], Any]

KIND_NAMES = {"b": "bool", "i": "signed integer", "u": "unsigned integer", "f": "floating", "c": "complex floating",
              "k": "PRNG key", "0": "float0"}  # fmt: skip
_PYTHON_KINDS: dict[type, str] = {bool: "b", int: "iu", float: "f", complex: "c"}


@functools.cache
def dtype_kind(dtype: Any) -> str:
    """The letter of `KIND_NAMES` that says what values of `dtype` are."""
    if isinstance(dtype, KeyDtype):
        return "k"
    if dtype == float0:
        return "0"
    for letter, category in (("f", "real floating"), ("i", "signed integer"), ("u", "unsigned integer")):
        if isdtype(dtype, category):
            return letter
    return dtype.kind


# -- values ----------------------------------------------------------------------------------------------------------------


def operand(name: str, x: Any, position: int = 0) -> Value:
    """`x` as a value for `bind`; TypeError naming function and position if it is no array or scalar."""
    if isinstance(x, Array):
        return x
    try:
        return as_value(x)
    except TypeError as error:
        raise TypeError(f"lax.{name}: argument {position} is {type(x).__name__}, not an array or a scalar ({x!r}). "
                        "Wrap lists with jnp.asarray first.") from error  # fmt: skip


def operands(name: str, *xs: Any) -> Sequence[Value]:
    """`xs` as values for `bind`; a Python scalar takes the dtype of the other operands if it is of their kind."""
    for x in xs:
        if not isinstance(x, Array):
            return _adapted(name, xs)
    return xs


def _adapted(name: str, xs: tuple[Any, ...]) -> list[Value]:
    values: list[Any] = [x if type(x) in _PYTHON_KINDS else operand(name, x, i) for i, x in enumerate(xs)]
    like = next((v.dtype for v in values if type(v) not in _PYTHON_KINDS), None)
    return [v if isinstance(v, (Array, Literal)) else scalar_operand(v, like) for v in values]


def scalar_operand(x: bool | int | float | complex, like: Any) -> Literal:
    """A Python scalar as a Literal: of dtype `like` where that is of its kind and holds it, else of its default dtype."""
    if like is not None and dtype_kind(like) in _PYTHON_KINDS[type(x)]:
        if type(x) is not int:
            return literal(x, like, weak_type=type(x) is not bool)
        limits = _int_limits(like)
        if limits[0] <= x <= limits[1]:
            return literal(x, like, weak_type=True)
    return literal(x)


@functools.cache
def _int_limits(dtype: Any) -> tuple[int, int]:
    from shardwise.base.dtypes import iinfo

    info = iinfo(dtype)
    return int(info.min), int(info.max)


# -- type rules --------------------------------------------------------------------------------------------------------------


def check_kind(name: str, t: ShapedArray, accepts: str, position: int | None = None) -> None:
    """TypeError unless the dtype's kind is among the letters of `accepts`."""
    if dtype_kind(t.dtype) not in accepts:
        where = "" if position is None else f" as operand {position}"
        expected = ", ".join(KIND_NAMES[k] for k in accepts)
        raise TypeError(f"{name} does not take dtype {t.dtype.name}{where}; expected one of these kinds: {expected}. "
                        "Cast with lax.convert_element_type.")  # fmt: skip


def check_same_dtype(name: str, types: Sequence[ShapedArray]) -> None:
    """TypeError unless all operands have one dtype."""
    first = types[0].dtype
    for t in types:
        if t.dtype != first:
            raise TypeError(f"lax.{name} takes operands of one dtype, got {', '.join(t.dtype.name for t in types)}. "
                            "Cast them, or use the shardwise.numpy function, which promotes.")  # fmt: skip


def broadcast_shape(name: str, shapes: Sequence[Shape]) -> Shape:
    """The shape of an elementwise result: operands of rank 0 aside, ranks agree and dims are equal or 1."""
    ranked = [s for s in shapes if s]
    if not ranked:
        return ()
    first = ranked[0]
    if all(s == first for s in ranked):
        return first
    ranks = sorted({len(s) for s in ranked})
    if len(ranks) > 1:
        raise TypeError(f"{name} takes arrays of the same number of dimensions (or scalars), got shapes "
                        f"{', '.join(map(str, shapes))}. Use lax.broadcast_in_dim or the shardwise.numpy function.")  # fmt: skip
    out = []
    for sizes in zip(*ranked, strict=True):
        wide = {n for n in sizes if n != 1}
        if len(wide) > 1:
            raise TypeError(f"{name} got incompatible shapes for broadcasting: {', '.join(map(str, shapes))}. "
                            "Dims must be equal or 1.")  # fmt: skip
        out.append(wide.pop() if wide else 1)
    return tuple(out)


def elementwise_type(name: str, *accepts: str, result: DTypeMap | None = None, weak: bool = True) -> Callable[..., ShapedArray]:
    """The type rule of an elementwise op whose operands share one dtype.

    `accepts` gives the accepted kinds per operand, `result` the result's dtype from the operands'. The result is weakly
    typed if all operands are, never with `weak=False`.
    """
    single = len(accepts) == 1

    def rule(*types: ShapedArray, **params: Any) -> ShapedArray:
        for i, (t, kinds) in enumerate(zip(types, accepts, strict=True)):
            check_kind(name, t, kinds, None if single else i)
        if not single:
            check_same_dtype(name, types)
        dtype = types[0].dtype
        return ShapedArray(
            broadcast_shape(name, [t.shape for t in types]),
            dtype if result is None else result(dtype),
            weak and all(t.weak_type for t in types),
        )

    return rule


# -- ops ---------------------------------------------------------------------------------------------------------------------


def aligned(env: Env, blocks: Sequence[Block]) -> Sequence[Block]:
    """Blocks that broadcast as NumPy does: those of rank-0 values get size-1 dims behind their loop dims."""
    ndim = max(b.ndim for b in blocks)
    if all(b.ndim == ndim for b in blocks):
        return blocks
    return [b if b.ndim == ndim else b.reshape(b.shape + (1,) * (ndim - b.ndim)) for b in blocks]


def elementwise_op(name: str, ufunc: Callable[..., Any], *accepts: str, result: DTypeMap | None = None,
                   weak: bool = True) -> Op:  # fmt: skip
    """Define an elementwise op without params that computes `ufunc`."""
    if len(accepts) == 1:

        def kernel(env: Env, x: Block) -> Block:
            return ufunc(x)
    else:

        def kernel(env: Env, *blocks: Block) -> Block:
            return ufunc(*aligned(env, blocks))

    return define_op(name, type_rule=elementwise_type(name, *accepts, result=result, weak=weak), kernel=kernel, ufunc=ufunc)
