"""`shardwise explain`: what an unmodified program needs and does here, or on another machine."""

from __future__ import annotations

import json
import re
from functools import partial

import pytest

PROGRAM = """
import sys
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((4, 2), ("data", "model"))

def loss(params, x):
    for w in params:
        x = jnp.tanh(x @ w)
    return jnp.mean(x ** 2)

@jax.jit
def step(params, x):
    return [w - 0.1 * g for w, g in zip(params, jax.grad(loss)(params, x))]

split = [NamedSharding(mesh, P(None, "model")), NamedSharding(mesh, P("model", None))]
params = [jax.device_put(jnp.ones((512, 512)), split[i % 2]) for i in range(4)]
x = jax.device_put(jnp.ones((1024, 512)), NamedSharding(mesh, P("data")))
for i in range(int(sys.argv[1])):
    params = step(params, x)
print("sum", float(params[0].sum()) > 0)
"""


@pytest.fixture
def explain(run_command):
    """`explain(source, *words)`: `shardwise explain` a program of that text, with `words` behind its name."""
    return partial(run_command, "explain")


def test_a_program_runs_and_is_explained_by_line(explain, tmp_path):
    done = explain(PROGRAM, "--devices", 8, "--measure", "--html", "p.html", "--json", "p.json", 3)
    assert done.stderr == "" and done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0] == "sum True"  # it ran
    assert lines[1] == "step on here (8 x cpu, mesh data=4 model=2)"
    memory, traffic, time, measured = (
        done.stdout.split(f"\n{title}")[1] for title in ("memory at the peak", "traffic", "time", "measured")
    )
    assert "in this process" in memory and "prog.py:10" in memory
    assert re.search(r"all_reduce over data +for dot_general +prog.py:10", traffic)
    assert "dot_general" in time and "tanh" in time
    assert re.search(r"^ +\S+ m?s +\S+ [mu]?s +11 +dot_general +prog.py:10", measured, re.MULTILINE)
    assert "</html>" in (tmp_path / "p.html").read_text()
    plan = json.loads((tmp_path / "p.json").read_text())
    assert len(plan["measured"]) == len(plan["schedule"]["tasks"]) and plan["measured_seconds"] > 0


def test_the_same_page_for_another_machine(explain):
    done = explain(PROGRAM, "--on", "v5p-16", "--steps", 2, 5)
    assert done.stderr == "" and done.returncode == 0
    assert done.stdout.startswith("step on v5p-16 (8 x TPU v5p, mesh data=4 model=2)")
    assert "called 2 times" in done.stdout and "per device" in done.stdout


def test_what_failed_is_explained_up_to_there(explain):
    source = "import jax\nf = jax.jit(lambda x: x + 1)\nf(1.0)\nf(2.0)\nraise ValueError('late')\n"
    done = explain(source)
    assert done.returncode == 1 and "ValueError: late" in done.stderr
    assert done.stdout.startswith("<lambda> on here (1 x cpu)") and "called 2 times" in done.stdout
    assert "measured" not in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--on", "v5p-16", "--measure"), "--measure is for runs on this machine"),
        (("--steps", 2), "--steps ends planned runs"),
        ((), "calls no jitted function"),
    ],
)
def test_what_cannot_be_explained(explain, words, message):
    done = explain("print(1)\n", *words)
    assert done.returncode == 2 and message in done.stderr
