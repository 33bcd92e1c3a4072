"""Loops that go down columns, as many at a time as a line of the cache holds, stay within their results."""

from __future__ import annotations

import numpy as np
import pytest

from shardwise import lax
from shardwise.ir import ShapedArray, trace_program
from shardwise.runtime.env import Env
from shardwise.runtime.machine import available
from shardwise.runtime.small.kernel import _tools, compile_program

pytestmark = pytest.mark.skipif(not available(), reason="no compiler for small programs")

GUARD = 4096  # bytes before and behind a result


@pytest.mark.parametrize("dtype", ["int8", "bfloat16", "float32", "int32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("shape", [(256, 130), (130, 256), (192, 192), (513, 17), (9, 700)])
def test_nothing_is_written_outside(dtype, shape):
    aval = ShapedArray(shape, np.dtype(dtype))
    turned = trace_program(lambda x, y: [lax.transpose(x, (1, 0)), lax.transpose(y, (1, 0))], (aval, aval))[0]
    rng = np.random.default_rng(0)
    xs = [rng.integers(-99, 99, shape).astype(dtype) for _ in range(2)]
    memory = [np.full(xs[0].nbytes + 2 * GUARD, 0xAB, np.uint8) for _ in xs]
    results = [m[GUARD:-GUARD].view(dtype).reshape(shape[::-1]) for m in memory]
    run = compile_program(turned, [(), ()], Env(), in_parts=True).run
    run(*xs, **{f"r{j}": r for j, r in enumerate(results)}, tools=_tools)
    for m, x, r in zip(memory, xs, results, strict=True):
        np.testing.assert_array_equal(r, x.T)
        assert (m[:GUARD] == 0xAB).all() and (m[-GUARD:] == 0xAB).all()
