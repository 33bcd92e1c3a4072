"""Polar decompositions x = u p: u with orthonormal columns or rows, p Hermitian and positive semidefinite."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from shardwise.base.dtypes import finfo, float0
from shardwise.ir import Array, bind
from shardwise.ops.elementwise.binary import add, div, mul, sub
from shardwise.ops.elementwise.casts import convert, convert_element_type, strong
from shardwise.ops.linalg import decompositions as ops
from shardwise.ops.linalg import spectral
from shardwise.ops.linalg.reflectors import qdwh_p
from shardwise.ops.products.contract import batch_matmul
from shardwise.ops.rules.convert import as_array
from shardwise.ops.shapes.broadcast import broadcast_in_dim
from shardwise.transforms.derivatives.custom_derivatives import custom_jvp

__all__ = ["polar", "qdwh"]


@partial(custom_jvp, nondiff_argnums=(1,))
def polar(x: Array, side: str) -> tuple[Array, Array]:
    """u and p with x = u p, or x = p u for the 'left' `side`, by singular values: f[..., m, n]."""
    u, s, vh = spectral.svd(x, full_matrices=False)
    return batch_matmul(u, vh), _semidefinite(u, s, vh, side)


def _semidefinite(u: Array, s: Array, vh: Array, side: str) -> Array:
    if side == "right":
        v = ops.adjoint(vh)
        return batch_matmul(mul(v, _along(s, v, v.ndim - 1)), vh)
    return batch_matmul(mul(u, _along(s, u, u.ndim - 1)), ops.adjoint(u))


def _along(s: Array, like: Array, dim: int) -> Array:
    """Singular values along one of the last two dims of matrices."""
    wide = broadcast_in_dim(s, like.shape, (*range(s.ndim - 1), dim))
    return convert_element_type(wide, like.dtype)


@polar.defjvp
def _polar_jvp(side: str, primals: tuple[Array], tangents: tuple[Array]) -> Any:
    """In the frame of the singular vectors: sums of singular values divide, not differences."""
    (x,), (t,) = primals, tangents
    m, n = x.shape[-2:]
    u, s, vh = spectral.svd(x, full_matrices=False)
    v, uh, last = ops.adjoint(vh), ops.adjoint(u), x.ndim - 1
    inner = batch_matmul(uh, batch_matmul(t, v))
    inner_adjoint = ops.adjoint(inner)
    row, column = _along(s, inner, last - 1), _along(s, inner, last)
    sums = add(row, column)
    left, right = (inner, inner_adjoint) if side == "right" else (inner_adjoint, inner)
    change = div(add(mul(row, left), mul(right, column)), sums)
    frame, back = (v, vh) if side == "right" else (u, uh)
    du = batch_matmul(batch_matmul(u, div(sub(inner, inner_adjoint), sums)), vh)
    dp = batch_matmul(batch_matmul(frame, change), back)
    if m > n:  # the part outside of the columns of u
        projection = batch_matmul(t, v)
        projection = sub(projection, batch_matmul(u, batch_matmul(uh, projection)))
        du = add(du, batch_matmul(div(projection, _along(s, projection, last)), vh))
        out = batch_matmul(projection, uh) if side == "left" else None
    else:  # the part outside of the rows of vh
        projection = batch_matmul(uh, t)
        projection = sub(projection, batch_matmul(batch_matmul(projection, v), vh))
        du = add(du, batch_matmul(u, div(projection, _along(s, projection, last - 1)))) if n > m else du
        out = batch_matmul(v, projection) if side == "right" and n > m else None
    if out is not None:
        dp = add(dp, add(out, ops.adjoint(out)))
    return (batch_matmul(u, vh), _semidefinite(u, s, vh, side)), (du, dp)


def qdwh(
    x: Any,
    *,
    is_hermitian: bool = False,
    max_iterations: int | None = None,
    eps: float | None = None,
    dynamic_shape: tuple[int, int] | None = None,
) -> tuple[Array, Array, Array, Array]:
    """u and h with x = u h for f[..., m, n] with m >= n, by weighted Halley iterations; how many there were, and whether they
    converged.

    Iterations end after `max_iterations` (default 10), or where they change u by less than (5 eps)^(1/3); `eps` (default that
    of the type) also bounds the smallest singular value from below, relative to the largest. Matrices that are Hermitian
    (`is_hermitian`) go the same way as others. Derivatives are those of the decomposition, converged or not.
    NotImplementedError for `dynamic_shape`.

    >>> lax.linalg.qdwh(jnp.array([[-2.0]]))[1].round(3)
    Array([[2.]], dtype=float32)
    """
    del is_hermitian  # says that a method for Hermitian matrices may be taken
    if dynamic_shape is not None:
        raise NotImplementedError("qdwh takes matrices of their own size; leave dynamic_shape out and slice x.")
    value = as_array(x)
    limit = 10 if max_iterations is None else int(max_iterations)
    u, h, count, has_converged = _qdwh(
        strong(value), limit, float(finfo(value.dtype).eps) if eps is None else float(eps)
    )
    return u, h, as_array(convert(count, count.dtype, True)), has_converged


@partial(custom_jvp, nondiff_argnums=(1, 2))
def _qdwh(x: Array, max_iterations: int, eps: float) -> tuple[Array, Array, Array, Array]:
    return tuple(bind(qdwh_p, x, max_iterations=max_iterations, eps=eps))  # type: ignore[return-value]


@_qdwh.defjvp
def _qdwh_jvp(max_iterations: int, eps: float, primals: tuple[Array], tangents: tuple[Array]) -> Any:
    outs = _qdwh(*primals, max_iterations, eps)
    _, changes = _polar_jvp("right", primals, tangents)
    none = tuple(np.zeros(o.shape, float0) for o in outs[2:])
    return outs, (*changes, *none)
