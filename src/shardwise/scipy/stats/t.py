"""Student's distribution."""

from __future__ import annotations

from typing import Any

from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.scipy.special import betaln
from shardwise.scipy.stats._arguments import real

__all__ = ["logpdf", "pdf"]


def logpdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The log of the density at `x` of Student's t distribution with `df` degrees of freedom, around `loc` with width
    `scale`. Arguments are real numbers or arrays that broadcast, the result is a float array of their shape.

    >>> jax.scipy.stats.t.logpdf(0.5, 3.0).round(3)
    Array(-1.161, dtype=float32, weak_type=True)
    """
    x, df, loc, scale = real("t.logpdf", x, df, loc, scale)
    z = (x - loc) / scale
    constant = -betaln(df / 2, lax.full_like(df, 0.5)) - 0.5 * lax.log(df * lax.square(scale))
    return constant - (df + 1) / 2 * lax.log1p(z * z / df)


def pdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The density at `x` of Student's t distribution with `df` degrees of freedom, around `loc` with width `scale`.
    Arguments are real numbers or arrays that broadcast, the result is a float array of their shape.

    >>> jax.scipy.stats.t.pdf(0.5, 3.0).round(3)
    Array(0.313, dtype=float32, weak_type=True)
    """
    return lax.exp(logpdf(x, df, loc, scale))


__dir__ = _listing(__name__)
