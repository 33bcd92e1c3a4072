"""`shardwise bench`: how long the jitted calls of an unmodified program take, here and beside JAX."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import partial

import pytest

from shardwise.cli.bench import text
from shardwise.cli.clock import Row
from tests.distributed.launching import command, environment, needs_mpi

PROGRAM = """
import functools
import sys
import jax, jax.numpy as jnp
from jax import jit

@jax.jit
def step(w, x):
    return w - 0.1 * jax.grad(lambda w: jnp.mean(inner(x @ w) ** 2))(w)

@functools.partial(jax.jit, static_argnames="n", donate_argnums=0)
def power(x, n):
    return x ** n

@jit
def inner(x):
    return jnp.tanh(x)

class Model:
    @jax.jit
    def double(self):
        return self * 2

w, x = jnp.ones((8, 8)), jnp.ones((16, 8))
for i in range(5):
    w = step(w, x)
for n in 2, 3:
    power(jnp.ones(5), n=n)
jax.vmap(inner)(jnp.ones(4))
for f in inner, Model.double:
    f(3.0)
ready = jax.jit(lambda x: x * 2).lower(x).compile()
ready(x), ready(x)
print("argument", sys.argv[1])
"""
CALLS = {("step", 26): 5, ("power", 28): 2, ("inner", 31): 1, ("double", 31): 1, ("<lambda>", 33): 2}


@pytest.fixture
def bench(run_command):
    """`bench(source, *words)`: `shardwise bench` a program of that text, with `words` behind its name."""
    return partial(run_command, "bench")


def counted(rows):
    return {(r["function"], int(r["site"].rpartition(":")[2])): len(r["seconds"]) for r in rows}


def test_calls_are_counted_by_function_and_line(bench, tmp_path):
    done = bench(PROGRAM, "--json", "b.json", "here")
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert lines[0] == "argument here"
    assert lines[1].startswith("prog.py: 11 calls of jitted functions took ")
    assert any(line.split()[-2:] == ["step", "prog.py:26"] for line in lines[4:])
    (own,) = json.loads((tmp_path / "b.json").read_text())
    assert counted(own["rows"]) == CALLS  # calls inside of others and of traces are none of their own
    compiled = {r["function"]: sum(s > 0 for s in r["compiling"]) for r in own["rows"]}
    assert compiled == {"step": 1, "power": 2, "inner": 1, "double": 1, "<lambda>": 0}
    assert all(s > c >= 0 for r in own["rows"] for s, c in zip(r["seconds"], r["compiling"], strict=True))


def test_calls_that_donate_are_not_repeated(bench, tmp_path):
    done = bench(PROGRAM, "--repeat", 3, "--json", "b.json", "here")
    assert (done.returncode, done.stderr) == (0, "")
    (own,) = json.loads((tmp_path / "b.json").read_text())
    assert counted(own["rows"]) == {key: n * (1 if key[0] == "power" else 3) for key, n in CALLS.items()}


def test_beside_jax_the_same_calls_are_timed(bench, tmp_path):
    pytest.importorskip("jax")
    done = bench(PROGRAM, "--beside", "jax", "--json", "b.json", "here")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("argument here") == 1 and "JAX/ours" in done.stdout
    own, jax = json.loads((tmp_path / "b.json").read_text())
    assert own["version"].startswith("shardwise ") and jax["version"][0] == "0"
    assert counted(jax["rows"]) == counted(own["rows"]) == CALLS


def test_what_fails_with_jax_alone_is_told_below_the_table(bench):
    pytest.importorskip("jax")
    source = "import jax\njax.jit(lambda x: x)(1)\nif 'shardwise' not in jax.__file__: raise SystemExit(7)\n"
    done = bench(source, "--beside", sys.executable)
    assert done.returncode == 1 and done.stdout.startswith("prog.py: 1 calls")
    assert "the program ends with status 7" in done.stderr


def test_a_failing_program_shows_the_calls_until_then(bench):
    done = bench("import jax\njax.jit(lambda x: x)(1)\nraise ValueError('late')\n", "--beside", "jax")
    assert done.returncode == 1 and "ValueError: late" in done.stderr
    assert done.stdout.startswith("prog.py: 1 calls") and "JAX first" not in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "calls no jitted function"),
        (("--beside", "no-python"), "there is no Python no-python"),
        (("--repeat", 0), "'0' is no number of calls"),
        (("--json", "none/b.json"), "there is no folder"),
    ],
)
def test_what_cannot_be_timed(bench, words, message):
    done = bench("print(1)\n", *words)
    assert done.returncode == 2 and message in done.stderr and "usage: shardwise bench" in done.stderr


def test_the_table_has_the_longest_first_and_what_jax_took():
    rows = [
        Row("short", "", "/a.py:1", [0.25, 0.001, 0.003], [0.125, 0.0, 0.0]),
        Row("long", "", "/a.py:2", [1.5], [0.5]),
    ]
    other = {"function": "short", "defined": "", "site": "/a.py:1", "seconds": [0.5, 0.004], "compiling": [0.25, 0.0]}
    lines = text("a.py", rows, {"version": "9.9", "rows": [other]}).splitlines()
    assert lines[0] == "a.py: 4 calls of jitted functions took 1.75 s; JAX 9.9 beside it"
    assert lines[3].split() == "1.5 s 1 1 x 500 ms 1.5 s - - - - - long /a.py:2".split()
    assert lines[4].split() == "254 ms 3 1 x 125 ms 250 ms 2 ms 1 ms 500 ms 4 ms 2.00 short /a.py:1".split()


@needs_mpi
def test_of_several_processes_the_first_speaks(bench, tmp_path):
    (tmp_path / "prog.py").write_text("import jax\njax.distributed.initialize()\njax.jit(lambda x: x)(1)\n")
    words = command(2, [sys.executable, "-m", "shardwise", "bench", "prog.py"])
    done = subprocess.run(words, cwd=tmp_path, env=environment(1), capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.count("1 calls of jitted functions")) == (0, 1), done.stderr
    done = subprocess.run(
        [*words, "--beside", "jax"], cwd=tmp_path, env=environment(1), capture_output=True, text=True, timeout=120
    )
    assert done.returncode and "compare one process" in done.stderr
