"""Activations: elementwise functions between layers.

In: arrays and scalars. Out: arrays of the same shape (`glu`: of half the size along one dim).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import shardwise.numpy as jnp
from shardwise.ir import Array, Shown, literal
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import array, canonical_axis, promote_inexact, value, values
from shardwise.ops.control.calls import define_elementwise
from shardwise.transforms.jit.jit import jit
from shardwise.transforms.jit.shown_calls import shown_call

# One computation when called on arrays, the body's ops when called while tracing.
_jit_inline = functools.partial(jit, inline=True)


# -- rectifiers ------------------------------------------------------------------------------------------------


def _shown_rule(name: str, function: Callable[..., Array], jvp: Callable[..., Any]) -> Shown:
    """How programs show a function that JAX compiles and gives a rule: as a call with that rule."""

    @functools.cache
    def make_rule() -> Callable[..., Array]:
        from shardwise.transforms.derivatives.custom_jvp import custom_jvp  # start-up time

        def rule(primals: Any, tangents: Any) -> tuple[Array, Array]:
            return jvp(primals, tangents)

        rule.__name__ = "jvp"
        call = shown_call(name=name)(function)
        call.__name__ = name
        rule_function = custom_jvp(call)
        rule_function.defjvp(rule)
        return rule_function

    return Shown(parts=lambda values, params: [make_rule()(*values)])


def _relu_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (x,), (t,) = primals, tangents
    y = _relu(x)
    return y, jnp.where(y > 0, t, literal(0, t.dtype, weak_type=True))


def _relu_of(x: Array) -> Array:
    return jnp.maximum(x, 0)


_relu = define_elementwise("relu", _relu_of, _relu_jvp, shown=_shown_rule("relu", _relu_of, _relu_jvp))


def relu(x: Any) -> Array:
    """``max(x, 0)``; the derivative at 0 is 0.

    >>> jax.nn.relu(jnp.array([-2.0, 0.0, 3.0])).round(3)
    Array([0., 0., 3.], dtype=float32)
    """
    return _relu(value("relu", x))


def _relu6_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (x,), (t,) = primals, tangents
    return _relu6(x), jnp.where((x > 0) & (x < 6), t, literal(0, t.dtype, weak_type=True))


def _relu6_of(x: Array) -> Array:
    return jnp.minimum(jnp.maximum(x, 0), 6.0)


_relu6 = define_elementwise("relu6", _relu6_of, _relu6_jvp, shown=_shown_rule("relu6", _relu6_of, _relu6_jvp))


def relu6(x: Any) -> Array:
    """``min(max(x, 0), 6)``; the derivative at 0 and 6 is 0.

    >>> jax.nn.relu6(jnp.array([-2.0, 0.0, 3.0])).round(3)
    Array([0., 0., 3.], dtype=float32)
    """
    return _relu6(value("relu6", x))


@_jit_inline
@shown_call()
def leaky_relu(x: Any, negative_slope: Any = 1e-2) -> Array:
    """`x` where it is at least 0, else ``negative_slope * x``.

    >>> jax.nn.leaky_relu(jnp.array([-2.0, 0.0, 3.0])).round(3)
    Array([-0.02,  0.  ,  3.  ], dtype=float32)
    """
    x, slope = values("leaky_relu", x, negative_slope)
    return jnp.where(jnp.greater_equal(x, 0), x, jnp.multiply(slope, x))


@_jit_inline
@shown_call()
def elu(x: Any, alpha: Any = 1.0) -> Array:
    """`x` where it is positive, else ``alpha * (exp(x) - 1)``.

    >>> jax.nn.elu(jnp.array([-2.0, 0.0, 3.0])).round(3)
    Array([-0.865,  0.   ,  3.   ], dtype=float32)
    """
    return _elu(array("elu", x), alpha)


def _elu(x: Array, alpha: Any) -> Array:
    positive = x > 0
    # Where the exponential is not chosen it must not overflow: its derivative would be inf times 0.
    return jnp.where(positive, x, alpha * jnp.expm1(jnp.where(positive, 0.0, x)))


@_jit_inline
@shown_call()
def celu(x: Any, alpha: Any = 1.0) -> Array:
    """``max(x, 0) + alpha * (exp(min(x, 0) / alpha) - 1)``: like `elu`, with a continuous derivative.

    >>> jax.nn.celu(jnp.array([-2.0, 0.0, 3.0])).round(3)
    Array([-0.865,  0.   ,  3.   ], dtype=float32)
    """
    x, alpha = values("celu", x, alpha)
    return jnp.maximum(x, 0.0) + jnp.multiply(alpha, jnp.expm1(jnp.divide(jnp.minimum(x, 0.0), alpha)))


@_jit_inline
@shown_call()
def selu(x: Any) -> Array:
    """`elu` of `x`, scaled so that layers keep mean 0 and variance 1.

    >>> jax.nn.selu(jnp.array([-2.0, 0.0, 3.0])).round(3)
    Array([-1.52 ,  0.   ,  3.152], dtype=float32)
    """
    return 1.0507009873554805 * _elu(array("selu", x), 1.6732632423543772)


# -- sigmoids --------------------------------------------------------------------------------------------------


def sigmoid(x: Any) -> Array:
    """``1 / (1 + exp(-x))``. TypeError for integers.

    >>> jax.nn.sigmoid(jnp.array([-2.0, 0.0, 3.0])).round(3)
    Array([0.119, 0.5  , 0.953], dtype=float32)
    """
    return lax.logistic(value("sigmoid", x))


@_jit_inline
@shown_call()
def log_sigmoid(x: Any) -> Array:
    """``log(sigmoid(x))`` without underflow.

    >>> jax.nn.log_sigmoid(jnp.array([-2.0, 0.0, 3.0])).round(3)
    Array([-2.127, -0.693, -0.049], dtype=float32)
    """
    return -_softplus(-array("log_sigmoid", x))


@_jit_inline
@shown_call()
def silu(x: Any) -> Array:
    """``x * sigmoid(x)``.

    >>> jax.nn.silu(jnp.array([-2.0, 0.0, 3.0])).round(3)
    Array([-0.238,  0.   ,  2.858], dtype=float32)
    """
    x = array("silu", x)
    return x * sigmoid(x)


swish = silu


@_jit_inline
@shown_call()
def softplus(x: Any) -> Array:
    """``log(1 + exp(x))`` without overflow.

    >>> jax.nn.softplus(jnp.array([-2.0, 0.0, 3.0])).round(3)
    Array([0.127, 0.693, 3.049], dtype=float32)
    """
    return _softplus(value("softplus", x))


def _softplus(x: Any) -> Array:
    return jnp.logaddexp(x, 0)


@_jit_inline
@shown_call()
def squareplus(x: Any, b: Any = 4) -> Array:
    """``(x + sqrt(x**2 + b)) / 2``: like `softplus`, from algebraic functions alone.

    >>> jax.nn.squareplus(jnp.array([-2.0, 0.0, 3.0])).round(3)
    Array([0.414, 1.   , 3.303], dtype=float32)
    """
    x, b = values("squareplus", x, b)
    return jnp.add(x, jnp.sqrt(jnp.add(jnp.square(x), b))) / 2


@_jit_inline
@shown_call()
def mish(x: Any) -> Array:
    """``x * tanh(softplus(x))``.

    >>> jax.nn.mish(jnp.array([-2.0, 0.0, 3.0])).round(3)
    Array([-0.253,  0.   ,  2.987], dtype=float32)
    """
    x = array("mish", x)
    return x * jnp.tanh(_softplus(x))


@_jit_inline
@shown_call()
def soft_sign(x: Any) -> Array:
    """``x / (abs(x) + 1)``.

    >>> jax.nn.soft_sign(jnp.array([-2.0, 0.0, 3.0])).round(3)
    Array([-0.667,  0.   ,  0.75 ], dtype=float32)
    """
    x = array("soft_sign", x)
    return x / (jnp.abs(x) + 1)


tanh = jnp.tanh


@functools.partial(_jit_inline, static_argnames="approximate")
def gelu(x: Any, approximate: bool = True) -> Array:
    """`x` times the normal distribution function of `x`: by tanh if `approximate`, else by the error function.

    >>> jax.nn.gelu(jnp.array([-2.0, 0.0, 3.0])).round(3)
    Array([-0.045,  0.   ,  2.996], dtype=float32)
    """
    (x,) = promote_inexact(array("gelu", x))
    if approximate:
        inner = np.sqrt(2 / np.pi).astype(x.dtype) * (x + 0.044715 * x**3)
        return x * (0.5 * (1.0 + jnp.tanh(inner)))
    half = np.sqrt(0.5).astype(x.dtype)
    return (0.5 * x * lax.erfc(-x * half)).astype(x.dtype)


@functools.partial(_jit_inline, static_argnames="axis")
@shown_call("axis")
def glu(x: Any, axis: int = -1) -> Array:
    """The first half of `x` along `axis` times the sigmoid of the second half. ValueError for an odd size.

    >>> jax.nn.glu(jnp.array([1.0, 2.0, 0.0, 0.0]))
    Array([0.5, 1. ], dtype=float32)
    """
    x = array("glu", x)
    n = x.shape[canonical_axis(axis, x.ndim)]
    if n % 2:
        raise ValueError(f"glu splits dim {axis} in halves, so its size must be divisible by 2, got {n}.")
    first, second = jnp.split(x, 2, axis)
    return first * sigmoid(second)


# -- piecewise linear or quadratic ones ------------------------------------------------------------------------


@_jit_inline
@shown_call()
def hard_tanh(x: Any) -> Array:
    """`x` moved into the range from -1 to 1.

    >>> jax.nn.hard_tanh(jnp.array([-2.0, 0.0, 3.0])).round(3)
    Array([-1.,  0.,  1.], dtype=float32)
    """
    x = array("hard_tanh", x)
    return jnp.where(x > 1, 1, jnp.where(x < -1, -1, x))


@_jit_inline
def hard_sigmoid(x: Any) -> Array:
    """``relu6(x + 3) / 6``.

    >>> jax.nn.hard_sigmoid(jnp.array([-2.0, 0.0, 3.0])).round(3)
    Array([0.167, 0.5  , 1.   ], dtype=float32)
    """
    return _hard_sigmoid(value("hard_sigmoid", x))


@shown_call(name="hard_sigmoid")
def _hard_sigmoid(x: Any) -> Array:
    return _relu6(jnp.add(x, 3.0)) / 6.0


@_jit_inline
@shown_call()
def hard_silu(x: Any) -> Array:
    """``x * hard_sigmoid(x)``.

    >>> jax.nn.hard_silu(jnp.array([-2.0, 0.0, 3.0])).round(3)
    Array([-0.333,  0.   ,  3.   ], dtype=float32)
    """
    x = array("hard_silu", x)
    return x * _hard_sigmoid(x)


hard_swish = hard_silu


@_jit_inline
@shown_call()
def sparse_plus(x: Any) -> Array:
    """0 below -1, `x` above 1, and ``(x + 1)**2 / 4`` between.

    >>> jax.nn.sparse_plus(jnp.array([-2.0, 0.0, 3.0])).round(3)
    Array([0.  , 0.25, 3.  ], dtype=float32)
    """
    x = array("sparse_plus", x)
    return jnp.where(x <= -1.0, 0.0, jnp.where(x >= 1.0, x, (x + 1.0) ** 2 / 4))


@_jit_inline
@shown_call()
def sparse_sigmoid(x: Any) -> Array:
    """0 below -1, 1 above 1, and ``(x + 1) / 2`` between.

    >>> jax.nn.sparse_sigmoid(jnp.array([-2.0, 0.0, 3.0])).round(3)
    Array([0. , 0.5, 1. ], dtype=float32)
    """
    return 0.5 * jnp.clip(jnp.add(value("sparse_sigmoid", x), 1.0), 0.0, 2.0)


# -- others ----------------------------------------------------------------------------------------------------


@shown_call()
def identity(x: Any) -> Array:
    """`x` as an array.

    >>> jax.nn.identity(jnp.array([-2.0, 0.0, 3.0])).round(3)
    Array([-2.,  0.,  3.], dtype=float32)
    """
    return array("identity", x)


def _log1mexp_body(x: Any) -> Array:
    small = jnp.less(x, float(np.log(2.0)))
    return jnp.where(small, jnp.log(-jnp.expm1(-x)), jnp.log1p(-jnp.exp(-x)))


def _log1mexp_jvp(primals: Any, tangents: Any) -> tuple[Array, Array]:
    (x,), (t,) = primals, tangents
    return _log1mexp(x), t / jnp.expm1(x)


_log1mexp = define_elementwise("log1mexp", _log1mexp_body, _log1mexp_jvp, makes_nan=True)


def log1mexp(x: Any) -> Array:
    """``log(1 - exp(-x))`` for positive `x`, exact for small and for large ones.

    >>> jax.nn.log1mexp(jnp.array([1.0])).round(3)
    Array([-0.459], dtype=float32)
    """
    return _log1mexp(array("log1mexp", x))
