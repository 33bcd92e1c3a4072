"""Derivatives of decompositions, systems and functions of matrices, on stacks of them.

Each function is the `jvp` or `transpose` of the op that it is named after. Where a decomposition is not unique its derivative is
that of the one computed; where it is not differentiable (equal eigenvalues) terms that would divide by zero are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.ir import ShapedArray, literal
from shardwise.ops.derivative import do, filled, is_linear, positions

# -- matrices ------------------------------------------------------------------------------------------------------------


def _times(x: Any, y: Any) -> Any:
    """Matrix products of stacks."""
    batch = tuple(range(x.ndim - 2))
    return do.dot_general(x, y, dimension_numbers=(((x.ndim - 1,), (x.ndim - 2,)), (batch, batch)), precision=None,
                          preferred_element_type=None, out_sharding=None)  # fmt: skip


def _flip(x: Any) -> Any:
    """Transposes."""
    return do.transpose(x, permutation=(*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def _conj(x: Any) -> Any:
    return do.conj(x) if x.dtype.kind == "c" else x


def _adjoint(x: Any) -> Any:
    return _conj(_flip(x))


def _real(x: Any) -> Any:
    return do.real(x) if x.dtype.kind == "c" else x


def _like(x: Any, dtype: Any) -> Any:
    """`x` in another dtype."""
    return x if x.dtype == dtype else do.convert_element_type(x, new_dtype=dtype, weak_type=False)


def _places(aval: ShapedArray) -> tuple[Any, Any]:
    """Row and column numbers of matrices of this type."""
    return positions(aval, aval.ndim - 2), positions(aval, aval.ndim - 1)


def _batch_of(x: Any, rows: int, columns: int) -> ShapedArray:
    """The type of matrices of another size."""
    return x.aval.update(shape=(*x.shape[:-2], rows, columns), spec=(*x.aval.spec[:-2], (), ()))


def _triangle(x: Any, lower: bool, offset: int = 0) -> Any:
    """The lower or upper triangle, `offset` diagonals up; zeros elsewhere."""
    row, column = _places(x.aval)
    shifted = do.add(row, literal(offset, row.dtype))
    return do.select_n(do.ge(shifted, column) if lower else do.le(shifted, column), 0, x)


def _eye(like: Any, rows: int, columns: int) -> Any:
    """Identity matrices of the batch and dtype of `like`."""
    row, column = _places(_batch_of(like, rows, columns))
    return _like(do.eq(row, column), like.dtype)


def _diagonal(x: Any) -> Any:
    """The diagonals of square matrices."""
    row, column = _places(x.aval)
    return do.reduce_sum(do.select_n(do.eq(row, column), 0, x), axes=(x.ndim - 1,))


def _trace(x: Any) -> Any:
    row, column = _places(x.aval)
    return do.reduce_sum(do.select_n(do.eq(row, column), 0, x), axes=(x.ndim - 2, x.ndim - 1))


def _columns(x: Any) -> Any:
    """Vectors f[..., n] as f[..., 1, n]: one factor per column."""
    return do.broadcast_in_dim(
        x, shape=(*x.shape[:-1], 1, x.shape[-1]), broadcast_dimensions=(*range(x.ndim - 1), x.ndim), out_sharding=None
    )


def _rows(x: Any) -> Any:
    """Vectors f[..., n] as f[..., n, 1]: one factor per row."""
    return do.broadcast_in_dim(x, shape=(*x.shape, 1), broadcast_dimensions=tuple(range(x.ndim)), out_sharding=None)


def _inverse_or_zero(x: Any) -> Any:
    """1 / x, and 0 where x is 0."""
    zero = do.eq(x, literal(0, x.dtype))
    return do.select_n(zero, do.div(literal(1, x.dtype), do.select_n(zero, x, 1)), 0)


def _solve_triangular(
    a: Any, b: Any, *, left: bool, lower: bool, transpose: bool = False, conjugate: bool = False, unit: bool = False
) -> Any:
    return do.triangular_solve(
        a, b, left=left, lower=lower, transpose=transpose, conjugate=conjugate and a.dtype.kind == "c", unit=unit
    )


def _part(x: Any, rows: tuple[int, int], columns: tuple[int, int]) -> Any:
    before = (0,) * (x.ndim - 2)
    return do.slice(
        x,
        start_indices=(*before, rows[0], columns[0]),
        limit_indices=(*x.shape[:-2], rows[1], columns[1]),
        strides=None,
    )


def _padded(x: Any, rows: int, columns: int) -> Any:
    """Zeros below and to the right, to this size."""
    edges = ((0, rows - x.shape[-2], 0), (0, columns - x.shape[-1], 0))
    return do.pad(x, 0, padding_config=(*((0, 0, 0),) * (x.ndim - 2), *edges))


def _permuted(x: Any, order: Any) -> Any:
    """Rows in another order: row i of the result is row ``order[i]``."""
    wanted = do.broadcast_in_dim(order, shape=(*order.shape, order.shape[-1]), broadcast_dimensions=tuple(range(order.ndim)),
                                 out_sharding=None)  # fmt: skip
    column = positions(wanted.aval, wanted.ndim - 1)
    return _times(_like(do.eq(wanted, column), x.dtype), x)


# -- Cholesky and triangular systems -------------------------------------------------------------------------------------


def cholesky_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """l times the lower triangle of l^-1 dx l^-H with half its diagonal."""
    factor = do.cholesky(*primals)
    inner = _solve_triangular(factor, *tangents, left=False, lower=True, transpose=True, conjugate=True)
    inner = _triangle(_solve_triangular(factor, inner, left=True, lower=True), lower=True)
    halved = do.div(inner, do.add(_eye(inner, *inner.shape[-2:]), 1))
    return factor, _times(factor, halved)


def triangular_solve_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, left: bool, lower: bool, transpose: bool,
                         conjugate: bool, unit: bool) -> tuple[Any, Any]:  # fmt: skip
    """x' = op(a)^-1 (b' - op(a') x), or its mirror image; of a' only the triangle counts."""
    a, b = primals
    t, s = tangents
    params = dict(left=left, lower=lower, transpose=transpose, conjugate=conjugate, unit=unit)
    x = do.triangular_solve(a, b, **params)
    total = None if s is None else do.triangular_solve(a, s, **params)
    if t is not None:
        change = do.neg(_triangle(t, lower, offset=(-1 if lower else 1) if unit else 0))
        change = _flip(change) if transpose else change
        change = do.conj(change) if conjugate and change.dtype.kind == "c" else change
        part = do.triangular_solve(a, _times(change, x) if left else _times(x, change), **params)
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


def solve_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """x' = a^-1 (b' - a' x)."""
    a, b = primals
    t, s = tangents
    x = do.solve(a, b)
    total = None if s is None else do.solve(a, s)
    if t is not None:
        part = do.neg(do.solve(a, _times(_whole_batch(t, x.shape[:-2]), x)))
        total = part if total is None else do.add(total, part)
    return x, total


def solve_transpose(ct: Any, a: Any, b: Any) -> list[Any]:
    """The system of the transposed matrix, summed over batch dims that were repeated."""
    out = do.solve(_flip(a), ct)
    shape = b.aval.shape
    axes = tuple(d for d, (n, m) in enumerate(zip(out.shape, shape, strict=True)) if n != m)
    if axes:
        kept = tuple(d for d in range(len(shape)) if d not in axes)
        out = do.broadcast_in_dim(
            do.reduce_sum(out, axes=axes), shape=shape, broadcast_dimensions=kept, out_sharding=None
        )
    return [None, out]


def _shifted_vector(x: Any, by: int) -> Any:
    return do.pad(x, 0, padding_config=(*((0, 0, 0),) * (x.ndim - 1), (by, -by, 0)))


def _shifted_rows(x: Any, by: int) -> Any:
    return do.pad(x, 0, padding_config=(*((0, 0, 0),) * (x.ndim - 2), (by, -by, 0), (0, 0, 0)))


def tridiagonal_solve_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[Any, Any]:
    """x' = t^-1 (b' - t' x), where t' has the tangents of the three diagonals."""
    *diagonals, b = primals
    x = do.tridiagonal_solve(*diagonals, b, **params)
    total = tangents[3]
    for t, by in zip(tangents[:3], (1, 0, -1), strict=True):
        if t is not None:
            inside = _shifted_rows(x, by) if by else x
            part = do.neg(do.mul(_rows(t), inside))
            total = part if total is None else do.add(total, part)
    return x, do.tridiagonal_solve(*diagonals, total, **params)


def tridiagonal_solve_transpose(ct: Any, dl: Any, d: Any, du: Any, b: Any, **params: Any) -> list[Any]:
    """The transposed matrix has its outer diagonals exchanged, each moved by one place."""
    assert is_linear(b)
    return [None, None, None, do.tridiagonal_solve(_shifted_vector(du, 1), d, _shifted_vector(dl, -1), ct, **params)]


# -- LU and QR -----------------------------------------------------------------------------------------------------------


def lu_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Of x = l u: l times the lower triangle of l^-1 dx u^-1, plus its upper triangle times u; both factors made square."""
    (x,), (t,) = primals, tangents
    packed, pivots, order = do.lu(x)
    m, n = x.shape[-2:]
    k = min(m, n)
    change = _permuted(t, order)
    l = _padded(_triangle(_part(packed, (0, m), (0, k)), lower=True, offset=-1), m, m)  # noqa: E741
    l = do.add(l, _eye(x, m, m))  # noqa: E741
    u = _padded(_triangle(_part(packed, (0, k), (0, n)), lower=False), n, n)
    u = do.add(u, _padded_front(_eye(x, n - k, n - k), n)) if n > k else u
    inner = _solve_triangular(l, change, left=True, lower=True, unit=True)
    inner = _solve_triangular(u, inner, left=False, lower=False)
    moved = do.add(_times(l, _triangle(inner, lower=True, offset=-1)), _times(_triangle(inner, lower=False), u))
    return [packed, pivots, order], [moved, None, None]


def _padded_front(x: Any, size: int) -> Any:
    """Zeros above and to the left, to this size."""
    edges = ((size - x.shape[-2], 0, 0), (size - x.shape[-1], 0, 0))
    return do.pad(x, 0, padding_config=(*((0, 0, 0),) * (x.ndim - 2), *edges))


def qr_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, full: bool, pivoting: bool
) -> tuple[list[Any], list[Any]]:
    """Of x = q r with square r."""
    (x,), (t,) = primals, tangents
    m, n = x.shape[-2:]
    if m < n or (full and m != n):
        raise NotImplementedError("the derivative of qr exists for as many rows as columns or more, and for more with full_matrices=False; "
                                  f"got matrices {m} by {n} with full_matrices={full}.")  # fmt: skip
    outs = do.qr(x, full=full, pivoting=pivoting)
    q, r = outs[:2]
    if pivoting:
        t = _flip(_permuted(_flip(t), outs[2]))
    ratio = _solve_triangular(r, t, left=False, lower=False)
    inner = _times(_adjoint(q), ratio)
    below = _triangle(inner, lower=True, offset=-1)
    turn = do.sub(below, _adjoint(below))  # antisymmetric
    if inner.dtype.kind == "c":
        eye = _eye(inner, n, n)
        turn = do.add(turn, do.mul(eye, do.sub(inner, _like(do.real(inner), inner.dtype))))
    dq = do.add(_times(q, do.sub(turn, inner)), ratio)
    dr = _times(do.sub(inner, turn), r)
    return list(outs), [dq, dr, *[None] * pivoting]


# -- eigenvalues and singular values -------------------------------------------------------------------------------------


def _gaps(w: Any) -> Any:
    """1 / (w_j - w_i), 0 where that is zero."""
    return _inverse_or_zero(do.sub(_columns(w), _rows(w)))


def eigh_jvp(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list[Any], list[Any]]:
    """First-order perturbation theory."""
    (x,), (t,) = primals, tangents
    vectors, values = do.eigh(x, **params)
    inner = _times(_adjoint(vectors), _times(t, vectors))
    turn = do.mul(_like(_gaps(values), inner.dtype), inner)
    return [vectors, values], [_times(vectors, turn), _real(_diagonal(inner))]


def eig_jvp(primals: Sequence[Any], tangents: Sequence[Any], *, left: bool, right: bool) -> tuple[list[Any], list[Any]]:
    """Of eigenvalues only: the diagonal of v^-1 dx v."""
    if left or right:
        raise NotImplementedError("eigenvectors of general matrices have no derivative rule. Ask for eigenvalues alone (eigvals), or use "
                                  "eigh for Hermitian matrices.")  # fmt: skip
    (x,), (t,) = primals, tangents
    values, vectors = do.eig(x, left=False, right=True)
    inner = do.solve(vectors, _times(_like(t, vectors.dtype), vectors))
    return [values], [_diagonal(inner)]


def svd_jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, full: bool, vectors: bool
) -> tuple[list[Any], list[Any]]:
    """Of x = u s v^H, in the frame of the singular vectors."""
    (x,), (t,) = primals, tangents
    m, n = x.shape[-2:]
    if full and vectors and m != n:
        raise NotImplementedError("the derivative of svd is that of the thin decomposition: call it with full_matrices=False; got "
                                  f"matrices {m} by {n}.")  # fmt: skip
    outs = do.svd(x, full=full, vectors=vectors)
    s, u, vh = outs if vectors else do.svd(x, full=False, vectors=True)
    inner = _times(_adjoint(u), _times(t, _adjoint(vh)))
    ds = _real(_diagonal(inner))
    if not vectors:
        return list(outs), [ds]
    cast = lambda v: _like(v, inner.dtype)  # noqa: E731
    column, row = _columns(s), _rows(s)
    gaps = cast(_inverse_or_zero(do.mul(do.add(column, row), do.sub(column, row))))
    inverse = _inverse_or_zero(s)
    right, left = do.mul(inner, cast(column)), do.mul(inner, cast(row))
    phase = do.mul(
        do.mul(do.sub(inner, _adjoint(inner)), cast(_columns(inverse))), do.mul(_eye(inner, *inner.shape[-2:]), 0.5)
    )
    du = _times(u, do.add(do.mul(gaps, do.add(right, _adjoint(right))), phase))
    dv = _times(_adjoint(vh), do.mul(gaps, do.add(left, _adjoint(left))))
    if m > n:
        moved = _times(t, _adjoint(vh))
        du = do.add(du, do.mul(do.sub(moved, _times(u, _times(_adjoint(u), moved))), cast(_columns(inverse))))
    if n > m:
        moved = _times(_adjoint(t), u)
        dv = do.add(dv, do.mul(do.sub(moved, _times(_adjoint(vh), _times(vh, moved))), cast(_columns(inverse))))
    return list(outs), [ds, du, _adjoint(dv)]


# -- determinants --------------------------------------------------------------------------------------------------------


def slogdet_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The trace of x^-1 dx: its real part moves the logarithm, its imaginary one the sign."""
    (x,), (t,) = primals, tangents
    sign, size = do.slogdet(x)
    total = _trace(do.solve(x, t))
    if total.dtype.kind != "c":
        return [sign, size], [None, total]
    turn = do.mul(do.complex(filled(size.aval), do.imag(total)), sign)
    return [sign, size], [turn, do.real(total)]


def det_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """The trace of the adjugate times dx, which exists for singular matrices, too."""
    (x,), (t,) = primals, tangents
    n = x.shape[-1]
    if not n:
        return do.det(x), None
    if n <= 3:
        return do.det(x), do.reduce_sum(do.mul(_cofactors(x), t), axes=(x.ndim - 2, x.ndim - 1))
    return do.det(x), _trace(_adjugate_times(x, t))


def _cofactors(x: Any) -> Any:
    """The derivatives of the determinant in each element, of small matrices."""
    n, last = x.shape[-1], x.ndim - 1
    if n == 1:
        return filled(x.aval, 1)
    if n == 2:
        row, column = _places(x.aval)
        turned = do.rev(x, dimensions=(last - 1, last))
        return do.select_n(do.eq(row, column), do.neg(turned), turned)

    def rolled(v: Any, by: int, dim: int) -> Any:
        """Element i of dim `dim` is element i + `by`, modulo 3."""
        cut = lambda a, b: _part(v, *(((a, b), (0, 3)) if dim == last - 1 else ((0, 3), (a, b))))  # noqa: E731
        return do.concatenate(cut(by, 3), cut(0, by), dimension=dim)

    p, q = rolled(x, 1, last - 1), rolled(x, 2, last - 1)  # the two other rows: their cross products
    return do.sub(do.mul(rolled(p, 1, last), rolled(q, 2, last)), do.mul(rolled(p, 2, last), rolled(q, 1, last)))


def _adjugate_times(a: Any, b: Any) -> Any:
    """det(a) a^-1 b by an LU decomposition whose last pivot may be zero: it is taken out of the division and put into the product."""
    n = a.shape[-1]
    packed, pivots, order = do.lu(a)
    place = positions(pivots.aval, pivots.ndim - 1)
    swaps = do.reduce_sum(_like(do.ne(pivots, place), np.dtype(np.int32)), axes=(pivots.ndim - 1,))
    odd = do.and_(swaps, literal(1, swaps.dtype))
    sign = do.sub(literal(1, a.dtype), do.mul(_like(odd, a.dtype), 2))
    diagonal = _diagonal(packed)
    head = do.slice(
        diagonal, start_indices=(0,) * diagonal.ndim, limit_indices=(*diagonal.shape[:-1], n - 1), strides=None
    )
    most = do.mul(sign, do.reduce_prod(head, axes=(head.ndim - 1,)))  # the determinant without the last pivot
    last = do.squeeze(do.slice(diagonal, start_indices=(*(0,) * (diagonal.ndim - 1), n - 1), limit_indices=diagonal.shape, strides=None),
                      dimensions=(diagonal.ndim - 1,))  # fmt: skip
    whole = do.mul(most, last)
    none = do.eq(most, literal(0, a.dtype))  # two zero pivots: the adjugate vanishes
    pivot = do.div(literal(1, a.dtype), do.select_n(none, most, 1))
    row, column = _places(packed.aval)
    corner = do.and_(do.eq(row, column), do.eq(row, literal(n - 1, row.dtype)))

    def spread(v: Any) -> Any:
        dims = tuple(range(v.ndim))
        return do.broadcast_in_dim(v, shape=packed.shape, broadcast_dimensions=dims, out_sharding=None)

    upper = do.select_n(corner, packed, spread(pivot))
    upper = do.select_n(spread(none), upper, _eye(a, n, n))
    y = _solve_triangular(packed, _permuted(b, order), left=True, lower=True, unit=True)
    is_last = do.eq(_places(y.aval)[0], literal(n - 1, np.dtype(np.int32)))
    scale = do.broadcast_in_dim(whole, shape=y.shape, broadcast_dimensions=tuple(range(whole.ndim)), out_sharding=None)
    x = _solve_triangular(upper, do.select_n(is_last, do.mul(y, scale), y), left=True, lower=False)
    gone = do.broadcast_in_dim(none, shape=x.shape, broadcast_dimensions=tuple(range(none.ndim)), out_sharding=None)
    return do.select_n(gone, x, 0)


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
        zero = filled(x.aval)
        both = do.expm_frechet(_blocks(x, direction, zero, x), _blocks(t, zero, zero, t), **params)
        part = _part(both, (0, n), (n, 2 * n))
        total = part if total is None else do.add(total, part)
    return out, total


def expm_frechet_transpose(ct: Any, x: Any, direction: Any, **params: Any) -> list[Any]:
    """The derivative at the transposed matrix."""
    return [None, do.expm_frechet(_flip(x), ct, **params)]


def _blocks(a: Any, b: Any, c: Any, d: Any) -> Any:
    """[[a, b], [c, d]]."""
    last = a.ndim - 1
    return do.concatenate(
        do.concatenate(a, b, dimension=last), do.concatenate(c, d, dimension=last), dimension=last - 1
    )


def sqrtm_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """y y' + y' y = x'."""
    out = do.sqrtm(*primals)
    return out, do.solve_sylvester(out, out, _like(tangents[0], out.dtype))


def solve_sylvester_jvp(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """a x' + x' b = c' - a' x - x b'."""
    a, b, c = primals
    ta, tb, total = tangents
    x = do.solve_sylvester(a, b, c)
    for part in (None if ta is None else do.neg(_times(ta, x)), None if tb is None else do.neg(_times(x, tb))):
        if part is not None:
            total = part if total is None else do.add(total, part)
    return x, do.solve_sylvester(a, b, total)


def solve_sylvester_transpose(ct: Any, a: Any, b: Any, c: Any) -> list[Any]:
    """The same equation with both matrices transposed."""
    return [None, None, do.solve_sylvester(_flip(a), _flip(b), ct)]
