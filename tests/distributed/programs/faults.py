"""One of several processes does what it should not; the first argument says what."""

import os
import resource
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

import shardwise as jax
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.experimental.shard_map import shard_map
from shardwise.runtime.machine import llvm
from shardwise.runtime.processes import comm
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

FAULT = sys.argv[1]
jax.config.update("shardwise_shared_memory", FAULT != "interrupted_in_vain")  # MPI does not let go of who waits in it
patient = FAULT in ("slow", "asked_as_it_ends", "killed_within", "interrupted", "interrupted_in_vain")
jax.distributed.initialize(
    heartbeat_timeout_seconds=60 if FAULT in ("killed_within", "interrupted_in_vain") else 2,
    shutdown_timeout_seconds=600 if patient else 2,
)
me = int(os.environ.get("PMI_RANK") or os.environ["OMPI_COMM_WORLD_RANK"])  # of MPICH, of Open MPI
if FAULT == "stopped" and me == 1:
    os.kill(os.getpid(), signal.SIGSTOP)
assert jax.process_index() == me
mesh = Mesh(np.array(jax.devices()), ("x",))


def split(values):
    return jax.make_array_from_callback(values.shape, NamedSharding(mesh, P("x")), lambda index: values[index])


def mapped(f):
    return jax.jit(shard_map(f, mesh=mesh, in_specs=P("x"), out_specs=P()))


a = split(np.arange(16, dtype=np.float32))
total, top = mapped(lambda v: lax.psum(v, "x")), mapped(lambda v: lax.pmax(v, "x"))


def other_op():
    (top if me else total)(a)


def other_shape():
    total(a if me else split(np.ones(8, np.float32)))


def other_order():
    for f in (total, top) if me else (top, total):
        f(a)


def threads():
    """Two threads exchange at once, in the opposite order on the other process: a thread waits until the other's exchange has ended."""
    errors = []

    def call(f):
        try:
            f(a)
        except RuntimeError as error:
            errors.append(error)

    first, second = [threading.Thread(target=call, args=(f,)) for f in ((total, top) if me else (top, total))]
    first.start()
    while first.is_alive() and comm.the_world()._place[0] != "meets":
        time.sleep(0.001)
    second.start()
    first.join()
    second.join()
    if [type(error).__name__ for error in errors] == ["DivergenceError"] * 2:
        raise errors[0]


def all_raise():
    jax.jit(lambda x: jnp.dot(x, jnp.ones(3)))(jnp.ones(2))


def raises():
    if me == 1:
        raise KeyError("data file is missing")
    a.sum()


def absent():
    if me == 1:
        time.sleep(60)
    a.sum()


def ends_early():
    if me == 0:
        a.sum()


def exits():
    if me == 0:
        sys.exit(3)
    a.sum()


def swallows():
    def fail(x):
        if me == 1:
            raise MemoryError("no room")
        return x

    f = mapped(lambda v: lax.psum(jax.pure_callback(fail, v, v), "x"))
    try:
        f(a)
    except Exception:
        time.sleep(60)


def leaves():
    """As after an error, but with the exit code of a success."""
    if me == 1:
        os._exit(0)
    a.sum()


def stopped():
    raise AssertionError("the other process has not come")


def killed():
    if me == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    a.sum()


def killed_within():
    """In the middle of exchanges: nearly all the time goes to them."""
    big = split(np.ones(1 << 22, np.float32))
    if me == 1:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGKILL)).start()
    while True:
        total(big)


def out_of_memory():
    """The second process may have no more memory than it has, when both compute something large."""
    big = split(np.ones(1 << 20, np.float32))
    if me == 1:
        if llvm.available():
            llvm._need().compiler()  # would need more than is left below, where no kernel was kept
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + (64 << 20)
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    mapped(lambda v: lax.psum(jnp.outer(v[:8192], v[:8192]), "x"))(big)


def slow():
    if me == 1:
        time.sleep(3)
    print(float(a.sum()), flush=True)


def asked_as_it_ends():
    """One process asks why it waits; the other has come by then, and ends without an answer."""
    world = comm.the_world()
    world.limit = 0.5
    if me == 1:
        world._answer = lambda comm, status: False
        time.sleep(0.9)
    total(a)
    comm.leave()
    print("at work" if world._watcher.is_alive() else "at rest", flush=True)


def interrupted():
    """Some compute, some wait for them, when the user has enough."""
    print(os.getpid(), flush=True)
    while True:
        a.sum()
        if me == 1:
            time.sleep(0.3)


def interrupted_in_vain():
    """The first process waits for the second, which takes no notice of the user."""
    print(os.getpid(), flush=True)
    if me == 1:
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        time.sleep(100)
    a.sum()


def diverges():
    """A predicate that differs between processes."""
    if float(np.asarray(a.addressable_data(0))[0]) > 0:
        a.sum()
    else:
        a.max()


if sys.argv[2:] == ["caught"]:
    try:
        globals()[FAULT]()
    except RuntimeError:
        print(f"{me} caught; then {float(a.sum())}", flush=True)
else:
    globals()[FAULT]()
