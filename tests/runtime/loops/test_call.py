"""Loops that are compiled by themselves: for which calls a draft does."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shardwise.runtime import costs
from shardwise.runtime.loops import Function, WorkLoop
from shardwise.runtime.machine import llvm

pytestmark = pytest.mark.skipif(not llvm.available(), reason="nothing can be compiled here")


def doubled() -> WorkLoop:
    def body(w: Function, unit: str) -> None:
        place = w.element("%x", unit, "float32")
        x = w.value(f"load float, ptr {place}, align 4")
        w.line(f"store float {w.value(f'fadd float {x}, {x}')}, ptr {place}, align 4")

    return WorkLoop((), ("x",), 1, body)


@pytest.fixture
def compiled(monkeypatch):
    found = []
    before = Function.compile_function
    monkeypatch.setattr(Function, "compile_function", lambda self, slower: found.append(slower) or before(self, slower))
    return found


def test_larger_arrays_are_compiled_for_anew(compiled):
    loop = doubled()
    for n in (10, 30, 10, 1000, 1000):
        x = np.arange(n, dtype=np.float32)
        loop(n, (), (x,), 1)
        np.testing.assert_array_equal(x, 2 * np.arange(n))
    assert compiled == [10 * costs.DRAFT_VISITED, 1000 * costs.DRAFT_VISITED]


def test_a_call_says_how_much_slower_its_draft_is(compiled):
    loop = doubled()
    loop(10, (), (np.zeros(10, np.float32),), 1, 7.0)
    loop.call(10, (), 1)  # of which nothing is known
    loop(20, (), (np.zeros(20, np.float32),), 1)
    assert compiled == [7.0, math.inf]
