"""Several processes of one program on this machine: this process becomes MPI's launcher, which starts them."""

from __future__ import annotations

import argparse
import functools
import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping
from typing import NoReturn

from shardwise.cli.program import UsageError, UserProgram, positive
from shardwise.runtime.processes import launched_rank, processors

_THREADS = "OMP_NUM_THREADS"
# Open MPI's leave to start more processes than there are processors.
_OVERSUBSCRIPTION = ("PRTE_MCA_rmaps_default_mapping_policy", ":oversubscribe")


def add_processes(parser: argparse.ArgumentParser) -> None:
    """Add the option --processes."""
    parser.add_argument(
        "--processes",
        type=functools.partial(positive, "processes"),
        metavar="N",
        help="start N processes on this machine, which the program joins by jax.distributed.initialize()",
    )


def launch(command: str, program: UserProgram, processes: int, options: Mapping[str, object]) -> NoReturn:
    """Become the launcher of that many processes, each of which does `shardwise COMMAND OPTIONS PROGRAM`.

    `options` are values by name; None stands for one that is not given.

    Signals, output and the exit status are the launcher's own: it ends all processes on Ctrl-C or when one of them fails, and gives
    the status of the one that failed.

    Raises:
        UsageError: there is no launcher, this process is one of several already, or the program is on standard input.
    """
    if launched_rank() is not None:
        raise UsageError("--processes: a launcher has started this process as one of several; leave the option out")
    if program.kind == "stdin":
        raise UsageError("--processes: only one process can read standard input; give the program as a file")
    launcher = find_launcher()
    if launcher is None or importlib.util.find_spec("mpi4py") is None:
        what = "mpi4py" if launcher is not None else "mpiexec"
        raise UsageError(f"--processes needs {what}, which is not here: pip install mpi4py mpich")
    given = [f"{name}={value}" for name, value in options.items() if value is not None]
    words = [launcher, "-n", str(processes), sys.executable, "-m", "shardwise", command, *given, *program.words()]
    sys.stdout.flush()
    os.execve(launcher, words, dict([_OVERSUBSCRIPTION]) | dict(os.environ) | threads_of_each(processes, os.environ))


def find_launcher() -> str | None:
    """The `mpiexec` beside this Python, which belongs to the MPI that mpi4py finds there; else the first one of PATH."""
    places = [os.path.dirname(sys.executable), os.environ.get("PATH", "")]
    return shutil.which("mpiexec", path=os.pathsep.join(places))


def threads_of_each(processes: int, environment: Mapping[str, str]) -> dict[str, str]:
    """The setting that gives each of several processes its share of the processors, unless there is one already."""
    return {} if _THREADS in environment else {_THREADS: str(max(1, len(processors()) // processes))}
