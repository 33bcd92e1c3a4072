"""How far two sums of the same products may lie apart: each addition rounds, and what it rounds is at most the sum of the sizes."""

from __future__ import annotations

from typing import Any

import numpy as np


def assert_same_products(got: Any, want: Any, sizes: Any, terms: int) -> None:
    """`got` and `want` are sums of `terms` products in the float32, whose absolute values sum up to `sizes`.

    In whatever order the terms are added, each sum is off by at most ``terms`` halves of a unit of `sizes`.
    """
    got, want, sizes = (np.asarray(x, np.float64) for x in (got, want, sizes))
    assert got.shape == want.shape
    off = np.abs(got - want)
    allowed = terms * np.finfo(np.float32).eps * sizes
    assert (off <= allowed).all(), (
        f"off by {off.max()}, {(off / np.maximum(allowed, 1e-300)).max()} times what is allowed"
    )
