"""Derivatives of factorisations, systems and determinants, on stacks of matrices.

Each function is the `jvp` or `transpose` of the op that it is named after. Where a factorisation is not unique its derivative is
that of the one computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.ir import literal
from shardwise.ops.linalg import matrix_terms as terms
from shardwise.ops.rules.derivative import do, full_cotangent, is_linear, positions

# -- Cholesky and triangular systems -------------------------------------------------------------------------------------


def cholesky_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """l times the lower triangle of l^-1 dx l^-H with half its diagonal."""
    factor = do.cholesky(*primals)
    inner = terms.solve_triangular(factor, *tangents, left=False, lower=True, transpose=True, conjugate=True)
    inner = terms.triangle(terms.solve_triangular(factor, inner, left=True, lower=True), lower=True)
    halved_inner = do.div(inner, do.add(terms.identity(inner, *inner.shape[-2:]), 1))
    return factor, terms.triangle(terms.times(factor, halved_inner), lower=True)


def triangular_solve_jvp(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    left: bool,
    lower: bool,
    transpose: bool,
    conjugate: bool,
    unit: bool,
) -> tuple[Any, Any]:
    """x' = op(a)^-1 (b' - op(a') x), or its mirror image; of a' only the triangle counts."""
    a, b = primals
    t, s = tangents
    params = dict(left=left, lower=lower, transpose=transpose, conjugate=conjugate, unit=unit)
    x = do.triangular_solve(a, b, **params)
    total = None if s is None else do.triangular_solve(a, s, **params)
    if t is not None:
        change = do.neg(terms.triangle(t, lower, offset=(-1 if lower else 1) if unit else 0))
        change = terms.flip(change) if transpose else change
        change = do.conj(change) if conjugate and change.dtype.kind == "c" else change
        invert = lambda v: do.triangular_solve(a, v, **params)  # noqa: E731
        m, n = x.shape[-2:]
        if left:  # the order of the factors that costs least
            part = invert(terms.times(change, x)) if m > n else terms.times(invert(change), x)
        else:
            part = invert(terms.times(x, change)) if m < n else terms.times(x, invert(change))
        total = part if total is None else do.add(total, part)
    return x, total


def triangular_solve_transpose(ct: Any, a: Any, b: Any, *, transpose: bool, **params: Any) -> list[Any]:
    """The system of the transposed matrix."""
    return [None, do.triangular_solve(a, ct, transpose=not transpose, **params)]


# -- general systems -----------------------------------------------------------------------------------------------------


def _whole_batch(x: Any, batch: tuple[int, ...]) -> Any:
    """A stack whose batch dims of size 1 are repeated."""
    shape = (*batch, *x.shape[-2:])
    return (
        x
        if x.shape == shape
        else do.broadcast_in_dim(x, shape=shape, broadcast_dimensions=tuple(range(x.ndim)), out_sharding=None)
    )


def solve_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, transposed: bool) -> tuple[Any, Any]:
    """x' = op(a)^-1 (b' - op(a') x)."""
    a, b = primals
    t, s = tangents
    x = do.solve(a, b, transposed=transposed)
    batch = x.shape[:-2]
    change = None if s is None else _whole_batch(s, batch)
    if t is not None:
        product = terms.times(_whole_batch(terms.flip(t) if transposed else t, batch), x)
        change = do.neg(product) if change is None else do.sub(change, product)
    return x, do.solve(a, change, transposed=transposed)


def solve_transpose(ct: Any, a: Any, b: Any, *, transposed: bool) -> list[Any]:
    """The system of the transposed matrix, summed over batch dims that were repeated."""
    out = do.solve(a, ct, transposed=not transposed)
    shape = b.aval.shape
    axes = tuple(d for d, (n, m) in enumerate(zip(out.shape, shape, strict=True)) if n != m)
    if axes:
        kept_dims = tuple(d for d in range(len(shape)) if d not in axes)
        out = do.broadcast_in_dim(
            do.reduce_sum(out, axes=axes), shape=shape, broadcast_dimensions=kept_dims, out_sharding=None
        )
    return [None, out]


def _shifted_vector(x: Any, by: int) -> Any:
    return do.pad(x, 0, padding_config=(*((0, 0, 0),) * (x.ndim - 1), (by, -by, 0)))


def _diagonal_times(diagonal: Any, x: Any, by: int) -> Any:
    """The product of a matrix with x. Its only diagonal lies `by` places below the main one; elements of `diagonal` outside count 0."""
    n = x.shape[-2]
    low, high = max(by, 0), n + min(by, 0)  # rows that the diagonal meets
    rows = lambda v, a, b: terms.part(v, (a, b), (0, v.shape[-1]))  # noqa: E731
    product = do.mul(rows(terms.rows(diagonal), low, high), rows(x, low - by, high - by))
    edges = ((low, n - high, 0), (0, 0, 0))
    return do.pad(product, 0, padding_config=(*((0, 0, 0),) * (x.ndim - 2), *edges)) if by else product


def tridiagonal_solve_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    """x' = t^-1 (b' - t' x), where t' has the tangents of the three diagonals."""
    *diagonals, b = primals
    x = do.tridiagonal_solve(*diagonals, b, **params)
    total = tangents[3]
    for t, by in zip(tangents[:3], (1, 0, -1), strict=True):
        if t is not None:
            part = do.neg(_diagonal_times(t, x, by))
            total = part if total is None else do.add(total, part)
    return x, do.tridiagonal_solve(*diagonals, total, **params)


def tridiagonal_solve_transpose(ct: Any, dl: Any, d: Any, du: Any, b: Any, **params: Any) -> list[Any]:
    """The transposed matrix has its outer diagonals exchanged, each moved by one place."""
    assert is_linear(b)
    return [None, None, None, do.tridiagonal_solve(_shifted_vector(du, 1), d, _shifted_vector(dl, -1), ct, **params)]


# -- LU and QR -----------------------------------------------------------------------------------------------------------


def lu_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """For x = l u: l times the lower triangle of l^-1 dx u^-1, plus its upper triangle times u; both factors made square."""
    (x,), (t,) = primals, tangents
    packed_factors, pivots, order = do.lu(x)
    m, n = x.shape[-2:]
    k = min(m, n)
    change = terms.permute_rows(t, order)
    l = terms.pad_to_size(terms.triangle(terms.part(packed_factors, (0, m), (0, k)), lower=True, offset=-1), m, m)  # noqa: E741
    l = do.add(l, terms.identity(x, m, m))  # noqa: E741
    u = terms.pad_to_size(terms.triangle(terms.part(packed_factors, (0, k), (0, n)), lower=False), n, n)
    u = do.add(u, _padded_front(terms.identity(x, n - k, n - k), n)) if n > k else u
    inner = terms.solve_triangular(l, change, left=True, lower=True, unit=True)
    inner = terms.solve_triangular(u, inner, left=False, lower=False)
    packed_tangent = do.add(
        terms.times(l, terms.triangle(inner, lower=True, offset=-1)), terms.times(terms.triangle(inner, lower=False), u)
    )
    return [packed_factors, pivots, order], [packed_tangent, None, None]


def _padded_front(x: Any, size: int) -> Any:
    """Zeros above and to the left, to this size."""
    edges = ((size - x.shape[-2], 0, 0), (size - x.shape[-1], 0, 0))
    return do.pad(x, 0, padding_config=(*((0, 0, 0),) * (x.ndim - 2), *edges))


def qr_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, full: bool, pivoting: bool
) -> tuple[list[Any], list[Any]]:
    """For x = q r: from its first columns and square r; further columns of x move those of r, further ones of q follow."""
    (x,), (t,) = primals, tangents
    m, n = x.shape[-2:]
    k = min(m, n)
    outs = do.qr(x, full=full, pivoting=pivoting)
    q, r = outs[:2]
    if pivoting:
        t = terms.flip(terms.permute_rows(terms.flip(t), outs[2]))
    thin = terms.part(q, (0, m), (0, k)) if full and m > n else q
    square = r if r.shape[-2:] == (k, k) else terms.part(r, (0, k), (0, k))
    dq, dr = _thin_qr_change(thin, square, t if n <= m else terms.part(t, (0, m), (0, m)))
    if n > m:  # of the further columns y = q r', r' = q^H y' + (q^H)' y, where y is q times those of r
        further = terms.times(thin, terms.part(r, (0, m), (m, n)))
        dr_rest = do.add(
            terms.times(terms.adjoint(dq), further), terms.times(terms.adjoint(q), terms.part(t, (0, m), (m, n)))
        )
        dr = do.concatenate(dr, dr_rest, dimension=x.ndim - 1)
    elif full and m > n:
        dq = do.concatenate(dq, _complement_change(q, dq, n), dimension=x.ndim - 1)
        dr = terms.pad_to_size(dr, m, n)
    return list(outs), [dq, dr, *[None] * pivoting]


def _thin_qr_change(q: Any, r: Any, t: Any) -> tuple[Any, Any]:
    """How q f[..., m, k] and square r move with their product."""
    ratio = terms.solve_triangular(r, t, left=False, lower=False)
    inner = terms.times(terms.adjoint(q), ratio)
    below = terms.triangle(inner, lower=True, offset=-1)
    turn = do.sub(below, terms.adjoint(below))  # antisymmetric
    if inner.dtype.kind == "c":
        eye = terms.identity(inner, *r.shape[-2:])
        turn = do.add(turn, do.mul(eye, do.sub(inner, terms.cast_like(do.real(inner), inner.dtype))))
    return do.add(terms.times(q, do.sub(turn, inner)), ratio), terms.times(do.sub(inner, turn), r)


def _complement_change(q: Any, dq: Any, n: int) -> Any:
    """How the last columns of square q move with the first n, where q is a product of n reflectors (arXiv:2409.13374).

    Then the last columns are those of the identity, reflected: the first n columns fix which ones.
    """
    m = q.shape[-1]
    head, tail = terms.part(q, (0, n), (0, n)), terms.part(q, (n, m), (0, n))
    dhead, dtail = terms.part(dq, (0, n), (0, n)), terms.part(dq, (n, m), (0, n))
    # z (head - 1) = tail
    near = terms.adjoint(do.sub(head, terms.identity(q, n, n)))
    z_adjoint = do.solve(near, terms.adjoint(tail), transposed=False)
    z = terms.adjoint(z_adjoint)
    base = do.add(terms.part(q, (0, m), (0, n)), terms.times(terms.part(q, (0, m), (n, m)), z))
    return do.sub(terms.times(dq, z_adjoint), terms.times(base, terms.adjoint(do.sub(dtail, terms.times(z, dhead)))))


# -- determinants --------------------------------------------------------------------------------------------------------


def slogdet_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The trace of x^-1 dx: its real part moves the logarithm, its imaginary one the sign."""
    (x,), (t,) = primals, tangents
    sign, size = do.slogdet(x)
    if x.shape[-1] in (1, 2):
        volume = do.reduce_sum(do.mul(_cofactors(x), t), axes=(x.ndim - 2, x.ndim - 1))
        total = do.div(volume, do.det(x))
    else:
        total = terms.trace(do.solve(x, t, transposed=False))
    if total.dtype.kind != "c":
        return [sign, size], [None, total]
    turn = do.mul(do.complex(full_cotangent(size.aval), do.imag(total)), sign)
    return [sign, size], [turn, do.real(total)]


def det_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """The trace of the adjugate times dx, which exists for singular matrices, too."""
    (x,), (t,) = primals, tangents
    n = x.shape[-1]
    if not n:
        return do.det(x), None
    if n <= 3:
        return do.det(x), do.reduce_sum(do.mul(_cofactors(x), t), axes=(x.ndim - 2, x.ndim - 1))
    return do.det(x), terms.trace(_adjugate_times(x, t))


def _cofactors(x: Any) -> Any:
    """The derivatives of the determinant in each element, of small matrices."""
    n, last = x.shape[-1], x.ndim - 1
    if n == 1:
        return full_cotangent(x.aval, 1)
    if n == 2:
        row, column = terms.places(x.aval)
        reversed_matrix = do.rev(x, dimensions=(last - 1, last))
        return do.select_n(do.eq(row, column), do.neg(reversed_matrix), reversed_matrix)

    def roll_modulo_3(v: Any, by: int, dim: int) -> Any:
        """Element i of dim `dim` is element i + `by`, modulo 3."""
        cut = lambda a, b: terms.part(v, *(((a, b), (0, 3)) if dim == last - 1 else ((0, 3), (a, b))))  # noqa: E731
        return do.concatenate(cut(by, 3), cut(0, by), dimension=dim)

    p, q = roll_modulo_3(x, 1, last - 1), roll_modulo_3(x, 2, last - 1)  # the two other rows: their cross products
    return do.sub(
        do.mul(roll_modulo_3(p, 1, last), roll_modulo_3(q, 2, last)),
        do.mul(roll_modulo_3(p, 2, last), roll_modulo_3(q, 1, last)),
    )


def _adjugate_times(a: Any, b: Any) -> Any:
    """det(a) a^-1 b by an LU decomposition whose last pivot may be zero: it is taken out of the division and put into the product."""
    n = a.shape[-1]
    packed_factors, pivots, order = do.lu(a)
    place = positions(pivots.aval, pivots.ndim - 1)
    swaps = do.reduce_sum(terms.cast_like(do.ne(pivots, place), np.dtype(np.int32)), axes=(pivots.ndim - 1,))
    odd = do.and_(swaps, literal(1, swaps.dtype))
    sign = do.sub(literal(1, a.dtype), do.mul(terms.cast_like(odd, a.dtype), 2))
    diagonal = terms.diagonal(packed_factors)
    head = do.slice(
        diagonal, start_indices=(0,) * diagonal.ndim, limit_indices=(*diagonal.shape[:-1], n - 1), strides=None
    )
    most = do.mul(sign, do.reduce_prod(head, axes=(head.ndim - 1,)))  # the determinant without the last pivot
    last = do.squeeze(
        do.slice(
            diagonal, start_indices=(*(0,) * (diagonal.ndim - 1), n - 1), limit_indices=diagonal.shape, strides=None
        ),
        dimensions=(diagonal.ndim - 1,),
    )
    whole = do.mul(most, last)
    none = do.eq(most, literal(0, a.dtype))  # two zero pivots: the adjugate vanishes
    pivot = do.div(literal(1, a.dtype), do.select_n(none, most, 1))
    row, column = terms.places(packed_factors.aval)
    corner = do.and_(do.eq(row, column), do.eq(row, literal(n - 1, row.dtype)))

    def spread(v: Any) -> Any:
        dims = tuple(range(v.ndim))
        return do.broadcast_in_dim(v, shape=packed_factors.shape, broadcast_dimensions=dims, out_sharding=None)

    upper = do.select_n(corner, packed_factors, spread(pivot))
    upper = do.select_n(spread(none), upper, terms.identity(a, n, n))
    y = terms.solve_triangular(packed_factors, terms.permute_rows(b, order), left=True, lower=True, unit=True)
    is_last = do.eq(terms.places(y.aval)[0], literal(n - 1, np.dtype(np.int32)))
    scale = do.broadcast_in_dim(whole, shape=y.shape, broadcast_dimensions=tuple(range(whole.ndim)), out_sharding=None)
    x = terms.solve_triangular(upper, do.select_n(is_last, do.mul(y, scale), y), left=True, lower=False)
    none_everywhere = do.broadcast_in_dim(
        none, shape=x.shape, broadcast_dimensions=tuple(range(none.ndim)), out_sharding=None
    )
    return do.select_n(none_everywhere, x, 0)
