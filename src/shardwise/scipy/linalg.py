"""`shardwise.scipy.linalg`: factorisations that keep their factors, matrix functions, structured matrices.

Options that only trade safety for speed in SciPy (`overwrite_a`, `check_finite`, `lapack_driver`, ...) change nothing here:
arrays are immutable, and values that are not finite give NaN.
"""

from __future__ import annotations

from typing import Any

from shardwise.base.listing import listing as _listing
from shardwise.ir import Array, is_eager
from shardwise.lax import adaptive as lax
from shardwise.lax.polar import polar as polar_by_svd
from shardwise.lax.polar import qdwh
from shardwise.numpy import linalg as face
from shardwise.numpy._promote import broadcast_to_shape, is_complex, strong
from shardwise.numpy.diagonals import triu
from shardwise.ops.linalg import decompositions as ops
from shardwise.ops.linalg import matrix_functions
from shardwise.scipy import factorizations as _factorizations
from shardwise.scipy import special_matrices as _special_matrices
from shardwise.scipy.factorizations import *  # noqa: F403
from shardwise.scipy.factorizations import cho_factor, cho_solve
from shardwise.scipy.matrix_operands import inexact, inexact_like, system
from shardwise.scipy.special_matrices import *  # noqa: F403
from shardwise.transforms.jit.shown_calls import shown_call

__all__ = ["det", "expm", "expm_frechet", "inv", "polar", "solve", "solve_sylvester", "solve_triangular", "sqrtm"]
__all__ += _factorizations.__all__
__all__ += _special_matrices.__all__


# -- systems -------------------------------------------------------------------------------------------------------------------


def solve(
    a: Any,
    b: Any,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    debug: bool = False,
    check_finite: bool = True,
    assume_a: str = "gen",
) -> Array:
    """x with a x = b. `assume_a` 'pos' uses the Cholesky factor of a and reads one triangle, the `lower` or else the
    upper one.

    Args:
        overwrite_a, overwrite_b, debug, check_finite: without effect.

    Raises:
        ValueError: `assume_a` is not 'gen', 'sym', 'her' or 'pos', or sizes do not fit.

    >>> from shardwise.scipy import linalg
    >>> linalg.solve(jnp.array([[2.0, 0.0], [0.0, 4.0]]), jnp.array([2.0, 8.0]))
    Array([1., 2.], dtype=float32)
    """
    if assume_a not in ("gen", "sym", "her", "pos"):
        raise ValueError(f"Expected assume_a to be one of ['gen', 'sym', 'her', 'pos']; got {assume_a!r}")
    if assume_a != "pos":
        return face.solve(a, b)
    x, y = inexact_like(a, b)
    system("solve", x, y)  # its shapes
    if is_eager():
        return cho_solve(cho_factor(x, lower=lower), y)
    # Derivatives are those of any system, in all of a, though one triangle is read.
    factor = cho_factor(lax.stop_gradient(x), lower=lower)
    if not is_complex(x.dtype):
        back = None
    else:  # the transpose of a is its conjugate
        back = lambda _, v: lax.conj(cho_solve(factor, lax.conj(v)))  # noqa: E731
    return lax.custom_linear_solve(
        lambda v: face.matmul(x, v), y, lambda _, v: cho_solve(factor, v), back, symmetric=back is None
    )


@shown_call("trans lower unit_diagonal overwrite_b debug check_finite", name="_solve_triangular")
def solve_triangular(
    a: Any,
    b: Any,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    debug: Any = None,
    check_finite: bool = True,
) -> Array:
    """x with op(a) x = b for triangular a; op is, by `trans`, the identity (0, 'N'), the transpose (1, 'T') or the
    adjoint (2, 'C').

    With `unit_diagonal` the diagonal is not read.

    Args:
        overwrite_b, debug, check_finite: without effect.

    Raises:
        ValueError: `trans` is something else, or sizes do not fit.

    >>> from shardwise.scipy import linalg
    >>> linalg.solve_triangular(jnp.array([[2.0, 0.0], [1.0, 1.0]]), jnp.array([2.0, 3.0]), lower=True)
    Array([1., 2.], dtype=float32)
    """
    kinds = {0: 0, "N": 0, 1: 1, "T": 1, 2: 2, "C": 2}
    if trans not in kinds:
        raise ValueError(f"Invalid 'trans' value {trans}")
    kind = kinds[trans]
    p, q = inexact_like(a, b)
    p, q, vector = system("solve_triangular", p, q)
    x = ops.triangular_solve(
        p, q, left_side=True, lower=lower, transpose_a=kind > 0, conjugate_a=kind == 2, unit_diagonal=unit_diagonal
    )
    return lax.squeeze(x, (x.ndim - 1,)) if vector else x


def solve_sylvester(A: Any, B: Any, C: Any, *, method: str = "schur", tol: float = 1e-8) -> Array:
    """x with A x + x B = C; NaN where an eigenvalue of A and one of B sum to less than `tol`. Batch dims broadcast.

    Both values of `method` ('schur', 'eigen') use the Schur form here, which needs no eigenvectors.

    Raises:
        ValueError: `method` is another word, or sizes do not fit.

    >>> from shardwise.scipy import linalg
    >>> linalg.solve_sylvester(jnp.array([[1.0]]), jnp.array([[2.0]]), jnp.array([[6.0]])).round(3)
    Array([[2.]], dtype=float32)
    """
    if method not in ("schur", "eigen"):
        raise ValueError(f"Unrecognized method {method!r}; expected 'schur' or 'eigen'.")
    matrices = inexact_like(A, B, C)
    if len({x.shape[:-2] for x in matrices}) > 1:
        batch = lax.broadcast_shapes(*[x.shape[:-2] for x in matrices])
        matrices = [broadcast_to_shape(x, (*batch, *x.shape[-2:])) for x in matrices]
    return matrix_functions.solve_sylvester(*matrices, tol=tol)


def det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The determinants of the matrices `a`; see `shardwise.numpy.linalg.det`.

    Args:
        overwrite_a, check_finite: without effect.

    >>> from shardwise.scipy import linalg
    >>> linalg.det(jnp.array([[1.0, 2.0], [3.0, 4.0]])).round(3)
    Array(-2., dtype=float32)
    """
    return face.det(a)


def inv(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The inverses of the matrices `a`; see `shardwise.numpy.linalg.inv`.

    Args:
        overwrite_a, check_finite: without effect.

    >>> from shardwise.scipy import linalg
    >>> linalg.inv(jnp.array([[2.0, 0.0], [0.0, 4.0]]))
    Array([[0.5 , 0.  ],
           [0.  , 0.25]], dtype=float32)
    """
    return face.inv(a)


# -- matrix functions ------------------------------------------------------------------------------------------------------------


@shown_call("upper_triangular max_squarings")
def expm(A: Any, *, upper_triangular: bool = False, max_squarings: int = 16) -> Array:
    """The exponential of the matrices `A`; NaN where it would take more than `max_squarings`. ValueError unless
    square.

    With `upper_triangular` the lower triangle is not read.

    >>> from shardwise.scipy import linalg
    >>> linalg.expm(jnp.array([[0.0, 1.0], [0.0, 0.0]])).round(3)
    Array([[1., 1.],
           [0., 1.]], dtype=float32)
    """
    (x,) = inexact("expm", A)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"Expected A to be a (batched) square matrix, got A.shape={x.shape}.")
    return matrix_functions.expm(strong(triu(x) if upper_triangular else x), max_squarings)


def expm_frechet(A: Any, E: Any, *, method: str | None = None, compute_expm: bool = True) -> Any:
    """The exponential of A (unless not wanted) and its derivative in the direction E, by the exponential of a matrix of blocks.

    ValueError unless of one square shape, and for a `method` that is neither None nor SciPy's 'SPS' or 'blockEnlarge', which give
    the same.

    >>> from shardwise.scipy import linalg
    >>> linalg.expm_frechet(jnp.zeros((2, 2)), jnp.eye(2), compute_expm=False).round(3)
    Array([[1., 0.],
           [0., 1.]], dtype=float32)
    """
    if method not in (None, "SPS", "blockEnlarge"):
        raise ValueError(f"expm_frechet: method must be None, 'SPS' or 'blockEnlarge', got {method!r}.")
    x, y = inexact_like(A, E)
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"expected A to be a (batched) square matrix, got A.shape={x.shape}")
    if x.shape != y.shape:
        raise ValueError(f"expected A and E to be the same shape, got A.shape={x.shape} E.shape={y.shape}")
    value, derivative = matrix_functions.expm_and_derivative(strong(x), strong(y))
    return (value, derivative) if compute_expm else derivative


def sqrtm(A: Any, blocksize: int = 1) -> Array:
    """The principal square root of the matrices `A`, complex. NotImplementedError for a `blocksize` above 1.

    >>> from shardwise.scipy import linalg
    >>> linalg.sqrtm(jnp.array([[9.0]])).real.round(3)
    Array([[3.]], dtype=float32)
    """
    if blocksize > 1:
        raise NotImplementedError("sqrtm has no blocked version; leave blocksize at 1.")
    return matrix_functions.sqrtm(strong(*inexact("sqrtm", A)))


@shown_call("side method")
def polar(
    a: Any, side: str = "right", *, method: str = "qdwh", eps: float | None = None, max_iterations: int | None = None
) -> tuple[Array, Array]:
    """u, p with a = u p (or p u for the 'left' `side`), u with orthonormal columns or rows and p positive
    semidefinite.

    Both values of `method` ('qdwh', 'svd') go by singular values, unless `eps` or `max_iterations` ask 'qdwh' for its
    iterations (see `lax.linalg.qdwh`); 'svd' has none. Derivatives are those of the decomposition however far these
    get.

    Raises:
        ValueError: `side` or `method` is another word. NotImplementedError: `a` is wide ('left': tall) and `method`
            'qdwh'.

    >>> from shardwise.scipy import linalg
    >>> linalg.polar(jnp.array([[-3.0]]))[1].round(3)
    Array([[3.]], dtype=float32)
    """
    if side not in ("right", "left"):
        raise ValueError("The argument `side` must be either 'right' or 'left'.")
    if method not in ("qdwh", "svd"):
        raise ValueError(f"Unknown polar decomposition method {method}.")
    x = strong(*inexact_like(a))
    if x.ndim < 2:
        raise ValueError("The input `a` must be at least a 2-D array.")
    m, n = x.shape[-2:]
    if method == "qdwh" and ((side == "right" and m < n) or (side == "left" and m > n)):
        raise NotImplementedError(
            f"polar by 'qdwh' on side {side!r} takes {'tall' if side == 'right' else 'wide'} matrices, got shape "
            f"{x.shape}; use method='svd'."
        )
    if method == "svd" or (eps is None and max_iterations is None):
        return polar_by_svd(x, side)
    right = side == "right"
    unitary, posdef, *_ = qdwh(x if right else ops.adjoint(x), max_iterations=max_iterations, eps=eps)
    return unitary if right else ops.adjoint(unitary), posdef


__dir__ = _listing(__name__)
