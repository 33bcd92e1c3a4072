"""Hoisting: what devices exchange of values that stay the same in a loop, they exchange once, before it.

    for each i: rows = all_gather(points); ... rows[i] ...        rows = all_gather(points); for each i: ... rows[i] ...

Comes in: a per-device program. Goes out: the program with such collectives of the partitioner, and the equations that make their
operands, ahead of the loop. The loop gets their results as further constants. Of a `while_loop` all equations whose operands stay the
same go ahead of it, unless they spread values over more elements, which is done again as fast as read; of a scan they do by its fission.
"""

from __future__ import annotations

from dataclasses import replace

from shardwise.ir import Atom, Equation, Literal, Loop, Program, ProgramMap, Var, calls_user, region_of, subprograms
from shardwise.runtime import costs


def hoist(program: Program) -> Program:
    """The same program with collectives of constants ahead of its loops, inner loops first."""
    hoist_map = ProgramMap(lambda p: _hoist_program(hoist_map.inside(p)))
    return hoist_map.of(program)


def _hoist_program(program: Program) -> Program:
    equations: list[Equation] = []
    for eqn in program.equations:
        if eqn.op.region is None:
            equations.append(eqn)
        else:
            equations += _ahead(eqn)
    return program if len(equations) == len(program.equations) else replace(program, equations=tuple(equations))


def _ahead(eqn: Equation) -> list[Equation]:
    """An equation, behind the equations that need not be in its loop."""
    loop = region_of(eqn)
    if not isinstance(loop, Loop) or not loop.counted:
        return [eqn]
    ahead_equations = _hoisted_equations(loop)
    if not ahead_equations:
        return [eqn]
    body, count = loop.body, loop.num_consts
    ids_gone = {id(e) for e in ahead_equations if _goes(e, loop)}
    rest = tuple([e for e in body.equations if id(e) not in ids_gone])
    read = {a for e in rest for a in e.inputs} | set(body.outputs)
    names: dict[Var, Atom] = dict(zip(body.inputs[:count], eqn.inputs[loop.consts], strict=True))
    ahead: list[Equation] = []
    inside: list[Var] = []  # their results in the loop
    for e in ahead_equations:
        inputs = tuple([a if isinstance(a, Literal) else names[a] for a in e.inputs])
        outputs = tuple([Var(v.aval) for v in e.outputs])
        names.update(zip(e.outputs, outputs, strict=True))
        ahead.append(Equation(e.op, inputs, outputs, e.params, e.source))
        if id(e) in ids_gone:
            inside += [v for v in e.outputs if v in read]
    longer = Program((*body.inputs[:count], *inside, *body.inputs[count:]), rest, body.outputs, 0, body.name)
    at = loop.consts.stop
    operands = (*eqn.inputs[:at], *[names[v] for v in inside], *eqn.inputs[at:])
    params = {k: longer if v is body else v for k, v in eqn.params.items()}
    params[loop.counted] = count + len(inside)
    return [*ahead, Equation(eqn.op, operands, eqn.outputs, params, eqn.source)]


def _hoisted_equations(loop: Loop) -> list[Equation]:
    """The equations of a body that move ahead of the loop, with all equations that they need, in order."""
    steady: set[Var] = set(loop.body.inputs[: loop.num_consts])
    producers: dict[Var, Equation] = {}
    wanted_equations: list[Equation] = []
    for e in loop.body.equations:
        if not all(isinstance(a, Literal) or a in steady for a in e.inputs) or not _is_free(e):
            continue
        if _goes(e, loop):
            if any(v.aval.nbytes > costs.HOISTED_BYTES for v in e.outputs):
                continue
            wanted_equations.append(e)
        steady.update(e.outputs)
        producers.update(dict.fromkeys(e.outputs, e))
    needed_equations: dict[int, Equation] = {}
    stack = list(wanted_equations)
    while stack:
        e = stack.pop()
        if id(e) not in needed_equations:
            needed_equations[id(e)] = e
            stack += [producers[a] for a in e.inputs if isinstance(a, Var) and a in producers]
    return [e for e in loop.body.equations if id(e) in needed_equations]


def _goes(eqn: Equation, loop: Loop) -> bool:
    """Whether an equation is worth its place ahead of the loop: for its own sake, not because another one needs its results."""
    if _is_inserted(eqn):
        return True
    if loop.test is None or eqn.op.collective is not None:
        return False
    emit, given = eqn.op.emit, sum(a.aval.size for a in eqn.inputs)
    quick = eqn.op.view or (emit is not None and emit.cost < costs.FUSED_SAVED)
    return not quick or max(v.aval.size for v in eqn.outputs) < 2 * given


def _is_inserted(eqn: Equation) -> bool:
    """Whether an equation is a collective of the partitioner, which sends something."""
    if eqn.op.collective is None or not eqn.op.collective.counted:
        return False
    return eqn.source is not None and eqn.source.need is not None and eqn.source.need.implicit


def _is_free(eqn: Equation) -> bool:
    """Whether an equation may run once instead of in each step. A barrier keeps its operands in the loop."""
    op = eqn.op
    if op.hands_on or op.has_effects(eqn.params) or calls_user(eqn):
        return False
    if op.collective is not None and op.collective.counted:
        return _is_inserted(eqn)
    return not any(True for _ in subprograms(eqn.params))
