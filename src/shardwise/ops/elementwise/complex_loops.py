"""Functions of complex64 arrays in machine code, computed in float64. NumPy calls the C library for each element, which is slower.

Results that are zero or not finite are recomputed by the functions of `complex_points`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np

from shardwise.base.shapes import Ndarray
from shardwise.ops.elementwise import complex_ir, complex_points
from shardwise.runtime.loops import ufunc_of_loop
from shardwise.runtime.machine import Lane, Lanes, run_in_parts, thread_count
from shardwise.runtime.memory import pool

_CHUNK = 1 << 14  # elements per chunk of a thread
_THREADS_FROM = 1 << 15  # elements; from here on a second thread is faster

Parts = complex_ir.Parts


def _exp(w: Lanes, x: Parts) -> Parts:
    return complex_ir.exp_parts(w, *x)


def _sqrt(w: Lanes, x: Parts) -> Parts:
    return complex_ir.sqrt_parts(w, *x)


def _ufunc(name: str, write: Callable[[Lanes, Parts], Parts]) -> Callable[[], np.ufunc | None]:
    """`write`, of parts in float64, as a ufunc of complex64, made when it is first called for; None where nothing can be compiled."""

    def emit(w: Lanes, x: Lane) -> Lane:
        real, imag = w.parts_of(x)
        wide = w.convert(real, "float64"), w.convert(imag, "float64")
        return w.complex_of(*[w.convert(part, "float32") for part in write(w, wide)])

    return lru_cache(maxsize=1)(lambda: ufunc_of_loop(name, emit, 1, "complex64"))


_exp_loop, _sqrt_loop = _ufunc("exp", _exp), _ufunc("sqrt", _sqrt)
_div_loop = lru_cache(maxsize=1)(lambda: ufunc_of_loop("divide", complex_ir.quotient, 2, "complex64"))


def _compute_blocks(
    made: Callable[[], np.ufunc | None], special: Callable[..., Ndarray], blocks: tuple[Ndarray, ...]
) -> Ndarray:
    """The ufunc of complex64 blocks, and `special` where its results are zero or not finite; `special` for other types."""
    loop = None if any(b.dtype != np.complex64 for b in blocks) else made()
    if loop is None:
        return special(*blocks)
    out = _in_parts(loop, blocks)
    if not (np.isfinite(out).all() and out.all()):  # zeros have signs
        odd = ~np.isfinite(out) | (out == 0)
        out[odd] = special(*[np.broadcast_to(b, out.shape)[odd] for b in blocks])
    return out


def _in_parts(loop: np.ufunc, blocks: tuple[Ndarray, ...]) -> Ndarray:
    """The ufunc's result; that of large blocks by several threads, if they are dense in the same order of dims."""
    x = blocks[0]
    if x.size < _THREADS_FROM or any(b.shape != x.shape or b.strides != x.strides for b in blocks):
        return np.asarray(loop(*blocks))
    order = sorted(range(x.ndim), key=lambda d: (-abs(x.strides[d]), d))
    if not x.transpose(order).flags.c_contiguous:
        return loop(*blocks)
    flat = [b.transpose(order).reshape(-1) for b in blocks]
    out = pool.empty(flat[0].shape, x.dtype)

    def work(run: slice) -> None:
        with np.errstate(all="ignore"):  # each thread has its own
            loop(*[b[run] for b in flat], out=out[run])

    run_in_parts(work, x.size, _CHUNK, thread_count())
    return out.reshape([x.shape[d] for d in order]).transpose(np.argsort(order))


def exp(x: Ndarray) -> Ndarray:
    """``e**x``."""
    return _compute_blocks(_exp_loop, complex_points.exp, (x,))


def sqrt(x: Ndarray) -> Ndarray:
    """The square root with a non-negative real part."""
    return _compute_blocks(_sqrt_loop, complex_points.sqrt, (x,))


def divide(x: Ndarray, y: Ndarray) -> Ndarray:
    """``x / y``; of complex64 in float64, rounded once."""
    return _compute_blocks(_div_loop, _divide, (x, y))


def _divide(x: Ndarray, y: Ndarray) -> Ndarray:
    if x.dtype != np.complex64:
        return complex_points.divide(x, y)
    return complex_points.divide(x.astype(np.complex128), y.astype(np.complex128)).astype(np.complex64)
