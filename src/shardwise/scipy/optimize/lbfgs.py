"""Minimization by L-BFGS: as BFGS, but of the Hessian's inverse only the last steps and changes of the gradient are kept.

In: a scalar function of a vector and where to start. Out: the fields of `OptimizeResults`. Everything is one `while_loop`
(Nocedal and Wright, Numerical Optimization, algorithms 7.4 and 7.5).
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
    """The product of two vectors; of complex ones that of their real and imaginary parts, which are so many real variables."""
    product = jnp.dot(jnp.conj(x), y, precision=lax.Precision.HIGHEST)
    return product.real.astype(x.dtype)


def lbfgs(
    fun: Callable[[Any], Any],
    x0: Any,
    maxiter: float | None = None,
    norm: Any = np.inf,
    maxcor: int = 10,
    ftol: float = 2.220446049250313e-09,
    gtol: float = 1e-05,
    maxfun: float | None = None,
    maxgrad: float | None = None,
    maxls: int = 20,
) -> dict[str, Any]:
    """The fields of `OptimizeResults` for a minimum of `fun` near `x0` [n], from the last `maxcor` steps.

    It ends where the gradient's norm is below `gtol`; also where a step falls by less than `ftol` or the line search of up to
    `maxls` steps fails, and after `maxiter` steps, `maxfun` values or `maxgrad` gradients.
    """
    n, dtype = x0.shape[0], x0.dtype
    if maxiter is None and maxfun is None and maxgrad is None:
        maxiter = 200 * n
    value, slope = value_and_grad(fun)(x0)
    start = {
        "x": x0, "fun": value, "jac": slope, "steps": jnp.zeros((maxcor, n), dtype), "changes": jnp.zeros((maxcor, n), dtype),
        "rho": jnp.zeros(maxcor, dtype), "scale": jnp.ones((), dtype), "converged": jnp.asarray(False), "failed": jnp.asarray(False),
        "status": jnp.asarray(0), "nfev": jnp.asarray(1), "njev": jnp.asarray(1), "nit": jnp.asarray(0),
    }  # fmt: skip

    def step(s: dict[str, Any]) -> dict[str, Any]:
        direction = _direction(s)
        search = line_search(fun, s["x"], direction, s["fun"], None, s["jac"], maxls)
        move, change = search.a * direction, jnp.conj(search.g - s["jac"])
        curvature = _dot(change, move)
        has_converged = jnp.linalg.norm(search.g, ord=norm) < gtol
        reasons = [(s["fun"] - search.phi < ftol, 4)]
        for limit, count, status in ((maxgrad, "njev", 3), (maxfun, "nfev", 2), (maxiter, "nit", 1)):
            if limit is not None:
                reasons.append((s[count] >= limit, status))
        reasons.append((search.failed, 5))
        status = jnp.asarray(0)
        for holds, number in reasons:
            status = jnp.where(holds, number, status)
        return {
            "x": s["x"] + move,
            "fun": search.phi,
            "jac": search.g,
            "steps": jnp.roll(s["steps"], -1, axis=0).at[-1].set(move),
            "changes": jnp.roll(s["changes"], -1, axis=0).at[-1].set(change),
            "rho": jnp.roll(s["rho"], -1).at[-1].set(1 / curvature),
            "scale": curvature / _dot(change, change),
            "converged": has_converged,
            "failed": (status > 0) & ~has_converged,
            "status": jnp.where(has_converged, 0, status),
            "nfev": s["nfev"] + search.evaluations,
            "njev": s["njev"] + search.evaluations,
            "nit": s["nit"] + 1,
        }

    cast_state = lambda s: {k: v if v.dtype == start[k].dtype else v.astype(start[k].dtype) for k, v in s.items()}  # noqa: E731
    end = lax.while_loop(
        lambda s: ~s["converged"] & ~s["failed"],
        lambda s: cast_state(step(s)),
        {k: jnp.asarray(v) for k, v in start.items()},
    )
    kept_fields = ("x", "fun", "jac", "status", "nfev", "njev", "nit")
    return {**{k: end[k] for k in kept_fields}, "success": end["converged"] & ~end["failed"], "hess_inv": None}


def _direction(s: dict[str, Any]) -> Any:
    """Minus the gradient times the estimate of the Hessian's inverse, by two loops over the kept steps."""
    kept_count = len(s["rho"])
    known_count = jnp.minimum(s["nit"], kept_count)

    def newest_first(j: Any, carry: Any) -> Any:
        q, weights = carry
        i = kept_count - 1 - j
        weight = s["rho"][i] * _dot(s["steps"][i], q)
        return q - weight * s["changes"][i], weights.at[i].set(weight)

    def oldest_first(j: Any, q: Any) -> Any:
        i = kept_count - known_count + j
        return q + (weights[i] - s["rho"][i] * _dot(s["changes"][i], q)) * s["steps"][i]

    q, weights = lax.fori_loop(0, known_count, newest_first, (-jnp.conj(s["jac"]), jnp.zeros_like(s["rho"])))
    return lax.fori_loop(0, known_count, oldest_first, s["scale"] * q)
