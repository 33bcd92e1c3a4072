"""The programs of the other tests as 2 processes of 4 devices or as 4 of 2: every process gets what one process of 8 gets.

Programs take turns; `-m slow` runs each in the other way, too.
"""

from __future__ import annotations

import fcntl
import functools
import itertools
import os
import pickle
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.differential.oracle import check
from tests.distributed.collection import Job, jobs
from tests.distributed.launching import command, environment, needs_mpi

WORKER = Path(__file__).parent / "worker.py"
FIELDS = ["dtype", "weak_type", "type", "spec", "committed"]
JOBS = {job.name: job for job in jobs()}
ORDERS = {1: "blocked", 2: "blocked", 4: "interleaved"}  # of the devices over the processes
LAUNCHES = 6  # as often may a program end the processes
TURNS = {name: zlib.crc32(name.encode()) % 2 for name in JOBS}  # which of two ways a program runs in
RUNS = {  # the programs of each number of processes
    1: list(JOBS),
    2: [name for name in JOBS if TURNS[name] == 0],
    4: [name for name in JOBS if TURNS[name] == 1],
}

Answers = dict[str, dict[str, Any]]  # what was described, by program


@pytest.fixture(scope="session")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, str], list[Answers]]:
    """`answers(n, name)`: what each of n processes says, of that program among others; they run once, whichever of pytest's own
    processes asks first.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent

    @functools.cache
    def of(processes: int, usual: bool) -> list[Answers]:
        ready = folder / f"answers-{processes}-{usual}"
        with open(folder / f"lock-{processes}-{usual}", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not ready.exists():
                names = RUNS[processes] if usual else [name for name in JOBS if name not in RUNS[processes]]
                ready.write_bytes(pickle.dumps(_run(processes, names, f"{folder}/{processes}-{usual}")))
            return pickle.loads(ready.read_bytes())

    return lambda processes, name: of(processes, name in RUNS[processes])


def _run(processes: int, names: list[str], files: str) -> list[Answers]:
    """Launch the processes, again after a program that ended them; paths of the files between us begin with `files`."""
    given, told = Path(f"{files}-jobs"), f"{files}-told"
    chosen = [JOBS[name] for name in names]
    given.write_bytes(pickle.dumps([(job.name, job.source, job.dialect, job.viewed) for job in chosen]))
    first, ended = 0, {}
    for _ in range(LAUNCHES):
        arguments = [sys.executable, str(WORKER), ORDERS[processes], str(given), told, str(first)]
        done = subprocess.run(
            command(processes, arguments),
            env=environment(8 // processes),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=600,
        )
        if done.returncode == 0:
            break
        last = [name for name in _records(Path(f"{told}.0")) if isinstance(name, str)]
        assert last, done.stderr
        ended[last[-1]] = done.stderr[-3000:]
        first = names.index(last[-1]) + 1
    found: list[Answers] = []
    for rank in range(processes):
        records = _records(Path(f"{told}.{rank}"))
        pairs = itertools.pairwise(records)
        found.append({name: said for name, said in pairs if isinstance(name, str) and isinstance(said, dict)})
        found[-1] |= {name: {"ended": text} for name, text in ended.items()}
    return found


def _records(path: Path) -> list[Any]:
    found = []
    if path.exists():
        with path.open("rb") as file:
            while True:
                try:
                    found.append(pickle.load(file))
                except (EOFError, pickle.UnpicklingError):  # the last one may have been cut off
                    break
    return found


@needs_mpi
@pytest.mark.parametrize(
    ("name", "processes"),
    [
        pytest.param(name, count, marks=[] if name in RUNS[count] else [pytest.mark.slow])
        for name in JOBS
        for count in (2, 4)
    ],
)
def test_as_on_one_process(name: str, processes: int, answers: Callable[[int, str], list[Answers]]) -> None:
    (one,) = answers(1, name)
    for rank, told in enumerate(answers(processes, name)):
        try:
            compare(JOBS[name], told.get(name), one[name])
        except AssertionError as failure:
            failure.add_note(f"on process {rank} of {processes}; the program was:\n{JOBS[name].source}")
            raise


def compare(job: Job, told: dict[str, Any] | None, one: dict[str, Any]) -> None:
    """Assert that a process tells what one process alone tells."""
    assert told is not None, "no answer: the program was not reached"
    assert "ended" not in told, told["ended"]
    if "error" in one:
        assert "error" in told, f"one process raises {one['error']['classes'][0]}: {one['error']['message']}"
        assert told["error"]["classes"] == one["error"]["classes"], told["error"]["message"]
        return
    assert "error" not in told, f"{told['error']['classes'][0]}: {told['error']['message']}"
    if job.viewed:
        check(told["result"], one["result"], "result", FIELDS, job.ulps)
        assert told["printed"] == one["printed"]
