"""Operands of the strict layer: scalars adapt to arrays, then dtypes and shapes must agree.

Comes in: user arguments of `lax` functions, and the types of op operands. Goes out: values for `bind`, result types, or a
TypeError that names the mismatch.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base.caches import Bounded, at_clear
from shardwise.base.config import config
from shardwise.base.dtypes import KeyDtype, check_requested, float0, iinfo, isdtype
from shardwise.base.errors import about
from shardwise.base.shapes import Ndarray, Shape
from shardwise.base.small_integers import by_bytes, is_below_byte
from shardwise.ir import Array, Emit, Literal, Op, ShapedArray, define_op, literal
from shardwise.ops.rules.convert import as_value
from shardwise.ops.rules.derivative import Pushes, along, back
from shardwise.runtime.env import Env

Value = Array | Literal
DTypeMap = Callable[[Any], Any]

KIND_NAMES = {"b": "bool", "i": "signed integer", "u": "unsigned integer", "f": "floating", "c": "complex floating",
              "k": "PRNG key", "0": "float0"}  # fmt: skip
_PYTHON_KINDS: dict[type, str] = {bool: "b", int: "iu", float: "f", complex: "c"}


@functools.cache
def dtype_kind(dtype: Any) -> str:
    """The letter of `KIND_NAMES` for the kind of `dtype`."""
    if isinstance(dtype, KeyDtype):
        return "k"
    if dtype == float0:
        return "0"
    for letter, category in (("f", "real floating"), ("i", "signed integer"), ("u", "unsigned integer")):
        if isdtype(dtype, category):
            return letter
    return dtype.kind


# -- values ----------------------------------------------------------------------------------------------------------


def operand(name: str, x: Any, position: int = 0) -> Value:
    """`x` as a value for `bind`; TypeError that names the function and the position if it is neither array nor scalar."""
    if isinstance(x, Array):
        return x
    if x.__class__ in _PYTHON_KINDS:
        return scalar_operand(x)
    try:
        return as_value(x)
    except TypeError as error:
        raise about(
            "argument-type",
            TypeError(
                f"lax.{name}: argument {position} is {type(x).__name__}, not an array or a scalar ({x!r}). "
                "Wrap lists with jnp.asarray first."
            ),
        ) from error


def operands(name: str, *xs: Any) -> Sequence[Value]:
    """`xs` as values for `bind`; a Python scalar adopts the dtype of the other operands if it is of the same kind."""
    if len(xs) == 2 and isinstance(xs[0], Array) and xs[1].__class__ in _PYTHON_KINDS:  # the common case
        return xs[0], scalar_operand(xs[1], xs[0].dtype)
    for x in xs:
        if not isinstance(x, Array):
            return _adapt_operands(name, xs)
    return xs


def _adapt_operands(name: str, xs: tuple[Any, ...]) -> list[Value]:
    values: list[Any] = [x if type(x) in _PYTHON_KINDS else operand(name, x, i) for i, x in enumerate(xs)]
    like = next((v.dtype for v in values if type(v) not in _PYTHON_KINDS), None)
    return [v if isinstance(v, (Array, Literal)) else scalar_operand(v, like) for v in values]


def scalar_operand(x: bool | int | float | complex, like: Any = None) -> Literal:
    """A Python scalar as a Literal: of dtype `like` if that has the same kind and can hold it, else of its default dtype."""
    if not x:
        return _scalar_literal(x, like)  # 0.0 and -0.0 would share a key
    key = (x.__class__, x, like if like is not None else _x64())
    scalar = _literals.get(key)
    if scalar is None:
        scalar = _literals[key] = _scalar_literal(x, like)
    return scalar


_x64 = config.setting("jax_enable_x64").get
_literals: Bounded[Any, Literal] = Bounded(1024)
at_clear(_literals.clear)


def _scalar_literal(x: bool | int | float | complex, like: Any) -> Literal:
    if like is not None and dtype_kind(like) in _PYTHON_KINDS[type(x)]:
        if type(x) is not int:
            return literal(x, like, weak_type=type(x) is not bool)
        limits = int_limits(like)
        if limits[0] <= x <= limits[1]:
            return literal(x, like, weak_type=True)
    return literal(x)


@functools.cache
def int_limits(dtype: Any) -> tuple[int, int]:
    """The minimum and the maximum of an integer dtype."""
    info = iinfo(dtype)
    return int(info.min), int(info.max)


_SETTLED_DTYPES: dict[Any, Any] = {}


def requested_dtype(dtype: Any, name: str) -> Any:
    """`check_requested`, cached for dtypes that no setting changes: those with at most 32 bits per part."""
    try:
        return _SETTLED_DTYPES[dtype]
    except (KeyError, TypeError):
        resolved_dtype = check_requested(dtype, name)
        small = resolved_dtype.itemsize <= (8 if dtype_kind(resolved_dtype) == "c" else 4)
        is_named = isinstance(dtype, (np.dtype, str)) or (isinstance(dtype, type) and issubclass(dtype, np.generic))
        if small and is_named and np.dtype(dtype) == resolved_dtype:
            _SETTLED_DTYPES[dtype] = resolved_dtype
        return resolved_dtype


# -- type rules ------------------------------------------------------------------------------------------------------


def check_kind(name: str, t: ShapedArray, accepts: str, position: int | None = None) -> None:
    """TypeError unless the dtype's kind is among the letters of `accepts`."""
    if dtype_kind(t.dtype) not in accepts:
        where = "" if position is None else f" at position {position}"
        expected_kinds = ", ".join(KIND_NAMES[k] for k in accepts)
        raise about(
            "dtypes",
            TypeError(
                f"{name} does not accept dtype {t.dtype.name}{where}; expected one of these kinds: {expected_kinds}. "
                "Cast with lax.convert_element_type."
            ),
        )


def check_same_dtype(name: str, types: Sequence[ShapedArray]) -> None:
    """TypeError unless all operands have the same dtype."""
    first = types[0].dtype
    for t in types:
        if t.dtype != first:
            raise about(
                "dtypes",
                TypeError(
                    f"lax.{name} requires arguments to have the same dtypes, got {', '.join(t.dtype.name for t in types)}. "
                    "Cast them, or use the shardwise.numpy function, which promotes."
                ),
            )


def broadcast_shape(name: str, shapes: Sequence[Shape]) -> Shape:
    """The shape of an elementwise result: except for operands of rank 0, ranks agree and dims are equal or 1."""
    array_shapes = [s for s in shapes if s]
    if not array_shapes:
        return ()
    first = array_shapes[0]
    if all(s == first for s in array_shapes):
        return first
    ranks = sorted({len(s) for s in array_shapes})
    if len(ranks) > 1:
        raise TypeError(
            f"{name} takes arrays of the same number of dimensions (or scalars), got shapes "
            f"{', '.join(map(str, shapes))}. Use lax.broadcast_in_dim or the shardwise.numpy function."
        )
    out = list[int]()
    for sizes in zip(*array_shapes, strict=True):
        wide = {n for n in sizes if n != 1}
        if len(wide) > 1:
            raise TypeError(
                f"{name} got incompatible shapes for broadcasting: {', '.join(map(str, shapes))}. "
                "Dims must be equal or 1."
            )
        out.append(wide.pop() if wide else 1)
    return tuple(out)


def elementwise_type(name: str, *accepts: str, result: DTypeMap | None = None) -> Callable[..., ShapedArray]:
    """The type rule of an elementwise op whose operands share one dtype.

    `accepts` gives the accepted kinds per operand; `result` maps the operands' dtype to the result's. The result is weakly
    typed if all operands are.
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
            all(t.weak_type for t in types),
        )

    return rule


# -- ops -------------------------------------------------------------------------------------------------------------


def align_blocks(blocks: Sequence[Ndarray]) -> Sequence[Ndarray]:
    """Blocks that broadcast by NumPy's rules: blocks of rank-0 values receive size-1 dims after their loop dims."""
    ndim = max(b.ndim for b in blocks)
    if all(b.ndim == ndim for b in blocks):
        return blocks
    return [b if b.ndim == ndim else b.reshape(b.shape + (1,) * (ndim - b.ndim)) for b in blocks]


@functools.cache
def own_ufunc(name: str, emit: Emit, *dtypes: Any, result: str | None = None) -> Any:
    """A ufunc made of `emit`, for operands of one type, which `_OWN` lists; None for others, and where nothing can be compiled.

    Few elements, many, and those of small programs then have the same roundings.
    """
    kind = dtypes[0].name
    if any(d != dtypes[0] for d in dtypes) or kind not in _OWN or not _OWN[kind] & {*emit.kinds}:
        return None
    from shardwise.runtime.loops import ufunc_of_loop  # start-up time: it brings in what makes machine code

    return ufunc_of_loop(name, emit.write, len(dtypes), kind, result)


_OWN = {"float32": {*"fws"}, "float64": {*"fw"}, "complex64": {*"c"}}  # the kinds of emitters by dtype


def elementwise_op(
    name: str,
    ufunc: Callable[..., Any],
    *accepts: str,
    result: DTypeMap | None = None,
    push: Pushes | None = None,
    pull: Pushes | None = None,
    raw: bool = False,
    rounds_alike: bool | None = None,
    **fields: Any,
) -> Op:
    """Define an elementwise op without params that computes `ufunc`; `push` and `pull` define its derivative (see `derivative`).

    `raw`: it takes the bits of integers below a byte as they lie in memory, and gives such. `rounds_alike`: `ufunc` has the roundings of
    `emit`, as all but transcendental functions have. `fields` are further fields of `Op`.
    """
    choose: Callable[..., Any] | None = fields.pop("ufunc_of", None)
    emit: Emit | None = fields.get("emit")
    alike = not fields.get("transcendental", False) if rounds_alike is None else rounds_alike

    def ufunc_of(*dtypes: Any) -> Any:
        # Emitters of complex values have the roundings of `ufunc`.
        own = None if alike or emit is None or dtypes[0].kind == "c" else own_ufunc(name, emit, *dtypes)
        if own is not None:
            return own
        chosen = ufunc if choose is None else choose(*dtypes)
        return chosen if raw or not any(map(is_below_byte, dtypes)) else by_bytes(chosen)

    def kernel(env: Env, *blocks: Ndarray) -> Ndarray:
        return ufunc_of(*[b.dtype for b in blocks])(*align_blocks(blocks))

    return define_op(
        name,
        type_rule=elementwise_type(name, *accepts, result=result),
        kernel=kernel,
        ufunc=ufunc,
        ufunc_of=ufunc_of,
        jvp=None if push is None else along(name, push),
        transpose=None if pull is None else back(pull),
        **fields,
    )
