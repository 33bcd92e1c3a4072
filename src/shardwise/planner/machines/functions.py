"""Elementwise functions of real floats, and what an element of each takes on this machine: one op, measured alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from shardwise.engine.device_put import device_put
from shardwise.ir import Op, ShapedArray, bind
from shardwise.ops.elementwise import binary, special, transcendental, unary
from shardwise.ops.elementwise.elementwise_ir import EXP
from shardwise.ops.random import random_floats

Least = Callable[[Callable[[], Any]], float]  # the least seconds of a call
_FEW, _SLOW = 1 << 11, 2e-4  # functions that take so many seconds for few elements are measured on those
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


def measured_functions(
    least: Least, call: float, elements: int, computing: Callable[[float], float]
) -> dict[str, float]:
    """Figures of this machine: seconds of an element of each function in float32, of so many at once.

    `call` are those of any call; `computing` gives of the others those without what moves the bytes.
    """
    draws = np.random.default_rng(0)
    everywhere = np.exp(draws.standard_normal(elements)).astype(np.float32)
    below_one = draws.uniform(0.1, 0.9, elements).astype(np.float32)  # what nearly all functions are defined for

    def seconds(op: Op) -> float:
        few = device_put(everywhere[:_FEW])
        count = _operand_count(op, few.aval)
        is_defined = bool(np.isfinite(np.asarray(bind(op, *[few] * count))).all())  # the first call makes the kernel
        begin = time.perf_counter()
        bind(op, *[few] * count)
        slow = time.perf_counter() - begin > _SLOW
        numbers = device_put((everywhere if is_defined else below_one)[: _FEW if slow else elements])
        took = least(lambda: bind(op, *[numbers] * count))
        alone = max(took - call, took / 10)
        return (alone if slow else computing(alone)) / numbers.size

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
