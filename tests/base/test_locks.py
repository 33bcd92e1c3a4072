"""A forked child finds no lock of ours held by a thread that it does not have."""

import os
import re
import threading
import warnings
from pathlib import Path

import pytest

import shardwise
from shardwise.base.locks import cached_property, free_lock, free_reentrant_lock

SOURCES = Path(shardwise.__file__).parent
# Modules that make locks or values computed once by other means, and why a child does not wait for them.
OTHERWISE = {
    "base/locks.py": "it makes those that are free",
    "runtime/crew.py": "batons of a call's own threads",
    "runtime/memory.py": "the pool begins anew",
    "runtime/machine/drafts.py": "held by who forks, or made anew",
    "runtime/machine/llvm.py": "held by who forks",
    "runtime/machine/standby.py": "begins anew",
    "runtime/machine/threads.py": "begins anew",
    "runtime/processes/comm.py": "MPI's processes do not fork",
    "runtime/processes/start.py": "MPI's processes do not fork",
    "runtime/products/blas.py": "held by who forks",
}
HOLDING = re.compile(
    r"\bthreading\.(Lock|RLock|Condition|Event|Semaphore|Barrier)\(|from (functools|threading) import .*\b(cached_property|R?Lock)\b"
)


def test_what_could_stay_held_comes_from_the_module_of_locks():
    texts = {path: path.read_text() for path in SOURCES.rglob("*.py")}
    likely = {path: text for path, text in texts.items() if "threading" in text or "cached_property" in text}
    paths = [path for path, text in likely.items() if HOLDING.search(text)]
    assert {path.relative_to(SOURCES).as_posix() for path in paths} == OTHERWISE.keys()


class Slow:
    def __init__(self) -> None:
        self.begun, self.end = threading.Event(), threading.Event()

    @cached_property
    def value(self) -> int:
        self.begun.set()
        self.end.wait()
        return 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_child_takes_what_a_thread_of_its_parent_holds():
    locks, slow, other = (free_lock(), free_reentrant_lock()), Slow(), Slow()
    held = threading.Event()

    def hold() -> None:
        with locks[0], locks[1]:
            held.set()
            _ = slow.value

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    slow.begun.wait()
    other.end.set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Python warns of a fork beside threads
        child = os.fork()
    if not child:
        free = all(lock.acquire(timeout=2) for lock in locks)
        os._exit(0 if free and other.value == 1 else 1)
    assert os.waitpid(child, 0)[1] == 0
    slow.end.set()
    thread.join()


def test_threads_share_the_value_that_was_computed_first():
    class Pair:
        @cached_property
        def value(self) -> object:
            barrier.wait()
            return object()

    pair, barrier, seen = Pair(), threading.Barrier(2), []
    threads = [threading.Thread(target=lambda: seen.append(pair.value)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen[0] is seen[1] is pair.value
    assert isinstance(Pair.value, cached_property)
