"""Processes that run different programs get an error before anything that one of them reads comes of both."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distributed.launching import command, environment, needs_mpi

PROGRAMS = Path(__file__).parent / "programs"


def launch(processes: int, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, str(PROGRAMS / arguments[0]), *arguments[1:]]
    return subprocess.run(
        command(processes, words),
        env=environment(8 // processes) | settings,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=900,
    )


@needs_mpi
@pytest.mark.parametrize(
    "processes, first, count, shared",
    [
        (2, 0, 100, "1"),
        pytest.param(2, 100, 900, "1", marks=pytest.mark.slow),
        pytest.param(2, 0, 200, "0", marks=pytest.mark.slow),
        pytest.param(4, 0, 200, "1", marks=pytest.mark.slow),
    ],
)
def test_pairs(processes, first, count, shared, tmp_path):
    told = str(tmp_path / "told")
    done = launch(processes, "divergent.py", str(first), str(count), told, SHARDWISE_SHARED_MEMORY=shared)
    assert done.returncode == 0, done.stderr[-3000:]
    for rank in range(processes):
        lines = Path(f"{told}.{rank}").read_text().splitlines()
        assert len(lines) == count
        for seed, edit, (one, other, mixed) in map(json.loads, lines):
            assert not one[1] and not other[1], f"pair {seed}: all processes run the same"
            assert mixed[1] and "DivergenceError" in mixed[1][0], f"pair {seed} ({edit}) was not noticed"
            own = (other if rank else one)[0]
            assert mixed[0] == own[: len(mixed[0])], f"pair {seed} ({edit}): process {rank} read what came of both"


@needs_mpi
@pytest.mark.parametrize("processes", [2, 4])
def test_alike(processes):
    done = launch(processes, "alike.py")
    assert (done.returncode, done.stdout.split()) == (0, ["done"] * processes), done.stderr + done.stdout


@needs_mpi
def test_what_errors_say():
    """One job for all of them: each is caught, and the next goes on."""
    done = launch(2, "told.py")
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[-1] == "all told"
    assert (
        done.stderr.count("have computed different things where they were to compute the same") == 1
    )  # both say it, at the end
