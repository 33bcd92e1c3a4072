"""Linear algebra on one small matrix whose elements are lanes: each lane has a matrix of its own, so there are no branches.

In: a writer, and matrices as lists of rows. Out: matrices in that form. An algorithm that can fail also returns a bool, `odd`: true in the
lanes whose results do not hold, because a pivot is zero or NaN or a length leaves the range of its type. Loops over rows and columns are
spelled out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from shardwise.runtime.machine import RARE, Lane, Lanes, libm

Row = list[Lane]
_EPSILON = {
    "float32": (2.0**-24, 2.0**-126),
    "float64": (2.0**-53, 2.0**-1022),
}  # half a unit of 1, and the least normal number
_IN_RANGE = {"float32": (1e-15, 1e15), "float64": (1e-140, 1e140)}  # of elements: LAPACK scales others
_SAFE = {
    "float32": (1e-30, 1e30),
    "float64": (1e-290, 1e290),
}  # in this range a product of pivots neither overflows nor underflows: one logarithm serves for those of its factors
Matrix = list[Row]


def as_matrix(elements: Sequence[Lane], columns: int) -> Matrix:
    """Elements, row by row, as a matrix."""
    return [list(elements[i : i + columns]) for i in range(0, len(elements), columns)]


def as_elements(matrix: Matrix) -> Row:
    """The elements of a matrix, row by row."""
    return [x for row in matrix for x in row]


def _less(w: Lanes, x: Lane, factor: Lane, y: Lane) -> Lane:
    """``x - factor * y``, rounded once."""
    return w.fma(w.neg(factor), y, x)


def _product(w: Lanes, xs: Sequence[Lane]) -> Lane:
    out = xs[0]
    for x in xs[1:]:
        out = w.mul(out, x)
    return out


def _sum(w: Lanes, xs: Sequence[Lane]) -> Lane:
    out = xs[0]
    for x in xs[1:]:
        out = w.add(out, x)
    return out


# -- determinants ------------------------------------------------------------------------------------------------------------


def determinant(w: Lanes, a: Matrix) -> Lane:
    """Up to 3 by 3 by definition, in double precision, so that single precision loses nothing; larger ones by `factor`."""
    kind = a[0][0].dtype
    if len(a) > 3:
        rows, _, _, swaps = factor(w, a)
        out = rows[0][0]
        for i in range(1, len(a)):
            out = w.mul(out, rows[i][i])
        return w.select(swaps, w.neg(out), out)
    wide = [[w.convert(x, "float64") for x in row] for row in a]
    return w.convert(_by_definition(w, wide), kind)


def _by_definition(w: Lanes, m: Matrix) -> Lane:
    if len(m) == 1:
        return m[0][0]
    if len(m) == 2:
        (a, b), (c, d) = m
        return w.sub(_product(w, (a, d)), _product(w, (b, c)))
    (a, b, c), (d, e, f), (g, h, i) = m
    even = _sum(w, [_product(w, (a, e, i)), _product(w, (b, f, g)), _product(w, (c, d, h))])
    return w.sub(even, _sum(w, [_product(w, (c, e, g)), _product(w, (a, f, h)), _product(w, (b, d, i))]))


def sign_and_log(w: Lanes, a: Matrix) -> tuple[Lane, Lane]:
    """The sign of the determinant, and the logarithm of its magnitude."""
    rows, _, _, negative = factor(w, a)
    zero = w.like(0, a[0][0])
    diagonal = [rows[i][i] for i in range(len(a))]
    for x in diagonal:
        negative = w.binary("xor", negative, w.compare("lt", x, zero))
    product = _product(w, diagonal)
    size, (least, most) = w.abs(product), _SAFE[product.dtype]
    far = w.binary("or", w.compare("lt", size, w.like(least, zero)), w.compare("gt", size, w.like(most, zero)))

    def apart() -> list[str]:
        return [_sum(w, [libm.log(w, w.abs(x)) for x in diagonal]).ref]

    usual = libm.log(w, size)
    (log,) = w.branch(w.some(far), apart, [usual.ref], [w.vector(usual.type)], RARE)
    log = Lane(log, usual.dtype)
    return w.select(negative, w.like(-1, zero), w.like(1, zero)), log


# -- systems -----------------------------------------------------------------------------------------------------------------


def factor(w: Lanes, a: Matrix) -> tuple[Matrix, Row, Row, Lane]:
    """LU with partial pivoting: the packed factors, the row that each row was exchanged with, the order of rows, and whether the
    number of exchanges is odd. Below a pivot of zero all is zero, and stays.
    """
    rows, m, n = [list(row) for row in a], len(a), len(a[0])
    number = [w.constant(i, "int32") for i in range(m)]
    order, pivots = list(number), list[Lane]()
    odd = w.constant(False, "bool")
    for j in range(min(m, n)):
        best, at = w.abs(rows[j][j]), number[j]
        for i in range(j + 1, m):
            size = w.abs(rows[i][j])
            above = w.compare("gt", size, best)
            best, at = w.select(above, size, best), w.select(above, number[i], at)
        pivots.append(at)
        top, first = list(rows[j]), order[j]
        for i in range(j + 1, m):
            here = w.compare("eq", at, number[i])
            odd = w.binary("xor", odd, here)
            rows[j] = [w.select(here, x, y) for x, y in zip(rows[i], rows[j], strict=True)]
            rows[i] = [w.select(here, x, y) for x, y in zip(top, rows[i], strict=True)]
            order[j], order[i] = w.select(here, order[i], order[j]), w.select(here, first, order[i])
        pivot, one = rows[j][j], w.like(1, rows[j][j])
        pivot = w.select(w.compare("ne", pivot, w.like(0, pivot)), pivot, one)
        for i in range(j + 1, m):
            rows[i][j] = w.div(rows[i][j], pivot)
            for k in range(j + 1, n):
                rows[i][k] = _less(w, rows[i][k], rows[i][j], rows[j][k])
    return rows, pivots, order, odd


def solve_by_factor(w: Lanes, a: Matrix, b: Matrix) -> Matrix:
    """x with a x = b, by `factor` of both side by side."""
    n = len(a)
    rows = factor(w, [p + q for p, q in zip(a, b, strict=True)])[0]
    x = [row[n:] for row in rows]
    for i in reversed(range(n)):
        for j in range(i + 1, n):
            x[i] = [_less(w, p, rows[i][j], q) for p, q in zip(x[i], x[j], strict=True)]
        x[i] = [w.div(p, rows[i][i]) for p in x[i]]
    return x


def solve_triangular(w: Lanes, a: Matrix, b: Matrix, lower: bool, unit: bool) -> Matrix:
    """x with a x = b for triangular a, whose diagonal is 1 if it is a `unit` one."""
    n, x = len(a), [list(row) for row in b]
    for i in range(n) if lower else reversed(range(n)):
        for j in range(i) if lower else range(i + 1, n):
            x[i] = [_less(w, p, a[i][j], q) for p, q in zip(x[i], x[j], strict=True)]
        if not unit:
            x[i] = [w.div(p, a[i][i]) for p in x[i]]
    return x


def cholesky(w: Lanes, a: Matrix) -> Matrix:
    """The lower factor, of which NaN in the lower triangle says that the matrix is not definite."""
    n, zero = len(a), w.like(0, a[0][0])
    out = [[zero] * n for _ in range(n)]
    fine = w.constant(True, "bool")
    for j in range(n):
        pivot = a[j][j]
        for k in range(j):
            pivot = _less(w, pivot, out[j][k], out[j][k])
        fine = w.binary("and", fine, w.compare("gt", pivot, zero))
        out[j][j] = w.call("sqrt", pivot)
        for i in range(j + 1, n):
            x = a[i][j]
            for k in range(j):
                x = _less(w, x, out[i][k], out[j][k])
            out[i][j] = w.div(x, out[j][j])
    nan = w.like(math.nan, zero)
    return [[w.select(fine, x, nan) if j <= i else x for j, x in enumerate(row)] for i, row in enumerate(out)]


# -- orthogonal factors ------------------------------------------------------------------------------------------------------


def householder_qr(w: Lanes, a: Matrix, columns: int) -> tuple[Matrix, Matrix, Lane]:
    """q with `columns` columns, and r, by Householder's reflections with LAPACK's signs; and which lanes are odd."""
    rows, m, n = [list(row) for row in a], len(a), len(a[0])
    zero, one = w.like(0, a[0][0]), w.like(1, a[0][0])
    odd = w.constant(False, "bool")
    reflectors: list[tuple[list[Lane], Lane]] = []
    for j in range(min(m, n)):
        head, tail = rows[j][j], [rows[i][j] for i in range(j + 1, m)]
        if not tail:
            break
        square, bad = _length_squared(w, [head, *tail])
        flat = w.compare("eq", _largest(w, tail), zero)
        odd = w.binary("or", odd, w.select(flat, w.isnan(head), bad))
        beta = w.copysign(w.convert(w.call("sqrt", square), head.dtype), w.neg(head))
        beta = w.select(flat, head, beta)
        safe = w.select(flat, one, beta)
        tau = w.select(flat, zero, w.div(w.sub(beta, head), safe))
        scale = w.div(one, w.select(flat, one, w.sub(head, beta)))
        vector = [w.select(flat, zero, w.mul(x, scale)) for x in tail]
        rows[j][j] = beta
        for i in range(j + 1, m):
            rows[i][j] = zero
        for k in range(j + 1, n):
            _reflect(w, rows, j, k, vector, tau)
        reflectors.append((vector, tau))
    q = [[one if i == j else zero for j in range(columns)] for i in range(m)]
    for j in reversed(range(len(reflectors))):
        for k in range(j, columns):
            _reflect(w, q, j, k, *reflectors[j])
    return q, rows[:columns], odd


def _reflect(w: Lanes, rows: Matrix, j: int, k: int, vector: Row, tau: Lane) -> None:
    """Apply the reflection of rows `j` and below to column `k`."""
    total = rows[j][k]
    for i, x in enumerate(vector, j + 1):
        total = w.fma(x, rows[i][k], total)
    total = w.mul(total, tau)
    rows[j][k] = w.sub(rows[j][k], total)
    for i, x in enumerate(vector, j + 1):
        rows[i][k] = _less(w, rows[i][k], x, total)


def _largest(w: Lanes, xs: Sequence[Lane]) -> Lane:
    out = w.abs(xs[0])
    for x in xs[1:]:
        size = w.abs(x)
        out = w.select(w.compare("gt", size, out), size, out)
    return out


def _length_squared(w: Lanes, xs: Sequence[Lane]) -> tuple[Lane, Lane]:
    """The sum of squares in float64, and where it is not finite, may have lost digits, or is so small that its root's reciprocal is not."""
    wide = [w.convert(x, "float64") for x in xs]
    total = w.mul(wide[0], wide[0])
    for x in wide[1:]:
        total = w.fma(x, x, total)
    least, most = (1e-61, 1e75) if xs[0].dtype == "float32" else (1e-280, 1e280)
    usual = w.binary("and", w.compare("gt", total, w.like(least, total)), w.compare("lt", total, w.like(most, total)))
    return total, w.binary("xor", usual, w.constant(True, "bool"))


# -- eigenvectors ------------------------------------------------------------------------------------------------------------


def eigenpairs(w: Lanes, a: Lane, b: Lane, c: Lane) -> tuple[Matrix, Row, Lane]:
    """Eigenvectors, as columns, and ascending eigenvalues of the symmetric matrix with diagonal a, c and b beside it, and `odd`.

    Signs of vectors are those that LAPACK gives: one rotation, whose smaller angle is that of the first column or of the second one.
    """
    zero, one, half = (w.like(v, a) for v in (0, 1, 0.5))
    (eps, tiny), (least, most) = _EPSILON[a.dtype], _IN_RANGE[a.dtype]
    size = w.maximum(w.maximum(w.abs(a), w.abs(c)), w.abs(b))
    fine = w.binary("and", w.compare("gt", size, w.like(least, a)), w.compare("lt", size, w.like(most, a)))
    fine = w.binary("and", fine, w.compare("eq", w.sub(a, a), w.sub(c, c)))  # NaN is not the greater one
    level = w.mul(w.call("sqrt", w.abs(a)), w.call("sqrt", w.abs(c)))
    apart = w.compare("le", w.abs(b), w.mul(level, w.like(eps, a)))  # the matrix is diagonal, but for rounding
    apart = w.binary("or", apart, w.compare("le", w.mul(b, b), w.like(tiny, a)))
    b = w.select(apart, zero, b)
    total, gap, twice = w.add(a, c), w.sub(a, c), w.add(b, b)
    wide, cross = w.abs(gap), w.abs(twice)
    longer, shorter = w.maximum(wide, cross), w.minimum(wide, cross)
    ratio = w.div(shorter, w.select(w.compare("eq", longer, zero), one, longer))
    root = w.mul(longer, w.call("sqrt", w.add(one, w.mul(ratio, ratio))))
    below = w.compare("lt", total, zero)
    far = w.mul(half, w.select(below, w.sub(total, root), w.add(total, root)))
    first = w.compare("gt", w.abs(a), w.abs(c))
    large, small = w.select(first, a, c), w.select(first, c, a)
    by = w.select(w.compare("eq", far, zero), one, far)
    near = w.sub(w.mul(w.div(large, by), small), w.mul(w.div(b, by), b))
    near = w.select(w.compare("eq", total, zero), w.neg(far), near)
    is_rising = w.compare("ge", gap, zero)
    side = w.select(is_rising, w.add(gap, root), w.sub(gap, root))
    steep = w.compare("gt", w.abs(side), cross)
    upper, under = w.select(steep, twice, side), w.select(steep, side, twice)
    slope = w.neg(w.div(upper, w.select(w.compare("eq", under, zero), one, under)))
    length = w.div(one, w.call("sqrt", w.add(one, w.mul(slope, slope))))
    other = w.mul(slope, length)
    x, y = w.select(steep, other, length), w.select(steep, length, other)
    is_swapped = w.binary(
        "xor", below, is_rising
    )  # the greater value belongs to the side that the angle was not taken from
    x, y = w.select(is_swapped, w.neg(y), x), w.select(is_swapped, x, y)
    x, y = w.select(apart, one, x), w.select(apart, zero, y)
    far, near = w.select(apart, a, far), w.select(apart, c, near)
    falls, minus = w.compare("lt", near, far), w.sub(zero, y)
    vectors = [
        [w.select(falls, minus, x), w.select(falls, x, minus)],
        [w.select(falls, x, y), w.select(falls, y, x)],
    ]
    values = [w.select(falls, near, far), w.select(falls, far, near)]
    return vectors, values, w.binary("xor", fine, w.constant(True, "bool"))
