"""Statistics of samples: the commonest value, ranks and the mean's standard error.

These are the functions that JAX has of SciPy's; `nan_policy` is "propagate", since under jit the values are unknown.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from shardwise import numpy as jnp
from shardwise.base.dtypes import issubdtype
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import array, canonical_axes, check_numbers
from shardwise.scipy.stats._arguments import real

__all__ = ["ModeResult", "mode", "rankdata", "sem"]


class ModeResult(NamedTuple):
    """The commonest value along an axis, and how often it is there."""

    mode: Any
    count: Any


def _check_policy(name: str, nan_policy: str) -> None:
    if nan_policy in ("omit", "raise"):
        raise NotImplementedError(
            f"{name} with {nan_policy=}; look for NaNs with jnp.isnan, or fill them with jnp.nan_to_num, before."
        )
    if nan_policy != "propagate":
        raise ValueError(f"Illegal nan_policy value {nan_policy!r}; expected one of 'propagate', 'omit', 'raise'")


def _rows(x: Array, axis: int | None) -> tuple[Array, int]:
    """With None everything is one row; and the axis as a positive number."""
    if axis is None:
        return jnp.ravel(x), 0
    return x, canonical_axes(axis, x.ndim)[0]


def _is_nan(x: Array) -> Array:
    return jnp.isnan(x) if issubdtype(x.dtype, np.inexact) else jnp.zeros(x.shape, bool)


def _runs(x: Array, axis: int) -> Array:
    """Along a sorted axis: True where another value begins."""
    n = x.shape[axis]
    a, b = lax.slice_in_dim(x, 1, n, axis=axis), lax.slice_in_dim(x, 0, n - 1, axis=axis)
    first = jnp.ones_like(lax.slice_in_dim(x, 0, 1, axis=axis), dtype=bool)
    return jnp.concatenate([first, (a != b) & ~(_is_nan(a) & _is_nan(b))], axis)


def mode(a: Any, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False) -> ModeResult:
    """The commonest value of `a` along `axis`, the least of several, and its count; over everything with None.

    Args:
        nan_policy: only 'propagate'; NotImplementedError for 'omit'.
        keepdims: keep the dim, with size 1.

    >>> from shardwise.scipy import stats
    >>> stats.mode(jnp.array([1, 2, 2, 3])).mode
    Array(2, dtype=int32)
    """
    _check_policy("mode", nan_policy)
    whole = jnp.atleast_1d(array("mode", a))
    check_numbers("mode", whole.dtype)
    x, d = _rows(whole, axis)
    kept_shape = tuple(1 if axis is None or i == d else n for i, n in enumerate(whole.shape))
    if not x.shape[d]:
        result = jnp.full(kept_shape, jnp.nan, float), jnp.zeros(kept_shape, float)
    else:
        sorted_rows = jnp.sort(x, d)
        at = lax.broadcasted_iota(int, sorted_rows.shape, d)
        # Where the run of each value began; the longest run ends farthest from its beginning.
        run_starts = lax.cummax(jnp.where(_runs(sorted_rows, d), at, 0), d)
        length = at - run_starts + 1
        longest = jnp.argmax(length, d, keepdims=True)
        first = jnp.take_along_axis(run_starts, longest, d)  # of equal values, the first one
        result = tuple(
            jnp.reshape(jnp.take_along_axis(v, i, d), kept_shape) for v, i in ((sorted_rows, first), (length, longest))
        )
    if not keepdims:
        result = tuple(jnp.squeeze(v, tuple(range(whole.ndim)) if axis is None else d) for v in result)
    return ModeResult(*result)


def rankdata(a: Any, method: str = "average", *, axis: int | None = None, nan_policy: str = "propagate") -> Array:
    """The rank of each value of `a` along `axis`, from 1; over everything, flattened, with None. Where there are NaNs: NaN.

    NotImplementedError for another `nan_policy` than 'propagate'. `method` is the rank of equal values: the
    "average", "min" or "max" of their ranks, ranks without gaps ("dense") or in the order in which they stand
    ("ordinal"). ValueError for other methods.

    >>> from shardwise.scipy import stats
    >>> stats.rankdata(jnp.array([30.0, 10.0, 20.0, 10.0]))
    Array([4. , 1.5, 3. , 1.5], dtype=float32)
    """
    _check_policy("rankdata", nan_policy)
    if method not in ("average", "min", "max", "dense", "ordinal"):
        raise ValueError(f"unknown method {method!r}; use 'average', 'min', 'max', 'dense' or 'ordinal'.")
    x, d = _rows(array("rankdata", a), axis)
    check_numbers("rankdata", x.dtype)
    n = x.shape[d]
    if n == 0:
        return jnp.zeros(x.shape)
    order = jnp.argsort(x, d, stable=True)
    back = jnp.argsort(order, d)
    if method == "ordinal":
        ranks = back + 1
    else:
        begins = _runs(jnp.take_along_axis(x, order, d), d)
        at = lax.broadcasted_iota(int, x.shape, d)
        if method == "dense":
            ranks = jnp.take_along_axis(jnp.cumsum(begins, d), back, d)
        else:
            ends = jnp.concatenate(
                [lax.slice_in_dim(begins, 1, n, axis=d), jnp.ones_like(lax.slice_in_dim(begins, 0, 1, axis=d))], d
            )
            least = lax.cummax(jnp.where(begins, at, 0), d) + 1
            most = lax.cummin(jnp.where(ends, at, n), d, reverse=True) + 1
            ranks = least if method == "min" else most if method == "max" else (least + most).astype(float) * 0.5
            ranks = jnp.take_along_axis(ranks, back, d)
    return jnp.where(jnp.any(_is_nan(x), d, keepdims=True), jnp.nan, ranks.astype(float))


def sem(a: Any, axis: int | None = 0, ddof: int = 1, nan_policy: str = "propagate", *, keepdims: bool = False) -> Array:
    """The standard error of the mean of `a` along `axis`; with `nan_policy="omit"` of the values that are no NaNs.

    The variance divides by the count less `ddof`; `keepdims` keeps the dims, with size 1.

    Raises:
        ValueError: `nan_policy` is another word.

    >>> from shardwise.scipy import stats
    >>> stats.sem(jnp.array([1.0, 2.0, 3.0])).round(3)
    Array(0.577, dtype=float32)
    """
    (x,) = real("sem", a)
    if nan_policy == "propagate":
        count: Any = jnp.asarray(x.size if axis is None else x.shape[axis])
        return jnp.std(x, axis, ddof=ddof, keepdims=keepdims) / jnp.sqrt(count).astype(x.dtype)
    if nan_policy == "omit":
        count = jnp.sum(~jnp.isnan(x), axis, keepdims=keepdims)
        return jnp.nanstd(x, axis, ddof=ddof, keepdims=keepdims) / jnp.sqrt(count).astype(x.dtype)
    raise ValueError(f"{nan_policy} is not supported; use 'propagate' or 'omit'.")
