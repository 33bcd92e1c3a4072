"""The time of a step of each algorithm in `planner.steps` on this machine: one op that runs it, measured alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from shardwise.base.tree import tree_leaves
from shardwise.engine.device_put import device_put
from shardwise.ir import bind, trace_program
from shardwise.ops.elementwise import binary, transcendental
from shardwise.ops.indexing import search, sorting
from shardwise.ops.linalg import decompositions, spectral
from shardwise.ops.linalg.fft import fft
from shardwise.ops.products.conv import conv_general_dilated
from shardwise.ops.random.random_bits import threefry_bits_p
from shardwise.ops.reductions import cumulative, window
from shardwise.planner.machines.functions import Least
from shardwise.planner.steps import steps_of

Make = Callable[[np.random.Generator], list[Any]]
_NO_VECTORS = {"compute_left_eigenvectors": False, "compute_right_eigenvectors": False}


def measured_steps(least: Least, call: float, bandwidth: float) -> dict[str, float]:
    """Seconds of a step of each algorithm: those of an op without what a `call` and its bytes take."""
    return {name: _step_seconds(least, op, make, call, bandwidth) for name, (op, make) in ALGORITHMS.items()}


def _step_seconds(least: Least, op: Callable[..., Any], make: Make, call: float, bandwidth: float) -> float:
    arrays = [device_put(v) for v in make(np.random.default_rng(0))]

    def flat(*xs: Any) -> list[Any]:
        return tree_leaves(op(*xs))

    program, _ = trace_program(flat, [a.aval for a in arrays])
    eqn = max(program.equations, key=lambda e: steps_of(e)[1])  # others prepare operands, or arrange results
    moved_bytes = sum(a.aval.nbytes for a in eqn.inputs) + sum(v.aval.nbytes for v in eqn.outputs)
    took = least(lambda: bind(eqn.op, *arrays, **eqn.params))
    return max(took - call - moved_bytes / bandwidth, 0.0) / steps_of(eqn)[1]


def _normal(*shapes: tuple[int, ...]) -> Make:
    return lambda numbers: [numbers.standard_normal(s).astype(np.float32) for s in shapes]


def _complex(*shapes: tuple[int, ...]) -> Make:
    return lambda numbers: [
        numbers.standard_normal((*s, 2)).astype(np.float32).view(np.complex64)[..., 0] for s in shapes
    ]


def _positive(n: int, count: int = 1) -> Make:
    def make(numbers: np.random.Generator) -> list[Any]:
        x = numbers.standard_normal((n, n)).astype(np.float32)
        return [x @ x.T + n * np.eye(n, dtype=np.float32)] * count

    return make


def _with_places(numbers: np.random.Generator) -> list[Any]:
    return [numbers.standard_normal(1 << 15).astype(np.float32), np.arange(1 << 15, dtype=np.int32)]


def _sorted_operands(numbers: np.random.Generator) -> list[Any]:
    return [np.sort(numbers.standard_normal(1 << 14).astype(np.float32)), *_normal((1 << 14,))(numbers)]


def _words(numbers: np.random.Generator) -> list[Any]:
    counters = np.arange(1 << 16, dtype=np.uint64)
    return [np.full(1 << 16, word, np.uint32) for word in (1, 2)] + [counters]


def _convolution(x: Any, kernel: Any) -> Any:
    return conv_general_dilated(x, kernel, (1, 1), "SAME")


def _sort_together(*xs: Any) -> Any:
    return sorting.sort(xs)


def _greatest(x: Any) -> Any:
    return sorting.top_k(x, 16)


def _transform(kind: str, dims: int) -> Callable[..., Any]:
    return lambda *xs: fft(xs[0], kind, xs[0].shape[-dims:])


def _running_sum(x: Any) -> Any:
    return cumulative.cumsum(x, 1)


def _bits(*words: Any) -> Any:
    return bind(threefry_bits_p, *words, bit_width=32)


def _max_pool(x: Any) -> Any:
    return bind(
        window.reduce_window_max_p,
        x,
        window_dimensions=(1, 2, 2, 1),
        window_strides=(1, 2, 2, 1),
        padding=((0, 0),) * 4,
        base_dilation=(1,) * 4,
        window_dilation=(1,) * 4,
    )


# By algorithm an op that runs it, and what makes its operands.
ALGORITHMS: Mapping[str, tuple[Callable[..., Any], Make]] = {
    "sort": (sorting.sort, _normal((1 << 19,))),
    "sort_short": (sorting.sort, _normal((512, 128))),
    "argsort": (_sort_together, _with_places),
    "top_k": (_greatest, _normal((64, 4096))),
    "search": (search.searchsorted, _sorted_operands),
    "fft": (_transform("fft", 1), _complex((64, 2048))),
    "fft_several": (_transform("fft", 2), _complex((512, 256))),
    "fft_real": (_transform("rfft", 2), _normal((512, 384))),
    "running": (_running_sum, _normal((2048, 1024))),
    "window": (_max_pool, _normal((16, 96, 96, 32))),
    "convolution": (_convolution, _normal((2, 64, 32, 32), (64, 64, 3, 3))),
    "convolution_few": (_convolution, _normal((1, 1, 1, 1 << 17), (1, 1, 1, 65))),
    "random": (_bits, _words),
    "complex_function": (transcendental.exp, _complex((1 << 15,))),
    "complex_division": (binary.div, _complex((1 << 15,), (1 << 15,))),
    "cholesky": (decompositions.cholesky, _positive(384)),
    "lu": (decompositions.lu, _normal((512, 512))),
    "solve": (decompositions.solve, _normal((400, 400), (400, 32))),
    "triangular_solve": (partial(decompositions.triangular_solve, lower=True), _positive(256, 2)),
    "qr": (partial(decompositions.qr, full_matrices=False), _normal((768, 192))),
    "eigh": (spectral.eigh, _positive(224)),
    "eig": (spectral.eig, _normal((96, 96))),
    "eig_values": (partial(spectral.eig, **_NO_VECTORS), _normal((96, 96))),
    "svd": (partial(spectral.svd, full_matrices=False), _normal((192, 128))),
    "svd_values": (partial(spectral.svd, compute_uv=False), _normal((192, 128))),
}
