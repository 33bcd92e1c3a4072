"""A small process beside process 0 of a program whose processes were started by hand: `coordinator.py SIZE SECONDS`.

Its stdin is the socket on which it listens at the program's coordinator_address. Every process opens two connections to it:

- Its lifeline. The process says who it is; when all have come, each is told so, and on which machine every process runs. The lifeline
  stays open to the end, and a process that is gone without a word ends the others.
- The connection that its MPI library takes for that of a launcher. MPI asks there, in the first version of the wire protocol PMI, for
  what it needs in order to start: values by name that the processes leave for each other, and barriers.

Run by path, with the standard library alone, so that it is there at once.
"""

import contextlib
import json
import os
import secrets
import selectors
import signal
import socket
import sys
import time
from typing import Any

_ANSWER = 10.0  # seconds that a process may take to read what it is sent
_END = 15.0  # seconds after the job's end in which the last processes have to leave, or to come and be told why
_LONGEST = 1 << 16  # bytes of a line
_VALUE = 1024  # bytes of a value that a process leaves for others
_MACHINES = "PMI_process_mapping"  # the value by which MPI knows which processes share memory


class Peer:
    """A connection: who is at the other end, as soon as that is known, and what has arrived of a line."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.rank: int | None = None
        self.speaks_pmi = False
        self.came: dict[str, Any] = {}
        self._begun = b""

    def send(self, text: str) -> None:
        """Send a line, if the peer is still there."""
        with contextlib.suppress(OSError):
            self.connection.sendall(text.encode() + b"\n")

    def lines(self) -> list[str] | None:
        """The lines that have arrived; None once the connection is closed."""
        try:
            got = self.connection.recv(_LONGEST)
        except OSError:
            got = b""
        *lines, self._begun = (self._begun + got).split(b"\n")
        if not got or len(self._begun) > _LONGEST:
            return None
        return [line.decode(errors="replace") for line in lines]


class Coordinator:
    """The processes of one program, `size` of them; each has `seconds` to join."""

    def __init__(self, listening: socket.socket, size: int, seconds: float) -> None:
        self.size = size
        self.seconds = seconds
        self.members: dict[int, Peer] = {}  # lifelines by rank
        self.callers: dict[int, Peer] = {}  # connections of MPI libraries by rank
        self.left: set[int] = set()  # ranks that have come to the program's end
        self.finalized: set[int] = set()
        self.complete = False
        self.deadline: float | None = time.monotonic() + seconds
        self._listening = listening
        self._key = secrets.token_hex(16)  # known to the processes of this program alone
        self._values: dict[str, str] = {}
        self._in_barrier: set[int] = set()
        self._ended = False
        self._refused: str | None = None  # why nothing comes of this program, for those that are still to come
        self._greeted = 0
        self._selector = selectors.DefaultSelector()
        self._selector.register(listening, selectors.EVENT_READ)

    def run(self) -> None:
        """Serve until all processes are gone, or have not come."""
        while self.members or not (self.complete or self._ended) or (self._refused and self._greeted < self.size):
            waits = None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
            events = self._selector.select(waits)
            if self.deadline is not None and time.monotonic() >= self.deadline:
                if not self.complete and not self._ended:
                    self.refuse(self._missing_ranks())
                return
            for key, _ in events:
                if key.fileobj is self._listening:
                    self._accept()
                else:
                    self._hear(key.data)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            connection, _ = self._listening.accept()
            connection.settimeout(_ANSWER)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._selector.register(connection, selectors.EVENT_READ, Peer(connection))

    def _drop(self, peer: Peer) -> None:
        self._selector.unregister(peer.connection)
        peer.connection.close()

    def _hear(self, peer: Peer) -> None:
        lines = peer.lines()
        if lines is None:
            self._drop(peer)
            self._lose(peer)
            return
        for line in lines:
            if peer.rank is None:
                self._greet(peer, line)
                if peer.rank is None:
                    self._drop(peer)
                    return
            elif peer.speaks_pmi:
                self._answer(peer, peer.rank, line)
            else:
                self.left.add(peer.rank)  # the one thing that is said on a lifeline

    def _greet(self, peer: Peer, line: str) -> None:
        """The first line of a connection says whose it is. A `peer` that gets no rank has no place here."""
        try:
            came = json.loads(line)
            rank, count = int(came["rank"]), int(came["count"])
        except (ValueError, TypeError, KeyError):
            return
        if "key" in came:
            if came["key"] == self._key:
                peer.rank, peer.speaks_pmi = rank, True
                self.callers[rank] = peer
            return
        peer.came = came
        self._greeted += 1
        if self.complete or self._ended:
            peer.send(
                json.dumps(
                    {"error": self._refused or f"the {self.size} processes of the program there have come already"}
                )
            )
            return
        peer.rank = rank
        if count != self.size:
            self._refuse_with(peer, f"{peer_name(peer)} was given num_processes={count}, and process 0 {self.size}")
        elif rank in self.members:
            self._refuse_with(
                peer, f"process_id={rank} was given twice: to {peer_name(self.members[rank])}, and to {peer_name(peer)}"
            )
        else:
            self.members[rank] = peer
            patience = time.monotonic() + came.get("seconds", self.seconds)
            self.deadline = min(self.deadline or patience, patience)
            if len(self.members) == self.size:
                self._welcome()

    def _welcome(self) -> None:
        self.complete, self.deadline = True, None
        names: list[str] = [self.members[rank].came["machine"] for rank in range(self.size)]
        order = {name: number for number, name in enumerate(dict.fromkeys(names))}
        machines = [order[name] for name in names]
        if len(mapping := mapping_of(machines)) < _VALUE:
            self._values[_MACHINES] = mapping
        for peer in self.members.values():
            peer.send(json.dumps({"key": self._key, "machines": machines}))

    def _missing_ranks(self) -> str:
        missing = [str(rank) for rank in range(self.size) if rank not in self.members]
        some = f"{', '.join(missing[:20])}{', ...' if len(missing) > 20 else ''}"
        which = f"processes {some} of {self.size} have" if len(missing) > 1 else f"process {some} of {self.size} has"
        return f"{which} not come to distributed.initialize within {self.seconds:g} s (initialization_timeout)"

    def refuse(self, why: str) -> None:
        """Nothing comes of this program."""
        self._ended = True
        for peer in self.members.values():
            peer.send(json.dumps({"error": why}))

    def _refuse_with(self, peer: Peer, why: str) -> None:
        peer.send(json.dumps({"error": why}))
        self.refuse(why)
        self._refused, self.deadline = why, time.monotonic() + _END

    def _lose(self, peer: Peer) -> None:
        """A process has closed one of its connections."""
        if peer.rank is None or peer.speaks_pmi or self.members.get(peer.rank) is not peer:
            return
        del self.members[peer.rank]
        if not self.complete and not self._ended and peer.rank == 0:
            self.refuse(f"{peer_name(peer)} is gone")
        elif self.complete and (peer.rank not in self.left or peer.rank not in self.finalized):
            self._end(f"{peer_name(peer)} is gone")

    def _end(self, why: str) -> None:
        if not self._ended:
            self._ended, self.deadline = True, time.monotonic() + _END
            for peer in self.members.values():
                peer.send(json.dumps({"end": why}))

    # -- PMI -------------------------------------------------------------------------------------------------------------

    def _answer(self, peer: Peer, rank: int, line: str) -> None:
        words = {name: value for name, equals, value in (word.partition("=") for word in line.split()) if equals}
        command, key = words.get("cmd", line), words.get("key", "")
        if command == "put":
            self._values[key] = line.partition(" value=")[2]
            peer.send("cmd=put_result rc=0 msg=success")
        elif command == "get":
            value = self._values.get(key)
            found = "rc=-1 msg=key_not_found value=unknown" if value is None else f"rc=0 msg=success value={value}"
            peer.send(f"cmd=get_result {found}")
        elif command == "barrier_in":
            self._in_barrier.add(rank)
            if len(self._in_barrier) == self.size:
                self._in_barrier.clear()
                for caller in self.callers.values():
                    caller.send("cmd=barrier_out rc=0")
        elif command == "finalize":
            self.finalized.add(rank)
            peer.send("cmd=finalize_ack rc=0")
        elif command == "abort":
            self._end(f"{peer_name(self.members.get(rank, peer))} has failed")
        elif command == "endcmd":  # of the lines that ask for more processes
            peer.send("cmd=spawn_result rc=-1 msg=not_supported")
        elif "cmd" in words:
            known = {
                "init": "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
                "get_maxes": f"cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max={_VALUE}",
                "get_appnum": "cmd=appnum rc=0 appnum=0",
                "get_my_kvsname": "cmd=my_kvsname rc=0 kvsname=shardwise",
                "get_universe_size": f"cmd=universe_size rc=0 size={self.size}",
            }
            peer.send(known.get(command, f"cmd={command}_result rc=-1 msg=not_supported"))


def peer_name(peer: Peer) -> str:
    """A process, as messages name it."""
    return f"process {peer.rank} (pid {peer.came.get('pid')} on {peer.came.get('host')})"


def mapping_of(machines: list[int]) -> str:
    """The machines of all processes as PMI has it: blocks of (first machine, how many of them, processes on each)."""
    runs: list[list[int]] = []
    for machine in machines:
        if runs and runs[-1][0] == machine:
            runs[-1][1] += 1
        else:
            runs.append([machine, 1])
    blocks: list[list[int]] = []
    for machine, count in runs:
        if blocks and blocks[-1][2] == count and sum(blocks[-1][:2]) == machine:
            blocks[-1][1] += 1
        else:
            blocks.append([machine, 1, count])
    return f"(vector,{','.join(f'({first},{many},{each})' for first, many, each in blocks)})"


def main() -> None:
    """Coordinate the processes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # meant for the others, who then leave
        signal.signal(number, signal.SIG_IGN)
    listening = socket.socket(fileno=os.dup(0))
    Coordinator(listening, int(sys.argv[1]), float(sys.argv[2])).run()


if __name__ == "__main__":
    main()
