"""Linear algebra on stacks of matrices: decompositions, triangular and general systems, determinants.

The last dims hold the matrices and must be whole on a device; the dims before them pass through.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import Any

import numpy as np

from shardwise.ir import Array, Equation, Op, ShapedArray, SmallForm, bind, define_op, literal
from shardwise.ir.explicit import type_error
from shardwise.ir.op import Params, Types
from shardwise.ir.types import Spec
from shardwise.ops.elementwise.binary import add, mul
from shardwise.ops.elementwise.comparison import ge
from shardwise.ops.elementwise.selection import select
from shardwise.ops.elementwise.unary import conj
from shardwise.ops.linalg import lapack
from shardwise.ops.products.contract import dot_general
from shardwise.ops.rules.convert import as_array
from shardwise.ops.rules.derivative import later
from shardwise.ops.rules.operands import Block, dtype_kind
from shardwise.ops.shapes.broadcast import expand_dims
from shardwise.ops.shapes.iota import broadcasted_iota
from shardwise.ops.shapes.transpose import squeeze, transpose
from shardwise.runtime.env import Env
from shardwise.sharding.rule import Kind, Rule

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

Ints = tuple[int, ...]
Result = tuple[Ints, str]  # dims of one matrix, and its element type: 'same', 'real', 'complex', 'int32', 'bool'


# -- defining ops ------------------------------------------------------------------------------------------------------------


def define_matrix_op(
    name: str,
    ranks: Ints,
    results: Callable[..., list[Result]],
    kernel: Callable[..., Any],
    *,
    accepts: str = "fc",
    multiple: bool = True,
    broadcasts: bool = False,
    rules: Sequence[str] = (),
    derivatives: str = "linalg_derivative",
    makes_nan: bool = False,
    small: SmallForm | None = None,
    partition: Callable[[Any, Equation], None] | None = None,
) -> Op:
    """An op on matrices of these ranks. `results(*core_shapes, **params)` gives what one matrix (one of each) results in and
    raises ValueError or TypeError for sizes; `kernel(*blocks, **params)` works on stacks. Batch dims are equal, or 1 where it
    `broadcasts`. Its derivative `rules` ('jvp', 'transpose') are in the module `derivatives` of this package."""

    def type_rule(*types: ShapedArray, **params: Any) -> Any:
        batches = []
        for i, (t, r) in enumerate(zip(types, ranks, strict=True)):
            if t.ndim < r:
                raise TypeError(f"Input {i} to {name} must have rank at least {r}, but got shape={t.shape}")
            if dtype_kind(t.dtype) not in accepts or t.dtype.name.startswith("float8"):
                raise TypeError(
                    f"{name} does not accept dtype {t.dtype.name}; cast to float32 or another floating type first."
                )
            if t.dtype != types[0].dtype:
                raise TypeError(
                    f"{name} requires arguments of one dtype, got {', '.join(u.dtype.name for u in types)}."
                )
            batches.append(t.shape[: t.ndim - r])
        batch = batches[0]
        if broadcasts and len(set(map(len, batches))) == 1:
            batch = tuple(max(sizes, key=lambda n: n != 1) for sizes in zip(*batches, strict=True))
            batches = [tuple(m if n == 1 else n for n, m in zip(b, batch, strict=True)) for b in batches]
        if len(set(batches)) > 1:
            raise TypeError(
                f"All inputs to {name} must have the same batch dims, got shapes {', '.join(str(t.shape) for t in types)}."
            )
        cores = results(*(t.shape[t.ndim - r :] for t, r in zip(types, ranks, strict=True)), **params)
        weak = all(t.weak_type for t in types)
        outs = [ShapedArray(batch + core, _element(types[0].dtype, kind), weak) for core, kind in cores]
        return tuple(outs) if multiple else outs[0]

    def run(env: Env, *blocks: Block, **params: Any) -> Any:
        dtype = blocks[0].dtype
        narrow = dtype.itemsize < 4 and dtype_kind(dtype) == "f"
        outs = kernel(*(b.astype(np.float32) for b in blocks) if narrow else blocks, **params)
        outs = outs if isinstance(outs, tuple) else (outs,)
        if narrow:
            outs = tuple(o.astype(dtype) if o.dtype == np.float32 else o for o in outs)
        return outs if multiple else outs[0]

    def rule(in_types: Types, out_types: Types, params: Params) -> Rule:
        return _matrix_rule(in_types, out_types, in_types[0].ndim - ranks[0])

    def explicit(in_types: Types, out_types: Types, params: Params, rule: Rule) -> tuple[Spec, ...]:
        for i, (t, r) in enumerate(zip(in_types, ranks, strict=True)):
            if any(t.spec[t.ndim - r :]):
                raise type_error(
                    f"Input {i} to {name} must be unsharded on non-batch dimensions, but got {t.sharding.spec}. "
                    "Reshard these dims to None first."
                )
        batch = in_types[0].spec[: in_types[0].ndim - ranks[0]]
        for t in in_types[1:]:
            if broadcasts:
                batch = tuple(a or b for a, b in zip(batch, t.spec, strict=False))
        for t in in_types:
            if any(a != b and (n != 1 or not broadcasts) for a, b, n in zip(t.spec, batch, t.shape, strict=False)):
                raise type_error(
                    f"All inputs to {name} must have the same batch sharding, but got "
                    f"{', '.join(str(u.sharding.spec) for u in in_types)}."
                )
        return tuple(batch + ((),) * (out.ndim - len(batch)) for out in out_types)

    derivative = {r: later(f"shardwise.ops.linalg.{derivatives}", f"{name}_{r}") for r in rules}
    return define_op(
        name,
        type_rule=type_rule,
        kernel=run,
        rule=rule,
        explicit=explicit,
        multiple_results=multiple,
        makes_nan=makes_nan,
        small=small,
        partition=partition,
        **derivative,
    )


def _matrix_rule(in_types: Types, out_types: Types, batch: int) -> Rule:
    """Batch dims pass through; every dim of a matrix is needed whole, and made whole."""
    sizes = list(out_types[0].shape[:batch])
    tensors = []
    for t in in_types + out_types:
        factors: list[tuple[int, ...]] = [(d,) if n != 1 else () for d, n in enumerate(t.shape[:batch])]
        for n in t.shape[batch:]:
            factors.append((len(sizes),) if n != 1 else ())
            if n != 1:
                sizes.append(n)
        tensors.append(tuple(factors))
    kinds = (Kind.PASS,) * batch + (Kind.REPLICATE,) * (len(sizes) - batch)
    return Rule(tuple(tensors[: len(in_types)]), tuple(tensors[len(in_types) :]), tuple(sizes), kinds)


def _element(dtype: np.dtype[Any], kind: str) -> np.dtype[Any]:
    if kind in ("int32", "bool"):
        return np.dtype(kind)
    if kind == "real" and dtype.kind == "c":
        return np.dtype(np.float32 if dtype.itemsize == 8 else np.float64)
    if kind == "complex" and dtype.kind != "c":
        return np.dtype(np.complex128 if dtype.itemsize == 8 else np.complex64)
    return dtype


def square_size(name: str, shape: Ints) -> int:
    if shape[0] != shape[1]:
        raise ValueError(f"The input to {name} must be a square matrix. Got shape {shape}.")
    return shape[0]


# -- Cholesky ------------------------------------------------------------------------------------------------------------------


def _cholesky_results(shape: Ints) -> list[Result]:
    square_size("cholesky", shape)
    return [(shape, "same")]


def _factors_form(name: str) -> SmallForm:
    module = "shardwise.ops.linalg.small_factors"
    return SmallForm(later(module, name), later(module, "factors_fit"), mapped=True)


cholesky_p = define_matrix_op(
    "cholesky",
    (2,),
    _cholesky_results,
    lapack.cholesky,
    multiple=False,
    rules=("jvp",),
    small=_factors_form("cholesky"),
)


def cholesky(x: Any, *, symmetrize_input: bool = True) -> Array:
    """The lower triangular l with l l^H = x, for Hermitian positive definite f[..., n, n]; NaN where x is not definite.

    `symmetrize_input` takes (x + x^H) / 2; else only the lower triangle counts.

    >>> lax.linalg.cholesky(jnp.array([[4.0, 2.0], [2.0, 5.0]])).round(3)
    Array([[2., 0.],
           [1., 2.]], dtype=float32)
    """
    value = as_array(x)
    return bind(cholesky_p, symmetrized(value) if symmetrize_input else value)


def symmetrized(x: Array) -> Array:
    """(x + x^H) / 2."""
    return mul(add(x, adjoint(x)), literal(0.5, x.dtype, x.weak_type))


def adjoint(x: Array) -> Array:
    """The conjugate transposes of matrices."""
    x = transpose(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))
    return conj(x) if x.dtype.kind == "c" else x


def _times(x: Array, y: Array) -> Array:
    """Matrix products of stacks of one batch shape."""
    batch = tuple(range(x.ndim - 2))
    return dot_general(x, y, (((x.ndim - 1,), (x.ndim - 2,)), (batch, batch)))


def cholesky_update(r_matrix: Any, w_vector: Any) -> Array:
    """The upper factor of r^H r + w w^H, given the upper factor r: f[n, n], f[n] -> f[n, n].

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
    "householder_product", (2, 1), _householder_results, lapack.householder_product, multiple=False
)


def householder_product(a: Any, taus: Any) -> Array:
    """The first columns of the product of the reflectors in the columns of `a` and `taus`: f[..., m, n], f[..., k]."""
    return bind(householder_product_p, as_array(a), as_array(taus))


def _lu_results(shape: Ints) -> list[Result]:
    return [(shape, "same"), ((min(shape),), "int32"), (shape[:1], "int32")]


lu_p = define_matrix_op("lu", (2,), _lu_results, lapack.lu, rules=("jvp",), small=_factors_form("lu"))


def lu(x: Any) -> list[Array]:
    """The packed factors f[..., m, n], pivots i32[..., k] and row permutation i32[..., m] of an LU decomposition.

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
    """The row permutation that successive pivots make: i32[..., k] -> i32[..., permutation_size].

    >>> lax.linalg.lu_pivots_to_permutation(jnp.array([1, 1]), 2)
    Array([1, 0], dtype=int32)
    """
    return bind(lu_pivots_to_permutation_p, as_array(pivots), permutation_size=index(permutation_size))


def _qr_results(shape: Ints, *, full: bool, pivoting: bool) -> list[Result]:
    m, n = shape
    k = m if full else min(m, n)
    return [((m, k), "same"), ((k, n), "same"), *([((n,), "int32")] if pivoting else [])]


qr_p = define_matrix_op(
    "qr",
    (2,),
    _qr_results,
    lapack.qr,
    rules=("jvp",),
    partition=later("shardwise.ops.linalg.qr_partition", "qr_partition"),
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
    """x with x op(a) = b, or op(a) x = b with `left_side`, for triangular `a`; op transposes and conjugates as asked.

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


def _tridiagonal_solve_results(dl: Ints, d: Ints, du: Ints, b: Ints, *, perturb: bool = False) -> list[Result]:
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
    """x of tridiagonal systems: diagonals f[..., n] (first of `dl` and last of `du` unused), b f[..., n, k] -> f[..., n, k].

    >>> below, main, above = jnp.array([0.0, 1.0]), jnp.array([2.0, 2.0]), jnp.array([1.0, 0.0])
    >>> lax.linalg.tridiagonal_solve(below, main, above, jnp.array([[3.0], [3.0]])).round(3)
    Array([[1.],
           [1.]], dtype=float32)
    """
    if perturb_singular:
        raise NotImplementedError(
            "tridiagonal_solve does not perturb singular systems; add a small multiple of the identity."
        )
    return bind(tridiagonal_solve_p, *map(as_array, (dl, d, du, b)))


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
    small=_factors_form("solve"),
    broadcasts=True,
    rules=("jvp", "transpose"),
    makes_nan=True,
)


def solve(a: Any, b: Any) -> Array:
    """x with a x = b: f[..., m, m], f[..., m, k] -> f[..., m, k]. Batch dims of size 1 broadcast.

    Where a is singular, what its LU factors give: infinities and NaNs.
    """
    return bind(solve_p, as_array(a), as_array(b), transposed=False)


# -- determinants and products -------------------------------------------------------------------------------------------------------


def _slogdet_results(shape: Ints) -> list[Result]:
    square_size("slogdet", shape)
    return [((), "same"), ((), "real")]


slogdet_p = define_matrix_op("slogdet", (2,), _slogdet_results, lapack.slogdet, rules=("jvp",), makes_nan=True)


def _det_results(shape: Ints) -> list[Result]:
    square_size("det", shape)
    return [((), "same")]


det_p = define_matrix_op("det", (2,), _det_results, lapack.det, multiple=False, rules=("jvp",), makes_nan=True)


def slogdet(x: Any) -> tuple[Array, Array]:
    """Sign and logarithm of the determinants' magnitude: f[..., n, n] -> f[...], real[...]."""
    return tuple(bind(slogdet_p, as_array(x)))  # type: ignore[return-value]


def det(x: Any) -> Array:
    """Determinants: f[..., n, n] -> f[...]."""
    return bind(det_p, as_array(x))


def symmetric_product(
    a_matrix: Any, c_matrix: Any, *, alpha: float = 1.0, beta: float = 0.0, symmetrize_output: bool = False
) -> Array:
    """alpha a a^T + beta c, of which only the lower triangle counts; `symmetrize_output` copies it to the upper one.

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
