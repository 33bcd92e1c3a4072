"""What is asked for and is not there says why, and what to use instead."""

from __future__ import annotations

import importlib

import pytest

import shardwise as sw
from shardwise.base.gone import ABSENT, why_absent


@pytest.mark.parametrize("path", ABSENT)
def test_absent_modules_are_absent(path: str) -> None:
    with pytest.raises(ImportError):
        importlib.import_module(f"shardwise.{path}")
    assert why_absent(f"{path}.anything") == ABSENT[path]


def test_attributes_say_why() -> None:
    with pytest.raises(AttributeError, match="linear_call"):
        getattr(sw, "custom_transpose")  # noqa: B009
    assert why_absent("numpy") is None and why_absent("") is None


def test_imports_say_why(tmp_path) -> None:
    import subprocess
    import sys

    program = (
        "from shardwise import alias; alias.install()\n"
        "for name in ('jax.experimental.transfer', 'jax.experimental.rnn', 'jax.custom_transpose'):\n"
        "    try:\n"
        "        __import__(name)\n"
        "    except ModuleNotFoundError as error:\n"
        "        print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 3 and "device_put" in lines[0] and "lax.scan" in lines[1]
    assert "linear_call" in lines[2]
