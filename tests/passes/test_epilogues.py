"""Which products are joined with the groups that use them. What they compute is tested in tests/runtime/products."""

from __future__ import annotations

import numpy as np
import pytest

from shardwise import lax
from shardwise.base import config
from shardwise.ir import ShapedArray, trace_program, verify
from shardwise.passes.epilogues import with_epilogues
from shardwise.passes.schedule import schedule
from shardwise.runtime.env import Env
from shardwise.runtime.machine.llvm import available
from shardwise.runtime.products import blas, panels

pytestmark = pytest.mark.skipif(
    not available() or blas.library() is None, reason="no compiler, or no products of our own"
)
TALL, WIDE = (ShapedArray(shape, np.dtype("float32")) for shape in ((2048, 64), (64, 2048)))
SMALL = ShapedArray((16, 16), np.dtype("float32"))


@pytest.fixture(autouse=True)
def cache(monkeypatch):
    """What pays follows from the cache; here it is that of every machine."""
    monkeypatch.setattr(panels, "BYTES", 1 << 20)


def joined(f, *types):
    program, _ = trace_program(f, types or (TALL, WIDE))
    grouped = schedule(program, Env())
    return grouped, verify(with_epilogues(grouped, Env()))


def names(program):
    return [e.op.name for e in program.equations]


def test_a_large_product_and_the_group_after_it():
    before, out = joined(lambda a, b: [lax.tanh(lax.mul(lax.dot(a, b), 2.0))])
    assert names(before) == ["dot_general", "fused"]
    assert names(out) == ["epilogue"]
    assert out.outputs == before.outputs


def test_a_small_product_stays():
    before, out = joined(lambda a, b: [lax.tanh(lax.dot(a, b))], SMALL, SMALL)
    assert out is before


def test_not_without_products_of_our_own():
    with config.override("shardwise_blas", "numpy"):
        before, out = joined(lambda a, b: [lax.tanh(lax.dot(a, b))])
    assert out is before


def test_in_loops():
    def f(a, b):
        return [
            lax.fori_loop(0, 2, lambda i, c: lax.tanh(lax.mul(lax.dot(a, b), c)), lax.full((2048, 2048), np.float32(1)))
        ]

    _, out = joined(f)
    (loop,) = [e for e in out.equations if e.op.name == "scan"]
    assert "epilogue" in names(loop.params["body"])
