"""Helpers that stay awake: every kernel is done once and wholly, whoever helps, from many threads, and after a fork."""

from __future__ import annotations

import ctypes
import os
import threading

import numpy as np
import pytest

from shardwise.runtime.machine import llvm, standby

KERNEL = """
define void @fill(ptr %job, ptr %pointers, ptr %counter) {
  %size_at = getelementptr i64, ptr %job, i64 0
  %size = load i64, ptr %size_at
  %rounds_at = getelementptr i64, ptr %job, i64 1
  %rounds = load i64, ptr %rounds_at
  %out = load ptr, ptr %pointers
  br label %take
take:
  %i = atomicrmw add ptr %counter, i64 1 monotonic
  %more = icmp ult i64 %i, %size
  br i1 %more, label %spin, label %exit
spin:
  %n = phi i64 [ 0, %take ], [ %next, %spin ]
  %next = add i64 %n, 1
  %at = getelementptr i64, ptr %out, i64 %i
  %old = load volatile i64, ptr %at
  %new = add i64 %old, 1
  store volatile i64 %new, ptr %at
  %again = icmp ult i64 %next, %rounds
  br i1 %again, label %spin, label %take
exit:
  ret void
}
"""

pytestmark = pytest.mark.skipif(not llvm.available(), reason="nothing can be compiled here")


@pytest.fixture(scope="module")
def fill():
    """`fill(helpers, size, rounds, threads)` counts to `rounds` in each of `size` places."""
    code = llvm.compile_function("fill", KERNEL)
    kernel = code.as_ctypes(ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3))

    def run(helpers: standby.Standby, size: int, rounds: int, threads: int, rouse: bool = True) -> np.ndarray:
        out, job = np.zeros(size, np.int64), np.array([size, rounds], np.int64)
        pointers, counter = (ctypes.c_void_p * 1)(out.ctypes.data), ctypes.c_int64(0)
        helpers.run(kernel, job.ctypes.data, ctypes.addressof(pointers), ctypes.addressof(counter), threads, rouse)
        return out

    return run


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_all_is_done_once(fill, threads):
    helpers = standby.Standby()
    for size in (1, 2, 7, 100, 1000):
        for _ in range(30):
            assert (fill(helpers, size, 20, threads) == 20).all()
    assert helpers._started == threads - 1
    assert helpers._mail[standby._INSIDE] == helpers._mail[standby._BUSY] == helpers._mail[standby._POSTED] == 0


def test_many_callers(fill):
    helpers = standby.Standby()
    wrong: list[int] = []

    def call(size: int) -> None:
        for _ in range(100):
            if not (fill(helpers, size, 50, 3) == 50).all():
                wrong.append(size)

    threads = [threading.Thread(target=call, args=(10 + i,)) for i in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_sleepers_need_not_be_woken(fill):
    helpers = standby.Standby()
    assert (fill(helpers, 100, 10, 4, rouse=False) == 10).all()
    assert helpers._started == 0


@pytest.mark.parametrize(("pause", "woken"), [(10.0, True), (0.0, False)])
def test_calls_in_a_row_wake_helpers(fill, monkeypatch, pause, woken):
    helpers = standby.Standby()
    fill(helpers, 100, 10, 2, rouse=False)  # what is compiled now has the usual patience
    monkeypatch.setattr(standby, "_WATCH", pause)
    for _ in range(standby._STREAK - 1):
        fill(helpers, 100, 10, 2, rouse=False)
    assert helpers._started == 0
    for _ in range(2):
        assert (fill(helpers, 100, 10, 2, rouse=False) == 10).all()
    assert (helpers._started == 1) is woken


def test_no_more_helpers_than_seats(fill):
    """Helpers that are awake after a call for many leave a call for few alone."""
    helpers = standby.Standby()
    for _ in range(20):
        fill(helpers, 64, 100, 6)
        assert (fill(helpers, 64, 100, 2) == 100).all()
        assert helpers._mail[standby._INSIDE] == 0


def test_without_a_compiler(fill, monkeypatch):
    def none(name: str, text: str) -> None:
        raise RuntimeError("no compiler")

    helpers = standby.Standby()
    monkeypatch.setattr(llvm, "compile_function", none)
    assert (fill(helpers, 100, 10, 3) == 10).all()
    assert (fill(helpers, 100, 10, 3) == 10).all()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:os.fork:RuntimeWarning")  # JAX, if loaded, warns
def test_a_forked_child_has_helpers_of_its_own(fill):
    helpers = standby.Standby()
    fill(helpers, 1000, 100, 3)
    child = os.fork()
    if child == 0:
        os._exit(0 if (fill(helpers, 1000, 100, 3) == 100).all() and helpers._started == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert (fill(helpers, 1000, 100, 3) == 100).all()
