"""Tracebacks show the user's frames."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.base import config
from shardwise.base.tracebacks import EXCLUDED, NOTE, _frames, _is_ours, user_stacklevel
from shardwise.ir.trace import user_source


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


def test_eager_calls_are_left_alone():
    assert not getattr(raised(lambda: wrong(jnp.ones(2))), "__notes__", [])


@pytest.mark.parametrize("name", CALLS)
def test_one_frame_of_ours_is_left(name):
    with config.override("jax_traceback_filtering", "remove_frames"):
        error = raised(CALLS[name])
    frames = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
    assert frames[-1] == "wrong"
    assert error.__notes__ == [NOTE]
    assert sum(map(_is_ours, entries(error))) == 1


def test_a_mistake_in_the_call_itself():
    with config.override("jax_traceback_filtering", "quiet_remove_frames"):
        error = raised(lambda: jax.jit(lambda x: x)("text"))
    assert not hasattr(error, "__notes__")
    assert len(traceback.extract_tb(error.__traceback__)) == 3  # this file's two, the call of the jitted function


def test_off_and_hide():
    with config.override("jax_traceback_filtering", "off"):
        whole = raised(CALLS["several"])
    with config.override("jax_traceback_filtering", "tracebackhide"):
        hidden = raised(CALLS["several"])
    assert len(traceback.extract_tb(whole.__traceback__)) > 10
    assert len(entries(hidden)) > 10
    inner = [f for f in entries(hidden) if _is_ours(f)][1:]  # the first is that of the call, which is still running
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
        scope = {"user_source": user_source, "user_stacklevel": user_stacklevel}
        exec(compile(code, path, "exec"), scope)
        EXCLUDED.extend([str(tmp_path / "library.py"), str(tmp_path / "folder")])
        try:
            assert (scope["source"]()[0] == path) == users, path
            assert scope["level"]() == (1 if users else 2), path
        finally:
            del EXCLUDED[-2:]
