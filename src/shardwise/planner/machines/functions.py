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
from shardwise.ops.reductions import arg_extrema
from shardwise.planner.flops import DOWN, Costly

Least = Callable[[Callable[[], Any]], float]  # the least seconds of a call
_SOME = 1 << 16  # elements of what is measured of kinds
_FEW, _SLOW = 1 << 11, 2e-4  # functions that take so many seconds for few elements are measured on those
_FIGURE = "function "  # the beginning of the names of figures


def is_function(op: Op) -> bool:
    """Whether an op computes what takes as long as exp, from real floats element by element."""
    emit = op.emit
    if emit is None or emit.moves or not {"f", "w"}.intersection(emit.kinds):
        return False
    return op.transcendental or emit.cost >= EXP.cost


def _costly_for_integers() -> tuple[Op, ...]:
    """The elementwise ops of integers that cost more than additions and have no params."""
    found = {op: None for module in _OP_MODULES for op in vars(module).values() if isinstance(op, Op)}
    costly = [op for op in found if (emit := op.emit) is not None and "i" in emit.kinds and emit.cost > _SLOWER]
    return tuple(op for op in costly if _takes(op, ShapedArray((2,), np.dtype(np.int32))))


def _takes(op: Op, aval: ShapedArray) -> bool:
    """Whether one or two operands of a type are all that an op takes."""
    for count in (1, 2):
        try:
            op.type_rule(*[aval] * count)
        except (TypeError, ValueError):
            continue
        return True
    return False


_OP_MODULES = (binary, random_floats, special, transcendental, unary)
FUNCTIONS = tuple(
    {op: None for module in _OP_MODULES for op in vars(module).values() if isinstance(op, Op) and is_function(op)}
)
_SLOWER = 3  # the cost of what is measured of integers
_EXTREMA = (arg_extrema.argmax_p, arg_extrema.argmin_p)
# Ops that are measured by the kind of their operands, beside the functions above.
OF_KINDS: Mapping[str, tuple[Op, ...]] = {
    "i": _costly_for_integers(),
    "c": (unary.abs_p, unary.sign_p, binary.max_p, binary.min_p),  # the others cost little beside what they read
    "f": _EXTREMA,
    DOWN: _EXTREMA,
}


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


def measured_kinds(least: Least, call: float, computing: Callable[[float, float], float]) -> dict[str, float]:
    """Figures of this machine: seconds of an element of what costs more for integers or complex numbers than an addition of floats, and of
    the positions of extrema, along rows and down columns."""
    drawn = np.random.default_rng(0)
    whole = drawn.integers(1, 1000, _SOME, np.int32)
    halves = drawn.standard_normal((_SOME, 2)).astype(np.float32).view(np.complex64)[:, 0]
    found: dict[str, float] = {}
    for kind, numbers in (("i", device_put(whole)), ("c", device_put(halves))):
        moved = max(least(lambda: unary.neg(numbers)) - call, call / 4)  # noqa: B023 (called at once)
        for op in OF_KINDS[kind]:
            count = _operand_count(op, numbers.aval)
            took = least(lambda: bind(op, *[numbers] * count))  # noqa: B023
            found[f"{_FIGURE}{op.name} {kind}"] = computing(max(took - call, took / 10), moved) / _SOME
    square = device_put(drawn.standard_normal((_SOME // 256, 256)).astype(np.float32))
    for op in _EXTREMA:
        for axis, kind in ((1, "f"), (0, DOWN)):
            took = least(lambda: bind(op, square, axes=(axis,), index_dtype=np.dtype(np.int32)))  # noqa: B023
            found[f"{_FIGURE}{op.name} {kind}"] = max(took - call, took / 10) / _SOME
    return found


def is_of_function(figure: str) -> bool:
    """Whether a figure is the seconds of a function."""
    return figure.startswith(_FIGURE)


def function_costs(figures: Mapping[str, float], rate: float) -> dict[Costly, float]:
    """By op, or op and kind, the elements of exp, of which the machine computes `rate` a second, that an element of a function costs."""
    named: dict[str, Costly] = {op.name: op for op in FUNCTIONS}
    named |= {f"{op.name} {kind}": (op, kind) for kind, ops in OF_KINDS.items() for op in ops}
    found = ((key, figures.get(f"{_FIGURE}{name}")) for name, key in named.items())
    return {key: rate * seconds for key, seconds in found if seconds is not None}


def _operand_count(op: Op, aval: ShapedArray) -> int:
    """How many operands a function has: as many as its type rule takes."""
    for count in (1, 2):
        try:
            op.type_rule(*[aval] * count)
        except (TypeError, ValueError):
            continue
        return count
    return 3
