"""`shardwise run --processes N`: several processes of this machine, started as one command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from shardwise.cli import launch
from tests.distributed.launching import environment, needs_mpi

PROGRAM = """
import os, sys
import jax, jax.numpy as jnp
jax.distributed.initialize()
from jax.sharding import NamedSharding, PartitionSpec as P
mesh = jax.make_mesh((jax.device_count(),), ("x",))
x = jax.make_array_from_callback((12,), NamedSharding(mesh, P("x")), lambda i: jnp.arange(12.0)[i])
total = float(x.sum())
print(jax.process_count(), jax.local_device_count(), total, os.environ["OMP_NUM_THREADS"], sys.argv[1:], flush=True)
"""


@pytest.fixture
def run(shell, tmp_path):
    def go(source: str, *words: object, **settings: str):
        (tmp_path / "prog.py").write_text(source)
        settings = {"PYTHONUNBUFFERED": ""} | settings  # which would write a line's end apart from the line
        return shell("-m", "shardwise", "run", *words, cwd=tmp_path, **settings)

    return go


@needs_mpi
def test_processes_of_one_program(run):
    done = run(PROGRAM, "--processes", 2, "--devices=3", "prog.py", "--devices", "a b", OMP_NUM_THREADS="1")
    assert done.returncode == 2 and "'a b' is no number of devices" in done.stderr
    done = run(PROGRAM, "--processes", 2, "--devices=3", "prog.py", "--", "--devices", "a b", OMP_NUM_THREADS="1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["2 3 66.0 1 ['--devices', 'a b']"] * 2


@needs_mpi
@pytest.mark.parametrize("words", [("-m", "prog"), ("-c", PROGRAM)])
def test_modules_and_code(run, words):
    done = run(PROGRAM, "--processes=2", *words)
    threads = max(1, len(os.sched_getaffinity(0)) // 2)
    assert done.stdout.splitlines() == [f"2 1 66.0 {threads} []"] * 2, done.stderr


@needs_mpi
def test_the_dialect_is_that_of_all(run):
    done = run(
        "import jax; jax.distributed.initialize(); print(jax.__version__)", "prog.py", "--processes=2", "--dialect=0.10"
    )
    assert (done.returncode, done.stdout) == (0, "0.10.2\n0.10.2\n"), done.stderr


@needs_mpi
def test_the_exit_status_is_that_of_a_process(run):
    done = run("import sys, os; sys.exit(3 * (os.environ['PMI_RANK'] == '1'))", "--processes=2", "prog.py")
    assert done.returncode == 3


@needs_mpi
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_all_processes(tmp_path, number):
    (tmp_path / "prog.py").write_text("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(300)")
    words = [sys.executable, "-m", "shardwise", "run", "--processes=2", "prog.py"]
    with subprocess.Popen(
        words,
        cwd=tmp_path,
        env=environment(1),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as job:
        assert job.stdout is not None
        started = [int(job.stdout.readline()) for _ in range(2)]
        job.send_signal(number)
        try:
            job.communicate(timeout=60)
        finally:
            job.kill()
    assert job.returncode != 0
    end = time.monotonic() + 30
    while (left := [pid for pid in started if os.path.exists(f"/proc/{pid}")]) and time.monotonic() < end:
        time.sleep(0.05)
    assert not left


@pytest.mark.parametrize(
    "words, settings, told",
    [
        (("--processes=0", "prog.py"), {}, "'0' is no number of processes; give an integer of at least 1"),
        (("--processes=2", "-"), {}, "only one process can read standard input; give the program as a file"),
        (("--processes=2", "prog.py"), {"PMI_RANK": "1"}, "a launcher has started this process as one of several"),
    ],
)
def test_what_cannot_be_started(run, words, settings, told):
    done = run("print('never')", *words, **settings)
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr


def test_without_a_launcher(monkeypatch, tmp_path, capsys):
    from shardwise.cli import main

    (tmp_path / "prog.py").write_text("print('never')")
    for name in ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(launch, "find_launcher", lambda: None)
    assert main(["run", "--processes=2", str(tmp_path / "prog.py")]) == 2
    assert "--processes needs mpiexec, which is not here: pip install mpi4py mpich" in capsys.readouterr().err
