"""Initial values of `reduce` and `reduce_window`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.ir import Literal, literal
from shardwise.ops.elementwise import binary, bitwise
from shardwise.ops.rules.operands import Value, operands
from shardwise.runtime.monoids import MONOIDS

# The functions of `lax` whose identity is accepted in any dtype.
_ORDERED_MONOIDS: dict[Any, str] = {binary.add: "sum", binary.max: "max", binary.min: "min"}
_MONOIDS = {
    "reduce": _ORDERED_MONOIDS
    | {binary.mul: "prod", bitwise.bitwise_and: "and", bitwise.bitwise_or: "or", bitwise.bitwise_xor: "xor"},
    "reduce_window": _ORDERED_MONOIDS,
}


def initial_value(
    api: str, value: Any, x: Value, computation: Callable[..., Any], no_scalar: type[Exception] = ValueError
) -> Value:
    """An initial value in the operand's dtype. Raises `no_scalar` unless it is a scalar, TypeError if it has another dtype.

    The identity of a known reduction may have any dtype: 0 for `lax.add`, for example, or -inf for `lax.max`, also of integers.
    """
    init = operands(api, x, value[()] if isinstance(value, np.ndarray) and not value.shape else value)[1]
    if init.shape:
        raise no_scalar(f"{api} takes scalar initial values, got shape {init.shape}.")
    if init.dtype == x.dtype:
        return init
    reduction = _MONOIDS[api].get(inspect.unwrap(computation)) if isinstance(init, Literal) else None
    if reduction is not None and isinstance(init, Literal):
        identity = MONOIDS[reduction].identity
        if init.value[()] == identity(init.dtype):
            return literal(identity(x.dtype), x.dtype)
    raise TypeError(
        f"{api} operand dtypes should match corresponding initial value dtypes; got inconsistent dtypes for operands and "
        f"init_values: {x.dtype.name} and {init.dtype.name}."
    )
