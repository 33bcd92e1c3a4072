"""Blocks of each dtype with the values that matter, kernels run on them, and how close results have to be."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from shardwise.ops.rules.operands import dtype_kind
from shardwise.runtime.env import SINGLE

RNG = np.random.default_rng(0)
BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(d) for d in ("bool", "int8", "int32", "uint8", "uint32", "float16", BF16, "float32", "complex64")]
WIDE = [np.dtype(d) for d in ("int64", "uint64", "float64", "complex128")]


def values(dtype):
    """Representative elements, the extreme ones included."""
    kind = dtype_kind(dtype)
    if kind == "b":
        return np.array([False, True])
    if kind in "iu":
        info = np.iinfo(dtype)
        return np.array([0, 1, 2, 3, 7, 8, 31, 32, 100, info.max, info.min, info.max // 2, -1, -2, -7, -100]).astype(
            dtype
        )
    reals = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.7, -3.7, 0.125, 0.001, -0.001, 8.0, -20.0, 40.0, -90.0, np.inf,
             -np.inf, np.nan]  # fmt: skip
    if kind == "f":
        return np.array(reals).astype(dtype)
    return np.array([a + 1j * b for a in (0.5, -2.0, 0.0, 3.0) for b in (1.0, -0.25, 0.0)], dtype)


def grid(dtype):
    v = values(dtype)
    bases = v[v != 0] if dtype.kind == "c" else v  # the oracle has NaN for powers of a complex zero
    return np.repeat(bases, len(v)), np.tile(v, len(bases))


def run(op, *blocks, **params):
    return np.asarray(op.block_kernel(SINGLE, *blocks, **params))


def assert_close(got, want, name):
    """Equal dtypes and, for floats, equal to a few units of the last place or to what complex formulas lose."""
    want = np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape, name
    if dtype_kind(got.dtype) not in "fc":
        np.testing.assert_array_equal(got, want, err_msg=name)
        return
    eps = float(ml_dtypes.finfo(got.real.dtype).eps)
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    np.testing.assert_allclose(got.astype(wide), want.astype(wide), rtol=16 * eps, atol=16 * eps, err_msg=name)
