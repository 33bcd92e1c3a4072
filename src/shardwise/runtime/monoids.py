"""The monoids that reductions combine values with: one table for dims, devices and processes.

Comes in: a monoid's name, as ops hold it in `reduction` and collectives in their param `kind`. Goes out: a `Monoid`, which says all
that a kernel, a pass or a link between processes needs: identity, merge, repetition, MPI's op and vector code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from shardwise.base.dtypes import finfo, iinfo, isdtype
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Ndarray
from shardwise.base.small_integers import by_bytes, is_below_byte, reduced_by_bytes
from shardwise.ir.op import Fold
from shardwise.runtime import extrema, folds


@dataclass(frozen=True, slots=True, eq=False)
class Monoid:
    """An associative operation with an identity.

    Attributes:
        name: the name.
        merge: the NumPy ufunc of two values; which of two zeros it takes as an extremum is open (see `function` and `reducer`).
        identity: ``(dtype) -> scalar``: the reduction of no values.
        repeated: ``(x, n) -> x``: the reduction of n values equal to `x`; None where that is `x`.
        mpi: the name of MPI's operation.
        mpi_kinds: kinds of dtypes (i, u, f, c) on which MPI's operation gives what `merge` gives.
        fold: its vector code.
        exact: ``(dtype) -> function`` of two blocks where `merge` leaves something open; None: it leaves nothing open.
        along: ``(dtype) -> function`` of a block, dims and a dtype, likewise.
        linear: the reduction of tangents is the tangent of the reduction.
    """

    name: str
    merge: np.ufunc
    identity: Callable[[Any], Any]
    repeated: Callable[[Ndarray, int], Ndarray] | None
    mpi: str
    mpi_kinds: str
    fold: Fold
    exact: Callable[[Any], Callable[..., Ndarray]] | None = None
    along: Callable[[Any], Callable[..., Ndarray]] | None = None
    linear: bool = False

    def function(self, dtype: Any) -> Callable[..., Ndarray]:
        """The function that merges two blocks of that dtype."""
        if is_below_byte(dtype):
            return by_bytes(self.merge)
        return self.merge if self.exact is None else self.exact(dtype)

    def reducer(self, dtype: Any) -> Callable[..., Ndarray]:
        """The function that reduces a block of that dtype: ``(x, dims, dtype=None, keepdims=False)``."""
        if is_below_byte(dtype):
            return reduced_by_bytes(self.merge.reduce)
        return self.merge.reduce if self.along is None else self.along(dtype)

    def merger(self, dtype: Any) -> Callable[..., Ndarray]:
        """The function ``(x, y, out=None)`` that merges two blocks of that dtype; `out` may be one of them."""
        function = self.function(dtype)
        if isinstance(function, np.ufunc):
            return function

        def merge(x: Ndarray, y: Ndarray, out: Ndarray | None = None) -> Ndarray:
            merged = function(x, y)
            if out is None:
                return merged
            np.copyto(out, merged)
            return out

        return merge

    def over(self, x: Ndarray, dims: int | tuple[int, ...], keepdims: bool = False) -> Ndarray:
        """The reduction of `x` over `dims`, in its dtype."""
        out = self.reducer(x.dtype)(x, dims, keepdims=keepdims)
        return out if out.dtype == x.dtype else out.astype(x.dtype)

    def times(self, x: Ndarray, n: int) -> Ndarray:
        """The reduction of n values equal to `x`."""
        return x if n == 1 or self.repeated is None else self.repeated(x, n)


def _zero(dtype: Any) -> Any:
    return np.zeros((), dtype)[()]


def _one(dtype: Any) -> Any:
    return np.ones((), dtype)[()]


def _all_bits(dtype: Any) -> Any:
    return np.invert(np.zeros((), dtype))[()]


def _bound_of(largest: bool) -> Callable[[Any], Any]:
    """The value that every other one replaces."""
    infinity = -np.inf if largest else np.inf

    def identity(dtype: Any) -> Any:
        if isdtype(dtype, "bool"):
            return np.bool_(not largest)
        if isdtype(dtype, "integral"):
            info = iinfo(dtype)
            return np.array(info.min if largest else info.max, dtype)[()]
        if isdtype(dtype, "complex floating"):
            return np.array(infinity, dtype)[()]
        bound = np.array(infinity).astype(dtype)
        if not np.isinf(bound):  # the small floats without inf
            info = finfo(dtype)
            bound = np.array(info.min if largest else info.max).astype(dtype)
        return bound[()]

    return identity


def _multiply_by_count(x: Ndarray, n: int) -> Ndarray:
    return np.multiply(x, x.dtype.type(n))


def _raise_to_count(x: Ndarray, n: int) -> Ndarray:
    return np.power(x, x.dtype.type(n))


def _if_odd(x: Ndarray, n: int) -> Ndarray:
    return x if n % 2 else np.zeros_like(x)


def _exactly(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return partial(extrema.function, name), partial(extrema.reducer, name)


# MPI's comparisons drop NaNs, and its bitwise operations take integers alone.
_TABLE = (
    Monoid("sum", np.add, _zero, _multiply_by_count, "SUM", "iufc", folds.SUM, linear=True),
    Monoid("prod", np.multiply, _one, _raise_to_count, "PROD", "iufc", folds.PROD),
    Monoid("max", np.maximum, _bound_of(True), None, "MAX", "iu", folds.MAX, *_exactly("max")),
    Monoid("min", np.minimum, _bound_of(False), None, "MIN", "iu", folds.MIN, *_exactly("min")),
    Monoid("and", np.bitwise_and, _all_bits, None, "BAND", "iu", folds.AND),
    Monoid("or", np.bitwise_or, _zero, None, "BOR", "iu", folds.OR),
    Monoid("xor", np.bitwise_xor, _zero, _if_odd, "BXOR", "iu", folds.XOR),
)

MONOIDS: dict[str, Monoid] = {monoid.name: monoid for monoid in _TABLE}
