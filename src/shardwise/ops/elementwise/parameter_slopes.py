"""Derivatives in the parameters of hypergeometric functions and of the zeta function, by their series in double precision.

Terms and their derivatives follow from those before them, so that parameters at which a factor is zero need no care.
Arguments below zero are brought above it by the transformations of Kummer and Pfaff: then no terms cancel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base.shapes import Ndarray

__all__: list[str] = []

_TERMS = 20_000  # sums that need more are NaN: 2F1 from about 0.998 on
_CLOSE = np.finfo(np.float64).eps

# B_2k / (2k)!
_BERNOULLI = (
    1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000, 1 / 74724249600,
    -3617 / 10670622842880000,
)  # fmt: skip
_FIRST = 12  # terms of zeta's series that are added one by one


def _series(tops: tuple[Ndarray, ...], bottoms: tuple[Ndarray, ...], x: Ndarray) -> tuple[Ndarray, list[Ndarray]]:
    """The sum over k of ``x**k / k! * prod (top)_k / prod (bottom)_k``, and its derivatives in all tops and bottoms."""
    term, slopes = np.ones_like(x), [np.zeros_like(x) for _ in (*tops, *bottoms)]
    value, sums = term.copy(), [s.copy() for s in slopes]
    k, open_ = 0, np.isfinite(x)
    while k < _TERMS and open_.any():
        numerators, denominators = [a + k for a in tops], [b + k for b in bottoms]
        ratio = x / (k + 1)
        for q in denominators:
            ratio = ratio / q
        whole = ratio
        for p in numerators:
            whole = whole * p
        after = term * whole
        for i in range(len(slopes)):
            if i < len(tops):
                others = ratio
                for j, p in enumerate(numerators):
                    others = others * p if j != i else others
                slopes[i] = slopes[i] * whole + term * others
            else:
                slopes[i] = slopes[i] * whole - after / denominators[i - len(tops)]
            sums[i] = sums[i] + slopes[i]
        term = after
        value = value + term
        k += 1
        # Past the largest term each is less than the one before it by a factor: the rest of the sum is of the last one's size.
        small = [np.abs(s) * (k + 1) <= _CLOSE * np.abs(total) for s, total in zip(slopes, sums, strict=True)]
        # A series that ends has a term of 0, and slopes of terms behind it that go on.
        open_ = np.isfinite(x) & (np.abs(whole) < 1) & ~np.logical_and.reduce(small) | (np.abs(whole) >= 1)
        open_ &= np.isfinite(value)
    is_lost = open_ | ~np.isfinite(x)
    return value, [np.where(is_lost, np.nan, s) for s in sums]


def _doubles(function: Callable[..., Ndarray]) -> Callable[..., Ndarray]:
    """The function in double precision, on operands of any one dtype and broadcasting shapes."""

    def kernel(*blocks: Ndarray) -> Ndarray:
        dtype = blocks[0].dtype
        with np.errstate(all="ignore"):
            out = function(*np.broadcast_arrays(*(np.asarray(b, np.float64) for b in blocks)))
        return np.asarray(out).astype(dtype)

    return kernel


def hyp1f1_slope(operand: int) -> Callable[..., Ndarray]:
    """The derivative of ``hyp1f1(a, b, x)`` in `a` (0) or `b` (1)."""

    def slope(a: Any, b: Any, x: Any) -> Ndarray:
        below = x < 0  # hyp1f1(a, b, x) = exp(x) hyp1f1(b - a, b, -x)
        _, (in_a, in_b) = _series((np.where(below, b - a, a),), (b,), np.abs(x))
        scale = np.exp(np.minimum(x, 0))
        if operand == 0:
            return np.where(below, -scale * in_a, in_a)
        return np.where(below, scale * (in_a + in_b), in_b)

    return _doubles(slope)


def hyp2f1_slope(operand: int) -> Callable[..., Ndarray]:
    """The derivative of ``hyp2f1(a, b, c, x)`` in `a` (0), `b` (1) or `c` (2), for x < 1."""

    def slope(a: Any, b: Any, c: Any, x: Any) -> Ndarray:
        # hyp2f1(a, b, c, x) = (1 - x)**-a hyp2f1(a, c - b, c, x / (x - 1))
        below = x < 0
        z = np.where(below, x / (x - 1), np.where(x < 1, x, np.nan))
        value, (in_a, in_b, in_c) = _series((a, np.where(below, c - b, b)), (c,), z)
        factor = np.where(below, (1 - x) ** -a, 1)
        if operand == 0:
            return np.where(below, factor * (in_a - np.log1p(-x) * value), in_a)
        if operand == 1:
            return np.where(below, -factor * in_b, in_b)
        return np.where(below, factor * (in_c + in_b), in_c)

    return _doubles(slope)


def _zeta_slope(s: Any, q: Any) -> Ndarray:
    """By Euler and Maclaurin's formula for ``log(t) / t**s``."""
    total = np.zeros_like(s)
    for n in range(_FIRST):
        total = total - np.log(q + n) * (q + n) ** -s
    t = q + _FIRST
    log, rest = np.log(t), t ** (1 - s) / (s - 1)
    total = total - rest * (log + 1 / (s - 1)) - log * t**-s / 2
    rising_factorial, harmonic = s, 1 / s  # s (s + 1) ... and the sum of the factors' inverses
    power = t ** (-s - 1)
    for k, factor in enumerate(_BERNOULLI):
        total = total + factor * rising_factorial * power * (harmonic - log)
        for j in (2 * k + 1, 2 * k + 2):
            rising_factorial, harmonic = rising_factorial * (s + j), harmonic + 1 / (s + j)
        power = power / (t * t)
    return np.where((s > 1) & (q > 0), total, np.nan)


zeta_slope = _doubles(_zeta_slope)
