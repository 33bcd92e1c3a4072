"""Ops on the bits of integers, and of bools: and, or, exclusive or, shifts."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base.dtypes import itemsize_bits
from shardwise.base.shapes import Ndarray
from shardwise.base.small_integers import is_below_byte
from shardwise.ir import Array, bind
from shardwise.ops.elementwise import elementwise_ir as ir
from shardwise.ops.rules.operands import elementwise_op, operands

__all__ = [
    "bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right_arithmetic", "shift_right_logical",
]  # fmt: skip


def _shift_right_logical(x: Ndarray, y: Ndarray) -> Ndarray:
    unsigned_dtype = np.dtype(f"u{x.dtype.itemsize}")
    return np.right_shift(x.view(unsigned_dtype), y.view(unsigned_dtype)).view(x.dtype)


def _shift_right_arithmetic(x: Ndarray, y: Ndarray) -> Ndarray:
    """Shift in copies of the sign bit from the left, for unsigned integers too."""
    if x.dtype.kind == "i":
        return np.right_shift(x, y)
    if is_below_byte(x.dtype):  # the sign bit moves to that of a byte, and back
        unused_bits = np.uint8(8 - itemsize_bits(x.dtype))
        wide = (x.view(np.uint8) << unused_bits).view(np.int8) >> unused_bits.view(np.int8)
        return np.right_shift(wide, y.astype(np.int8)).astype(x.dtype)
    signed_dtype = np.dtype(f"i{x.dtype.itemsize}")
    return np.right_shift(x.view(signed_dtype), y.view(signed_dtype)).view(x.dtype)


and_p = elementwise_op("and", np.bitwise_and, "biu", "biu", emit=ir.AND)


or_p = elementwise_op("or", np.bitwise_or, "biu", "biu", emit=ir.OR)


xor_p = elementwise_op("xor", np.bitwise_xor, "biu", "biu", emit=ir.XOR)


shift_left_p = elementwise_op("shift_left", np.left_shift, "iu", "iu", emit=ir.SHIFT_LEFT)


shift_right_logical_p = elementwise_op(
    "shift_right_logical", _shift_right_logical, "iu", "iu", raw=True, emit=ir.SHIFT_RIGHT_LOGICAL
)


shift_right_arithmetic_p = elementwise_op(
    "shift_right_arithmetic", _shift_right_arithmetic, "iu", "iu", raw=True, emit=ir.SHIFT_RIGHT_ARITHMETIC
)


def bitwise_and(x: Any, y: Any) -> Array:
    """Elementwise and of the bits of the integers, or of the bools, `x` and `y`.

    >>> lax.bitwise_and(jnp.array([6]), jnp.array([3]))
    Array([2], dtype=int32)
    """
    return bind(and_p, *operands("bitwise_and", x, y))


def bitwise_or(x: Any, y: Any) -> Array:
    """Elementwise or of the bits of the integers, or of the bools, `x` and `y`.

    >>> lax.bitwise_or(jnp.array([6]), jnp.array([3]))
    Array([7], dtype=int32)
    """
    return bind(or_p, *operands("bitwise_or", x, y))


def bitwise_xor(x: Any, y: Any) -> Array:
    """Elementwise exclusive or of the bits of the integers, or of the bools, `x` and `y`.

    >>> lax.bitwise_xor(jnp.array([6]), jnp.array([3]))
    Array([5], dtype=int32)
    """
    return bind(xor_p, *operands("bitwise_xor", x, y))


def shift_left(x: Any, y: Any) -> Array:
    """Elementwise ``x << y`` of integers; 0 where `y` is negative or at least the number of bits.

    >>> lax.shift_left(jnp.array([1]), jnp.array([3]))
    Array([8], dtype=int32)
    """
    return bind(shift_left_p, *operands("shift_left", x, y))


def shift_right_logical(x: Any, y: Any) -> Array:
    """Elementwise ``x >> y``, shifting in zero bits; 0 where `y` is negative or at least the number of bits.

    >>> lax.shift_right_logical(jnp.array([-8]), jnp.array([28]))
    Array([15], dtype=int32)
    """
    return bind(shift_right_logical_p, *operands("shift_right_logical", x, y))


def shift_right_arithmetic(x: Any, y: Any) -> Array:
    """Elementwise ``x >> y``, shifting in copies of the sign bit, also where `y` is out of range.

    >>> lax.shift_right_arithmetic(jnp.array([-8]), jnp.array([1]))
    Array([-4], dtype=int32)
    """
    return bind(shift_right_arithmetic_p, *operands("shift_right_arithmetic", x, y))
