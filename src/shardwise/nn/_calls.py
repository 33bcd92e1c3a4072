"""Functions with a derivative of their own: an op that runs as the program of its body and differentiates by rule.

In: a body written with array functions, a rule for tangents. Out: a function; compilation and `vmap` see the body's
equations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base.config import context_token
from shardwise.ir import Array, Equation, Program, ShapedArray, bind, define_op, trace_program

Rule = Callable[..., tuple[Array, Array]]


def define_call(name: str, body: Callable[..., Array], jvp: Rule) -> Callable[..., Array]:
    """``body(*values, **params)``, whose derivative is ``jvp(primals, tangents, **params) -> (result, tangent)``."""

    @functools.lru_cache(maxsize=1024)
    def program(types: tuple[ShapedArray, ...], params: tuple[tuple[str, Any], ...], context: object) -> Program:
        del context  # part of the key: dtypes and layouts of constants depend on settings and on the context mesh
        traced, captured = trace_program(lambda *xs: [body(*xs, **dict(params))], types, name)
        assert not captured
        return traced

    def type_rule(*types: ShapedArray, **params: Any) -> tuple[ShapedArray, ...]:
        return tuple(out.aval for out in program(types, tuple(params.items()), context_token()).outputs)

    def inline(eqn: Equation) -> Program:
        return program(tuple(a.aval for a in eqn.inputs), tuple(eqn.params.items()), context_token())

    def rule(primals: Sequence[Any], tangents: Sequence[Any], **params: Any) -> tuple[list[Array], list[Array]]:
        result, tangent = jvp(primals, tangents, **params)
        return [result], [tangent]

    op = define_op(name, type_rule=type_rule, typed=True, multiple_results=True, inline=inline, jvp=rule)

    def call(*values: Any, **params: Any) -> Array:
        return bind(op, *values, **params)[0]

    return call
