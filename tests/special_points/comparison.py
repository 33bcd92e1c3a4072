"""When two answers are the same."""

from __future__ import annotations

from typing import Any

import numpy as np

RTOL = {2: 0.02, 4: 2e-5, 8: 2e-5}  # by bytes of an element
TINY = float(np.finfo(np.float32).tiny)  # XLA takes what is smaller for 0


def differing(ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Where two arrays differ: in NaN, in infinities, or in numbers by more than rounding; everywhere if in shape or dtype."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return np.ones((1,), bool)
    if ours.dtype.kind == "c":
        return differing(ours.real, theirs.real) | differing(ours.imag, theirs.imag)
    if ours.dtype.kind in "biu":
        return ours != theirs
    rtol = RTOL[min(ours.dtype.itemsize, 8)]
    a, b = ours.astype(np.float64), theirs.astype(np.float64)
    scale = np.max(np.abs(b), where=np.isfinite(b), initial=0)
    with np.errstate(invalid="ignore"):
        close = np.abs(a - b) <= rtol * np.abs(b) + max(TINY, 1e-7 * min(scale, 1.0))
    return ~(close | (a == b) | (np.isnan(a) & np.isnan(b)))
