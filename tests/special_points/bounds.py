"""How far two correct answers may lie apart: JAX's approximations and ours, each rounded its own way.

A bound counts units of the last place of the number (`ulps`) and of 1 (`terms`). The latter is for results that are sums of terms
about as large as 1: where these cancel, what is left has the rounding of the terms, not its own.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Bound:
    """Units of the last place of a number, and of 1."""

    ulps: float
    terms: float


# pattern: bounds of values, and of derivatives. The first that fits counts.
_TABLE = [
    # The integers and what only moves, chooses or compares elements: exact, and so is the slope.
    (r"(lax|jnp)\.(abs|sign|neg|negative|real|imag|floor|ceil|trunc|max|min|maximum|minimum|sort|where|select|clip|clamp)\(x",
     Bound(0, 0), Bound(0, 0)),
    # Complex numbers: each part has the rounding of both.
    (r".*\b(z|u|v)\b", Bound(6, 2), Bound(12, 16)),
    # bfloat16: XLA rounds intermediate results, which are computed in float32 here.
    (r".*\bt\b", Bound(2, 1), Bound(8, 2)),
    # Exponentials of large numbers: the rounding of the exponent counts by its size.
    (r"(jnp|lax)\.(exp2|sinh|cosh)\(|jnp\.(logspace|geomspace)\(|jnp\.cbrt|lax\.cbrt", Bound(10, 0), Bound(18, 0)),
    (r"(lax|special)\.(erf_?inv|ndtri)|stats\.norm\.(ppf|isf)\(x", Bound(12, 0), Bound(32, 0)),
    (r"special\.(factorial|gamma)\(", Bound(66, 0), Bound(66, 16)),  # XLA: exp of lgamma
    (r"special\.(poch|comb)\(", Bound(48, 1), Bound(48, 16)),  # JAX: exp of differences of lgamma
    # Series of terms of both signs.
    (r"(lax|special)\.(lgamma|gammaln|loggamma|multigammaln|digamma|polygamma|zeta|beta|betaln|betainc|hyp1f1|expn)\(",
     Bound(8, 12), Bound(16, 16)),
    (r"(lax|special)\.(gammaincc?|igammac?|igamma_grad_a|random_gamma_grad|bessel_jn)\(", Bound(8, 8), Bound(8, 8)),
    (r"stats\.(chi2|gamma|beta|betabinom|binom|nbinom|poisson)\.", Bound(16, 16), Bound(32, 16)),
    (r"stats\.t\.logpdf", Bound(8, 8), Bound(8, 16)),
    (r"stats\.vonmises\.logpdf|stats\.gennorm\.", Bound(8, 8), Bound(24, 8)),
    (r"stats\.vonmises\.pdf|stats\.(norm|cauchy)\.log[cs]", Bound(8, 8), Bound(24, 16)),
    (r"stats\.", Bound(8, 2), Bound(16, 4)),
    (r"nn\.(mish|gelu)", Bound(8, 2), Bound(16, 8)),
    (r"jnp\.linalg\.norm", Bound(8, 2), Bound(16, 8)),
    (r"(nn|special)\.|.*softmax|lax\.cumlogsumexp|jnp\.logaddexp|.*logsumexp", Bound(8, 2), Bound(16, 4)),
    (r"jnp\.(cov|corrcoef|convolve|correlate|poly)", Bound(8, 8), Bound(8, 8)),
]  # fmt: skip
_USUAL = Bound(4, 0), Bound(8, 2)


@functools.cache
def bound_of(expression: str, key: str) -> Bound:
    """The bound for one result of an expression, ``value.0`` or a derivative."""
    found = next((row[1:] for row in _TABLE if re.match(row[0], expression)), _USUAL)
    return found[0 if key.startswith("value") else 1]


def rows() -> list[str]:
    """The patterns of the table."""
    return [row[0] for row in _TABLE]
