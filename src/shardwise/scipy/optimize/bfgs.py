"""Minimization by BFGS: steps along an estimate of Newton's direction, improved by each step's change of the gradient.

In: a scalar function of a vector and where to start. Out: the fields of `OptimizeResults`. Everything is one
`while_loop`, so that it may stand in jitted functions (Nocedal and Wright, Numerical Optimization, algorithm 6.1).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.lax import adaptive as lax
from shardwise.scipy.optimize.line_search import line_search
from shardwise.transforms.derivatives.autodiff import value_and_grad

__all__: list[str] = []


def _dot(x: Any, y: Any) -> Any:
    return jnp.dot(x, y, precision=lax.Precision.HIGHEST)


def bfgs(
    fun: Callable[[Any], Any],
    x0: Any,
    maxiter: int | None = None,
    norm: Any = np.inf,
    gtol: float = 1e-5,
    line_search_maxiter: int = 10,
) -> dict[str, Any]:
    """The fields of `OptimizeResults` for a minimum of `fun` near `x0` [n]."""
    limit = np.size(x0) * 200 if maxiter is None else maxiter
    n = x0.shape[0]
    value, slope = value_and_grad(fun)(x0)
    small = lambda gradient: jnp.linalg.norm(gradient, ord=norm) < gtol  # noqa: E731
    start = {
        "x": x0, "fun": value, "jac": slope, "hess_inv": jnp.eye(n, dtype=x0.dtype),
        "before": value + jnp.linalg.norm(slope) / 2, "converged": small(slope), "failed": jnp.asarray(False),
        "search": jnp.asarray(0), "nfev": jnp.asarray(1), "njev": jnp.asarray(1), "nit": jnp.asarray(0),
    }  # fmt: skip

    def is_unfinished(s: dict[str, Any]) -> Any:
        return ~s["converged"] & ~s["failed"] & (s["nit"] < limit)

    def step(s: dict[str, Any]) -> dict[str, Any]:
        direction = -_dot(s["hess_inv"], s["jac"])
        search = line_search(fun, s["x"], direction, s["fun"], s["before"], s["jac"], line_search_maxiter)
        move = search.a * direction
        change = search.g - s["jac"]
        rho = 1 / _dot(change, move)
        w = jnp.eye(n, dtype=rho.dtype) - rho * jnp.outer(move, change)
        new_inverse = _dot(_dot(w, s["hess_inv"]), w.T) + rho * jnp.outer(move, move)
        return {
            "x": s["x"] + move,
            "fun": search.phi,
            "jac": search.g,
            "hess_inv": jnp.where(jnp.isfinite(rho), new_inverse, s["hess_inv"]),
            "before": s["fun"],
            "converged": small(search.g),
            "failed": search.failed,
            "search": search.status,
            "nfev": s["nfev"] + search.evaluations,
            "njev": s["njev"] + search.evaluations,
            "nit": s["nit"] + 1,
        }

    cast_state = lambda s: {k: v if v.dtype == start[k].dtype else v.astype(start[k].dtype) for k, v in s.items()}  # noqa: E731
    end = lax.while_loop(is_unfinished, lambda s: cast_state(step(s)), {k: jnp.asarray(v) for k, v in start.items()})
    reason = jnp.where(end["nit"] == limit, 1, jnp.where(end["failed"], 2 + end["search"], -1))
    status = jnp.where(end["converged"], 0, reason)
    kept_fields = ("x", "fun", "jac", "hess_inv", "nfev", "njev", "nit")
    return {**{k: end[k] for k in kept_fields}, "success": end["converged"] & ~end["failed"], "status": status}
