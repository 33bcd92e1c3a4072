"""The command line: running programs and notebooks, its own errors, and `info`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import shardwise

SOURCE = Path(shardwise.__file__).parents[1]


@pytest.fixture
def run(shell, tmp_path):
    """`run(source, *words)`: `shardwise run` a program of that text, with `words` behind its name."""

    def go(source: str, *words: object, before: tuple[object, ...] = (), name: str = "prog.py", **environment: str):
        (tmp_path / name).write_text(source, encoding="utf-8")
        return shell("-m", "shardwise", "run", *before, name, *words, cwd=tmp_path, **environment)

    return go


def notebook(*sources: str) -> str:
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": source} for source in sources]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


def test_jax_is_shardwise(run):
    done = run(
        "import jax, jax.numpy as jnp, shardwise, shardwise.numpy, sys\n"
        "from jax.experimental import multihost_utils\n"
        "from jax.experimental.shard_map import shard_map\n"
        "import jax.sharding\n"
        "assert jax is shardwise and jnp is shardwise.numpy and jax.numpy is jnp\n"
        "assert multihost_utils is sys.modules['shardwise.experimental.multihost_utils']\n"
        "assert (jnp.__name__, jnp.__spec__.name) == ('jax.numpy', 'shardwise.numpy')\n"
        "print(jax.__version__, len(jax.devices()))\n"
    )
    assert (done.stdout, done.stderr) == ("0.5.3 1\n", "")


def test_latest_dialect(run):
    done = run("import jax; print(jax.__version__, jax.devices()[0])", "--dialect", "latest")
    assert (done.stdout, done.stderr) == ("0.10.2 cpu:0\n", "")


@pytest.mark.parametrize(
    "words, environment",
    [(("--devices", 12), {}), (("--devices=12",), {}), ((), {"JAX_NUM_CPU_DEVICES": "12"})],
)
def test_number_of_devices(run, words, environment):
    done = run("import jax; print(jax.device_count())", *words, **environment)
    assert (done.stdout, done.stderr) == ("12\n", "")


def test_the_collector_sees_the_programs_own_objects_alone(run):
    done = run(
        "import gc\n"
        "class Log:\n"
        "    def __init__(self): self.own = self\n"
        "    def __del__(self): print('closed')\n"
        "log = Log()\n"
        "print(gc.get_freeze_count() > 10_000)\n"
    )
    assert (done.stdout, done.stderr) == ("True\nclosed\n", "")


def test_the_program_sees_its_own_arguments(run, tmp_path):
    show = f"import sys; print(sys.argv, __name__, __file__.removeprefix({str(tmp_path)!r}))"
    expected = "['prog.py', '--devices', 'x', '-h'] __main__ /prog.py\n"
    assert run(show, "--", "--devices", "x", "-h").stdout == expected
    assert run(show, "--devices", "2", "--", "--devices", "x", "-h").stdout == expected
    assert run(show, "-h", "--devices", "2").stdout == "['prog.py', '-h', '--devices', '2'] __main__ /prog.py\n"
    assert run(show, "a", before=("--devices", "2")).stdout == "['prog.py', 'a'] __main__ /prog.py\n"


def test_the_program_imports_its_neighbours(run, tmp_path):
    (tmp_path / "neighbour.py").write_text("import jax\nname = jax.__name__\n")
    assert run("import neighbour; print(neighbour.name)").stdout == "shardwise\n"


def test_a_failing_program_shows_its_own_traceback_only(run):
    done = run("def f():\n    raise KeyError('here')\n\nf()\n")
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "Traceback (most recent call last):"
    assert done.stderr.splitlines()[-1] == "KeyError: 'here'"
    assert "shardwise" not in done.stderr
    assert done.stderr.count("File ") == 2


def test_a_syntax_error(run):
    done = run("def f(:\n")
    assert done.returncode == 1
    assert "SyntaxError" in done.stderr
    assert "shardwise" not in done.stderr


def test_exit_status(run):
    assert run("import sys; sys.exit(7)").returncode == 7
    done = run("raise SystemExit('stop here')")
    assert (done.returncode, done.stderr) == (1, "stop here\n")


@pytest.mark.parametrize(
    "name, missing, reason",
    [
        ("jaxlib._jax", "jaxlib._jax", "no jaxlib"),
        ("jax._src.compilation_cache", "jax._src.compilation_cache", "JAX's inside"),
        ("jax.lib.xla_bridge", "jax.lib.xla_bridge", "no counterpart"),
        ("jax.runtime", "jax.runtime", "JAX documents no such module"),
        ("jax.util", "jax.util", "no counterpart"),
    ],
)
def test_what_is_not_there_says_why(run, name, missing, reason):
    done = run(f"try:\n    import {name}\nexcept ImportError as e:\n    print(type(e).__name__, e.name, e)\n")
    assert done.stdout.startswith(f"ModuleNotFoundError {missing} No module named")
    assert reason in done.stdout


def test_modules_code_and_standard_input(shell, tmp_path):
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "__main__.py").write_text("from . import part")
    (package / "part.py").write_text("import jax, sys; print(jax.__name__, __name__, jax.device_count(), sys.argv[1:])")

    def run(*words, **more):
        done = shell("-m", "shardwise", "run", *words, cwd=tmp_path, **more)
        assert done.stderr == ""
        return done.stdout

    assert run("-m", "pack.part", "--devices", "2", "-c", "x") == "shardwise __main__ 2 ['-c', 'x']\n"
    assert run("--devices", "2", "-m", "pack", "--", "--devices") == "shardwise pack.part 2 ['--devices']\n"
    show = "import jax, sys; print(jax.__name__, __name__, sys.argv)"
    assert run("-c", show, "a", "-m") == "shardwise __main__ ['-c', 'a', '-m']\n"
    assert run("-", "a", "--dialect", "x", stdin=show) == "shardwise __main__ ['-', 'a', '--dialect', 'x']\n"
    assert run("-mpack.part") == "shardwise __main__ 1 []\n"


@pytest.mark.parametrize("words, stdin, name", [(("-c",), None, "<string>"), (("-",), "text", "<stdin>")])
def test_a_failing_text_shows_its_lines(shell, tmp_path, words, stdin, name):
    text = "def f():\n    raise KeyError('here')\n\nf()\n"
    done = shell(
        "-m", "shardwise", "run", *words, *([] if stdin else [text]), stdin=text if stdin else None, cwd=tmp_path
    )
    assert done.returncode == 1
    assert f'  File "{name}", line 2, in f\n    raise KeyError' in done.stderr
    assert "shardwise" not in done.stderr


def test_a_failing_module_shows_its_own_traceback_only(shell, tmp_path):
    (tmp_path / "bad.py").write_text("raise KeyError('here')")
    done = shell("-m", "shardwise", "run", "-m", "bad", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("File ") == 1
    assert "runpy" not in done.stderr


def test_version(shell):
    assert shell("-m", "shardwise", "--version").stdout == f"shardwise {shardwise.__version__}\n"


def test_completion_knows_commands_options_and_files(shell):
    script = shell("-m", "shardwise", "completion", "bash").stdout
    assert all(word in script for word in ("_shtab_shardwise_plan_option_strings", "--devices", "--on", "latest"))
    assert "_shtab_shardwise_run_pos_0_COMPGEN=_shtab_compgen_files" in script
    done = shell("-c", "import subprocess, sys; sys.exit(subprocess.run(['bash', '-n'], input=sys.stdin.read(), text=True).returncode)",
                 stdin=script)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_loaded_modules_have_jax_names(shell):
    program = (
        "import shardwise.dtypes, shardwise.alias as alias; alias.install()\n"
        "import sys, jax\n"
        "jax.tree_util, jax.numpy.fft\n"
        "from jax import random\n"
        "import jax.scipy.special\n"
        "for name in ('dtypes', 'tree_util', 'numpy', 'numpy.fft', 'random', 'scipy', 'scipy.special'):\n"
        "    assert sys.modules['jax.' + name] is sys.modules['shardwise.' + name], name\n"
        "assert not [m for m in sys.modules if m.startswith(('jax.engine', 'jax.base'))]\n"
        # by these libraries tell what made an array, and from which namespace its functions come
        "x = jax.numpy.ones(2)\n"
        "assert {x.__array_namespace__().__name__, jax.numpy.__name__} == {'jax.numpy'}\n"
        "kinds = [jax.Array, type(x)]\n"
        "mark = lambda v: (kinds.append(type(v)), v)[1]\n"
        "jax.jit(mark)(x), jax.vmap(mark)(x), jax.grad(mark)(1.0)\n"
        "assert {kind.__module__ for kind in kinds} == {'jax'}, kinds\n"
    )
    done = shell("-c", program)
    assert (done.returncode, done.stderr) == (0, "")


def test_real_jax_first_is_refused(shell):
    pytest.importorskip("jax")
    done = shell("-c", "import jax, shardwise.alias as alias; alias.install()")
    assert "RuntimeError: 'jax' is already imported" in done.stderr


@pytest.mark.parametrize(
    "words, message",
    [
        (("nowhere.py",), "there is no file nowhere.py"),
        ((".",), ". is a folder"),
        (("--devices", "0", "prog.py"), "'0' is no number of devices"),
        (("--devices", "many", "prog.py"), "'many' is no number of devices"),
        (("--dialect", "0.4", "prog.py"), "invalid choice: '0.4'"),
        (("--dialect", "latst", "prog.py"), "did you mean latest?"),
        (("--devics", "3", "prog.py"), "unrecognized arguments: --devics; did you mean --devices?"),
        ((), "give a PROGRAM, -m MODULE or -c CODE"),
        (("-m", "nowhere"), "there is no module nowhere"),
        (("-m", "nowhere.part"), "there is no module nowhere.part"),
        (("-m", "email"), "email is a package without a module __main__"),
    ],
)
def test_wrong_command_lines(shell, tmp_path, words, message):
    done = shell("-m", "shardwise", "run", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("usage: shardwise run ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_notebook_displays_the_last_expression(run):
    text = notebook(
        "x = 1",
        "x + 1",
        "x;  # quiet",
        "'text'",
        "None",
        "list(range(40))",
        "print('printed')\nx",
        "_ + 1",
        "display(x, 'y')",
    )
    done = run(text, name="book.ipynb")
    numbers = "".join(f" {i},\n" for i in range(1, 39))
    assert done.stderr == ""
    assert done.stdout == f"2\n'text'\n[0,\n{numbers} 39]\nprinted\n1\n2\n1\n'y'\n"


def test_notebook_magics(run):
    text = notebook(
        "%matplotlib inline\n!pip install rich\nx = 10",
        "%%time\ny = x",
        "%time z = (y\n % 3)",
        "%timeit -n 1 z + 1",
        "z",
    )
    done = run(text, name="book.ipynb")
    assert done.stdout == "2\n1\n"
    assert done.stderr.splitlines() == [
        "book.ipynb, cell 1: left out: %matplotlib inline",
        "book.ipynb, cell 1: left out: !pip install rich",
    ]
    done = run(notebook("x = 1\n%%bash"), name="book.ipynb")
    assert done.returncode == 2
    assert "book.ipynb, cell 1, line 2: %%bash needs IPython" in done.stderr


def test_notebook_errors_name_the_cell(run):
    done = run(notebook("x = 0", "def f():\n    return 1 / x\n\nf()"), name="book.ipynb")
    assert done.returncode == 1
    assert '/book.ipynb, cell 2", line 2, in f' in done.stderr
    assert "return 1 / x" in done.stderr
    assert "shardwise" not in done.stderr


@pytest.mark.parametrize("text", ["{}", "no json", '{"cells": [{}]}', "[]"])
def test_no_notebook(run, text):
    done = run(text, name="book.ipynb")
    assert done.returncode == 2
    assert "book.ipynb is not a notebook" in done.stderr


def test_notebook_in_another_language(run):
    text = json.dumps({"cells": [], "metadata": {"kernelspec": {"language": "julia"}}})
    assert "book.ipynb is written in julia" in run(text, name="book.ipynb").stderr


def test_info(shell):
    done = shell("-m", "shardwise", "info")
    assert done.returncode == 0
    assert done.stderr == ""
    titles = [line.split()[0] for line in done.stdout.splitlines() if not line.startswith(" ")]
    assert titles == ["versions", "dialect", "CPU", "BLAS", "devices", "MPI", "settings"]
    assert "not known" not in done.stdout


def test_info_as_json(shell):
    told = json.loads(shell("-m", "shardwise", "info", "--json").stdout)
    assert told["dialect"] == ["0.5: behaves and prints as JAX 0.5.3"]


def test_info_tells_which_settings_change_nothing(shell):
    said = shell("-m", "shardwise", "info", JAX_ENABLE_X64="1", JAX_OPTIMIZATION_LEVEL="O3").stdout
    assert "jax_enable_x64 = True\n" in said
    assert "jax_optimization_level = 'O3' (no effect: it steers XLA, which is not here)" in said


def test_info_from_python():
    assert "dialect" in str(shardwise.print_environment_info(return_string=True))


CHILDREN = """
import concurrent.futures, multiprocessing, os, subprocess, sys
import jax

def told(_=None):
    import jax
    import jax.numpy as jnp
    return f"{jax.__name__} {jax.__version__} {jax.device_count()} {jnp.arange(3).sum()}"

if __name__ == "__main__":
    show = "import jax, sys; print(jax.__name__, jax.__version__, jax.device_count(), jax.numpy.arange(3).sum())"
    python = lambda *words, **more: subprocess.run([sys.executable, *words], capture_output=True, text=True, **more).stdout.strip()
    print("here", told())
    print("subprocess", python("-c", show))
    print("grandchild", python("-c", f"import subprocess, sys; subprocess.run([sys.executable, '-c', {show!r}])"))
    print("nested", python("-m", "shardwise", "run", "--devices", "2", "neighbour.py"))
    for method in ("spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        with context.Pool(1) as pool:
            print(method, pool.apply(told))
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        print("futures", pool.submit(told).result())
    print("without jax", python("-c", "import sys; print('shardwise' in sys.modules, any('children' in p for p in sys.path))"))
    print("jaxlib", python("-c", "import jaxlib\\nprint(jaxlib.__name__, jaxlib.__version__)"))
    print("elsewhere", python("-c", "import sys; print(type(sys.meta_path[0]).__name__)", 
                               env=os.environ | {"SHARDWISE_RUN_PREFIX": "/another"}))
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-c", show.replace("print(", "print('exec', ")])
"""


def test_children_run_shardwise(run, tmp_path):
    """Whoever has the real JAX installed must not get it in the processes that a program starts."""
    (tmp_path / "neighbour.py").write_text("import jax; print(jax.__name__, jax.__version__, jax.device_count(), 3)")
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import builtins\nbuiltins.chained = __name__\n")
    done = run(CHILDREN, "--devices", "3", "--dialect", "latest")
    assert done.stderr == ""
    expected = "shardwise 0.10.2 3 3"
    lines = dict(line.split(" ", 1) for line in done.stdout.splitlines() if not line.startswith("without"))
    for how in ("here", "subprocess", "grandchild", "spawn", "forkserver", "futures", "exec"):
        assert lines[how] == expected, how
    assert lines["nested"] == "shardwise 0.10.2 2 3"
    assert "without jax False False" in done.stdout  # it costs nothing to those that do not import it
    assert lines["jaxlib"] == "shardwise._src.lib 0.10.2"
    assert lines["elsewhere"] != "_ImportHook"  # another Python
    show = "import subprocess, sys, os\nsubprocess.run([sys.executable, '-c', 'print(chained); import jax; print(jax.__name__)'])"
    chained = run(show, PYTHONPATH=os.pathsep.join([str(SOURCE), str(site)]))
    assert (chained.stdout, chained.stderr) == ("sitecustomize\nshardwise\n", "")


@pytest.mark.parametrize("command, options", [("explain", ()), ("plan", ("--on", "v5e-8"))])
def test_children_of_other_commands_run_shardwise(shell, tmp_path, command, options):
    program = (
        "import jax, subprocess, sys\n"
        "jax.jit(lambda x: x * 2)(jax.numpy.ones(3))\n"
        "show = 'import jax; print(jax.__name__, jax.__version__)'\n"
        "print(subprocess.run([sys.executable, '-c', show], capture_output=True, text=True).stdout, end='')\n"
    )
    done = shell("-m", "shardwise", command, *options, "--dialect", "latest", "-c", program, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "shardwise 0.10.2\n" in done.stdout


@pytest.mark.parametrize("command, options", [("explain", ()), ("plan", ("--on", "v5e-8"))])
def test_an_interrupted_program_is_told_of_so_far(shell, tmp_path, command, options):
    program = "import jax\njax.jit(lambda x: x * 2)(jax.numpy.ones(3))\nraise KeyboardInterrupt"
    done = shell("-m", "shardwise", command, *options, "-c", program, cwd=tmp_path)
    assert f"shardwise {command}: interrupted" in done.stderr and "Traceback" not in done.stderr
    assert "<lambda> on" in done.stdout
