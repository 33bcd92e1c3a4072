"""Functions with a derivative of their own: an op that runs as the program of its body and differentiates by rule.

In: a body written with array functions, a rule for tangents. Out: an op; compilation and `vmap` see the body's equations.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from shardwise.base.config import context_token
from shardwise.ir import Equation, Op, Program, ShapedArray, define_op, trace_program


def define_call(name: str, body: Callable[..., Any], jvp: Callable[..., Any]) -> Op:
    """The op that computes ``body(*values, **params)``, one array, with the tangent rule `jvp` (see `Op.jvp`)."""

    @functools.lru_cache(maxsize=1024)
    def program(types: tuple[ShapedArray, ...], params: tuple[tuple[str, Any], ...], context: object) -> Program:
        del context  # part of the key: dtypes and layouts of constants depend on settings and on the context mesh
        traced, captured = trace_program(lambda *xs: [body(*xs, **dict(params))], types, name)
        assert not captured
        return traced

    def type_rule(*types: ShapedArray, **params: Any) -> ShapedArray:
        return program(types, tuple(params.items()), context_token()).outputs[0].aval

    def inline(eqn: Equation) -> Program:
        return program(tuple(a.aval for a in eqn.inputs), tuple(eqn.params.items()), context_token())

    return define_op(name, type_rule=type_rule, typed=True, inline=inline, jvp=jvp)
