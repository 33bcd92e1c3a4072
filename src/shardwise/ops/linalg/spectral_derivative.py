"""Derivatives of eigenvalues, singular values and functions of matrices, on stacks of them.

Each function is the `jvp` or `transpose` of the op that it is named after. Vectors of equal eigenvalues or singular values are not
differentiable: there the derivative is infinite or NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.ops.linalg import matrix_terms as terms
from shardwise.ops.rules.derivative import do, full_cotangent

# -- eigenvalues and singular values -------------------------------------------------------------------------------------


def _gaps(w: Any) -> Any:
    """1 / (w_j - w_i) for different i and j, infinite for equal eigenvalues."""
    return terms.inverse_off_diagonal(do.sub(terms.columns(w), terms.rows(w)))


def eigh_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list[Any], list[Any]]:
    """First-order perturbation theory."""
    (x,), (t,) = primals, tangents
    vectors, values = do.eigh(x, **params)
    inner = terms.times(terms.adjoint(vectors), terms.times(t, vectors))
    turn = do.mul(terms.cast_like(_gaps(values), inner.dtype), inner)
    return [vectors, values], [terms.times(vectors, turn), terms.real(terms.diagonal(inner))]


def eig_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, left: bool, right: bool, vector_derivatives: bool
) -> tuple[list[Any], list[Any]]:
    """Eigenvalues: the diagonal of v^-1 dx v. Vectors: first-order perturbation theory, if asked for."""
    (x,), (t,) = primals, tangents
    if (left or right) and not vector_derivatives:
        raise NotImplementedError(
            "The derivatives of eigenvectors of general matrices hold only where all eigenvalues differ and no eigenvector has two "
            "largest components. Pass enable_eigvec_derivs=True to jax.lax.linalg.eig for them, ask for eigenvalues alone (eigvals), "
            "or use eigh for Hermitian matrices."
        )
    outs = do.eig(x, left=left, right=True, vector_derivatives=vector_derivatives)
    values, vectors = outs[0], outs[-1]
    t = terms.cast_like(t, vectors.dtype)
    value_change, change = _eigenvector_change(values, vectors, t, right)
    primal_outs, tangent_outs = [values], [value_change]
    if left:  # right ones of the adjoint
        _, left_change = _eigenvector_change(do.conj(values), outs[1], terms.adjoint(t), True)
        primal_outs.append(outs[1])
        tangent_outs.append(left_change)
    if right:
        primal_outs.append(vectors)
        tangent_outs.append(change)
    return primal_outs, tangent_outs


def _eigenvector_change(values: Any, v: Any, t: Any, wanted: bool) -> tuple[Any, Any]:
    """How eigenvalues and, if `wanted`, eigenvectors move that have length 1 and a real largest component."""
    inner = do.solve(v, terms.times(t, v), transposed=False)
    value_change = terms.diagonal(inner)
    if not wanted:
        return value_change, None
    change = terms.times(v, do.mul(_gaps(values), inner))
    rows = (v.ndim - 2,)
    largest = do.argmax(do.abs(v), axes=rows, index_dtype=np.dtype(np.int32))
    place = do.eq(terms.places(v.aval)[0], _spread(largest, v.shape))
    pick = lambda x: do.reduce_sum(do.select_n(place, 0, x), axes=rows)  # noqa: E731
    length = do.neg(do.reduce_sum(do.real(do.mul(do.conj(v), change)), axes=rows))
    phase = do.neg(do.div(pick(do.imag(change)), pick(do.real(v))))
    return value_change, do.add(change, do.mul(v, _spread(do.complex(length, phase), v.shape)))


def _spread(x: Any, shape: tuple[int, ...]) -> Any:
    """One number per column, all along it."""
    return do.broadcast_in_dim(x, shape=shape, broadcast_dimensions=(*range(x.ndim - 1), x.ndim), out_sharding=None)


def svd_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, full: bool, vectors: bool
) -> tuple[list[Any], list[Any]]:
    """For x = u s v^H, in the frame of the singular vectors."""
    (x,), (t,) = primals, tangents
    m, n = x.shape[-2:]
    if full and vectors and m != n:
        raise NotImplementedError(
            "the derivative of svd is that of the thin decomposition: call it with full_matrices=False; got "
            f"matrices {m} by {n}."
        )
    outs = do.svd(x, full=full, vectors=vectors)
    s, u, vh = outs if vectors else do.svd(x, full=False, vectors=True)
    inner = terms.times(terms.adjoint(u), terms.times(t, terms.adjoint(vh)))
    ds = terms.real(terms.diagonal(inner))
    if not vectors:
        return list(outs), [ds]
    cast = lambda v: terms.cast_like(v, inner.dtype)  # noqa: E731
    column, row = terms.columns(s), terms.rows(s)
    gaps = cast(terms.inverse_off_diagonal(do.mul(do.add(column, row), do.sub(column, row))))
    inverse = terms.inverse_or_zero(s)
    right, left = do.mul(inner, cast(column)), do.mul(inner, cast(row))
    phase = do.mul(
        do.mul(do.sub(inner, terms.adjoint(inner)), cast(terms.columns(inverse))),
        do.mul(terms.identity(inner, *inner.shape[-2:]), 0.5),
    )
    du = terms.times(u, do.add(do.mul(gaps, do.add(right, terms.adjoint(right))), phase))
    dv = terms.times(terms.adjoint(vh), do.mul(gaps, do.add(left, terms.adjoint(left))))
    if m > n:
        image = terms.times(t, terms.adjoint(vh))
        du = do.add(du, do.div(do.sub(image, terms.times(u, terms.times(terms.adjoint(u), image))), cast(column)))
    if n > m:
        image = terms.times(terms.adjoint(t), u)
        dv = do.add(dv, do.div(do.sub(image, terms.times(terms.adjoint(vh), terms.times(vh, image))), cast(column)))
    return list(outs), [ds, du, terms.adjoint(dv)]


# -- functions of matrices -----------------------------------------------------------------------------------------------


def expm_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    """The derivative in the direction of the tangent."""
    return do.expm(*primals, **params), do.expm_frechet(*primals, *tangents, **params)


def expm_frechet_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    """Linear in the direction; in x, a block of the derivative at [[x, direction], [0, x]] in the direction [[t, 0], [0, t]]."""
    x, direction = primals
    t, total = tangents
    out = do.expm_frechet(x, direction, **params)
    total = None if total is None else do.expm_frechet(x, total, **params)
    if t is not None:
        n = x.shape[-1]
        zero = full_cotangent(x.aval)
        both = do.expm_frechet(_blocks(x, direction, zero, x), _blocks(t, zero, zero, t), **params)
        part = terms.part(both, (0, n), (n, 2 * n))
        total = part if total is None else do.add(total, part)
    return out, total


def expm_frechet_transpose(ct: Any, x: Any, direction: Any, **params: Any) -> list[Any]:
    """The derivative at the transposed matrix."""
    return [None, do.expm_frechet(terms.flip(x), ct, **params)]


def _blocks(a: Any, b: Any, c: Any, d: Any) -> Any:
    """[[a, b], [c, d]]."""
    last = a.ndim - 1
    return do.concatenate(
        do.concatenate(a, b, dimension=last), do.concatenate(c, d, dimension=last), dimension=last - 1
    )


def sqrtm_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """y y' + y' y = x'."""
    out = do.sqrtm(*primals)
    return out, do.solve_sylvester(out, out, terms.cast_like(tangents[0], out.dtype), tol=0.0)


def solve_sylvester_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    """a x' + x' b = c' - a' x - x b'."""
    a, b, c = primals
    ta, tb, total = tangents
    x = do.solve_sylvester(a, b, c, **params)
    for part in (
        None if ta is None else do.neg(terms.times(ta, x)),
        None if tb is None else do.neg(terms.times(x, tb)),
    ):
        if part is not None:
            total = part if total is None else do.add(total, part)
    return x, do.solve_sylvester(a, b, total, **params)


def solve_sylvester_transpose(ct: Any, a: Any, b: Any, c: Any, **params: Any) -> list[Any]:
    """The same equation with both matrices transposed."""
    return [None, None, do.solve_sylvester(terms.flip(a), terms.flip(b), ct, **params)]
