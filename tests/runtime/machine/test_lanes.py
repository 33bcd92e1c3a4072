"""What `Lanes` does with vectors as a whole."""

from __future__ import annotations

import numpy as np
import pytest

from shardwise.runtime.loops.call import Call
from shardwise.runtime.loops.function import Function
from shardwise.runtime.machine import libm
from shardwise.runtime.machine.llvm import available

pytestmark = pytest.mark.skipif(not available(), reason="no compiler")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("width", [1, 2, 4, 8, 16])
def test_squares_are_transposed_bit_by_bit(dtype: str, width: int):
    w = Function(width, (), ("source", "out"))
    rows = [w.load(w.element("%source", i * width, dtype), dtype) for i in range(width)]
    for i, column in enumerate(w.transpose_rows(rows)):
        w.store(column, w.element("%out", i * width, dtype))
    bits = np.random.default_rng(0).integers(0, 256, (width, width * np.dtype(dtype).itemsize), np.uint8)
    square = bits.view(dtype)  # NaN of all kinds among them
    out = np.empty_like(square)
    Call(w.compile_function(), (), 2, 1)(square.ctypes.data, out.ctypes.data)
    assert out.tobytes() == square.T.tobytes()


@pytest.mark.parametrize("width", [16, 32, 48, 80])
def test_vectors_of_any_number_of_registers_are_written_for_wide_ones(width: int):
    """Such as short rows side by side fill: 48 lanes are three registers of AVX-512."""
    import llvmlite.binding as binding

    w = Function(width, (), ("source", "out"), wide=True)
    x = w.load("%source", "float32")
    w.store(w.maximum(libm.exp(w, x), x), "%out")
    binding.parse_assembly(w.text()).verify()
    assert w.text().count("avx512.mask.scalef.ps.512(") == width // 16 + 1  # and the declaration
