"""Vectors whose number of lanes is no power of two, on their way from block to block."""

from __future__ import annotations

import re

import numpy as np
import pytest

from shardwise.runtime.loops.call import Call
from shardwise.runtime.loops.function import Function
from shardwise.runtime.machine import libm
from shardwise.runtime.machine.lane import Lane
from shardwise.runtime.machine.llvm import available
from shardwise.runtime.machine.odd_widths import whole_width

pytestmark = pytest.mark.skipif(not available(), reason="no compiler")


def _blocks(text: str) -> list[list[str]]:
    """The lines of each block of each function."""
    blocks: list[list[str]] = [[]]
    for line in text.splitlines():
        if re.match(r"[\w.]+:|define", line):
            blocks.append([])
        blocks[-1].append(line)
    return blocks


def _program(width: int) -> Function:
    """A sum of rounds, and of sines of which some need the C library's: loops, branches, values from before them, and constants."""
    w = Function(width, (), ("source", "more", "out"))
    x, y = w.load("%source", "float32"), w.load("%more", "float32")
    total = w.loop(
        0,
        3,
        lambda i, held: [w.add(Lane(held[0], "float32"), w.mul(x, y)).ref],
        [(w.vector("float"), w.constant(0.5, "float32").ref)],
    )
    sums = w.add(Lane(total[0], "float32"), libm.sin(w, y))

    def then() -> list[str]:
        return [w.add(sums, x).ref]

    (out,) = w.branch(w.test("slt", w.value("load i64, ptr %source"), 0), then, [sums.ref], [w.vector("float")])
    w.store(Lane(out, "float32"), "%out")
    return w


@pytest.mark.parametrize("width", [3, 5, 6, 7, 12, 48])
def test_values_are_those_of_whole_vectors(width: int):
    whole = whole_width(width)
    x, y = (np.random.default_rng(seed).normal(size=whole).astype(np.float32) for seed in (0, 1))
    y[:3] = 1e30, np.nan, -0.0  # the first is too large for the usual way
    outs = [np.zeros(whole, np.float32) for _ in range(2)]
    for out, lanes in zip(outs, (width, whole), strict=True):
        Call(_program(lanes).compile_function(), (), 3, 1)(x.ctypes.data, y.ctypes.data, out.ctypes.data)
    assert outs[0].tobytes() == outs[1][:width].tobytes() + bytes(4 * (whole - width))


@pytest.mark.parametrize("width", [3, 48])
def test_none_leaves_its_block(width: int):
    """LLVM would hand it over lane by lane."""
    for block in _blocks(_program(width).text()):
        own = {found[1] for line in block if (found := re.match(r"\s+(%[\w.]+) = ", line))}
        used = {name for line in block for name in re.findall(rf"<{width} x \w+> (%[\w.]+)", line)}
        assert used <= own
        assert not any(re.search(rf"phi <{width} x|@each\.[\w.]+\(<{width} x", line) for line in block)
