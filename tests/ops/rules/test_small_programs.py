"""Ops that small programs hold as programs of others, in loops beside NumPy's kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.base import config
from shardwise.ir import ExactParams, trace_program
from shardwise.ops.random.small_gamma import small_gamma
from shardwise.ops.rules import small_programs
from shardwise.passes.inline import inline_calls
from shardwise.passes.small import runs_small
from shardwise.runtime.env import SINGLE


def check(f, *args, tolerance=1e-5):
    """`f` is all of it small, and gives in a loop what it gives op by op; under `vmap`, too."""
    args = tuple(map(jnp.asarray, args))
    _check(f, *args, tolerance=tolerance)
    _check(
        sw.vmap(f),
        *[jnp.stack([a, a[::-1]]) if a.dtype != bool else jnp.stack([a, a]) for a in args],
        tolerance=tolerance,
    )


def _check(f, *args, tolerance):
    program = inline_calls(trace_program(lambda *a: [f(*a)], [a.aval for a in args])[0])
    assert all(runs_small(e, SINGLE) for e in program.equations)
    zero = jnp.zeros((), jnp.int32)

    def looped(*args):
        def step(i, found):
            return f(*[a + i.astype(a.dtype) if a.dtype != bool else a for a in args])

        return lax.fori_loop(zero, zero + 2, step, f(*args))

    found = []
    for choice in ("auto", "off"):
        with config.override("shardwise_fused", choice):
            found.append(np.asarray(sw.jit(looped)(*args)))
    assert found[0].dtype == found[1].dtype
    if found[0].dtype.kind == "f":
        np.testing.assert_allclose(*found, rtol=tolerance, atol=tolerance)
    else:
        np.testing.assert_array_equal(*found)


CONVOLUTIONS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "line": ((1, 1, 9), (1, 1, 4), {"padding": [(3, 3)]}),
    "cut": ((1, 2, 9), (3, 2, 2), {"padding": [(-1, 2)]}),
    "strides": ((2, 3, 7, 6), (4, 3, 3, 2), {"window_strides": (2, 3), "padding": "SAME"}),
    "gaps": ((1, 2, 9), (2, 2, 3), {"rhs_dilation": (2,), "padding": "VALID"}),
    "spread": ((1, 2, 4), (2, 2, 3), {"lhs_dilation": (2,), "padding": [(2, 1)]}),
    "feature groups": ((2, 6, 5), (4, 3, 2), {"feature_group_count": 2, "padding": "SAME"}),
    "channels apart": ((1, 3, 5, 5), (6, 1, 2, 2), {"feature_group_count": 3, "padding": "VALID"}),
    "batch groups": ((4, 3, 5), (6, 3, 2), {"batch_group_count": 2, "padding": "SAME"}),
    "no places": ((3, 4), (5, 4), {"padding": []}),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name):
    left, right, options = CONVOLUTIONS[name]
    dtype = "int32" if "groups" in name else "float32"
    params: dict[str, Any] = {"window_strides": (1,) * (len(left) - 2), **options}
    rng = np.random.default_rng(0)
    x, k = (rng.integers(-4, 5, shape).astype(dtype) for shape in (left, right))
    check(lambda x, k: lax.conv_general_dilated(x, k, **params), x, k)


def test_convolutions_in_other_orders():
    rng = np.random.default_rng(1)
    x, k = rng.normal(size=(2, 5, 6, 3)).astype("f"), rng.normal(size=(2, 3, 3, 4)).astype("f")
    dims = ("NHWC", "HWIO", "HNWC")
    check(lambda x, k: lax.conv_general_dilated(x, k, (1, 2), "SAME", dimension_numbers=dims), x, k)


WINDOWS = [
    ((9,), (3,), (1,), "SAME", (1,), (1,)),
    ((9,), (3,), (2,), "VALID", (2,), (2,)),
    ((4, 7), (1, 3), (1, 2), [(0, 0), (2, 1)], (1, 1), (1, 1)),
    ((5, 6), (2, 2), (1, 1), "SAME_LOWER", (1, 1), (1, 2)),
]


@pytest.mark.parametrize("window", WINDOWS)
def test_windows(window):
    shape, *params = window
    values = np.array([-np.inf, -1, -0.0, 0.0, 0.5, 2, np.inf, np.nan], "f")
    x = np.random.default_rng(2).choice(values, shape)
    ints = np.random.default_rng(3).integers(-9, 9, shape).astype("i4")
    turn = WINDOWS.index(window)
    start, computation = [(0.0, lax.add), (1.0, lax.mul), (-np.inf, lax.max), (np.inf, lax.min)][turn]
    check(lambda x: lax.reduce_window(x, np.float32(start), computation, *params), x)
    first, combine = [(-1, lax.bitwise_and), (0, lax.bitwise_or), (0, lax.bitwise_xor), (0, lax.add)][turn]
    check(lambda x: lax.reduce_window(x, np.int32(first), combine, *params), ints)


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8"])
def test_searches(dtype):
    for n, side in [(1, "left"), (7, "right"), (8, "left")]:
        a = np.sort(np.random.default_rng(n).integers(0, 5, n)).astype(dtype)
        v = np.arange(8).reshape(2, 4).astype(dtype)
        if dtype == "float32":
            a[-1], v[0, 0] = np.nan, np.nan
        check(lambda a, v, side=side: jnp.searchsorted(a, v, side=side), a, v)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_gamma_samples(dtype):
    with sw.enable_x64(dtype == "float64"):
        a = np.array([0.1, 0.5, 1, 1.5, 30, 1e4, np.nan, 0, -1, np.inf], dtype)
        for sample in (sw.random.gamma, sw.random.loggamma)[: 2 if dtype == "float32" else 1]:
            check(lambda a, sample=sample: sample(sw.random.key(7), a), a, tolerance=3e-5)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_determinants(n):
    x = np.random.default_rng(n).normal(size=(2, n, n)).astype("f")
    singular = np.where(np.arange(n) == n - 1, 0, x) * np.float32(0.5)
    stack = np.concatenate([x, singular, np.where(x > 0.5, np.nan, x)])
    check(jnp.linalg.det, stack)
    check(lambda x: jnp.stack(jnp.linalg.slogdet(x)), stack)


def test_programs_know_no_mesh_in_context():
    mesh = sw.make_mesh((2,), ("x",), axis_types=(sw.sharding.AxisType.Explicit,))
    types = sw.random.key(0).aval, jnp.full(7, 1.5).aval  # of a size that no other test has
    with sw.set_mesh(mesh):
        program = small_programs._trace_function(small_gamma, types, ExactParams({"log_space": False}))
    assert all(v.aval.mesh is None for e in program.equations for v in (*e.inputs, *e.outputs))
