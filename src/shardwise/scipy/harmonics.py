"""Spherical harmonics; found in `scipy.special`.

In: degrees, orders and angles. Out: complex values, by the recurrences of normalized Legendre functions.
"""

from __future__ import annotations

from math import pi, sqrt
from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.ir import Array
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import concrete_int

__all__ = ["sph_harm", "sph_harm_y"]


def _legendre(highest: int, cosine: Any, sine: Any) -> Any:
    """[order, degree, ...]: Legendre functions whose squares integrate to 1 over the sphere; 0 where order > degree."""
    zero = jnp.zeros_like(cosine)
    rows = []
    corner = zero + sqrt(1 / (4 * pi))
    for m in range(highest + 1):
        row = [zero] * m + [corner]
        for n in range(m + 1, highest + 1):
            scale = sqrt((4 * n * n - 1) / (n * n - m * m))
            before = row[n - 2] * sqrt(((n - 1) ** 2 - m * m) / (4 * (n - 1) ** 2 - 1)) if n > m + 1 else zero
            row.append(scale * (cosine * row[n - 1] - before))
        rows.append(jnp.stack(row))
        corner = -sqrt((2 * m + 3) / (2 * m + 2)) * sine * corner
    return jnp.stack(rows)


def sph_harm_y(n: Any, m: Any, theta: Any, phi: Any, diff_n: int | None = None, n_max: int | None = None) -> Array:
    """The spherical harmonic of degree `n` and order `m` at polar angles `theta` and azimuths `phi`, elementwise: complex.

    `n_max` is the highest degree there is, needed while `n` is traced. NotImplementedError for `diff_n`.
    """
    if diff_n is not None:
        raise NotImplementedError("sph_harm_y with diff_n; take derivatives with grad or jvp.")
    highest = concrete_int(jnp.max(jnp.asarray(n)) if n_max is None else n_max, "n_max of sph_harm_y")
    theta = jnp.atleast_1d(jnp.array(theta, dtype=jnp.result_type(theta, float)))
    degree, order, polar, azimuth = jnp.broadcast_arrays(jnp.asarray(n), jnp.asarray(m), theta, jnp.asarray(phi) * 1.0)
    table = _legendre(highest, jnp.cos(polar), jnp.abs(jnp.sin(polar)))
    size = jnp.abs(order)
    flat = jnp.reshape(table, ((highest + 1) ** 2, polar.size))
    value = flat[jnp.ravel(size * (highest + 1) + degree), np.arange(polar.size)]
    angle = azimuth * size
    wave = jnp.reshape(value, polar.shape) * lax.complex(jnp.cos(angle), jnp.sin(angle))
    return jnp.where(order < 0, jnp.where(size % 2 == 1, -1.0, 1.0) * jnp.conj(wave), wave)


def sph_harm(m: Any, n: Any, theta: Any, phi: Any, n_max: int | None = None) -> Array:
    """`sph_harm_y` with the older order of arguments: `theta` is the azimuth, `phi` the polar angle."""
    return sph_harm_y(n, m, phi, theta, n_max=n_max)
