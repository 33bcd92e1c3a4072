"""Derivatives in parameters: against differences of SciPy's functions, and JAX's where its series is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.special

import shardwise as sw
from shardwise.ops.elementwise import parameter_slopes as slopes

A = np.array([1.5, -2.0, 0.5, 3.0, -0.5, 2.0, 0.0])
B = np.array([2.5, 1.5, 1.0, 4.0, 2.0, 7.0, 1.5])
C = np.array([3.5, 2.0, 1.5, 4.5, 2.5, 3.0, 5.0])
X = np.array([0.3, -4.0, 20.0, -30.0, 1.0, 0.9, 0.5])
Z = np.array([0.3, -0.7, -4.0, 0.5, 0.95, -0.2, 0.9])
S = np.array([2.5, 1.1, 3.0, 10.0, 1.01, 5.0, 2.0])
Q = np.array([1.5, 0.5, 1.0, 2.0, 3.0, 0.1, 100.0])

CASES = {
    "hyp1f1 a": (slopes.hyp1f1_slope(0), scipy.special.hyp1f1, (A, B, X), 0),
    "hyp1f1 b": (slopes.hyp1f1_slope(1), scipy.special.hyp1f1, (A, B, X), 1),
    "hyp2f1 a": (slopes.hyp2f1_slope(0), scipy.special.hyp2f1, (A, B, C, Z), 0),
    "hyp2f1 b": (slopes.hyp2f1_slope(1), scipy.special.hyp2f1, (A, B, C, Z), 1),
    "hyp2f1 c": (slopes.hyp2f1_slope(2), scipy.special.hyp2f1, (A, B, C, Z), 2),
    "zeta": (slopes.zeta_slope, scipy.special.zeta, (S, Q), 0),
}


@pytest.mark.parametrize("name", CASES)
def test_against_differences(name):
    case: Any = CASES[name]
    slope, function, args, i = case
    step = 1e-3 * np.minimum(1, S - 1) if name == "zeta" else 1e-3
    at = lambda by: function(*args[:i], args[i] + by * step, *args[i + 1 :])  # noqa: E731
    # Of fourth order: its error is that of SciPy's values, some 1e-13 of them, over the step.
    wanted = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step)
    np.testing.assert_allclose(slope(*args), wanted, rtol=1e-8, atol=1e-10)


def test_dtypes_broadcasting_and_what_has_no_value():
    assert slopes.hyp1f1_slope(0)(np.array([[1.5]], np.float32), np.float32(2.5), X.astype("f")).shape == (1, 7)
    assert slopes.zeta_slope(np.float32(2), np.float32(1)).dtype == np.float32
    nowhere = slopes.hyp2f1_slope(0)(np.float64(1), np.float64(2), np.float64(3), np.array([1.5, np.nan, 0.99999]))
    assert np.isnan(nowhere).all()
    assert np.isnan(slopes.zeta_slope(np.array([0.5, 2.0]), np.array([1.0, -1.0]))).all()


def test_as_derivatives():
    jax = pytest.importorskip("jax")
    point = (1.5, 2.5, 3.5, 0.3)
    for name, count in (("hyp1f1", 3), ("hyp2f1", 4), ("zeta", 2)):
        args = point[:2] + point[3:] if name == "hyp1f1" else point[:count]
        every = tuple(range(count))
        ours = sw.jit(sw.grad(getattr(sw.scipy.special, name), every))(*args)
        theirs = jax.grad(getattr(jax.scipy.special, name), every)(*args)
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=2e-5, err_msg=name)
