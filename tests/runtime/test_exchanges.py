"""What processes exchange, and how much of it: the links between them, and reshards that move only what must move."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
SOURCE = Path(__file__).parents[2] / "src"
LAUNCHER = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
missing = LAUNCHER is None or importlib.util.find_spec("mpi4py") is None
pytestmark = pytest.mark.skipif(missing, reason="needs mpi4py and mpiexec: pip install '.[mpi]'")


def launch(
    processes: int, program: str, devices: int, *arguments: str, **settings: str
) -> subprocess.CompletedProcess[str]:
    # PYTHONUNBUFFERED would write a line's end apart from the line, and the processes' lines would mix.
    dropped = ("JAX_", "SHARDWISE_", "PYTHONUNBUFFERED")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    kept |= {"PYTHONPATH": str(SOURCE), "JAX_NUM_CPU_DEVICES": str(devices), "OMP_NUM_THREADS": "1"} | settings
    command = [str(LAUNCHER), "-n", str(processes), sys.executable, str(PROGRAMS / program), *arguments]
    return subprocess.run(
        command, env=kept, stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", timeout=240
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
