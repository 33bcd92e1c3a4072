"""`shardwise plan`: unmodified programs, planned for a machine that is not there."""

from __future__ import annotations

import json
from functools import partial

import pytest

PROGRAM = """
import sys
import jax, jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P

mesh = jax.make_mesh((16, 8), ("data", "model"))
w = jax.jit(lambda k: jax.random.normal(k, (1 << 16, 1 << 16)), out_shardings=NamedSharding(mesh, P("data", "model")))(jax.random.key(0))

@jax.jit
def step(w, x):
    return w - jax.grad(lambda w: jnp.mean(jnp.tanh(x @ w)))(w)

x = jax.device_put(jnp.ones((128, 1 << 16)), NamedSharding(mesh, P("data")))
for i in range(int(sys.argv[1])):
    w = step(w, x)
    print("step", i, float(w[0, 0]))
"""


@pytest.fixture
def plan(run_command):
    """`plan(source, *words)`: `shardwise plan` a program of that text, with `words` behind its name."""
    return partial(run_command, "plan")


def test_a_program_is_planned_as_it_stands(plan, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    done = plan(
        PROGRAM + "__import__('os').chdir('elsewhere')",
        "--on",
        "v5p-256",
        "--html",
        "p.html",
        "--json",
        "p.json",
        "--trace",
        "t.json",
        "--chakra",
        "c",
        3,
    )
    assert done.stderr == "" and done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[:3] == ["step 0 0.0", "step 1 0.0", "step 2 0.0"]
    assert lines[3].startswith("step on v5p-256 (128 x TPU v5p, mesh data=16 model=8)")
    assert lines[4].startswith("fits: ")
    assert "called 3 times" in done.stdout and "prog.py:16: reads float32[]" in done.stdout
    assert "Other programs:\n  <lambda> (1 x): fits: " in done.stdout
    assert json.loads((tmp_path / "p.json").read_text())["calls"] == 3
    assert "</html>" in (tmp_path / "p.html").read_text() and json.loads((tmp_path / "t.json").read_text())
    assert any((tmp_path / "c").iterdir())


@pytest.mark.parametrize("words", [("7", "--on", "v5p-256", "--steps", 2), ("--on=v5p-256", "--steps=2", "--", "7")])
def test_options_stand_around_the_programs_own(plan, words):
    done = plan(PROGRAM, *words)
    assert [line for line in done.stdout.splitlines() if line.startswith("step ")][:2] == ["step 0 0.0", "step 1 0.0"]
    assert "step 2 0.0" not in done.stdout and "called 2 times" in done.stdout and done.returncode == 0


def test_modules(shell, tmp_path):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "train.py").write_text(PROGRAM)
    done = shell("-m", "shardwise", "plan", "-m", "pack.train", "--on", "v5p-256", 1, cwd=tmp_path)
    assert done.stdout.startswith("step 0 0.0\nstep on v5p-256"), done.stderr


@pytest.mark.parametrize(
    "source, words, status, message",
    [
        ("import jax", ("--on", "v5pp-256"), 2, "v5p"),
        (
            "import jax.numpy as jnp; jnp.ones(3) + 1",
            ("--on", "v5p-256"),
            2,
            "called no jitted function (2 ops ran outside of jit). Plans are made of compiled programs: decorate the training step with "
            "jax.jit, and call it.\n",
        ),
        (
            "import resource as r, subprocess, sys; own = r.getrlimit(r.RLIMIT_DATA)[0]\n"
            "code = 'import resource as r, sys; assert r.getrlimit(r.RLIMIT_DATA)[0] != int(sys.argv[1])'\n"
            "subprocess.run([sys.executable, '-c', code, str(own)], check=True)",
            ("--on", "v5p-256"),
            2,
            "plan the program that they run",
        ),
        (PROGRAM, ("--on", "v5p-256", "--read", "raise", "1"), 1, "float32[] at prog.py:16"),
        (
            "import jax; jax.make_mesh((256,), ('x',))",
            ("--on", "v5p-256"),
            1,
            "Number of devices 128 must be >= the product",
        ),
        ("import jax", ("--on", "v5p-256", "--steps", "0"), 2, "steps=0: a run ends after at least one step"),
        (
            "import jax, numpy as np; np.array(jax.devices()).reshape(8, 3)",
            ("--on", "v5e-16"),
            1,
            "jax.devices() are the 16 devices of v5e-16",
        ),
        ("import jax; int('')", ("--on", "v5e-8"), 1, "base 10: ''\n"),
        (
            "import jax; f = jax.jit(lambda x: x + 1)\nassert f(1) == 2",
            ("--on", "v5e-8"),
            1,
            "the last at prog.py:2: they are zeros, so that checks of them fail. --read compute computes them",
        ),
        (
            "import jax, math; f = jax.jit(lambda x: x + 1)\nmath.log(f(1.0))",
            ("--on", "v5e-8"),
            1,
            "the last at prog.py:2: they are zeros",
        ),
        (
            "import jax; assert jax.device_count() == 4",
            ("--on", "v5e-8"),
            1,
            "jax.devices() are the 8 devices of v5e-8",
        ),
        ("import jax; open('data/train.bin')", ("--on", "v5e-8"), 1, "files of the same format and shapes do"),
        (
            "import urllib.request as u; u.urlopen('http://127.0.0.1:9')",
            ("--on", "v5e-8"),
            1,
            "files of the same format",
        ),
        ("import jax", ("--on", "v5e-8", "--json", "-", "--html", "-"), 2, "standard output takes one of"),
        ("import jax", (), 2, "--on MACHINE is missing"),
        ("import jax", ("--on", "none.toml"), 2, "--on none.toml: No such file"),
        ("import jax", ("--on", "v5p-256", "--html", "none/plan.html"), 2, "there is no folder"),
        ("import jax", ("--on", "v5p-256", "--json", "."), 2, "that is a folder"),
        ("import jax", ("--on", "v5p-256", "--chakra", "prog.py"), 2, "that is a file"),
        ("import jax", ("--on", "v5p-256", "--layouts", "9"), 2, "--layouts 9: give --search"),
        ("import jax", ("--on", "v5p-256", "--search", "--layouts", "0"), 2, "at least one"),
    ],
)
def test_bad_input(plan, source, words, status, message):
    done = plan(source, *words)
    assert done.returncode == status
    assert message in done.stderr


LOADERS = """
import multiprocessing as m, sys, jax, jax.numpy as jnp, numpy as np
double = jax.jit(lambda x: 2 * x)
def load(i): return float(double(np.float32(i))) if i < 0 else i
if __name__ == "__main__":
    for start in ("fork", "spawn"):
        with m.get_context(start).Pool(1) as pool:
            print(start, pool.map(load, [3, -3]), flush=True)
    print(jax.jit(lambda x: x @ x)(jnp.ones((8, 8))).shape)
"""


def test_processes_that_the_program_starts(plan):
    """Data loaders give their data. A process of its own computes and says so; a forked one is planned as its parent is."""
    done = plan(LOADERS, "--on", "v5e-8")
    assert done.stdout.startswith("fork [3, 0.0]\nspawn [3, -6.0]\n(8, 8)\n<lambda> on v5e-8"), done.stderr
    assert done.stderr.count("was started by a run planned for v5e-8. It computes") == 1 and done.returncode == 0


def test_the_plan_is_shown_though_the_program_fails_later(plan):
    done = plan(PROGRAM + "\nraise OSError('disk is full')\n", "--on", "v5p-256", 1)
    assert done.returncode == 1 and "OSError: disk is full" in done.stderr
    assert "step on v5p-256" in done.stdout


AT_ONCE = """
import os, sys, threading, time, jax, jax.numpy as jnp
f = jax.jit(lambda x: x @ x)
"""


def test_the_plan_is_shown_though_the_program_ends_at_once(plan):
    done = plan(
        AT_ONCE + "f(jnp.ones((8, 8))); print(1, flush=True); os.close(1); os._exit(3)", "--on", "v5e-8", "--json", "-"
    )
    assert done.returncode == 3 and json.loads(done.stdout)["machine"] == "v5e-8"
    assert done.stderr.startswith("1\n<lambda> on v5e-8")


def test_python_does_not_look_for_cycles_after_the_plan(plan):
    log = "class Log:\n    def __init__(self): self.own = self\n    def __del__(self): print('looked')\nlog = Log()\n"
    done = plan(log + "import jax; jax.jit(lambda x: x + 1)(1)", "--on", "v5e-1")
    assert "fits: " in done.stdout and "looked" not in done.stdout and done.stderr == ""


def test_threads_of_the_program_are_waited_for(plan):
    source = AT_ONCE + "threading.Thread(target=lambda: (time.sleep(0.1), f(jnp.ones((8, 8))))).start()"
    assert "<lambda> on v5e-8" in plan(source, "--on", "v5e-8").stdout


def test_a_search_varies_a_program_as_it_stands(plan):
    done = plan(PROGRAM, "--on", "v5p-256", "--search", "--layouts", 24, 2)
    assert done.stderr == "" and done.returncode == 0
    page = done.stdout.partition("\nsearch: ")[2]
    planned = int(page.split()[0])
    assert 12 < planned <= 24 and "varied: the sizes of the mesh's axes data, model (8 shapes)" in page
    assert "as it is: remat: the program checkpoints nothing" in page
    assert "layout 1, the fastest:\n    mesh = jax.make_mesh((" in page
    assert page.index("\n  own ") < page.index("\n  1 ") < page.index("\n  v5p-128 ") < page.index("\n  v5p-512 ")
