"""Fourier transforms in small programs: dim by dim, by the functions of the FFT's kernel.

The kernel goes over the dims in this order, too, and scales in the first step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from shardwise.ir import Equation, Spread
from shardwise.ops.linalg.fft import FftType
from shardwise.runtime import costs
from shardwise.runtime.small import BodyWriter, Code, Value, Wanted, by_gufunc

_LOOPS = "numpy.fft._pocketfft_umath."
_PARTS = {"float32": "float32", "complex64": "float32", "float64": "float64", "complex128": "float64"}


def transform_fits(eqn: Equation, spread: Spread) -> bool:
    """Whether all of half a spectrum is there, and the transform takes less than the calls around it."""
    x, params = eqn.inputs[0].aval, eqn.params
    last = params["fft_lengths"][-1]
    if params["fft_type"] is FftType.IRFFT and x.shape[-1] != last // 2 + 1:
        return False
    return spread.elements(x) <= costs.SMALL_TRANSFORM


def transform(body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Wanted) -> list[Value]:
    """The transform of the last dims."""
    code, (x,), kind, lengths = body.code, values, eqn.params["fft_type"], eqn.params["fft_lengths"]
    x = code.in_memory(x)
    inverse = kind.complex_one is FftType.IFFT
    scale = 1 / math.prod(lengths) if inverse else 1.0
    last = len(x.shape) - 1
    dims = list(range(last + 1 - len(lengths), last + 1))
    if kind is FftType.RFFT:
        name = "rfft_n_odd" if lengths[-1] % 2 else "rfft_n_even"
        x, scale, dims = _along(code, x, last, lengths[-1] // 2 + 1, name, scale), 1.0, dims[:-1]
    if kind is FftType.IRFFT:
        for d in dims[:-1]:
            x = _along(code, x, d, x.shape[d], "ifft", 1.0)
        x = _along(code, x, last, lengths[-1], "irfft", scale)
    else:
        for d in dims:
            x = _along(code, x, d, x.shape[d], "ifft" if inverse else "fft", scale)
            scale = 1.0
    return [code.settle_value(x)]


def _along(code: Code, x: Value, d: int, size: int, name: str, scale: float) -> Value:
    """The transform along one dim, of that size then."""
    part = _PARTS[x.dtype]
    real, complex = ("f", "F") if part == "float32" else ("d", "D")
    whole = "complex64" if part == "float32" else "complex128"
    given, out_kind, dtype = (
        (real, complex, whole)
        if name.startswith("rfft")
        else (complex, real, part)
        if name == "irfft"
        else (complex, complex, whole)
    )
    types = f"{given}{real}->{out_kind}"
    factor = code.in_memory(code.constant_value(np.full((), scale, part), part))
    out = code.buffer((*x.shape[:d], size, *x.shape[d + 1 :]), dtype)
    by_gufunc(code, _LOOPS + name, types, [x.shape[d], size], [_last(x, d), factor, _last(out, d)], [1, 0, 1])
    return out


def _last(x: Value, d: int) -> Value:
    """A value with one of its dims behind the others."""
    order = [*(i for i in range(len(x.shape)) if i != d), d]
    return replace(x, shape=tuple(x.shape[i] for i in order), steps=tuple(x.steps[i] for i in order))
