"""Ops that are written as functions of other ops: `traced_body`, the program of such a function, and `define_shown`.

In: a body, a function of values that binds other ops. Out: its program by types and params; an op that programs traced to be shown have
in its place, as JAX's have, and that compiled programs hold as the body's equations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base.caches import recent
from shardwise.base.config import context_token
from shardwise.ir import Equation, ExactParams, Op, Program, ShapedArray, define_op, trace_program
from shardwise.sharding import AbstractMesh, AxisType, get_abstract_mesh, use_abstract_mesh

Body = Callable[..., Sequence[Any]]
TracedBody = Callable[[tuple[ShapedArray, ...], Any], Program]


def traced_body(name: str, body: Body) -> TracedBody:
    """``(types, params) -> program`` of ``body(*values, **params)``, a list of results; kept for later calls."""

    @recent(512)
    def program(types: tuple[ShapedArray, ...], params: ExactParams, context: object) -> Program:
        del context  # part of the key: dtypes and layouts of constants depend on settings and on the context mesh
        body_program, captured_values = trace_program(lambda *xs: body(*xs, **params), types, name)
        assert not captured_values
        return body_program

    return lambda types, params: program(types, ExactParams(params), context_token())


def define_body_op(name: str, traced: TracedBody, *, several: bool = True, **fields: Any) -> Op:
    """The op that calls such a program, with `several` results or one. `fields`: further fields of the `Op`."""

    def type_rule(*types: ShapedArray, **params: Any) -> Any:
        out_types = tuple(out.aval for out in traced(types, params).outputs)
        return out_types if several else out_types[0]

    def inline(eqn: Equation) -> Program:
        with use_abstract_mesh(_mesh_around(eqn)):
            return traced(tuple(a.aval for a in eqn.inputs), eqn.params)

    return define_op(name, type_rule=type_rule, typed=True, multiple_results=several, inline=inline, **fields)


def _mesh_around(eqn: Equation) -> AbstractMesh:
    """The context mesh where the equation stands, as its types tell: within `auto_axes` and `shard_map` they name no Explicit axes,
    though those of the program around them may.
    """
    context = get_abstract_mesh()
    mesh = next((v.aval.mesh for v in (*eqn.inputs, *eqn.outputs) if v.aval.mesh is not None), None)
    if mesh is not None or not context.explicit_axes:
        return context if mesh is None else mesh
    return context.update_axis_types(dict.fromkeys(context.explicit_axes, AxisType.Auto))


def define_shown(name: str, body: Callable[..., Any], *, several: bool = False, **fields: Any) -> Op:
    """An op of JAX's name for what ``body(*values, **params)`` computes by other ops: one result, or a list of `several`.

    Functions bind it where `SHOWING` is set, and its primitive's `bind` does; derivatives and `vmap` see the body's equations, unless
    `fields`, others of its `Op`, say how they are shown.
    """
    of_lists = body if several else lambda *values, **params: [body(*values, **params)]
    return define_body_op(name, traced_body(name, of_lists), several=several, **fields)
