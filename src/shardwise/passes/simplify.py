"""Simplification of per-device programs: merge equal equations, drop dead ones, use cheaper forms."""

from __future__ import annotations

from typing import Any

from shardwise.ir import (
    Atom,
    Branches,
    Equation,
    Literal,
    Loop,
    Program,
    ProgramMap,
    Var,
    exact_items,
    region_of,
)
from shardwise.passes.live_results import LiveResults


def simplify(program: Program) -> Program:
    """The same program simplified, loop bodies and branches included."""
    live = LiveResults()
    simplified = ProgramMap(lambda p: live(common_subexpressions(cheaper_forms(simplified.inside(p)))))
    return simplified.of(program)


def cheaper_forms(program: Program) -> Program:
    """Replace equations by the cheaper forms that their ops offer (`Op.rewrite`)."""
    if all(e.op.rewrite is None for e in program.equations):
        return program
    names: dict[Var, Atom] = {}
    equations: list[Equation] = []
    # Equations that their op keeps, by id of the params: it keeps equal equations of later layers too. The values keep the params.
    kept: dict[Any, Equation] = {}

    def read(a: Atom) -> Atom:
        return a if isinstance(a, Literal) else names.get(a, a)

    for eqn in program.equations:
        if not names.keys().isdisjoint(eqn.inputs):
            eqn = Equation(eqn.op, tuple(map(read, eqn.inputs)), eqn.outputs, eqn.params, eqn.source)
        if eqn.op.rewrite is None:
            equations.append(eqn)
            continue
        key = (eqn.op, id(eqn.params), tuple([a.aval for a in eqn.inputs]))
        cheaper: Program | None = None if key in kept else eqn.op.rewrite(eqn)
        if cheaper is None:
            kept.setdefault(key, eqn)
            equations.append(eqn)
            continue
        names.update(zip(cheaper.inputs, eqn.inputs, strict=True))
        for e in cheaper.equations:
            equations.append(Equation(e.op, tuple(map(read, e.inputs)), e.outputs, e.params, e.source or eqn.source))
        names.update(zip(eqn.outputs, map(read, cheaper.outputs), strict=True))
    outputs = tuple(map(read, program.outputs))
    return Program(program.inputs, tuple(equations), outputs, program.num_consts, program.name)


def common_subexpressions(program: Program) -> Program:
    """Merge equations with the same op, params and operands."""
    replaced: dict[Var, Atom] = {}
    seen: dict[Any, Equation] = {}
    kept: list[Equation] = []
    # Equal params share a number. Many equations have the same params object, which the equation keeps alive.
    numbers: dict[Any, int] = {}
    number_of: dict[int, int] = {}

    def read(a: Atom) -> Atom:
        return a if isinstance(a, Literal) else replaced.get(a, a)

    for eqn in program.equations:
        inputs = eqn.inputs
        if not replaced.keys().isdisjoint(inputs):
            inputs = tuple(map(read, inputs))
            eqn = Equation(eqn.op, inputs, eqn.outputs, eqn.params, eqn.source)
        if eqn.op.has_effects(eqn.params):
            kept.append(eqn)
            continue
        try:
            params = number_of.get(id(eqn.params))
            if params is None:
                params = number_of[id(eqn.params)] = numbers.setdefault(
                    frozenset(exact_items(eqn.params)), len(numbers)
                )
            key = (eqn.op, params, *[a if type(a) is Var else _key(a) for a in inputs])
            first = seen.setdefault(key, eqn)
        except TypeError:  # params that do not hash
            first = eqn
        if first is eqn:
            kept.append(eqn)
            if eqn.op.region is not None:
                replaced.update(_equal_results(eqn))
        else:
            replaced.update(zip(eqn.outputs, first.outputs, strict=True))
    return Program(
        program.inputs, tuple(kept), tuple(read(a) for a in program.outputs), program.num_consts, program.name
    )


def _equal_results(eqn: Equation) -> dict[Var, Atom]:
    """Results of a loop or of branches that equal earlier ones: those that all its programs give twice."""
    region = region_of(eqn)
    if isinstance(region, Branches):
        columns, first = zip(*[p.outputs for p in region.programs], strict=True), 0
    elif isinstance(region, Loop) and region.test is None:
        columns, first = zip(region.body.outputs), region.num_carry  # a carry has a first value of its own
    else:
        return {}
    known: dict[Any, Var] = {}
    equal: dict[Var, Atom] = {}
    for i, (var, column) in enumerate(zip(eqn.outputs, columns, strict=True)):
        same = known.setdefault((var.aval, *map(_key, column)), var) if i >= first else var
        if same is not var:
            equal[var] = same
    return equal


def _key(atom: Atom) -> Any:
    return (atom.aval, atom.value.tobytes()) if isinstance(atom, Literal) else atom
