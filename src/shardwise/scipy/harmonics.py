"""Legendre functions and spherical harmonics; found in `scipy.special`.

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


def _legendre(highest: int, cosine: Any, sine: Any, normalized: bool = True) -> Any:
    """[order, degree, ...]: Legendre functions, 0 where order > degree; if `normalized` their squares integrate to 1 over the sphere.

    A degree follows from the two before it, for all orders at once: ``P_n = up * (cosine * P_(n-1) - down * P_(n-2))``.
    """
    orders = np.arange(highest + 1).reshape(-1, *(1,) * cosine.ndim)
    corner = jnp.ones_like(cosine) * (sqrt(1 / (4 * pi)) if normalized else 1.0)
    cosine, sine, corner = cosine[None], sine[None], corner[None]  # of one rank with all orders
    before = jnp.zeros((highest + 1, *cosine.shape[1:]), cosine.dtype)
    rows = [jnp.where(orders == 0, corner, before)]
    for n in range(1, highest + 1):
        m = np.minimum(orders, n - 1)
        if normalized:
            up = np.sqrt((4 * n * n - 1) / (n * n - m * m))
            down = np.sqrt(((n - 1) ** 2 - m * m) / abs(4 * (n - 1) ** 2 - 1))
            corner = -sqrt((2 * n + 1) / (2 * n)) * sine * corner
        else:
            up, down = (2 * n - 1) / (n - m), (n + m - 1) / (2 * n - 1)
            corner = -(2 * n - 1) * sine * corner
        row = jnp.asarray(up, cosine.dtype) * (cosine * rows[-1] - jnp.asarray(down, cosine.dtype) * before)
        before = rows[-1]
        rows.append(jnp.where(orders < n, row, jnp.where(orders == n, corner, 0)))
    return jnp.stack(rows, axis=1)


def _legendre_slopes(p: Any, z: Any) -> Any:
    """[order, degree, points]: derivatives of Legendre functions `p` that are not normalized, at `z`.

    Of orders but 1 they are finite at -1 and 1, too: there the functions over ``sqrt(1 - z**2)`` come from those of a degree less.
    """
    highest = p.shape[0] - 1
    order, degree, _ = np.ogrid[: highest + 1, : highest + 1, :1]
    shift = lambda x, by: jnp.pad(x, ((max(-by, 0), max(by, 0)), (0, 0), (0, 0)))[max(by, 0) :][: highest + 1]  # noqa: E731
    factor = lambda x: jnp.asarray(x, z.dtype)  # noqa: E731
    lower = jnp.pad(p, ((0, 0), (1, 0), (0, 0)))[:, :-1]
    pair = shift(lower, 1) + factor((degree + order - 1) * (degree + order)) * shift(lower, -1)
    over_sine = factor(-0.5 / np.maximum(order, 1)) * pair
    slopes = 0.5 * (factor((degree + order) * (degree - order + 1)) * shift(over_sine, -1) - shift(over_sine, 1))
    steps = factor(degree * (degree + 1))
    slopes = jnp.where(order == 0, 0.5 * (shift(lower, 2) + steps * lower), slopes)
    steep = 0.5 / jnp.sqrt(1 - z * z) * (steps * shift(p, -1) - shift(p, 1))
    return jnp.where(order == 1, jnp.where(degree == 0, 0, steep), slopes)


def _legendre_operand(m: Any, n: Any, z: Any) -> tuple[int, Array]:
    """The highest degree and the points of `lpmn`."""
    z = jnp.asarray(z)
    if z.dtype not in (np.float32, np.float64):
        raise TypeError(f"lpmn takes points z of float32 or float64, got {z.dtype}. Convert them with z.astype.")
    if z.ndim != 1:
        raise ValueError(f"lpmn takes points z of one dim, got shape {z.shape}. Use z.ravel().")
    order, degree = concrete_int(m, "m of lpmn"), concrete_int(n, "n of lpmn")
    if order != degree:
        raise NotImplementedError(f"lpmn with m = {order}, n = {degree}: give both the larger and index the results.")
    return degree, z


def lpmn(m: int, n: int, z: Any) -> tuple[Array, Array]:
    """Legendre functions up to order and degree `n` (which `m` equals) at f[p] points `z`, and their derivatives: f[n + 1, n + 1, p]."""
    highest, z = _legendre_operand(m, n, z)
    values = _legendre(highest, z, jnp.sqrt(1 - z * z), False)
    return values, _legendre_slopes(values, z)


def lpmn_values(m: int, n: int, z: Any, is_normalized: bool) -> Array:
    """The first of `lpmn`; if `is_normalized` the squares of spherical harmonics made of them integrate to 1."""
    highest, z = _legendre_operand(m, n, z)
    return _legendre(highest, z, jnp.sqrt(1 - z * z), bool(is_normalized))


def sph_harm_y(n: Any, m: Any, theta: Any, phi: Any, diff_n: int | None = None, n_max: int | None = None) -> Array:
    """The spherical harmonic of degree `n` and order `m` at polar angles `theta` and azimuths `phi`, elementwise: complex.

    `n_max` is the highest degree there is, needed while `n` is traced. NotImplementedError for `diff_n`.

    >>> from shardwise.scipy import special
    >>> special.sph_harm_y(jnp.array([1]), jnp.array([0]), jnp.array([0.5]), jnp.array([0.0])).real.round(3)
    Array([0.429], dtype=float32)
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
    """`sph_harm_y` of degree `n` and order `m`, both at most `n_max`, with the older order of arguments: `theta` is
    the azimuth, `phi` the polar angle.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # it is deprecated
    ...     value = jax.scipy.special.sph_harm(jnp.array([0]), jnp.array([0]), jnp.array([0.1]), jnp.array([0.2]))
    >>> value.real.round(3)
    Array([0.282], dtype=float32)
    """
    return sph_harm_y(n, m, phi, theta, n_max=n_max)
