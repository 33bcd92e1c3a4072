"""Maxima and minima: -0.0 lies below 0.0 and NaN beats all, in NumPy's loops as in ours."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.base import config
from shardwise.runtime import extrema

FLOATS = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, ml_dtypes.float8_e4m3fn]
POINTS = [0.0, -0.0, 1.0, -1.0, np.nan, np.inf, -np.inf]
SIZES = (1, 700, 20_000)  # counted as floats, counted as bools, compiled


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64():
        yield


def _order(v):
    return float(v), not np.signbit(v)


def wanted(x, y, largest):
    """What the two functions mean, element by element."""
    pick = max if largest else min
    chosen = [np.nan if np.isnan(p) or np.isnan(q) else pick(p, q, key=_order) for p, q in zip(x, y, strict=True)]
    return np.array(chosen).astype(x.dtype)


def assert_same(got, want):
    """Equal bits, but all NaN are alike."""
    got, want = np.asarray(got), np.asarray(want)
    np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))
    numbers = ~np.isnan(want.astype(np.float64))
    np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(want)[numbers])


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("largest", [True, False])
def test_pairs(dtype, largest):
    pairs = np.array(list(itertools.product(POINTS, POINTS))).T.astype(dtype)
    function = jnp.maximum if largest else jnp.minimum
    want = wanted(pairs[0], pairs[1], largest)
    for times in SIZES:
        x, y = (jnp.asarray(np.tile(v, max(1, times // pairs.shape[1]))) for v in pairs)
        for f in (function, jax.jit(lambda x, y: function(x, y)), jax.jit(lambda x, y: function(x * 1, y) * 1)):
            got = np.asarray(f(x, y))
            assert_same(got, np.tile(want, got.size // want.size))
    for x, y, w in zip(*pairs, want, strict=True):
        assert_same(function(jnp.asarray(x), jnp.asarray(y)), w)


@pytest.mark.parametrize("dtype", FLOATS[:4])
@pytest.mark.parametrize("bound", POINTS)
def test_a_constant_on_either_side(dtype, bound):
    values = np.array(POINTS).astype(dtype)
    for largest, function in ((True, jnp.maximum), (False, jnp.minimum)):
        want = wanted(values, np.full_like(values, bound), largest)
        for times in SIZES:
            x = jnp.asarray(np.tile(values, max(1, times // values.size)))
            forms = (lambda x, f=function: f(x, bound), lambda x, f=function: f(bound, x))
            for f in (*forms, *map(jax.jit, forms)):
                assert_same(f(x), np.tile(want, x.size // values.size))


def test_clip_and_relu():
    x = np.array([0.0, -0.0, -1.0, 2.0, np.nan], np.float32)
    for low, high in ((0.0, 1.0), (-0.0, 1.0), (-1.0, 0.0), (-1.0, -0.0)):
        bounds = [np.full_like(x, v) for v in (low, high)]
        want = wanted(bounds[1], wanted(bounds[0], x, True), False)
        for times in (1, 200, 4000):
            many = jnp.asarray(np.tile(x, times))
            for f in (
                lambda v, low=low, high=high: jax.lax.clamp(jnp.float32(low), v, jnp.float32(high)),
                lambda v, low=low, high=high: jnp.clip(v, low, high),
            ):
                assert_same(f(many), np.tile(want, times))
                assert_same(jax.jit(f)(many), np.tile(want, times))
    assert_same(jax.nn.relu(x), wanted(x, np.zeros_like(x), True))


@pytest.mark.parametrize("dtype", FLOATS[:4])
@pytest.mark.parametrize("fused", ["auto", "off"])
def test_reductions_order_zeros_wherever_they_stand(dtype, fused):
    mesh = jax.make_mesh((4, 2), ("x", "y"))
    with config.override("shardwise_fused", fused):
        for n in (8, 1000, 1 << 15):
            for at in (0, 3, n - 1):
                x = np.full((2, n), -0.0).astype(dtype)
                x[0, at] = 0.0
                for sign in (1, -1):
                    for how in (None, jax.P("x"), jax.P("x", "y")):
                        value = (x * dtype(sign)).T if how is not None else (x * dtype(sign))
                        axis = 0 if how is not None else 1
                        placed = (
                            jnp.asarray(value) if how is None else jax.device_put(value, jax.NamedSharding(mesh, how))
                        )
                        name = "max" if sign > 0 else "min"
                        f = lambda v: getattr(v, name)(axis)  # noqa: B023, E731
                        for g in (f, jax.jit(f)):
                            np.testing.assert_array_equal(np.signbit(np.asarray(g(placed))), [sign < 0, sign > 0])


def test_nan_beats_all_in_reductions():
    for n in (8, 1 << 15):
        x = np.zeros((3, n), np.float32)
        x[0, -1] = x[1, 0] = np.nan
        x[0, 0], x[1, 1] = np.inf, -np.inf
        for name in ("max", "min"):
            got = np.asarray(jax.jit(lambda v: getattr(v, name)(1))(x))  # noqa: B023
            np.testing.assert_array_equal(got, [np.nan, np.nan, 0])


def test_other_types_use_numpy_itself():
    assert extrema.function("max", np.dtype(np.int32)) is np.maximum
    assert extrema.function("min", np.dtype(ml_dtypes.int4)) is np.minimum
    assert extrema.reducer("max", np.dtype(np.complex64)) == np.maximum.reduce
