"""Discrete Fourier transforms over the last dims, in the precision of the operand."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from math import log2, prod
from operator import index
from typing import Any

import numpy as np

from shardwise.base.dtypes import to_complex, to_floating, to_inexact
from shardwise.base.shapes import Ndarray
from shardwise.ir import Array, ShapedArray, SmallForm, bind, define_op
from shardwise.ir.explicit import check_divisible
from shardwise.ir.op import Params, Steps, Types
from shardwise.ir.types import Spec
from shardwise.ops.elementwise.casts import convert
from shardwise.ops.linalg import fft_loops
from shardwise.ops.linalg.fft_partition import fft_partition
from shardwise.ops.rules import pocketfft
from shardwise.ops.rules.derivative import do, full_cotangent, later, scalar
from shardwise.ops.rules.operands import check_kind, dtype_kind, operand
from shardwise.runtime.copies import row_major
from shardwise.runtime.env import Env
from shardwise.runtime.machine import thread_count
from shardwise.sharding.rule import Kind, Rule

__all__ = ["FftType", "fft", "fft_p"]

_THREADS_FROM = 1 << 17  # elements from which SciPy's worker threads pay
# Elements from which code of our own pays: 64 rows of 256 take it 39 us and SciPy 51, as many of 128 33 and 30.
_OWN = 1 << 14
# Bytes from which a copy in memory that has its pages is transformed in place. SciPy's own result comes from the system, which hands out
# new pages for so much: of 2048 x 2048 complex64 the transform took 63 ms of both processors, with the copy 44. Only of dense operands:
# to copy a block that is split across costs more than the pages do.
_IN_PLACE = 1 << 25


class FftType(enum.IntEnum):
    """The kind of transform: complex to complex, its inverse, real to half a spectrum, and back."""

    FFT = 0
    IFFT = 1
    RFFT = 2
    IRFFT = 3

    @property
    def complex_one(self) -> FftType:
        """The transform of the dims besides the last one."""
        return FftType.FFT if self in (FftType.FFT, FftType.RFFT) else FftType.IFFT


def _fft_type(x: ShapedArray, *, fft_type: FftType, fft_lengths: tuple[int, ...]) -> ShapedArray:
    k = len(fft_lengths)
    name = fft_type.name
    if k > x.ndim:
        raise ValueError(f"{name} over {k} dims of lengths {fft_lengths} needs as many dims, got shape {x.shape}.")
    last = x.shape[x.ndim - k :]
    if any(n < 0 for n in fft_lengths):
        raise ValueError(f"{name} lengths must not be negative, got {fft_lengths}.")
    if fft_type is FftType.RFFT and fft_lengths and not fft_lengths[-1]:
        raise ValueError(f"RFFT of no elements has no spectrum: its last length must be positive, got {fft_lengths}.")
    if fft_type is FftType.RFFT:
        if x.dtype.name not in ("float32", "float64"):
            raise ValueError(f"RFFT input must be float32 or float64, got {x.dtype.name}")
        dtype = to_complex(x.dtype)
    elif dtype_kind(x.dtype) != "c":
        raise ValueError(f"{name} input must be complex64 or complex128, got {x.dtype.name}")
    else:
        dtype = to_floating(x.dtype) if fft_type is FftType.IRFFT else x.dtype
    checked_count = k - 1 if fft_type is FftType.IRFFT else k
    if last[:checked_count] != fft_lengths[:checked_count]:
        raise ValueError(
            f"{name} input of shape {x.shape} must end in the dims {fft_lengths[:checked_count]} that fft_lengths="
            f"{fft_lengths} names. Pad or slice it first, or use jnp.fft."
        )
    shape = x.shape[: x.ndim - k] + fft_lengths
    if fft_type is FftType.RFFT:
        shape = (*shape[:-1], fft_lengths[-1] // 2 + 1)
    return ShapedArray(shape, dtype, x.weak_type)


def _fft_rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    """Transformed dims must be whole; the others pass through."""
    shape, out_shape = in_types[0].shape, out_types[0].shape
    first = len(shape) - len(params["fft_lengths"])
    sizes = list(shape)
    out = []
    for d, (n, m) in enumerate(zip(shape, out_shape, strict=True)):
        if n != m:
            out.append(len(sizes))  # half a spectrum: a dim of its own
            sizes.append(m)
        else:
            out.append(d)
    kinds = tuple(Kind.PASS if f < first else Kind.REPLICATE for f in range(len(sizes)))
    factors = lambda entries: tuple((f,) if sizes[f] != 1 else () for f in entries)  # noqa: E731
    return Rule((factors(range(len(shape))),), (factors(out),), tuple(sizes), kinds)


def _fft_explicit(in_types: Types, out_types: Types, params: Params, rule: Rule) -> tuple[Spec, ...]:
    """The operand's spec; the transform gathers the dims that it needs whole, and splits the result again."""
    (x,), (out,) = in_types, out_types
    for d, axes in enumerate(x.spec):
        if axes:
            check_divisible("fft", in_types, out, d, axes)
    return (x.spec,)


def _fft_kernel(env: Env, x: Ndarray, *, fft_type: FftType, fft_lengths: tuple[int, ...]) -> Ndarray:
    if not x.size:
        shape = x.shape[: x.ndim - len(fft_lengths)] + fft_lengths
        if fft_type is FftType.RFFT:
            shape = (*shape[:-1], fft_lengths[-1] // 2 + 1)
        dtype = to_complex(x.dtype) if fft_type is FftType.RFFT else x.dtype
        real: Any = to_floating(dtype)
        return np.zeros(shape, real if fft_type is FftType.IRFFT else dtype)
    whole = fft_type in (FftType.FFT, FftType.IFFT)
    if whole and x.size >= _OWN and fft_loops.fits(x, fft_lengths):
        x = x if x.flags.c_contiguous else row_major(x)
        return fft_loops.transform(x, fft_lengths, fft_type is FftType.IFFT)
    return _by_library(x, fft_type, fft_lengths, whole and x.nbytes >= _IN_PLACE and x.flags.c_contiguous)


def _by_library(x: Ndarray, fft_type: FftType, fft_lengths: tuple[int, ...], in_place: bool) -> Ndarray:
    """`in_place`: of a copy."""
    dims = range(x.ndim - len(fft_lengths), x.ndim)
    workers = thread_count() if prod(x.shape) >= _THREADS_FROM else 1

    def transform_with(workers: int) -> Ndarray:
        if fft_type is FftType.RFFT:
            return pocketfft.transform_of_real(x, dims, workers)
        if fft_type is FftType.IRFFT:
            return pocketfft.inverse_to_real(x, dims, fft_lengths[-1], workers)
        given = row_major(x) if in_place else x
        return pocketfft.transform(given, dims, fft_type is FftType.IFFT, workers, in_place)

    try:
        return transform_with(workers)
    except RuntimeError:
        if workers == 1:
            raise
        return transform_with(1)  # the system starts no more threads


def _fft_transpose(ct: Any, x: Any, *, fft_type: FftType, fft_lengths: tuple[int, ...]) -> list[Any]:
    """The transforms are symmetric matrices. Inner elements of half a spectrum stand for two: its slopes, and those by it, come from the
    other of both transforms, with weights.
    """
    if fft_type in (FftType.FFT, FftType.IFFT):
        return [do.fft(ct, fft_type=fft_type, fft_lengths=fft_lengths)]
    last, points = ct.ndim - 1, prod(fft_lengths)
    if fft_type is FftType.RFFT:
        half = do.mul(do.conj(ct), _half_weights(ct, fft_lengths[-1], points, points / 2))
        return [do.fft(half, fft_type=FftType.IRFFT, fft_lengths=fft_lengths)]
    if not ct.size:  # nothing came out, so nothing goes back
        return [full_cotangent(x.aval)]
    half = do.conj(do.fft(ct, fft_type=FftType.RFFT, fft_lengths=fft_lengths))
    out = do.mul(half, _half_weights(half, fft_lengths[-1], 1 / points, 2 / points))
    missing_size = x.aval.shape[last] - out.shape[last]
    edges = tuple((0, missing_size if d == last else 0, 0) for d in range(ct.ndim))
    return [do.pad(out, 0, padding_config=edges) if missing_size else out]


def _half_weights(spectrum: Any, length: int, edge: float, middle: float) -> Any:
    """Weights of half a spectrum of `length` points, in its shape: `middle` of elements that stand for two, `edge` of others."""
    last, dtype = spectrum.ndim - 1, spectrum.dtype
    place = do.iota(dtype=np.dtype(np.int32), shape=(spectrum.shape[last],), dimension=0, out_sharding=None)
    ends = scalar((length + 1) // 2, place.dtype)
    twice = do.and_(do.gt(place, scalar(0, place.dtype)), do.lt(place, ends))
    row = do.select_n(twice, scalar(edge, dtype), scalar(middle, dtype))
    return do.broadcast_in_dim(row, shape=spectrum.shape, broadcast_dimensions=(last,), out_sharding=None)


def _fft_algorithm(ins: Types, outs: Types, params: Params) -> Steps:
    """Butterflies of complex numbers; a transform of real ones takes half."""
    real = any(t.dtype.kind == "f" for t in (*ins, *outs))
    points = prod(params["fft_lengths"])
    butterflies = max(ins[0].size, outs[0].size) * log2(max(points, 2))
    if real:
        several = len(params["fft_lengths"]) > 1
        return Steps("fft_real/several" if several else "fft_real", butterflies / 2, size=points)
    name = "fft" if len(params["fft_lengths"]) == 1 else "fft_several"
    powers = all(n & (n - 1) == 0 for n in params["fft_lengths"])
    return Steps(name if powers else f"{name}/library", butterflies, size=points)


fft_p = define_op(
    "fft",
    type_rule=_fft_type,
    kernel=_fft_kernel,
    rule=_fft_rule,
    explicit=_fft_explicit,
    partition=fft_partition,
    algorithm=_fft_algorithm,
    small=SmallForm(
        later("shardwise.ops.linalg.small_transforms", "transform"),
        later("shardwise.ops.linalg.small_transforms", "transform_fits"),
        mapped=True,
    ),
    jvp="linear",
    transpose=_fft_transpose,
    makes_nan=True,
)


def fft(x: Any, fft_type: Any, fft_lengths: Sequence[int]) -> Array:
    """Transform the last ``len(fft_lengths)`` dims of `x`; IFFT and IRFFT divide by the number of points.

    ``fft_type`` is a `FftType` or its name ('fft', 'ifft', 'rfft', 'irfft'). Operands of other types become complex
    (real for RFFT). The lengths must be those of the dims, but for the last one of IRFFT, which has half of it plus
    one.

    Raises ValueError for lengths, types and dims that do not fit, TypeError where `fft_type` is no transform.

    >>> lax.fft(jnp.ones(4, jnp.complex64), 'FFT', (4,))
    Array([4.+0.j, 0.+0.j, 0.+0.j, 0.+0.j], dtype=complex64)
    """
    if isinstance(fft_type, str):
        if fft_type.upper() not in FftType.__members__ or fft_type not in (fft_type.upper(), fft_type.lower()):
            raise ValueError(f"Unknown FFT type {fft_type!r}; expected 'fft', 'ifft', 'rfft' or 'irfft'.")
        fft_type = FftType[fft_type.upper()]
    elif not isinstance(fft_type, FftType):
        raise TypeError(f"Unknown FFT type value {fft_type!r}; expected a FftType or its name.")
    value = operand("fft", x)
    if fft_type is FftType.RFFT:
        if dtype_kind(value.dtype) == "c":
            raise ValueError("only real valued inputs supported for rfft; take the real part, or use fft.")
        value = convert(value, to_inexact(value.dtype))
    else:
        check_kind("fft", value.aval, "biufc")
        value = convert(value, to_complex(value.dtype))
    lengths = tuple(index(n) for n in fft_lengths)
    if not lengths:
        return value  # type: ignore[return-value]
    return bind(fft_p, value, fft_type=fft_type, fft_lengths=lengths)
