"""Elementwise functions of two operands: arithmetic, complex numbers from parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base.dtypes import as_dtype, canonicalize
from shardwise.base.shapes import Ndarray
from shardwise.ir import Array, ShapedArray, Shown, bind, define_op
from shardwise.ops.elementwise import complex_loops
from shardwise.ops.elementwise import elementwise_ir as ir
from shardwise.ops.elementwise.casts import convert
from shardwise.ops.rules.derivative import along, back, do, scalar, strongly, unknown_derivative
from shardwise.ops.rules.operands import (
    align_blocks,
    broadcast_shape,
    check_kind,
    check_same_dtype,
    dtype_kind,
    elementwise_op,
    operands,
    own_ufunc,
)
from shardwise.runtime import extrema
from shardwise.runtime.env import Env

__all__ = [
    "add", "atan2", "complex", "div", "max", "min", "mul", "mulhi", "nextafter", "pow", "rem", "sub",
]  # fmt: skip

_BOOL = np.dtype(np.bool_)

# -- kernels: integers as XLA defines them -------------------------------------------------------------------------------


def _div(x: Ndarray, y: Ndarray) -> Ndarray:
    """Floats divide exactly; integers truncate, x / 0 has all bits set, and the least integer / -1 wraps."""
    if x.dtype.kind == "c":
        return complex_loops.divide(x, y)
    if dtype_kind(x.dtype) not in "iu":
        return np.true_divide(x, y)
    with np.errstate(all="ignore"):
        if x.dtype.itemsize <= 4 and y.size != 1:  # float64 is exact here, and NumPy is slow with many divisors
            quotient = np.true_divide(x, y, dtype=np.float64).astype(np.int64).astype(x.dtype)
        else:
            quotient = np.floor_divide(x, y)
            if x.dtype.kind == "i":
                quotient += ((x ^ y) < 0) & (quotient * y != x)  # floor differs from truncation by one
    zero = y == 0
    return np.where(zero, np.array(-1).astype(x.dtype), quotient) if np.any(zero) else quotient


def _rem(x: Ndarray, y: Ndarray) -> Ndarray:
    """The remainder with the sign of `x`; x rem 0 is x for integers."""
    if dtype_kind(x.dtype) not in "iu":
        return np.fmod(x, y)
    with np.errstate(all="ignore"):
        out = np.fmod(x, y)
    zero = y == 0
    return np.where(zero, x, out) if np.any(zero) else out


def _atan2(x: Ndarray, y: Ndarray) -> Ndarray:
    if x.dtype.kind != "c":
        return np.arctan2(x, y)
    i = x.dtype.type(1j)
    return -i * np.log((y + i * x) / np.sqrt(x * x + y * y))


def _complex(x: Ndarray, y: Ndarray) -> Ndarray:
    out = np.empty(np.broadcast_shapes(x.shape, y.shape), "c8" if x.dtype.itemsize == 4 else "c16")
    out.real = x
    out.imag = y
    return out


def _mulhi(x: Ndarray, y: Ndarray) -> Ndarray:
    """The upper half of the product's bits."""
    bits = 8 * x.dtype.itemsize
    if bits < 64:
        wide = np.dtype(f"{x.dtype.kind}{2 * x.dtype.itemsize}")
        return ((x.astype(wide) * y.astype(wide)) >> wide.type(bits)).astype(x.dtype)
    half, mask = x.dtype.type(32), x.dtype.type(0xFFFFFFFF)
    x_high, x_low, y_high, y_low = x >> half, x & mask, y >> half, y & mask  # only the high parts carry a sign
    low = (x_low.view("u8") * y_low.view("u8")) >> np.uint64(32)
    cross = x_high * y_low + low.view(x.dtype)
    other = x_low * y_high + (cross & mask)
    return x_high * y_high + (cross >> half) + (other >> half)


# -- derivatives -----------------------------------------------------------------------------------------------------


def _rem_push(t: Any, z: Any, x: Any, y: Any) -> Any:
    """The derivative in `y` of ``x - trunc(x / y) * y``: the integer quotient, negated."""
    quotient = do.div(x, y)
    return do.mul(do.neg(t), do.mul(do.sign(quotient), do.floor(do.abs(quotient))))


def extremum_share(winner: Any, loser: Any, out: Any) -> Any:
    """1 where only `winner` is the extremum, one half where both are."""
    return do.select_n(
        do.eq(winner, out), 0, do.select_n(do.eq(loser, out), scalar(1, out.dtype), scalar(0.5, out.dtype))
    )


def _left_share(t: Any, z: Any, x: Any, y: Any) -> Any:
    return do.mul(t, extremum_share(x, y, z))


def _chosen_right(t: Any, z: Any, x: Any, y: Any) -> Any:
    return do.mul(t, extremum_share(y, x, z))


def _squares(x: Any, y: Any) -> Any:
    return do.add(do.square(x), do.square(y))


def _pow_base(t: Any, z: Any, x: Any, y: Any) -> Any:
    """``y * x ** (y - 1)``; 0 for the integer power 0 of any `x`, where floats have 0 times the infinity at 0."""
    if y.dtype == x.dtype:
        x, y = strongly(x), strongly(y)
        return do.mul(t, do.mul(y, do.pow(x, do.sub(y, 1))))
    zero = do.eq(y, 0)
    slope = do.pow(x, do.select_n(zero, do.sub(y, 1), 1))
    power = do.convert_element_type(y, new_dtype=x.dtype, weak_type=False)
    return do.mul(t, do.select_n(zero, do.mul(power, slope), 0))


def _pow_power(t: Any, z: Any, x: Any, y: Any) -> Any:
    return strongly(do.mul(t, do.mul(do.log(do.select_n(do.eq(x, 0), x, 1)), z)))


# -- ops -------------------------------------------------------------------------------------------------------------

add_p = elementwise_op(
    "add",
    np.add,
    "biufc",
    "biufc",
    emit=ir.ADD,
    additive=True,
    push=(lambda t, z, x, y: t, lambda t, z, x, y: t),
    pull=(lambda ct, x, y: ct, lambda ct, x, y: ct),
    makes_nan=True,
)
# The sum of cotangents in programs that are shown, where JAX's have it under a name of its own.
add_any_p = elementwise_op(
    "add_any",
    np.add,
    "biufc",
    "biufc",
    emit=ir.ADD,
    additive=True,
    shown=Shown(aliases=("add_jaxvals",)),
    push=(lambda t, z, x, y: t, lambda t, z, x, y: t),
    pull=(lambda ct, x, y: ct, lambda ct, x, y: ct),
    makes_nan=True,
)
sub_p = elementwise_op(
    "sub",
    np.subtract,
    "iufc",
    "iufc",
    emit=ir.SUB,
    additive=True,
    push=(lambda t, z, x, y: t, lambda t, z, x, y: do.neg(t)),
    pull=(lambda ct, x, y: ct, lambda ct, x, y: do.neg(ct)),
    makes_nan=True,
)
mul_p = elementwise_op(
    "mul",
    np.multiply,
    "biufc",
    "biufc",
    emit=ir.MUL,
    scales=2,
    push=(lambda t, z, x, y: do.mul(t, y), lambda t, z, x, y: do.mul(x, t)),
    pull=(lambda ct, x, y: do.mul(ct, y), lambda ct, x, y: do.mul(x, ct)),
    makes_nan=True,
)
div_p = elementwise_op(
    "div",
    _div,
    "iufc",
    "iufc",
    emit=ir.DIV,
    scales=1,
    ufunc_of=lambda x, y: _div if dtype_kind(x) in "iuc" else np.true_divide,
    push=(lambda t, z, x, y: do.div(t, y), lambda t, z, x, y: do.mul(t, do.neg(do.div(z, y)))),
    pull=(lambda ct, x, y: do.div(ct, y), None),
    makes_nan=True,
    divisor=1,
)
rem_p = elementwise_op(
    "rem",
    _rem,
    "iuf",
    "iuf",
    emit=ir.REM,
    push=(lambda t, z, x, y: t, _rem_push),
    ufunc_of=lambda x, y: _rem if dtype_kind(x) in "iu" else np.fmod,
    makes_nan=True,
)
max_p = elementwise_op(
    "max",
    extrema.maximum,
    "biufc",
    "biufc",
    emit=ir.MAX,
    push=(_left_share, _chosen_right),
    ufunc_of=lambda x, y: extrema.function("max", x),
)
min_p = elementwise_op(
    "min",
    extrema.minimum,
    "biufc",
    "biufc",
    emit=ir.MIN,
    push=(_left_share, _chosen_right),
    ufunc_of=lambda x, y: extrema.function("min", x),
)
atan2_p = elementwise_op(
    "atan2",
    _atan2,
    "fc",
    "fc",
    emit=ir.ATAN2,
    ufunc_of=lambda x, y: _atan2 if x.kind == "c" else np.arctan2,
    push=(
        lambda t, z, x, y: do.mul(t, do.div(y, _squares(x, y))),
        lambda t, z, x, y: do.mul(t, do.div(do.neg(x), _squares(x, y))),
    ),
    transcendental=True,
)
nextafter_p = elementwise_op(
    "nextafter",
    np.nextafter,
    "f",
    "f",
    emit=ir.NEXTAFTER,
    push=(unknown_derivative("nextafter", "x1"), unknown_derivative("nextafter", "x2")),
)
mulhi_p = elementwise_op("mulhi", _mulhi, "iu", "iu", emit=ir.MULHI)


def _complex_type(x: ShapedArray, y: ShapedArray) -> ShapedArray:
    for i, t in enumerate((x, y)):
        if t.dtype.name not in ("float32", "float64"):
            raise TypeError(
                f"complex does not accept dtype {t.dtype.name} at position {i}; expected float32 or float64."
            )
    check_same_dtype("complex", (x, y))
    dtype = as_dtype("complex64" if x.dtype.itemsize == 4 else "complex128")
    return ShapedArray(broadcast_shape("complex", (x.shape, y.shape)), dtype, x.weak_type and y.weak_type)


def _complex_kernel(env: Env, x: Ndarray, y: Ndarray) -> Ndarray:
    return _complex(*align_blocks((x, y)))


complex_p = define_op(
    "complex",
    type_rule=_complex_type,
    kernel=_complex_kernel,
    ufunc=_complex,
    emit=ir.COMPLEX,
    jvp=along("complex", (lambda t, z, x, y: do.complex(t, 0), lambda t, z, x, y: do.complex(0, t))),
    transpose=back((lambda ct, x, y: do.real(ct), lambda ct, x, y: do.neg(do.imag(ct)))),
)


def _pow_type(x: ShapedArray, y: ShapedArray) -> ShapedArray:
    check_kind("pow", x, "fc", 0)
    if dtype_kind(y.dtype) not in "iu" and x.dtype != y.dtype:
        raise TypeError(
            f"lax.pow takes a power of the base's dtype or of an integer dtype, got {x.dtype.name} to the power "
            f"{y.dtype.name}. Cast one of them."
        )
    return ShapedArray(broadcast_shape("pow", (x.shape, y.shape)), x.dtype, x.weak_type and y.weak_type)


def _pow(x: Ndarray, y: Ndarray) -> Ndarray:
    if y.ndim == 0 and x.dtype.kind == "f" and y == 0.5:  # np.power would use the square root, for -0.0 and -inf too
        root = np.sqrt(np.where(x == -np.inf, x.dtype.type(np.inf), x))
        return np.add(root, 0, dtype=x.dtype)
    return np.power(x, y)


def _pow_kernel(env: Env, x: Ndarray, y: Ndarray) -> Ndarray:
    return _pow_of(x.dtype, y.dtype)(*align_blocks((x, y)))


def _pow_of(x: Any, y: Any) -> Any:
    if x != y:  # an integer power
        same = _pow_of(x, x)
        return lambda base, power: same(base, power.astype(x))
    return np.power if x.kind == "c" else own_ufunc("pow", ir.POW, x, y) or _pow


pow_p = define_op(
    "pow",
    type_rule=_pow_type,
    kernel=_pow_kernel,
    ufunc=_pow,
    emit=ir.POW,
    jvp=along("pow", (_pow_base, _pow_power)),
    ufunc_of=_pow_of,
    transcendental=True,
)


# -- functions -------------------------------------------------------------------------------------------------------


def _no_bool(name: str, x: Any, y: Any) -> None:
    for i, v in enumerate((x, y)):
        if v.dtype is _BOOL:
            raise TypeError(
                f"lax.{name} does not accept dtype bool at position {i}; expected integer, floating or complex "
                "floating. Use lax.bitwise_or or lax.bitwise_and on bools."
            )


def add(x: Any, y: Any) -> Array:
    """Elementwise ``x + y``. TypeError for bools (the op itself accepts them: logical or).

    >>> lax.add(jnp.array([1, 2]), jnp.array([3, 4]))
    Array([4, 6], dtype=int32)
    """
    x, y = operands("add", x, y)
    _no_bool("add", x, y)
    return bind(add_p, x, y)


def sub(x: Any, y: Any) -> Array:
    """Elementwise ``x - y``.

    >>> lax.sub(jnp.array([5]), jnp.array([3]))
    Array([2], dtype=int32)
    """
    return bind(sub_p, *operands("sub", x, y))


def mul(x: Any, y: Any, *, out_dtype: Any = None) -> Array:
    """Elementwise ``x * y``, computed in `out_dtype` if given. TypeError for bools (the op itself accepts them).

    >>> lax.mul(jnp.array([2, 3]), jnp.array([4, 5]))
    Array([ 8, 15], dtype=int32)
    """
    x, y = operands("mul", x, y)
    _no_bool("mul", x, y)
    if out_dtype is not None:
        check_same_dtype("mul", (x.aval, y.aval))
        wide, weak = canonicalize(out_dtype), x.aval.weak_type and y.aval.weak_type
        x, y = convert(x, wide, weak), convert(y, wide, weak)
    return bind(mul_p, x, y)


def div(x: Any, y: Any) -> Array:
    """Elementwise ``x / y``; integers truncate towards 0, and division by 0 gives the integer with all bits set.

    >>> lax.div(jnp.array([7, -7]), jnp.array([2, 2]))
    Array([ 3, -3], dtype=int32)
    """
    return bind(div_p, *operands("div", x, y))


def rem(x: Any, y: Any) -> Array:
    """Elementwise remainder of ``x / y`` with the sign of `x`; an integer's remainder by 0 is the integer.

    >>> lax.rem(jnp.array([7, -7]), jnp.array([3, 3]))
    Array([ 1, -1], dtype=int32)
    """
    return bind(rem_p, *operands("rem", x, y))


def max(x: Any, y: Any) -> Array:
    """Elementwise maximum of `x` and `y`, of one dtype; NaN if either is. Complex values compare by real, then
    imaginary part.

    >>> lax.max(jnp.array([1, 5]), jnp.array([3, 3]))
    Array([3, 5], dtype=int32)
    """
    return bind(max_p, *operands("max", x, y))


def min(x: Any, y: Any) -> Array:
    """Elementwise minimum of `x` and `y`, of one dtype; NaN if either is. Complex values compare by real, then
    imaginary part.

    >>> lax.min(jnp.array([1, 5]), jnp.array([3, 3]))
    Array([1, 3], dtype=int32)
    """
    return bind(min_p, *operands("min", x, y))


def pow(x: Any, y: Any) -> Array:
    """Elementwise `x` to the power `y`: floats or complex values, with `y` of the same dtype or of an integer dtype.

    >>> lax.pow(jnp.array([2.0]), 3)
    Array([8.], dtype=float32)
    """
    return bind(pow_p, *operands("pow", x, y))


def atan2(x: Any, y: Any) -> Array:
    """Elementwise angle of the point (y, x): the arc tangent of ``x / y`` in the right quadrant.

    >>> lax.atan2(jnp.array([0.0]), jnp.array([1.0]))
    Array([0.], dtype=float32)
    """
    return bind(atan2_p, *operands("atan2", x, y))


def nextafter(x1: Any, x2: Any) -> Array:
    """Elementwise next float after `x1` in the direction of `x2`.

    >>> lax.nextafter(jnp.array([1.0]), jnp.array([2.0])) > 1
    Array([ True], dtype=bool)
    """
    return bind(nextafter_p, *operands("nextafter", x1, x2))


def complex(x: Any, y: Any) -> Array:
    """Complex values from real parts `x` and imaginary parts `y`: float32 or float64.

    >>> lax.complex(jnp.array([1.0]), jnp.array([2.0]))
    Array([1.+2.j], dtype=complex64)
    """
    return bind(complex_p, *operands("complex", x, y))


def mulhi(x: Any, y: Any, /) -> Array:
    """Elementwise upper half of the bits of the integer product ``x * y``.

    >>> lax.mulhi(jnp.array([2**30, 3]), jnp.array([8, 4]))
    Array([2, 0], dtype=int32)
    """
    return bind(mulhi_p, *operands("mulhi", x, y))
