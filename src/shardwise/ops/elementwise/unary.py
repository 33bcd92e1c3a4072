"""Elementwise functions of one operand: signs, rounding, integer powers, complex parts, bits."""

from __future__ import annotations

import enum
import functools
from typing import Any

import numpy as np

from shardwise.base.dtypes import as_dtype, itemsize_bits
from shardwise.base.shapes import Ndarray
from shardwise.ir import Array, Equation, Literal, ShapedArray, Shown, bind, define_op, literal
from shardwise.ops.elementwise import complex_loops, complex_points
from shardwise.ops.elementwise import elementwise_ir as ir
from shardwise.ops.elementwise.by_dtype import by_dtype
from shardwise.ops.rules.derivative import along, back, do
from shardwise.ops.rules.operands import check_kind, dtype_kind, elementwise_op, operand, own_ufunc
from shardwise.runtime.env import Env

__all__ = [
    "RoundingMethod", "abs", "bitwise_not", "ceil", "clz", "conj", "floor", "imag", "integer_pow", "is_finite", "neg",
    "population_count", "real", "reciprocal", "round", "sign", "square",
]  # fmt: skip

_BOOL = np.dtype(np.bool_)
_PARTS = {"complex64": np.dtype(np.float32), "complex128": np.dtype(np.float64)}


def real_part_dtype(dtype: Any) -> Any:
    """The dtype of the absolute value and of the parts: the part dtype of a complex dtype, a real dtype itself."""
    return _PARTS.get(dtype.name, dtype)


def _complex_dtype(dtype: Any) -> Any:
    return as_dtype("complex128" if dtype.name in ("float64", "complex128") else "complex64")


# -- kernels ---------------------------------------------------------------------------------------------------------


def _sign(x: Ndarray) -> Ndarray:
    if x.dtype.kind == "c":
        return complex_points.sign(x)
    out = np.asarray(np.sign(x))
    return out if x.dtype.kind in "iub" else np.copysign(out, x, out=out)  # np.sign(-0.0) is 0.0


def _round_away(x: Ndarray) -> Ndarray:
    if x.dtype.itemsize == 1:  # of the 4-bit type, zero is the largest below one half
        return _round_away(x.astype(np.float32)).astype(x.dtype)
    # Adding the largest float below one half, not one half, keeps numbers just below a half from rounding up.
    return np.trunc(x + np.copysign(_below_half(x.dtype), x))


@functools.cache
def _below_half(dtype: Any) -> Any:
    half = np.array(0.5, dtype)
    return np.nextafter(half, np.zeros_like(half))


def _conj(x: Ndarray) -> Ndarray:
    return np.conjugate(x) if x.dtype.kind == "c" else x.astype(_complex_dtype(x.dtype))


def _conj_type(x: ShapedArray) -> ShapedArray:
    if x.dtype.name not in ("float32", "float64", "complex64", "complex128"):
        raise TypeError(f"conj does not accept dtype {x.dtype.name}; expected float32, float64 or complex floating.")
    return ShapedArray(x.shape, _complex_dtype(x.dtype), x.weak_type)


def _view_unsigned(x: Ndarray) -> Ndarray:
    return x if x.dtype.kind == "u" else x.view(f"u{x.dtype.itemsize}")


def _population_count(x: Ndarray) -> Ndarray:
    return np.bitwise_count(_view_unsigned(x)).astype(x.dtype)


def _clz(x: Ndarray) -> Ndarray:
    bits = itemsize_bits(x.dtype)
    u = _view_unsigned(x)
    if bits == 64:
        high, low = (u >> np.uint64(32)), (u & np.uint64(0xFFFFFFFF))
        used = np.where(high != 0, _used_bits(high) + 32, _used_bits(low))
    else:
        used = _used_bits(u)
    return (bits - used).astype(x.dtype)


def _used_bits(u: Ndarray) -> Ndarray:
    return np.frexp(u.astype(np.float64))[1]  # exact for up to 53 bits; 0 has exponent 0


_square, _square_of = by_dtype(np.square, complex_points.square)
_, _numpys_abs_of = by_dtype(np.absolute, complex_points.absolute)


def _abs_of(dtype: Any) -> Any:
    """Of complex64, the modulus in float64, as in loops; NumPy's rounds otherwise."""
    own = own_ufunc("abs", ir.ABS, dtype, result="float32") if dtype == np.complex64 else None
    return own or _numpys_abs_of(dtype)


def _abs(x: Ndarray) -> Ndarray:
    return _abs_of(x.dtype)(x)


# -- derivatives -----------------------------------------------------------------------------------------------------


def _abs_push(t: Any, y: Any, x: Any) -> Any:
    """The tangent, negated unless ``x >= 0``; for complex `x`, its component in the direction of `x`, zero at zero."""
    if t.dtype.kind != "c":
        return do.select_n(do.ge(x, 0), do.neg(t), t)
    size = do.select_n(do.eq(y, 0), y, 1)
    direction = do.complex(do.div(do.real(x), size), do.div(do.neg(do.imag(x)), size))
    return do.real(do.mul(t, direction))


def _conj_pull(ct: Any, x: Any) -> Any:
    return do.conj(ct) if x.aval.dtype.kind == "c" else do.real(ct)


def _integer_pow_push(t: Any, z: Any, x: Any, *, y: int) -> Any:
    if y in (0, 1):
        return t if y else do.mul(t, 0)
    if y == 2:
        return do.mul(t, _double(x))
    return do.mul(t, do.mul(y, do.integer_pow(x, y=y - 1)))


def _double(x: Any) -> Any:
    """2 x. A product with a complex 2 would compute 0 times infinity."""
    return do.add(x, x) if x.dtype.kind == "c" else do.mul(2, x)


def _as_square(eqn: Equation) -> Equation | None:
    """The second power as the op that has a ufunc."""
    if eqn.params["y"] != 2:
        return None
    return Equation(square_p, eqn.inputs, eqn.outputs, {}, eqn.source)


# -- ops -------------------------------------------------------------------------------------------------------------


neg_p = elementwise_op(
    "neg",
    np.negative,
    "iufc",
    emit=ir.NEG,
    additive=True,
    push=lambda t, y, x: do.neg(t),
    pull=lambda ct, x: do.neg(ct),
)
sign_p = elementwise_op("sign", _sign, "iufc", emit=ir.SIGN, push=())
floor_p = elementwise_op("floor", np.floor, "f", emit=ir.FLOOR, push=())
ceil_p = elementwise_op("ceil", np.ceil, "f", emit=ir.CEIL, push=())
is_finite_p = elementwise_op("is_finite", np.isfinite, "f", emit=ir.IS_FINITE, result=lambda d: _BOOL)
abs_p = elementwise_op("abs", _abs, "ifc", ufunc_of=_abs_of, emit=ir.ABS, result=real_part_dtype, push=_abs_push)
square_p = elementwise_op(
    "square", _square, "iufc", ufunc_of=_square_of, emit=ir.SQUARE, push=lambda t, y, x: do.mul(t, _double(x))
)


def _zero(ct: Any) -> Literal:
    """The other part of a cotangent. It is strongly typed, and so is the cotangent of a former Python number, as in JAX."""
    return literal(0.0, ct.dtype)


real_p = elementwise_op(
    "real",
    np.real,
    "c",
    emit=ir.REAL,
    result=real_part_dtype,
    push=lambda t, y, x: do.real(t),
    pull=lambda ct, x: do.complex(ct, _zero(ct)),
)
imag_p = elementwise_op(
    "imag",
    np.imag,
    "c",
    emit=ir.IMAG,
    result=real_part_dtype,
    push=lambda t, y, x: do.imag(t),
    pull=lambda ct, x: do.complex(_zero(ct), do.neg(ct)),
)
conj_p = define_op(
    "conj",
    type_rule=_conj_type,
    kernel=lambda env, x: _conj(x),
    ufunc=_conj,
    emit=ir.CONJ,
    jvp=along("conj", lambda t, y, x: do.conj(t)),
    transpose=back(_conj_pull),
    shown=Shown(change=lambda eqn, shown: {"input_dtype": eqn.inputs[0].aval.dtype}),
)
not_p = elementwise_op("not", np.invert, "biu", emit=ir.NOT)
population_count_p = elementwise_op("population_count", _population_count, "iu", raw=True, emit=ir.POPULATION_COUNT)
clz_p = elementwise_op("clz", _clz, "iu", raw=True, emit=ir.CLZ)


class RoundingMethod(enum.IntEnum):
    """The direction in which `round` rounds a value halfway between two integers."""

    AWAY_FROM_ZERO = 0
    TO_NEAREST_EVEN = 1


def _round_type(x: ShapedArray, *, rounding_method: RoundingMethod) -> ShapedArray:
    check_kind("round", x, "f")
    return x


def _round_kernel(env: Env, x: Ndarray, *, rounding_method: RoundingMethod) -> Ndarray:
    return _round_away(x) if rounding_method is RoundingMethod.AWAY_FROM_ZERO else np.rint(x)


round_p = define_op("round", type_rule=_round_type, kernel=_round_kernel, emit=ir.ROUND, jvp=along("round", ()))


def _integer_pow_type(x: ShapedArray, *, y: int) -> ShapedArray:
    check_kind("integer_pow", x, "iufc")
    if y < 0 and dtype_kind(x.dtype) in "iu":
        raise TypeError(
            f"Integers cannot be raised to negative powers, got integer_pow({x.str_short(False)}, {y}). Cast to a float first."
        )
    return ShapedArray(x.shape, x.dtype, x.weak_type)


def _integer_pow_kernel(env: Env, x: Ndarray, *, y: int) -> Ndarray:
    if y < 0:
        power = _integer_pow_kernel(env, x, y=-y)
        return complex_loops.divide(np.ones_like(power), power) if x.dtype.kind == "c" else np.reciprocal(power)
    if y == 0:
        return np.ones_like(x)
    result: Ndarray | None = None
    while True:  # repeated squaring
        if y & 1:
            result = x if result is None else np.multiply(result, x)
        y >>= 1
        if not y:
            assert result is not None
            return result
        x = np.multiply(x, x)


integer_pow_p = define_op(
    "integer_pow",
    type_rule=_integer_pow_type,
    kernel=_integer_pow_kernel,
    emit=ir.INTEGER_POW,
    jvp=along("integer_pow", _integer_pow_push),
    static=_as_square,
    makes_nan=True,
)


# -- functions -------------------------------------------------------------------------------------------------------


def neg(x: Any) -> Array:
    """Elementwise ``-x``; wraps for unsigned integers. TypeError for bools.

    >>> lax.neg(jnp.array([-2.0, 0.0, 3.0]))
    Array([ 2., -0., -3.], dtype=float32)
    """
    return bind(neg_p, operand("neg", x))


def sign(x: Any) -> Array:
    """Elementwise -1, 0 or 1, the sign of `x`; zeros keep their sign, NaN stays NaN, complex values are divided by
    their modulus.

    >>> lax.sign(jnp.array([-2.0, 0.0, 3.0]))
    Array([-1.,  0.,  1.], dtype=float32)
    """
    return bind(sign_p, operand("sign", x))


def floor(x: Any) -> Array:
    """Elementwise largest integer not above the float `x`.

    >>> lax.floor(jnp.array([1.8]))
    Array([1.], dtype=float32)
    """
    return bind(floor_p, operand("floor", x))


def ceil(x: Any) -> Array:
    """Elementwise smallest integer not below the float `x`.

    >>> lax.ceil(jnp.array([1.2]))
    Array([2.], dtype=float32)
    """
    return bind(ceil_p, operand("ceil", x))


def round(x: Any, rounding_method: RoundingMethod = RoundingMethod.AWAY_FROM_ZERO) -> Array:
    """Elementwise nearest integer of the float `x`; `rounding_method` decides halves.

    >>> lax.round(jnp.array([0.5, 1.5]))
    Array([1., 2.], dtype=float32)
    """
    return bind(round_p, operand("round", x), rounding_method=RoundingMethod(rounding_method))


def is_finite(x: Any) -> Array:
    """Elementwise bool: neither infinite nor NaN. TypeError unless `x` is a real float.

    >>> lax.is_finite(jnp.array([1.0, jnp.inf]))
    Array([ True, False], dtype=bool)
    """
    return bind(is_finite_p, operand("is_finite", x))


def abs(x: Any) -> Array:
    """Elementwise absolute value of `x`; for complex values their modulus, a real. TypeError for unsigned integers
    and bools.

    >>> lax.abs(jnp.array([-2.0, 0.0, 3.0]))
    Array([2., 0., 3.], dtype=float32)
    """
    return bind(abs_p, operand("abs", x))


def square(x: Any) -> Array:
    """Elementwise ``x * x``.

    >>> lax.square(jnp.array([3.0]))
    Array([9.], dtype=float32)
    """
    return bind(square_p, operand("square", x))


def integer_pow(x: Any, y: int) -> Array:
    """Elementwise `x` to the power of the static Python int `y`. TypeError for negative powers of integers.

    >>> lax.integer_pow(jnp.array([2.0]), 3)
    Array([8.], dtype=float32)
    """
    return bind(integer_pow_p, operand("integer_pow", x), y=int(y) if y == int(y) else _refuse_power(y))


def _refuse_power(y: Any) -> int:
    raise TypeError(f"lax.integer_pow takes an int as power, got {y!r}. Use lax.pow for others.")


def reciprocal(x: Any) -> Array:
    """Elementwise ``1 / x``, for floats and complex values.

    >>> lax.reciprocal(jnp.array([2.0, 4.0]))
    Array([0.5 , 0.25], dtype=float32)
    """
    return integer_pow(x, -1)


def real(x: Any) -> Array:
    """Real parts: complex64[...] -> float32[...]. TypeError unless `x` is complex.

    >>> lax.real(jnp.array([1 + 2j]))
    Array([1.], dtype=float32)
    """
    return bind(real_p, operand("real", x))


def imag(x: Any) -> Array:
    """Imaginary parts: complex64[...] -> float32[...]. TypeError unless `x` is complex.

    >>> lax.imag(jnp.array([1 + 2j]))
    Array([2.], dtype=float32)
    """
    return bind(imag_p, operand("imag", x))


def conj(x: Any) -> Array:
    """Elementwise complex conjugate of `x`; floats become complex.

    >>> lax.conj(jnp.array([1 + 2j]))
    Array([1.-2.j], dtype=complex64)
    """
    return bind(conj_p, operand("conj", x))


def bitwise_not(x: Any) -> Array:
    """Elementwise complement of the bits of the integers `x`, or logical not of bools.

    >>> lax.bitwise_not(jnp.array([0]))
    Array([-1], dtype=int32)
    """
    return bind(not_p, operand("bitwise_not", x))


def population_count(x: Any) -> Array:
    """Elementwise number of set bits, in the integer dtype of `x`.

    >>> lax.population_count(jnp.array([7, 8]))
    Array([3, 1], dtype=int32)
    """
    return bind(population_count_p, operand("population_count", x))


def clz(x: Any) -> Array:
    """Elementwise number of leading zero bits, in the integer dtype of `x`.

    >>> lax.clz(jnp.array([1, 255]))
    Array([31, 24], dtype=int32)
    """
    return bind(clz_p, operand("clz", x))
