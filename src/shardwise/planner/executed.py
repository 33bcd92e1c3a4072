"""Programs as our own engine runs them: a group per kernel of a scheduled program.

In: the program of an `Executable`'s plan, where fused loops, products with what follows them and small programs are equations. Out:
`Group`s, from which memory and time follow as for other targets. Nothing is decided here: the engine's own passes have done it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from shardwise.ir import Atom, Branches, Equation, Loop, Program, Var, is_update, region_of, unwrap_op
from shardwise.planner.passes import held_program, overwritable, passes_of
from shardwise.planner.roles import Role, role_of
from shardwise.planner.views import is_view, root_of, roots_of
from shardwise.planner.work import Group, Pass, heaviest
from shardwise.runtime.fused import fused

_KINDS = {Role.LIGHT: "fused", Role.FOLD: "fused", Role.UPDATE: "move", Role.OFFLOAD: "move", Role.VIEW: "move"}


def executed_groups(program: Program, sizes: Mapping[str, int], owned: Collection[int] = ()) -> tuple[Group, ...]:
    """The kernels of a scheduled program in their order; `sizes` are those of the mesh axes, `owned` the inputs that die with it.

    Reads are the values that own memory: views show a part of them.
    """
    roots = roots_of(program)
    dying_values = _dying_values(program, roots, owned)
    return tuple(
        _group(eqn, roots, sizes, dying_values.get(i, ()))
        for i, eqn in enumerate(program.equations)
        if eqn.outputs and not is_view(eqn)
    )


def _dying_values(program: Program, roots: Mapping[Var, Atom], owned: Collection[int]) -> dict[int, list[Var]]:
    """By the number of an equation the values that it is the last to use: no results, and of the inputs those `owned`."""
    last = {r: i for i, e in enumerate(program.equations) for a in e.inputs if isinstance(r := root_of(a, roots), Var)}
    kept_roots = {root_of(a, roots) for a in program.outputs}
    kept_roots.update(v for i, v in enumerate(program.inputs) if i not in owned)
    dying_by_place: dict[int, list[Var]] = {}
    for var, i in last.items():
        if var not in kept_roots:
            dying_by_place.setdefault(i, []).append(var)
    return dying_by_place


def _group(eqn: Equation, roots: Mapping[Var, Atom], sizes: Mapping[str, int], dying: Collection[Var]) -> Group:
    reads = tuple(dict.fromkeys([r for a in eqn.inputs if isinstance(r := root_of(a, roots), Var)]))
    region = region_of(eqn)
    over = _over(eqn, region, roots)
    if isinstance(region, Loop):
        carry = range(region.num_consts, region.num_consts + region.num_carry)
        body = executed_groups(region.body, sizes, carry)
        return Group("loop", (eqn,), reads, eqn.outputs, body, region.length, over=over)
    if isinstance(region, Branches):
        branches = tuple(executed_groups(p, sizes) for p in region.programs)
        return Group("loop", (eqn,), reads, eqn.outputs, heaviest(branches), branches=branches)
    equations = tuple(_splice_kernel(eqn))
    types = tuple(a.aval for a in eqn.inputs), tuple(v.aval for v in eqn.outputs)
    buffers = 0 if eqn.op.workspace is None else eqn.op.workspace(*types, eqn.params)
    return Group(
        _kind(equations),
        equations,
        reads,
        eqn.outputs,
        passes=_passes(eqn, roots, over, dying),
        over=over,
        buffers=(buffers,) if isinstance(buffers, int) else tuple(buffers),
        copies=_copies(eqn, sizes),
    )


def _passes(
    eqn: Equation, roots: Mapping[Var, Atom], over: Mapping[Var, tuple[Var, ...]], dying: Collection[Var]
) -> tuple[Pass, ...]:
    """The passes of the kernel; an update of a value that is still needed copies it first. What an update holds ends with it."""
    passes = passes_of(eqn, roots)
    if not is_update(eqn):
        return passes
    result, inner = eqn.outputs[0], held_program(eqn)
    *before, one = passes
    others = (eqn if inner is None else inner.equations[-1]).inputs[1:]
    both_ways = 2 * min(result.aval.nbytes, sum(a.aval.nbytes for a in others))
    update = replace(one, touched={**one.touched, result: both_ways})
    if any(v in dying for v in over.get(result, ())):
        return *before, update
    whole = {result: result.aval.nbytes}
    if isinstance(source := root_of(eqn.inputs[0], roots), Var):
        whole[source] = min(source.aval.nbytes, result.aval.nbytes)
    return Pass((), whole, 0), *before, update


def _splice_kernel(eqn: Equation) -> Iterator[Equation]:
    """The equations that a kernel computes: those of the programs that it holds, in terms of the operands."""
    inner = held_program(eqn)
    if inner is None:
        yield eqn
        return
    names: dict[Var, Atom] = dict(zip(inner.inputs, eqn.inputs, strict=True))
    names.update({v: out for v, out in zip(inner.outputs, eqn.outputs, strict=True) if isinstance(v, Var)})
    for one in inner.equations:
        inputs = tuple(names.get(a, a) if isinstance(a, Var) else a for a in one.inputs)
        outputs = tuple(v if isinstance(v := names.get(w, w), Var) else w for w in one.outputs)
        yield from _splice_kernel(Equation(one.op, inputs, outputs, one.params, one.source or eqn.source))


def _kind(equations: Sequence[Equation]) -> str:
    if any(unwrap_op(e.op, e.params)[0].product for e in equations):
        return "product"
    kinds = {_KINDS.get(role_of(e), "other") for e in equations}
    return kinds.pop() if len(kinds) == 1 else "fused" if "fused" in kinds else "other"


def _over(eqn: Equation, region: Loop | Branches | None, roots: Mapping[Var, Atom]) -> dict[Var, tuple[Var, ...]]:
    """Per result the operands whose memory it takes where they die with the call.

    The kernel must be the only one that sees them: not those that it gets twice, or as a view as well.
    """
    operands_by_result: dict[Var, tuple[Atom, ...]] = {}
    if isinstance(region, Loop):
        operands_by_result = {v: (a,) for v, a in zip(eqn.outputs, eqn.inputs[region.carry], strict=False)}
    elif is_update(eqn):
        operands_by_result = {eqn.outputs[0]: eqn.inputs[:1]}
    elif eqn.op is fused:
        operands_by_result = {v: overwritable(eqn, v) for v in eqn.outputs}
    view_roots = {roots[a] for a in eqn.inputs if isinstance(a, Var) and a in roots}
    alone = {a for a in eqn.inputs if isinstance(a, Var) and eqn.inputs.count(a) == 1 and a not in view_roots}
    return {
        v: tuple(a for a in operands if isinstance(a, Var) and a in alone) for v, operands in operands_by_result.items()
    }


def _copies(eqn: Equation, sizes: Mapping[str, int]) -> int:
    """On how many devices of the mesh the results differ: so often one process computes them, once for all those that agree."""
    axes = frozenset[str]().union(*(v.aval.vma for v in eqn.outputs))
    return math.prod(sizes.get(a, 1) for a in axes)
