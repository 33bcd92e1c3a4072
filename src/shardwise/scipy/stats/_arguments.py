"""The arguments of distributions: real numbers, promoted to one floating dtype and broadcast to one shape."""

from __future__ import annotations

from typing import Any

from shardwise import numpy as jnp
from shardwise.ir import Array
from shardwise.numpy._promote import is_complex, promote_to_inexact, spread_together, strong
from shardwise.ops.rules.convert import wide_float

# JAX computes these with constants that it makes as arrays: where the first argument has dims, results are strongly typed.
_STRONG = frozenset(
    """bernoulli.logpmf geom.logpmf nbinom.logpmf norm.logpdf t.logpdf gamma.cdf gamma.logpdf poisson.cdf logistic.logpdf
    laplace.cdf laplace.logpdf chi2.cdf chi2.logpdf chi2.sf
    cauchy.cdf cauchy.isf cauchy.logcdf cauchy.logpdf cauchy.logsf cauchy.ppf cauchy.sf
    pareto.cdf pareto.logpdf pareto.logsf pareto.ppf pareto.sf""".split()
)


def real(name: str, *xs: Any) -> list[Array]:
    """The arguments of the function called `name`, promoted and broadcast; TypeError for complex ones."""
    promoted_values = promote_to_inexact(name, *map(wide_float, xs))
    if is_complex(promoted_values[0].dtype):
        raise TypeError(f"{name} is about real numbers; it got complex ones.")
    spread = spread_together(name, *promoted_values)
    return [strong(x) for x in spread] if name in _STRONG and promoted_values[0].ndim else spread


def at_integers(n: Any, log_mass: Any) -> Array:
    """`log_mass` at whole numbers `n`, no probability between them; NaN wherever `log_mass` is."""
    return jnp.where((n == jnp.floor(n)) | jnp.isnan(log_mass), log_mass, -jnp.inf)
