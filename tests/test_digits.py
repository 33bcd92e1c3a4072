"""The README's main job."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.distributed.launching import command, environment, needs_mpi

DIGITS = Path(__file__).parent.parent / "examples" / "digits.py"


def accuracies(printed: str) -> list[str]:
    return re.findall(r"(?:automatic|explicit|manual) +│ +\d+ of 396 │ +([\d.]+)%", printed)


@pytest.fixture(scope="module")
def one_process(shell: Callable[..., subprocess.CompletedProcess[str]]) -> subprocess.CompletedProcess[str]:
    """What one process prints."""
    return shell(DIGITS)


def test_three_styles_agree(one_process):
    done = one_process
    assert done.stderr == ""
    assert done.returncode == 0
    found = accuracies(done.stdout)
    assert len(found) == 3
    assert len(set(found)) == 1
    assert float(found[0]) > 95
    for what in ("all_reduce over model of f32[1400,10]", "all_reduce over data of f32[64,256]"):
        assert what in done.stdout


@needs_mpi
def test_two_processes_learn_as_one_does(one_process):
    done = subprocess.run(
        command(2, [sys.executable, str(DIGITS)]),
        env=environment(8) | {"PYTHONIOENCODING": "utf-8"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert accuracies(done.stdout) == accuracies(one_process.stdout)  # the first process prints, the other does not
    assert "all_reduce over data of f32[64,256]" in done.stdout
    assert done.stdout.count("The images, split over") == done.stdout.count("collectives:") == 1
