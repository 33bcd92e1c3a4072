"""Block-scaled products against products in float32."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import shardwise.nn as nn


def test_scaled_matmul():
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=shape).astype(ml_dtypes.float8_e4m3fn) for shape in ((2, 3, 64), (2, 5, 64)))
    a_scales, b_scales = (2.0 ** rng.integers(-3, 4, shape) for shape in ((2, 3, 2), (2, 5, 2)))
    got = nn.scaled_matmul(a, b, a_scales.astype(ml_dtypes.float8_e8m0fnu), b_scales.astype(ml_dtypes.float8_e8m0fnu))
    wide = lambda x, s: x.astype(np.float32) * np.repeat(s, 32, 2).astype(np.float32)  # noqa: E731
    want = np.einsum("bmk,bnk->bmn", wide(a, a_scales), wide(b, b_scales))
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, want, rtol=5e-6, atol=5e-6)
    assert nn.scaled_matmul(a, b, a_scales, b_scales, "bfloat16").dtype == ml_dtypes.bfloat16


def test_what_does_not_fit():
    x, s = np.ones((2, 3, 64), np.float32), np.ones((2, 3, 2), np.float32)
    for args in ((x[0], x, s, s), (x, x[..., :32], s, s), (x, x, s[:, :1], s), (x, x, s[..., :0], s[..., :0])):
        with pytest.raises(ValueError, match="scaled_matmul"):
            nn.scaled_matmul(*args)


def test_scaled_dot_general():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_allclose(nn.scaled_dot_general(x, x.T, (((1,), (0,)), ((), ()))), x @ x.T)
    config = nn.get_scaled_dot_general_config("mxfp8")
    assert (config.block_size, config.data_type) == (32, ml_dtypes.float8_e4m3fn)
    with pytest.raises(NotImplementedError, match="scaled_matmul"):
        nn.scaled_dot_general(x, x.T, (((1,), (0,)), ((), ())), configs=[config] * 3)
    with pytest.raises(ValueError, match="mode"):
        nn.get_scaled_dot_general_config("other")


def test_public_names_are_jaxs():
    jax_nn = pytest.importorskip("jax.nn")
    names = {name for name in dir(jax_nn) if not name.startswith("_")}
    assert names <= set(dir(nn))
    assert {n for n in dir(jax_nn.initializers) if not n.startswith("_")} <= set(dir(nn.initializers))
