"""Answers in a file: by expression, by key, an array or a word."""

from __future__ import annotations

import io
import lzma
from pathlib import Path
from typing import Any

import numpy as np

Answers = dict[str, dict[str, Any]]


def read(path: Path) -> Answers:
    """What `write` kept."""
    out: Answers = {}
    with np.load(io.BytesIO(lzma.decompress(path.read_bytes()))) as file:
        for name in file.files:
            expression, _, key = name.rpartition("|")
            value = file[name]
            key, _, dtype = key.partition(":")  # bfloat16 is kept as float32
            out.setdefault(expression, {})[key] = str(value) if value.dtype.kind == "U" else _with_dtype(value, dtype)
    return out


def _with_dtype(value: np.ndarray[Any, Any], dtype: str) -> np.ndarray[Any, Any]:
    if not dtype:
        return value
    import ml_dtypes

    return value.astype(getattr(ml_dtypes, dtype))


def write(path: Path, answers: Answers) -> None:
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
    path.write_bytes(lzma.compress(file.getvalue(), preset=9))
