"""Special functions (error, gamma, Bessel, zeta, beta) by SciPy, which is imported when one first runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base.scipy_extensions import special_ufunc
from shardwise.base.shapes import Ndarray
from shardwise.ir import Array, Emit, Op, bind
from shardwise.ops.elementwise import elementwise_ir as ir
from shardwise.ops.elementwise import scipy_ir
from shardwise.ops.elementwise.parameter_slopes import zeta_slope
from shardwise.ops.rules.derivative import Pushes, do, scalar, unknown_derivative
from shardwise.ops.rules.operands import elementwise_op, operand, operands
from shardwise.runtime.machine import run_in_parts, thread_count

__all__ = [
    "bessel_i0e", "bessel_i1e", "betainc", "digamma", "erf", "erf_inv", "erfc", "igamma", "igamma_grad_a", "igammac", "lgamma",
    "polygamma", "random_gamma_grad", "regularized_incomplete_beta", "zeta",
]  # fmt: skip


def _scipy(name: str, compute: type[np.floating] = np.float32) -> Callable[..., Ndarray]:
    """SciPy's function on blocks of any float dtype; dtypes narrower than `compute` are computed in `compute`."""

    def function(*blocks: Ndarray) -> Ndarray:
        dtype = blocks[0].dtype
        if dtype.itemsize < np.dtype(compute).itemsize:
            blocks = tuple(b.astype(compute) for b in blocks)
        return np.asarray(special_ufunc(name)(*blocks)).astype(dtype, copy=False)

    return function


def _odd(name: str) -> Callable[[Ndarray], Ndarray]:
    """SciPy's function with the sign of its operand, also at -0.0."""
    function = _scipy(name)
    return lambda x: np.copysign(function(x), x)


def _define(
    name: str,
    function: Callable[..., Ndarray],
    arity: int,
    push: Pushes | None = None,
    emit: Emit | None = None,
    **fields: Any,
) -> Op:
    return elementwise_op(name, function, *("f",) * arity, push=push, emit=emit, **fields)


def _lgamma(x: Ndarray) -> Ndarray:
    out = _gammaln(x)
    return np.where(np.isinf(x), np.abs(x), out)  # also for -inf


_gammaln = _scipy("gammaln")
_psi, _inverse = _scipy("psi"), _scipy("erfinv")
_gammainc, _gammaincc, _hurwitz = _scipy("gammainc"), _scipy("gammaincc"), _scipy("_zeta")


def _digamma(x: Ndarray) -> Ndarray:
    """NaN at the poles; SciPy gives an infinity at zero."""
    return np.where((x <= 0) & (x == np.floor(x)), x.dtype.type(np.nan), _psi(x)).astype(x.dtype, copy=False)


def _polygamma(m: Ndarray, x: Ndarray) -> Ndarray:
    """The derivative of order m of digamma, by the Hurwitz zeta function: (-1)**(m+1) * m! * zeta(m+1, x)."""
    n, y = m.astype(np.float64), x.astype(np.float64)
    size = special_ufunc("gamma")(n + 1) * _zeta(n + 1, y)
    value = np.where(n == 0, _digamma(y), np.where(np.mod(n, 2) == 1, size, -size))
    return np.where((n < 0) | (n != np.floor(n)), np.nan, value).astype(x.dtype)


def _erf_inv(x: Ndarray) -> Ndarray:
    return np.copysign(_inverse(x), x)  # also at -0.0


def _igamma_grad_a(a: Ndarray, x: Ndarray) -> Ndarray:
    """The derivative of igamma in `a`: by its series where that converges fast, else by finite differences."""
    return _gamma_derivative(a, x).astype(x.dtype)


_RUN = 128  # points of which a thread takes the derivative at a time: each takes 2 us


def _gamma_derivative(a: Ndarray, x: Ndarray) -> Ndarray:
    a64, x64 = np.broadcast_arrays(a.astype(np.float64), x.astype(np.float64))
    shape, a64, x64 = a64.shape, a64.ravel(), x64.ravel()
    out = np.empty_like(a64)

    def work(run: slice) -> None:
        with np.errstate(all="ignore"):  # each thread has its own
            out[run] = _gamma_differences(a64[run], x64[run])

    run_in_parts(work, out.size, _RUN, thread_count())
    return out.reshape(shape)


def _gamma_differences(a: Ndarray, x: Ndarray) -> Ndarray:
    # SciPy's function is real, which rules out complex steps; four points give the derivative to about 1e-10.
    h = 1e-3 * np.maximum(a, 1e-3)
    out = np.empty_like(a)
    near = a < 2 * h  # no points on the left
    # Use the smaller of the two tails: its differences are more exact.
    tail = x > a
    for low in (True, False):
        function = special_ufunc("gammainc" if low else "gammaincc")
        for left in (True, False):
            mask = (tail != low) & (near != left)
            if mask.any():
                slopes = _differences(function, a[mask], x[mask], h[mask], left)
                out[mask] = slopes if low else -slopes
    out = np.where(np.isinf(a) | (x == 0), 0, np.where(out == 0, -0.0, out))  # igamma decreases in a
    return np.where((a > 0) & (x >= 0), out, np.nan)


def _differences(function: Any, a: Ndarray, x: Ndarray, h: Ndarray, left: bool) -> Ndarray:
    """The derivative of ``function(a, x)`` in `a` by points `h` apart, on the left as well or on the right alone."""
    f = lambda k: function(a + k * h, x)  # noqa: E731
    if left:
        return (f(-2) - 8 * f(-1) + 8 * f(1) - f(2)) / (12 * h)
    return (-25 * f(0) + 48 * f(1) - 36 * f(2) + 16 * f(3) - 3 * f(4)) / (12 * h)


def _igamma(a: Ndarray, x: Ndarray) -> Ndarray:
    """1 at infinite `x`, for any `a` that is not negative."""
    return np.where((x == np.inf) & (a >= 0), x.dtype.type(1), _gammainc(a, x)).astype(x.dtype, copy=False)


def _igammac(a: Ndarray, x: Ndarray) -> Ndarray:
    return np.where((x == np.inf) & (a >= 0), x.dtype.type(0), _gammaincc(a, x)).astype(x.dtype, copy=False)


def _zeta(x: Ndarray, q: Ndarray) -> Ndarray:
    """At the poles, where `q` is 0 or a negative integer: infinity if `x` is even, else NaN. Infinity for x = 1."""
    poles = (q <= 0) & (q == np.floor(q))
    values = _hurwitz(x, q)
    if not poles.any():
        return values
    sides = np.where((np.mod(x, 2) == 0) | (x == 1), x.dtype.type(np.inf), x.dtype.type(np.nan))
    return np.where(poles, sides, values).astype(x.dtype, copy=False)


def _random_gamma_grad(a: Ndarray, x: Ndarray) -> Ndarray:
    """The derivative of a sample x of the gamma distribution in the shape a: -(dP/da) / (dP/dx)."""
    a64, x64 = np.broadcast_arrays(a.astype(np.float64), x.astype(np.float64))
    density = np.exp((a64 - 1) * np.log(x64) - x64 - special_ufunc("gammaln")(a64))
    out = -_gamma_derivative(a64, x64) / density
    nothing = (a64 > 0) & ((x64 == 0) | ((x64 > 0) & (density == 0)))  # at 0, and far in the tail
    return np.where(nothing, 0, out).astype(x.dtype)


# -- derivatives -----------------------------------------------------------------------------------------------------

_TWO_OVER_ROOT_PI = 2 / math.sqrt(math.pi)


def _bell(x: Any) -> Any:
    return do.mul(_TWO_OVER_ROOT_PI, do.exp(do.neg(do.square(x))))


def _gamma_density(a: Any, x: Any) -> Any:
    """The derivative of igamma in `x`."""
    return do.exp(do.sub(do.sub(do.mul(do.sub(a, 1), do.log(x)), x), do.lgamma(a)))


def _beta_density(t: Any, y: Any, a: Any, b: Any, x: Any) -> Any:
    norm = do.sub(do.add(do.lgamma(a), do.lgamma(b)), do.lgamma(do.add(a, b)))
    powers = do.add(do.mul(do.sub(b, 1), do.log1p(do.neg(x))), do.mul(do.sub(a, 1), do.log(x)))
    return do.mul(t, do.exp(do.sub(powers, norm)))


def _i1e_push(t: Any, y: Any, x: Any) -> Any:
    zero = do.eq(x, 0)
    safe = do.select_n(zero, x, 1)
    slope = do.sub(do.bessel_i0e(x), do.mul(y, do.add(do.sign(x), do.div(1, safe))))
    return do.mul(t, do.select_n(zero, slope, 0.5))


erf_p = _define("erf", _scipy("erf"), 1, lambda t, y, x: do.mul(t, _bell(x)), ir.ERF, transcendental=True)
erfc_p = _define("erfc", _scipy("erfc"), 1, lambda t, y, x: do.mul(t, do.neg(_bell(x))), ir.ERFC, transcendental=True)
erf_inv_p = _define(
    "erf_inv",
    _erf_inv,
    1,
    lambda t, y, x: do.mul(t, do.mul(1 / _TWO_OVER_ROOT_PI, do.exp(do.square(y)))),
    scipy_ir.ERF_INV,
    transcendental=True,
)
lgamma_p = _define("lgamma", _lgamma, 1, lambda t, y, x: do.mul(t, do.digamma(x)), scipy_ir.LGAMMA, transcendental=True)
digamma_p = _define(
    "digamma",
    _digamma,
    1,
    lambda t, y, x: do.mul(t, do.polygamma(scalar(1, x.dtype), x)),
    scipy_ir.DIGAMMA,
    transcendental=True,
)
polygamma_p = _define(
    "polygamma",
    _polygamma,
    2,
    (unknown_derivative("polygamma", "its order"), lambda t, y, m, x: do.mul(t, do.polygamma(do.add(m, 1), x))),
    scipy_ir.POLYGAMMA,
    makes_nan=True,
)
igamma_p = _define(
    "igamma",
    _igamma,
    2,
    (lambda t, y, a, x: do.mul(t, do.igamma_grad_a(a, x)), lambda t, y, a, x: do.mul(t, _gamma_density(a, x))),
    scipy_ir.IGAMMA,
    makes_nan=True,
)
igammac_p = _define(
    "igammac",
    _igammac,
    2,
    (
        lambda t, y, a, x: do.mul(t, do.neg(do.igamma_grad_a(a, x))),
        lambda t, y, a, x: do.mul(t, do.neg(_gamma_density(a, x))),
    ),
    scipy_ir.IGAMMAC,
    makes_nan=True,
)
igamma_grad_a_p = _define("igamma_grad_a", _igamma_grad_a, 2, makes_nan=True)
random_gamma_grad_p = _define("random_gamma_grad", _random_gamma_grad, 2)
bessel_i0e_p = _define(
    "bessel_i0e",
    _scipy("i0e"),
    1,
    lambda t, y, x: do.mul(t, do.sub(do.bessel_i1e(x), do.mul(do.sign(x), y))),
    scipy_ir.I0E,
    makes_nan=True,
    rounds_alike=False,
)
bessel_i1e_p = _define("bessel_i1e", _odd("i1e"), 1, _i1e_push, scipy_ir.I1E, makes_nan=True, rounds_alike=False)
zeta_slope_p = _define("zeta_slope", zeta_slope, 2, makes_nan=True)
zeta_p = _define(
    "zeta",
    _zeta,
    2,
    (
        lambda t, y, x, q: do.mul(t, do.zeta_slope(x, q)),
        lambda t, y, x, q: do.mul(t, do.mul(do.neg(x), do.zeta(do.add(x, 1), q))),
    ),
    scipy_ir.ZETA,
    makes_nan=True,
)
regularized_incomplete_beta_p = _define(
    "regularized_incomplete_beta",
    _scipy("betainc", np.float64),
    3,  # SciPy's float32 loop is wrong by hundreds of ulps
    (unknown_derivative("betainc", "a"), unknown_derivative("betainc", "b"), _beta_density),
    scipy_ir.BETAINC,
    makes_nan=True,
)


def erf(x: Any) -> Array:
    """Elementwise error function of the floats `x`.

    >>> lax.erf(jnp.array([0.0, 1.0])).round(3)
    Array([0.   , 0.843], dtype=float32)
    """
    return bind(erf_p, operand("erf", x))


def erfc(x: Any) -> Array:
    """Elementwise complement ``1 - erf(x)``, accurate where that is small.

    >>> lax.erfc(jnp.array([0.0, 1.0])).round(3)
    Array([1.   , 0.157], dtype=float32)
    """
    return bind(erfc_p, operand("erfc", x))


def erf_inv(x: Any) -> Array:
    """Elementwise inverse of `erf` at the floats `x`; NaN outside -1..1.

    >>> lax.erf_inv(jnp.array([0.0, 0.5])).round(3)
    Array([0.   , 0.477], dtype=float32)
    """
    return bind(erf_inv_p, operand("erf_inv", x))


def lgamma(x: Any) -> Array:
    """Elementwise logarithm of the absolute value of the gamma function at the floats `x`.

    >>> lax.lgamma(jnp.array([3.0, 10.0])).round(3)
    Array([ 0.693, 12.802], dtype=float32)
    """
    return bind(lgamma_p, operand("lgamma", x))


def digamma(x: Any) -> Array:
    """Elementwise derivative of `lgamma` at the floats `x`; NaN at the poles.

    >>> lax.digamma(jnp.array([1.0, 2.0])).round(3)
    Array([-0.577,  0.423], dtype=float32)
    """
    return bind(digamma_p, operand("digamma", x))


def polygamma(m: Any, x: Any) -> Array:
    """Elementwise derivative of order `m` (integers as floats) of `digamma` at `x`; NaN for other orders.

    >>> lax.polygamma(1.0, jnp.array([1.0, 2.0])).round(3)
    Array([1.645, 0.645], dtype=float32)
    """
    return bind(polygamma_p, *operands("polygamma", m, x))


def igamma(a: Any, x: Any) -> Array:
    """Elementwise regularized lower incomplete gamma function P(a, x).

    >>> lax.igamma(2.0, jnp.array([0.0, 1.0])).round(3)
    Array([0.   , 0.264], dtype=float32)
    """
    return bind(igamma_p, *operands("igamma", a, x))


def igammac(a: Any, x: Any) -> Array:
    """Elementwise regularized upper incomplete gamma function Q(a, x) = 1 - P(a, x).

    >>> lax.igammac(2.0, jnp.array([0.0, 1.0])).round(3)
    Array([1.   , 0.736], dtype=float32)
    """
    return bind(igammac_p, *operands("igammac", a, x))


def igamma_grad_a(a: Any, x: Any) -> Array:
    """Elementwise derivative of ``igamma(a, x)`` in `a`, for floats `a` and `x`.

    >>> lax.igamma_grad_a(2.0, jnp.array([1.0, 2.0])).round(3)
    Array([-0.276, -0.294], dtype=float32)
    """
    return bind(igamma_grad_a_p, *operands("igamma_grad_a", a, x))


def random_gamma_grad(a: Any, x: Any) -> Array:
    """Elementwise derivative in `a` of a sample `x` of the gamma distribution with shape `a`.

    >>> lax.random_gamma_grad(2.0, jnp.array([1.0, 2.0])).round(3)
    Array([0.751, 1.086], dtype=float32)
    """
    return bind(random_gamma_grad_p, *operands("random_gamma_grad", a, x))


def bessel_i0e(x: Any) -> Array:
    """Elementwise modified Bessel function of order 0, times ``exp(-abs(x))``.

    >>> lax.bessel_i0e(jnp.array([0.0, 1.0])).round(3)
    Array([1.   , 0.466], dtype=float32)
    """
    return bind(bessel_i0e_p, operand("bessel_i0e", x))


def bessel_i1e(x: Any) -> Array:
    """Elementwise modified Bessel function of order 1, times ``exp(-abs(x))``.

    >>> lax.bessel_i1e(jnp.array([0.0, 1.0])).round(3)
    Array([0.   , 0.208], dtype=float32)
    """
    return bind(bessel_i1e_p, operand("bessel_i1e", x))


def zeta(x: Any, q: Any) -> Array:
    """Elementwise Hurwitz zeta function: the sum of ``1 / (k + q)**x`` over k >= 0.

    >>> lax.zeta(jnp.array([2.0, 3.0]), 1.0).round(3)
    Array([1.645, 1.202], dtype=float32)
    """
    return bind(zeta_p, *operands("zeta", x, q))


def regularized_incomplete_beta(a: Any, b: Any, x: Any) -> Array:
    """Elementwise regularized incomplete beta function I_x(a, b) of floats `a`, `b` and `x`.

    >>> lax.regularized_incomplete_beta(2.0, 3.0, jnp.array([0.0, 0.5])).round(4)
    Array([0.    , 0.6875], dtype=float32)
    """
    return bind(regularized_incomplete_beta_p, *operands("regularized_incomplete_beta", a, b, x))


def betainc(a: Any, b: Any, x: Any) -> Array:
    """Elementwise regularized incomplete beta function I_x(a, b) of floats `a`, `b` and `x`.

    >>> lax.betainc(2.0, 3.0, jnp.array([0.0, 0.5])).round(4)
    Array([0.    , 0.6875], dtype=float32)
    """
    return bind(regularized_incomplete_beta_p, *operands("betainc", a, b, x))
