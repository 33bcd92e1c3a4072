"""Tracebacks show the user's frames."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.base import config
from shardwise.base.tracebacks import EXCLUDED_PATHS, NOTE, _frames, _is_ours, user_stacklevel
from shardwise.ir.sources import user_source


def wrong(x):
    return jnp.dot(x, jnp.ones(3))


def nested(x):
    return jax.vmap(lambda row: wrong(row).sum())(x).sum()


CALLS = {
    "jit": lambda: jax.jit(wrong)(jnp.ones(2)),
    "grad": lambda: jax.grad(lambda x: wrong(x).sum())(jnp.ones(2)),
    "several": lambda: jax.jit(jax.value_and_grad(nested))(jnp.ones((2, 2))),
    "scan": lambda: jax.lax.scan(lambda c, x: (wrong(c), x), jnp.ones(2), jnp.ones(3)),
    "cond": lambda: jax.lax.cond(True, wrong, wrong, jnp.ones(2)),
    "checkpoint": lambda: jax.jit(jax.checkpoint(wrong))(jnp.ones(2)),
}


def raised(call):
    with pytest.raises(TypeError) as info:
        call()
    return info.value


def entries(error):
    return list(_frames(error.__traceback__))


PRELUDE = """import jax, jax.numpy as jnp
from jax.experimental.shard_map import shard_map
from jax.sharding import PartitionSpec as P
def wrong(x):
    return jnp.dot(x, jnp.ones(3))
mesh = jax.make_mesh((1,), ('x',))
def called_back(x):
    raise KeyError('mine')
"""
WAYS = {
    "eager": "wrong(jnp.ones(2))",
    "operators": "jnp.ones(3)[None, None, 0, 0]",
    "jit": "jax.jit(wrong)(jnp.ones(2))",
    "vmap": "jax.vmap(wrong)(jnp.ones((2, 2)))",
    "grad": "jax.grad(lambda x: wrong(x).sum())(jnp.ones(2))",
    "shard_map": "shard_map(wrong, mesh=mesh, in_specs=P('x'), out_specs=P('x'))(jnp.ones(2))",
    "scan": "jax.lax.scan(lambda c, x: (wrong(c), x), jnp.ones(2), jnp.ones(3))",
    "callback": "jax.pure_callback(called_back, jnp.ones(3), jnp.ones(3))",
    "cause": "try: wrong(jnp.ones(2))\nexcept TypeError as error: raise ValueError('mine') from error",
    "interrupt": "def stop(x): raise KeyboardInterrupt\njax.pure_callback(stop, jnp.ones(3), jnp.ones(3))",
    "thread": "import threading\nthread = threading.Thread(target=wrong, args=(jnp.ones(2),))\nthread.start()\nthread.join()",
}


@pytest.mark.parametrize("name", WAYS)
def test_no_frame_of_ours_is_shown(shell, tmp_path, name):
    (tmp_path / "prog.py").write_text(PRELUDE + WAYS[name] + "\n")
    ours = str(Path(jax.__file__).parent)
    ways = [["prog.py"]] if name != "vmap" else [["prog.py"], ["-m", "prog"], ["-c", PRELUDE + WAYS[name]]]
    for way in ways:
        done = shell("-m", "shardwise", "run", *way, cwd=tmp_path)
        assert done.returncode == {"interrupt": 130, "thread": 0}.get(name, 1), done.stderr
        assert "Traceback" in done.stderr and ours not in done.stderr and "raise filtered" not in done.stderr
        assert done.stderr.count(NOTE) == 1
        assert f'File "{tmp_path / "prog.py"}", line ' in done.stderr or way[0] == "-c"
        assert (
            WAYS[name].splitlines()[-1].removeprefix("except TypeError as error: ") in done.stderr or name == "thread"
        )


def test_a_program_that_imports_shardwise_shows_its_frames_only(shell, tmp_path):
    (tmp_path / "prog.py").write_text("import shardwise.numpy as jnp\njnp.ones(2) @ jnp.ones(3)\n")
    done = shell("prog.py", cwd=tmp_path)
    assert done.returncode == 1 and done.stderr.count("File ") == 1 and "jnp.ones(2) @ jnp.ones(3)" in done.stderr
    whole = shell("prog.py", cwd=tmp_path, JAX_TRACEBACK_FILTERING="off")
    assert whole.stderr.count("File ") > 3 and NOTE not in whole.stderr


@pytest.mark.parametrize(
    "code, told",
    [
        ("jnp.meen(x)", "'mean'"),
        ("x.meen()", "'mean'"),
        ("jnp.linalg.svg(x)", "'svd'"),
        ("jnp.random.normal(3)", "jax.random.key"),
        ("jnp.loadtxt('x')", "numpy.loadtxt"),
        ("jnp.trapz(x)", "trapezoid"),
        ("x.fill(3)", "x.at[index].set"),
        ("jax.config.update('jax_enable_x46', 1)", "jax_enable_x64"),
        ("jax.sharding.NamedSharding(jax.make_mesh((1,), ('data',)), jax.P('dta'))", "'data'"),
        ("pritn(x)", "'print'"),
    ],
)
def test_what_was_meant(shell, code, told):
    done = shell("-c", f"import shardwise as jax, shardwise.numpy as jnp, shardwise.sharding\nx = jnp.ones(3)\n{code}")
    assert done.returncode == 1 and told in done.stderr, done.stderr


def test_other_hooks_get_what_is_left(shell):
    code = (
        "import sys, traceback\nsys.excepthook = lambda kind, error, trace: print(len(traceback.extract_tb(trace)), repr(error))\n"
        "import shardwise.numpy as jnp\njnp.ones(3, dtype='no')"
    )
    done = shell("-c", code)
    assert done.stdout.startswith("1 TypeError(") and done.stderr == ""


def test_eager_calls_are_left_alone():
    assert not getattr(raised(lambda: wrong(jnp.ones(2))), "__notes__", [])


@pytest.mark.parametrize("name", CALLS)
def test_no_frame_of_ours_is_left(name):
    with config.override("jax_traceback_filtering", "remove_frames"):
        error = raised(CALLS[name])
    frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert frames[-1] == "wrong"
    assert error.__notes__ == [NOTE]
    assert sum(map(_is_ours, entries(error))) == 0


def test_a_mistake_in_the_call_itself():
    with config.override("jax_traceback_filtering", "quiet_remove_frames"):
        error = raised(lambda: jax.jit(lambda x: x)("text"))
    assert not hasattr(error, "__notes__")
    assert len(traceback.extract_tb(error.__traceback__)) == 2  # this file's two


def test_off_and_hide():
    with config.override("jax_traceback_filtering", "off"):
        whole = raised(CALLS["several"])
    with config.override("jax_traceback_filtering", "tracebackhide"):
        hidden = raised(CALLS["several"])
    assert len(traceback.extract_tb(whole.__traceback__)) > 10
    assert len(entries(hidden)) > 10
    inner = [f for f in entries(hidden) if _is_ours(f)]
    assert all(f.tb_frame.f_locals.get("__tracebackhide__") for f in inner)


def test_files_beside_the_package_are_the_users(tmp_path):
    """A folder whose name begins as the package's does is not the package; nor is one that begins as an excluded one."""
    here = str(Path(jax.__file__).parent)
    code = "def source():\n    return user_source()\ndef level():\n    return user_stacklevel()\n"
    for path, users in {
        here + "_extras/model.py": True,
        here + "/model.py": False,
        str(tmp_path / "library.py"): False,
        str(tmp_path / "library.pyx"): True,
        str(tmp_path / "folder" / "a.py"): False,
        str(tmp_path / "folder2" / "a.py"): True,
    }.items():
        scope: dict[str, Any] = {"user_source": user_source, "user_stacklevel": user_stacklevel}
        exec(compile(code, path, "exec"), scope)
        EXCLUDED_PATHS.extend([str(tmp_path / "library.py"), str(tmp_path / "folder")])
        try:
            assert (scope["source"]()[0] == path) == users, path
            assert scope["level"]() == (1 if users else 2), path
        finally:
            del EXCLUDED_PATHS[-2:]
