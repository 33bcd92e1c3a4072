"""How far two sums of the same products may lie apart: each addition rounds, by half a unit of its result at most.

Roundings are as good as independent, so those of n additions add up as a random walk does: to the square root of n times one of
them (Higham and Mary, "A new approach to probabilistic rounding error analysis", 2019). The bound of the worst case, n times one
of them, is so wide that it hides a factor rounded to bfloat16.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np


def assert_same_products(got: Any, want: Any, sizes: Any, terms: int) -> None:
    """`got` and `want` are sums of `terms` products whose absolute values sum up to `sizes`.

    The sums are taken in any order, in the dtype of `got`; where it has 16 bits or less they are taken in float32 and rounded once.
    """
    got, want, sizes = np.asarray(got), np.asarray(want), np.asarray(sizes, np.float64)
    assert got.shape == want.shape
    is_complex = got.dtype.kind == "c"
    wide = np.complex128 if is_complex else np.float64
    want = want.astype(wide)
    off = np.abs(got.astype(wide) - want)
    rounded_to = ml_dtypes.finfo(got.dtype)
    narrow = rounded_to.bits <= 16
    unit = float(np.finfo(np.float32).eps if narrow else rounded_to.eps)
    # Each part of a complex product is a sum of two. Where `want` has the dtype of `got`, it is off by as much: hence twice.
    allowed = 2 * unit * np.sqrt(terms * (1 + is_complex)) * sizes
    if narrow:
        allowed = allowed + float(rounded_to.eps) * np.abs(want) + float(rounded_to.smallest_subnormal)
    assert (off <= allowed).all(), (
        f"off by {off.max()}, {(off / np.maximum(allowed, 1e-300)).max()} times what is allowed"
    )


def assert_einsum(got: Any, text: str, *operands: Any) -> None:
    """`got` is ``np.einsum(text, *operands)`` but for its rounding."""
    arrays = [np.asarray(x) for x in operands]
    wide = [x.astype(np.complex128 if x.dtype.kind == "c" else np.float64) for x in arrays]
    want, sizes = (np.einsum(text, *xs, optimize=True) for xs in (wide, [np.abs(x) for x in wide]))
    terms = np.einsum(text, *(np.ones(x.shape) for x in wide), optimize=True)  # sums of ones count what is summed
    assert_same_products(got, want, sizes, int(np.max(terms, initial=0)))


def assert_normwise(got: Any, want: Any, tolerance: float) -> None:
    """No element of `got` is off by more than `tolerance` times the largest finite one of `want`; integers are equal.

    Sums of elements round by this much whatever they cancel to, and so does what solvers and decompositions return.
    """
    got, want = np.asarray(got), np.asarray(want)
    if got.dtype.kind in "biu":
        np.testing.assert_array_equal(got, want)
        return
    wide = np.complex128 if got.dtype.kind == "c" else np.float64
    got, want = got.astype(wide), want.astype(wide)
    largest = np.abs(want[np.isfinite(want)]).max(initial=0)
    np.testing.assert_allclose(got, want, rtol=0, atol=tolerance * largest)
