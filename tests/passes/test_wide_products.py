"""Products of 16-bit floats between fusable equations are spelled out, so that conversions join the groups around them."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from shardwise import lax
from shardwise.ir import ShapedArray, trace_program, verify
from shardwise.passes.wide_products import with_wide_products
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.machine.llvm import available
from shardwise.runtime.products import amx

pytestmark = pytest.mark.skipif(not available(), reason="no compiler for fused loops")
X = ShapedArray((16, 16), np.dtype("float16"))


@pytest.fixture(autouse=True)
def plain_processor(monkeypatch):
    """Every size pays, and no processor multiplies bfloat16 itself."""
    monkeypatch.setattr(costs, "WIDE_PRODUCTS_FROM", 0)
    monkeypatch.setattr(amx, "has_amx", lambda: False)


def spelled(f, *types):
    program, _ = trace_program(f, types or (X, X))
    return program, verify(with_wide_products(program, Env()))


def names(program):
    return [e.op.name for e in program.equations]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_a_product_between_fusable_equations(dtype):
    aval = X.update(dtype=np.dtype(dtype))
    _, out = spelled(lambda a, b: [lax.sin(lax.dot(a, b))], aval, aval)
    assert names(out) == ["convert_element_type", "convert_element_type", "dot_general", "convert_element_type", "sin"]
    assert out.equations[2].outputs[0].aval.dtype == np.float32
    assert out.outputs[0].aval.dtype == dtype


def test_a_product_alone_stays():
    program, out = spelled(lambda a, b: [lax.dot(a, b)])
    assert names(out) == names(program) == ["dot_general"]


def test_products_of_float32_stay():
    wide = X.update(dtype=np.dtype("float32"))
    program, out = spelled(lambda a, b: [lax.sin(lax.dot(a, b))], wide, wide)
    assert out is program


def test_small_ones_stay(monkeypatch):
    monkeypatch.setattr(costs, "WIDE_PRODUCTS_FROM", 1 << 20)
    _, out = spelled(lambda a, b: [lax.sin(lax.dot(a, b))])
    assert names(out) == ["dot_general", "sin"]


def test_in_loops():
    def f(a, b):
        return [lax.fori_loop(0, 2, lambda i, c: lax.sin(lax.dot(c, b)), a)]

    _, out = spelled(f)
    (loop,) = [e for e in out.equations if e.op.name == "scan"]
    assert "convert_element_type" in names(loop.params["body"])
