"""A link through shared memory, its two ends in two threads: what it gives however a process waits."""

import threading

import numpy as np
import pytest

from shardwise.runtime.processes import shared, sleeping
from shardwise.runtime.processes.shared import SharedLink


class Window:
    """Memory of two processes, as MPI shows it."""

    def __init__(self, crowded):
        self.parts = [np.zeros(SharedLink.bytes_needed(crowded), np.uint8) for _ in range(2)]

    def Shared_query(self, k):
        return (memoryview(self.parts[k]),)

    def Sync(self):
        pass


def exchange(link, rounds):
    own = np.arange(6, dtype=np.float32).reshape(2, 3) + 10 * link.me
    for i in range(rounds):
        got = link.all_reduce(own * i, "sum", 7)
        np.testing.assert_array_equal(got, (2 * np.arange(6).reshape(2, 3) + 10) * i)
    long = np.full(1 << 17, link.me + 1, np.int64)
    assert (link.all_reduce(long, "sum", 8) == 3).all()
    takes = [np.empty_like(own) for _ in range(2)]
    link.all_gather(own, takes, 9)
    np.testing.assert_array_equal(takes[1], takes[0] + 10)
    assert link.meet(4) and not link.meet(link.me)


@pytest.mark.parametrize("crowded", [False, True], ids=["looking", "crowded"])
@pytest.mark.parametrize("sleeps", [False, True], ids=["yielding", "sleeping"])
def test_exchanges_between_two_threads(monkeypatch, crowded, sleeps):
    if sleeps and not sleeping.can_sleep:
        pytest.skip("the system has no futex")
    monkeypatch.setattr(shared, "can_sleep", sleeps)
    monkeypatch.setattr(shared, "_SPINS", 400)  # so few that both ways to wait are gone
    window, errors = Window(crowded), []

    def run(link):
        try:
            exchange(link, 100)
        except Exception as error:
            errors.append(error)

    links = [SharedLink(window, 2, k, crowded, lambda: None) for k in range(2)]
    threads = [threading.Thread(target=run, args=(link,), daemon=True) for link in links]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert not errors


@pytest.mark.skipif(not sleeping.can_sleep, reason="the system has no futex")
def test_who_sleeps_is_woken_and_sees_what_changed_before():
    word = np.zeros(2, np.int32)
    at = word.ctypes.data
    sleeping.sleep_at(at, 1, 60)  # it is no longer 1
    sleeping.sleep_at(at, 0, 0.001)  # nobody comes
    woken = threading.Event()

    def sleep():
        while not word[0]:
            sleeping.sleep_at(at, 0, 60)
        woken.set()

    thread = threading.Thread(target=sleep, daemon=True)
    thread.start()
    word[0] = 1
    sleeping.wake_at(at)
    assert woken.wait(30)
