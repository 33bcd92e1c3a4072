"""The first steps of this package's functions: check arguments, promote dtypes, align ranks.

In: arguments (arrays, tracers, NumPy arrays, scalars). Out: values for `lax` functions. Python scalars stay
`Literal`s and broadcasts stay implicit, so neither costs anything.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias, TypeGuard

import numpy as np

from shardwise.base import config
from shardwise.base.caches import Bounded, at_clear
from shardwise.base.dtypes import (
    SCALAR_TYPES,
    check_requested,
    default_dtype,
    is_key_dtype,
    isdtype,
    lattice_result_type,
    to_complex,
    to_inexact,
)
from shardwise.base.errors import about
from shardwise.base.tracebacks import user_stacklevel
from shardwise.engine.array import ArrayImpl
from shardwise.engine.device_put import place_created
from shardwise.ir import Array, Literal, ShapedArray, Tracer, is_concrete, literal, not_concrete, primal_of
from shardwise.ir.explicit import elementwise_error
from shardwise.lax import adaptive as lax
from shardwise.ops.elementwise.casts import convert as convert
from shardwise.ops.elementwise.casts import strong as strong
from shardwise.ops.elementwise.casts import warn_of_lost_part
from shardwise.ops.rules.convert import as_array as as_array
from shardwise.ops.rules.convert import as_value, plain_ndarray
from shardwise.sharding import AbstractMesh, Mesh, NamedSharding, PartitionSpec

Value: TypeAlias = Array | Literal
DType: TypeAlias = Any
Axis: TypeAlias = int | Sequence[int] | None

_SCALARS = (bool, int, float, complex, np.generic)
_BOOL = np.dtype(np.bool_)
_INT32 = np.dtype(np.int32)
_NUMBERS = frozenset(t.dtype for t in SCALAR_TYPES.values() if isdtype(t.dtype, "numeric"))
_INTEGERS = frozenset(d for d in _NUMBERS if isdtype(d, "integral"))
_FLOATS = _NUMBERS - _INTEGERS
_COMPLEX = frozenset(d for d in _FLOATS if isdtype(d, "complex floating"))
_REAL_FLOATING = _FLOATS - _COMPLEX
_REAL = _NUMBERS - _COMPLEX


_INT_LIMIT = 2**31
_WIDTHS = {"i": 4, "f": 4, "c": 8}  # bytes of Python numbers without `jax_enable_x64`
_x64 = config.setting("jax_enable_x64").get
_constants: Bounded[Any, Literal] = Bounded(4096)
at_clear(_constants.clear)


def number(x: int | float, t: ShapedArray) -> Literal | None:
    """A Python number as a constant next to operands of type `t`; None if promotion must decide the dtype."""
    if t.weak_type and _of_other_width(t.dtype):
        return None
    kind = x.__class__
    # Zeros have a sign that hashing does not see.
    key = (x or str(x), kind, t.dtype, t.weak_type)
    known_constant = _constants.get(key)
    if known_constant is not None:
        return known_constant
    if t.dtype not in (_FLOATS if kind is float else _NUMBERS):
        return None
    if kind is int and not -_INT_LIMIT <= x < _INT_LIMIT:  # too wide for a Python int's default dtype
        return None
    return _remember(key, literal(x, t.dtype, t.weak_type))


def plain_number(x: Any, beside: Array) -> Literal | None:
    """A Python number as a constant beside an array of real numbers that it does not promote; None for others, and for numbers that do."""
    t = beside.aval
    plain = (x.__class__ is float or x.__class__ is int) and t.dtype in _REAL
    return number(x, t) if plain else None


def _of_other_width(dtype: np.dtype[Any]) -> bool:
    """Whether a weak operand was made under the other setting of `jax_enable_x64`: Python numbers are as wide as today's."""
    width = _WIDTHS.get(dtype.kind)
    return width is not None and dtype.itemsize != (2 * width if _x64() else width)


def constant(x: Value, number: Any) -> Literal:
    """A constant of the dtype and weakness of `x`."""
    t = x.aval
    if number.__class__ is not int and number.__class__ is not float:
        return literal(number, t.dtype, t.weak_type)
    key = (number or str(number), number.__class__, t.dtype, t.weak_type)
    known_constant = _constants.get(key)
    return known_constant if known_constant is not None else _remember(key, literal(number, t.dtype, t.weak_type))


def _remember(key: Any, made: Literal) -> Literal:
    _constants[key] = made
    return made


def zero_like(x: Value) -> Literal:
    """Zero, of the dtype and weakness of `x`."""
    return constant(x, 0)


# -- arguments -------------------------------------------------------------------------------------------------


def value(name: str, x: Any, position: int = 0) -> Value:
    """`x` as a value; TypeError naming the function unless it is an array or a scalar (a list is neither)."""
    if isinstance(x, Array | Literal):
        return x
    if not isinstance(x, (np.ndarray, *_SCALARS)) and not hasattr(x, "__jax_array__"):
        raise about(
            "argument-type",
            TypeError(
                f"{name} requires ndarray or scalar arguments, got {type(x)} at position {position}. "
                "Turn sequences into arrays with jnp.asarray."
            ),
        )
    return as_value(x)


def number_value(name: str, x: Any) -> Value:
    """`x` as a value; TypeError for PRNG keys, too, which are no numbers."""
    v = value(name, x)
    check_numbers(name, v.dtype)
    return v


def check_numbers(name: str, dtype: DType) -> None:
    """TypeError for the dtype of PRNG keys, which functions that only move elements would let pass."""
    if is_key_dtype(dtype):
        raise TypeError(f"{name} takes numbers, got {dtype}. Read the words of keys with random.key_data.")


def host_or_value(name: str, x: Any, position: int = 0) -> Value | np.ndarray[Any, Any]:
    """`x` as a value, but an array of NumPy's as it is: it is known while tracing, which a value made of it is not."""
    return plain_ndarray(x) if isinstance(x, np.ndarray) else value(name, x, position)


def values(name: str, *xs: Any) -> list[Value]:
    """`xs` as values; TypeError naming function and position unless all are arrays or scalars."""
    return [value(name, x, i) for i, x in enumerate(xs)]


def array(name: str, x: Any, position: int = 0) -> Array:
    """`x` as an array: like `value`, but a scalar becomes an array without dims that keeps its weak type."""
    return as_array(value(name, x, position))


def shape_of(x: Any) -> tuple[int, ...]:
    """The shape of an array-like, without making an array of it."""
    if not hasattr(x, "shape") and hasattr(x, "__jax_array__"):
        x = as_value(x)
    return x.shape if hasattr(x, "shape") else np.shape(x)


def sequence(name: str, xs: Any) -> list[Any]:
    """The items of a sequence of arrays, or the rows of one array; TypeError for a scalar."""
    if isinstance(xs, Array | np.ndarray):
        if not xs.ndim:
            raise about("argument-type", TypeError(f"{name} requires a sequence of arrays, got one without dims."))
        return list(xs)
    if isinstance(xs, Iterable) and not isinstance(xs, str):
        return list(xs)
    raise about("argument-type", TypeError(f"{name} requires a sequence of arrays, got {type(xs)}."))


_STATIC = "Pass it as a static argument, or compute it outside of the transformed function."


def concrete(x: Any, what: str, remedy: str = _STATIC) -> np.ndarray[Any, Any]:
    """The value of `x` as a NumPy array; ConcretizationTypeError, which names the operation, if `x` is traced."""
    if isinstance(x, Tracer) and is_concrete(x):
        x = primal_of(x)
    if isinstance(x, Tracer):
        raise not_concrete(x, f"{what} must be known while tracing", remedy)
    return np.asarray(x.value if isinstance(x, Literal) else x)


def concrete_int(x: Any, what: str) -> int:
    """`x` as a Python int; TypeError unless it is an integer, ConcretizationTypeError if it is traced."""
    if isinstance(x, Tracer):
        concrete(x, what)
    return operator.index(x)


def no_out(name: str, out: Any) -> None:
    """NotImplementedError if the caller asks for a result in place."""
    if out is not None:
        raise NotImplementedError(f"{name}: arrays are immutable, so out= is not supported. Use the returned array.")


def requested_dtype(name: str, dtype: Any) -> DType | None:
    """A dtype= argument resolved, None staying None."""
    return None if dtype is None else check_requested(dtype, name)


# -- axes ------------------------------------------------------------------------------------------------------


def canonical_axis(axis: Any, ndim: int, name: str = "axis") -> int:
    """`axis` counted from the front; AxisError (a ValueError and IndexError) unless -ndim <= axis < ndim."""
    try:
        axis = operator.index(axis)
    except TypeError:
        if isinstance(axis, Tracer):
            raise not_concrete(axis, f"{name} must be known while tracing", "Pass it as a static argument.") from None
        raise TypeError(f"{name} must be an integer, got {axis!r} of type {type(axis).__name__}.") from None
    if not -ndim <= axis < ndim:
        # NumPy's class is both a ValueError and an IndexError; JAX raises now one, now the other.
        raise np.exceptions.AxisError(f"{name} {axis} is out of bounds for array of dimension {ndim}.")
    return axis + ndim if axis < 0 else axis


def has_several(axis: Any) -> TypeGuard[Iterable[Any]]:
    """Whether `axis` holds axes: a sequence, a set, an array with dims. A number and a name do not."""
    if isinstance(axis, tuple | list | int | str):
        return isinstance(axis, tuple | list)
    return isinstance(axis, Iterable) and getattr(axis, "ndim", 1) > 0  # type: ignore[arg-type]


def canonical_axes(axis: Axis, ndim: int) -> tuple[int, ...]:
    """`axis` as a tuple counted from the front, None meaning all; ValueError for repeated or missing ones."""
    if axis is None:
        return tuple(range(ndim))
    if has_several(axis):
        axes = tuple(canonical_axis(a, ndim) for a in axis)
        if len(set(axes)) != len(axes):
            raise ValueError(f"duplicate value in 'axis': {axis} has a repeated axis for an array of dimension {ndim}.")
        return axes
    return (canonical_axis(axis, ndim),)


def insertion_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    """Where new dims go: `axis` as a tuple, counted in the result of rank ndim + len(axis)."""
    axes = tuple(axis) if has_several(axis) else (axis,)
    return canonical_axes(axes, ndim + len(axes))


# -- dtypes ----------------------------------------------------------------------------------------------------


def astype(x: Value, dtype: DType) -> Any:
    """`x` with this dtype, strongly typed."""
    return convert(x, dtype, False)


def cast_as_asked(x: Value, dtype: DType) -> Any:
    """`astype` to a dtype that the caller of a function gave: complex values do not lose a part without a warning."""
    warn_of_lost_part(x.dtype, dtype)
    return convert(x, dtype, False)


def promote_dtypes(*xs: Value) -> list[Value]:
    """`xs` with the dtype, and the weakness, that promotion gives them together."""
    dtype, weak = lattice_result_type(*xs)
    return [convert(x, dtype, weak) for x in xs]


def promote_inexact(*xs: Value) -> list[Value]:
    """`xs` with one floating or complex dtype."""
    dtype, weak = lattice_result_type(*xs)
    check_numbers("promotion to a type for arithmetic", dtype)
    inexact = to_inexact(dtype)
    # A weak integer becomes a weak float of the default width, bool a strong one.
    return [convert(x, default_dtype("f") if weak and inexact != dtype else inexact, weak) for x in xs]


def promote_numeric(*xs: Value) -> list[Value]:
    """`xs` with one dtype that is not bool: in place of bool int32, where types of 64 bits are enabled, too."""
    dtype, weak = lattice_result_type(*xs)
    check_numbers("promotion to a type for arithmetic", dtype)
    return [convert(x, _INT32 if dtype == _BOOL else dtype, weak) for x in xs]


def promote_complex(*xs: Value) -> list[Value]:
    """`xs` with one complex dtype."""
    dtype, weak = lattice_result_type(*xs)
    return [convert(x, to_complex(dtype), weak) for x in xs]


def is_float(dtype: DType) -> bool:
    """Whether `dtype` is a real floating type."""
    return dtype in _REAL_FLOATING


def is_inexact(dtype: DType) -> bool:
    """Whether `dtype` is a real or complex floating type."""
    return dtype in _FLOATS


def is_complex(dtype: DType) -> bool:
    """Whether `dtype` is a complex type."""
    return dtype in _COMPLEX


def is_integer(dtype: DType) -> bool:
    """Whether `dtype` is a signed or unsigned integer type."""
    return dtype in _INTEGERS


def is_bool(dtype: DType) -> bool:
    """Whether `dtype` is bool."""
    return dtype == _BOOL


# -- shapes ----------------------------------------------------------------------------------------------------


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape to which all of these broadcast; ValueError if there is none."""
    result: list[int] = []
    rank = max(map(len, shapes), default=0)
    for d in range(-rank, 0):
        sizes = {s[d] for s in shapes if len(s) >= -d and s[d] != 1}
        if len(sizes) > 1:
            raise ValueError(
                f"Incompatible shapes for broadcasting: shapes={list(map(tuple, shapes))}. "
                "Counted from the last dim, sizes must be equal or 1."
            )
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def promote_shapes(name: str, *xs: Value) -> Sequence[Value]:
    """As `align_ranks`, where the setting `jax_numpy_rank_promotion` allows it: a warning or a ValueError otherwise."""
    ranks = {x.ndim for x in xs}
    ranks.discard(0)
    if len(ranks) <= 1:
        return xs
    aligned_arrays = align_ranks(*xs)
    report_rank_promotion(name, [x.shape for x in xs])
    return aligned_arrays


def align_ranks(*xs: Value) -> Sequence[Value]:
    """`xs` with equal ranks, those of rank 0 aside, by new dims of size 1 in front; sizes are left to broadcast.

    For functions that broadcast by their definition, such as `where`: no setting forbids it. ValueError if ranks differ and
    the shapes do not broadcast; ops themselves check operands of equal rank.
    """
    ranks = {x.ndim for x in xs}
    ranks.discard(0)
    if len(ranks) <= 1:
        return xs
    broadcast_shapes(*[x.shape for x in xs])
    rank = max(ranks)
    return [lax.expand_dims(x, range(rank - x.ndim)) if 0 < x.ndim < rank else x for x in xs]


def report_rank_promotion(name: str, shapes: Sequence[tuple[int, ...]]) -> None:
    """Warn of a promotion of ranks, or raise ValueError, as the setting `jax_numpy_rank_promotion` selects."""
    policy = config.jax_numpy_rank_promotion
    if policy == "allow":
        return
    where = f"for {name} on shapes {' '.join(map(str, shapes))}"
    if policy == "raise":
        raise ValueError(
            f"Operands could not be broadcast together {where} without raising a rank, and jax_numpy_rank_promotion='raise' forbids it. "
            "Reshape the operands to one rank first."
        )
    message = (
        f"Following NumPy automatic rank promotion {where}, of which jax_numpy_rank_promotion='warn' asks to be told."
    )
    warnings.warn(message, UserWarning, stacklevel=user_stacklevel())


def broadcast_together(name: str, *xs: Value, same: bool = False) -> Sequence[Value]:
    """As `align_ranks`; on Explicit axes, operands of different shapes are broadcast to one shape and one layout.

    A dim that one operand splits is split in all of them, so that an op that takes equal layouts only, such as
    `select_n`, gets them. Operands of one shape are left as they are, unless `same`. ShardingTypeError if two split a dim differently.
    """
    mesh = next((_mesh(x) for x in xs if x.aval.mesh is not None), None)
    shapes = {x.shape for x in xs}
    if mesh is None or (len(shapes) == 1 and not same):
        return align_ranks(*xs)
    shape = broadcast_shapes(*shapes)
    spec = _merged_spec(name, len(shape), xs)

    def spread(x: Value) -> Value:
        if x.shape == shape and not (same or config.dialect.explicit.broadcast_reshards_full_shapes):
            return x
        dims = range(len(shape) - x.ndim, len(shape))
        if x.aval.mesh is None and isinstance(mesh, Mesh):  # concrete, on a device of its own
            return place_created(lax.broadcast_in_dim(x, shape, dims), NamedSharding(mesh, spec))
        return lax.broadcast_in_dim(x, shape, dims, out_sharding=NamedSharding(mesh, spec))

    return [spread(x) for x in xs]


def spread_together(name: str, *xs: Value) -> list[Array]:
    """The values broadcast to one shape, and on Explicit axes to one layout. ShardingTypeError if two split a dim differently."""
    if any(x.aval.mesh is not None for x in xs):
        return [as_array(x) for x in broadcast_together(name, *xs, same=True)]
    shape = broadcast_shapes(*(x.shape for x in xs))
    return [broadcast_to_shape(x, shape) for x in xs]


def _mesh(x: Value) -> Mesh | AbstractMesh | None:
    """The mesh of a value's type, with its devices if they are known."""
    sharding = x.sharding if isinstance(x, ArrayImpl) else None
    return sharding.mesh if isinstance(sharding, NamedSharding) else x.aval.mesh


def _merged_spec(name: str, ndim: int, xs: Sequence[Value]) -> PartitionSpec:
    merged_entries: list[tuple[str, ...]] = [()] * ndim
    for x in xs:
        for dim, axes in enumerate(x.aval.spec, ndim - x.ndim):
            if axes and merged_entries[dim] and axes != merged_entries[dim]:
                type_list = ", ".join(x.aval.str_short() for x in xs)
                raise elementwise_error(
                    f"{name} got operands whose shardings clash when broadcast: {type_list}. Reshard one."
                )
            merged_entries[dim] = axes or merged_entries[dim]
    return PartitionSpec(*[axes or None for axes in merged_entries])


def broadcast_to_shape(x: Value, shape: Sequence[int]) -> Array:
    """`x` broadcast to `shape` as NumPy does; its dims line up with the last ones."""
    shape = tuple(shape)
    if x.shape == shape:
        return as_array(x)
    first = len(shape) - x.ndim
    if first < 0 or any(n not in (1, m) for n, m in zip(x.shape, shape[first:], strict=True)):
        raise ValueError(f"Incompatible shapes for broadcasting: {x.shape} and requested shape {shape}.")
    return lax.broadcast_in_dim(x, shape, range(first, len(shape)))


def _direct(xs: tuple[Any, ...], dtypes: frozenset[Any]) -> Sequence[Value] | None:
    """Two operands that need no promotion, of one of these dtypes: an array beside another of its type, or a number."""
    if len(xs) != 2:
        return None
    x, y = xs
    if isinstance(x, Array):
        t = x.aval
        if t.dtype not in dtypes:
            return None
        if isinstance(y, Array):
            return xs if t is y.aval else None
        if y.__class__ is float or y.__class__ is int:
            scalar = number(y, t)
            return None if scalar is None else (x, scalar)
    elif isinstance(y, Array) and (x.__class__ is float or x.__class__ is int) and y.aval.dtype in dtypes:
        scalar = number(x, y.aval)
        return None if scalar is None else (scalar, y)
    return None


def promote(name: str, *xs: Any) -> Sequence[Value]:
    """Checked arguments with one dtype and rank."""
    return _direct(xs, _NUMBERS) or promote_shapes(name, *promote_dtypes(*values(name, *xs)))


def promote_to_inexact(name: str, *xs: Any) -> Sequence[Value]:
    """Checked arguments with one floating or complex dtype, and one rank."""
    return _direct(xs, _FLOATS) or promote_shapes(name, *promote_inexact(*values(name, *xs)))


def promote_to_numeric(name: str, *xs: Any) -> Sequence[Value]:
    """Checked arguments with one dtype other than bool, and one rank."""
    return _direct(xs, _NUMBERS) or promote_shapes(name, *promote_numeric(*values(name, *xs)))
