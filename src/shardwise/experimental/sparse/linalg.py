"""`shardwise.experimental.sparse.linalg`: equations with sparse matrices, and the greatest eigenvalues of symmetric ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise import lax
from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.experimental.sparse.bcsr import BCSR
from shardwise.ir import Array
from shardwise.ops.control.callback import pure_callback
from shardwise.transforms.jit.jaxpr import eval_shape

__all__ = ["lobpcg_standard", "spsolve"]


def spsolve(data: Any, indices: Any, indptr: Any, b: Any, tol: float = 1e-6, reorder: int = 1) -> Array:
    """The `x` with ``A @ x == b`` for a square matrix of rows `data`, `indices` and `indptr`, as in `BCSR`.

    SciPy solves on the host. Differentiable by `data` and `b`. `reorder` 0 keeps the order of the columns, 1 to 3 reduce fill-in.
    `tol` is for other solvers, and has no effect.

    Raises:
        ValueError: the shapes are not those of a square matrix and a vector.

    >>> from shardwise.experimental import sparse
    >>> a = sparse.BCSR.fromdense(jnp.array([[2.0, 0.0], [1.0, 4.0]]))
    >>> sparse.linalg.spsolve(a.data, a.indices, a.indptr, jnp.array([4.0, 6.0]))
    Array([2., 1.], dtype=float32)
    """
    del tol
    values, columns, begins, right = map(jnp.asarray, (data, indices, indptr, b))
    size = right.shape[0] if right.ndim == 1 else -1
    if values.shape != columns.shape or values.ndim != 1 or begins.shape != (size + 1,):
        raise ValueError(
            f"spsolve takes data and indices of one shape (nse,), indptr of shape (n + 1,) and b of shape (n,), got {values.shape}, "
            f"{columns.shape}, {begins.shape} and {right.shape}."
        )
    dtype = jnp.result_type(values, right, float)
    values, right = values.astype(dtype), right.astype(dtype)
    order = "NATURAL" if reorder == 0 else "COLAMD"

    def product(x: Array) -> Array:
        return BCSR((values, columns, begins), shape=(size, size)) @ x

    def solve_with(transposed: bool) -> Callable[[Any, Array], Array]:
        def on_host(d: Any, i: Any, p: Any, y: Any) -> Any:
            from scipy.sparse import csr_array  # only on hosts that solve
            from scipy.sparse.linalg import spsolve as solve

            matrix: Any = csr_array((np.asarray(d), np.asarray(i), np.asarray(p)), shape=(size, size))
            return np.asarray(
                solve(matrix.T.tocsc() if transposed else matrix.tocsc(), np.asarray(y), permc_spec=order), dtype
            )

        fixed_values = lax.stop_gradient(values)
        return lambda _, y: pure_callback(on_host, y, fixed_values, columns, begins, y, vmap_method="sequential")

    return lax.custom_linear_solve(product, right, solve_with(False), solve_with(True))


def lobpcg_standard(A: Any, X: Any, m: int = 100, tol: float | None = None) -> tuple[Array, Array, Array]:
    """The greatest eigenvalues of a symmetric matrix, by the locally optimal block preconditioned conjugate gradient method.

    Args:
        A: a matrix, dense or sparse, or a function of matrices [n, k].
        X: where the search begins: f[n, k], with 5 * k < n.
        m: the greatest number of steps.
        tol: the relative error at which it ends; the precision of the type by default.

    Returns:
        Eigenvalues f[k] from the greatest on, eigenvectors f[n, k], and the number of steps.

    Raises:
        ValueError: `X` has too many columns, or none; `A` has another size or dtype.

    >>> from shardwise.experimental import sparse
    >>> values, _, _ = sparse.linalg.lobpcg_standard(jnp.diag(jnp.arange(1.0, 9.0)), jnp.ones((8, 1)))
    >>> print(values.round(3))
    [8.]
    """
    start = jnp.asarray(X)
    if start.ndim != 2 or not 0 < 5 * start.shape[1] < start.shape[0]:
        raise ValueError(f"lobpcg_standard takes X of shape [n, k] with 0 < 5 * k < n, got {start.shape}.")
    (n, k), dtype = start.shape, start.dtype
    apply = _as_product(A, start)
    precision = jnp.finfo(dtype).eps if tol is None else tol

    def rotate_basis(basis: Array) -> tuple[Array, Array, Array]:
        """The k greatest Ritz values in the space of orthonormal columns, or zeros, with their vectors, and what A makes of these."""
        image = apply(basis)
        small = basis.T @ image
        used = jnp.sum(basis * basis, axis=0) > 0.5
        low = -2 * jnp.max(jnp.abs(small)) - 1  # columns of zeros come last
        small = jnp.where(used[:, None] & used[None, :], (small + small.T) / 2, 0) + jnp.diag(jnp.where(used, 0, low))
        values, vectors = jnp.linalg.eigh(small)
        best = vectors[:, ::-1][:, :k]
        return values[::-1][:k], basis @ best, image @ best

    def independent(columns: Array, of: Array) -> Array:
        """The columns without their parts in an orthonormal basis, orthonormal; zeros in place of dependent ones."""
        for _ in range(2):
            columns = columns - of @ (of.T @ columns)
            norms = jnp.linalg.norm(columns, axis=0)
            columns = jnp.where(norms > 0, columns / jnp.where(norms > 0, norms, 1)[None, :], 0)
            left, sizes, _ = jnp.linalg.svd(columns, full_matrices=False)
            columns = jnp.where(sizes > 100 * n * jnp.finfo(dtype).eps * jnp.max(sizes), left, 0)
        return columns

    def errors(state: Any) -> Any:
        _, values, x, image, _ = state
        residual = image - x * values[None, :]
        scale = 10 * n * (jnp.linalg.norm(image) + jnp.abs(values))
        return residual, jnp.linalg.norm(residual, axis=0) / scale

    def step(state: Any) -> Any:
        count, _, x, _, direction = state
        residual, _ = errors(state)
        fresh = independent(jnp.concatenate([residual, direction], axis=1), x)
        values, vectors, image = rotate_basis(jnp.concatenate([x, fresh], axis=1))
        return count + 1, values, vectors, image, vectors - x @ (x.T @ vectors)

    first, _ = jnp.linalg.qr(start)
    begin = (jnp.zeros((), np.int32), *rotate_basis(first), jnp.zeros_like(start))
    goes_on = lambda state: (state[0] < m) & jnp.any(errors(state)[1] > precision)  # noqa: E731
    count, values, x, *_ = lax.while_loop(goes_on, step, begin)
    return values, x, count


def _as_product(A: Any, start: Array) -> Callable[[Array], Any]:
    """The product with `A`, a matrix or a function of matrices. ValueError unless it maps `start` to its own type."""
    n = start.shape[0]
    apply: Callable[[Array], Any] = A if callable(A) else (lambda x: A @ x)
    sizes = (n, n) if callable(A) else np.shape(A)
    image = eval_shape(apply, start) if sizes == (n, n) else None
    if image is None or (image.shape, image.dtype) != (start.shape, start.dtype):
        given = f"a matrix of shape {sizes}" if image is None else f"one that makes {image.dtype}{image.shape} of it"
        raise ValueError(
            f"lobpcg_standard takes an ({n}, {n}) matrix A for X, {start.dtype}{start.shape}, got {given}."
        )
    return apply


__dir__ = _listing(__name__)
