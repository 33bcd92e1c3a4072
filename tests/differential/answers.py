"""What JAX answered to programs, kept in ``answers.xz``: compiling them took JAX most of the time of the tests that compare.

A program that is not kept there is asked live, so a new one or another version of JAX only takes longer. ``python -m
tests.differential.answers [PATH...]`` runs the tests that compare, or those in PATH, and writes what they ask; answers that other
tests ask stay with PATH. `tests/test_records.py` asks JAX again about some.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import lzma
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from tests import oracles
from tests.differential.worker import PREAMBLE

RECORD = Path(__file__).with_name("answers.xz")
ROOM = Path(__file__).parent.parent
ASKING = ["differential", "fuzz/test_found.py", "acceptance", "numpy/test_sets.py", "numpy/test_float_parts.py", "test_image.py",
          "transforms/checks/test_checkify.py"]  # fmt: skip
# A folder: every answer that is asked for is written there. "" asks live about everything.
FOLDER = os.environ.get("ANSWERS")
Question = tuple[str, int, str]  # dialect, number of devices, program


def kept(question: Question) -> dict[str, Any] | None:
    """The answer that is kept, or None."""
    if FOLDER is not None:
        return None
    text = _record().get(_key(question))
    return None if text is None else _value(json.loads(text))


def keep(question: Question, answer: dict[str, Any]) -> None:
    """Write an answer where the answers of this run are collected."""
    if FOLDER:
        try:
            line = json.dumps([*question, json.dumps(_plain(answer), separators=(",", ":"))])
        except TypeError:  # it is asked live each time
            return
        with open(Path(FOLDER) / f"{os.getpid()}.jsonl", "a", encoding="utf-8") as file:
            file.write(line + "\n")


def entries() -> list[tuple[Question, dict[str, Any]]]:
    """All that is kept."""
    return [((dialect, devices, source), _value(json.loads(text))) for dialect, devices, source, text in _lines()]


def _lines() -> list[tuple[str, int, str, str]]:
    return [tuple(json.loads(line)) for line in lzma.decompress(RECORD.read_bytes()).decode().splitlines()]


@functools.cache
def _record() -> dict[bytes, str]:
    return {_key((dialect, devices, source)): text for dialect, devices, source, text in _lines()}


def _key(question: Question) -> bytes:
    dialect, devices, source = question
    text = f"{oracles.VERSIONS[dialect]}\n{devices}\n{PREAMBLE}\n{source}"
    return hashlib.sha256(text.encode()).digest()


def _plain(x: Any) -> Any:
    """An answer as JSON has it: what is no list, text or number becomes a dict with its kind. TypeError where that is not known."""
    if x is None or type(x) in (bool, int, float, str):
        return x
    if type(x) is list:
        return [_plain(each) for each in x]
    if type(x) is tuple:
        return {"tuple": [_plain(each) for each in x]}
    if type(x) is dict:
        return {"dict": [[_plain(key), _plain(value)] for key, value in x.items()]}
    if type(x) is complex:
        return {"complex": [x.real, x.imag]}
    if type(x) is np.ndarray and x.dtype.kind != "O":
        name = x.dtype.name if x.dtype.isbuiltin == 2 else x.dtype.str
        return {"array": [name, x.shape, base64.b64encode(np.ascontiguousarray(x).tobytes()).decode()]}
    raise TypeError(type(x))


def _value(x: Any) -> Any:
    """The inverse of `_plain`."""
    if isinstance(x, list):
        return [_value(each) for each in x]
    if not isinstance(x, dict):
        return x
    ((kind, content),) = x.items()
    if kind == "tuple":
        return tuple(map(_value, content))
    if kind == "dict":
        return {_value(key): _value(value) for key, value in content}
    if kind == "complex":
        return complex(*content)
    name, shape, data = content
    dtype = np.dtype(getattr(ml_dtypes, name, name))
    return np.frombuffer(base64.b64decode(data), dtype).reshape(shape).copy()


def main(paths: list[str]) -> int:
    """Run tests and write what they asked JAX."""
    with tempfile.TemporaryDirectory() as folder:
        tests = paths or [str(ROOM / path) for path in ASKING]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
        status = subprocess.run(command, env=os.environ | {"ANSWERS": folder}, cwd=ROOM.parent).returncode
        asked = [
            tuple(json.loads(line)) for file in Path(folder).glob("*.jsonl") for line in file.read_text().splitlines()
        ]
    lines = {line[:3]: line for line in [*(_lines() if paths else ()), *asked]}
    text = "".join(json.dumps(lines[question]) + "\n" for question in sorted(lines, key=lambda q: (q[0], q[1], q[2])))
    RECORD.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{len(lines)} answers, {RECORD.stat().st_size} bytes")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
