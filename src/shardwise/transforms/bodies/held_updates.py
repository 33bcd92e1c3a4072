"""Updates that are held back: where a body's result is an operand with windows written into it, elements that do not take part write none.

Under vmap some elements of a loop have stopped, or take another branch. Their old values are kept by a selection between whole
arrays, or, where all that happens to a value is ``x.at[i].set(v)`` or the like, by not writing their windows. Then the next value can
lie where the old one lies.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.ir import Atom, Equation, Program, ShapedArray, bind, eval_program, is_update, subprograms
from shardwise.transforms.bodies.derived_bodies import trace_body
from shardwise.transforms.bodies.jit_rules import DerivedProgram, cache_made

_Holds = dict[Equation, Any]


def exchanges(program: Program, axis_name: Any) -> bool:
    """Whether elements get values of others, by collectives over the mapped axis."""
    return axis_name is not None and any(
        axis_name in e.op.exchange_axes(e.params) or any(exchanges(p, axis_name) for _, p in subprograms(e.params))
        for e in program.equations
    )


def updated_input(program: Program, result: Atom) -> tuple[int | None, _Holds]:
    """The input (position) of which `result` is an update, or which it is, and how each update on the way is held back."""
    makers = {v: e for e in program.equations for v in e.outputs}
    holds: _Holds = {}
    value: Any = result
    while value in makers and is_update(makers[value]):
        eqn = makers[value]
        hold = None if eqn.op.hold is None else eqn.op.hold(eqn.params, tuple([a.aval for a in eqn.inputs]))
        if hold is None:
            return None, {}
        holds[eqn], value = hold, eqn.inputs[0]
    places = {v: i for i, v in enumerate(program.inputs)}
    return places.get(value), holds


@cache_made
def hold_back(body: Program, inputs: tuple[int | None, ...]) -> DerivedProgram:
    """The body with a bool scalar in front of its inputs: where it is false, `results` says which outputs are the old values.

    That holds for outputs that update their entry of `inputs`, which are positions among the body's. Other results that the body computes
    from such a value mean nothing where the scalar is false.
    """
    updates = [updated_input(body, out) for out in body.outputs]
    results = [i is not None and place == i for (place, _), i in zip(updates, inputs, strict=True)]
    chosen: _Holds = {}
    for (_, holds), is_held in zip(updates, results, strict=True):
        chosen |= holds if is_held else {}

    def run(going: Any, *values: Any) -> list[Any]:
        def bind_or_hold(eqn: Equation, given: Sequence[Any]) -> Any:
            hold = chosen.get(eqn)
            return bind(eqn.op, *given, **eqn.params) if hold is None else hold(going, *given)

        return eval_program(body, values, bind_or_hold)

    return trace_body(run, [ShapedArray((), np.dtype(np.bool_)), *body.in_types], body.name, results)
