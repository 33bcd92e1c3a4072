"""Values that policies of `checkpoint` keep inside of loops and branches: a loop stacks those of its rounds, a branch gives its own.

In: an equation that runs programs, and a policy's choice for the equations inside. Out: `Inside`, the equation that also gives the kept
values, and the equation that takes them: there `recalled` equations stand for the equations whose results were kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import (
    Branches,
    Equation,
    Loop,
    Program,
    Var,
    bind,
    define_op,
    infer_types,
    region_of,
    splice,
    trace_program,
    tracing,
)
from shardwise.ir.op import Op
from shardwise.ops.rules.derivative import full_cotangent
from shardwise.transforms.interpreters.jvp import JVPTrace, JVPTracer

Keeps = Callable[[Equation], Any]


@dataclass(frozen=True, slots=True)
class Inside:
    """An equation with kept values inside.

    Attributes:
        forward: gives them after its results.
        again: takes them after its operands, as `given`.
        given: their variables there.
        verdicts: the policy's answer for each.
    """

    forward: Equation
    again: Equation
    given: tuple[Var, ...]
    verdicts: tuple[Any, ...]

    @property
    def saved(self) -> tuple[Var, ...]:
        """The kept values in `forward`."""
        return self.forward.outputs[len(self.again.outputs) :]


@dataclass(frozen=True, slots=True)
class _Body:
    """A program likewise: `forward` has more results, `again` more inputs."""

    forward: Program
    again: Program
    verdicts: tuple[Any, ...]

    @property
    def saved(self) -> tuple[Var, ...]:
        """The kept values in `again`."""
        return self.again.inputs[len(self.again.inputs) - len(self.verdicts) :]


def keep_inside(eqn: Equation, keeps: Keeps) -> Inside | None:
    """The values that are kept inside of an equation; None if there are none, or it is no loop of a known length and no branch."""
    region = region_of(eqn)
    if isinstance(region, Branches):
        return _branches(eqn, region, keeps)
    if isinstance(region, Loop) and region.test is None:
        body = _body(region.body, keeps)
        return (
            None if body is None else _put(eqn, {region.body: body.forward}, {region.body: body.again}, body.verdicts)
        )
    return None


def _put(eqn: Equation, first: dict[Any, Any], later: dict[Any, Any], verdicts: Sequence[Any]) -> Inside:
    """The two equations, with other params in place of those that are keys."""

    def replace_places(places: dict[Any, Any]) -> dict[str, Any]:
        return {k: next((new for old, new in places.items() if old is v), v) for k, v in eqn.params.items()}

    params = replace_places(first)
    types = infer_types(eqn.op, tuple(a.aval for a in eqn.inputs), params)
    saved_vars = tuple(Var(t) for t in types[len(eqn.outputs) :])
    given = tuple(Var(v.aval) for v in saved_vars)
    forward = Equation(eqn.op, eqn.inputs, (*eqn.outputs, *saved_vars), params, eqn.source)
    again = Equation(eqn.op, (*eqn.inputs, *given), eqn.outputs, replace_places(later), eqn.source)
    return Inside(forward, again, given, tuple(verdicts))


def _branches(eqn: Equation, region: Branches, keeps: Keeps) -> Inside | None:
    """Each branch gives the kept values of all, zeros for those of the others."""
    split_bodies = [_body(p, keeps) for p in region.programs]
    if not any(split_bodies):
        return None
    bodies = [b or _Body(p, p, ()) for p, b in zip(region.programs, split_bodies, strict=True)]
    verdicts = [v for b in bodies for v in b.verdicts]
    firsts: list[Program] = []
    laters: list[Program] = []
    for i, body in enumerate(bodies):

        def fill_branch(*xs: Any, i: int = i, body: _Body = body) -> list[Any]:
            outs = splice(body.forward, xs)
            count = len(outs) - len(body.verdicts)
            own = outs[count:]
            return [*outs[:count], *[x for j, b in enumerate(bodies) for x in (own if j == i else map(_zero, b.saved))]]

        firsts.append(trace_program(fill_branch, body.forward.in_types, body.forward.name)[0])
        own = body.again.inputs[: len(body.again.inputs) - len(body.verdicts)]
        given = [v for b in bodies for v in (b.saved if b is body else [Var(s.aval) for s in b.saved])]
        program = body.again
        laters.append(Program((*own, *given), program.equations, program.outputs, program.num_consts, program.name))
    whole = next(v for v in eqn.params.values() if v is region.programs)
    return _put(eqn, {whole: tuple(firsts)}, {whole: tuple(laters)}, verdicts)


def _zero(var: Var) -> Any:
    return full_cotangent(var.aval)


def _body(program: Program, keeps: Keeps) -> _Body | None:
    """A program with its kept values; None if there are none."""
    first: list[Equation] = []
    later: list[Equation] = []
    saved_vars: list[Var] = []
    given: list[Var] = []
    verdicts: list[Any] = []
    is_changed = False
    for eqn in program.equations:
        inside = keep_inside(eqn, keeps)
        if inside is not None:
            first.append(inside.forward)
            later.append(inside.again)
            saved_vars += inside.saved
            given += inside.given
            verdicts += inside.verdicts
            is_changed = True
            continue
        first.append(eqn)
        verdict = keeps(eqn)
        if not verdict:
            later.append(eqn)
            continue
        if not eqn.outputs:  # such as a print, which is not done again
            is_changed = True
            continue
        known_vars = [Var(v.aval) for v in eqn.outputs]
        params = {"of": eqn.op, "given": tuple(sorted(eqn.params.items())), "count": len(known_vars)}
        later.append(Equation(recalled_op, (*known_vars, *eqn.inputs), eqn.outputs, params, eqn.source))
        saved_vars += eqn.outputs
        given += known_vars
        verdicts += [verdict] * len(known_vars)
    if not (verdicts or is_changed):
        return None
    rest = (program.num_consts, program.name)
    forward = Program(program.inputs, tuple(first), (*program.outputs, *saved_vars), *rest)
    return _Body(forward, Program((*program.inputs, *given), tuple(later), program.outputs, *rest), tuple(verdicts))


# -- results that are known ------------------------------------------------------------------------------------------------


def _jvp(
    primals: Sequence[Any], tangents: Sequence[Any], *, of: Op, given: tuple[tuple[str, Any], ...], count: int
) -> tuple[list[Any], list[Any]]:
    """The known results, with the tangents that the op gives them."""
    known_primals, own_tangents = list(primals[:count]), tangents[count:]
    if all(t is None for t in own_tangents):
        return known_primals, [None] * count
    trace = JVPTrace()
    with tracing(trace):
        entry_values = [
            p if t is None else JVPTracer(trace, p, t) for p, t in zip(primals[count:], own_tangents, strict=True)
        ]
        outs = bind(of, *entry_values, **dict(given))
    return known_primals, [trace.unwrap(o)[1] for o in (outs if of.multiple_results else [outs])]


def _inline(eqn: Equation) -> Program:
    inputs = tuple(Var(a.aval) for a in eqn.inputs)
    return Program(inputs, (), inputs[: eqn.params["count"]])


recalled_op = define_op(
    "recalled",
    type_rule=lambda *types, count, **_: types[:count],
    multiple_results=True,
    typed=True,
    jvp=_jvp,
    inline=_inline,
)
