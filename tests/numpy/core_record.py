"""JAX's answers to the tables of the core functions (creation, elementwise, reductions, operators), kept in a file.

``python -m tests.numpy.core_record`` adds what is missing, ``--all`` asks again about everything.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

import shardwise
import shardwise.numpy as jnp
from shardwise.base.errors import ConcretizationTypeError
from shardwise.sharding import Mesh
from tests.numpy import face

RECORD = Path(__file__).parent / "recorded_core.jsonl"
TABLES = (
    "test_creation test_ranges test_diagonals test_ufuncs test_predicates test_float_parts test_reductions test_quantiles "
    "test_cumulative test_operators test_signal test_named_ufuncs"
).split()


def use() -> None:
    """Let `face` find these answers."""
    if RECORD.exists():
        face.recorded().update(json.loads(line) for line in RECORD.read_text().splitlines())


def write(keep: bool) -> None:
    """Ask JAX about every expression of the tables, or with `keep` only about new ones."""
    lines = RECORD.read_text().splitlines() if keep and RECORD.exists() else []
    old = dict(json.loads(line) for line in lines)
    found: set[str] = set()
    for name in TABLES:
        path = Path(__file__).parent / f"{name}.py"
        if path.exists():
            module = importlib.import_module(f"tests.numpy.{name}")
            for table in (module.CASES, module.ERRORS):
                found |= {param.values[0].partition("#")[0].strip() for param in face.cases(table)}
    answers = [json.dumps([e, old[e] if e in old else face.live_answer(e)]) for e in sorted(found)]
    RECORD.write_text("".join(line + "\n" for line in answers))


def check_on_arrays(line: str) -> None:
    """`face.check_case` for operators and methods, which NumPy arrays have too: only with arrays of our own."""
    expression, _, mark = line.partition("#")
    expression = expression.strip()
    host = face.operands(expression)
    own = {name: jnp.asarray(x) if isinstance(x, np.ndarray) else x for name, x in host.items()}
    got = face.evaluate(expression, shardwise, own)
    face.check_answer(got, face.jaxs_answer(expression))
    arrays = {name: x for name, x in own.items() if isinstance(x, shardwise.Array)}
    scalars = {name: x for name, x in own.items() if name not in arrays}
    mesh = Mesh(np.array(shardwise.devices()[:8]).reshape(2, 4), ("x", "y"))
    split = {name: face._split(host[name], mesh) for name in arrays}
    face.check_values(face.evaluate(expression, shardwise, {**scalars, **split}), got)
    traced = shardwise.jit(lambda given: face.evaluate(expression, shardwise, {**scalars, **given}))
    if mark.strip() == "static":
        with pytest.raises(ConcretizationTypeError):
            traced(arrays)
        return
    result = traced(arrays)
    face.check_values(result, got)
    assert face.weak_types(result) == face.weak_types(got)
    face.check_values(traced(split), got)


use()
if __name__ == "__main__":
    write(keep="--all" not in sys.argv)
