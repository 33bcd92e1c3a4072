"""Linear algebra on stacks of matrices: decompositions, triangular and general systems, determinants.

The last dims hold the matrices and must be whole on a device; the dims before them pass through.
"""

from __future__ import annotations

from operator import index
from typing import Any

import numpy as np

from shardwise.base.shapes import Ints
from shardwise.ir import Array, Equation, Shown, SmallForm, Spread, bind, literal
from shardwise.ops.elementwise.binary import add, div, mul
from shardwise.ops.elementwise.comparison import ge
from shardwise.ops.elementwise.selection import select
from shardwise.ops.elementwise.unary import conj
from shardwise.ops.linalg import determinants, lapack
from shardwise.ops.linalg.matrix_op import Result, as_steps, by_library, count_matrices, define_matrix_op, square_size
from shardwise.ops.linalg.matrix_steps import (
    cholesky_workspace,
    lu_flops,
    lu_workspace,
    of_matrix,
    qr_steps,
    qr_workspace,
    solve_steps,
    solve_workspace,
    triangular_steps,
)
from shardwise.ops.products.contract import dot_general
from shardwise.ops.rules.convert import as_array
from shardwise.ops.rules.derivative import later
from shardwise.ops.rules.small_programs import as_program
from shardwise.ops.shapes.broadcast import expand_dims
from shardwise.ops.shapes.iota import broadcasted_iota
from shardwise.ops.shapes.transpose import squeeze, transpose
from shardwise.runtime import costs

__all__ = [
    "cholesky",
    "cholesky_p",
    "cholesky_update",
    "householder_product",
    "householder_product_p",
    "lu",
    "lu_p",
    "lu_pivots_to_permutation",
    "lu_pivots_to_permutation_p",
    "qr",
    "qr_p",
    "symmetric_product",
    "triangular_solve",
    "triangular_solve_p",
    "tridiagonal_solve",
    "tridiagonal_solve_p",
]

# -- Cholesky ------------------------------------------------------------------------------------------------------------------


def _cholesky_results(shape: Ints) -> list[Result]:
    square_size("cholesky", shape)
    return [(shape, "same")]


def _factors_form(name: str, fits: str = "factors_fit") -> SmallForm:
    module = "shardwise.ops.linalg.small_factors"
    return SmallForm(later(module, name), later(module, fits), mapped=True)


cholesky_p = define_matrix_op(
    "cholesky",
    (2,),
    _cholesky_results,
    lapack.cholesky,
    multiple=False,
    rules=("jvp",),
    small=_factors_form("cholesky", "numbers_fit"),
    algorithm=of_matrix("cholesky", lambda m, n: n**3 / 3),
    workspace=cholesky_workspace,
)


def cholesky(x: Any, *, symmetrize_input: bool = True) -> Array:
    """The lower triangular l with l l^H = x, for Hermitian positive definite f[..., n, n]; NaN where x is not definite.

    `symmetrize_input` takes (x + x^H) / 2; else only the lower triangle counts.

    >>> lax.linalg.cholesky(jnp.array([[4.0, 2.0], [2.0, 5.0]])).round(3)
    Array([[2., 0.],
           [1., 2.]], dtype=float32)
    """
    value = as_array(x)
    return bind(cholesky_p, symmetrize(value) if symmetrize_input else value)


def symmetrize(x: Array) -> Array:
    """(x + x^H) / 2."""
    return div(add(x, adjoint(x)), literal(2, x.dtype, x.weak_type))


def adjoint(x: Array) -> Array:
    """The conjugate transposes of matrices."""
    x = transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))
    return conj(x) if x.dtype.kind == "c" else x


def _times(x: Array, y: Array) -> Array:
    """Matrix products of stacks of one batch shape."""
    batch = tuple(range(x.ndim - 2))
    return dot_general(x, y, (((x.ndim - 1,), (x.ndim - 2,)), (batch, batch)))


def cholesky_update(r_matrix: Any, w_vector: Any) -> Array:
    """The upper factor of r^H r + w w^H, given the upper factor r (`r_matrix`) and w (`w_vector`): f[n, n], f[n] ->
    f[n, n].

    Raises:
        ValueError: `r_matrix` is no square matrix, or `w_vector` no vector of its size.

    >>> lax.linalg.cholesky_update(jnp.array([[3.0]]), jnp.array([4.0])).round(3)
    Array([[5.]], dtype=float32)
    """
    r, w = as_array(r_matrix), as_array(w_vector)
    if r.ndim < 2 or r.shape[-1] != r.shape[-2] or w.shape != r.shape[:-1]:
        raise ValueError(f"cholesky_update takes r f[..., n, n] and w f[..., n], got shapes {r.shape} and {w.shape}.")
    column = expand_dims(w, (w.ndim,))
    product = add(_times(adjoint(r), r), _times(column, adjoint(column)))
    return adjoint(cholesky(product, symmetrize_input=False))


# -- LU and QR -----------------------------------------------------------------------------------------------------------------


def _householder_results(a: Ints, taus: Ints) -> list[Result]:
    if a[0] < a[1]:
        raise ValueError(
            f"The first argument to householder_product must have at least as many rows as columns, got shape {a}"
        )
    if taus[0] > a[1]:
        raise ValueError(f"householder_product takes at most as many taus as columns, got {taus[0]} for shape {a}.")
    return [(a, "same")]


householder_product_p = define_matrix_op(
    "householder_product",
    (2, 1),
    _householder_results,
    lapack.householder_product,
    multiple=False,
    small=by_library("householder_product"),
)


def householder_product(a: Any, taus: Any) -> Array:
    """The first columns of the product of the reflectors in the columns of `a` and `taus`: f[..., m, n], f[..., k].

    `jnp.linalg.qr` with mode 'raw' gives both, `a` transposed.

    >>> a, taus = jnp.linalg.qr(jnp.array([[3.0, 1.0], [4.0, 2.0]]), mode="raw")
    >>> lax.linalg.householder_product(a.T, taus).round(3)
    Array([[-0.6, -0.8],
           [-0.8,  0.6]], dtype=float32)
    """
    return bind(householder_product_p, as_array(a), as_array(taus))


def _lu_results(shape: Ints) -> list[Result]:
    return [(shape, "same"), ((min(shape),), "int32"), (shape[:1], "int32")]


lu_p = define_matrix_op(
    "lu",
    (2,),
    _lu_results,
    lapack.lu,
    rules=("jvp",),
    small=_factors_form("lu"),
    algorithm=of_matrix("lu", lu_flops),
    workspace=lu_workspace,
)


def lu(x: Any) -> list[Array]:
    """The packed factors f[..., m, n], pivots i32[..., k] and row permutation i32[..., m] of an LU decomposition of
    the matrices `x`.

    >>> lax.linalg.lu(jnp.array([[2.0, 1.0], [4.0, 3.0]]))[0].round(3)
    Array([[ 4. ,  3. ],
           [ 0.5, -0.5]], dtype=float32)
    """
    return bind(lu_p, as_array(x))


def _permutation_results(shape: Ints, *, permutation_size: int) -> list[Result]:
    if permutation_size < shape[0]:
        raise ValueError(
            f"Output permutation size {permutation_size} has to exceed the trailing dimension of the pivots. Got "
            f"pivots size {shape[0]}"
        )
    return [((permutation_size,), "int32")]


lu_pivots_to_permutation_p = define_matrix_op(
    "lu_pivots_to_permutation",
    (1,),
    _permutation_results,
    lambda pivots, permutation_size: lapack.pivots_to_permutation(pivots, permutation_size),
    accepts="iu",
    multiple=False,
)


def lu_pivots_to_permutation(pivots: Any, permutation_size: int) -> Array:
    """The row permutation that successive pivots make: i32[..., k] -> i32[..., permutation_size]. TypeError for other dtypes.

    >>> lax.linalg.lu_pivots_to_permutation(jnp.array([1, 1]), 2)
    Array([1, 0], dtype=int32)
    """
    value = as_array(pivots)
    if value.dtype.name != "int32":
        raise TypeError(f"lu_pivots_to_permutation takes pivots of int32, got {value.dtype.name}.")
    return bind(lu_pivots_to_permutation_p, value, permutation_size=index(permutation_size))


def _qr_results(shape: Ints, *, full: bool, pivoting: bool) -> list[Result]:
    m, n = shape
    k = m if full else min(m, n)
    return [((m, k), "same"), ((k, n), "same"), *([((n,), "int32")] if pivoting else [])]


def _qr_calls(eqn: Equation, spread: Spread) -> int:
    """Stacks that the kernel goes through matrix by matrix give the bits of machine code, which calls LAPACK likewise."""
    matrices = count_matrices(eqn.inputs[0], spread)
    return 16 * matrices if lapack.by_matrix(eqn.inputs[0].aval.dtype, matrices) else 1


qr_p = define_matrix_op(
    "qr",
    (2,),
    _qr_results,
    lapack.qr,
    rules=("jvp",),
    partition=later("shardwise.ops.linalg.qr_partition", "qr_partition"),
    algorithm=qr_steps,
    workspace=qr_workspace,
    small=as_steps("qr", "without_pivots", calls=_qr_calls),
    shown=Shown(renamed={"full": "full_matrices"}, empty=("use_magma",)),
)


def qr(
    x: Any, *, pivoting: bool = False, full_matrices: bool = True, use_magma: bool | None = None
) -> tuple[Array, ...]:
    """q and r with x = q r, and with `pivoting` the order p of columns with x[..., p] = q r.

    q is square unless `full_matrices` is False. NotImplementedError for `use_magma`.

    >>> jnp.abs(lax.linalg.qr(jnp.array([[3.0], [4.0]]), full_matrices=False)[1]).round(3)
    Array([[5.]], dtype=float32)
    """
    if use_magma:
        raise NotImplementedError("use_magma exists on GPUs only; leave it out.")
    return tuple(bind(qr_p, as_array(x), full=bool(full_matrices), pivoting=bool(pivoting)))


# -- systems -----------------------------------------------------------------------------------------------------------------------


def _triangular_results(a: Ints, b: Ints, *, left: bool, **_: Any) -> list[Result]:
    if a[0] != a[1]:
        raise ValueError(f"The first input to triangular_solve must be a square matrix. Got shape {a}.")
    if a[0] != b[0 if left else 1]:
        raise ValueError(f"Incompatible shapes for arguments to triangular_solve: {a} and {b}.")
    return [(b, "same")]


def _triangular_calls(eqn: Equation, spread: Spread) -> int:
    """As many for each matrix of a stack, whose kernel calls BLAS for one after the other; a single one is left to it."""
    systems = min(count_matrices(x, spread) for x in eqn.inputs)
    return 2 * systems if systems < costs.STACKED_FEWEST else 1


triangular_solve_p = define_matrix_op(
    "triangular_solve",
    (2, 2),
    _triangular_results,
    lapack.triangular_solve,
    multiple=False,
    rules=("jvp", "transpose"),
    small=SmallForm(
        later("shardwise.runtime.small", "triangular_solve"),
        later("shardwise.runtime.small", "systems_fit"),
        mapped=True,
        calls=_triangular_calls,
        alike=False,
    ),
    algorithm=triangular_steps,
    shown=Shown(
        renamed={"conjugate": "conjugate_a", "left": "left_side", "transpose": "transpose_a", "unit": "unit_diagonal"}
    ),
)


def triangular_solve(
    a: Any,
    b: Any,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Array:
    """x with x op(a) = b, or op(a) x = b with `left_side`, for triangular `a`; op transposes if `transpose_a` and
    conjugates if `conjugate_a`.

    Only the `lower` (else upper) triangle counts, and with `unit_diagonal` not its diagonal. `b` may be vectors.

    >>> lax.linalg.triangular_solve(jnp.array([[2.0, 0.0], [1.0, 1.0]]), jnp.array([[2.0], [3.0]]), left_side=True, lower=True).round(3)
    Array([[1.],
           [2.]], dtype=float32)
    """
    p, q = as_array(a), as_array(b)
    vectors = q.ndim == p.ndim - 1
    if vectors:
        q = expand_dims(q, (q.ndim if left_side else q.ndim - 1,))
    x = bind(
        triangular_solve_p,
        p,
        q,
        left=bool(left_side),
        lower=bool(lower),
        transpose=bool(transpose_a),
        conjugate=bool(conjugate_a) and p.dtype.kind == "c",
        unit=bool(unit_diagonal),
    )
    return squeeze(x, (x.ndim - 1 if left_side else x.ndim - 2,)) if vectors else x


def _tridiagonal_solve_results(dl: Ints, d: Ints, du: Ints, b: Ints, *, perturb_singular: bool) -> list[Result]:
    if not dl == d == du:
        raise TypeError(
            f"tridiagonal_solve requires that all diagonal arguments have the same shape, got {dl}, {d} and {du}."
        )
    if d != b[:-1]:
        raise TypeError(
            f"tridiagonal_solve requires that the leading dims of b equal the dims of the diagonals, got {b} and {d}."
        )
    return [(b, "same")]


tridiagonal_solve_p = define_matrix_op(
    "tridiagonal_solve",
    (1, 1, 1, 2),
    _tridiagonal_solve_results,
    lapack.tridiagonal_solve,
    multiple=False,
    rules=("jvp", "transpose"),
    makes_nan=True,
)


def tridiagonal_solve(dl: Any, d: Any, du: Any, b: Any, *, perturb_singular: bool = False) -> Array:
    """x of tridiagonal systems: diagonals `dl`, `d` and `du` f[..., n] (first of `dl` and last of `du` unused), b
    f[..., n, k] -> f[..., n, k].

    With `perturb_singular` pivots that are close to zero are moved away from it by a rounding of the largest element, so that
    singular systems have finite solutions; else their solutions are NaN.

    >>> below, main, above = jnp.array([0.0, 1.0]), jnp.array([2.0, 2.0]), jnp.array([1.0, 0.0])
    >>> lax.linalg.tridiagonal_solve(below, main, above, jnp.array([[3.0], [3.0]])).round(3)
    Array([[1.],
           [1.]], dtype=float32)
    """
    return bind(tridiagonal_solve_p, *map(as_array, (dl, d, du, b)), perturb_singular=bool(perturb_singular))


def _solve_results(a: Ints, b: Ints, *, transposed: bool) -> list[Result]:
    if a[0] != a[1] or a[0] != b[0]:
        raise ValueError(f"solve takes square a [..., m, m] and b [..., m, k]; got a={a} and b={b}.")
    return [(b, "same")]


solve_p = define_matrix_op(
    "solve",
    (2, 2),
    _solve_results,
    lapack.solve,
    multiple=False,
    small=_factors_form("solve", "numbers_fit"),
    algorithm=solve_steps,
    workspace=solve_workspace,
    broadcasts=True,
    rules=("jvp", "transpose"),
    makes_nan=True,
)


def solve(a: Any, b: Any) -> Array:
    """x with a x = b: f[..., m, m], f[..., m, k] -> f[..., m, k]. Batch dims of size 1 broadcast.

    Where a is singular, the results are those of its LU factors: infinities and NaNs.
    """
    return bind(solve_p, as_array(a), as_array(b), transposed=False)


# -- determinants and products -------------------------------------------------------------------------------------------------------


def _slogdet_results(shape: Ints) -> list[Result]:
    square_size("slogdet", shape)
    return [((), "same"), ((), "real")]


def _determinants_form(name: str) -> SmallForm:
    module = "shardwise.ops.linalg.small_determinants"
    return as_program(later(module, name), later(module, "are_real"))


slogdet_p = define_matrix_op(
    "slogdet",
    (2,),
    _slogdet_results,
    determinants.slogdet,
    rules=("jvp",),
    makes_nan=True,
    algorithm=of_matrix("lu/determinant", lu_flops),
    small=_determinants_form("slogdet"),
)


def _det_results(shape: Ints) -> list[Result]:
    square_size("det", shape)
    return [((), "same")]


det_p = define_matrix_op(
    "det",
    (2,),
    _det_results,
    determinants.det,
    multiple=False,
    rules=("jvp",),
    makes_nan=True,
    algorithm=of_matrix("lu/determinant", lu_flops),
    small=_determinants_form("det"),
)


def slogdet(x: Any) -> tuple[Array, Array]:
    """Sign and logarithm of the determinants' magnitude: f[..., n, n] -> f[...], real[...]."""
    return tuple(bind(slogdet_p, as_array(x)))  # type: ignore[return-value]


def det(x: Any) -> Array:
    """Determinants: f[..., n, n] -> f[...]."""
    return bind(det_p, as_array(x))


def symmetric_product(
    a_matrix: Any, c_matrix: Any, *, alpha: float = 1.0, beta: float = 0.0, symmetrize_output: bool = False
) -> Array:
    """`alpha` a a^T + `beta` c for a (`a_matrix`) f[..., n, k] and c (`c_matrix`) f[..., n, n], of which only the
    lower triangle counts; `symmetrize_output` copies it to the upper one.

    Raises:
        ValueError: shapes do not fit. TypeError: dtypes differ.

    >>> lax.linalg.symmetric_product(jnp.array([[1.0, 2.0]]), jnp.zeros((1, 1)))
    Array([[5.]], dtype=float32)
    """
    a, c = as_array(a_matrix), as_array(c_matrix)
    for i, x in enumerate((a, c)):
        if x.ndim < 2:
            raise TypeError(f"Input {i} to symmetric_product must have rank at least 2, but got shape={x.shape}")
    rows = a.shape[-2]
    if c.shape != (*a.shape[:-2], rows, rows):
        raise ValueError(
            f"symmetric_product takes a f[..., n, k] and c f[..., n, n], got shapes {a.shape} and {c.shape}."
        )
    batch = tuple(range(a.ndim - 2))
    product = dot_general(a, a, (((a.ndim - 1,), (a.ndim - 1,)), (batch, batch)))
    out = add(mul(product, literal(alpha, a.dtype, a.weak_type)), mul(c, literal(beta, a.dtype, a.weak_type)))
    if not symmetrize_output:
        return out
    shape = out.shape
    row, column = (broadcasted_iota(np.int32, shape, out.ndim - i) for i in (2, 1))
    return select(ge(row, column), out, transpose(out, (*range(out.ndim - 2), out.ndim - 1, out.ndim - 2)))
