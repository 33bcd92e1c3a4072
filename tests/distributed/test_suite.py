"""Tests of other directories that place arrays on several devices, run as 2 processes of 4 devices and as 4 of 2."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distributed.launching import command, environment, needs_mpi

TESTS = Path(__file__).parents[1]
FILES = {
    2: [
        "transforms/manual/test_shard_map_grad.py",
        "transforms/jit/test_stages.py",
        "random/test_sharded.py",
    ],
    4: ["transforms/manual/test_explicit_grad.py", "numpy/test_core_shardings.py"],
}
ALONE = {  # tests of what one process may do only, and why
    "test_captured_arrays_stay_captured": "jit captures no arrays of several processes",
    "test_uncommitted_arguments_are_moved": "host values of several processes are not cut",
    "test_input_shardings_without_a_committed_argument": "asks for the first device of all",
    "test_costs_of_loops_and_halos": "sums between processes are counted on their own",
    "test_pmap_is_unchecked": "maps over more rows than a process has devices",
}
ORDERS = {2: "blocked", 4: "interleaved"}


@needs_mpi
@pytest.mark.parametrize("processes", [2, 4])
@pytest.mark.parametrize("step", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_the_suite(processes: int, step: int, tmp_path: Path) -> None:
    arguments = [
        sys.executable,
        str(TESTS / "distributed" / "together.py"),
        ORDERS[processes],
        str(tmp_path / "told"),
        str(step),
    ]
    arguments += [str(TESTS / name) for name in FILES[processes]] + ["-k", f"not ({' or '.join(ALONE)})"]
    done = subprocess.run(
        command(processes, arguments),
        cwd=TESTS.parent,
        env=environment(8 // processes),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        timeout=600,
    )
    failed: dict[str, str] = {}
    for rank in range(processes):
        lines = (tmp_path / f"told.{rank}").read_text().splitlines()
        assert len(lines) > 20, done.stderr + done.stdout[-3000:]
        failed |= {
            name: f"process {rank}: {why}" for name, outcome, why in map(json.loads, lines) if outcome == "failed"
        }
    assert not failed, "\n".join(f"{name}\n{why}" for name, why in failed.items())
    assert done.returncode == 0, done.stderr + done.stdout[-3000:]
