"""Simplification of per-device programs: equal equations once, dead ones never, cheaper forms, all-reduce folded into its producer."""

from __future__ import annotations

from typing import Any

from shardwise.ir import (
    Absorbed,
    Atom,
    Equation,
    Literal,
    Program,
    Var,
    exact_items,
    live_equations,
    map_equations,
    map_programs,
)
from shardwise.ir.types import Axes


def simplify(program: Program, crossing: frozenset[str] = frozenset()) -> Program:
    """The same program with less to do, loop bodies and branches too. `crossing` are axes that lie across processes: sums over
    them stay equations where their producer cannot add up between processes."""
    return _simplified(program, crossing, {})


def _simplified(program: Program, crossing: frozenset[str], done: dict[Program, Program]) -> Program:
    """`done` keeps what was made of inner programs, so that equations that shared one still do."""
    if program not in done:
        inner = cheaper_forms(
            map_equations(program, lambda e: map_programs(e, lambda p: _simplified(p, crossing, done)))
        )
        merged = live_equations(common_subexpressions(inner))
        done[program] = fold_all_reduce(merged, crossing)
    return done[program]


def cheaper_forms(program: Program) -> Program:
    """Put in an equation's place what its op would rather have run (`Op.rewrite`)."""
    if all(e.op.rewrite is None for e in program.equations):
        return program
    names: dict[Var, Atom] = {}
    equations: list[Equation] = []

    def read(a: Atom) -> Atom:
        return a if isinstance(a, Literal) else names.get(a, a)

    for eqn in program.equations:
        eqn = Equation(eqn.op, tuple(map(read, eqn.inputs)), eqn.outputs, eqn.params, eqn.source)
        cheaper: Program | None = eqn.op.rewrite(eqn) if eqn.op.rewrite is not None else None
        if cheaper is None:
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
    kept = []

    def read(a: Atom) -> Atom:
        return a if isinstance(a, Literal) else replaced.get(a, a)

    for eqn in program.equations:
        inputs = tuple(read(a) for a in eqn.inputs)
        eqn = Equation(eqn.op, inputs, eqn.outputs, eqn.params, eqn.source)
        if eqn.op.has_effects(eqn.params):
            kept.append(eqn)
            continue
        try:
            key = (eqn.op, tuple(_key(a) for a in inputs), frozenset(exact_items(eqn.params)))
            first = seen.setdefault(key, eqn)
        except TypeError:  # params that do not hash
            first = eqn
        if first is eqn:
            kept.append(eqn)
        else:
            replaced.update(zip(eqn.outputs, first.outputs, strict=True))
    return Program(
        program.inputs, tuple(kept), tuple(read(a) for a in program.outputs), program.num_consts, program.name
    )


def _key(atom: Atom) -> Any:
    return (atom.aval, atom.value.tobytes()) if isinstance(atom, Literal) else atom


def fold_all_reduce(program: Program, crossing: frozenset[str] = frozenset()) -> Program:
    """The reduction over mesh axes right after an op that can do it itself (it has a param `sum_axes`) joins it.

    A collective that is a reduction and something after it (a reduce-scatter is one of which each device keeps its own part) does so
    where no axis lies across processes.
    """
    uses: dict[Var, int] = {}
    for eqn in program.equations:
        for atom in eqn.inputs:
            if isinstance(atom, Var):
                uses[atom] = uses.get(atom, 0) + 1
    for atom in program.outputs:
        if isinstance(atom, Var):
            uses[atom] = uses.get(atom, 0) + 2
    producer: dict[Var, int] = {}
    equations: list[Equation | None] = []
    for eqn in program.equations:
        reduction = _as_reduction(eqn)
        made = producer.get(eqn.inputs[0]) if reduction is not None and isinstance(eqn.inputs[0], Var) else None
        maker = equations[made] if made is not None else None
        if (
            reduction is None
            or maker is None
            or made is None
            or uses.get(maker.outputs[0]) != 1
            or not _joins(eqn.params["axes"], reduction, maker, crossing)
        ):
            equations.append(eqn)
        else:
            equations[made] = None
            axes, result = eqn.params["axes"], eqn.outputs[0]
            if reduction.rest is not None:
                whole = maker.outputs[0].aval
                result = Var(whole.update(vma=whole.vma - set(axes)))
            params = {**maker.params, "sum_axes": axes}
            equations.append(Equation(maker.op, maker.inputs, (result,), params, maker.source))
            if reduction.rest is not None:
                rest, own = reduction.rest
                equations.append(Equation(rest, (result,), eqn.outputs, dict(own), eqn.source))
        for var in eqn.outputs:
            producer[var] = len(equations) - 1
    kept = tuple(e for e in equations if e is not None)
    return Program(program.inputs, kept, program.outputs, program.num_consts, program.name)


def _as_reduction(eqn: Equation) -> Absorbed | None:
    collective = eqn.op.collective
    return None if collective is None or collective.absorbed is None else collective.absorbed(eqn.params)


def _joins(axes: Axes, reduction: Absorbed, maker: Equation, crossing: frozenset[str]) -> bool:
    """Whether a reduction over mesh axes can be done by the op that made what is reduced."""
    if (
        maker.op.absorbs is None
        or maker.params.get("sum_axes")
        or reduction.kind != maker.op.reduction_of(maker.params)
    ):
        return False
    if not crossing.isdisjoint(axes) and (maker.op.across is None or reduction.rest is not None):
        return False
    return set(axes) <= set().union(*[a.aval.vma for a in maker.inputs])
