"""Branches and loops whose predicate differs between devices, as choices between values.

    c = cond(p, f, g, x)          ->  c = select(p, f(x), g(x))
    while test(c): c = body(c)    ->  while any device goes on: c = select(goes on, body(c), c)

Comes in: a per-device program. Goes out: the program in which all devices run such branches and rounds, and each keeps its own results,
where the work that is thrown away costs less than to keep devices apart. All devices then go one way, so that it fuses, and runs in small
programs. The device program, in which each device goes its own way, stays.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

from shardwise.ir import (
    Atom,
    Branches,
    Equation,
    Literal,
    Loop,
    Program,
    Spread,
    Var,
    map_programs,
    region_of,
    subprograms,
)
from shardwise.ops.control.while_loop import while_p
from shardwise.ops.devices.all_reduce import all_reduce
from shardwise.ops.elementwise.bitwise import and_p
from shardwise.ops.elementwise.selection import select_n_p
from shardwise.passes.parts import devices_part
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.small import small_cost


def with_device_choices(program: Program, env: Env) -> Program:
    """`program` with such branches and loops as choices."""
    return program if env.extra or env.processes is not None else _with_choices(program, env.spread)


def _with_choices(program: Program, spread: Spread, apart: bool = False) -> Program:
    """`apart`: only some devices may take part in the program, so that a loop of the others may never end."""
    changed = list[Equation]()
    for eqn in program.equations:
        inner = apart or devices_part(eqn)
        eqn = map_programs(eqn, lambda p, inner=inner: _with_choices(p, spread, inner))
        held = region_of(eqn)
        if isinstance(held, Branches) and inner:
            eqn = _lift_positions(eqn, held, changed)
            held = region_of(eqn)
        if isinstance(held, Branches) and spread.parts(eqn.inputs[0].aval) > 1 and _pays(eqn, held, spread):
            changed += _chosen_results(eqn, held)
        elif not apart and isinstance(held, Loop) and devices_part(eqn) and all(map(_ends, held.programs)):
            changed += _rounds_of_all(eqn, held)
        else:
            changed.append(eqn)
    if len(changed) == len(program.equations) and all(map(operator.is_, changed, program.equations)):
        return program
    return Program(program.inputs, tuple(changed), program.outputs, program.num_consts, program.name)


def _plain(program: Program) -> bool:
    """Whether only elements are computed and moved: nothing that would be seen of devices that go another way."""
    return all(
        (e.op.emit or e.op.view or e.op.boxes or e.op.fold or e.op.product or not e.inputs)
        and (e.op.collective is None or e.op.hands_on)
        and not e.op.has_effects(e.params)
        and not any(True for _ in subprograms(e.params))
        for e in program.equations
    )


# -- branches ----------------------------------------------------------------------------------------------------------


def _pays(eqn: Equation, held: Branches, spread: Spread) -> bool:
    """Whether all branches on all devices cost little more than each on the devices that take it, were these as many for each."""
    if not all(map(_plain, held.programs)):
        return False
    apart = [small_cost(p, spread) for p in held.programs]
    moved = sum(spread.elements(v.aval) for v in eqn.outputs)
    return sum(apart) * (1 - 1 / len(apart)) <= costs.CHOICE + costs.CHOICE_ELEMENT * moved


def _chosen_results(eqn: Equation, held: Branches) -> list[Equation]:
    which, *given = eqn.inputs
    found = list[Equation]()
    cases = [_insert(p, given, found) for p in held.programs]
    for var, *atoms in zip(eqn.outputs, *cases, strict=True):
        found.append(Equation(select_n_p, (which, *atoms), (var,), {}, eqn.source))
    return found


def _insert(program: Program, given: Sequence[Atom], into: list[Equation]) -> list[Atom]:
    """The program's results for such operands, whose equations are appended to `into`."""
    names: dict[Atom, Atom] = dict(zip(program.inputs, given, strict=True))

    def name_of(atom: Atom) -> Atom:
        return atom if isinstance(atom, Literal) else names[atom]

    for eqn in program.equations:
        results = tuple([Var(v.aval) for v in eqn.outputs])
        into.append(Equation(eqn.op, tuple(map(name_of, eqn.inputs)), results, eqn.params, eqn.source))
        names.update(zip(eqn.outputs, results, strict=True))
    return [name_of(a) for a in program.outputs]


def _lift_positions(eqn: Equation, held: Branches, into: list[Equation]) -> Equation:
    """The branches with what only depends on a device's position as operands, which equations before them compute."""
    lifted = {id(e): e for p in held.programs for e in p.equations if _is_position(e)}
    if not lifted:
        return eqn
    known = list[Var]()
    for e in lifted.values():
        results = tuple([Var(v.aval) for v in e.outputs])
        into.append(Equation(e.op, e.inputs, results, e.params, e.source))
        known += results
    asked = [v for e in lifted.values() for v in e.outputs]
    branches = list[Program]()
    for p in held.programs:
        own = {v for e in p.equations if id(e) in lifted for v in e.outputs}
        added = tuple([v if v in own else Var(v.aval) for v in asked])
        equations = tuple([e for e in p.equations if id(e) not in lifted])
        branches.append(Program((*p.inputs, *added), equations, p.outputs, p.num_consts, p.name))
    return Equation(eqn.op, (*eqn.inputs, *known), eqn.outputs, {**eqn.params, "branches": tuple(branches)}, eqn.source)


def _is_position(eqn: Equation) -> bool:
    return eqn.op.collective is not None and eqn.op.collective.alone is not None and not eqn.inputs


# -- loops -------------------------------------------------------------------------------------------------------------


def _ends(program: Program) -> bool:
    """Whether a round ends on devices that have stopped, too, and nothing is seen of it there."""
    for eqn in program.equations:
        held = region_of(eqn)
        if eqn.op.has_effects(eqn.params) or (isinstance(held, Loop) and held.test is not None):
            return False
        if not all(_ends(p) for _, p in subprograms(eqn.params)):
            return False
    return True


def _rounds_of_all(eqn: Equation, held: Loop) -> list[Equation]:
    """The loop that goes on while any device does. The first carry is whether this one goes on."""
    test = held.test
    assert test is not None
    known, consts, first = eqn.inputs[held.test_consts], eqn.inputs[held.consts], eqn.inputs[held.carry]
    before = list[Equation]()
    (begins,) = _insert(test, [*known, *first], before)
    one = test.out_types[0]

    inputs = [Var(a.aval) for a in (*known, *consts)]
    going = Var(one)
    carry = [Var(v.aval) for v in held.body.inputs[held.num_consts :]]
    inside = list[Equation]()
    stepped = _insert(held.body, [*inputs[len(known) :], *carry], inside)
    kept = [Var(v.aval) for v in eqn.outputs]
    for old, new, var in zip(carry, stepped, kept, strict=True):
        inside.append(Equation(select_n_p, (going, old, new), (var,), {}, eqn.source))
    (again,) = _insert(test, [*inputs[: len(known)], *kept], inside)
    goes_on = Var(one)
    inside.append(Equation(and_p, (going, again), (goes_on,), {}, eqn.source))
    body = Program((*inputs, going, *carry), tuple(inside), (goes_on, *kept), 0, held.body.name)

    asked, any_goes = [Var(v.aval) for v in body.inputs[len(inputs) :]], Var(one.update(vma=frozenset()))
    reduced = {"axes": tuple(sorted(one.vma)), "kind": "or"}
    any_test = Program(
        tuple(asked), (Equation(all_reduce, (asked[0],), (any_goes,), reduced, eqn.source),), (any_goes,), 0, test.name
    )
    params = {"cond": any_test, "body": body, "cond_consts": 0, "body_consts": len(inputs)}
    operands = (*known, *consts, begins, *first)
    return [*before, Equation(while_p, operands, (Var(one), *eqn.outputs), params, eqn.source)]
