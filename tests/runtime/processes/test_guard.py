"""The guard of a machine's processes names the one that died first."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shardwise.runtime.processes import guard

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux")
MEMBER = """
import socket, sys, time
peer = socket.socket(socket.AF_UNIX)
peer.connect(chr(0) + sys.argv[1])
peer.sendall(int(sys.argv[2]).to_bytes(4, "little"))
print("connected", flush=True)
time.sleep(100)
"""


def _gone(process):
    """Wait until the process is dead, without reaping it: whoever looks later finds it as a launcher leaves it."""
    descriptor = os.pidfd_open(process.pid)
    select.select([descriptor], [], [], 10)
    os.close(descriptor)


def _watches(process, connections):
    """Wait until the guard has all its connections and sleeps."""
    for _ in range(1000):
        sockets = []
        for link in Path(f"/proc/{process.pid}/fd").iterdir():
            with contextlib.suppress(FileNotFoundError):  # closed meanwhile
                if os.readlink(link).startswith("socket:") and link.name != "0":
                    sockets.append(link)
        state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        if len(sockets) == connections and state == "S":
            return
        time.sleep(0.01)
    raise AssertionError("the guard does not watch")


@pytest.mark.parametrize("started", ["before", "after"])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_the_first_to_die_is_named_however_late_the_guard_looks(first, started):
    """The guard is stopped while they die, or starts when they are dead. Who started it has watched them from the beginning."""
    name = f"shardwise-test-{os.getpid()}-{first}-{started}"
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind("\0" + name)
        listening.listen(3)
        poll = stack.enter_context(select.epoll())
        members, passed, told = [], [poll.fileno()], []
        for i in range(3):
            command = [sys.executable, "-I", "-S", "-c", MEMBER, name, str(i)]
            members.append(stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE)))
            stack.callback(members[i].kill)
            passed.append(os.pidfd_open(members[i].pid))
            stack.callback(os.close, passed[-1])
            poll.register(passed[-1], select.EPOLLIN)
            told.append(f"{i}:{members[i].pid}:{passed[-1]}")
        for member in members:
            assert member.stdout.readline() == b"connected\n"

        def watching():
            command = [sys.executable, "-I", "-S", guard.__file__, "3", str(poll.fileno()), *told]
            return stack.enter_context(
                subprocess.Popen(command, stdin=listening.fileno(), stderr=subprocess.PIPE, pass_fds=passed)
            )

        watcher = watching() if started == "before" else None
        if watcher is not None:
            _watches(watcher, 3)
            watcher.send_signal(signal.SIGSTOP)
        for i in (first, *(i for i in range(3) if i != first)):
            members[i].kill()
            _gone(members[i])
        if watcher is None:
            watcher = watching()
        else:
            watcher.send_signal(signal.SIGCONT)
        said = watcher.communicate(timeout=30)[1].decode()
    assert said.startswith(
        f"shardwise: process {first} of 3 (pid {members[first].pid}) was killed by signal 9 (SIGKILL)"
    )
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "ranks, text",
    [([2], "process 2"), ([1, 0], "processes 0, 1"), ([0, 1, 2, 7], "processes 0-2, 7"), (range(64), "processes 0-63")],
)
def test_ranks_are_named_in_runs(ranks, text):
    assert guard.ranks_text(ranks) == text
