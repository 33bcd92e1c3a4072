"""Strictness of `lax`: a Python scalar has its own default dtype, and operands of other dtypes beside it raise."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base.config import config
from shardwise.base.tree import tree_map
from shardwise.ops.rules.operands import scalar_operand

ELEMENTWISE = """
    add sub mul div rem max min pow atan2 nextafter complex mulhi eq ne lt le gt ge bitwise_and bitwise_or bitwise_xor shift_left
    shift_right_arithmetic shift_right_logical igamma igammac igamma_grad_a random_gamma_grad zeta polygamma betainc clamp
"""
# Which arguments are operands whose dtypes have to agree; the others pass as they are.
OPERANDS: dict[str, slice] = {
    **dict.fromkeys(ELEMENTWISE.split(), slice(0, None)),
    **dict.fromkeys(("pad", "reduce", "reduce_window"), slice(0, 2)),
    **dict.fromkeys(("select", "select_n"), slice(1, None)),
}

_SCALARS = frozenset((bool, int, float, complex))
_DEFAULTS = {
    False: frozenset(map(np.dtype, ("bool", "int32", "float32", "complex64"))),
    True: frozenset(map(np.dtype, ("bool", "int64", "float64", "complex128"))),
}
_x64 = config.setting("jax_enable_x64").get
_MAY_HOLD_SCALARS = _SCALARS | {list, tuple, dict}


def _own(x: Any) -> Any:
    """A Python scalar, or those in a tree, as weakly typed constants of their default dtypes."""
    if x.__class__ in _SCALARS:
        return scalar_operand(x)
    return tree_map(_own, x) if x.__class__ in _MAY_HOLD_SCALARS else x


def _adapt_to_defaults(args: tuple[Any, ...]) -> bool:
    """Whether adapting scalars cannot be told from leaving them: no array is of another dtype than those that scalars have."""
    defaults = _DEFAULTS[_x64()]
    return all(x.__class__ in _SCALARS or getattr(x, "dtype", None) in defaults for x in args)


def strict(function: Callable[..., Any], operands: slice) -> Callable[..., Any]:
    """`function`, which adapts Python scalars, with those among these arguments in their default dtypes."""
    parameters = [p for p in inspect.signature(function).parameters.values() if p.kind != p.KEYWORD_ONLY]
    names = {p.name for p in parameters[operands]}

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs or not (_MAY_HOLD_SCALARS.isdisjoint(map(type, args)) or _adapt_to_defaults(args)):
            own = [_own(x) for x in args[operands]]
            args = (*args[: operands.start], *own, *args[operands.start + len(own) :])
            kwargs = {name: _own(x) if name in names else x for name, x in kwargs.items()}
        return function(*args, **kwargs)

    return call
