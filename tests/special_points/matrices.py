"""Special matrices by name, and the derivatives of a function at each of them by one library."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

SQUARE: dict[str, Any] = {
    "identity": np.eye(3),
    "zeros": np.zeros((3, 3)),
    "orthogonal": [[0, -1, 0], [0, 0, 1], [1, 0, 0]],
    "rotation": [[0.6, -0.8, 0], [0.8, 0.6, 0], [0, 0, 1]],
    "diagonal": np.diag([1, 1, 3]),
    "diagonal of two signs": np.diag([-2, 1, 1]),
    "diagonal with a zero": np.diag([2, 0, 1]),
    "symmetric, repeated eigenvalue": [[2, 1, 1], [1, 2, 1], [1, 1, 2]],
    "definite": [[4, 1, 0.5], [1, 3, 0.25], [0.5, 0.25, 2]],
    "hermitian": [[2, 1 - 1j, 0], [1 + 1j, 3, 1j], [0, -1j, 1]],
    "indefinite": [[1, 2, 0], [2, -3, 1], [0, 1, 2]],
    "general": [[1, 2, 0.5], [-1, 3, 2], [0.25, 1, -2]],
    "complex": [[1, 2j, 0.5], [-1, 3, 2 + 1j], [0.25j, 1, -2]],
    "rank 2": [[1, 2, 3], [2, 4, 6], [1, 0, 1]],
    "rank 1": [[1, 2, 1], [2, 4, 2], [-1, -2, -1]],
    "nilpotent": [[0, 1, 0], [0, 0, 1], [0, 0, 0]],
    "triangular": [[1, 2, 3], [0, 2, 1], [0, 0, 4]],
    "triangular, singular": [[1, 2, 3], [0, 0, 1], [0, 0, 4]],
    "lower, singular": [[0, 0, 0], [1, 2, 0], [3, 1, 4]],
    "nearly singular": [[1, 2, 3], [2, 4, 6.001], [1, 0, 1]],
    "nan": [[1, 2, 0], [np.nan, 3, 1], [0, 1, 1]],
    "nan in a corner": [[np.nan, 2, 0], [1, 3, 1], [0, 1, 1]],
}  # fmt: skip
TALL: dict[str, Any] = {
    "orthonormal": np.eye(4, 2),
    "orthonormal, no unit vectors": [[0.5, 0.5], [0.5, -0.5], [0.5, 0.5], [0.5, -0.5]],
    "zeros": np.zeros((4, 2)),
    "general": [[1, 2], [3, -1], [0.5, 1], [2, 0.25]],
    "complex": [[1, 2j], [3, -1], [0.5j, 1], [2, 0.25]],
    "rank 1": [[1, 2], [2, 4], [0, 0], [-1, -2]],
    "zero column": [[1, 0], [2, 0], [0, 0], [-1, 0]],
    "nan": [[1, 2], [3, np.nan], [0.5, 1], [2, 0.25]],
}  # fmt: skip
WIDE = {name: np.asarray(x).T for name, x in TALL.items()}
ONE: dict[str, Any] = {"zero": [[0]], "two": [[2]], "negative": [[-3]], "nan": [[np.nan]]}
EMPTY: dict[str, Any] = {"empty": np.zeros((0, 0))}
NARROW: dict[str, Any] = {"no columns": np.zeros((3, 0))}
FLAT: dict[str, Any] = {"no rows": np.zeros((0, 3))}
FAMILIES = {"s": (SQUARE, ONE, EMPTY), "t": (TALL, NARROW), "w": (WIDE, FLAT)}


def stack(family: dict[str, Any], dtype: str) -> tuple[list[str], np.ndarray]:
    """The names and values of a family in one type, without what the type cannot hold."""
    kept = {n: x for n, x in family.items() if np.dtype(dtype).kind == "c" or not np.iscomplexobj(np.asarray(x))}
    return list(kept), np.stack([np.asarray(x).astype(dtype) for x in kept.values()])


def wave(shape: tuple[int, ...], dtype: Any, phase: float) -> np.ndarray:
    """Numbers without pattern, none of them zero."""
    n = np.arange(int(np.prod(shape)))
    out = np.cos(1.7 * n + phase) + 0.1
    if np.dtype(dtype).kind == "c":
        out = out + 1j * np.sin(2.3 * n + phase)
    return out.reshape(shape).astype(dtype)


def library(module: Any) -> SimpleNamespace:
    return SimpleNamespace(
        np=module.numpy, linalg=module.numpy.linalg, scipy=module.scipy.linalg, lax=module.lax, jax=module
    )


def inexact(leaf: Any) -> bool:
    return np.dtype(leaf.dtype).kind in "fc"


def derivatives(lib: Any, call: Callable[[Any, Any], Any], x: Any, mode: str) -> dict[str, list[Any]]:
    """Values, and with `mode` 'jvp' or 'vjp' also derivatives, of the results of `call` at x."""
    jax = lib.jax
    function = lambda v: jax.tree_util.tree_leaves(call(lib, v))  # noqa: E731
    if mode == "value":
        return {"value": function(x)}
    t = wave(x.shape, x.dtype, 0.3)
    if mode == "jvp":
        value, tangents = jax.jvp(function, (x,), (t,))
        return {"value": value, "jvp": [d for v, d in zip(value, tangents, strict=True) if inexact(v)]}
    floats = lambda v: [leaf for leaf in function(v) if inexact(leaf)]  # noqa: E731
    value, pull = jax.vjp(floats, x)
    return {"vjp": list(pull([wave(v.shape, v.dtype, i) for i, v in enumerate(value)]))}
