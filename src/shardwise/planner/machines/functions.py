"""Elementwise functions of real floats, and what an element of each takes on this machine: one op, measured alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from shardwise.engine.device_put import device_put
from shardwise.ir import Op, ShapedArray, bind
from shardwise.ops.elementwise import binary, special, transcendental, unary
from shardwise.ops.elementwise.elementwise_ir import EXP
from shardwise.ops.random import random_floats

Least = Callable[[Callable[[], Any]], float]  # the least seconds of a call
_FIGURE = "function "  # the beginning of the names of figures


def is_function(op: Op) -> bool:
    """Whether an op computes what takes as long as exp, from real floats element by element."""
    emit = op.emit
    if emit is None or emit.moves or not {"f", "w"}.intersection(emit.kinds):
        return False
    return op.transcendental or emit.cost >= EXP.cost


_OP_MODULES = (binary, random_floats, special, transcendental, unary)
FUNCTIONS = tuple(
    {op: None for module in _OP_MODULES for op in vars(module).values() if isinstance(op, Op) and is_function(op)}
)


def measured_functions(least: Least, call: float, elements: int) -> dict[str, float]:
    """Figures of this machine: seconds of an element of each function in float32, of so many at once; `call` are those of any call."""
    numbers = device_put(np.linspace(0.1, 0.9, elements, dtype=np.float32))  # what most functions are defined for

    def seconds(op: Op) -> float:
        operands = [numbers] * _operand_count(op, numbers.aval)
        return max(least(lambda: bind(op, *operands)) - call, 0.0) / elements

    return {f"{_FIGURE}{op.name}": seconds(op) for op in FUNCTIONS}


def is_of_function(figure: str) -> bool:
    """Whether a figure is the seconds of a function."""
    return figure.startswith(_FIGURE)


def function_costs(figures: Mapping[str, float], rate: float) -> dict[Op, float]:
    """By op the elements of exp, of which the machine computes `rate` a second, that an element of a function costs."""
    return {op: rate * figures[name] for op in FUNCTIONS if (name := f"{_FIGURE}{op.name}") in figures}


def _operand_count(op: Op, aval: ShapedArray) -> int:
    """How many operands a function has: as many as its type rule takes."""
    for count in (1, 2):
        try:
            op.type_rule(*[aval] * count)
        except (TypeError, ValueError):
            continue
        return count
    return 3
