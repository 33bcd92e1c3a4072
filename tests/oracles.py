"""The JAX of either era, as a Python interpreter that has it.

The JAX of today comes with the `test` extra. That of the seeds cannot share an environment with it, so it gets one of
its own: ``python -m tests.oracles`` makes it, in ``.oracles/`` beside this checkout's files or where
``SHARDWISE_ORACLES`` says. Without it the tests that need it skip, except where ``CI`` is set: there they fail.
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

# What each dialect is compared with. The seeds' outputs are those of 0.5.3 to the letter.
VERSIONS = {"seed": "0.5.3", "latest": "0.10.2"}
FOLDER = Path(os.environ.get("SHARDWISE_ORACLES") or Path(__file__).parent.parent / ".oracles")


def interpreter(dialect: str) -> Path:
    """The Python that has the JAX of a dialect's era, whether it is there or not."""
    return Path(sys.executable) if dialect == "latest" else FOLDER / VERSIONS[dialect] / "bin" / "python"


def require(dialect: str) -> Path:
    """The interpreter of an era; skips the test, or in CI fails it, if it is not there."""
    if dialect == "latest":
        pytest.importorskip("jax")
    python = interpreter(dialect)
    if not python.exists():
        lack = f"JAX {VERSIONS[dialect]} is not in {FOLDER}; `python -m tests.oracles` installs it"
        pytest.fail(lack) if os.environ.get("CI") else pytest.skip(lack)
    return python


def make() -> None:
    """Install the JAX of the seeds' era."""
    python = interpreter("seed")
    version = VERSIONS["seed"]
    venv.create(python.parent.parent, with_pip=True)
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "--no-compile", f"jax=={version}", f"jaxlib=={version}", "rich"],
        check=True,
    )
    print(f"JAX {version} in {python}")


if __name__ == "__main__":
    make()
