"""docs/from-a-laptop-to-a-cluster.md: its programs run as it says, and print what it shows."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "from-a-laptop-to-a-cluster.md").read_text(encoding="utf-8")
LAUNCHER = shutil.which("mpiexec", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
missing = LAUNCHER is None or importlib.util.find_spec("mpi4py") is None
needs_mpi = pytest.mark.skipif(missing, reason="needs mpi4py and mpiexec: pip install '.[mpi]'")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.S | re.M)


FIT, BY_HAND, LOOK, DIFFER = blocks("python")
FITTED, LOOKED, DIFFERED, FAILED = blocks("text")


def environment(devices: int) -> dict[str, str]:
    dropped = ("JAX_", "SHARDWISE_", "PYTHONUNBUFFERED")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
    return kept | {"PYTHONPATH": str(ROOT / "src"), "JAX_NUM_CPU_DEVICES": str(devices), "OMP_NUM_THREADS": "1"}


def run(folder: Path, name: str, text: str, *launch: str, devices: int = 1) -> subprocess.CompletedProcess[str]:
    (folder / name).write_text(text, encoding="utf-8")
    command = [*([str(LAUNCHER), *launch] if launch else []), sys.executable, str(folder / name)]
    return subprocess.run(
        command,
        env=environment(devices),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )


def start(folder: Path, command: list[str], **settings: str) -> subprocess.Popen[str]:
    """A process with two devices, which may be one of several."""
    return subprocess.Popen(
        command,
        env=environment(2) | settings,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


def wait_for(job: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = job.communicate(timeout=120)
    finally:
        job.kill()
    return job.returncode, out, err


def test_one_process(tmp_path):
    done = run(tmp_path, "fit.py", FIT, devices=8)
    assert (done.returncode, done.stdout) == (0, FITTED), done.stderr


@needs_mpi
@pytest.mark.parametrize("launch, devices", [(("-n", "2"), 4), (("-f", "hosts", "-n", "4"), 2)])
def test_many_processes(tmp_path, launch, devices):
    (tmp_path / "hosts").write_text("localhost:4\n", encoding="utf-8")
    done = run(tmp_path, "fit.py", FIT, *launch, devices=devices)
    assert (done.returncode, done.stdout) == (0, FITTED), done.stderr


@needs_mpi
def test_processes_without_mpiexec_on_the_command_line(tmp_path):
    (command,) = re.findall(r"^    shardwise (run --processes .*) prog\.py$", PAGE, re.M)
    (tmp_path / "prog.py").write_text(FIT, encoding="utf-8")
    words = [sys.executable, "-m", "shardwise", *command.split(), "prog.py"]
    done = wait_for(start(tmp_path, words))
    assert done == (0, FITTED, "")


@needs_mpi
def test_without_a_launcher(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    by_hand = BY_HAND.strip().replace("node1:1234", f"localhost:{port}")
    (variables,) = re.findall(r"`(JAX_COORDINATOR_ADDRESS=node1:1234 .*?)`", PAGE)
    own = dict(word.split("=") for word in variables.replace("node1:1234", f"localhost:{port}").split())
    assert "process_id=2" in by_hand and own["JAX_PROCESS_ID"] == "2"
    jobs = []
    for rank in range(4):  # half of them are told by the call, half by the environment
        call = "jax.distributed.initialize()" if rank % 2 else by_hand.replace("process_id=2", f"process_id={rank}")
        (tmp_path / f"fit{rank}.py").write_text(FIT.replace("jax.distributed.initialize()", call), encoding="utf-8")
        settings = own | {"JAX_PROCESS_ID": str(rank)} if rank % 2 else {}
        jobs.append(start(tmp_path, [sys.executable, f"fit{rank}.py"], **settings))
    assert [wait_for(job) for job in jobs] == [(0, FITTED if rank == 0 else "", "") for rank in range(4)]


@needs_mpi
def test_what_moves(tmp_path):
    done = run(tmp_path, "look.py", LOOK, "-n", "2", devices=4)
    assert (done.returncode, done.stdout) == (0, LOOKED), done.stderr


@needs_mpi
def test_faults(tmp_path):
    done = run(tmp_path, "differ.py", DIFFER, "-n", "2", devices=4)
    assert done.returncode != 0
    assert DIFFERED.replace("/home/you", str(tmp_path)) in done.stderr
    assert "process 1: sort with" in done.stderr and "differ.py:11" in done.stderr
    raising = DIFFER.replace("if jax.process_index() == 0:", "if jax.process_index() == 1:").replace(
        "print(x.sum())", "raise OSError('no data here')"
    )
    done = run(tmp_path, "fail.py", raising, "-n", "2", devices=4)
    assert done.returncode != 0 and FAILED in done.stderr


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_slurm_script_is_a_script():
    (script,) = blocks("bash")
    assert subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True).stderr == ""
