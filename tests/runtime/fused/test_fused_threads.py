"""Fused loops on several threads: callers at once, helpers, how many there are, and forks."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.runtime import costs
from shardwise.runtime.fused import steps
from shardwise.runtime.machine import standby_threads, threads
from shardwise.runtime.machine.llvm import available

pytestmark = pytest.mark.skipif(not available(), reason="no compiler for fused loops")


def test_many_callers_at_once():
    x = np.random.default_rng(13).normal(size=(1 << 19,)).astype(np.float32)
    f = jax.jit(lambda x, c: jnp.tanh(x) * c + x)
    want = np.asarray(f(x, 1.0))
    failures = []

    def call(seed):
        for i in range(5):
            c = float(seed * 10 + i)
            got = np.asarray(f(x, c))
            expected = np.asarray(want - x).astype(np.float64) * c + x
            if not np.allclose(got, expected, rtol=5e-6, atol=5e-6 * max(1, c)):
                failures.append((seed, i))

    workers = [threading.Thread(target=call, args=(s,)) for s in range(4)]
    for t in workers:
        t.start()
    for t in workers:
        t.join()
    assert not failures


def test_helpers_do_all_the_work_once():
    done = []
    lock = threading.Lock()
    left = list(range(100))

    def work():
        while True:
            with lock:
                if not left:
                    return
                item = left.pop()
            done.append(item)

    threads.helpers.run(work, 3)
    assert sorted(done) == list(range(100))


def test_thread_count_follows_the_environment(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert threads.thread_count() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "nonsense")
    assert threads.thread_count() >= 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_computes_too():
    done = subprocess.run([sys.executable, "-c", FORKING], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


# In a process of its own: a test worker may hold threads of other libraries, which do not like to be forked.
FORKING = """
import os
import numpy as np
import shardwise as jax, shardwise.numpy as jnp

x = jnp.arange(1 << 19, dtype=np.float32)
f = jax.jit(lambda x: jnp.sin(x) + x)
want = np.asarray(f(x))
child = os.fork()
if child == 0:
    os._exit(0 if np.array_equal(np.asarray(f(x)), want) else 1)
raise SystemExit(os.waitpid(child, 0)[1] != 0)
"""


@pytest.mark.parametrize(("side", "wanted"), [(256, 1), (600, 2)])
def test_few_operations_on_much_memory_are_shared(monkeypatch, side, wanted):
    monkeypatch.setattr(steps, "thread_count", lambda: 2)
    run, counts = standby_threads.run, []

    def noted(kernel, job, pointers, counter, threads, rouse=True):
        counts.append(threads)
        run(kernel, job, pointers, counter, threads, rouse)

    monkeypatch.setattr(standby_threads, "run", noted)
    x = np.random.default_rng(0).normal(size=(side, side // 2)).astype(np.float32)
    assert x.size < costs.FUSED_COST_THREADED, "operations alone do not ask for a second thread"
    np.testing.assert_array_equal(jax.jit(lambda x: x[1:] - x[:-1])(x), x[1:] - x[:-1])
    assert counts == [wanted]
