"""Dot algorithms do what they say: rounded parts of operands, so many products of them, on every way to a product."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.lax import DotAlgorithm, DotAlgorithmPreset
from tests.rounding import assert_normwise

RNG = np.random.default_rng(3)
A, B = RNG.normal(size=(48, 64)).astype("f"), RNG.normal(size=(64, 40)).astype("f")
EXACT = A.astype("d") @ B.astype("d")
SIZES = np.abs(A.astype("d")) @ np.abs(B.astype("d"))


def to_type(x, name):
    if name == "tf32":
        mantissa, exponent = np.frexp(x.astype("d"))
        return np.ldexp(np.rint(np.ldexp(mantissa, 11)), exponent - 11)
    return x.astype(name).astype("d")


def parts(x, name, count):
    out, rest = [], x.astype("d")
    for _ in range(count):
        out.append(to_type(rest.astype("f"), name))
        rest = rest - out[-1]
    return out


def bf16(left, right, products):
    return DotAlgorithm(ml_dtypes.bfloat16, ml_dtypes.bfloat16, np.float32, left, right, products)


# An algorithm, its type, parts of lhs and rhs, and the products of parts that it takes.
TABLE = [
    ("F16_F16_F32", "float16", 1, 1, {(0, 0)}),
    ("BF16_BF16_F32", ml_dtypes.bfloat16, 1, 1, {(0, 0)}),
    ("BF16_BF16_F32_X3", ml_dtypes.bfloat16, 2, 2, {(0, 0), (0, 1), (1, 0)}),
    ("BF16_BF16_F32_X6", ml_dtypes.bfloat16, 3, 3, {(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (2, 0)}),
    ("BF16_BF16_F32_X9", ml_dtypes.bfloat16, 3, 3, {(i, j) for i in range(3) for j in range(3)}),
    ("TF32_TF32_F32", "tf32", 1, 1, {(0, 0)}),
    ("TF32_TF32_F32_X3", "tf32", 2, 2, {(0, 0), (0, 1), (1, 0)}),
    ("F32_F32_F32", "float32", 1, 1, {(0, 0)}),
    (DotAlgorithmPreset.BF16_BF16_F32_X3, ml_dtypes.bfloat16, 2, 2, {(0, 0), (0, 1), (1, 0)}),
    (bf16(2, 2, 3), ml_dtypes.bfloat16, 2, 2, {(0, 0), (0, 1), (1, 0)}),
    (bf16(1, 2, 2), ml_dtypes.bfloat16, 1, 2, {(0, 0), (0, 1)}),
    (bf16(3, 3, 6), ml_dtypes.bfloat16, 3, 3, {(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (2, 0)}),
]  # fmt: skip


def ways(precision):
    """The product of A and B by every way to one."""
    mesh = sw.sharding.Mesh(np.array(sw.devices()).reshape(2, 4), ("x", "y"))
    put = lambda v, *spec: sw.device_put(v, sw.sharding.NamedSharding(mesh, sw.sharding.PartitionSpec(*spec)))  # noqa: E731
    product = lambda x, y: lax.dot_general(x, y, (((1,), (0,)), ((), ())), precision=precision)  # noqa: E731
    yield "eager", product(jnp.asarray(A), jnp.asarray(B))
    yield "jit", sw.jit(product)(A, B)
    yield "fused", sw.jit(lambda x, y: product(x, y) + 0)(A, B)
    yield "vmap", sw.vmap(lambda row: jnp.dot(row, B, precision=precision))(A)
    yield "rows and columns", sw.jit(product)(put(A, "x"), put(B, None, "y"))
    yield "depth", sw.jit(product)(put(A, None, "y"), put(B, "y"))
    yield "gradient", sw.vjp(lambda x: product(x, B.T), jnp.zeros((48, 40), "f"))[1](jnp.asarray(A))[0]
    yield "conv", lax.conv_general_dilated(A[:, :, None], B.T[:, :, None], (1,), "VALID", precision=precision)[..., 0]


@pytest.mark.parametrize(("precision", "name", "left", "right", "pairs"), TABLE, ids=lambda v: str(v)[:24])
def test_products_are_those_of_the_rounded_parts(precision, name, left, right, pairs):
    lefts, rights = parts(A, name, left), parts(B, name, right)
    want = sum(lefts[i] @ rights[j] for i, j in pairs)
    for way, got in ways(precision):
        error = np.abs(np.asarray(got, "d") - want) / SIZES
        assert got.dtype == np.float32 and error.max() < 1e-6, (way, error.max())


def test_more_products_are_more_exact():
    errors = [
        np.abs(np.asarray(jnp.dot(A, B, precision=f"BF16_BF16_F32{x}"), "d") - EXACT).max() for x in ("", "_X3", "_X6")
    ]
    assert errors[0] > 100 * errors[1] > 1000 * errors[2]


def test_narrow_sums_infinities_and_other_types():
    got = jnp.dot(A, B, precision="F16_F16_F16")
    assert got.dtype == np.float32
    np.testing.assert_array_equal(np.asarray(got), np.asarray(got).astype("float16").astype("f"))
    # Results below 32 have units of 2^-6 in float16, and the factors are rounded to it, too.
    np.testing.assert_allclose(got, EXACT, rtol=0, atol=4 * 2.0**-6)
    huge = np.array([[np.inf, 1], [3e38, np.nan]], "f")
    for precision in ("BF16_BF16_F32_X3", "BF16_BF16_F32_X6"):
        got = np.asarray(jnp.dot(huge, np.diag([2.0**-9, 1]).astype("f"), precision=precision))
        assert np.isposinf(got[0, 0]) and np.isnan(got[1, 1])
    z = (A[:4, :4] + 1j * A[4:8, :4]).astype("complex64")
    assert_normwise(jnp.dot(z, z, precision="BF16_BF16_F32_X3"), z @ z, 5e-5)
    np.testing.assert_array_equal(
        jnp.dot(np.eye(2, dtype="i4"), np.eye(2, dtype="i4"), precision="BF16_BF16_F32"), np.eye(2)
    )


@pytest.mark.parametrize(
    ("precision", "message"),
    [
        ("ANY_F8_ANY_F8_F32", "requires both inputs to have float8"),
        (bf16(2, 2, 5), "num_primitive_operations=5"),
        (bf16(0, 1, 1), "one or more"),
    ],
    ids=str,
)
def test_algorithms_that_do_not_fit(precision, message):
    with pytest.raises(ValueError, match=message):
        jnp.dot(A, B, precision=precision)
    with pytest.raises(ValueError, match=message):
        lax.conv_general_dilated(A[:, :, None], B.T[:, :, None], (1,), "VALID", precision=precision)
