"""Every program of the documents that shardwise implements, run unchanged by `shardwise run`.

`programs/` has them as they were given, `expected/` what they print: what the documents show, and where they show
nothing (drawings, values left unprinted) what JAX 0.5.3 prints. `latest/` has the same programs in the spelling of
JAX 0.10, and `expected/latest/` what that JAX prints. CI runs one program of each with its JAX, ``SHARE=1 pytest -m record`` all.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests import oracles

HERE = Path(__file__).parent
PRINTING = sorted(path.stem for path in (HERE / "expected").glob("*.txt"))
LATEST = sorted(path.stem for path in (HERE / "latest").glob("*.py"))
FAILING = {"s003_missing_keepdims"}  # after what they print
ALL = os.environ.get("SHARE") == "1"  # as in tests/test_records.py

# Programs that take the number of devices from outside, and numbers that suit them.
ANY_DEVICES = {"s001_single_device_arrays": (2, 4, 8, 16), "s004_pjit": (1, 2, 4, 8)}


def expected(name: str) -> str:
    return (HERE / "expected" / f"{name}.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PRINTING)
def test_prints_what_the_document_shows(shell, name):
    done = shell("-m", "shardwise", "run", HERE / "programs" / f"{name}.py", JAX_NUM_CPU_DEVICES="8")
    assert done.stderr == ""
    assert done.stdout == expected(name)


@pytest.mark.record
@pytest.mark.parametrize("name", PRINTING if ALL else ["s003_distributed_arrays"])
def test_the_jax_of_the_documents_prints_it(shell, name):
    """What is expected is what that JAX says, not what somebody once wrote down."""
    program = HERE / "programs" / f"{name}.py"
    done = shell(program, python=oracles.require("seed"), PYTHONPATH="", JAX_NUM_CPU_DEVICES="8")
    assert done.stdout == expected(name)


@pytest.mark.record
@pytest.mark.parametrize("name", LATEST if ALL else ["s003_missing_keepdims"])
def test_the_jax_of_today_prints_it(shell, name):
    oracles.require("latest")
    done = shell(HERE / "latest" / f"{name}.py", JAX_NUM_CPU_DEVICES="8")
    assert done.stdout == expected(f"latest/{name}")
    assert (done.returncode != 0) == (name in FAILING)


@pytest.mark.parametrize("name, devices", [(name, n) for name, counts in ANY_DEVICES.items() for n in counts])
def test_any_number_of_devices(shell, name, devices):
    done = shell("-m", "shardwise", "run", HERE / "programs" / f"{name}.py", "--devices", devices)
    assert done.stderr == ""
    if name == "s004_pjit" or devices == 8:
        assert done.stdout == expected(name)


def test_notebook_prints_its_own_outputs(shell):
    path = HERE / "programs" / "s003_distributed_arrays.ipynb"
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    outputs = [text for cell in cells for output in cell.get("outputs", ()) for text in output["text"]]
    done = shell("-m", "shardwise", "run", path)
    assert done.stderr == ""
    assert done.stdout == "".join(outputs) == expected("s003_distributed_arrays")


def test_indivisible_host_local_input(shell):
    done = shell("-m", "shardwise", "run", HERE / "programs" / "s002_indivisible.py")
    assert done.returncode == 1
    (error,) = [line for line in done.stderr.splitlines() if line.startswith("ValueError: One of pjit arguments")]
    assert "PartitionSpec(('x', 'y', 'chips'),)" in error
    fact = "implies that the global size of its dimension 0 should be divisible by 8, but it is equal to 4"
    assert fact in error


def test_sum_without_keepdims(shell):
    done = shell("-m", "shardwise", "run", HERE / "programs" / "s003_missing_keepdims.py")
    assert done.stdout == "496\n"
    assert done.returncode == 1
    message = done.stderr.partition("ValueError: ")[2]
    assert message.startswith(
        "shard_map applied to the function 'f' was given an out_specs entry which is too long to be compatible with "
        "the corresponding output value from the function"
    )
    for fact in ("PartitionSpec('x',)", "length 1", "int32[]", "rank 0", "singleton"):
        assert fact in message


@pytest.mark.parametrize("how", ["config", "environment"])
@pytest.mark.parametrize("value", [True, False])
def test_the_old_switch(shell, tmp_path, how, value):
    program = tmp_path / "switch.py"
    if how == "config":
        program.write_text(f"import jax\njax.config.update('jax_array', {value})\nprint('one type')\n")
        done = shell("-m", "shardwise", "run", program)
    else:
        program.write_text("import jax\nprint('one type')\n")
        done = shell("-m", "shardwise", "run", program, JAX_ARRAY=str(int(value)))
    if value:
        assert (done.stdout, done.stderr) == ("one type\n", "")
    else:
        assert done.returncode == 1
        assert re.search(r"^ValueError: jax_array.*DeviceArray.*are gone", done.stderr, re.MULTILINE)


@pytest.mark.parametrize("name", LATEST)
def test_latest_dialect_prints_what_jax_prints(shell, name):
    done = shell(
        "-m", "shardwise", "run", HERE / "latest" / f"{name}.py", "--dialect", "latest", JAX_NUM_CPU_DEVICES="8"
    )
    assert done.stdout == expected(f"latest/{name}")
    assert done.returncode == (name in FAILING)
    assert name in FAILING or done.stderr == ""
