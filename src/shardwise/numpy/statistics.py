"""How variables vary together: covariances and correlations.

In: observations, variables along rows (or columns). Out: matrices, a scalar for one variable.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base.dtypes import default_dtype, issubdtype
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import array as checked
from shardwise.numpy._promote import as_array, astype, is_complex, is_integer, promote_inexact, requested_dtype
from shardwise.numpy.binary import clip, true_divide
from shardwise.numpy.diagonals import diagonal
from shardwise.numpy.means import average
from shardwise.numpy.products import dot
from shardwise.numpy.reductions import sum
from shardwise.numpy.shapes import squeeze
from shardwise.numpy.unary import absolute
from shardwise.transforms.jit.shown_calls import shown_call

__all__ = ["corrcoef", "cov"]


def _matrix(name: str, x: Array, rowvar: bool) -> Array:
    """One row per variable."""
    if x.ndim > 2:
        raise ValueError(f"cov: {name} has more than 2 dimensions, its shape is {x.shape}.")
    if x.ndim < 2:
        return lax.reshape(x, (1, x.size))
    return x if rowvar else lax.transpose(x, (1, 0))


@shown_call("rowvar bias ddof dtype")
def cov(
    m: Any,
    y: Any = None,
    rowvar: bool = True,
    bias: bool = False,
    ddof: int | None = None,
    fweights: Any = None,
    aweights: Any = None,
    dtype: Any = None,
) -> Array:
    """The covariances of the variables in `m`, and in `y` if that is given: [n, n], a scalar for one variable.

    Args:
        rowvar: rows are variables, columns observations; else the other way round.
        bias: divide by the number of observations instead of one less.
        ddof: the number subtracted from it; overrides `bias`.
        fweights: how often each observation occurred: integers.
        aweights: how much each observation counts.
        dtype: a floating or complex type.

    Raises ValueError for more than two dims or another dtype, TypeError for `fweights` that are no integers, RuntimeError
    for weights that do not fit.

    >>> jnp.cov(jnp.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    Array([[ 1., -1.],
           [-1.,  1.]], dtype=float32)
    """
    x, second = checked("cov", m), None if y is None else checked("cov", y, 1)
    _check_dtype("cov", dtype)
    promoted_values = promote_inexact(x) if second is None else promote_inexact(x, second)
    rows = _matrix("m", as_array(promoted_values[0]), rowvar)
    if not rows.shape[0]:
        return lax.full((0, 0), 0, default_dtype("f") if dtype is None else dtype)
    if second is not None:
        other = as_array(promoted_values[1])
        rows = lax.concatenate([rows, _matrix("y", other, rowvar or 1 in other.shape[:1])], 0)
    variables, n = rows.shape
    if not n:
        return lax.full(() if variables == 1 else (variables, variables), np.nan, rows.dtype)
    weights, adjusted_weights = _weights(n, fweights, aweights)
    result_dtype = requested_dtype("cov", dtype)
    if result_dtype is not None:
        rows = as_array(astype(rows, result_dtype))
        weights = None if weights is None else as_array(astype(weights, result_dtype))
    less = (0 if bias else 1) if ddof is None else ddof
    means, totals = average(rows, axis=1, weights=weights, returned=True)
    divisor: Any = n - less
    if weights is not None:
        total = lax.index_in_dim(totals, 0, keepdims=False)
        divisor = (
            total - less * (1 if adjusted_weights is None else sum(weights * adjusted_weights) / total)
            if less
            else total
        )
    centred_rows = rows - lax.expand_dims(means, (1,))
    weighted_rows = centred_rows if weights is None else centred_rows * lax.expand_dims(weights, (0,))
    other = lax.transpose(weighted_rows, (1, 0))
    return squeeze(true_divide(dot(centred_rows, lax.conj(other) if is_complex(other.dtype) else other), divisor))


def _check_dtype(name: str, dtype: Any) -> None:
    if dtype is not None and not issubdtype(dtype, np.inexact):
        raise ValueError(f"{name}: dtype must be a subclass of float or complex; got dtype={dtype!r}.")


def _weights(n: int, fweights: Any, aweights: Any) -> tuple[Array | None, Array | None]:
    """The product of both kinds of weights, and those of the second kind; None if there are none."""
    product = adjusted_weights = None
    for name, given in (("fweights", fweights), ("aweights", aweights)):
        if given is None:
            continue
        weights = checked("cov", given)
        if weights.ndim > 1:
            raise RuntimeError(f"cov: cannot handle multidimensional {name}, got shape {weights.shape}.")
        if weights.shape != (n,):
            raise RuntimeError(f"cov: incompatible numbers of samples and {name}: {n} and {weights.size}.")
        if name == "fweights" and not is_integer(weights.dtype):
            raise TypeError(f"cov: fweights must be integer, got {weights.dtype}.")
        weights = absolute(weights)
        product = weights if product is None else product * weights
        adjusted_weights = weights if name == "aweights" else adjusted_weights
    return product, adjusted_weights


@shown_call("rowvar dtype")
def corrcoef(x: Any, y: Any = None, rowvar: bool = True, dtype: Any = None) -> Array:
    """The correlations of the variables in `x` and `y`: covariances divided by both standard deviations. See `cov`.

    Args:
        rowvar: the rows are the variables, else the columns.

    >>> jnp.corrcoef(jnp.array([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0]]))
    Array([[ 1., -1.],
           [-1.,  1.]], dtype=float32)
    """
    checked("corrcoef", x)
    _check_dtype("corrcoef", dtype)
    c = cov(x, y, rowvar, dtype=dtype)
    if not c.ndim:
        return true_divide(c, c)
    deviation = as_array(astype(lax.sqrt(lax.real(diagonal(c)) if is_complex(c.dtype) else diagonal(c)), c.dtype))
    c = c / lax.expand_dims(deviation, (1,)) / lax.expand_dims(deviation, (0,))
    if is_complex(c.dtype):
        return lax.complex(clip(lax.real(c), -1, 1), clip(lax.imag(c), -1, 1))
    return clip(c, -1, 1)
