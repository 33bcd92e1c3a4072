"""Processes that do not come to `initialize` hold nobody up, and shared memory is there or missed in words."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from shardwise.runtime.processes import start
from tests.distributed.launching import command, environment, needs_mpi

PROGRAM = Path(__file__).parent / "programs" / "starting.py"


def launch(how: str, *before: str) -> subprocess.CompletedProcess[str]:
    words = [*before, *command(2, [sys.executable, str(PROGRAM), how])]
    return subprocess.run(
        words, env=environment(2), stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=120
    )


def abandoned_segments() -> set[str]:
    """The names of shared memory of MPI's that no process has."""
    names = {path.name for path in Path("/dev/shm").glob("mpich_shm_*")}  # before the maps: who has made one has it
    for maps in Path("/proc").glob("[0-9]*/maps"):
        with contextlib.suppress(OSError):  # it has ended, or is another user's
            text = maps.read_text()
            names = {name for name in names if name not in text}
    return names


@needs_mpi
@pytest.mark.parametrize(
    "how, told",
    [
        ("ends", "process 1 ended without coming to distributed.initialize; the whole job ends"),
        ("raises", "process 1 ended without coming to distributed.initialize; the whole job ends"),
        ("stops", "process 0 has waited 4 s (initialization_timeout) for all processes to come"),
    ],
)
def test_who_does_not_come_is_named(how, told):
    before = abandoned_segments()
    done = launch(how)
    assert done.returncode != 0
    assert told in done.stderr
    assert abandoned_segments() <= before
    if how == "stops":
        assert "is stopped" in done.stderr


@needs_mpi
def test_nothing_is_left_behind():
    done = launch("comes")
    assert (done.returncode, done.stdout.split()) == (0, ["done", "done"]), done.stderr


@needs_mpi
def test_all_may_leave_without_exit_handlers():
    done = launch("all leave")
    assert done.stderr == ""  # nobody is told of a failure
    assert done.returncode in (0, 9)  # the launcher kills whom it finds still leaving when the first is gone


@pytest.mark.parametrize(
    "rank, place, seen, ranks",
    [
        ("2", "0", {2}, {2, 3}),
        ("3", "1", {3}, {2, 3}),
        ("2", "1", {0, 2}, {0, 2}),
        ("2", "1", {2}, {1, 2}),
        ("", "", {1}, {1}),
    ],
)
def test_whom_a_machine_expects(monkeypatch, rank, place, seen, ranks):
    for name, value in (("PMI_RANK", rank), ("MPI_LOCALRANKID", place)):
        monkeypatch.setitem(os.environ, name, value)
    assert start.expected_ranks(seen, 2) == ranks


def test_too_little_shared_memory(monkeypatch):
    for name, value in (("MPI_LOCALNRANKS", "4"), ("MPI_LOCALRANKID", "0"), ("UCX_TLS", "all")):
        monkeypatch.setitem(os.environ, name, value)
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bavail=500, f_frsize=4096))
    with pytest.raises(RuntimeError, match=r"2.0 MB of shared memory left, and MPI needs 4.4 MB to start 4 processes"):
        start.check_room()
    monkeypatch.setitem(os.environ, "MPI_LOCALRANKID", "1")  # it comes later, and sees what the first has taken
    assert os.environ["UCX_TLS"] == "all"  # the user's own word
    monkeypatch.delitem(os.environ, "UCX_TLS")
    start.check_room()
    assert os.environ["UCX_TLS"] == "^posix"


MOUNT = 'mount -t tmpfs -o size=$0 tmpfs /dev/shm && exec "$@"'
may_mount = (
    shutil.which("unshare") is not None
    and not subprocess.run(
        ["unshare", "-m", "true"], stdin=subprocess.DEVNULL, capture_output=True, check=False
    ).returncode
)


@needs_mpi
@pytest.mark.skipif(not may_mount, reason="needs the right to mount a small /dev/shm")
def test_a_machine_with_little_shared_memory():
    done = launch("comes", "unshare", "-m", "sh", "-c", MOUNT, "1M")
    assert done.returncode != 0
    assert "/dev/shm has 1.0 MB of shared memory left, and MPI needs 2.2 MB" in done.stderr
    assert "Bus error" not in done.stderr
    done = launch("comes", "unshare", "-m", "sh", "-c", MOUNT, "18M")  # enough for MPI, but UCX would crash
    assert (done.returncode, done.stdout.split()) == (0, ["done", "done"]), done.stderr
