"""Compiled functions of complex64 arrays, computed in float64. NumPy calls the C library for each element, which is slower.

Results that are zero or not finite are recomputed by the functions of `complex_points`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from shardwise.ops.elementwise import complex_points
from shardwise.ops.elementwise import elementwise_ir as ir
from shardwise.ops.rules.operands import Block
from shardwise.runtime.loops import Function, Loop, lanes_of
from shardwise.runtime.machine import Lane, Lanes, available, libm, thread_count
from shardwise.runtime.memory import pool

FEWEST = 1 << 10  # elements; from here on a compiled loop is faster
_CHUNK = 1 << 12  # elements per chunk of a thread
_SHARED = 1 << 15  # elements; from here on a second thread is faster

Parts = tuple[Lane, Lane]


def _exp(w: Lanes, x: Parts) -> Parts:
    size = libm.exp(w, x[0])
    return w.mul(size, libm.cos(w, x[1])), w.mul(size, libm.sin(w, x[1]))


def _sqrt(w: Lanes, x: Parts) -> Parts:
    real, imag = x
    zero, half = w.like(0, real), w.like(0.5, real)
    size = w.call("sqrt", w.fma(real, real, w.mul(imag, imag)))
    t = w.call("sqrt", w.mul(half, w.add(w.abs(real), size)))
    u = w.select(w.compare("eq", t, zero), zero, w.div(w.mul(half, w.abs(imag)), t))
    right = w.compare("ge", real, zero)
    side = w.select(right, imag, w.add(imag, zero))  # on the cut, with imaginary part -0.0 too, the root above
    return w.select(right, t, u), w.copysign(w.select(right, u, t), side)


def _divided(w: Lanes, x: Parts, y: Parts) -> Parts:
    return ir.divided_parts(w, *x, *y)


def _loop_of(write: Callable[..., Parts], count: int) -> Loop:
    names = [f"x{i}" for i in range(count)]

    def body(w: Function, unit: str) -> None:
        begin = w.integer("mul", unit, "%chunk")
        end = w.least("%size", w.integer("add", begin, "%chunk"))
        half, full = w.vector("float"), f"<{2 * w.width} x float>"
        first, second = (", ".join(f"i32 {2 * i + k}" for i in range(w.width)) for k in (0, 1))
        both = ", ".join(f"i32 {i // 2 + i % 2 * w.width}" for i in range(2 * w.width))

        def step(i: str, _: list[str]) -> None:
            at = w.integer("mul", i, "2")
            operands = []
            for name in names:
                raw = w.value(f"load {full}, ptr {w.element(f'%{name}', at, 'float32')}, align 1")
                parts = [
                    w.let(f"shufflevector {full} {raw}, {full} poison, <{w.width} x i32> <{take}>", "float32")
                    for take in (first, second)
                ]
                operands.append(tuple(w.convert(p, "float64") for p in parts))
            real, imag = (w.convert(p, "float32") for p in write(w, *operands))
            out = w.value(f"shufflevector {half} {real.ref}, {half} {imag.ref}, <{2 * w.width} x i32> <{both}>")
            w.line(f"store {full} {out}, ptr {w.element('%out', at, 'float32')}, align 1")

        w.loop(begin, end, step, step=w.width)

    return Loop(("size", "chunk"), (*names, "out"), lanes_of("float64"), body)


_exp_loop, _sqrt_loop, _div_loop = (
    lru_cache(maxsize=1)(lambda write=write, count=count: _loop_of(write, count))
    for write, count in ((_exp, 1), (_sqrt, 1), (_divided, 2))
)


def _computed(loop: Callable[[], Loop], ufunc: Any, blocks: tuple[Block, ...]) -> Block:
    """`ufunc` of the blocks; by `loop` if they are large and dense in the same order of dims."""
    x = blocks[0]
    alike = all(b.shape == x.shape and b.strides == x.strides and b.dtype == np.complex64 for b in blocks)
    if not (alike and x.size >= FEWEST and x.dtype.isnative and available()):
        return ufunc(*blocks)
    order = sorted(range(x.ndim), key=lambda d: (-abs(x.strides[d]), d))
    flat = [b.transpose(order) for b in blocks]
    if not flat[0].flags.c_contiguous:
        return ufunc(*blocks)
    out = pool.empty(flat[0].shape, x.dtype)
    vectors = lanes_of("float64")
    whole = x.size - x.size % vectors  # NumPy computes the few elements after the last whole vector
    given, result = [b.reshape(-1) for b in flat], out.reshape(-1)
    threads = thread_count() if x.size >= _SHARED else 1
    loop()(-(-whole // _CHUNK), (whole, _CHUNK), (*given, result), threads)
    result[whole:] = ufunc(*[b[whole:] for b in given])
    usual = np.isfinite(result) & (result != 0)  # zeros have signs
    if not usual.all():
        odd = np.flatnonzero(~usual)
        result[odd] = ufunc(*[b[odd] for b in given])
    return out.transpose(np.argsort(order))


def exp(x: Block) -> Block:
    """``e**x``."""
    return _computed(_exp_loop, complex_points.exp, (x,))


def sqrt(x: Block) -> Block:
    """The square root with a non-negative real part."""
    return _computed(_sqrt_loop, complex_points.sqrt, (x,))


def divide(x: Block, y: Block) -> Block:
    """``x / y``; of complex64 in float64, rounded once."""
    return _computed(_div_loop, _divide, (x, y))


def _divide(x: Block, y: Block) -> Block:
    if x.dtype != np.complex64:
        return complex_points.divide(x, y)
    return complex_points.divide(x.astype(np.complex128), y.astype(np.complex128)).astype(np.complex64)
