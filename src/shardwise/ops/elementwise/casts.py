"""Casts and copies: conversion of values, bits and precision, and identity ops that transforms interpret."""

from __future__ import annotations

import functools
import operator
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base.config import config
from shardwise.base.dtypes import default_dtype, finfo, is_key_dtype, itemsize_bits, physical
from shardwise.base.shapes import Ndarray
from shardwise.base.tree import tree_map
from shardwise.ir import Array, Literal, ShapedArray, Shown, SmallForm, as_literal, bind, define_op, literal
from shardwise.ir.key_uses import HANDS_ON
from shardwise.ir.op import Params, Types
from shardwise.ops.elementwise import elementwise_ir as ir
from shardwise.ops.rules.convert import as_array
from shardwise.ops.rules.derivative import along, back, do, later
from shardwise.ops.rules.operands import Value, check_kind, dtype_kind, int_limits, operand, requested_dtype
from shardwise.runtime.env import Env
from shardwise.sharding.rule import Kind, Rule, own_factors

__all__ = ["bitcast_convert_type", "convert_element_type", "reduce_precision", "stop_gradient"]

# -- values ----------------------------------------------------------------------------------------------------------


def _convert_type(x: ShapedArray, *, new_dtype: Any, weak_type: bool) -> ShapedArray:
    if new_dtype != x.dtype and (is_key_dtype(new_dtype) or is_key_dtype(x.dtype)):
        raise ValueError(
            f"Cannot convert_element_type from {x.dtype.name} to {new_dtype.name}: PRNG keys convert to nothing else. "
            "Use random.key_data and random.wrap_key_data."
        )
    return ShapedArray(x.shape, new_dtype, weak_type)


def _convert_kernel(env: Env, x: Ndarray, *, new_dtype: Any, weak_type: bool) -> Ndarray:
    return cast(x, new_dtype)


def _convert_compile(env: Env, in_types: Types, out_types: Types, params: Params) -> Callable[[Ndarray], Ndarray]:
    return caster(physical(in_types[0].dtype), physical(params["new_dtype"]))


def _cast_cotangent(ct: Any, aval: ShapedArray) -> Any:
    """The cotangent in the operand's original dtype and weak type."""
    if ct.dtype == aval.dtype and ct.aval.weak_type == aval.weak_type:
        return ct
    return do.convert_element_type(ct, new_dtype=aval.dtype, weak_type=aval.weak_type)


def _parts(values: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """A number has the other type at once."""
    x = as_literal(values[0])
    return convert(x, params["new_dtype"], params["weak_type"]) if isinstance(x, Literal) else None


convert_element_type_p = define_op(
    "convert_element_type",
    type_rule=_convert_type,
    kernel=_convert_kernel,
    compile=_convert_compile,
    emit=ir.CONVERT,
    additive=True,
    jvp=along("convert_element_type", lambda t, y, x, **params: do.convert_element_type(t, **params)),
    transpose=back(lambda ct, x, **params: _cast_cotangent(ct, x.aval)),
    keys=HANDS_ON,
    shown=Shown(parts=_parts),
)


def cast(x: Ndarray, dtype: Any) -> Ndarray:
    """`x` in another dtype as XLA casts: floats saturate into integers (NaN gives 0), integers wrap, complex drop imag."""
    return caster(x.dtype, physical(dtype))(x)


@functools.cache
def caster(source: Any, target: Any) -> Callable[[Ndarray], Ndarray]:
    """The function that casts blocks from one NumPy dtype to another."""
    if source == target:
        return lambda x: x
    kinds = dtype_kind(source), dtype_kind(target)
    if kinds[0] == "c" and kinds[1] != "c":
        of_parts = caster(np.zeros((), source).real.dtype, target)
        return lambda x: of_parts(x.real)
    if kinds[0] == "f" and kinds[1] in "iu":
        return lambda x: _float_to_int(x, target)
    if kinds[0] == "f" and kinds[1] == "b":
        zero = np.zeros((), source)[()]
        return lambda x: np.not_equal(x, zero)
    # Narrow types do not know each other; the wide type holds the values of both.
    if not np.can_cast(source, target, "unsafe"):
        exact = np.dtype(np.float32 if "f" in kinds else np.int8)
        return lambda x: x.astype(exact).astype(target)
    return lambda x: x.astype(target)


def _float_to_int(x: Ndarray, dtype: Any) -> Ndarray:
    if x.dtype.itemsize < 4:
        x = x.astype(np.float32)
    low, high = int_limits(dtype)
    if dtype.name in ("int32", "int64"):
        return _saturate(x, x.astype(dtype), high)
    if dtype.name == "uint64":
        half = x.dtype.type(2.0**63)
        big = x >= half
        out = _saturate(np.where(big, x - half, np.maximum(x, 0)), None, 2**63 - 1).view(np.uint64)
        return np.where(x >= 2.0**64, np.uint64(high), out + big.astype(np.uint64) * np.uint64(2**63))
    wide = np.dtype(np.int64 if high > 2**31 - 1 else np.int32)
    return np.clip(_float_to_int(x, wide), low, high).astype(dtype)


def _saturate(x: Ndarray, raw: Ndarray | None, high: int) -> Ndarray:
    """`raw` (x cast to an integer) with out-of-range values saturated."""
    out = np.asarray(x.astype(np.int64) if raw is None else raw)
    suspect = out == int_limits(out.dtype)[0]  # the processor's result for values out of range
    if suspect.any():
        out = np.where(suspect & (x > 0), out.dtype.type(high), out)
        out = np.where(np.isnan(x), out.dtype.type(0), out)
    return out


def convert(x: Value, dtype: Any, weak_type: bool = False) -> Value:
    """`x` with this dtype and weak type; `x` itself if it has both. Literals convert immediately. `dtype` is not canonicalized."""
    aval = x.aval
    if aval.dtype == dtype and aval.weak_type == weak_type:
        return x
    if isinstance(x, Literal):
        if is_key_dtype(dtype):
            return literal(x.value.item(), dtype)
        with np.errstate(all="ignore"):
            value = np.asarray(cast(x.value, dtype))
        return Literal(value, aval.update(dtype=dtype, weak_type=weak_type))
    return bind(convert_element_type_p, x, new_dtype=dtype, weak_type=weak_type)


def strong(x: Value) -> Array:
    """`x` strongly typed, for results whose dtype does not follow from the operands alone."""
    return as_array(convert(x, x.aval.dtype, False))


def convert_element_type(operand: Any, new_dtype: Any) -> Array:
    """`operand` cast to `new_dtype`, strongly typed: floats saturate into integers, NaN gives 0, integers wrap.

    A 64-bit dtype is narrowed with a UserWarning while 64-bit types are off. ValueError if `new_dtype` is None.

    >>> lax.convert_element_type(jnp.array([1.7]), jnp.int32)
    Array([1], dtype=int32)
    """
    dtype = requested_dtype(new_dtype, "convert_element_type")
    value = _operand("convert_element_type", _whole(operand, dtype) if operand.__class__ is int else operand)
    refuse_complex_scalar("lax.convert_element_type", operand, dtype)
    if isinstance(value, Array) and value.dtype == dtype and not value.weak_type:
        return value
    warn_of_lost_part(value.dtype, dtype)
    return bind(convert_element_type_p, value, new_dtype=dtype, weak_type=False)


def _whole(x: int, dtype: Any) -> Any:
    """A Python int that no default integer holds, as `dtype`: as a number where that is a float, else its low bits."""
    low, high = int_limits(default_dtype("i"))
    if low <= x <= high:
        return x
    if dtype_kind(dtype) in "fc":
        return np.asarray(float(x)).astype(dtype)
    return np.asarray(x, np.uint64 if x > int_limits(np.dtype(np.int64))[1] else np.int64).astype(dtype)


def refuse_complex_scalar(name: str, x: Any, dtype: Any) -> None:
    """TypeError for a Python complex number with a real dtype, unless the dialect casts it."""
    if x.__class__ is complex and dtype_kind(dtype) != "c" and not config.dialect.functions.complex_scalars_become_real:
        raise TypeError(
            f"lax.{name}: {x!r} is complex, and {dtype.name} is not. Take its .real, or name a complex dtype."
        )


def warn_of_lost_part(old: Any, new: Any) -> None:
    """ComplexWarning if a cast from `old` to `new` drops imaginary parts."""
    if dtype_kind(old) == "c" and dtype_kind(new) != "c":
        message = "Casting complex values to real discards the imaginary part; take it with real() or abs()."
        warnings.warn(message, np.exceptions.ComplexWarning, stacklevel=4)


_operand = operand  # functions below have a parameter of that name

# -- bits ------------------------------------------------------------------------------------------------------------


def _bitcast_type(x: ShapedArray, *, new_dtype: Any) -> ShapedArray:
    kinds = dtype_kind(x.dtype), dtype_kind(new_dtype)
    if x.dtype == new_dtype:
        return x.update(weak_type=False)
    if set("bck") & set(kinds):
        raise TypeError(
            f"bitcast_convert_type casts integers and floats, got {x.dtype.name} -> {new_dtype.name}. "
            "For bool and complex values use arr.view(dtype)."
        )
    old, new = itemsize_bits(x.dtype), itemsize_bits(new_dtype)
    if old == new:
        return ShapedArray(x.shape, new_dtype, False)
    if old > new:
        return ShapedArray((*x.shape, old // new), new_dtype, False)
    if not x.shape or x.shape[-1] * old != new:
        raise ValueError(
            f"bitcast_convert_type from {x.dtype.name} ({old} bits) to {new_dtype.name} ({new} bits) takes away "
            f"a last dim of size {new // old}, but the shape is {x.shape}."
        )
    return ShapedArray(x.shape[:-1], new_dtype, False)


def _bitcast_rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    """Dims keep their sharding; a last dim that only the operand or only the result has must be whole."""
    shape, other = in_types[0].shape, out_types[0].shape
    longest = shape if len(shape) >= len(other) else other
    common = min(len(shape), len(other))
    factors = own_factors(longest)
    kinds = tuple(Kind.PASS if d < common else Kind.REPLICATE for d in range(len(longest)))
    return Rule((factors[: len(shape)],), (factors[: len(other)],), longest, kinds)


def _bitcast_kernel(env: Env, x: Ndarray, *, new_dtype: Any) -> Ndarray:
    old, new = itemsize_bits(x.dtype), itemsize_bits(new_dtype)
    if old == new:
        return x.view(new_dtype)
    if min(old, new) < 8:
        return _recut(x, old, new_dtype, new)
    if old > new:
        return np.ascontiguousarray(x).reshape(*x.shape, 1).view(new_dtype)
    return np.ascontiguousarray(x).view(new_dtype)[..., 0]


def _recut(x: Ndarray, old: int, dtype: Any, new: int) -> Ndarray:
    """Elements of `old` bits as elements of `new` bits, one of which takes a byte of memory although it has fewer bits."""
    in_memory = np.unpackbits(np.ascontiguousarray(x)[..., None].view(np.uint8), axis=-1, bitorder="little")
    bits = in_memory[..., :old]
    bits = bits.reshape(*x.shape, old // new, new) if old > new else bits.reshape(*x.shape[:-1], x.shape[-1] * old)
    if new >= 8:
        return np.packbits(bits, axis=-1, bitorder="little").view(dtype)[..., 0]
    codes = np.packbits(bits, axis=-1, bitorder="little")[..., 0]
    if dtype_kind(dtype) == "i":
        sign = 1 << new - 1
        return ((codes.astype(np.int8) ^ sign) - sign).astype(dtype)
    return codes.view(dtype)


bitcast_convert_type_p = define_op(
    "bitcast_convert_type",
    type_rule=_bitcast_type,
    kernel=_bitcast_kernel,
    rule=_bitcast_rule,
    small=SmallForm(later("shardwise.runtime.small", "recast"), later("shardwise.runtime.small", "recast_fits")),
    jvp=along("bitcast_convert_type", ()),
)


def bitcast_convert_type(operand: Any, new_dtype: Any) -> Array:
    """The bits of `operand` read as `new_dtype`: f32[n] -> i32[n], f32[n] -> i16[n, 2], i16[n, 2] -> i32[n].

    TypeError for bool and complex values, ValueError where the last dim does not hold the missing bits.

    >>> lax.bitcast_convert_type(jnp.float32(1.0), jnp.int32)
    Array(1065353216, dtype=int32)
    """
    dtype = requested_dtype(new_dtype, "bitcast_convert_type")
    return bind(bitcast_convert_type_p, _operand("bitcast_convert_type", operand), new_dtype=dtype)


# -- precision -------------------------------------------------------------------------------------------------------


def _reduce_precision_type(x: ShapedArray, *, exponent_bits: int, mantissa_bits: int) -> ShapedArray:
    check_kind("reduce_precision", x, "f")
    if exponent_bits < 1:
        raise ValueError(f"reduce_precision: exponent_bits must be positive; got {exponent_bits}")
    if mantissa_bits < 0:
        raise ValueError(f"reduce_precision: mantissa_bits must be non-negative; got {mantissa_bits}")
    return ShapedArray(x.shape, x.dtype, x.weak_type)


def _reduce_precision_kernel(env: Env, x: Ndarray, *, exponent_bits: int, mantissa_bits: int) -> Ndarray:
    info = finfo(x.dtype)
    bits = np.dtype(f"u{x.dtype.itemsize}")
    out = np.ascontiguousarray(x).view(bits)
    drop = int(info.nmant) - mantissa_bits
    if drop > 0:  # to nearest, halves to even; a carry correctly increments the exponent
        odd = (out >> bits.type(drop)) & bits.type(1)
        out = (out + (bits.type((1 << (drop - 1)) - 1) + odd)) & bits.type(
            ((1 << (8 * bits.itemsize)) - 1) ^ ((1 << drop) - 1)
        )
    result = np.asarray(out).view(x.dtype).reshape(x.shape)
    if exponent_bits < int(info.nexp):
        # The largest exponent of the target overflows to inf; values below its smallest normal number become signed zeros.
        bias = (1 << (exponent_bits - 1)) - 1
        size = np.abs(result)
        infinity = np.array(np.inf).astype(x.dtype)
        zero = x.dtype.type(0)
        result = np.where(size >= np.array(2.0 ** (bias + 1)).astype(x.dtype), np.copysign(infinity, x), result)
        result = np.where(size < np.array(2.0 ** (1 - bias)).astype(x.dtype), np.copysign(zero, x), result)
    return np.where(np.isnan(x), x, result)


reduce_precision_p = define_op(
    "reduce_precision",
    type_rule=_reduce_precision_type,
    kernel=_reduce_precision_kernel,
    emit=ir.REDUCE_PRECISION,
    additive=True,
    jvp=along("reduce_precision", lambda t, y, x, **params: do.reduce_precision(t, **params)),
    transpose=back(lambda ct, x, **params: do.reduce_precision(ct, **params)),
)


def reduce_precision(operand: Any, exponent_bits: int, mantissa_bits: int) -> Array:
    """`operand` rounded to a float format with `exponent_bits` and `mantissa_bits`, kept in its own dtype.

    TypeError unless both numbers of bits are integers.

    >>> lax.reduce_precision(jnp.array([1.2345]), 8, 7)
    Array([1.234375], dtype=float32)
    """
    return bind(
        reduce_precision_p,
        _operand("reduce_precision", operand),
        exponent_bits=operator.index(exponent_bits),
        mantissa_bits=operator.index(mantissa_bits),
    )


# -- identities ------------------------------------------------------------------------------------------------------


def _same_type(x: ShapedArray) -> ShapedArray:
    return ShapedArray(x.shape, x.dtype, x.weak_type)


def _identity(env: Env, x: Ndarray) -> Ndarray:
    return x


copy_p = define_op(
    "copy",
    type_rule=_same_type,
    kernel=_identity,
    emit=ir.IDENTITY,
    additive=True,
    jvp=along("copy", lambda t, y, x: do.copy(t)),
    transpose=back(lambda ct, x: ct),
    keys=HANDS_ON,
)


stop_gradient_p = define_op(
    "stop_gradient",
    type_rule=_same_type,
    kernel=_identity,
    emit=ir.IDENTITY,
    additive=True,
    jvp=along("stop_gradient", ()),
)


def copy(x: Any) -> Array:
    """`x` as a new value."""
    return bind(copy_p, operand("copy", x))


def stop_gradient(x: Any) -> Any:
    """`x` (a pytree of arrays) unchanged, but constant to differentiation.

    >>> jax.grad(lambda x: x * lax.stop_gradient(x))(3.0)
    Array(3., dtype=float32, weak_type=True)
    """

    def stop(leaf: Any) -> Any:
        value = operand("stop_gradient", leaf)
        return bind(stop_gradient_p, value) if dtype_kind(value.dtype) in "fc" else leaf

    return stop(x) if isinstance(x, Array) else tree_map(stop, x)
