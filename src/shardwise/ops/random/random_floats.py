"""From random bits to random numbers: the elementwise steps that samplers share, each one pass over the data.

`unit_floats` reads bits as floats in [0, 1), `mul_add` moves them to another interval, `erf_inv` bends
uniform numbers to normal ones. They round as XLA's fused loops do, so that samples equal JAX's.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base.dtypes import finfo
from shardwise.base.scipy_extensions import special_ufunc
from shardwise.base.shapes import Ndarray
from shardwise.ir import Array, Emit, ShapedArray, Shown, bind, define_op, literal
from shardwise.ops.elementwise.binary import add, mul
from shardwise.ops.elementwise.special import erf_inv as exact
from shardwise.ops.elementwise.transcendental import exp
from shardwise.ops.elementwise.unary import square
from shardwise.ops.random.float_loops import compute
from shardwise.ops.rules.operands import align_blocks, broadcast_shape, check_kind, check_same_dtype
from shardwise.runtime.env import Env
from shardwise.runtime.machine import Lane, Lanes, available, libm

_TILE = 1 << 15  # elements at a time: the steps of a kernel find them in the cache


def _fill_in_tiles(
    operand: Ndarray, dtype: Any, step: Callable[[Ndarray, Ndarray], None], tile: int = _TILE
) -> Ndarray:
    """A new block of `dtype`, filled by `step(part of operand, part of block)` in the operand's memory order."""
    if operand.size <= tile and operand.flags.c_contiguous:
        out = np.empty(operand.shape, dtype)
        step(operand.reshape(-1), out.reshape(-1))
        return out
    order = sorted(range(operand.ndim), key=lambda d: -operand.strides[d])
    flat = operand.transpose(order)
    out = np.empty(flat.shape, dtype)
    source, result = np.ascontiguousarray(flat).reshape(-1), out.reshape(-1)
    for start in range(0, source.size, tile):
        step(source[start : start + tile], result[start : start + tile])
    back = [0] * len(order)
    for position, d in enumerate(order):
        back[d] = position
    return out.transpose(back)


# -- bits to floats -----------------------------------------------------------------------------------------------------------------


def _unit_floats_type(bits: ShapedArray, *, dtype: Any) -> ShapedArray:
    check_kind("unit_floats", bits, "u")
    return ShapedArray(bits.shape, dtype)


@functools.cache
def _parts(dtype: Any) -> tuple[np.dtype[Any], int, Ndarray, Ndarray]:
    """A float dtype's word type, its mantissa bits, 1, and the word of 1."""
    info = finfo(dtype)
    word, one = np.dtype(f"uint{info.bits}"), np.ones((), dtype)
    return word, int(info.nmant), one, one.view(word)


def unit_floats_block(bits: Ndarray, dtype: Any) -> Ndarray:
    """A block of bits as floats in [0, 1): the high bits become the mantissa of a number in [1, 2), which loses 1."""
    word, mantissa, one, exponent = _parts(dtype)
    unused_bits = bits.dtype.type(8 * bits.dtype.itemsize - mantissa)

    def step(part: Ndarray, out: Ndarray) -> None:
        words = out.view(word)
        np.right_shift(part, unused_bits, out=words, casting="unsafe", dtype=part.dtype)
        np.bitwise_or(words, exponent, out=words)
        np.subtract(out, one, out=out)

    return _fill_in_tiles(bits, dtype, step)


def _unit_floats_lanes(w: Lanes, bits: Lane, *, dtype: Any) -> Lane:
    """The numbers as multiples of the step between them."""
    mantissa = int(finfo(dtype).nmant)
    whole = w.binary("lshr", bits, w.like(bits.bits - mantissa, bits))
    floats = w.convert(whole, "float64" if dtype.name == "float64" else "float32")
    return w.mul(floats, w.like(2.0**-mantissa, floats))


unit_floats_p = define_op(
    "unit_floats",
    type_rule=_unit_floats_type,
    kernel=lambda env, bits, dtype: unit_floats_block(bits, dtype),
    emit=Emit(_unit_floats_lanes, "u", exact=True, cost=3),
)


def unit_floats(bits: Any, dtype: Any) -> Array:
    """Multiples of a fixed step in [0, 1), all equally likely, from the high bits: uint[...] -> f[...]."""
    return bind(unit_floats_p, bits, dtype=dtype)


# -- multiply and add ------------------------------------------------------------------------------------------------------------------

# Floats of 32 and 64 bits are rounded once, as the fused instruction does that every processor with AVX2 has. Narrower ones are
# rounded after each step, as processors without arithmetic of their size do. So samples are the same on all processors.
# (JAX leaves this to the processor: with AVX-512 FP16 it rounds float16 once.)
_WIDER: dict[str, Any] = {"float32": np.float64, "float64": np.longdouble}


def _mul_add(x: Ndarray, y: Ndarray, z: Ndarray) -> Ndarray:
    dtype = x.dtype
    wide = _WIDER.get(dtype.name)
    if wide is None or _power_of_two(y):  # an exact product needs no rounding
        return np.asarray(np.add(np.multiply(x, y), z))
    simple = y.size == 1 and z.size == 1 and max(y.ndim, z.ndim) <= x.ndim
    if available():
        if simple:
            return _fill_in_tiles(x, dtype, lambda part, out: compute(_mul_add_lanes, out, (part,), (y, z)), x.size)
        out = np.empty(np.broadcast_shapes(x.shape, y.shape, z.shape), dtype)
        rows = [np.ascontiguousarray(np.broadcast_to(b, out.shape)).reshape(-1) for b in (x, y, z)]
        compute(_mul_add_lanes, out.reshape(-1), rows)
        return out
    if not simple:
        return np.asarray(x.astype(wide) * y.astype(wide) + z.astype(wide)).astype(dtype)
    buffer = np.empty(min(x.size, _TILE), wide)
    factor, term = y.reshape(()).astype(wide), z.reshape(()).astype(wide)

    def step(part: Ndarray, out: Ndarray) -> None:
        wide_part = buffer[: part.size]
        np.multiply(part, factor, out=wide_part)
        np.add(wide_part, term, out=wide_part)
        out[...] = wide_part

    return _fill_in_tiles(x, dtype, step)


def _power_of_two(y: Ndarray) -> bool:
    return y.size == 1 and abs(math.frexp(y.item())[0]) == 0.5


def _mul_add_type(x: ShapedArray, y: ShapedArray, z: ShapedArray) -> ShapedArray:
    check_kind("mul_add", x, "f")
    check_same_dtype("mul_add", (x, y, z))
    return ShapedArray(broadcast_shape("mul_add", [x.shape, y.shape, z.shape]), x.dtype)


def _mul_add_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:

    x, y, _ = primals
    dx, dy, dz = tangents
    parts = [dz] if dz is not None else []
    if dx is not None:
        parts.append(mul(dx, y))
    if dy is not None:
        parts.append(mul(x, dy))
    total = parts[0] if parts else None
    for part in parts[1:]:
        total = add(total, part)
    return mul_add(*primals), total


def _mul_add_kernel(env: Env, *blocks: Ndarray) -> Ndarray:
    return _mul_add(*align_blocks(blocks))


def _mul_add_lanes(w: Lanes, x: Lane, y: Lane, z: Lane) -> Lane:
    if x.dtype in ("bfloat16", "float16"):
        return w.add(w.round_narrow(w.mul(x, y)), z)
    return w.fma(x, y, z)


mul_add_p = define_op(
    "mul_add", type_rule=_mul_add_type, jvp=_mul_add_jvp, kernel=_mul_add_kernel, emit=Emit(_mul_add_lanes, "f")
)


def mul_add(x: Any, y: Any, z: Any) -> Array:
    """``x * y + z`` elementwise for floats, rounded once as a fused instruction does (float16 and narrower: twice)."""
    return bind(mul_add_p, x, y, z)


# -- uniform to normal ------------------------------------------------------------------------------------------------------------------

# M. Giles, "Approximating the erfinv function" (2010): polynomials in w = -log(1 - x*x), about 2.5 and, for sqrt(w), about 3.
_CENTRE: tuple[Any, ...] = tuple(
    np.float32(c)
    for c in (
        2.81022636e-08,
        3.43273939e-07,
        -3.5233877e-06,
        -4.39150654e-06,
        0.00021858087,
        -0.00125372503,
        -0.00417768164,
        0.246640727,
        1.50140941,
    )
)
_TAILS: tuple[Any, ...] = tuple(
    np.float32(c)
    for c in (
        -0.000200214257,
        0.000100950558,
        0.00134934322,
        -0.00367342844,
        0.00573950773,
        -0.0076224613,
        0.00943887047,
        1.00167406,
        2.83297682,
    )
)


def _horner(coefficients: tuple[Any, ...], w: Ndarray, out: Ndarray) -> None:
    np.multiply(w, coefficients[0], out=out)
    np.add(out, coefficients[1], out=out)
    for c in coefficients[2:]:
        np.multiply(out, w, out=out)
        np.add(out, c, out=out)


def erf_inv_block(x: Ndarray) -> Ndarray:
    """Inverse error function of a block, for float32 and narrower with the polynomials that XLA takes."""
    if x.dtype == np.float64:
        return np.asarray(special_ufunc("erfinv")(x))
    if x.dtype != np.float32:
        return erf_inv_block(x.astype(np.float32)).astype(x.dtype)
    if available():
        return _fill_in_tiles(x, x.dtype, lambda part, out: compute(_erf_inv_lanes, out, (part,)), x.size)
    buffer = np.empty(min(x.size, _TILE), np.float32)

    def step(part: Ndarray, out: Ndarray) -> None:
        w = buffer[: part.size]
        np.multiply(part, part, out=w)
        np.subtract(1, w, out=w)
        np.log(w, out=w)
        np.negative(w, out=w)
        far = (~(w < 5)).nonzero()[0]
        w_far = w[far]
        np.subtract(w, np.float32(2.5), out=w)
        _horner(_CENTRE, w, out)
        if far.size:
            values = np.empty_like(w_far)
            _horner(_TAILS, np.sqrt(w_far) - np.float32(3), values)
            out[far] = np.where(np.isinf(w_far), np.float32(np.inf), values)  # of -1 and 1
        np.multiply(out, part, out=out)

    with np.errstate(all="ignore"):
        return _fill_in_tiles(x, np.float32, step)


def _erf_inv_type(x: ShapedArray) -> ShapedArray:
    check_kind("erf_inv", x, "f")
    return ShapedArray(x.shape, x.dtype)


def _erf_inv_jvp(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, Any]:

    out = erf_inv(*primals)
    (dx,) = tangents
    half_root_pi = literal(np.sqrt(np.pi) / 2, out.dtype)
    return out, None if dx is None else mul(dx, mul(half_root_pi, exp(square(out))))


def _erf_inv_lanes(w: Lanes, x: Lane) -> Lane:
    v = w.neg(libm.log(w, w.sub(w.like(1, x), w.mul(x, x))))
    centre = w.poly(w.sub(v, w.like(2.5, v)), _CENTRE)
    tails = w.poly(w.sub(w.call("sqrt", v), w.like(3, v)), _TAILS)
    infinity = w.like(np.inf, v)
    tails = w.select(w.compare("eq", v, infinity), infinity, tails)  # of -1 and 1
    return w.mul(w.select(w.compare("lt", v, w.like(5, v)), centre, tails), x)


erf_inv_p = define_op(
    "erf_inv_giles",
    type_rule=_erf_inv_type,
    kernel=lambda env, x: erf_inv_block(x),
    jvp=_erf_inv_jvp,
    emit=Emit(_erf_inv_lanes, "f", cost=40),
    shown=Shown(name="erf_inv"),
)


def erf_inv(x: Any) -> Array:
    """`lax.erf_inv`, for float32 and narrower with the rounding errors that JAX's has, which normal samples show."""
    if x.dtype == np.float64:
        return exact(x)
    return bind(erf_inv_p, x)
