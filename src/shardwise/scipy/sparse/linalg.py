"""`shardwise.scipy.sparse.linalg`: linear systems by products with the matrix alone: cg, bicgstab, gmres.

In: a matrix or a linear function on trees of arrays, and a right-hand side. Out: the solution, with the derivatives
of an exact one (`lax.custom_linear_solve`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from shardwise import numpy as jnp
from shardwise.base.dtypes import finfo, issubdtype
from shardwise.base.listing import listing as _listing
from shardwise.base.tree import tree_flatten, tree_map, tree_unflatten
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import convert, strong

__all__ = ["bicgstab", "cg", "gmres"]

Product = Callable[[Any], Any]
# (A, b, x0, M, tol, atol, maxiter) on vectors
Method = Callable[[Product, Any, Any, Product, Any, Any, int], Any]


def _dot(x: Any, y: Any) -> Any:
    return jnp.vdot(x, y, precision=lax.Precision.HIGHEST)


def _square(x: Any) -> Any:
    return jnp.real(_dot(x, x))


def _identity(v: Any) -> Any:
    return v


def _cg(A: Product, b: Any, x0: Any, M: Product, tol: Any, atol: Any, maxiter: int) -> Any:
    """Conjugate gradients, preconditioned."""
    goal = jnp.maximum(jnp.square(tol) * _square(b), jnp.square(atol))
    r0 = b - A(x0)
    p0 = M(r0)

    def is_unfinished(state: Any) -> Any:
        _, r, gamma, _, k = state
        # Without a preconditioner the step has the square already: a sum over devices less per step.
        square = jnp.real(gamma) if M is _identity else _square(r)
        return (square > goal) & (k < maxiter)

    def step(state: Any) -> Any:
        x, r, gamma, p, k = state
        product = A(p)
        alpha = gamma / _dot(p, product).astype(gamma.dtype)
        r_next = r - alpha * product
        z = M(r_next)
        gamma_next = _dot(r_next, z).astype(gamma.dtype)
        return x + alpha * p, r_next, gamma_next, z + (gamma_next / gamma) * p, k + 1

    return lax.while_loop(is_unfinished, step, (x0, r0, _dot(r0, p0).astype(b.dtype), p0, 0))[0]


def _bicgstab(A: Product, b: Any, x0: Any, M: Product, tol: Any, atol: Any, maxiter: int) -> Any:
    """Biconjugate gradients, stabilized. Its k turns negative where it breaks down."""
    goal = jnp.maximum(jnp.square(tol) * _square(b), jnp.square(atol))
    r0 = b - A(x0)
    one = jnp.ones((), b.dtype)

    def is_unfinished(state: Any) -> Any:
        _, r, *_, k = state
        return (_square(r) > goal) & (k < maxiter) & (k >= 0)

    def step(state: Any) -> Any:
        x, r, shadow, alpha, omega, rho, p, q, k = state
        rho_next = _dot(shadow, r)
        beta = rho_next / rho * alpha / omega
        p_next = r + beta * (p - omega * q)
        p_hat = M(p_next)
        q_next = A(p_hat)
        alpha_next = rho_next / _dot(shadow, q_next)
        s = r - alpha_next * q_next
        early = _square(s) < goal
        s_hat = M(s)
        t = A(s_hat)
        omega_next = _dot(t, s) / _dot(t, t)
        x_next = jnp.where(early, x + alpha_next * p_hat, x + alpha_next * p_hat + omega_next * s_hat)
        r_next = jnp.where(early, s, s - omega_next * t)
        k_next = jnp.where((omega_next == 0) | (alpha_next == 0), -11, k + 1)
        k_next = jnp.where(rho_next == 0, -10, k_next)
        return x_next, r_next, shadow, alpha_next, omega_next, rho_next, p_next, q_next, k_next

    start = (x0, r0, r0, one, one, one, r0, r0, jnp.asarray(0))
    start = (*start[:6], jnp.zeros_like(r0), jnp.zeros_like(r0), start[8])
    return lax.while_loop(is_unfinished, step, start)[0]


def _gmres_cycle(A: Product, b: Any, x0: Any, M: Product, restart: int) -> Any:
    """One cycle: the best x in x0 plus the Krylov space of `restart` vectors."""
    r = M(b - A(x0))
    norm = jnp.sqrt(_square(r))
    safe = jnp.where(norm > 0, norm, 1).astype(b.dtype)
    basis = jnp.zeros((restart + 1, b.shape[0]), b.dtype).at[0].set(r / safe)

    def step(k: Any, state: Any) -> Any:
        vectors, upper = state
        w = M(A(vectors[k]))
        scale = jnp.sqrt(_square(w))
        first = jnp.conj(vectors) @ w  # twice, against rounding
        w = w - vectors.T @ first
        second = jnp.conj(vectors) @ w
        w = w - vectors.T @ second
        size = jnp.sqrt(_square(w))
        alive = size > scale * float(finfo(b.dtype).eps)
        w = jnp.where(alive, w / jnp.where(alive, size, 1).astype(b.dtype), 0)
        column = (first + second).at[k + 1].set(jnp.where(alive, size, 0).astype(b.dtype))
        return vectors.at[k + 1].set(w), upper.at[k].set(column)

    vectors, upper = lax.fori_loop(0, restart, step, (basis, jnp.zeros((restart, restart + 1), b.dtype)))
    target = jnp.zeros((restart + 1,), b.dtype).at[0].set(norm.astype(b.dtype))
    weights = jnp.linalg.lstsq(upper.T, target)[0]
    return x0 + vectors[:-1].T @ weights


def _flat_system(A: Any, b: Any, x0: Any, M: Any) -> tuple[Product, Any, Any, Product, Callable[[Any], Any]]:
    """Everything on one vector: the products, b, x0 and the way back to the tree of b."""
    leaves, tree = tree_flatten(tree_map(jnp.asarray, b))
    weak = [leaf.weak_type for leaf in leaves]
    shapes = [leaf.shape for leaf in leaves]
    dtype = jnp.result_type(*leaves) if leaves else jnp.zeros(0).dtype
    if not issubdtype(dtype, np.inexact):
        dtype = jnp.result_type(dtype, float)

    def flat(x: Any) -> Any:
        parts = [jnp.ravel(jnp.asarray(leaf)).astype(dtype) for leaf in tree_flatten(x)[0]]
        return jnp.concatenate(parts) if len(parts) != 1 else parts[0]

    def back(vector: Any) -> Any:
        sizes = np.cumsum([math.prod(s) for s in shapes])[:-1]
        parts = jnp.split(vector, sizes.tolist()) if len(shapes) > 1 else [vector]
        shaped_parts = [jnp.reshape(p, s) for p, s in zip(parts, shapes, strict=True)]
        return tree_unflatten(tree, [convert(p, p.dtype, w) for p, w in zip(shaped_parts, weak, strict=True)])

    def product(f: Any, name: str) -> Product:
        if callable(f):
            return lambda v: flat(f(back(v)))
        # a sparse matrix, say
        operates = not isinstance(f, Array) and type(f) is not np.ndarray and hasattr(f, "__matmul__")
        if not operates and not isinstance(f, Array | np.ndarray):
            raise TypeError(
                f"linear operator must be either a function or ndarray: got {name}={f!r}. Use jnp.asarray({name})."
            )
        matrix = cast("Any", f if operates else jnp.asarray(f))
        if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"linear operator must be a square matrix, but has shape: {matrix.shape}")
        if operates:
            return lambda v: flat(matrix @ back(v))
        return lambda v: jnp.matmul(matrix, v, precision=lax.Precision.HIGHEST).astype(dtype)

    start = back(jnp.zeros(sum(math.prod(s) for s in shapes), dtype)) if x0 is None else x0
    if tree_flatten(start)[1] != tree:
        raise ValueError(f"x0 and b must have matching tree structure: {tree_flatten(start)[1]} vs {tree}")
    for one, other in zip(tree_flatten(start)[0], leaves, strict=True):
        if jnp.shape(one) != other.shape:
            raise ValueError(f"arrays in x0 and b must have matching shapes: {jnp.shape(one)} vs {other.shape}")
    return product(A, "A"), flat(b), flat(start), _identity if M is None else product(M, "M"), back


def _solve(
    method: Method, symmetric: bool, A: Any, b: Any, x0: Any, tol: Any, atol: Any, maxiter: int | None, M: Any
) -> tuple[Any, None]:
    product, vector, start, precondition, back = _flat_system(A, b, x0, M)
    limit = 10 * vector.shape[0] if maxiter is None else maxiter
    start, symmetric = lax.stop_gradient(start), symmetric and not issubdtype(vector.dtype, np.complexfloating)

    def solve(matvec: Product, right: Any) -> Array:
        return method(matvec, right, start, precondition, tol, atol, limit)

    return back(lax.custom_linear_solve(product, vector, solve, solve, symmetric=symmetric)), None


def cg(
    A: Any, b: Any, x0: Any = None, *, tol: Any = 1e-5, atol: Any = 0.0, maxiter: int | None = None, M: Any = None
) -> tuple[Any, None]:
    """``(x, None)`` with A x = b by conjugate gradients, for a Hermitian positive definite A.

    Args:
        A: a square matrix, or a linear function on trees like `b`.
        b: an array or a tree of them.
        x0: where to start; zeros by default.
        tol, atol: stop where the residual is at most ``max(tol * norm(b), atol)``.
        maxiter: stop there anyway; ten times the size of b by default.
        M: a preconditioner, an approximate inverse of A.

    >>> a = jnp.array([[2.0, 1.0], [1.0, 3.0]])
    >>> jax.scipy.sparse.linalg.cg(a, jnp.array([3.0, 4.0]))[0].round(3)
    Array([1., 1.], dtype=float32)
    """
    x, info = _solve(_cg, True, A, b, x0, tol, atol, maxiter, M)
    return tree_map(strong, x), info


def bicgstab(
    A: Any, b: Any, x0: Any = None, *, tol: Any = 1e-5, atol: Any = 0.0, maxiter: int | None = None, M: Any = None
) -> tuple[Any, None]:
    """``(x, None)`` with A x = b by stabilized biconjugate gradients, for any A; `x0`, `tol`, `atol`, `maxiter` and
    `M` as for `cg`.

    >>> a = jnp.array([[2.0, 1.0], [0.0, 3.0]])
    >>> jax.scipy.sparse.linalg.bicgstab(a, jnp.array([3.0, 3.0]))[0].round(3)
    Array([1., 1.], dtype=float32)
    """
    return _solve(_bicgstab, False, A, b, x0, tol, atol, maxiter, M)


def gmres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: Any = 1e-5,
    atol: Any = 0.0,
    restart: int = 20,
    maxiter: int | None = None,
    M: Any = None,
    solve_method: str = "batched",
) -> tuple[Any, Array]:
    """``(x, info)`` with A x = b by generalized minimal residuals, for any A; `info` is 0, or -1 where x has a NaN.

    `restart` is the size of the Krylov space before it starts anew, `maxiter` how often it may. Both values of
    `solve_method` ('batched', 'incremental') are the batched one. `x0`, `tol`, `atol` and `M` as for `cg`.

    Raises:
        ValueError: `solve_method` is another word.

    >>> a = jnp.array([[2.0, 1.0], [0.0, 3.0]])
    >>> jax.scipy.sparse.linalg.gmres(a, jnp.array([3.0, 3.0]))[0].round(3)
    Array([1., 1.], dtype=float32)
    """
    if solve_method not in ("batched", "incremental"):
        raise ValueError(f"invalid solve_method {solve_method}, must be either 'incremental' or 'batched'")

    def method(A: Product, b: Any, x0: Any, M: Product, tol: Any, atol: Any, maxiter: int) -> Any:
        goal = jnp.maximum(jnp.square(tol) * _square(b), jnp.square(atol))
        steps = min(restart, b.shape[0])

        def is_unfinished(state: Any) -> Any:
            x, k = state
            return (_square(b - A(x)) > goal) & (k < maxiter)

        return lax.while_loop(is_unfinished, lambda s: (_gmres_cycle(A, b, s[0], M, steps), s[1] + 1), (x0, 0))[0]

    x, _ = _solve(method, False, A, b, x0, tol, atol, maxiter, M)
    has_failed = functools.reduce(jnp.logical_or, [jnp.any(jnp.isnan(leaf)) for leaf in tree_flatten(x)[0]], False)
    return x, jnp.where(has_failed, -1, 0)


__dir__ = _listing(__name__)
