"""How elementwise functions are made from ops: promotion in front, the public name on top."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.engine.array import ArrayImpl
from shardwise.ir import Array, Op, bind
from shardwise.numpy._documented import document
from shardwise.numpy._promote import (
    Value,
    broadcast_together,
    promote,
    promote_inexact,
    promote_to_inexact,
    promote_to_numeric,
    strong,
    value,
)
from shardwise.ops.elementwise.selection import select_n_p

_FLOATS = frozenset(np.dtype(t) for t in (np.float16, np.float32, np.float64, np.complex64, np.complex128))

Promotion = Callable[..., Any]
TWO_OPERANDS = "`x` and `y` are arrays or numbers whose shapes broadcast; TypeError otherwise."
_DTYPES = {
    promote: "The result has their common dtype.",
    promote_to_numeric: "The result has their common dtype; bools become integers.",
    promote_to_inexact: "The result has their common dtype; integers and bools become floats.",
}


def unary(name: str, op: Op, doc: str) -> Callable[[Any], Array]:
    """A function of one operand that computes in floats."""

    def function(x: Any, /) -> Array:
        if isinstance(x, Array) and x.aval.dtype in _FLOATS:  # the everyday case
            return bind(op, x)
        return bind(op, *promote_inexact(value(name, x)))

    takes = (
        "`x` is an array or a number (TypeError otherwise); integers and bools become floats. The result has its shape."
    )
    return document(function, name, doc, takes)


def binary(name: str, op: Op, promotion: Promotion, doc: str) -> Callable[[Any, Any], Array]:
    """A function of two operands, promoted together."""

    def function(x: Any, y: Any, /) -> Array:
        if x.__class__ is ArrayImpl and y.__class__ is ArrayImpl:
            t = x._sig.aval
            if t is y._sig.aval and t.dtype in _FLOATS:
                return bind(op, x, y)
        return bind(op, *promotion(name, x, y))

    return document(function, name, doc, f"{TWO_OPERANDS} {_DTYPES[promotion]}")


def weak_if_scalar(result: Array) -> Array:
    """`result`, strongly typed if it has dims, as in JAX, which makes its constants as arrays there."""
    return strong(result) if result.ndim else result


def where_(condition: Value, x: Value, y: Value) -> Array:
    """`x` where `condition` is true, else `y`; for operands of equal dtypes and ranks."""
    a, b, c = x.aval, y.aval, condition.aval
    if c.shape and (a.mesh is not None or b.mesh is not None or c.mesh is not None):
        types = [t for t in (a, b, c) if t.shape]
        unlike = len(types) < 3 and len({t.spec for t in types if t.mesh is not None}) > 1
        if unlike or len({t.shape for t in types}) > 1:  # one layout for all
            condition, x, y = broadcast_together("where", condition, x, y)
    return bind(select_n_p, condition, y, x)
