"""Random vectors with a given covariance, and random orthogonal matrices."""

from __future__ import annotations

import operator
from typing import Any

from shardwise.base.dtypes import result_type, to_inexact
from shardwise.base.shapes import Shape
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy.diagonals import diagonal
from shardwise.numpy.einsum import einsum
from shardwise.ops.elementwise.casts import convert
from shardwise.ops.rules.convert import as_array
from shardwise.ops.rules.dims import shape_tuple
from shardwise.ops.shapes.transpose import transpose
from shardwise.random.arguments import check_shape, draw_in_mesh, float_dtype, parameter, reshard_sample, sampler
from shardwise.random.keys import checked_key
from shardwise.random.normal import _normal, normal_real
from shardwise.sharding import NamedSharding

__all__ = ["multivariate_normal", "orthogonal"]

_METHODS = ("cholesky", "eigh", "svd")


@sampler
def _multivariate_normal(
    key: Array, mean: Array, cov: Array, *, shape: Shape, dtype: Any, method: str, sharding: NamedSharding | None
) -> Array:
    from shardwise.numpy import linalg  # start-up time

    if method == "cholesky":
        factor = linalg.cholesky(cov)
    elif method == "eigh":
        values, vectors = linalg.eigh(cov)
        factor = lax.mul(vectors, lax.expand_dims(lax.sqrt(values), (values.ndim - 1,)))
    else:
        left, values, _ = linalg.svd(cov)
        factor = lax.mul(left, lax.expand_dims(lax.sqrt(values), (values.ndim - 1,)))
    vectors = normal_real(key, (*shape, mean.shape[-1]), dtype)
    return reshard_sample(_add_last(einsum("...ij,...j->...i", factor, vectors), mean), sharding)


def _add_last(samples: Array, mean: Array) -> Array:
    """`mean` moves vectors whose batch dims it may lack."""
    return lax.add(samples, parameter(mean, samples.ndim, samples.dtype))


def multivariate_normal(
    key: Any,
    mean: Any,
    cov: Any,
    shape: Any = None,
    dtype: Any = None,
    method: str = "cholesky",
    *,
    out_sharding: Any = None,
) -> Array:
    """Normal vectors with this mean and covariance: f[*shape, n].

    Args:
        mean: vectors, shape (..., n).
        cov: positive definite matrices, shape (..., n, n).
        shape: the batch shape; that to which the leading dims of `mean` and `cov` broadcast by default.
        dtype: a float dtype; that of `mean` by default.
        method: how `cov` is factored: 'cholesky', or 'eigh' or 'svd' for singular matrices.
        out_sharding: how the result is split over Explicit axes.

    Raises:
        ValueError: another method, or shapes that do not fit.

    >>> jax.random.multivariate_normal(jax.random.key(0), jnp.zeros(2), jnp.eye(2), (4,)).shape
    (4, 2)
    """
    if method not in _METHODS:
        raise ValueError(f"multivariate_normal: method must be one of {_METHODS}, got {method!r}.")
    own_key = checked_key("multivariate_normal", key)
    mean, cov = as_array(mean), as_array(cov)
    common = to_inexact(result_type(mean, cov))
    mean, cov = convert(mean, common), convert(cov, common)
    result_dtype = float_dtype("multivariate_normal", common if dtype is None else dtype)
    if mean.ndim < 1 or cov.ndim < 2 or cov.shape[-2:] != mean.shape[-1:] * 2:
        raise ValueError(
            "multivariate_normal requires mean of shape (..., n) and cov of shape (..., n, n), got "
            f"{mean.shape} and {cov.shape}."
        )
    batches = mean.shape[:-1], cov.shape[:-2]
    wanted_shape = tuple(lax.broadcast_shapes(*batches)) if shape is None else shape_tuple(shape, "multivariate_normal")
    check_shape("multivariate_normal", wanted_shape, *batches)
    return draw_in_mesh(
        "multivariate_normal",
        out_sharding,
        len(wanted_shape) + 1,
        lambda sharding: _multivariate_normal(
            own_key, mean, cov, shape=wanted_shape, dtype=result_dtype, method=method, sharding=sharding
        ),
    )


@sampler
def _orthogonal(
    key: Array, *, rows: int, columns: int, shape: Shape, dtype: Any, sharding: NamedSharding | None
) -> Array:
    from shardwise.numpy import linalg  # start-up time

    size = (*shape, max(rows, columns), min(rows, columns))
    q, r = linalg.qr(_normal(key, shape=size, dtype=dtype, sharding=None))
    # The sign of R's diagonal is the algorithm's whim; taken out, every orthogonal matrix is equally likely.
    x = lax.mul(q, lax.expand_dims(lax.sign(diagonal(r, axis1=-2, axis2=-1)), (len(shape),)))
    if rows < columns:
        x = transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))
    return reshard_sample(x, sharding)


def orthogonal(
    key: Any, n: int, shape: Any = (), dtype: Any = None, m: int | None = None, *, out_sharding: Any = None
) -> Array:
    """Uniform orthogonal matrices (unitary for complex dtypes): f[*shape, n, m].

    With `m` other than `n` the rows, or else the columns, are orthonormal.

    Args:
        dtype: a float or complex dtype, by default the default float.
        out_sharding: how the result is split over Explicit axes; every device makes its own part.

    >>> jax.random.orthogonal(jax.random.key(0), 3).shape
    (3, 3)
    """
    own_key = checked_key("orthogonal", key)
    rows = operator.index(n)
    columns = rows if m is None else operator.index(m)
    result_dtype = float_dtype("orthogonal", dtype, complex=True)
    full_shape = shape_tuple(shape, "orthogonal")
    return draw_in_mesh(
        "orthogonal",
        out_sharding,
        len(full_shape) + 2,
        lambda sharding: _orthogonal(
            own_key, rows=rows, columns=columns, shape=full_shape, dtype=result_dtype, sharding=sharding
        ),
    )
