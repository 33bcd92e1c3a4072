"""`shardwise.scipy.optimize`: `minimize`, a smooth function's minimum by its derivatives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from shardwise.base.listing import listing as _listing
from shardwise.scipy.optimize.bfgs import bfgs

__all__ = ["OptimizeResults", "minimize"]


class OptimizeResults(NamedTuple):
    """What `minimize` came to.

    `x`: where; `success`; `status`: 0 for converged, 1 for too many iterations, 3 where the line search found no step,
    5 where it ran out of steps; `fun`, `jac`: the function and its gradient there; `hess_inv`: the estimate of the Hessian's
    inverse; `nfev`, `njev`: evaluations of the function and its gradient; `nit`: iterations.
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

    `method` is "BFGS". `options`: maxiter, norm (order of the gradient's norm), gtol (that norm to reach),
    line_search_maxiter; `tol` is another way to say gtol. TypeError if `args` is no tuple, ValueError for other methods.

    >>> result = jax.scipy.optimize.minimize(lambda x: jnp.sum((x - 3) ** 2), jnp.zeros(2), method="BFGS")
    >>> result.x.round(3)
    Array([3., 3.], dtype=float32)
    """
    if not isinstance(args, tuple):
        raise TypeError(f"args argument to minimize must be a tuple, got {args}")
    if method.lower() != "bfgs":
        raise ValueError(f"Method {method} not recognized; use 'BFGS'.")
    given = dict(options or {})
    if tol is not None:
        given.setdefault("gtol", tol)
    return OptimizeResults(**bfgs(lambda x: fun(x, *args), x0, **given))


__dir__ = _listing(__name__)
