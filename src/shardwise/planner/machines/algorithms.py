"""The time of a step of each algorithm in `planner.steps` on this machine: one op that runs it, measured alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from shardwise.base.tree import tree_leaves
from shardwise.engine.device_put import device_put
from shardwise.ir import Steps, bind, trace_program
from shardwise.ops.control import scan
from shardwise.ops.elementwise import binary, transcendental
from shardwise.ops.indexing import search, sorting
from shardwise.ops.indexing.along_dims import along_params
from shardwise.ops.indexing.gather import gather_p
from shardwise.ops.linalg import decompositions, spectral
from shardwise.ops.linalg.fft import fft
from shardwise.ops.products.conv import conv_general_dilated
from shardwise.ops.random.random_bits import threefry_bits_p
from shardwise.ops.reductions import cumulative, window
from shardwise.planner.flops import chained_operations
from shardwise.planner.machines.functions import Least
from shardwise.planner.steps import steps_of

Make = Callable[[np.random.Generator], list[Any]]
_SIDES, _PART = (4, 16, 48, 128, 384), 1 << 14  # of matrices, of which stacks have so many elements
_LITTLE, _ROUNDS, _LINKS = 3, 1000, 4
_TABLES = (512, 1536)  # rows and columns
_NO_VECTORS = {"compute_left_eigenvectors": False, "compute_right_eigenvectors": False}


def measured_steps(least: Least, call: float) -> dict[str, float]:
    """Seconds of a step of each algorithm by its size, under the name and the size: those of an op without what a `call` takes."""
    found: dict[str, float] = {}
    for name, (op, *makes) in ALGORITHMS.items():
        for make in makes:
            steps, seconds = _step_seconds(least, op, make, call)
            found[f"{name} {steps.size:g}"] = seconds
    return found


def chained_seconds(least: Least, call: float) -> float:
    """Seconds of an operation whose operand is the result of the one before, in a loop of a small program."""
    x = device_put(np.full(_LITTLE, 0.5, np.float32))
    program, _ = trace_program(_chains, [x.aval])
    eqn = program.equations[-1]
    took = least(lambda: bind(eqn.op, x, **eqn.params))
    return max(took - call, took / 10) / chained_operations([eqn])


def _chains(x: Any) -> list[Any]:
    return [scan(_chain, x, None, _ROUNDS)[0]]


def _chain(x: Any, nothing: None) -> tuple[Any, None]:
    y = x
    for _ in range(_LINKS):
        y = binary.mul(binary.add(y, x), x)  # stays where it is: no number grows, or is slow to compute with
    return y, None


def _step_seconds(least: Least, op: Callable[..., Any], make: Make, call: float) -> tuple[Steps, float]:
    arrays = [device_put(v) for v in make(np.random.default_rng(0))]

    def flat(*xs: Any) -> list[Any]:
        return tree_leaves(op(*xs))

    program, _ = trace_program(flat, [a.aval for a in arrays])
    eqn = max(program.equations, key=lambda e: steps_of(e).number)  # others prepare operands, or arrange results
    steps = steps_of(eqn)
    took = least(lambda: bind(eqn.op, *arrays, **eqn.params))
    return steps, max(took - call, took / 10) / steps.number


def _normal(*shapes: tuple[int, ...]) -> Make:
    return lambda numbers: [numbers.standard_normal(s).astype(np.float32) for s in shapes]


def _complex(*shapes: tuple[int, ...]) -> Make:
    return lambda numbers: [
        numbers.standard_normal((*s, 2)).astype(np.float32).view(np.complex64)[..., 0] for s in shapes
    ]


def _stack_of_positive(count: int, n: int, operands: int = 1) -> Make:
    def make(numbers: np.random.Generator) -> list[Any]:
        x = numbers.standard_normal((count, n, n)).astype(np.float32)
        return [x @ x.swapaxes(1, 2) + n * np.eye(n, dtype=np.float32)] * operands

    return make


def _with_places(*shape: int) -> Make:
    def make(numbers: np.random.Generator) -> list[Any]:
        places = np.arange(shape[-1], dtype=np.int32) + np.zeros(shape, np.int32)
        return [numbers.standard_normal(shape).astype(np.float32), places]

    return make


def _places_along(dim: int, n: int) -> Make:
    """A table of n rows and columns, and as many positions along a dim."""

    def make(numbers: np.random.Generator) -> list[Any]:
        table = numbers.standard_normal((n, n)).astype(np.float32)
        return [table, np.argsort(table, axis=dim).astype(np.int32)[..., None]]

    return make


def _in_order(length: int, count: int) -> Make:
    return lambda numbers: [np.sort(numbers.standard_normal(length).astype(np.float32)), *_normal((count,))(numbers)]


def _words(numbers: np.random.Generator) -> list[Any]:
    counters = np.arange(1 << 16, dtype=np.uint64)
    return [np.full(1 << 16, word, np.uint32) for word in (1, 2)] + [counters]


def _convolution(strides: int = 1, groups: int = 1) -> Callable[..., Any]:
    def convolve(x: Any, kernel: Any) -> Any:
        return conv_general_dilated(x, kernel, (strides,) * 2, "SAME", feature_group_count=groups)

    return convolve


def _sort_together(*xs: Any) -> Any:
    return sorting.sort(xs)


def _greatest(x: Any) -> Any:
    return sorting.top_k(x, min(64, x.shape[-1] // 8))


def _transform(kind: str, dims: int) -> Callable[..., Any]:
    return lambda *xs: fft(xs[0], kind, xs[0].shape[-dims:])


def _gather_along(dim: int) -> Callable[..., Any]:
    def take(x: Any, places: Any) -> Any:
        return bind(gather_p, x, places, **along_params(2, dim))

    return take


def _accumulate(op: Callable[..., Any]) -> Callable[..., Any]:
    return partial(op, axis=1)


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


def _matrices(most: int) -> tuple[Make, ...]:
    return tuple(_stack_of_positive(max(1, _PART // n**2), n) for n in _SIDES if n <= most)


def _systems(most: int) -> tuple[Make, ...]:
    return tuple(_stack_of_positive(max(1, _PART // n**2), n, 2) for n in _SIDES if n <= most)


_ROWS = _normal((512, 1024))
# By algorithm an op that runs it, and what makes its operands of several sizes.
ALGORITHMS: Mapping[str, tuple[Callable[..., Any], *tuple[Make, ...]]] = {
    "sort": (sorting.sort, *(_normal(shape) for shape in ((64, 600), (16, 4096), (1 << 16,), (1 << 19,)))),
    "sort_short": (sorting.sort, *(_normal(shape) for shape in ((1024, 16), (512, 128), (128, 500)))),
    "argsort": (_sort_together, *(_with_places(*shape) for shape in ((512, 64), (32, 1024), (1 << 15,), (1 << 18,)))),
    "top_k": (_greatest, *(_normal(shape) for shape in ((512, 512), (64, 4096), (8, 1 << 15), (2, 1 << 18)))),
    "search": (
        search.searchsorted,
        *(_in_order(*n) for n in ((1 << 10, 1 << 14), (1 << 14, 1 << 14), (1 << 20, 1 << 12))),
    ),
    "fft": (_transform("fft", 1), *(_complex(shape) for shape in ((512, 128), (64, 2048), (1 << 15,), (1 << 18,)))),
    "fft/library": (_transform("fft", 1), *(_complex(shape) for shape in ((512, 100), (64, 1500), (90_000,)))),
    "fft_several": (_transform("fft", 2), *(_complex(shape) for shape in ((16, 64, 64), (512, 256), (1024, 1024)))),
    "fft_several/library": (_transform("fft", 2), _complex((300, 200))),
    "fft_real": (_transform("rfft", 1), *(_normal(shape) for shape in ((512, 128), (64, 2048), (1 << 17,)))),
    "fft_real/several": (_transform("rfft", 2), _normal((512, 384))),
    "running/cumsum": (_accumulate(cumulative.cumsum), _ROWS),
    "running/cumprod": (_accumulate(cumulative.cumprod), _ROWS),
    "running/cummax": (_accumulate(cumulative.cummax), _ROWS),
    "running/cummin": (_accumulate(cumulative.cummin), _ROWS),
    "take_along": (_gather_along(1), *(_places_along(1, n) for n in _TABLES)),
    "take_along/inner": (_gather_along(0), *(_places_along(0, n) for n in _TABLES)),
    "window": (_max_pool, _normal((16, 96, 96, 32))),
    "convolution": (
        _convolution(),
        _normal((4, 3, 48, 48), (32, 3, 3, 3)),
        _normal((4, 32, 32, 32), (32, 32, 3, 3)),
        _normal((2, 64, 32, 32), (64, 64, 3, 3)),
    ),
    "convolution/strides": (
        _convolution(2),
        _normal((4, 3, 96, 96), (32, 3, 3, 3)),
        _normal((4, 32, 64, 64), (32, 32, 3, 3)),
    ),
    "convolution/groups": (_convolution(groups=16), _normal((2, 16, 64, 64), (16, 1, 3, 3))),
    "convolution_few": (_convolution(), _normal((1, 1, 1, 1 << 17), (1, 1, 1, 65))),
    "random": (_bits, _words),
    "complex_function": (transcendental.exp, _complex((1 << 15,))),
    "complex_division": (binary.div, _complex((1 << 15,), (1 << 15,))),
    "cholesky": (decompositions.cholesky, *_matrices(384)),
    "lu": (decompositions.lu, *_matrices(384)),
    "lu/determinant": (decompositions.det, *_matrices(384)),
    "solve": (decompositions.solve, *_systems(384)),
    "triangular_solve": (partial(decompositions.triangular_solve, lower=True), *_systems(384)),
    "qr": (partial(decompositions.qr, full_matrices=False), *_matrices(384)),
    "eigh": (spectral.eigh, *_matrices(128)),
    "eig": (spectral.eig, *_matrices(48)),
    "eig_values": (partial(spectral.eig, **_NO_VECTORS), *_matrices(128)),
    "svd": (partial(spectral.svd, full_matrices=False), *_matrices(128)),
    "svd_values": (partial(spectral.svd, compute_uv=False), *_matrices(128)),
}
