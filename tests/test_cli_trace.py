"""`shardwise trace`: when the compiled programs of an unmodified program ran, of all processes in one file."""

from __future__ import annotations

import json

import pytest

from tests.distributed.launching import needs_mpi

PROGRAM = """
import sys
import jax, jax.numpy as jnp
if "many" in sys.argv:
    jax.distributed.initialize()
f = jax.jit(lambda x: jnp.tanh(x) @ x)
f(jnp.ones((8, 8)))
if "fail" in sys.argv:
    raise ValueError("late")
"""


@pytest.fixture
def trace(shell, tmp_path):
    def go(*words: object):
        (tmp_path / "prog.py").write_text(PROGRAM)
        return shell("-m", "shardwise", "trace", *words, cwd=tmp_path)

    return go


def products(path):
    return [e for e in json.loads(path.read_text())["traceEvents"] if e["name"] == "dot_general"]


@pytest.mark.parametrize("words", [(), ("fail",)])
def test_one_process(trace, tmp_path, words):
    (tmp_path / "t.json").write_text("of an older run")
    done = trace("prog.py", "-o", "t.json", *words)
    assert done.returncode == len(words) and ("ValueError: late" in done.stderr) is bool(words)
    assert done.stderr.endswith("shardwise: wrote t.json; open it at ui.perfetto.dev\n")
    (event,) = products(tmp_path / "t.json")
    assert event["args"]["operands"] == "f32[8,8] f32[8,8]" and event["args"]["line"] == f"{tmp_path}/prog.py:6"


@needs_mpi
def test_all_processes_write_one_file(trace, tmp_path):
    for _ in range(2):  # the second run takes the place of the first
        done = trace("--processes", 2, "-o", "t.json", "prog.py", "many")
        assert done.returncode == 0 and done.stderr.count("wrote t.json") == 1, done.stderr
        assert sorted(e["pid"] for e in products(tmp_path / "t.json")) == [0, 1]


def test_what_cannot_be_written(trace):
    done = trace("prog.py", "-o", "none/t.json")
    assert done.returncode == 2 and "--output none/t.json: there is no folder" in done.stderr
