"""Where shardwise gives something else than JAX at special points, and why. What it gives there is kept in the record, too."""

from __future__ import annotations

import re

_ZERO_TIMES = (
    "JAX has NaN where a branch that is not taken multiplies zero by infinity, or XLA's compiler drops such a product"
)
_DIGITS = "JAX's series loses digits, underflows or overflows where SciPy's, or the rule itself, does not"
_INVALID = "JAX gives numbers for parameters or values that the distribution does not have, or for NaN"
_ORDER = "which of several equal elements, or of elements beside NaN, counts is not defined"

_TABLE: list[tuple[str, str]] = [
    (r"stats\.(bernoulli|betabinom|binom|geom|nbinom|poisson)\.", _INVALID),
    (r"stats\.(beta|chi2|gamma|gennorm|pareto|truncnorm|uniform|vonmises|t|laplace|expon)\.", _INVALID + "; " + _ZERO_TIMES),
    (r"stats\.(cauchy|gumbel_[lr]|norm|logistic)\.", _DIGITS + "; " + _ZERO_TIMES),
    (r"stats\.mode|jnp\.(arg)?partition|lax\.reduce_window", _ORDER),
    (r"jnp\.power\(i, j\)", "negative powers of integers: 0, 1 or -1 as in exact arithmetic, what JAX gives depends on the bits"),
    (r".*\b(z|u|v)\b", "complex numbers: products of infinite parts, and NaN in one part, follow NumPy"),
    (r"(jnp|lax)\.(maximum\.reduce|max|min|ptp|reduce_max|reduce_min|reduce|nan(var|std))\(", _ZERO_TIMES),
    (r"jnp\.(maximum|logaddexp)\.reduce|jnp\.linalg\.norm|nn\.softmax|jnp\.(nan)?prod|lax\.reduce_prod", _ZERO_TIMES),
    (r"jnp\.(nanmean|std)\(empty|jnp\.nan(median|percentile|quantile)\(", "the derivative of NaN, for there are no numbers"),
    (r"jnp\.ldexp", "JAX takes 1 for the derivative at 0 and NaN at the largest number; it is the power of two everywhere"),
    (r"jnp\.trapezoid", "JAX subtracts the ends from the sum: infinity less infinity"),
    (r"(jnp|lax)\.(div|divide|true_divide|hypot)\(", "the square of the divisor underflows or overflows in JAX's derivative"),
    (r"special\.(ndtri|spence|log_ndtr|i0|i1e)|lax\.bessel|jnp\.i0", "JAX's derivative is wrong: 0 at the ends of ndtri, at 0 and 1 of "
     "spence; i0 at 0; log_ndtr far in the tail"),
    (r"(special|lax|nn|jnp)\.", _DIGITS),
]  # fmt: skip


def reason(expression: str) -> str | None:
    """Why shardwise may differ there; the first row that fits tells."""
    return next((why for pattern, why in _TABLE if re.match(pattern, expression)), None)
