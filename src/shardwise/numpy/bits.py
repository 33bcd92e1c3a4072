"""Bits and divisors of integers."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base.dtypes import isdtype
from shardwise.base.renamed import rename_function
from shardwise.ir import Array, bind
from shardwise.lax import adaptive as lax
from shardwise.numpy._promote import (
    as_array,
    astype,
    constant,
    is_bool,
    is_integer,
    promote,
    promote_to_numeric,
    value,
    zero_like,
)
from shardwise.numpy._ufunc_forms import binary, weak_if_scalar, where_
from shardwise.numpy.unary import absolute
from shardwise.ops.elementwise import bitwise, elementwise_ir
from shardwise.ops.elementwise import unary as one
from shardwise.ops.rules.operands import elementwise_op
from shardwise.transforms.jit.shown_calls import shown_call

bitwise_and = binary("bitwise_and", bitwise.and_p, promote, "Elementwise and of integers' bits or of bools.")
bitwise_or = binary("bitwise_or", bitwise.or_p, promote, "Elementwise or of integers' bits or of bools.")
bitwise_xor = binary("bitwise_xor", bitwise.xor_p, promote, "Elementwise exclusive or of integers' bits or of bools.")
left_shift = binary("left_shift", bitwise.shift_left_p, promote_to_numeric, "Elementwise ``x << y`` of integers.")
bitwise_left_shift = rename_function(left_shift, "bitwise_left_shift")


def right_shift(x1: Any, x2: Any, /) -> Array:
    """Elementwise ``x1 >> x2`` of integers; signed ones keep their sign.

    >>> jnp.bitwise_right_shift(jnp.array([8, -8]), 1)
    Array([ 4, -4], dtype=int32)
    """
    x, y = promote_to_numeric("right_shift", x1, x2)
    logical = isdtype(x.dtype, "unsigned integer")
    return lax.shift_right_logical(x, y) if logical else lax.shift_right_arithmetic(x, y)


bitwise_right_shift = rename_function(right_shift, "bitwise_right_shift")

_gcd_p = elementwise_op("gcd", np.gcd, "iu", "iu", emit=elementwise_ir.GCD)


def gcd(x1: Any, x2: Any) -> Array:
    """Elementwise greatest common divisor of the integers `x1` and `x2`, whose shapes broadcast; gcd(0, x) is abs(x).
    ValueError unless both are integers.

    >>> jnp.gcd(jnp.array([12, 7]), 18)
    Array([6, 1], dtype=int32)
    """
    return weak_if_scalar(bind(_gcd_p, *_two_integers("gcd", x1, x2)))


def lcm(x1: Any, x2: Any) -> Array:
    """Elementwise least common multiple of the integers `x1` and `x2`, whose shapes broadcast; 0 if either is.
    ValueError unless both are integers.

    >>> jnp.lcm(jnp.array([4, 6]), 10)
    Array([20, 30], dtype=int32)
    """
    x, y = _two_integers("lcm", x1, x2)
    x, y = absolute(x), absolute(y)
    divisor = bind(_gcd_p, x, y)
    quotient = lax.div(y, where_(lax.eq(divisor, zero_like(divisor)), constant(divisor, 1), divisor))
    return weak_if_scalar(lax.mul(x, quotient))


def _two_integers(name: str, x1: Any, x2: Any) -> Any:
    x, y = promote(name, x1, x2)
    if not is_integer(x.dtype):
        raise ValueError(f"{name} takes integers, got {x.dtype}.")
    return x, y


@shown_call()
def bitwise_count(x: Any, /) -> Array:
    """Elementwise number of bits set in the absolute value of the integers `x`, as uint8.

    >>> jnp.bitwise_count(jnp.array([7, 8]))
    Array([3, 1], dtype=uint8)
    """
    v = value("bitwise_count", x)
    if is_bool(v.dtype):
        return as_array(astype(v, np.dtype(np.uint8)))
    return lax.convert_element_type(lax.population_count(absolute(v)), np.uint8)


def invert(x: Any, /) -> Array:
    """Elementwise complement of the bits of the integers `x`; logical not of bools.

    >>> jnp.bitwise_invert(jnp.array([0, 5]))
    Array([-1, -6], dtype=int32)
    """
    return bind(one.not_p, value("invert", x))


bitwise_not, bitwise_invert = rename_function(invert, "bitwise_not"), rename_function(invert, "bitwise_invert")

__all__ = [
    "bitwise_count",
    "bitwise_invert",
    "bitwise_left_shift",
    "bitwise_not",
    "bitwise_right_shift",
    "gcd",
    "invert",
    "lcm",
    "left_shift",
    "right_shift",
]
