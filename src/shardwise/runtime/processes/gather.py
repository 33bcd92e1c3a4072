"""Processes that no launcher has started: they meet at an address, and from there MPI starts as under a launcher.

Process 0 starts the coordinator (`coordinator.py`) there. Every process has two connections to it: a lifeline, over which it learns that
another one is gone, and the one that MPI is told to use, by the variables of the environment that launchers set.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from shardwise.base.errors import JaxRuntimeError

_COORDINATOR = Path(__file__).with_name("coordinator.py")
_RETRY = 0.1  # seconds between attempts to reach the coordinator
_ATTEMPT = 10.0  # seconds of one attempt
_VERDICT = 5.0  # seconds beyond the time limit in which the coordinator says who is missing
_SHOWN = 0.5  # seconds in which the launcher of this process, if any, passes a last message on
_LEAVING = 5.0  # seconds that a process may take to end after another one was lost
_LONGEST = 1 << 22  # bytes of the coordinator's answer
# A machine without power is noticed in a minute.
_KEEPALIVE = {"TCP_KEEPIDLE": 20, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
_BY_LAUNCHERS = ("PMI_RANK", "PMI_FD", "PMI_PORT", "PMIX_RANK", "OMPI_COMM_WORLD_RANK")


def launched_by_mpi() -> bool:
    """Whether a launcher has started this process, one that MPI knows."""
    return any(name in os.environ for name in _BY_LAUNCHERS)


def split_address(address: str, argument: str) -> tuple[str, int]:
    """The host and the port of ``host:port`` or ``[host]:port``.

    Raises:
        ValueError: `address`, which the user gave as `argument`, is none.
    """
    host, colon, port = address.rpartition(":")
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise ValueError(f"{argument}={address!r} is no address; give one as host:port, such as 'node1:1234'.")
    return host, int(port)


class CoordinatorLinks:
    """This process's connections to the coordinator, of which all processes have the same.

    Args:
        address: the host and the port at which process 0 listens.
        count: how many processes there are.
        rank: which of them this one is.
        bind: where process 0 listens, if that is another address on its machine.
        seconds: how long to wait for all processes.

    Raises:
        JaxRuntimeError: they have not all come, or do not agree; or the address is not free, or is not process 0's.
    """

    def __init__(
        self, address: tuple[str, int], count: int, rank: int, bind: tuple[str, int] | None, seconds: float
    ) -> None:
        end = time.monotonic() + seconds
        self._text = f"coordinator_address {address[0]}:{address[1]}"
        self._name = f"process {rank} of {count}"
        at = self._start(bind or address, count, seconds, bind is None) if rank == 0 else address
        self._life = self._reach(at, end, seconds)
        who: dict[str, Any] = {
            "rank": rank,
            "count": count,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "machine": _machine(),
        }
        who["seconds"] = end - time.monotonic()
        answer = self._ask(who, end + _VERDICT, seconds)
        machines: list[int] = answer["machines"]
        self._line = socket.create_connection(self._life.getpeername()[:2], _ATTEMPT)
        self._line.sendall(_as_line({"rank": rank, "count": count, "key": answer["key"]}))
        self._line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._line.settimeout(None)  # MPI expects to wait
        self._settings = {
            "PMI_FD": str(self._line.fileno()),
            "PMI_RANK": str(rank),
            "PMI_SIZE": str(count),
            "MPI_LOCALNRANKS": str(machines.count(machines[rank])),
            "MPI_LOCALRANKID": str(machines[:rank].count(machines[rank])),
        }
        self._left = False
        threading.Thread(target=self._listen, name="shardwise-lifeline", daemon=True).start()

    @contextlib.contextmanager
    def environment(self) -> Generator[None]:
        """Within, the environment is that of a process which a launcher has started."""
        before = {name: os.environ.get(name) for name in self._settings}
        os.environ.update(self._settings)
        try:
            yield
        finally:
            for name, value in before.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def leave(self) -> None:
        """This process ends; what comes now is no accident, and needs no words."""
        if not self._left:
            self._left = True
            with contextlib.suppress(OSError):
                self._life.sendall(b"leaves\n")

    # -- meeting ---------------------------------------------------------------------------------------------------------

    def _start(self, bind: tuple[str, int], count: int, seconds: float, narrow: bool) -> tuple[str, int]:
        """Start the coordinator; where this process reaches it. `narrow`: `bind` is the address for all, not one of this machine."""
        try:
            listening = _listen_at(bind, narrow)
        except OSError as error:
            raise JaxRuntimeError(
                f"process 0 cannot listen at {bind[0]}:{bind[1]} ({error.strerror or error}). Give all processes a coordinator_address "
                "with a free port of the machine where process 0 runs."
            ) from None
        with listening:
            command = [sys.executable, "-I", "-S", str(_COORDINATOR), str(count), str(seconds)]
            helper = subprocess.Popen(
                command, stdin=listening.fileno(), stdout=subprocess.DEVNULL, start_new_session=True
            )
            helper.returncode = 0  # it outlives this process, which will not wait for it
            host, port = listening.getsockname()[:2]
        return {"::": "::1", "0.0.0.0": "127.0.0.1"}.get(str(host), str(host)), int(port)

    def _reach(self, at: tuple[str, int], end: float, seconds: float) -> socket.socket:
        """A connection to the coordinator, which may not be there yet."""
        while True:
            try:
                life = socket.create_connection(at, max(_RETRY, min(_ATTEMPT, end - time.monotonic())))
                break
            except OSError as error:  # neither may the machine's name be known yet
                if time.monotonic() > end:
                    raise JaxRuntimeError(
                        f"DEADLINE_EXCEEDED: nobody listens at the {self._text} after {seconds:g} s (initialization_timeout; "
                        f"{error.strerror or error}). Either process 0 has not come to distributed.initialize, or its address is another."
                    ) from None
            time.sleep(_RETRY)
        life.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE.items():
            if (option := getattr(socket, name, None)) is not None:  # not on every system
                life.setsockopt(socket.IPPROTO_TCP, option, value)
        return life

    def _ask(self, who: dict[str, Any], end: float, seconds: float) -> dict[str, Any]:
        """Say who this is, and wait until the coordinator says that all have come."""
        got = b""
        try:
            self._life.sendall(_as_line(who))
            while not got.endswith(b"\n") and len(got) < _LONGEST:
                self._life.settimeout(max(_RETRY, end - time.monotonic()))
                part = self._life.recv(1 << 16)
                if not part:
                    break
                got += part
        except TimeoutError:
            raise JaxRuntimeError(
                f"DEADLINE_EXCEEDED: what listens at the {self._text} has not answered within {seconds:g} s (initialization_timeout). "
                "Is another program there? Give an address with a free port of the machine where process 0 runs."
            ) from None
        except OSError:
            got = b""
        try:
            answer = json.loads(got)
            error = answer.get("error")
            if error is None and "machines" in answer:
                return answer
        except (ValueError, AttributeError):
            error = None
        self._life.close()
        if error is None:
            said = f"answers {got[:60]!r}" if got else "does not answer"
            raise JaxRuntimeError(
                f"what listens at the {self._text} {said}, and so is no coordinator of this program. Give an address with a free port "
                "of the machine where process 0 runs."
            )
        late = "DEADLINE_EXCEEDED: " if "initialization_timeout" in error else ""
        raise JaxRuntimeError(f"{late}at the {self._text}: {error}.")

    # -- the lifeline ------------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """End this process when another one is lost."""
        self._life.settimeout(None)
        got = b""
        with contextlib.suppress(OSError):
            while not got.endswith(b"\n"):
                part = self._life.recv(1 << 12)
                if not part:
                    break
                got += part
        if not got and self._left:
            return
        why = (
            json.loads(got)["end"]
            if got.endswith(b"\n")
            else f"the coordinator beside process 0 ({self._text}) is gone"
        )
        if self._left:
            time.sleep(_LEAVING)
        else:
            time.sleep(_SHOWN)  # the reports of failures come first
            if not self._left:
                print(f"shardwise: {why}; {self._name} ends, too.", file=sys.stderr, flush=True)
        os._exit(1)


def _as_line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _listen_at(at: tuple[str, int], narrow: bool) -> socket.socket:
    """A socket that listens at an address, as the user gave it.

    Where it is the one by which others reach this machine it need not be this machine's own (a service may stand in between), so that all
    of the machine's are taken, unless it is that of the machine for itself.
    """
    infos = socket.getaddrinfo(*at, type=socket.SOCK_STREAM)
    family, *_, found = infos[0]
    own = str(found[0])
    if narrow and not (own.startswith("127.") or own == "::1"):
        dual = socket.has_dualstack_ipv6()
        return socket.create_server(
            ("", at[1]), family=socket.AF_INET6 if dual else socket.AF_INET, dualstack_ipv6=dual
        )
    return socket.create_server((own, at[1]), family=family, backlog=1024)


def _machine() -> str:
    """A key that the processes that share memory have in common, and no others."""
    parts = [socket.gethostname()]
    with contextlib.suppress(OSError):  # not on every system
        parts.append(Path("/proc/sys/kernel/random/boot_id").read_text().strip())
        parts.append(str(os.stat("/dev/shm").st_dev))
    return " ".join(parts)
