"""The processes of one program: who they are, and the MPI calls between them.

One `World` exists from `distributed.initialize` on. Collectives over a mesh axis run on a link between the processes that
share it (`World.link`), made when first needed: through shared memory where all of them are on one node, else through MPI.
Every use is announced (`World.meet`): the processes compare what they are about to do before any data moves, and an error
names both sides where they differ. A thread of each process answers when others ask where it is, so that a process that waits
too long can say for whom.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from shardwise.base import config, uncaught
from shardwise.base.errors import DivergenceError
from shardwise.base.locks import free_reentrant_lock
from shardwise.base.shapes import Ndarray
from shardwise.base.tracebacks import is_users
from shardwise.runtime.processes import divergence
from shardwise.runtime.processes.divergence import Evidence
from shardwise.runtime.processes.gather import CoordinatorLinks
from shardwise.runtime.processes.interrupts import Interrupts
from shardwise.runtime.processes.link import Link
from shardwise.runtime.processes.link import as_bytes as as_bytes
from shardwise.runtime.processes.meeting import BUSY, Meeting
from shardwise.runtime.processes.network import NetworkLink
from shardwise.runtime.processes.origin import history
from shardwise.runtime.processes.sentinel import Sentinel
from shardwise.runtime.processes.shared import SharedLink, crowd, has_shared_memory, processors
from shardwise.runtime.processes.start import Watch, check_room, library_name, start_mpi, unlink_segments

_GRACE = 0.5  # seconds between a last message and the end, in which the launcher passes it on
_ASK, _ANSWER = 1, 2  # tags between the watching threads


class World:
    """All processes of the program.

    `limit` is how many seconds a process waits for one that is gone, or that waits for something else, before it ends the
    job; after `patience` seconds it no longer waits for one that is busy either.
    """

    def __init__(self, mpi: Any, limit: float, patience: float, gathered: CoordinatorLinks | None = None) -> None:
        self.mpi = mpi
        self._gathered = gathered  # where no launcher looks after the processes
        self.limit = limit
        self.patience = max(limit, patience)
        self.comm = mpi.COMM_WORLD.Dup()
        self._asking = mpi.COMM_WORLD.Dup()
        self.rank: int = self.comm.Get_rank()
        self.size: int = self.comm.Get_size()
        self.last: Any = "nothing"
        self.turn = free_reentrant_lock()  # of the thread whose exchange goes on: those of two never mix
        self._steps: dict[tuple[int, ...], int] = {}  # how often each group has met
        self._place = BUSY  # what this process does, with whom, and the sequence number of that
        self._reported = 0.0
        self._groups: dict[tuple[int, ...], Any] = {tuple(range(self.size)): self.comm}
        self._since: float | None = None  # when the present wait began
        self._doing: Any = ""
        self._evidence: Callable[[], Evidence] | None = None  # of what it does
        self._ended = threading.Event()
        self._sent: list[Any] = []  # messages of the watching thread that may be under way
        self._links: dict[tuple[int, ...], Link] = {}
        node = mpi.COMM_WORLD.Split_type(mpi.COMM_TYPE_SHARED)
        self._node = frozenset(node.allgather(self.rank))
        self._sentinel = Sentinel(node, self.rank, self.size)
        unlink_segments(node)
        self._crowded = crowd(node.allgather(processors()))
        self._main = threading.get_ident()
        self._fail = False

    # -- groups ----------------------------------------------------------------------------------------------------------

    def group(self, ranks: tuple[int, ...]) -> Any:
        """The communicator of these processes (ascending); all of them ask for it at the same point."""
        found = self._groups.get(ranks)
        if found is None:
            members = self.comm.Get_group().Incl(list(ranks))
            found = self._groups[ranks] = self.comm.Create_group(members, hash(ranks) & 0x3FFF)
        return found

    def link(self, ranks: tuple[int, ...]) -> Link:
        """The link between these processes (ascending); all of them ask for it at the same point."""
        found = self._links.get(ranks)
        if found is None:
            found = self._links[ranks] = self._make_link(ranks)
        return found

    def _make_link(self, ranks: tuple[int, ...]) -> Link:
        comm, mpi, size = self.group(ranks), self.mpi, len(ranks)
        if size > 1 and self._node.issuperset(ranks):
            room = config.shardwise_shared_memory and has_shared_memory(size * SharedLink.bytes_needed(self._crowded))
            # mpi4py's allreduce of objects would keep the interpreter's lock.
            rooms = self.allgather(ranks, np.array(room))
            if rooms.all():
                window = mpi.Win.Allocate_shared(SharedLink.bytes_needed(self._crowded), 1, comm=comm)
                window.Lock_all()
                diverged = lambda: self._raise_divergence(ranks, comm, self._doing, self._evidence)  # noqa: E731
                link = SharedLink(window, size, ranks.index(self.rank), self._crowded, diverged)
                comm.Barrier()
                return link
        return NetworkLink(mpi, comm, self._crowded)

    # -- meeting ---------------------------------------------------------------------------------------------------------

    def meet(self, ranks: tuple[int, ...], number: int, describe: Callable[[], str]) -> None:
        """Wait for the processes `ranks`, all of which must come with the same `number`.

        `describe` says in words what this process is about to do.

        Raises:
            DivergenceError: one of the others is about to do something else.
        """
        Meeting(self, ranks, number, describe).meet()

    def gather_when_met(
        self, ranks: tuple[int, ...], number: int, describe: Callable[[], str], send: Ndarray
    ) -> Ndarray:
        """`meet`, then `allgather`, between which no other thread meets anybody."""
        with self.turn:
            self.meet(ranks, number, describe)
            return self.allgather(ranks, send)

    def _raise_divergence(
        self, ranks: tuple[int, ...], comm: Any, mine: Any, evidence: Callable[[], Evidence] | None = None
    ) -> None:
        where = user_line()
        told = comm.allgather(
            (self.rank, f"{_text_of(mine)}, at {where}", evidence() if evidence is not None else None)
        )
        reasons = divergence.reasons([known for _, _, known in told])
        groups: dict[str, list[int]] = {}
        for (rank, text, _), reason in zip(told, reasons, strict=True):
            groups.setdefault(f"{text}\n    {reason}" if reason else text, []).append(rank)
        lines = "\n".join(
            f"  process{'es' if len(r) > 1 else ''} {', '.join(map(str, r))}: {text}" for text, r in groups.items()
        )
        self._fail = True
        history.forget(ranks)
        raise DivergenceError(
            "The processes of this program are about to do different things together, which would mix unrelated data or never "
            f"end:\n{lines}\nEvery process must run the same computations on global arrays in the same order."
        )

    def compare_histories(self) -> None:
        """All processes ask for it: whether they have computed the same, also where no exchange has compared it.

        What some have computed alone, and nobody else in its place, is theirs.

        Raises:
            DivergenceError: each of several processes has computed what others have not.
        """
        with self.turn:
            self._compare_histories()

    def _compare_histories(self) -> None:
        recent = history.recent()
        told = self.comm.allgather((history.totals(), recent))
        for ranks in sorted({ranks for totals, _ in told for ranks in totals}):
            calls = [told[r][0].get(ranks, (0, 0)) for r in ranks]
            if len(set(calls)) == 1:
                continue
            known = [known for r, known in enumerate(self.comm.allgather(history.known_origins(ranks))) if r in ranks]
            if divergence.apart(known) if None not in known else len({count for count, _ in calls}) == 1:
                found = divergence.first_of_its_own([told[r][1] for r in ranks])
                lines = "\n".join(f"  process {r}: {text}" for r, text in zip(ranks, found, strict=True) if text)
                self._fail = True
                history.forget(ranks)
                raise DivergenceError(
                    "The processes of this program have computed different things where they were to compute the same; arrays that count "
                    f"as one array on all of them are not. The first such calls that are still known:\n{lines or '  none'}\n"
                    "Every process must run the same computations on global arrays."
                )

    # -- exchanges ---------------------------------------------------------------------------------------------------------

    def allgather(self, ranks: tuple[int, ...], send: Ndarray) -> Ndarray:
        """Everybody's array of one shape, stacked along a new dim 0 in rank order."""
        out = np.empty((len(ranks), *send.shape), send.dtype)
        send = np.ascontiguousarray(send)  # which gives a scalar a dim
        if send.nbytes:
            self.group(ranks).Allgather(as_bytes(send), as_bytes(out))
        return out

    # -- watching --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to watch, and make errors of one process the end of all."""
        self._interrupts = Interrupts()
        self._watcher = threading.Thread(target=self._watch, name="shardwise-watch", daemon=True)
        self._watcher.start()
        previous = sys.excepthook

        def hook(kind: Any, error: Any, trace: Any) -> None:
            text = uncaught.plain_text(previous, error)
            if text is None:
                previous(kind, error, trace)
            self.abort_after(kind, error, text or "")

        sys.excepthook = hook
        atexit.register(self.stop)
        self._meet_before_exits()

    def abort_after(self, kind: Any, error: Any, text: str = "") -> None:
        """End the job after an error that nobody caught; `text` is its traceback, if nobody has shown it yet."""
        self._fall_silent()
        sys.stdout.flush()
        what = f"{kind.__name__}: {error}".splitlines()[0][:300]
        if not self._sentinel.report(text, what):
            last = f"shardwise: process {self.rank} of {self.size} failed ({what}); the whole job ends."
            print(text + last, file=sys.stderr, flush=True)
        if self._fail:  # all processes have this error, and each shows it
            self._grace(self.comm, 2.0)
        else:
            time.sleep(_GRACE)
        self._abort()

    def _meet_before_exits(self) -> None:
        """`os._exit(0)` runs no exit handlers; the others are met all the same, who may be elsewhere."""
        leave, process = os._exit, os.getpid()

        def meet_and_leave(status: int) -> NoReturn:
            if status == 0 and os.getpid() == process and threading.get_ident() == self._main:
                try:
                    self.stop()
                except Exception:  # in the middle of an exchange, say
                    status = 1
            leave(status)

        os._exit = meet_and_leave

    def _fall_silent(self) -> None:
        """Others learn of this process's end; they need not be told more."""
        if self._gathered is not None:
            self._gathered.leave()

    def _abort(self) -> None:
        self._ended.set()
        self._fall_silent()
        self._sentinel.leave()
        self.mpi.COMM_WORLD.Abort(1)

    def _end(self, why: str) -> None:
        """End the job from the watching thread."""
        text = f"shardwise: process {self.rank} of {self.size} {why}; the whole job ends."
        print(text, file=sys.stderr, flush=True)
        time.sleep(_GRACE)
        self._abort()

    def _grace(self, comm: Any, seconds: float) -> None:
        request, end = comm.Ibarrier(), time.monotonic() + seconds
        while not request.Test() and time.monotonic() < end:
            time.sleep(0.01)

    def stop(self) -> None:
        """The end of the program: wait for the others, who must have come to theirs, too."""
        if self._ended.is_set():
            return
        try:
            self.meet(tuple(range(self.size)), 0, lambda: "the end of the program")
            self.compare_histories()
        except DivergenceError as error:
            self._ended.set()
            if not self._sentinel.report(f"shardwise: {error}\n", ""):
                print(f"shardwise: process {self.rank}: {error}", file=sys.stderr, flush=True)
            self._grace(self.comm, 2.0)
            self._abort()
        self._ended.set()
        self._fall_silent()
        self._sentinel.leave()
        self._watcher.join()  # MPI may be finalized next, and must not be under a thread that is inside

    def state(self) -> tuple[tuple[str, tuple[int, ...], int], str]:
        """The exchange that this process does now: for others to compare, and to read."""
        where = user_line(sys._current_frames().get(self._main))
        since, place = self._since, self._place
        if since is None:
            return place, f"is busy at {where}; last it came to {_text_of(self.last)}"
        verb = "has waited" if place[0] == "meets" else "has been exchanging"
        return place, f"{verb} for {time.monotonic() - since:.1f} s at {where}: {_text_of(self._doing)}"

    def _watch(self) -> None:
        mpi, comm = self.mpi, self._asking
        status, interrupts = mpi.Status(), self._interrupts
        while not self._ended.wait(0.25):
            try:
                self._answer(comm, status)
                since = self._since
                if interrupts.unheard(since):
                    self._end(f"was interrupted while it waited: {_text_of(self._doing)}")
                if since is not None and time.monotonic() - max(since, self._reported) > self.limit:
                    self._ask_around(comm, since)
            except Exception:  # MPI is shutting down
                if not self._ended.is_set():
                    import traceback

                    traceback.print_exc()
                return

    def _answer(self, comm: Any, status: Any) -> bool:
        if not comm.Iprobe(self.mpi.ANY_SOURCE, _ASK, status):
            return False
        source = status.Get_source()
        question = comm.recv(source=source, tag=_ASK)
        self._send(comm, (question, self.state()), source, _ANSWER)
        return True

    def _send(self, comm: Any, message: Any, rank: int, tag: int) -> None:
        self._sent = [r for r in self._sent if not r.Test()]  # MPI reads a message's memory until then
        self._sent.append(comm.isend(message, dest=rank, tag=tag))

    def _ask_around(self, comm: Any, since: float) -> None:
        """This process has waited long: find out why, and end the job if there is nothing to wait for."""
        place, mine = self.state()
        others = [r for r in place[1] if r != self.rank]
        for r in others:
            self._send(comm, since, r, _ASK)
        told: dict[int, Any] = {}
        end, status = time.monotonic() + 1.5, self.mpi.Status()
        while len(told) < len(others) and self._since == since and time.monotonic() < end:
            if comm.Iprobe(self.mpi.ANY_SOURCE, _ANSWER, status):
                question, answer = comm.recv(source=status.Get_source(), tag=_ANSWER)
                if question == since:
                    told[status.Get_source()] = answer
            elif not self._answer(comm, status):
                time.sleep(0.02)
        if self._since != since:  # they came after all
            return
        if all(r in told and told[r][0] == place for r in others) and place[0] == "exchanges":
            self._reported = time.monotonic()
            return  # all of them compute
        busy = place[0] == "meets" and any(r in told and told[r][0][0] != "meets" for r in others)
        ends = not busy or len(told) < len(others) or time.monotonic() - since > self.patience
        waits = [f"process {r} {told[r][1] if r in told else 'does not answer'}" for r in others]
        after = "the whole job ends" if ends else f"it will wait until {self.patience:g} s"
        text = "\n  ".join(
            [
                f"shardwise: process {self.rank} of {self.size} has waited longer than {self.limit:g} s for other processes; {after}.",
                f"process {self.rank} {mine}",
                *waits,
                "The limits are heartbeat_timeout_seconds and shutdown_timeout_seconds of distributed.initialize.",
            ]
        )
        print(text, file=sys.stderr, flush=True)
        self._reported = time.monotonic()
        if ends:
            time.sleep(_GRACE)
            self._abort()


def _text_of(what: Any) -> str:
    return str(what() if callable(what) else what)


def user_line(frame: Any = None) -> str:
    """`file:line` of the innermost frame outside of the library."""
    frame = frame or sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    found = "an unknown place"
    while frame is not None:
        name = frame.f_code.co_filename
        if is_users(frame) and not name.startswith("<"):
            return f"{name}:{frame.f_lineno}"
        frame = frame.f_back
    return found


_world: World | None = None


def world() -> World | None:
    """The processes of this program; None before `distributed.initialize`, and for a program of one process."""
    return _world


def the_world() -> World:
    """Like `world`, where there must be one."""
    assert _world is not None, "arrays over several processes need distributed.initialize"
    return _world


def join(
    count: int,
    limit: float = 100.0,
    patience: float = 300.0,
    start: float = 300.0,
    gathered: CoordinatorLinks | None = None,
) -> World:
    """Become one of the `count` processes that the MPI launcher started, or that are `gathered`.

    The job ends if they have not all come after `start` seconds.

    Raises:
        RuntimeError: MPI knows of this process only.
    """
    global _world
    check_room()
    with Watch(start):
        mpi = start_mpi()
        if mpi.COMM_WORLD.Get_size() == 1:
            name = library_name(mpi.Get_library_version())
            raise RuntimeError(
                f"this is one of {count} processes, but the MPI library that mpi4py loads ({name}) knows of none of the others: what "
                "started them belongs to another MPI. Use the mpiexec beside that library, shardwise run --processes, or srun with the "
                "--mpi that it understands."
            )
        _world = World(mpi, limit, patience, gathered)
    _world.start()
    return _world


def leave() -> None:
    """Meet the others a last time."""
    global _world
    if _world is not None:
        _world.stop()
        atexit.unregister(_world.stop)
        _world = None
