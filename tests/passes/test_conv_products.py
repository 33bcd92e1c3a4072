"""Convolutions that are matrix products: which are, and that their results are the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.base import config
from shardwise.ir import ShapedArray, trace_program, verify
from shardwise.passes.conv_products import with_conv_products
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from tests.rounding import assert_normwise

P = sw.sharding.PartitionSpec


def conv(x, w, dims, strides=1, pad=0, **more):
    n = len(dims[0]) - 2
    return lax.conv_general_dilated(x, w, (strides,) * n, [(pad, pad)] * n, dimension_numbers=dims, **more)


LAST, FIRST = ("NWC", "WIO", "NWC"), ("NCW", "OIW", "NCW")
IMAGES = ("NHWC", "HWIO", "NHWC")
CASES: dict[str, Any] = {  # shapes of both operands, how they are convolved, and what becomes of it
    "features last": ((4, 8, 6), (1, 6, 5), LAST, {}, ["reshape", "dot_general"]),
    "one channel": ((4, 8, 1), (1, 1, 5), LAST, {}, ["reshape", "reshape", "dot_general"]),
    "images": ((2, 3, 4, 6), (1, 1, 6, 5), IMAGES, {}, ["reshape", "dot_general"]),
    "slopes of a kernel": ((4, 8, 6), (4, 8, 5), ("CWN", "IWO", "WNC"), {}, ["dot_general", "reshape"]),
    "the whole image": ((2, 3, 4, 6), (3, 4, 6, 5), IMAGES, {}, ["dot_general", "reshape"]),
    "whole rows": ((2, 3, 4, 6), (1, 4, 6, 5), IMAGES, {}, ["reshape", "dot_general", "reshape"]),
    "whole rows, which do not move": ((2, 3, 4, 6), (3, 4, 6, 5), IMAGES, {"strides": 2}, ["dot_general", "reshape"]),
    "kernel first": ((6, 8), (6, 5), ("CN", "IO", "CN"), {}, ["dot_general"]),
    "no space": ((8, 6), (5, 6), ("NC", "OI", "NC"), {}, ["dot_general"]),
    "features first": ((4, 6, 8), (5, 6, 1), FIRST, {}, None),
    "strides": ((4, 8, 6), (1, 6, 5), LAST, {"strides": 2}, None),
    "a window": ((4, 8, 6), (3, 6, 5), LAST, {}, None),
    "padding": ((4, 8, 6), (1, 6, 5), LAST, {"pad": 1}, None),
    "holes": ((4, 8, 6), (1, 6, 5), LAST, {"lhs_dilation": (2,)}, None),
    "groups": ((4, 8, 6), (1, 3, 4), LAST, {"feature_group_count": 2}, None),
}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "complex64", "int32"])
@pytest.mark.parametrize("case", CASES)
def test_cases(monkeypatch, case, dtype):
    monkeypatch.setattr(costs, "FUSED_FEWEST", 8)
    left, right, dims, how, wanted = CASES[case]
    rng = np.random.default_rng(0)
    x, w = (jnp.asarray(rng.normal(size=s) * 4).astype(dtype) for s in (left, right))
    f = lambda x, w: conv(x, w, dims, **how)  # noqa: E731
    program, _ = trace_program(lambda x, w: [f(x, w)], tuple(ShapedArray(a.shape, a.dtype) for a in (x, w)))
    found = verify(with_conv_products(program, Env()), after="conv_products")
    names = [e.op.name for e in found.equations]
    assert names == (["conv_general_dilated"] if wanted is None or dtype == "int32" else wanted)
    with config.override("shardwise_fused", "off"):
        expected = sw.jit(f)(x, w)
    got = sw.jit(f)(x, w)
    assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
    wide = np.complex64 if dtype == "complex64" else np.float32
    # Both round sums of up to 72 products to bfloat16, from float32 sums in two orders.
    assert_normwise(np.asarray(got, wide), np.asarray(expected, wide), 2**-8 if dtype == "bfloat16" else 1e-5)


@pytest.mark.parametrize("spec", [P(), P("x"), P(None, "x"), P("x", "y"), P(None, None, "x")])
def test_training_on_a_mesh(spec):
    x = np.random.default_rng(0).normal(size=(16, 128, 32)).astype(np.float32)
    w = np.random.default_rng(1).normal(size=(1, 32, 16)).astype(np.float32)
    step = sw.jit(sw.value_and_grad(lambda x, w: (jnp.tanh(conv(x, w, LAST)) ** 2).sum(), (0, 1)))
    with config.override("shardwise_fused", "off"):
        value, slopes = step(x, w)
    split = sw.NamedSharding(sw.make_mesh((4, 2), ("x", "y")), spec)
    got, found = step(sw.device_put(x, split), w)
    assert_normwise(np.asarray(got), np.asarray(value), 1e-5)
    for a, b in zip(found, slopes, strict=True):
        assert_normwise(np.asarray(a), np.asarray(b), 1e-5)
