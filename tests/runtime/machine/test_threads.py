"""Where the system starts no threads, the caller does all the work."""

from __future__ import annotations

import _thread
import threading
import weakref

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.runtime.machine import standby, threads
from shardwise.sharding import PartitionSpec

X = np.random.default_rng(0).normal(size=(600, 600)).astype(np.float32)
PROGRAMS = {
    "product": lambda x: x @ x,
    "large product": lambda x: jnp.tile(x, (2, 2)) @ jnp.tile(x, (2, 2)),
    "batch": lambda x: jnp.matmul(x.reshape(36, 100, 100), x.reshape(36, 100, 100)),
    "fused": lambda x: jnp.tanh(x) * 2 + 1,
    "softmax": lambda x: jax.nn.softmax(x),
    "sort": lambda x: jnp.sort(x, 0),
    "copy": lambda x: jnp.concatenate([x] * 6),
    "cumsum": lambda x: jnp.cumsum(x, 1),
    "fft": lambda x: jnp.fft.fft2(x),
    "convolution": lambda x: jax.lax.conv(x.reshape(1, 1, 600, 600), jnp.ones((3, 1, 5, 5)), (1, 1), "SAME"),
    "take": lambda x: jnp.take(x, jnp.arange(6000) % 600, axis=0),
}


@pytest.fixture
def refused(monkeypatch):
    """No thread can be started, and none was; the count of attempts."""
    attempts = []

    def refuse(*_):
        attempts.append(1)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(4)))  # whatever this machine has
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    own = threads.helpers, standby.standby_threads
    for helpers in own:
        helpers.forget()
    for place in ("_thread.start_new_thread", "threading._start_new_thread"):
        monkeypatch.setattr(place, refuse)
    yield attempts
    monkeypatch.undo()
    for helpers in own:
        helpers.forget()


def test_programs_run_without_threads(refused):
    kept = [jax.jit(lambda x, f=f: f(x)) for f in PROGRAMS.values()]  # so that their machine code is
    for name, f in zip(PROGRAMS, kept, strict=True):
        alone = np.asarray(f(X))
        assert np.isfinite(alone).all(), name
    assert refused
    tries = len(refused)
    for f in PROGRAMS.values():
        jax.jit(f)(X)
    assert len(refused) == tries  # they are not asked for again and again


def test_helpers_that_could_be_started_help(monkeypatch):
    helpers = threads.Helpers()
    begin, left = _thread.start_new_thread, [True]

    def once(*args):
        if not left:
            raise RuntimeError("can't start new thread")
        left.pop()
        return begin(*args)

    monkeypatch.setattr(_thread, "start_new_thread", once)
    barrier, seen = threading.Barrier(2), set()

    def work():
        barrier.wait(10)
        seen.add(threading.get_ident())

    for _ in range(3):
        helpers.run(work, 4)
        assert len(seen) == 2
    assert helpers._queue.empty()


def test_work_that_is_done_is_not_kept_for_a_helper_that_comes_late():
    helpers, goes_on = threads.Helpers(), threading.Event()

    class Value:
        pass

    value = Value()
    kept = weakref.ref(value)
    busy = threading.Thread(target=lambda: helpers.run(lambda: goes_on.wait(10), 2))
    busy.start()
    while not helpers._queue.empty():
        pass
    helpers.run(lambda value=value: None, 2)  # its job waits in the queue
    del value
    assert kept() is None
    goes_on.set()
    busy.join()


def test_devices_that_need_threads_say_so(refused):
    mesh = jax.make_mesh((2,), ("x",))
    f = jax.shard_map(lambda x: jax.lax.psum(x, "x"), mesh=mesh, in_specs=PartitionSpec("x"), out_specs=PartitionSpec())
    with (
        jax.disable_jit(),
        pytest.raises(RuntimeError, match="use fewer devices"),
    ):
        f(jnp.ones(4))
