"""`shardwise.scipy.optimize`: `minimize`, a smooth function's minimum by its derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from shardwise.base.listing import listing as _listing
from shardwise.scipy.optimize.bfgs import bfgs
from shardwise.scipy.optimize.lbfgs import lbfgs

__all__ = ["OptimizeResults", "minimize"]


class OptimizeResults(NamedTuple):
    """The result of `minimize`.

    `x`: where; `success`; `status`: 0 for converged, 1 for too many iterations, 3 where the line search found no step,
    5 where it ran out of steps; of L-BFGS 2 and 3 for too many evaluations, 4 where a step fell too little, 5 where the line search
    failed; `fun`, `jac`: the function and its gradient there; `hess_inv`: the estimate of the Hessian's
    inverse, None of L-BFGS; `nfev`, `njev`: evaluations of the function and its gradient; `nit`: iterations.
    """

    x: Any
    success: Any
    status: Any
    fun: Any
    jac: Any
    hess_inv: Any
    nfev: Any
    njev: Any
    nit: Any


_METHODS: dict[str, Callable[..., dict[str, Any]]] = {"bfgs": bfgs, "l-bfgs-experimental-do-not-rely-on-this": lbfgs}


def minimize(
    fun: Callable[..., Any],
    x0: Any,
    args: Any = (),
    *,
    method: str,
    tol: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> OptimizeResults:
    """A minimum of `fun(x, *args) -> scalar` near the vector `x0` [n]; it may be jitted.

    `method` is "BFGS" or "l-bfgs-experimental-do-not-rely-on-this". `options`: maxiter, norm (order of the gradient's norm), gtol
    (that norm to reach), and of BFGS line_search_maxiter, of L-BFGS maxcor (how many steps it keeps), ftol (the least fall of a
    step), maxfun, maxgrad and maxls; `tol` is another way to say gtol. TypeError if `args` is no tuple, ValueError for other methods.

    >>> result = jax.scipy.optimize.minimize(lambda x: jnp.sum((x - 3) ** 2), jnp.zeros(2), method="BFGS")
    >>> result.x.round(3)
    Array([3., 3.], dtype=float32)
    """
    if not isinstance(args, tuple):
        raise TypeError(f"args argument to minimize must be a tuple, got {args}")
    by = _METHODS.get(method.lower())
    if by is None:
        raise ValueError(f"Method {method} not recognized; give one of {', '.join(map(repr, _METHODS))}.")
    given = dict(options or {})
    if tol is not None:
        given.setdefault("gtol", tol)
    return OptimizeResults(**by(lambda x: fun(x, *args), x0, **given))


__dir__ = _listing(__name__)
