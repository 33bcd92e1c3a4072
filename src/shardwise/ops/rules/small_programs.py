"""Ops that small programs hold as programs of other ops.

In: a function that binds those ops. Out: a `SmallForm`. The function has the results of the op's kernel, bit for bit except where a sum's
order matters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardwise.base.caches import recent
from shardwise.ir import Equation, ExactParams, Program, SmallForm, Spread, trace_program
from shardwise.ir.op import Types
from shardwise.sharding import AbstractMesh, use_abstract_mesh

Function = Callable[..., Any]


def as_program(function: Function, fits: Callable[[Equation], bool] | None = None, **fields: Any) -> SmallForm:
    """The form of an op that small programs hold as the ops which ``function(*operands, **params)`` binds.

    `fits`: for which equations the function is written, and no longer a program than it is worth. `fields` are others of the form.
    """

    def can(eqn: Equation, spread: Spread) -> bool:
        from shardwise.runtime.small import writable  # start-up time: the compiler of small programs

        if fits is not None and not fits(eqn):
            return False
        return all(writable(e, spread) for e in _program_of(function, eqn).equations)

    def write(body: Any, eqn: Equation, operands: Any, wanted: Any) -> list[Any]:
        return body.inner(_program_of(function, eqn), operands).run(wanted)

    return SmallForm(write, can, mapped=True, **fields)


def _program_of(function: Function, eqn: Equation) -> Program:
    return _trace_function(function, tuple([a.aval for a in eqn.inputs]), ExactParams(eqn.params))


@recent(1024)
def _trace_function(function: Function, types: Types, params: ExactParams) -> Program:
    def results(*operands: Any) -> list[Any]:
        outcome = function(*operands, **params)
        return list(outcome) if isinstance(outcome, (list, tuple)) else [outcome]

    # A device's values are typed without meshes, whatever mesh is in context.
    with use_abstract_mesh(AbstractMesh((), ())):
        return trace_program(results, types)[0]
