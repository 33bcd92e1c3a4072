"""What processes exchange, and how much of it: the links between them, and reshards that move only what must move."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.distributed.launching import command, environment, needs_mpi

PROGRAMS = Path(__file__).parent / "programs"
pytestmark = needs_mpi


def launch(
    processes: int, program: str, devices: int, *arguments: str, **settings: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(processes, [sys.executable, str(PROGRAMS / program), *arguments]),
        env=environment(devices) | settings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=240,
    )


@pytest.mark.parametrize(
    "processes, program, devices, shared",
    [
        (3, "links.py", 1, "1"),
        (2, "resharding.py", 4, "1"),
        (4, "resharding.py", 2, "0"),
        (2, "payloads.py", 4, "1"),
        (2, "payloads.py", 4, "0"),
        pytest.param(2, "huge.py", 1, "1", marks=pytest.mark.slow),
        pytest.param(2, "huge.py", 1, "0", marks=pytest.mark.slow),
    ],
)
def test_program(processes, program, devices, shared):
    done = launch(processes, program, devices, SHARDWISE_SHARED_MEMORY=shared)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["done"] * processes, done.stdout + done.stderr


def test_a_program_left_in_the_middle():
    done = launch(2, "left.py", 2, "60")
    assert (done.returncode, done.stdout.split()) == (0, ["done"] * 2), done.stderr
    done = launch(2, "left.py", 2, "2", SHARDWISE_SHARED_MEMORY="0")  # MPI cannot tell: nobody gets anything
    assert done.returncode != 0 and "done" not in done.stdout
    assert "has waited longer than 2 s for other processes; the whole job ends." in done.stderr
