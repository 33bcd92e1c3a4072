"""The points at which functions are evaluated: signed zeros, ones, halves, ties, huge and tiny values, infinities, NaN.

Expressions name the operands: ``x`` alone, ``a, b`` all pairs, ``p, q, r`` all triples, ``k, l, m, n`` all quadruples, each a
vector; ``rows`` has the triples as rows. ``z`` (one) and ``z, w`` are complex, ``i, j`` integers, ``t`` a bfloat16 vector.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

INF, NAN = np.inf, np.nan
LARGEST = float(np.finfo(np.float32).max)

ALONE = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 1.5, -1.5, 2.5, -2.5, 3.0, -3.0, 0.25, -0.75, 1 + 2.0**-23, 1 - 2.0**-24,
         1e-3, -1e-3, 1e-30, -1e-30, 7.0, -7.0, 30.0, -30.0, 90.0, -90.0, 1e10, -1e10, 1e30, -1e30, LARGEST, -LARGEST,
         INF, -INF, NAN]  # fmt: skip
IN_PAIRS = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -3.0, 7.5, 1e-30, 1e30, -1e30, INF, -INF, NAN]
IN_TRIPLES = [-1.0, -0.0, 0.0, 0.5, 1.0, 2.0, INF, -INF, NAN]
IN_QUADRUPLES = [-0.5, 0.0, 1.0, 2.5, NAN]
PARTS = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -16.0, 1e30, INF, -INF, NAN]
PARTS_IN_PAIRS = [0.0, -0.0, 1.0, -2.0, INF, NAN]
INTEGERS = [0, 1, -1, 2, -3, 7, 31, 32, 33, 2**31 - 1, -(2**31)]


def _products(values: Sequence[float], count: int, dtype: Any = np.float32) -> list[np.ndarray[Any, Any]]:
    return [np.array(column, dtype) for column in zip(*itertools.product(values, repeat=count), strict=True)]


def _complex(values: Sequence[float], count: int) -> list[np.ndarray[Any, Any]]:
    parts = _products(values, 2 * count)
    out = []
    for real, imag in zip(parts[::2], parts[1::2], strict=True):
        one = np.empty(real.shape, np.complex64)
        one.real, one.imag = real, imag
        out.append(one)
    return out


def _operands() -> dict[str, np.ndarray[Any, Any]]:
    out = {"x": np.array(ALONE, np.float32), "t": np.array(ALONE, np.float32).astype(ml_dtypes.bfloat16)}
    out |= zip("ab", _products(IN_PAIRS, 2), strict=True)
    out |= zip("pqr", _products(IN_TRIPLES, 3), strict=True)
    out |= zip("klmn", _products(IN_QUADRUPLES, 4), strict=True)
    out["rows"] = np.stack([out["p"], out["q"], out["r"]], axis=1)
    (out["z"],) = _complex(PARTS, 1)
    out |= zip(("u", "v"), _complex(PARTS_IN_PAIRS, 2), strict=True)
    out |= zip("ij", _products(INTEGERS, 2, np.int32), strict=True)
    out["empty"] = np.zeros((0, 3), np.float32)
    return out


OPERANDS = _operands()
BY_ARITY = {1: "x", 2: "ab", 3: "pqr", 4: "klmn"}
