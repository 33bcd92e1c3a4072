"""Drafts: their results are those of the best code, which replaces what is called often; and none is in the way of a fork."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from shardwise.base import config
from shardwise.runtime.machine import generator, llvm, machine_code
from shardwise.runtime.machine.drafts import calls_that_pay, drafts, settle_drafts
from shardwise.runtime.machine.machine_code import MachineCode

if not llvm.available() or not llvm._need().compiler().drafts:
    pytest.skip("no drafts are made here", allow_module_level=True)

# `sum` calls `term`; both can be asked for.
SUM = """
define double @term(i64 %i) noinline {{
  %x = sitofp i64 %i to double
  %y = fmul double %x, {scale:e}
  ret double %y
}}
define double @sum(i64 %n) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %held = phi double [ 0.0, %entry ], [ %more, %loop ]
  %x = call double @term(i64 %i)
  %more = fadd double %held, %x
  %next = add i64 %i, 1
  %again = icmp ult i64 %next, %n
  br i1 %again, label %loop, label %exit
exit:
  ret double %more
}}
"""
PAYS = 30_000.0  # nanoseconds with which a draft of SUM pays for some calls


def made(scale: float, slower: float = PAYS) -> llvm.CompiledFunction:
    return llvm.compile_function("sum", SUM.format(scale=scale), slower)


def called(code: llvm.CompiledFunction, name: str = "sum") -> float:
    return code.as_ctypes(ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_int64), name)(5)


def draft_of(code: llvm.CompiledFunction) -> MachineCode:
    assert isinstance(code.owner, MachineCode)
    return code.owner


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path):
    with config.override("shardwise_cache_dir", str(tmp_path)):
        yield


def test_what_is_called_often_is_replaced_and_keeps_its_address():
    code = made(0.25)
    draft, address = draft_of(code), code.address
    assert 1 < calls_that_pay(SUM, PAYS) == draft.calls_left()
    assert called(code) == 2.5 == called(code)
    assert not draft.replaced
    end = time.monotonic() + 20
    while not draft.replaced and time.monotonic() < end:
        assert called(code) == 2.5 and called(code, "term") == 1.25
    assert draft.replaced and code.address == address == made(0.25).address
    assert called(code) == 2.5 and called(code, "term") == 1.25


def test_who_measures_waits_for_no_calls():
    draft = draft_of(made(0.375))
    settle_drafts()
    assert draft.replaced and not drafts.take(draft) and called(made(0.375)) == 3.75


def test_a_call_with_more_to_do_has_the_best_code_at_once():
    draft = draft_of(made(0.5))
    best = made(0.5, math.inf)
    assert best.owner is draft and draft.replaced and called(best) == 5.0
    assert not draft_of(made(0.125, math.inf)).replaced  # no draft
    assert calls_that_pay(SUM, 1e9) == 0


def test_a_thread_that_compiles_ahead_makes_the_same_code_and_holds_up_nobody(monkeypatch: pytest.MonkeyPatch):
    host, text = llvm._need(), SUM.format(scale=1.5)
    assert llvm._compile_beside(host, text) == host.compiler().compiled(text)
    behind = host.compiler().behind()
    entered, leave = threading.Event(), threading.Event()

    def slow(ir: str) -> bytes:
        entered.set()
        assert leave.wait(20) and behind is not None
        return behind(ir)

    monkeypatch.setattr(host.compiler(), "_behind", slow)
    monkeypatch.setattr(llvm.kernel_store, "load", lambda origin: None)  # other threads have another folder
    monkeypatch.setattr(llvm.kernel_store, "save", lambda origin, code: None)
    with ThreadPoolExecutor(1) as pool:
        ahead = pool.submit(llvm.compile_function, "sum", text, ahead=True)
        assert entered.wait(20)
        assert called(made(3.0, math.inf)) == 30.0  # LLVM is at work for another module
        leave.set()
        assert called(ahead.result()) == 15.0 == called(made(1.5, math.inf))


def test_drafts_are_kept_on_disk_and_so_is_what_replaces_them(monkeypatch: pytest.MonkeyPatch):
    code = made(2.0)
    text = SUM.format(scale=2.0)
    del code
    monkeypatch.setattr(generator.Direct, "_object_code", lambda *_: pytest.fail("compiled again"))
    assert called(made(2.0)) == 20.0
    monkeypatch.undo()
    llvm._best(llvm._need(), text)
    assert not drafts.take(draft_of(made(2.0)))


def test_memory_goes_after_no_thread_can_find_the_code_any_more(monkeypatch: pytest.MonkeyPatch):
    code = made(0.75)
    found, seen = weakref.ref(draft_of(code)), list[object]()
    kept = machine_code._library()
    told = SimpleNamespace(munmap=lambda *place: seen.append(found()) or kept.munmap(*place))
    monkeypatch.setattr(machine_code, "_library", lambda: told)
    del code
    gc.collect()
    assert seen and set(seen) == {None}


@pytest.mark.parametrize("slower", [PAYS, math.inf])
def test_threads_that_meet_share_one_code(slower: float):
    begin = threading.Barrier(6)

    def compiled(_: int) -> llvm.CompiledFunction:
        begin.wait()
        return made(0.375, slower)

    with ThreadPoolExecutor(6) as pool:
        codes = list(pool.map(compiled, range(6)))
    assert len({code.address for code in codes}) == 1 == len({id(code.owner) for code in codes})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:os.fork:RuntimeWarning")  # JAX, if loaded, warns
def test_a_child_forked_while_better_code_is_made_has_both_and_makes_its_own():
    codes = [made(3.0 + i) for i in range(3)]
    for code in codes:
        [called(code) for _ in range(100)]
    child = os.fork()
    if not child:
        right = [called(code) for code in codes] == [30.0, 40.0, 50.0] and called(made(6.0)) == 60.0
        os._exit(0 if right and drafts._running else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_text_that_is_refused_leaves_no_lock():
    for _ in range(2):
        with pytest.raises(RuntimeError):
            llvm.compile_function("f", "no module")
    assert not llvm._in_work


def test_exit_functions_that_a_program_calls_itself_leave_llvm_to_other_threads():
    llvm.close()
    drafts._stop()
    assert not drafts.ending
    free: list[bool] = []
    other = threading.Thread(target=lambda: free.append(llvm._lock.acquire(timeout=5) and llvm._lock.release() is None))
    other.start()
    other.join()
    assert free == [True]
