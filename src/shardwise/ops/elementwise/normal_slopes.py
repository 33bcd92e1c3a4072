"""Derivatives of the logarithm of the normal distribution function: the first, h = phi / Phi, and minus the second, h (h + x).

All of it is computed in double precision. Far below zero h is -x - 1/x + ..., so that h + x cancels almost wholly: there the asymptotic
series of Mills' ratio gives h + x (its coefficients are OEIS A000698).
"""

from __future__ import annotations

import math

import numpy as np

from shardwise.base.scipy_extensions import special_ufunc
from shardwise.base.shapes import Ndarray

__all__: list[str] = []

HALF, FACTOR = -math.sqrt(0.5), math.sqrt(2 / math.pi)  # h is FACTOR / erfcx(HALF x)
_FAR = -60.0
_REST_COEFFICIENTS = (1.0, -2.0, 10.0, -74.0, 706.0, -8162.0)  # -x (h + x) in powers of 1 / x**2


def slope(x: Ndarray) -> Ndarray:
    """h."""
    return _slope(x.astype(np.float64)).astype(x.dtype, copy=False)


def curvature(x: Ndarray) -> Ndarray:
    """h (h + x): 1 far below zero, 0 far above it."""
    wide = x.astype(np.float64)
    with np.errstate(all="ignore"):
        h = _slope(wide)
        near = np.where(h > 0, h * (h + wide), 0 * h)
        far = np.minimum(wide, _FAR)
        u = 1 / (far * far)
        left = np.polynomial.polynomial.polyval(u, _REST_COEFFICIENTS)
        return np.where(wide < _FAR, (1 + u * left) * left, near).astype(x.dtype, copy=False)


def _slope(x: Ndarray) -> Ndarray:
    with np.errstate(all="ignore"):
        return FACTOR / special_ufunc("erfcx")(HALF * x)
