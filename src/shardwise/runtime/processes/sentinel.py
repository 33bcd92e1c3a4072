"""This process's connection to the guard of its machine, which says so if it dies without a word (`guard.py`)."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

_CONNECT = 30.0  # seconds
_SHOWN = 5.0  # seconds that the guard takes at most to show a report
_GUARD = Path(__file__).with_name("guard.py")


class Sentinel:
    """Shows the guard that this process lives. The first process of the communicator `node`, all of one machine, starts the guard.

    Where processes do not see each other's numbers, or the system has no such sockets, there is none.
    """

    def __init__(self, node: Any, rank: int, size: int) -> None:
        self._guard: socket.socket | None = None
        told = node.allgather((rank, os.getpid(), _process_namespace()))
        name = _start(size, told) if node.Get_rank() == 0 else None
        name = node.bcast(name)
        if name is not None:
            with contextlib.suppress(OSError):
                guard = socket.socket(socket.AF_UNIX)
                guard.settimeout(_CONNECT)
                guard.connect(name)
                guard.sendall(node.Get_rank().to_bytes(4, "little"))
                self._guard = guard

    def report(self, text: str, what: str) -> bool:
        """Let the guard show why this process fails, together with others that say the same; whether it did."""
        if self._guard is None:
            return False
        data = f"{text}\0{what}".encode()
        try:
            self._guard.settimeout(_SHOWN)
            self._guard.sendall(b"R" + len(data).to_bytes(4, "little") + data)
            return self._guard.recv(1) == b"K"
        except OSError:
            return False

    def leave(self) -> None:
        """This process ends, and has said why; what comes now is no accident."""
        if self._guard is not None:
            with contextlib.suppress(OSError):
                self._guard.send(b"L")


def _start(size: int, told: list[tuple[int, int, str]]) -> str | None:
    """Start the guard of these processes; the name of its socket."""
    if len(told) < 2 or len({space for *_, space in told}) > 1 or not hasattr(os, "pidfd_open"):
        return None
    name = f"\0shardwise-{os.getpid()}-{os.urandom(8).hex()}"
    try:
        with contextlib.ExitStack() as opened:
            listening = opened.enter_context(socket.socket(socket.AF_UNIX))
            listening.bind(name)
            listening.listen(len(told))
            # It notes who ends, from now on and in order; the guard takes it over.
            poll = opened.enter_context(select.epoll())
            passed, named = [poll.fileno()], [str(size), str(poll.fileno())]
            for rank, pid, _ in told:
                descriptor = os.pidfd_open(pid)
                opened.callback(os.close, descriptor)
                poll.register(descriptor, select.EPOLLIN)
                passed.append(descriptor)
                named.append(f"{rank}:{pid}:{descriptor}")
            guard = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_GUARD), *named],
                stdin=listening.fileno(),
                stdout=subprocess.DEVNULL,
                pass_fds=passed,
                start_new_session=True,
            )
    except (OSError, AttributeError):  # not on every system
        return None
    guard.returncode = 0  # it outlives this process, which will not wait for it
    return name


def _process_namespace() -> str:
    """The space in which process numbers mean something."""
    try:
        return f"{os.uname().nodename} {os.readlink('/proc/self/ns/pid')}"
    except (OSError, AttributeError):
        return f"process {os.getpid()}"
