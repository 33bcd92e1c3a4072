"""`shardwise.scipy.sparse.linalg`: linear systems by products with the matrix alone: cg, bicgstab, gmres.

In: a matrix or a linear function on trees of arrays, and a right-hand side. Out: the solution, with the derivatives
of an exact one (`lax.custom_linear_solve`).
"""

from __future__ import annotations

import functools
import operator
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

# A vector here is a tuple of arrays of one dtype, the leaves of a tree like b: each keeps its shape, and with it its sharding.


def _dot(x: Any, y: Any) -> Any:
    products = [jnp.vdot(a, b, precision=lax.Precision.HIGHEST) for a, b in zip(x, y, strict=True)]
    return functools.reduce(operator.add, products)


def _square(x: Any) -> Any:
    return jnp.real(_dot(x, x))


def _add(x: Any, scale: Any, y: Any) -> Any:
    """x + scale * y."""
    return tuple([a + scale * b for a, b in zip(x, y, strict=True)])


def _subtract(x: Any, y: Any) -> Any:
    return tuple([a - b for a, b in zip(x, y, strict=True)])


def _identity(v: Any) -> Any:
    return v


def _cg(A: Product, b: Any, x0: Any, M: Product, tol: Any, atol: Any, maxiter: int) -> Any:
    """Conjugate gradients, preconditioned."""
    goal = jnp.maximum(jnp.square(tol) * _square(b), jnp.square(atol))
    r0 = _subtract(b, A(x0))
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
        r_next = _add(r, -alpha, product)
        z = M(r_next)
        gamma_next = _dot(r_next, z).astype(gamma.dtype)
        return _add(x, alpha, p), r_next, gamma_next, _add(z, gamma_next / gamma, p), k + 1

    return lax.while_loop(is_unfinished, step, (x0, r0, _dot(r0, p0).astype(b[0].dtype), p0, 0))[0]


def _bicgstab(A: Product, b: Any, x0: Any, M: Product, tol: Any, atol: Any, maxiter: int) -> Any:
    """Biconjugate gradients, stabilized. Its k turns negative where it breaks down."""
    goal = jnp.maximum(jnp.square(tol) * _square(b), jnp.square(atol))
    r0 = _subtract(b, A(x0))
    one = jnp.ones((), b[0].dtype)

    def is_unfinished(state: Any) -> Any:
        _, r, *_, k = state
        return (_square(r) > goal) & (k < maxiter) & (k >= 0)

    def step(state: Any) -> Any:
        x, r, shadow, alpha, omega, rho, p, q, k = state
        rho_next = _dot(shadow, r)
        beta = rho_next / rho * alpha / omega
        p_next = _add(r, beta, _add(p, -omega, q))
        p_hat = M(p_next)
        q_next = A(p_hat)
        alpha_next = rho_next / _dot(shadow, q_next)
        s = _add(r, -alpha_next, q_next)
        early = _square(s) < goal
        s_hat = M(s)
        t = A(s_hat)
        omega_next = _dot(t, s) / _dot(t, t)
        x_half = _add(x, alpha_next, p_hat)
        x_next = _choose(early, x_half, _add(x_half, omega_next, s_hat))
        r_next = _choose(early, s, _add(s, -omega_next, t))
        k_next = jnp.where((omega_next == 0) | (alpha_next == 0), -11, k + 1)
        k_next = jnp.where(rho_next == 0, -10, k_next)
        return x_next, r_next, shadow, alpha_next, omega_next, rho_next, p_next, q_next, k_next

    zeros = tuple([jnp.zeros_like(a) for a in r0])
    return lax.while_loop(is_unfinished, step, (x0, r0, r0, one, one, one, zeros, zeros, jnp.asarray(0)))[0]


def _choose(test: Any, x: Any, y: Any) -> Any:
    return tuple([jnp.where(test, a, b) for a, b in zip(x, y, strict=True)])


def _gmres_cycle(A: Product, b: Any, x0: Any, M: Product, restart: int) -> Any:
    """One cycle: the best x in x0 plus the Krylov space of `restart` vectors."""
    r = M(_subtract(b, A(x0)))
    dtype, norm = b[0].dtype, jnp.sqrt(_square(r))
    safe = jnp.where(norm > 0, norm, 1).astype(dtype)
    basis = tuple([jnp.zeros((restart + 1, *a.shape), dtype).at[0].set(a / safe) for a in r])

    def step(k: Any, state: Any) -> Any:
        vectors, upper = state
        w = M(A(tuple([v[k] for v in vectors])))
        scale = jnp.sqrt(_square(w))
        first = _components(vectors, w)  # twice, against rounding
        w = _subtract(w, _combination(vectors, first))
        second = _components(vectors, w)
        w = _subtract(w, _combination(vectors, second))
        size = jnp.sqrt(_square(w))
        alive = size > scale * float(finfo(dtype).eps)
        divisor = jnp.where(alive, size, 1).astype(dtype)
        column = (first + second).at[k + 1].set(jnp.where(alive, size, 0).astype(dtype))
        units = [jnp.where(alive, a / divisor, 0) for a in w]
        vectors = tuple([v.at[k + 1].set(a) for v, a in zip(vectors, units, strict=True)])
        return vectors, upper.at[k].set(column)

    vectors, upper = lax.fori_loop(0, restart, step, (basis, jnp.zeros((restart, restart + 1), dtype)))
    target = jnp.zeros((restart + 1,), dtype).at[0].set(norm.astype(dtype))
    weights = jnp.linalg.lstsq(upper.T, target)[0]
    return _add(x0, 1, _combination(tuple([v[:-1] for v in vectors]), weights))


def _components(vectors: Any, w: Any) -> Any:
    """The inner product of each of these vectors with w."""
    terms = [jnp.tensordot(jnp.conj(v), a, axes=a.ndim) for v, a in zip(vectors, w, strict=True)]
    return functools.reduce(operator.add, terms)


def _combination(vectors: Any, weights: Any) -> Any:
    return tuple([jnp.tensordot(weights, v, axes=1) for v in vectors])


def _vector_system(A: Any, b: Any, x0: Any, M: Any) -> tuple[Product, Any, Any, Product, Callable[[Any], Any]]:
    """Everything on vectors: the products, b, x0 and the way back to the tree of b."""
    leaves, tree = tree_flatten(tree_map(jnp.asarray, b))
    weak = [leaf.weak_type for leaf in leaves]
    dtype = jnp.result_type(*leaves) if leaves else jnp.zeros(0).dtype
    if not issubdtype(dtype, np.inexact):
        dtype = jnp.result_type(dtype, float)

    def vector_of(x: Any) -> Any:
        return tuple([jnp.asarray(leaf).astype(dtype) for leaf in tree_flatten(x)[0]])

    def back(vector: Any) -> Any:
        return tree_unflatten(tree, [convert(p, p.dtype, w) for p, w in zip(vector, weak, strict=True)])

    def product(f: Any, name: str) -> Product:
        if callable(f):
            return lambda v: vector_of(f(back(v)))
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
            return lambda v: vector_of(matrix @ back(v))
        if len(leaves) != 1:
            raise TypeError(
                f"{name} is a matrix, and b a tree of {len(leaves)} arrays. Give {name} as a function of such trees."
            )
        return lambda v: vector_of(jnp.matmul(matrix, v[0], precision=lax.Precision.HIGHEST))

    start = back(tuple([jnp.zeros_like(leaf, dtype) for leaf in leaves])) if x0 is None else x0
    if tree_flatten(start)[1] != tree:
        raise ValueError(f"x0 and b must have matching tree structure: {tree_flatten(start)[1]} vs {tree}")
    for one, other in zip(tree_flatten(start)[0], leaves, strict=True):
        if jnp.shape(one) != other.shape:
            raise ValueError(f"arrays in x0 and b must have matching shapes: {jnp.shape(one)} vs {other.shape}")
    return product(A, "A"), vector_of(b), vector_of(start), _identity if M is None else product(M, "M"), back


def _solve(
    method: Method, symmetric: bool, A: Any, b: Any, x0: Any, tol: Any, atol: Any, maxiter: int | None, M: Any
) -> tuple[Any, None]:
    product, vector, start, precondition, back = _vector_system(A, b, x0, M)
    if not vector:
        return b, None
    limit = 10 * sum(v.size for v in vector) if maxiter is None else maxiter
    start, symmetric = lax.stop_gradient(start), symmetric and not issubdtype(vector[0].dtype, np.complexfloating)

    def solve(matvec: Product, right: Any) -> Any:
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
        steps = min(restart, sum(v.size for v in b))

        def is_unfinished(state: Any) -> Any:
            x, k = state
            return (_square(_subtract(b, A(x))) > goal) & (k < maxiter)

        return lax.while_loop(is_unfinished, lambda s: (_gmres_cycle(A, b, s[0], M, steps), s[1] + 1), (x0, 0))[0]

    x, _ = _solve(method, False, A, b, x0, tol, atol, maxiter, M)
    has_failed = functools.reduce(jnp.logical_or, [jnp.any(jnp.isnan(leaf)) for leaf in tree_flatten(x)[0]], False)
    return x, jnp.where(has_failed, -1, 0)


__dir__ = _listing(__name__)
