"""Eigenvalues, singular values, and the forms of matrices on the way to them: Hessenberg, Schur, tridiagonal; on stacks of matrices."""

from __future__ import annotations

import enum
from collections.abc import Callable
from operator import index
from typing import Any

from shardwise.base import config
from shardwise.base.shapes import Ints
from shardwise.ir import Array, Equation, Shown, bind
from shardwise.ops.linalg import lapack
from shardwise.ops.linalg.decompositions import symmetrize
from shardwise.ops.linalg.matrix_op import Result, as_steps, by_library, calls_per_stack, define_matrix_op, square_size
from shardwise.ops.linalg.matrix_steps import eig_workspace, of_matrix, svd_flops
from shardwise.ops.rules.convert import as_array
from shardwise.ops.shapes.pieces import slice_in_dim

__all__ = [
    "EigImplementation",
    "EighImplementation",
    "SvdAlgorithm",
    "eig",
    "eig_p",
    "eigh",
    "eigh_p",
    "hessenberg",
    "hessenberg_p",
    "schur",
    "schur_p",
    "svd",
    "svd_p",
    "tridiagonal",
    "tridiagonal_p",
]


# -- eigenvalues ---------------------------------------------------------------------------------------------------------------


class EigImplementation(enum.Enum):
    """How `eig` computes; only LAPACK exists on CPUs."""

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


class EighImplementation(enum.Enum):
    """How `eigh` computes; only QR exists on CPUs."""

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


def _eig_results(shape: Ints, *, left: bool, right: bool, vector_derivatives: bool) -> list[Result]:
    square_size("eig", shape)
    return [(shape[:1], "complex"), *[(shape, "complex")] * (left + right)]


eig_p = define_matrix_op(
    "eig",
    (2,),
    _eig_results,
    lambda x, left, right, vector_derivatives: lapack.eig(x, left, right),
    rules=("jvp",),
    derivatives="spectral_derivative",
    shown=Shown(
        renamed={
            "left": "compute_left_eigenvectors",
            "right": "compute_right_eigenvectors",
            "vector_derivatives": "enable_eigvec_derivs",
        },
        empty=("implementation",),
    ),
    algorithm=of_matrix("eig", lambda m, n: n**3, vectors=("left", "right")),
    workspace=eig_workspace,
    small=as_steps("eig", "rights_alone", calls=calls_per_stack(32)),
)


eig_of_finite_p = define_matrix_op(
    "eig_of_finite",
    (2,),
    lambda shape, right: _eig_results(shape, left=False, right=right, vector_derivatives=False),
    lapack.eig_of_finite,
    small=by_library("eig_of_finite"),
)


def eig(
    x: Any,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
    enable_eigvec_derivs: bool = False,
    implementation: EigImplementation | None = None,
    use_magma: bool | None = None,
) -> list[Array]:
    """Eigenvalues c[..., n] of the general matrices `x`, then left and right eigenvectors c[..., n, n] as columns, if
    `compute_left_eigenvectors` and `compute_right_eigenvectors`.

    Eigenvectors have length 1 and a real largest component. `enable_eigvec_derivs` gives them derivatives, which hold
    where all eigenvalues differ and no eigenvector has two largest components; otherwise NotImplementedError.
    NotImplementedError, too, for an `implementation` other than LAPACK and for `use_magma`.

    >>> lax.linalg.eig(jnp.array([[2.0, 0.0], [0.0, 3.0]]))[0].real
    Array([2., 3.], dtype=float32)
    """
    if use_magma or implementation not in (None, EigImplementation.LAPACK):
        raise NotImplementedError("eig on CPUs is computed by LAPACK; leave out implementation= and use_magma=.")
    return bind(
        eig_p,
        as_array(x),
        left=bool(compute_left_eigenvectors),
        right=bool(compute_right_eigenvectors),
        vector_derivatives=bool(enable_eigvec_derivs),
    )


def _eigh_results(shape: Ints, *, lower: bool) -> list[Result]:
    if shape[0] != shape[1]:
        raise ValueError(f"Argument to symmetric eigendecomposition must have shape [..., n, n], got shape {shape}")
    return [(shape, "same"), (shape[:1], "real")]


def _eigh_shown(eqn: Equation, shown: dict[str, Any]) -> dict[str, Any]:
    """The params as JAX shows them: sorted and whole, as later ops cut the results."""
    algorithm = {"algorithm": None} if config.dialect.jaxprs.eigh_shows_algorithm else {}
    return {**shown, **algorithm, "sort_eigenvalues": True, "subset_by_index": None}


eigh_p = define_matrix_op(
    "eigh",
    (2,),
    _eigh_results,
    lapack.eigh,
    rules=("jvp",),
    derivatives="spectral_derivative",
    shown=Shown(change=_eigh_shown),
    algorithm=of_matrix("eigh", lambda m, n: n**3),
    small=by_library("eigh", calls=calls_per_stack(12)),
)


def eigh(
    x: Any,
    *,
    lower: bool = True,
    symmetrize_input: bool = True,
    sort_eigenvalues: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    implementation: EighImplementation | None = None,
) -> tuple[Array, Array]:
    """Eigenvectors f[..., n, n] (columns) and ascending real eigenvalues [..., n] of the Hermitian matrices `x`.

    Without `symmetrize_input` only the `lower` (else upper) triangle counts. `subset_by_index` keeps a range of them.
    They come sorted whatever `sort_eigenvalues` says. NotImplementedError for an `implementation` other than QR.

    >>> lax.linalg.eigh(jnp.array([[2.0, 1.0], [1.0, 2.0]]))[1].round(4)
    Array([1., 3.], dtype=float32)
    """
    if implementation not in (None, EighImplementation.QR):
        raise NotImplementedError(
            f"eigh with {implementation} does not exist on CPUs; leave it out, or use EighImplementation.QR."
        )
    del sort_eigenvalues  # False allows any order
    value = as_array(x)
    vectors, values = bind(eigh_p, symmetrize(value) if symmetrize_input else value, lower=bool(lower))
    if subset_by_index is not None:
        start, stop = map(index, subset_by_index)
        vectors = slice_in_dim(vectors, start, stop, axis=-1)
        values = slice_in_dim(values, start, stop, axis=-1)
    return vectors, values


# -- reductions to simpler forms -----------------------------------------------------------------------------------------------


def _hessenberg_results(shape: Ints) -> list[Result]:
    if shape[0] != shape[1]:
        raise ValueError(f"Argument to Hessenberg reduction must have shape [..., n, n], got shape {shape}")
    return [(shape, "same"), ((max(shape[0] - 1, 0),), "same")]


hessenberg_p = define_matrix_op(
    "hessenberg", (2,), _hessenberg_results, lapack.hessenberg, small=by_library("hessenberg")
)


def hessenberg(a: Any) -> list[Array]:
    """The Hessenberg form of the matrices `a`, packed with its reflectors, and their factors: f[..., n, n] -> f[...,
    n, n], f[..., n - 1].

    >>> lax.linalg.hessenberg(jnp.array([[1.0, 2.0], [3.0, 4.0]]))[0]
    Array([[1., 2.],
           [3., 4.]], dtype=float32)
    """
    return bind(hessenberg_p, as_array(a))


def _schur_results(shape: Ints, *, vectors: bool) -> list[Result]:
    square_size("schur", shape)
    return [(shape, "same")] * (1 + vectors)


def _schur_shown(eqn: Equation, shown: dict[str, Any]) -> dict[str, Any]:
    return {**shown, "sort_eig_vals": False}


schur_p = define_matrix_op(
    "schur",
    (2,),
    _schur_results,
    lapack.schur,
    shown=Shown(renamed={"vectors": "compute_schur_vectors"}, empty=("select_callable",), change=_schur_shown),
    algorithm=of_matrix("eig", lambda m, n: n**3),
)


def schur(
    x: Any,
    *,
    compute_schur_vectors: bool = True,
    sort_eig_vals: bool = False,
    select_callable: Callable[..., Any] | None = None,
) -> list[Array]:
    """The Schur form t of `x` and, if `compute_schur_vectors`, vectors z: x = z t z^H. Real matrices get 2 by 2
    blocks for complex pairs.

    Raises:
        NotImplementedError: `sort_eig_vals` is true, or `select_callable` is given.

    >>> lax.linalg.schur(jnp.array([[1.0, 2.0], [0.0, 3.0]]))[0].round(3)
    Array([[1., 2.],
           [0., 3.]], dtype=float32)
    """
    if sort_eig_vals or select_callable is not None:
        raise NotImplementedError("schur does not sort eigenvalues; take them from eig and order the results yourself.")
    return bind(schur_p, as_array(x), vectors=bool(compute_schur_vectors))


def _tridiagonal_results(shape: Ints, *, lower: bool) -> list[Result]:
    n = square_size("tridiagonal", shape)
    if not n:
        raise ValueError(f"The input to tridiagonal must not be empty. Got shape {shape}.")
    return [(shape, "same"), ((n,), "real"), ((n - 1,), "real"), ((n - 1,), "same")]


tridiagonal_p = define_matrix_op(
    "tridiagonal", (2,), _tridiagonal_results, lapack.tridiagonal, small=by_library("tridiagonal")
)


def tridiagonal(a: Any, *, lower: bool = True) -> list[Array]:
    """Reduce the Hermitian matrices `a`, of which the `lower` (else upper) triangle counts, to tridiagonal ones:
    packed reflectors, diagonal, off-diagonal, factors of the reflectors.

    >>> lax.linalg.tridiagonal(jnp.array([[1.0, 2.0], [2.0, 3.0]]))[1]
    Array([1., 3.], dtype=float32)
    """
    return bind(tridiagonal_p, as_array(a), lower=bool(lower))


# -- singular values -------------------------------------------------------------------------------------------------------------


class SvdAlgorithm(enum.Enum):
    """How `svd` computes; DEFAULT, QR and DIVIDE_AND_CONQUER exist on CPUs and give the same decomposition."""

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"
    DIVIDE_AND_CONQUER = "divide_and_conquer"


def _svd_results(shape: Ints, *, full: bool, vectors: bool) -> list[Result]:
    m, n = shape
    k = min(m, n)
    return [((k,), "real"), *([((m, m if full else k), "same"), ((n if full else k, n), "same")] if vectors else [])]


svd_p = define_matrix_op(
    "svd",
    (2,),
    _svd_results,
    lapack.svd,
    rules=("jvp",),
    derivatives="spectral_derivative",
    shown=Shown(renamed={"full": "full_matrices", "vectors": "compute_uv"}, empty=("algorithm", "subset_by_index")),
    algorithm=of_matrix("svd", svd_flops, vectors=("vectors",)),
    small=as_steps("svd", "has_elements"),
)
svd_of_finite_p = define_matrix_op(
    "svd_of_finite", (2,), _svd_results, lapack.svd_of_finite, small=by_library("svd_of_finite")
)


def svd(
    x: Any,
    *,
    full_matrices: bool = True,
    compute_uv: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    algorithm: SvdAlgorithm | None = None,
) -> Any:
    """u, s, vh with x = u s vh and s descending, or s alone without `compute_uv`.

    `subset_by_index` keeps a range of the singular values; ValueError together with `full_matrices`.

    Raises:
        NotImplementedError: `algorithm` is other than None, DEFAULT and QR.

    >>> lax.linalg.svd(jnp.array([[3.0, 0.0], [0.0, 4.0]]), compute_uv=False).round(4)
    Array([4., 3.], dtype=float32)
    """
    if algorithm in (SvdAlgorithm.JACOBI, SvdAlgorithm.POLAR):
        raise NotImplementedError(f"{algorithm} does not exist on CPUs; leave it out, or use SvdAlgorithm.QR.")
    value = as_array(x)
    s, *uv = bind(svd_p, value, full=bool(full_matrices) and bool(compute_uv), vectors=bool(compute_uv))
    if subset_by_index is not None:
        start, stop = map(index, subset_by_index)
        if full_matrices and compute_uv and (start, stop) != (0, s.shape[-1]):
            raise ValueError("full_matrices and subset_by_index cannot both be set.")
        s = slice_in_dim(s, start, stop, axis=-1)
        if uv and not full_matrices:
            uv = [slice_in_dim(uv[0], start, stop, axis=-1), slice_in_dim(uv[1], start, stop, axis=-2)]
    return (uv[0], s, uv[1]) if compute_uv else s
