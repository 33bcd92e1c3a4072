"""The dialect that `shardwise run` takes by the names of a program."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from shardwise.cli import era_names, eras
from tests.calls.era_names import TABLE, only_in_one, text
from tests.oracles import require

TODAY = "import jax\nmesh = jax.make_mesh((1,), ('x',))\nwith jax.set_mesh(mesh):\n    print(jax.__version__)\n"


def era_of(source: str, folder: Path = Path("/nonexistent")) -> str | None:
    sign = eras.chosen_era([("prog.py", source)], [folder])
    return sign and sign.era


@pytest.mark.parametrize(
    "source",
    [
        "import jax\njax.shard_map",
        "import jax as j\nj.tree.broadcast(1, 2)",
        "from jax import P",
        "from jax.sharding import auto_axes as a",
        "import jax.numpy as jnp\ndef f(): return jnp.zeros(3, out_sharding=None)",
        "import jax, functools\nfunctools.partial(jax.checkpoint, concrete=True)",
        "import jax.ref",
        "from jax import numpy\nif True:\n    numpy.reshape(1, 2, out_sharding=None)",
    ],
)
def test_names_of_today(source):
    assert era_of(source) == "0.10"


@pytest.mark.parametrize(
    "source",
    [
        "import jax\njax.device_put_replicated",
        "from jax.sharding import PositionalSharding",
        "from jax.experimental.shard import reshard",
        "import jax.numpy as jnp\njnp.clip(1, a_min=2)",
        "from jax.experimental.shard_map import shard_map\nshard_map(f, m, i, o, auto={'x'})",
        "import jax\njax.sharding.use_mesh\njax.sharding.PmapSharding\njax.set_mesh",
    ],
)
def test_names_of_before(source):
    assert era_of(source) == "0.5"


@pytest.mark.parametrize(
    "source",
    [
        "import jax\njax.jit",
        "import numpy as jax\njax.set_mesh",
        "import jax\nif hasattr(jax, 'set_mesh'):\n    jax.set_mesh(m)",
        "import jax\nif jax.__version_info__ >= (0, 7):\n    jax.set_mesh(m)",
        "try:\n    from jax import shard_map\nexcept ImportError:\n    from jax.experimental.shard_map import shard_map",
        "'jax.set_mesh'  # jax.set_mesh",
        "import jax\njax.set_mesh\njax.spmd_mode",
        "import jax\nthis is no Python",
    ],
)
def test_no_sign(source):
    assert era_of(source) is None


def test_modules_beside_the_program_count(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "__init__.py").write_text("from .layers import f")
    (tmp_path / "model" / "layers.py").write_text("import jax, model\nf = jax.shard_map")
    assert era_of("import model", tmp_path) == "0.10"
    assert era_of("from model import f", tmp_path) == "0.10"
    assert era_of("import jax.experimental.shard, model", tmp_path) is None


@pytest.fixture
def library(tmp_path, monkeypatch):
    def make(source: str, needs: str) -> None:
        (tmp_path / "somelib").mkdir()
        (tmp_path / "somelib" / "__init__.py").write_text(source)
        (tmp_path / "somelib-1.0.dist-info").mkdir()
        metadata = f"Metadata-Version: 2.1\nName: somelib\nVersion: 1.0\nRequires-Dist: {needs}\n"
        (tmp_path / "somelib-1.0.dist-info" / "METADATA").write_text(metadata)
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])

    return make


@pytest.mark.parametrize(
    "source, needs, era",
    [
        ("", "jax>=0.7.1", "0.10"),
        ("", "jax>=0.4.30", None),
        ("import jax\nf = jax.jit(jax.set_mesh)", "jax", "0.10"),
        ("import jax\ndef f(): jax.set_mesh", "jax>=0.5", None),
        ("import jax\n@jax.smap\ndef f(): pass", "jaxlib", "0.10"),
        ("import jax\nf = jax.set_mesh", "numpy", None),
    ],
)
def test_libraries_count_where_the_program_says_nothing(library, source, needs, era):
    library(source, needs)
    assert era_of("import somelib") == era
    assert era_of("import somelib, jax.experimental.shard") == "0.5"


def run(shell, folder, *words, **environment):
    return shell("-m", "shardwise", "run", *words, cwd=folder, **environment)


def test_the_choice_is_told_in_one_line(shell, tmp_path):
    (tmp_path / "prog.py").write_text(TODAY)
    told = "shardwise: behaves as JAX 0.10, since prog.py:3 uses jax.set_mesh; --dialect 0.5 or 0.10 chooses.\n"
    for _ in range(2):
        done = run(shell, tmp_path, "prog.py")
        assert (done.stdout, done.stderr) == ("0.10.2\n", told)
    assert run(shell, tmp_path, "-c", TODAY).stderr == told.replace("prog.py", "-c")
    assert run(shell, tmp_path, "-m", "prog").stderr.startswith("shardwise: behaves as JAX 0.10")
    cell = {"cell_type": "code", "metadata": {}, "outputs": [], "source": "%cd .\n" + TODAY}
    book = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    (tmp_path / "book.ipynb").write_text(json.dumps(book))
    assert run(shell, tmp_path, "book.ipynb").stderr.count("book.ipynb:4 uses jax.set_mesh") == 1
    assert run(shell, tmp_path, "prog.py", PMI_RANK="1").stderr == ""
    (tmp_path / "launcher.py").write_text("import runpy, sys\nsys.argv = sys.argv[1:]\nrunpy.run_path(sys.argv[0])")
    assert run(shell, tmp_path, "launcher.py", "prog.py").stderr == told


def test_a_given_dialect_is_not_questioned(shell, tmp_path):
    (tmp_path / "prog.py").write_text(TODAY)
    for done in (
        run(shell, tmp_path, "--dialect", "0.5", "prog.py"),
        run(shell, tmp_path, "prog.py", SHARDWISE_DIALECT="seed"),
    ):
        assert (done.stdout, done.stderr) == ("0.5.3\n", "")


def test_the_table_is_that_of_the_releases():
    assert TABLE.read_text(encoding="utf-8") == text(*only_in_one(str(require("seed")), str(require("latest"))))
    assert not era_names.ONLY_BEFORE & era_names.ONLY_TODAY
