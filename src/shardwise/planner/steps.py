"""Steps of ops that have an algorithm of their own: sorts, Fourier transforms, factorizations, running reductions, random bits.

In: an equation with local types. Out: the algorithm and how many of its steps the equation takes. What a step takes is a figure of the
machine (`Chip.steps`); a machine without that figure counts only the bytes of such an op.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache

from shardwise.ir import Equation, Op, ShapedArray, unwrapped
from shardwise.ir.op import Params, Types

FEW = 64  # pairs of channels up to which a convolution is computed in another way
SHORT = 512  # elements of rows that are sorted in another way than long ones
Count = Callable[[Types, Types, Params], float]


def without_steps(equations: Sequence[Equation], figures: Mapping[str, float]) -> tuple[Sequence[Equation], float]:
    """The equations that have no algorithm with a figure, and the seconds of the steps of the others."""
    taken = [steps_of(eqn) for eqn in equations]
    if not any(name in figures for name, _ in taken):
        return equations, 0.0
    others = [eqn for eqn, (name, _) in zip(equations, taken, strict=True) if name not in figures]
    return others, math.fsum(count * figures.get(name, 0.0) for name, count in taken)


def steps_of(eqn: Equation) -> tuple[str, float]:
    """The algorithm of an equation and the number of its steps; 0 of ops that have none of their own."""
    op, params, _ = unwrapped(eqn.op, eqn.params)
    ins, outs = tuple([a.aval for a in eqn.inputs]), tuple([v.aval for v in eqn.outputs])
    found = _algorithms().get(op)
    if found is not None:
        name, count = found
        return _variant(name, ins, params), count(ins, outs, params)
    if op.emit is None:
        return ("special", _elements(ins, outs, params)) if op.rule is None and op.transcendental else ("", 0.0)
    divides = op.divisor is not None
    if any(t.dtype.kind == "c" for t in ins) and (divides or "c" not in op.emit.kinds):
        return "complex_division" if divides else "complex_function", _elements(ins, outs, params)
    return "", 0.0


def _variant(name: str, ins: Types, params: Params) -> str:
    """The algorithm that an op takes for these operands."""
    if name == "sort":
        key, *others = ins
        return "argsort" if others else "sort_short" if _length(key, params) <= SHORT else name
    if name == "fft":
        real = params["fft_type"].name in ("RFFT", "IRFFT")
        return "fft_real" if real else name if len(params["fft_lengths"]) == 1 else "fft_several"
    if name == "convolution":
        to, of = params["dimension_numbers"].rhs_spec[:2]
        return name if ins[1].shape[to] * ins[1].shape[of] >= FEW else "convolution_few"
    wanted = [params[p] for p in ("vectors", "left", "right") if p in params]
    return f"{name}_values" if name in ("svd", "eig") and not any(wanted) else name


@cache
def _algorithms() -> Mapping[Op, tuple[str, Count]]:
    """By op its algorithm, and what counts its steps."""
    from shardwise.ops.indexing.search import searchsorted_p  # start-up time: plans for other machines do without
    from shardwise.ops.indexing.sorting import sort_p, top_k_p
    from shardwise.ops.linalg import decompositions, reflectors, spectral
    from shardwise.ops.linalg.fft import fft_p
    from shardwise.ops.products.conv import conv_general_dilated_p
    from shardwise.ops.random.random_bits import random_bits_halves_p, random_block_p, threefry_bits_p
    from shardwise.ops.random.rng_bits import rng_bit_generator_p
    from shardwise.ops.reductions import cumulative, window

    running = (cumulative.cumsum_p, cumulative.cumprod_p, cumulative.cummax_p, cumulative.cummin_p)
    windows = (window.reduce_window_sum_p, window.reduce_window_max_p, window.reduce_window_min_p)
    random = (threefry_bits_p, random_block_p, random_bits_halves_p, rng_bit_generator_p)
    return {
        sort_p: ("sort", _comparisons),
        top_k_p: ("top_k", _elements_read),
        searchsorted_p: ("search", _halvings),
        fft_p: ("fft", _butterflies),
        conv_general_dilated_p: ("convolution", _multiplications),
        **dict.fromkeys(running, ("running", _elements)),
        **dict.fromkeys(windows, ("window", _elements_of_windows)),
        **dict.fromkeys(random, ("random", _elements)),
        decompositions.cholesky_p: ("cholesky", _flops(lambda m, n: n**3 / 3)),
        **dict.fromkeys(
            (decompositions.lu_p, decompositions.det_p, decompositions.slogdet_p),
            ("lu", _flops(lambda m, n: m * n * n - n**3 / 3)),
        ),
        decompositions.solve_p: ("solve", _solve),
        decompositions.triangular_solve_p: ("triangular_solve", _triangular_solve),
        **dict.fromkeys((decompositions.qr_p, reflectors.geqrf_p), ("qr", _qr)),
        spectral.eigh_p: ("eigh", _flops(lambda m, n: n**3)),
        spectral.svd_p: ("svd", _flops(lambda m, n: max(m, n) * min(m, n) ** 2)),
        **dict.fromkeys((spectral.eig_p, spectral.schur_p), ("eig", _flops(lambda m, n: n**3))),
    }


def _elements(ins: Types, outs: Types, params: Params) -> float:
    return float(sum(t.size for t in outs))


def _elements_read(ins: Types, outs: Types, params: Params) -> float:
    return float(ins[0].size)


def _elements_of_windows(ins: Types, outs: Types, params: Params) -> float:
    return float(outs[0].size * math.prod(params["window_dimensions"]))


def _comparisons(ins: Types, outs: Types, params: Params) -> float:
    """Those of all rows; operands beside the keys are moved once they are sorted, as often."""
    return len(ins) * ins[0].size * math.log2(max(_length(ins[0], params), 2))


def _length(key: ShapedArray, params: Params) -> int:
    """Of the rows that are sorted."""
    dim: int = params["dimension"]
    return key.shape[dim]


def _halvings(ins: Types, outs: Types, params: Params) -> float:
    return outs[0].size * math.log2(max(ins[0].shape[-1], 2))


def _butterflies(ins: Types, outs: Types, params: Params) -> float:
    """Of complex numbers; a transform of real ones takes half."""
    points = math.prod(params["fft_lengths"])
    real = any(t.dtype.kind == "f" for t in (*ins, *outs))
    size = max(ins[0].size, outs[0].size)
    return size * math.log2(max(points, 2)) / (2 if real else 1)


def _multiplications(ins: Types, outs: Types, params: Params) -> float:
    """Of a convolution: each element of the result takes one element of the kernel after the other, but for its output channels."""
    channels: int = params["dimension_numbers"].rhs_spec[0]
    return outs[0].size * ins[1].size / ins[1].shape[channels]


def _flops(of_matrix: Callable[[float, float], float]) -> Count:
    """Multiply-adds of float32 for a stack of [m, n] matrices."""

    def count(ins: Types, outs: Types, params: Params) -> float:
        *batch, m, n = ins[0].shape
        return math.prod(batch) * of_matrix(m, n) * _width(ins)

    return count


def _qr(ins: Types, outs: Types, params: Params) -> float:
    """The factors, and the rows of q that are wanted: all of them where it is full."""
    *batch, m, n = ins[0].shape
    k = min(m, n)
    factors = 2 * m * n * k - (m + n) * k * k + 2 * k**3 / 3
    made = 2 * (m * m * k - m * k * k + k**3 / 3) if params.get("full") else m * k * k - k**3 / 3
    return _width(ins) * math.prod(batch) * (factors + made)


def _solve(ins: Types, outs: Types, params: Params) -> float:
    n = ins[0].shape[-1]
    return _width(ins) * (math.prod(ins[0].shape[:-2]) * 2 * n**3 / 3 + 2.0 * n * outs[0].size)


def _triangular_solve(ins: Types, outs: Types, params: Params) -> float:
    return _width(ins) * float(ins[0].shape[-1] * outs[0].size)


def _width(ins: Types) -> float:
    """How much longer a number takes than one of float32."""
    dtype = ins[0].dtype
    return dtype.itemsize / 8 * 4 if dtype.kind == "c" else max(dtype.itemsize / 4, 1)
