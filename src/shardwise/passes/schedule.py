"""Scheduling: elementwise equations and reductions that can run as one loop over memory become one equation, `fused`.

Comes in: a per-device program and the sizes of its grid. Goes out: the same program with its groups replaced, ordered so that each
value is made before it is used. Programs too small to gain anything stay unchanged.

Groups are found by stages. The stage of an equation is the length of the longest path to it from the inputs; an edge costs 1 unless
both ends are fusable and of one kind (see `_kinds`). Connected fusable equations of one kind and stage form a group, and so do
equations that read the same large value. A path that leaves a group and returns would have cost a step, so no cycle arises between
groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from shardwise.ir import Equation, Literal, Loop, Program, Var, live_equations, map_equations, map_programs, region_of
from shardwise.ops.indexing.element_reads import copies_elements, is_read
from shardwise.passes.parts import Part, makers, order_parts, users
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.fused import IterationSpace, fits, fused, joined_pieces, reads_elements, space_of
from shardwise.runtime.machine import TYPES, available


def schedule(program: Program, env: Env) -> Program:
    """`program` with those groups of fusable equations fused that are large enough and can be compiled."""
    program = map_large(live_equations(program), env, lambda inner: schedule(inner, env))
    kinds = _kinds(program, env)
    if not any(k is not None for k in kinds):
        return program
    parts = _parts(program, kinds)
    while outside := [i for part in parts for i in _outside(program, part, kinds, env)]:
        for i in outside:
            kinds[i] = _kind(program.equations[i], env)
        parts = _parts(program, kinds)
    if all(len(p.members) == 1 and not _worth(program, p.members) for p in parts):
        return program
    result_vars = {v for v in program.outputs if isinstance(v, Var)}
    used = users(program)
    equations = []
    for part in order_parts(program, parts):
        members = [program.equations[i] for i in part.members]
        kind = kinds[part.members[0]]
        space, fusable = _loops(members, kind, env) if kind is not None else (None, False)
        if fusable and _worth(program, part.members):
            equations.append(_fuse(members, set(part.members), result_vars, used, space))
        else:
            equations.extend(members)
    return Program(program.inputs, tuple(equations), program.outputs, program.num_consts, program.name)


def map_large(program: Program, env: Env, change: Callable[[Program], Program]) -> Program:
    """`program` with its inner programs changed, except those of loops that a later pass compiles as a whole."""

    def map_equation(eqn: Equation) -> Equation:
        if isinstance(region_of(eqn), Loop):
            from shardwise.passes.small import runs_small  # start-up time: the writer of small programs

            if runs_small(eqn, env):
                return eqn
        return map_programs(eqn, change)

    return map_equations(program, map_equation)


# -- kinds -----------------------------------------------------------------------------------------------------------


def _kinds(program: Program, env: Env) -> list[Any]:
    """The kind of each equation, equal within a group; None for equations that are never fused.

    Reductions come first: equations that are connected with one and can run in its loops have its kind, an `IterationSpace`. Other
    elementwise equations have one kind if their shapes and varying axes are equal.
    """
    equations, spread = program.equations, env.spread
    kinds: list[Any] = [None] * len(equations)
    producers, used = makers(program), users(program)
    for i, eqn in enumerate(equations):
        space = space_of(eqn) if kinds[i] is None and available() else None  # without the compiler nothing is gained
        if (
            space is None
            or spread.elements(eqn.inputs[0].aval) < costs.FUSED_FEWEST
            or (space.crossed and env.processes is not None)
        ):
            continue
        stack = [i]
        kinds[i] = space
        while stack:
            one = equations[stack.pop()]
            near = [producers[a] for a in one.inputs if isinstance(a, Var) and a in producers]
            near += [j for v in one.outputs for j in used.get(v, ())]
            for j in near:
                if kinds[j] is None and space.takes(equations[j]):
                    kinds[j] = space
                    stack.append(j)
    return [_kind(e, env) if k is None else k for e, k in zip(equations, kinds, strict=True)]


def _kind(eqn: Equation, env: Env) -> Any:
    """The kind of an elementwise equation."""
    emit = eqn.op.emit
    if emit is None:
        return (eqn.outputs[0].aval.shape, eqn.outputs[0].aval.vma) if _reads(eqn) or _read_apart(eqn, env) else None
    if emit.moves:
        return None
    out = eqn.outputs[0].aval
    if env.spread.elements(out) < costs.FUSED_FEWEST or not all(fits(a.aval, emit.kinds) for a in eqn.inputs):
        return None
    if out.dtype.name not in TYPES or all(isinstance(a, Literal) for a in eqn.inputs) or _rounds_twice(eqn):
        return None
    return out.shape, out.vma


def _reads(eqn: Equation) -> bool:
    """Whether the equation reads elements of a table at positions, and loops can do so."""
    return bool(eqn.outputs) and reads_elements(eqn)


def _read_apart(eqn: Equation, env: Env) -> bool:
    """Whether loops read the pieces of the result in place. Pieces of other processes cannot be read."""
    if not eqn.outputs or env.spread.elements(eqn.outputs[0].aval) <= costs.FUSED_FEWEST:
        return False  # left to `small`
    here = eqn.op.collective is None or env.processes is None
    return here and joined_pieces(eqn) is not None and available()


def _shape(kind: Any) -> tuple[int, ...]:
    """The full shape of a group's loops."""
    return kind.shape if isinstance(kind, IterationSpace) else kind[0]


def _rounds_twice(eqn: Equation) -> bool:
    """Whether vector code would round a result of float64 to float32 before it becomes float16."""
    return eqn.outputs[0].aval.dtype.name == "float16" and any(a.aval.dtype.name == "float64" for a in eqn.inputs)


def _loops(members: Sequence[Equation], kind: Any, env: Env) -> tuple[IterationSpace | None, bool]:
    """The loops of a group (None: elementwise loops over its whole shape), and whether it can be fused at all."""
    if not isinstance(kind, IterationSpace):
        return None, True
    if any(e.op.fold is not None for e in members):
        return kind, True
    if any(e.op.emit is not None and e.op.emit.moves for e in members):
        return kind, any(kind.is_full(e.outputs[0].aval) for e in members)
    types = {(e.outputs[0].aval.shape, e.outputs[0].aval.vma) for e in members}
    if len(types) > 1:
        return kind, True
    return None, env.spread.elements(members[0].outputs[0].aval) >= costs.FUSED_FEWEST


def _outside(program: Program, part: Part, kinds: Sequence[Any], env: Env) -> Sequence[int]:
    """The members of a part that has the kind of a reduction, but cannot run in its loops: it has nothing to reduce."""
    kind = kinds[part.members[0]]
    if not isinstance(kind, IterationSpace):
        return ()
    return () if _loops([program.equations[i] for i in part.members], kind, env)[1] else part.members


def _worth(program: Program, members: Sequence[int]) -> bool:
    """Whether a group computes anything, or reads elements: other copies alone gain nothing."""
    equations = [program.equations[i] for i in members]
    return any(e.op.fold is not None or (e.op.emit is not None and e.op.emit.cost) or _copies(e) for e in equations)


def _copies(eqn: Equation) -> bool:
    read = eqn.params["read"] if eqn.op.at_positions else None
    return read is not None and copies_elements(read, eqn.inputs[0].aval, eqn.outputs[0].aval.shape)


# -- groups ----------------------------------------------------------------------------------------------------------


def _parts(program: Program, kinds: Sequence[Any]) -> list[Part]:
    stages = _stages(program, kinds)
    leader = list(range(len(kinds)))

    def find(i: int) -> int:
        while leader[i] != i:
            leader[i] = leader[leader[i]]
            i = leader[i]
        return i

    producers = makers(program)
    readers: dict[Any, int] = {}
    for i, eqn in enumerate(program.equations):
        if kinds[i] is None:
            continue
        for atom in eqn.inputs:
            if not isinstance(atom, Var):
                continue
            j = producers.get(atom)
            if j is not None and kinds[j] == kinds[i] and stages[j] == stages[i]:
                leader[find(i)] = find(j)
            elif atom.aval.shape == _shape(kinds[i]):  # a group reads a shared large value once
                first = readers.setdefault((atom, kinds[i], stages[i]), i)
                leader[find(i)] = find(first)
    groups: dict[int, list[int]] = {}
    for i in range(len(kinds)):
        groups.setdefault(find(i), []).append(i)
    return [Part(piece) for group in groups.values() for piece in _pieces(program, group)]


def _pieces(program: Program, group: Sequence[int]) -> list[tuple[int, ...]]:
    """A group in program order, cut where few of its values are made before and read behind: these go through memory.

    It may be cut anywhere, since no piece depends on a later one. Short pieces are better as long as little crosses a cut.
    """
    pieces: list[tuple[int, ...]] = []
    last_reads = _last_reads(program, group) if len(group) > costs.FUSED_GROUP else {}
    while len(group) > costs.FUSED_GROUP:
        count, across = 0, [0]  # values that cross a cut behind so many equations
        ends = Counter[int]()
        for i in group[: costs.FUSED_GROUP_MOST]:
            last = last_reads.get(i, i)
            ends[last] += last > i
            count += (last > i) - ends[i]
            across.append(count)
        cut = min(range(costs.FUSED_GROUP, costs.FUSED_GROUP // 2, -1), key=across.__getitem__)
        if across[cut] > costs.FUSED_CUT_VALUES:
            cut = min(range(len(across) - 1, 0, -1), key=lambda k: across[k] / k)
        pieces.append(tuple(group[:cut]))
        group = group[cut:]
    return [*pieces, tuple(group)] if group else pieces


def _last_reads(program: Program, group: Sequence[int]) -> dict[int, int]:
    """By number the last equation of the group that reads the result of an equation of the group."""
    maker_of = {v: i for i in group for v in program.equations[i].outputs}
    reads = (
        (maker_of[a], j) for j in group for a in program.equations[j].inputs if isinstance(a, Var) and a in maker_of
    )
    return dict(reads)


def _stages(program: Program, kinds: Sequence[Any]) -> list[int]:
    """The stage of each equation: as early as possible, then moved to the stage of its users if they all share a later one.

    What is never fused and needs nothing that is, such as a constant, comes before the first stage.
    """
    producers, used = makers(program), users(program)
    equations = program.equations
    stages: list[int] = []
    effects = -1  # the stage of the last equation with effects: these keep their order

    def step(i: int, j: int, value: Var) -> int:
        """The cost of the edge from equation i to its user j, by this value. Pieces of joined values, and tables, come from outside
        the group.
        """
        op = equations[j].op
        if kinds[i] is None and kinds[j] is None:
            return 0
        joins = op.emit is None and op.fold is None and not op.at_positions
        return int(kinds[i] != kinds[j] or joins or is_read(equations[j], value))

    for i, eqn in enumerate(equations):
        stage = -1 if kinds[i] is None else 0
        for atom in eqn.inputs:
            if isinstance(atom, Var) and atom in producers:
                j = producers[atom]
                stage = max(stage, stages[j] + step(j, i, atom))
        if eqn.op.has_effects(eqn.params):
            stage = effects = max(stage, effects)
        stages.append(stage)
    result_vars = {v for v in program.outputs if isinstance(v, Var)}
    for i in reversed(range(len(equations))):
        out = equations[i].outputs
        if kinds[i] is None or out[0] in result_vars or not used.get(out[0]):
            continue
        reader_stages = {None if step(i, j, out[0]) else stages[j] for j in used[out[0]]}
        later = reader_stages.pop()
        if not reader_stages and later is not None:
            stages[i] = later
    return stages


# -- the new program -------------------------------------------------------------------------------------------------


def _fuse(
    members: Sequence[Equation],
    numbers: set[int],
    kept: set[Var],
    used: dict[Var, list[int]],
    space: IterationSpace | None,
) -> Equation:
    """One equation for a group. Its inputs are the values from outside; its results are the values used outside."""
    inside = {e.outputs[0] for e in members}
    inputs = tuple(dict.fromkeys(a for e in members for a in e.inputs if isinstance(a, Var) and a not in inside))
    outputs = tuple(
        e.outputs[0] for e in members if e.outputs[0] in kept or not numbers.issuperset(used.get(e.outputs[0], ()))
    )
    group = Program(inputs, tuple(members), outputs, 0, "fused")
    params = {"program": group} if space is None else {"program": group, "space": space}
    return Equation(fused, inputs, outputs, params, members[-1].source)
