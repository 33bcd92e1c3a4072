"""Calls with a custom rule whose forward rule has run: what policies of `checkpoint` see of them is what the forward rule computes.

In: an equation that calls a function with a `custom_vjp` rule. Out: the equations of its forward rule, and one that stands for the call:
its results are those of the forward rule, their tangents the backward rule's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.base.tree import PyTreeDef
from shardwise.ir import Equation, Program, ShapedArray, Var, bind, define_op
from shardwise.transforms.derivatives.custom_vjp import check_forward_types, custom_vjp_op, tangents_by_rule


def with_forward_rule(eqn: Equation, args: Sequence[Any]) -> list[Any] | None:
    """The results of a call with a custom rule, by its forward rule, whose equations are recorded one by one; then one of `ruled_op`.

    None for other equations, and for rules that ask which arguments are differentiated.
    """
    if eqn.op is not custom_vjp_op:
        return None
    params = eqn.params
    rules, given = params["rules"], args[params["count"] :]
    if rules.symbolic_zeros:
        return None
    note = [params["out_tree"]]
    outs, residuals, residual_tree = rules.forward(given, [True] * len(given), note)
    check_forward_types(rules, params, outs)
    return bind(
        ruled_op,
        *given,
        *outs,
        *residuals,
        rules=rules,
        residual_tree=residual_tree,
        out_tree=note[0],
        counts=(len(given), len(outs)),
    )


def _ruled_type(*types: ShapedArray, counts: tuple[int, int], **_: Any) -> tuple[ShapedArray, ...]:
    return types[counts[0] : sum(counts)]


def _ruled_inline(eqn: Equation) -> Program:
    inputs = tuple([Var(a.aval) for a in eqn.inputs])
    return Program(inputs, (), tuple(ruled_results(eqn, inputs)))


def ruled_results(eqn: Equation, operands: Sequence[Any]) -> Sequence[Any]:
    """The results of an equation of `ruled_op`, which are some of its operands."""
    start, count = eqn.params["counts"]
    return operands[start : start + count]


def _ruled_jvp(
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    rules: Any,
    residual_tree: PyTreeDef,
    out_tree: PyTreeDef,
    counts: tuple[int, int],
) -> tuple[list[Any], list[Any]]:
    """The tangents come from those of the arguments, by the backward rule; those of the forward rule's own equations count for nothing."""
    start, end = counts[0], sum(counts)
    outs = list(primals[start:end])
    if all(t is None for t in tangents[:start]):
        return outs, [None] * len(outs)
    return outs, tangents_by_rule(
        rules, residual_tree, out_tree, primals[:start], tangents[:start], outs, primals[end:]
    )


ruled_op = define_op(
    "custom_vjp_ruled",
    holds_functions=True,
    type_rule=_ruled_type,
    multiple_results=True,
    typed=True,
    jvp=_ruled_jvp,
    inline=_ruled_inline,
)
