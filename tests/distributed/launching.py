"""Starting processes that run one program together."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src"
LAUNCHER = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
missing = LAUNCHER is None or importlib.util.find_spec("mpi4py") is None
needs_mpi = pytest.mark.skipif(missing, reason="needs mpi4py and mpiexec: pip install '.[mpi]'")


def environment(devices: int) -> dict[str, str]:
    """The environment of a process with so many devices, without settings of whoever runs the tests."""
    # PYTHONUNBUFFERED would write a line's end apart from the line, and the processes' lines would mix.
    dropped = ("JAX_", "SHARDWISE_", "PYTHONUNBUFFERED", "CI")  # inside of a job there is no oracle, which is no fault
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return kept | {"PYTHONPATH": str(SOURCE), "JAX_NUM_CPU_DEVICES": str(devices), "OMP_NUM_THREADS": "1"}


def command(processes: int, arguments: list[str]) -> list[str]:
    """What starts that many processes; one needs no launcher."""
    return arguments if processes == 1 else [str(LAUNCHER), "-n", str(processes), *arguments]
