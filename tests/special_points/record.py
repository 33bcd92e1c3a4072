"""JAX's answers at the special points, kept in ``recorded.xz``: it takes minutes to compile what gives them.

``python -m tests.special_points.record`` asks the installed JAX about the expressions that have no answer yet, ``--all`` about each,
and ``--accept`` notes what shardwise gives where it differs for a reason that `differences` says.
"""

from __future__ import annotations

import functools
import io
import lzma
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np

from tests.special_points import table
from tests.special_points.answers import answer
from tests.special_points.comparison import differing
from tests.special_points.differences import reason

RECORD = Path(__file__).parent / "recorded.xz"
Answers = dict[str, dict[str, Any]]


@functools.cache
def recorded() -> Answers:
    """By expression, what JAX gives, and under ``ours.*`` what shardwise gives where that is accepted."""
    if not RECORD.exists():
        return {}
    out: Answers = {}
    with np.load(io.BytesIO(lzma.decompress(RECORD.read_bytes()))) as file:
        for name in file.files:
            expression, _, key = name.rpartition("|")
            value = file[name]
            dtype = key.partition(":")[2]  # bfloat16 is kept as float32
            key = key.partition(":")[0]
            out.setdefault(expression, {})[key] = str(value) if value.dtype.kind == "U" else _with_dtype(value, dtype)
    return out


def _with_dtype(value: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    if not dtype:
        return value
    import ml_dtypes

    return value.astype(getattr(ml_dtypes, dtype))


def write(answers: Answers) -> None:
    """Keep these answers."""
    arrays = {}
    for expression in sorted(answers):
        for key, value in sorted(answers[expression].items()):
            own = isinstance(value, np.ndarray) and value.dtype.name == "bfloat16"
            arrays[f"{expression}|{key}{':bfloat16' * own}"] = (
                np.asarray(value, np.float32) if own else np.asarray(value)
            )
    file = io.BytesIO()
    np.savez(file, **arrays)
    RECORD.write_bytes(lzma.compress(file.getvalue(), preset=9))
    recorded.cache_clear()


def ask(expression: str) -> dict[str, Any]:
    """The answer of the installed JAX, compiled: forward derivatives only where they are not those in reverse."""
    import jax

    return answer(jax, table.library("jax"), expression, jax.jit, forward=expression not in table.found().values())


def accept(answers: Answers, expression: str, ours: dict[str, Any]) -> None:
    """Note in which places shardwise gives something else."""
    known = answers[expression]
    for key in [k for k in known if k.startswith("ours.")]:
        del known[key]
    for key in known.keys() & ours.keys():
        if not isinstance(known[key], str) and differing(ours[key], known[key]).any():
            known[f"ours.{key}"] = ours[key]


def main() -> None:
    """Fill the file."""
    answers: Answers = {} if "--all" in sys.argv else recorded()
    wanted = table.expressions()
    answers = {e: answers.get(e) or ask(e) for e in wanted}
    if "--accept" in sys.argv:
        import shardwise

        shardwise.config.update("shardwise_dialect", "latest")
        scope = table.library("shardwise")
        for expression in wanted:
            if reason(expression):
                accept(answers, expression, answer(shardwise, scope, expression))
    write(answers)


if __name__ == "__main__":
    main()
