"""Small programs: connected equations over small values, loops and branches included, become one equation, `small`.

Comes in: a scheduled per-device program and the `Env` of its grid. Goes out: the same program with its regions replaced if that
pays. A NumPy call costs as much as a hundred additions, so many ops on few elements are worth compiling, a few ops are not.

A region is the set of connected equations of one stage. The stage of an equation is the length of the longest path to it from the
inputs; an edge costs 1 unless both ends are writable. A path that leaves a region and returns would have cost a step.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from shardwise.ir import Equation, Loop, Program, Spread, Var, map_programs, region_of, rounds_of
from shardwise.passes.parts import Part, calls_replaced, makers, numpy_calls, order_parts, users
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.small import available, carry_updates, small, writable

Group = tuple[int, ...]


def find_small(program: Program, env: Env) -> Program:
    """`program` with each small region as one equation, in loops and branches too."""
    if not _compiles(env):
        return program
    return _with_regions(program, env.spread, costs.SMALL_FEWEST)


def runs_small(eqn: Equation, env: Env) -> bool:
    """Whether a small program can hold the equation."""
    return _compiles(env) and writable(eqn, env.spread)


def _compiles(env: Env) -> bool:
    return not env.extra and env.processes is None and available()


def _with_regions(program: Program, spread: Spread, fewest: int, touched: Collection[Var] = ()) -> Program:
    """`touched`: values that only windows of are written, over another value."""
    equations = program.equations
    fit = [writable(e, spread, any(v in touched for v in e.outputs)) for e in equations]
    groups = _groups(program, fit)
    worth = {g for g in groups if fit[g[0]] and sum(_weight(equations[i], spread) for i in g) >= fewest}
    # Groups that are not worth compiling stay unchanged, except those with many NumPy calls in the kernels of their ops. The first calls of
    # such a group run in NumPy, so its ops must give the same bits in both.
    many = [f and numpy_calls(e, spread) >= costs.SMALL_FEWEST for e, f in zip(equations, fit, strict=True)]
    joined = {g for g in groups if fit[g[0]] and g not in worth and _joins(equations, many, g, spread)}
    groups = [part for g in groups for part in ((g,) if g in worth or g in joined else [(i,) for i in g])]
    patient = joined | {g for g in groups if g not in worth and any(many[i] for i in g)}
    worth |= patient
    inside = {i: _with_inner_regions(equations[i], spread, fewest) for g in groups if g not in worth for i in g}
    if not worth and all(new is equations[i] for i, new in inside.items()):
        return program
    last = {a: i for i, e in enumerate(equations) for a in e.inputs if isinstance(a, Var)}
    last.update((v, len(equations)) for v in program.outputs if isinstance(v, Var))
    used = users(program)
    out: list[Equation] = []
    for part in order_parts(program, [Part(g) for g in groups]):
        g = part.members
        if g in worth:
            region_equations = {
                v
                for i in g
                for v in equations[i].outputs
                if last.get(v) == len(equations) or any(k not in g for k in used.get(v, ()))
            }
            out.append(_region([equations[i] for i in g], region_equations, g in patient))
        else:
            out.extend(inside[i] for i in g)
    return Program(program.inputs, tuple(out), program.outputs, program.num_consts, program.name)


def _with_inner_regions(eqn: Equation, spread: Spread, fewest: int) -> Equation:
    """The equation with regions in its inner programs."""
    region = region_of(eqn)
    if region is None:
        return eqn
    enough = costs.SMALL_FEWEST_IN_LOOPS if isinstance(region, Loop) else fewest
    chains = carry_updates(region, spread) if isinstance(region, Loop) else ()
    chain_values = {v for chain in chains for v in chain}
    return map_programs(eqn, lambda p: _with_regions(p, spread, enough, chain_values))


def _joins(equations: Sequence[Equation], many: Sequence[bool], group: Group, spread: Spread) -> bool:
    """Whether a group with many NumPy calls becomes one region: kernels and machine code must give the same bits."""
    calls = sum(numpy_calls(equations[i], spread) for i in group if not equations[i].op.view)
    return calls >= costs.SMALL_FEWEST and all(many[i] or _same_bits(equations[i]) for i in group)


def _same_bits(eqn: Equation) -> bool:
    """Whether the op's kernel and its machine code round equally: moves and arithmetic do, transcendentals and long sums do not."""
    op = eqn.op
    return op.view or op.hands_on or op.boxes is not None or (op.emit is not None and not op.transcendental)


def _weight(eqn: Equation, spread: Spread) -> float:
    """The number of NumPy calls that an equation on such devices replaces."""
    region, rounds = region_of(eqn), rounds_of(eqn)
    inner = 0 if region is None else sum(_weight(e, spread) for p in region.programs for e in p.equations)
    if inner:
        return 1 + inner * (costs.SMALL_FEWEST if rounds is None else rounds)
    if eqn.op.view:
        return 0.5
    return calls_replaced(eqn, spread)


def _region(members: Sequence[Equation], kept: set[Var], patient: bool) -> Equation:
    """One equation for a region: its inputs are values from outside, its results the values in `kept`.

    `patient`: it is compiled only after some calls.
    """
    member_results = {v for e in members for v in e.outputs}
    inputs = tuple(
        dict.fromkeys(a for e in members for a in e.inputs if isinstance(a, Var) and a not in member_results)
    )
    outputs = tuple(v for e in members for v in e.outputs if v in kept)
    program = Program(inputs, tuple(members), outputs, 0, "small")
    source = next((e.source for e in reversed(members) if e.source), None)
    return Equation(small, inputs, outputs, {"program": program, "patient": patient}, source)


def _groups(program: Program, fit: Sequence[bool]) -> list[Group]:
    """Writable equations grouped by stage, in pieces of bounded size; each other equation alone."""
    producers = makers(program)
    stages: list[int] = []
    effects = 0  # the stage of the last equation with effects: these keep their order
    for i, eqn in enumerate(program.equations):
        sources = [producers[a] for a in eqn.inputs if isinstance(a, Var) and a in producers]
        stage = max((stages[j] + (not (fit[i] and fit[j])) for j in sources), default=0)
        if eqn.op.has_effects(eqn.params):
            stage = effects = max(stage, effects)
        stages.append(stage)
    members_by_group: dict[tuple[int, int], list[int]] = {}
    for i, stage in enumerate(stages):
        members_by_group.setdefault((stage, -1 if fit[i] else i), []).append(i)
    return [
        tuple(g[k : k + costs.SMALL_REGION])
        for g in members_by_group.values()
        for k in range(0, len(g), costs.SMALL_REGION)
    ]
