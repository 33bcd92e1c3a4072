"""Algorithms that ops have of their own, and how many steps they take."""

import math

import numpy as np
import pytest

import shardwise.numpy as jnp
from shardwise import lax, vmap
from shardwise.lax import linalg
from shardwise.planner.machines.algorithms import ALGORITHMS
from shardwise.planner.steps import named_figure, steps_of, without_steps
from tests.planner.device_programs import array, program_of

SQUARE = array(64, 64)
IMAGE, KERNEL, KERNELS = array(1, 16, 8, 8), array(32, 16, 3, 3), array(3, 2, 16, 3, 3)
CASES = {  # a function, the types of its operands, and of its equation with most steps: the algorithm, their number
    "sort": (jnp.sort, [array(4096)], "sort", 4096 * 12),
    "rows": (jnp.sort, [array(10, 64)], "sort_short", 640 * 6),
    "argsort": (jnp.argsort, [array(4096)], "argsort", 2 * 4096 * 12),
    "top_k": (lambda x: lax.top_k(x, 2)[0], [array(8, 32)], "top_k", 256),
    "searchsorted": (jnp.searchsorted, [array(1024), array(7)], "search", 70),
    "fft": (jnp.fft.fft, [array(8, 64, dtype="complex64")], "fft", 512 * 6),
    "fft2": (jnp.fft.fft2, [array(64, 64, dtype="complex64")], "fft_several", 4096 * 12),
    "rfft": (jnp.fft.rfft, [array(8, 64)], "fft_real", 512 * 3),
    "cumsum": (lambda x: jnp.cumsum(x, 1), [array(8, 32)], "running/cumsum", 256),
    "exp": (jnp.exp, [array(8, dtype="complex64")], "complex_function", 8),
    "division": (jnp.divide, [array(8, dtype="complex64")] * 2, "complex_division", 8),
    "convolution": (lambda x, k: lax.conv(x, k, (1, 1), "SAME"), [IMAGE, KERNEL], "convolution", 2048 * 16 * 9),
    "mapped": (
        lambda x, k: vmap(lambda k: lax.conv(x, k, (1, 1), "SAME"))(k),
        [IMAGE, KERNELS],
        "convolution_few",
        3 * 128 * 16 * 9,
    ),
    "cholesky": (lambda x: linalg.cholesky(x, symmetrize_input=False), [SQUARE], "cholesky", 64**3 / 3),
    "float64": (lambda x: linalg.lu(x)[0], [array(64, 64, dtype="float64")], "lu", 2 * 64**3 * 2 / 3),
    "solve": (jnp.linalg.solve, [SQUARE, SQUARE], "solve", 64**3 * (2 + 2 / 3)),
    "thin": (lambda x: linalg.qr(x, full_matrices=False)[0], [array(64, 8)], "qr", 2 * (64 * 64 - 8**3 / 3)),
    "values": (
        lambda x: linalg.svd(x, compute_uv=False),
        [array(64, 32)],
        "svd_values",
        (64 * 32**2 + 10 * 32**3) / 11,
    ),
    "addition": (jnp.add, [array(8)] * 2, "", 0),
}


@pytest.mark.parametrize("case", CASES)
def test_steps(case):
    f, types, algorithm, count = CASES[case]
    program = program_of(lambda *xs: [f(*xs)], *types)
    found = max(map(steps_of, program.equations), key=lambda named: named[1])
    assert found[0] == algorithm and math.isclose(found[1], count)
    assert not algorithm or named_figure(algorithm, dict.fromkeys(ALGORITHMS, 1.0)) is not None


def test_only_algorithms_with_a_figure_are_taken_apart():
    equations = program_of(lambda x: [jnp.cumsum(jnp.sort(x) + 1)], array(4096)).equations
    others, seconds = without_steps(equations, {"sort": 1e-9})
    assert [e.op.name for e in others] == ["add", "cumsum"] and seconds == pytest.approx(4096 * 12e-9)
    assert without_steps(equations, {"fft": 1.0}) == (equations, 0.0)


class Zeros:
    """In place of random numbers, which take their time."""

    def standard_normal(self, shape):
        return np.zeros(shape)

    def uniform(self, low, high, size):
        return np.zeros(size)


def test_what_is_measured_of_an_algorithm_is_that():
    for name, (op, *makes) in ALGORITHMS.items():
        sizes: set[float] = set()
        for make in makes:
            types = [array(*v.shape, dtype=v.dtype) for v in make(Zeros())]  # type: ignore[arg-type]
            program = program_of(
                lambda *xs, op=op: [*out] if isinstance(out := op(*xs), (tuple, list)) else [out], *types
            )
            steps = max(map(steps_of, program.equations), key=lambda named: named[1])
            assert steps.algorithm == name
            sizes.add(steps.size)
        assert len(sizes) == len(makes)  # a point each


def test_a_step_takes_as_long_as_steps_of_its_size():
    equations = program_of(lambda x: [jnp.sort(x)], array(4, 4096)).equations
    curve = ((1024.0, 1e-9), (16384.0, 4e-9))
    assert without_steps(equations, {"sort": curve})[1] == pytest.approx(4 * 4096 * 12 * 2e-9)


def test_a_variant_without_a_figure_takes_that_of_its_algorithm():
    equations = program_of(lambda x: [lax.cummax(x)], array(64)).equations
    assert without_steps(equations, {"running": 1e-9})[1] == pytest.approx(64e-9)
    assert without_steps(equations, {"running": 1e-9, "running/cummax": 2e-9})[1] == pytest.approx(128e-9)


def test_steps_of_loops_count_in_each_round():
    def f(x):
        return [lax.scan(lambda x, _: (jnp.sort(x), None), x, None, 5)[0]]

    equations = program_of(f, array(1024)).equations
    assert without_steps(equations, {"sort": 1e-9}) == (equations, pytest.approx(5 * 1024 * 10e-9))
