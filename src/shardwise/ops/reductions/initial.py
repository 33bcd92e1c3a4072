"""Initial values of `reduce` and `reduce_window`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from shardwise.ir import Literal, literal
from shardwise.ops.elementwise import binary
from shardwise.ops.rules.operands import Value, operands
from shardwise.runtime.monoids import MONOIDS

# The functions of `lax` whose identity may come in any dtype.
_SUM: dict[Any, str] = {binary.add: "sum"}
_MONOIDS = {
    "reduce": _SUM
    | {binary.mul: "prod", binary.bitwise_and: "and", binary.bitwise_or: "or", binary.bitwise_xor: "xor"},
    "reduce_window": _SUM,
}


def initial_value(
    api: str, value: Any, x: Value, computation: Callable[..., Any], no_scalar: type[Exception] = ValueError
) -> Value:
    """An initial value in the operand's dtype; raises `no_scalar` unless it is a scalar, TypeError where it has another dtype.

    The identity of a known reduction (0 of `lax.add`, for example) may have any dtype.
    """
    init = operands(api, x, value)[1]
    if init.shape:
        raise no_scalar(f"{api} takes scalar initial values, got shape {init.shape}.")
    if init.dtype == x.dtype:
        return init
    reduction = _MONOIDS[api].get(inspect.unwrap(computation)) if isinstance(init, Literal) else None
    if reduction is not None and isinstance(init, Literal) and init.value[()] == MONOIDS[reduction].identity(x.dtype):
        return literal(init.value[()], x.dtype)
    raise TypeError(
        f"{api} operand dtypes should match corresponding initial value dtypes; got inconsistent dtypes for operands and "
        f"init_values: {x.dtype.name} and {init.dtype.name}."
    )
