"""The leading extents of the values of a small program: over which dims of the device grid, or of `vmap`, each of them varies."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardwise.base.shapes import Shape
from shardwise.ir import Branches, Equation, Literal, Loop, Op, Program, Var, is_update, region_of
from shardwise.runtime.env import Env
from shardwise.runtime.small.code import Value


def out_leads(program: Program, leads: Sequence[Shape], env: Env) -> list[Shape]:
    """The leading extents of a program's outputs, for those of its inputs."""
    lead = env.lead
    if not lead:
        return [()] * len(program.outputs)
    known: dict[object, Shape] = dict(zip(program.inputs, leads, strict=True))

    def of(atom: object) -> Shape:
        return (1,) * lead if isinstance(atom, Literal) else known[atom]

    for eqn in program.equations:
        given = [of(a) for a in eqn.inputs]
        for var, ext in zip(eqn.outputs, leads_through(eqn, given, env), strict=True):
            known[var] = ext
    return [of(a) for a in program.outputs]


def entry_of(eqn: Equation) -> Equation:
    """The equation of an op under `vmap` for one entry of the mapped operands."""
    params = eqn.params
    inputs = tuple(
        Var(a.aval.update(shape=a.aval.shape[1:])) if m else a
        for a, m in zip(eqn.inputs, params["mapped"], strict=True)
    )
    outputs = tuple(Var(v.aval.update(shape=v.aval.shape[1:])) for v in eqn.outputs)
    return Equation(params["mapped_op"], inputs, outputs, dict(params["inner"]), eqn.source)


def leads_through(eqn: Equation, given: list[Shape], env: Env) -> list[Shape]:
    """The leading extents of an equation's results, for those of its operands."""
    if isinstance(eqn.params.get("mapped_op"), Op):
        return leads_through(entry_of(eqn), given, env)
    region = region_of(eqn)
    if isinstance(region, Branches):
        return [
            np.broadcast_shapes(*e) for e in zip(*[out_leads(p, given[1:], env) for p in region.programs], strict=True)
        ]
    if isinstance(region, Loop):
        consts, rows = given[region.consts], given[region.rows]
        carry = _settled_leads(region.body, consts, given[region.carry], rows, env)
        return [*carry, *out_leads(region.body, [*consts, *carry, *rows], env)[len(carry) :]]
    if eqn.op.hands_on:
        return given
    if eqn.op.collective is not None or not eqn.inputs:
        like = [np.broadcast_to(np.int8(0), ext + a.aval.shape) for ext, a in zip(given, eqn.inputs, strict=True)]
        return [eqn.op.block_kernel(env, *like, **eqn.params).shape[: env.lead]]
    whole = list(np.broadcast_shapes((1,) * env.lead, *given))
    for axis in axes_reduced(eqn):
        whole[env.dim(axis)] = 1
    for axis in _axes_parted(eqn):
        whole[env.dim(axis)] = env.extent(axis)
    return [tuple(whole)] * len(eqn.outputs)


def axes_reduced(eqn: Equation) -> tuple[str, ...]:
    """The mesh axes over which an equation reduces: a collective's own, or those of a reduction that another op absorbed."""
    collective = eqn.op.collective
    if collective is None:
        return tuple(eqn.params.get("sum_axes") or ()) if eqn.op.absorbs is not None or eqn.op.crosses else ()
    return eqn.params["axes"] if collective.absorbed is not None and collective.absorbed(eqn.params) is not None else ()


def _axes_parted(eqn: Equation) -> tuple[str, ...]:
    """The mesh axes along which each device makes its part of what operands say alone, such as random bits, or updates of its rows."""
    params = eqn.params
    parted = params.get("operand_axes" if is_update(eqn) else "shard_axes") or ()
    return tuple(a for axes in parted for a in axes)


def _settled_leads(body: Program, consts: list[Shape], carry: list[Shape], rows: list[Shape], env: Env) -> list[Shape]:
    while True:
        after = out_leads(body, [*consts, *carry, *rows], env)[: len(carry)]
        wider = [np.broadcast_shapes(a, b) for a, b in zip(carry, after, strict=True)]
        if wider == carry:
            return carry
        carry = wider


def carry_shapes(loop: Loop, values: Sequence[Value], env: Env) -> list[Shape]:
    """The shapes of a loop's carries in all rounds: leading extents grow until no round changes them."""
    lead = env.lead
    given = [v.shape[:lead] for v in values]
    first = given[loop.carry]
    leads = _settled_leads(loop.body, given[loop.consts], first, given[loop.rows], env) if lead else first
    variables = loop.body.inputs[loop.num_consts : loop.num_consts + loop.num_carry]
    return [ext + v.aval.shape for ext, v in zip(leads, variables, strict=True)]
