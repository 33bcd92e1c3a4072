"""docs/from-a-laptop-to-a-cluster.md: its programs run as it says, and print what it shows."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
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


FIT, LOOK, DIFFER = blocks("python")
FITTED, LOOKED, DIFFERED, FAILED = blocks("text")


def run(folder: Path, name: str, text: str, *launch: str, devices: int = 1) -> subprocess.CompletedProcess[str]:
    (folder / name).write_text(text, encoding="utf-8")
    dropped = ("JAX_", "SHARDWISE_", "PYTHONUNBUFFERED")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
    settings = {"PYTHONPATH": str(ROOT / "src"), "JAX_NUM_CPU_DEVICES": str(devices), "OMP_NUM_THREADS": "1"}
    command = [*([str(LAUNCHER), *launch] if launch else []), sys.executable, str(folder / name)]
    return subprocess.run(
        command,
        env=kept | settings,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=120,
    )


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
