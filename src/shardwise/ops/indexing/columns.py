"""Ops at vectors of positions, whose columns are operands of their own.

`x[i, j]` is a gather at the rows of an array that has `i` and `j` as columns. Kernels read each column where it lies.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from shardwise.ir import Atom, ElementRead, Equation, Op, ShapedArray, Var, define_op
from shardwise.ir.op import Params, Types
from shardwise.runtime.env import Env
from shardwise.sharding.rule import Rule

_FIRST = 1  # the operand that has the positions; the ops that take columns have it there


def with_columns(eqn: Equation, columns: tuple[Atom, ...]) -> Equation:
    """An equation of an op that takes columns, with these in the place of the operand that joins them."""
    before, after = eqn.inputs[:_FIRST], eqn.inputs[_FIRST + 1 :]
    params = {"of": eqn.op, "count": len(columns), "inner": tuple(eqn.params.items())}
    op = written_at_columns if eqn.op.updates else read_at_columns
    return Equation(op, (*before, *columns, *after), eqn.outputs, params, eqn.source)


def joined_operand(eqn: Equation) -> Var | None:
    """The operand with the positions, of an equation of an op that takes columns."""
    atom = eqn.inputs[_FIRST] if eqn.op.columns is not None else None
    return atom if isinstance(atom, Var) else None


def join_columns(op: Op, params: Params, types: Types) -> tuple[Op, Params, Types]:
    """The equivalent of an op with columns: the op at joined columns, its params and the types of its operands. Other ops as they are."""
    if op not in (read_at_columns, written_at_columns):
        return op, params, types
    return params["of"], dict(params["inner"]), _join_columns(types, params["count"])


def _join_columns(types: Types, count: int) -> Types:
    """The types of the operands with the columns joined."""
    vectors = types[_FIRST].update(shape=(*types[_FIRST].shape[:-1], count))
    return (*types[:_FIRST], vectors, *types[_FIRST + count :])


def _type(*types: ShapedArray, of: Op, count: int, inner: Any) -> ShapedArray:
    return of.type_rule(*_join_columns(types, count), **dict(inner))


def _rule(ins: Types, outs: Types, params: Params) -> Rule:
    count = params["count"]
    rule = params["of"].sharding_rule(_join_columns(ins, count), outs, dict(params["inner"]))
    column = (*rule.inputs[_FIRST][:-1], ())
    return replace(rule, inputs=(*rule.inputs[:_FIRST], *[column] * count, *rule.inputs[_FIRST + 1 :]))


def _element_read(eqn: Equation) -> ElementRead | None:
    op, params, _ = join_columns(eqn.op, eqn.params, tuple(a.aval for a in eqn.inputs))
    return (
        None if op.element_read is None else op.element_read(Equation(op, eqn.inputs, eqn.outputs, params, eqn.source))
    )


def _compile(env: Env, in_types: Types, out_types: Types, params: Params) -> Callable[..., Any]:
    del in_types, out_types
    columns = params["of"].columns
    assert columns is not None
    return columns(env, dict(params["inner"]))


_FIELDS: dict[str, Any] = {"type_rule": _type, "compile": _compile, "rule": _rule}
read_at_columns = define_op("read_at_columns", extracts="copies", element_read=_element_read, **_FIELDS)
written_at_columns = define_op("written_at_columns", updates=True, **_FIELDS)
