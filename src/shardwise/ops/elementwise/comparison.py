"""Elementwise comparisons of two operands, as bools."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base.dtypes import KeyDtype, key_dtype
from shardwise.ir import Array, bind
from shardwise.ir.key_uses import LEAVES
from shardwise.ops.elementwise import elementwise_ir as ir
from shardwise.ops.rules.operands import elementwise_op, operands

__all__ = ["eq", "ge", "gt", "le", "lt", "ne"]

_BOOL = np.dtype(np.bool_)


def _comparison_of(ufunc: np.ufunc, compare: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """The elements that store keys of four words have no ufuncs; Python's operators compare their bytes."""
    return lambda *dtypes: compare if isinstance(dtypes[0], KeyDtype) and dtypes[0] != key_dtype else ufunc


eq_p = elementwise_op(
    "eq",
    np.equal,
    "biufck",
    "biufck",
    emit=ir.EQ,
    result=lambda d: _BOOL,
    ufunc_of=_comparison_of(np.equal, operator.eq),
    keys=LEAVES,
)
ne_p = elementwise_op(
    "ne",
    np.not_equal,
    "biufck",
    "biufck",
    emit=ir.NE,
    result=lambda d: _BOOL,
    ufunc_of=_comparison_of(np.not_equal, operator.ne),
    keys=LEAVES,
)
lt_p = elementwise_op("lt", np.less, "biuf", "biuf", emit=ir.LT, result=lambda d: _BOOL)
le_p = elementwise_op("le", np.less_equal, "biuf", "biuf", emit=ir.LE, result=lambda d: _BOOL)
gt_p = elementwise_op("gt", np.greater, "biuf", "biuf", emit=ir.GT, result=lambda d: _BOOL)
ge_p = elementwise_op("ge", np.greater_equal, "biuf", "biuf", emit=ir.GE, result=lambda d: _BOOL)


def eq(x: Any, y: Any) -> Array:
    """Elementwise ``x == y`` as bool.

    >>> lax.eq(jnp.array([1, 2]), jnp.array([1, 3]))
    Array([ True, False], dtype=bool)
    """
    return bind(eq_p, *operands("eq", x, y))


def ne(x: Any, y: Any) -> Array:
    """Elementwise ``x != y`` as bool.

    >>> lax.ne(jnp.array([1, 2]), jnp.array([1, 3]))
    Array([False,  True], dtype=bool)
    """
    return bind(ne_p, *operands("ne", x, y))


def lt(x: Any, y: Any) -> Array:
    """Elementwise ``x < y`` as bool.

    >>> lax.lt(jnp.array([1, 3]), jnp.array([2, 2]))
    Array([ True, False], dtype=bool)
    """
    return bind(lt_p, *operands("lt", x, y))


def le(x: Any, y: Any) -> Array:
    """Elementwise ``x <= y`` as bool.

    >>> lax.le(jnp.array([1, 3]), jnp.array([2, 2]))
    Array([ True, False], dtype=bool)
    """
    return bind(le_p, *operands("le", x, y))


def gt(x: Any, y: Any) -> Array:
    """Elementwise ``x > y`` as bool.

    >>> lax.gt(jnp.array([1, 3]), jnp.array([2, 2]))
    Array([False,  True], dtype=bool)
    """
    return bind(gt_p, *operands("gt", x, y))


def ge(x: Any, y: Any) -> Array:
    """Elementwise ``x >= y`` as bool.

    >>> lax.ge(jnp.array([1, 2]), jnp.array([2, 2]))
    Array([False,  True], dtype=bool)
    """
    return bind(ge_p, *operands("ge", x, y))
