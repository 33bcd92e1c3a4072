"""Starting MPI with the other processes of the program, none of which may hold up the rest for good.

MPI's own start waits for every process without end, deaf to signals and with the interpreter locked. Here it runs without the lock,
and a thread looks after the time and the other processes of this machine: as soon as one is gone, or after the time limit, the
job ends with a message that names who is missing.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import importlib.util
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass

_GONE = 2.0  # seconds that a process must have been gone before the others end
_SEGMENT = 1_100_000  # bytes of shared memory that MPI takes for each process of a machine as it starts
_PLENTY = 32_000_000  # bytes beside which
_UCX = 16_000_000  # bytes for each process let UCX make its segments
_VERDICT = 1.0  # seconds that the first process takes to say that there is too little
_RANK = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")
_LOCAL_SIZE = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_TASKS_PER_NODE")
_LOCAL_RANK = ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
_LAUNCHERS = ("hydra_pmi_proxy", "orted", "prted", "slurmstepd")
_MARK = b"shardwise-start"  # the name of a thread, for others to see
_PR_SET_NAME = 15
_SHARED = "/dev/shm"
_VERSION = 1 << 14  # more bytes than MPI takes to tell its version


def number_in(names: tuple[str, ...], environment: Mapping[str, str] = os.environ) -> int | None:
    """The first of some environment variables that is a number."""
    for name in names:
        if environment.get(name, "").isdigit():
            return int(environment[name])
    return None


def launched_rank() -> int | None:
    """The rank that a launcher of processes gave this one; None outside of them."""
    return number_in(_RANK)


@dataclass(frozen=True)
class Process:
    """A process of this program on this machine."""

    pid: int
    state: str  # as in /proc: R, S, T, Z, ...
    came: bool  # it is in `initialize`, too

    def __str__(self) -> str:
        if self.came:
            return f"(pid {self.pid}) has come"
        what = {"T": "is stopped", "t": "is stopped", "Z": "is gone", "D": "waits for a device"}
        return f"(pid {self.pid}) {what.get(self.state, 'runs, and has not come to distributed.initialize')}"


class Watch:
    """Ends this process, and so the job, if the others do not come. A context manager around what waits for them."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, name="shardwise-start", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *error: Any) -> None:
        self._done.set()
        self._thread.join()

    def _look(self) -> None:
        _mark_thread()
        begin = time.monotonic()
        rank, count = number_in(_RANK), number_in(_LOCAL_SIZE) or 0
        seen: set[int] = set()
        missing: float | None = None  # since when
        looks = number_in(_LOCAL_RANK) in (0, 1)  # two of a machine are enough to find out who is gone
        while not self._done.wait(0.25):
            now = time.monotonic()
            late = now - begin > self.seconds
            here = processes() if looks or late else None
            if here is not None and not late:
                alive = {r for r, found in here.items() if any(p.state != "Z" for p in found)}
                seen |= alive
                missing = (missing or now) if rank in alive and len(alive) < count else None
                if missing is not None and now - missing > _GONE:
                    self._end(
                        f"{_name_ranks(expected_ranks(seen, count) - alive)} ended without coming to distributed.initialize"
                    )
            if late:
                told = [f"process {r} {found[0]}" for r, found in sorted((here or {}).items()) if r != rank]
                known = f": {'; '.join(told)}" if told else ""
                self._end(
                    f"has waited {self.seconds:g} s (initialization_timeout) for all processes to come to "
                    f"distributed.initialize{known}"
                )

    def _end(self, why: str) -> None:
        if self._done.is_set():
            return
        rank = number_in(_RANK)
        text = f"process {rank} {why}" if why.startswith("has") else why
        sys.stdout.flush()
        print(f"shardwise: {text}; the whole job ends.", file=sys.stderr, flush=True)
        _unlink_own_segments()  # the system keeps what has a name, and MPI has no time to take it away
        time.sleep(0.5)  # the launcher passes the message on
        os._exit(1)


def expected_ranks(seen: set[int], count: int) -> set[int]:
    """The ranks of the `count` processes of this machine, as far as they follow from those seen there and this one's."""
    rank, place = number_in(_RANK), number_in(_LOCAL_RANK)
    if rank is None or place is None:
        return seen
    row = set(range(rank - place, rank - place + count))  # as launchers place them, if not told otherwise
    return row if seen <= row else seen


def _name_ranks(ranks: set[int]) -> str:
    if not ranks:
        return "a process of this machine"
    return f"process{'es' if len(ranks) > 1 else ''} {', '.join(map(str, sorted(ranks)))}"


def _mark_thread() -> None:
    with contextlib.suppress(OSError, AttributeError):  # not on every system
        ctypes.CDLL(None).prctl(_PR_SET_NAME, _MARK, 0, 0, 0)


def processes() -> dict[int, list[Process]] | None:
    """By rank the processes of this program on this machine; None where that cannot be seen."""
    launcher = _launcher()
    if launcher is None:
        return None
    parents, states = {}, {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (stat := _stat(int(entry))) is not None:
            states[int(entry)], parents[int(entry)] = stat
    found: dict[int, list[Process]] = {}
    for pid in parents:
        above = pid
        while above in parents and above != launcher:
            above = parents[above]
        if above != launcher or pid == launcher:
            continue
        rank = _rank_of(pid)
        if rank is not None:
            found.setdefault(rank, []).append(Process(pid, states[pid], _has_come(pid)))
    for of in found.values():
        of.sort(key=lambda p: (not p.came, p.pid))
    return found


def _launcher() -> int | None:
    """The process of the launcher on this machine, of which all others descend."""
    pid = os.getpid()
    while pid > 1:
        stat = _stat(pid)
        if stat is None:
            return None
        pid = stat[1]
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            return None
        if name in _LAUNCHERS:
            return pid
    return None


def _stat(pid: int) -> tuple[str, int] | None:
    """A process's state and parent."""
    try:
        state, parent, *_ = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (OSError, ValueError):
        return None
    return state, int(parent)


def _rank_of(pid: int) -> int | None:
    try:
        pairs = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    return number_in(_RANK, dict(p.decode(errors="replace").split("=", 1) for p in pairs if b"=" in p))


def _has_come(pid: int) -> bool:
    try:
        return any(Path(t.path, "comm").read_bytes().strip() == _MARK for t in os.scandir(f"/proc/{pid}/task"))
    except OSError:
        return False


def check_room() -> None:
    """See to it that MPI starts with the shared memory that there is.

    With very little, MPI dies of a bus error: the first process of a machine raises RuntimeError instead. The others cannot tell how much
    there was before the first one took its part; they wait a moment for its verdict, lest they die first. With too little for the
    segments of UCX, over which many MPIs talk, MPI dies of another error: then UCX has to do without segments.
    """
    count = number_in(_LOCAL_SIZE)
    if count is None or count < 2:
        return
    try:
        system = os.statvfs(_SHARED)
    except (AttributeError, OSError):  # not on every system
        return
    free, needed = system.f_bavail * system.f_frsize, count * _SEGMENT
    if free < _PLENTY + count * _UCX:
        os.environ.setdefault("UCX_TLS", "^posix")
    if free >= needed:
        return
    if number_in(_LOCAL_RANK) != 0:
        time.sleep(_VERDICT)
    else:
        raise RuntimeError(
            f"{_SHARED} has {free / 1e6:.1f} MB of shared memory left, and MPI needs {needed / 1e6:.1f} MB to start {count} processes on "
            "this machine. Give the container more (docker run --shm-size=1g), or remove what ended jobs have left there "
            f"({_SHARED}/mpich_shm_*)."
        )


def start_mpi() -> Any:
    """The module `mpi4py.MPI`, with MPI started. To be called within a `Watch`.

    Raises:
        ImportError: mpi4py, or the MPI library that it needs, is missing.
        RuntimeError: MPI does not start.
    """
    if "mpi4py.MPI" not in sys.modules:
        import mpi4py

        if mpi4py.rc.initialize:
            spec = importlib.util.find_spec("mpi4py.MPI")
            if spec is not None and spec.origin is not None:
                _initialize(spec.origin, mpi4py.rc)
    from mpi4py import MPI

    if not MPI.Is_initialized():
        MPI.Init_thread()
    return MPI


def library_name(version: str) -> str:
    """The MPI library, in a few of the words in which it tells its version."""
    return " ".join(version.replace("Version:", "").replace(",", "\n").split("\n")[0].split())


def check_gathers() -> None:
    """See to it that MPI can start processes that no launcher has started, by asking for what it needs as of a launcher's (PMI).

    Raises:
        ImportError: mpi4py, or the MPI library that it needs, is missing.
        NotImplementedError: it is Open MPI, which asks for another thing.
    """
    spec = importlib.util.find_spec("mpi4py.MPI")
    if spec is None or spec.origin is None:
        raise ImportError("there is no mpi4py.MPI")
    text, length = ctypes.create_string_buffer(_VERSION), ctypes.c_int(0)
    try:
        ctypes.CDLL(spec.origin).MPI_Get_library_version(text, ctypes.byref(length))  # before MPI is started
    except (OSError, AttributeError) as error:
        raise ImportError(str(error)) from None
    name = library_name(text.value.decode(errors="replace"))
    if "Open MPI" in name:
        raise NotImplementedError(
            f"{name} starts processes by its own launcher only: start the program with `mpiexec -n N python program.py`, where "
            "coordinator_address, num_processes and process_id may stay, or use MPICH (pip install mpich), which needs none."
        )


def _initialize(extension: str, rc: Any) -> None:
    """MPI_Init_thread without the interpreter's lock, where the library can be called like that."""
    try:
        library = ctypes.CDLL(extension)
        begin, end, finished = library.MPI_Init_thread, library.MPI_Finalize, library.MPI_Finalized
    except (OSError, AttributeError):
        return  # mpi4py does it, or says why not
    levels = {"single": 0, "funneled": 1, "serialized": 2, "multiple": 3}
    provided = ctypes.c_int(0)
    level = levels.get(str(rc.thread_level), 3) if rc.threads else 0
    status = begin(None, None, level, ctypes.byref(provided))
    if status:
        raise RuntimeError(f"MPI_Init_thread failed with the code {status}")

    def leave() -> None:
        flag = ctypes.c_int(0)
        finished(ctypes.byref(flag))
        if not flag.value:
            end()

    if rc.finalize is not False:
        atexit.register(leave)


def unlink_segments(node: Any) -> None:
    """Take away the names of the shared memory that MPI has made for the processes of `node`, a communicator of this machine.

    All of them have it by now; without a name it is gone with them, however they end.
    """
    node.Barrier()
    if node.Get_rank() == 0:
        _unlink_own_segments()


def _unlink_own_segments() -> None:
    """Take away the names of the shared memory that MPI has made and this process has."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return
    for path in {line.split(None, 5)[-1] for line in lines if f"{_SHARED}/mpich_shm_" in line}:
        with contextlib.suppress(OSError):  # it has none any more
            os.unlink(path)
