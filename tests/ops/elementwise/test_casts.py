"""Conversions between dtypes, of values and of bits, and to fewer bits."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

from shardwise.ir import ShapedArray
from shardwise.ops.elementwise import casts
from shardwise.ops.rules.operands import dtype_kind
from tests.ops.elementwise.blocks import BF16, DTYPES, run, values

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the executor runs kernels with these off


@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_casts_are_those_of_the_oracle(source):
    jax = pytest.importorskip("jax")
    x = values(source)
    if dtype_kind(source) == "f":
        x = np.concatenate([x, np.array([1e10, -1e10, 300.0, -1000.0, 2.9, -2.9, 65504.0, 3e38]).astype(source)])
    with pytest.warns(np.exceptions.ComplexWarning) if source.kind == "c" else contextlib.nullcontext():
        wants = jax.jit(lambda v: [jax.lax.convert_element_type(v, d) for d in DTYPES])(x)
    for dtype, want in zip(DTYPES, wants, strict=True):
        got = run(casts.convert_element_type_p, x, new_dtype=dtype, weak_type=False)
        assert got.dtype == dtype
        np.testing.assert_array_equal(got.astype(np.complex128), np.asarray(want).astype(np.complex128), f"to {dtype}")


# ml_dtypes has no conversion between some of these.
NARROW = "int2 uint2 int4 uint4 float4_e2m1fn float8_e4m3fn float8_e5m2 float8_e8m0fnu".split()


def test_casts_between_narrow_types_are_those_of_the_oracle():
    jax = pytest.importorskip("jax")
    x = np.array([0, 1, 2, 3, -1, -0.5, 7, 8], np.float32)
    sources = [
        x.astype(np.int32).astype(d) if d.name.lstrip("u").startswith("int") else x.astype(d)
        for d in map(jax.numpy.dtype, NARROW)
    ]
    wants = jax.jit(lambda vs: [[v.astype(d).astype("float32") for d in NARROW] for v in vs])(sources)
    for source, row in zip(sources, wants, strict=True):
        for dtype, want in zip(NARROW, row, strict=True):
            got = run(casts.convert_element_type_p, source, new_dtype=jax.numpy.dtype(dtype), weak_type=False)
            np.testing.assert_array_equal(got.astype(np.float32), want, f"{source.dtype} to {dtype}")


def test_wide_casts():
    x = np.array([1e30, -1e30, np.nan, 2.0**63, 2.0**64, 1.5e19, -5.0, 7.9])
    top, low = 2**64 - 1, -(2**63)
    got = casts.cast(x, np.dtype("uint64"))
    np.testing.assert_array_equal(got, np.array([top, 0, 0, 2**63, top, 15 * 10**18, 0, 7], np.uint64))
    got = casts.cast(x, np.dtype("int64"))
    np.testing.assert_array_equal(got, [2**63 - 1, low, 0, 2**63 - 1, 2**63 - 1, 2**63 - 1, -5, 7])


def test_bitcasts():
    lax = pytest.importorskip("jax").lax
    f = np.array([1.0, -2.5, np.nan], np.float32)
    for x, dtype in (
        (f, "int32"),
        (f, "int16"),
        (f, "uint8"),
        (np.arange(6, dtype=np.int16).reshape(3, 2), "int32"),
        (f.astype(BF16), "uint16"),
        (f.astype(np.float16), BF16),
    ):
        want = lax.bitcast_convert_type(x, dtype)
        got = run(casts.bitcast_convert_type_p, x, new_dtype=np.dtype(dtype))
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got.view(np.uint8), np.asarray(want).view(np.uint8))
        assert (
            casts.bitcast_convert_type_p.type_rule(ShapedArray(x.shape, x.dtype), new_dtype=np.dtype(dtype)).shape
            == want.shape
        )
    with pytest.raises(TypeError, match="bool"):
        casts.bitcast_convert_type_p.type_rule(ShapedArray((3,), f.dtype), new_dtype=np.dtype(bool))
    with pytest.raises(ValueError, match="last dim"):
        casts.bitcast_convert_type_p.type_rule(ShapedArray((3, 4), np.dtype("int16")), new_dtype=np.dtype("int32"))


@pytest.mark.parametrize("bits", [(5, 10), (8, 7), (4, 3), (8, 23), (5, 2), (2, 1)])
def test_reduce_precision(bits):
    lax = pytest.importorskip("jax").lax
    x = np.array(
        [1.1, 1e30, 1e-30, np.nan, -np.inf, 3.4e38, 65504.0, 65519.0, 65520.0, 6.1e-5, 6.0e-5, -3.3, 0.0, -0.0, 0.2],
        np.float32,
    )
    got = run(casts.reduce_precision_p, x, exponent_bits=bits[0], mantissa_bits=bits[1])
    np.testing.assert_array_equal(got, lax.reduce_precision(x, *bits))


@pytest.mark.parametrize("bits", [(2.5, 3), (5, 2.5), (5.0, 3), ("5", 3)])
def test_reduce_precision_takes_whole_bits(bits):
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        casts.reduce_precision(np.float32(1), *bits)
