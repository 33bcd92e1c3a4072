"""The values of a program as a compiler sees them: views resolved, makers and users by position.

In: a program. Out: `Values`, which the passes that group equations read.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any

import numpy as np

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Atom, Equation, Literal, Loop, Op, Program, ShapedArray, Var, region_of, unwrap_op
from shardwise.planner.roles import Role, reduces_rows, role_of, role_of_op
from shardwise.planner.target import Target
from shardwise.planner.turned import Order, is_turned, order_of


@dataclass(frozen=True, slots=True)
class Values:
    """A program whose views are resolved: a value is known by the variable that holds its elements, its root.

    Attributes:
        program: the program.
        roles: of the equations.
        reads: per equation the roots of its operands, each once, literals left out.
        roots: of the variables that are views, and of the results of barriers.
        makers: the position of the equation that makes a root; inputs have none.
        users: the positions of the equations that read a root, views and barriers left out.
        outputs: the roots of the program's results.
        rows: inputs that are entries of stacked arrays.
        stored: roots that must be in memory, whatever fuses.
        fenced: roots that pass through a barrier.
        needed: the values that somebody reads.
        host: values that lie in the host's memory: arguments, what is offloaded, and stacks of it.
        turned: views whose elements lie in another order than their root's.
        pieces: per position of a collective that fetches little of its result, as a halo exchange does, what it fetches. The result is
            put together from that and the operand where it is read.
    """

    program: Program
    roles: tuple[Role, ...]
    reads: tuple[tuple[Var, ...], ...]
    roots: dict[Atom, Atom]
    makers: dict[Var, int]
    users: dict[Var, list[int]]
    outputs: tuple[Atom, ...]
    rows: frozenset[Var]
    stored: set[Var]
    fenced: set[Var]
    needed: set[Atom]
    host: set[Var]
    turned: AbstractSet[Atom]
    pieces: dict[int, Var]

    def root(self, atom: Atom) -> Atom:
        """The root of a variable; a literal is its own."""
        return atom if isinstance(atom, Literal) else self.roots.get(atom, atom)


def values_of(
    program: Program,
    target: Target,
    rows: Sequence[Var] = (),
    fetched: Sequence[Var] = (),
    hosted: Sequence[Var] = (),
) -> Values:
    """Resolve the views of a program. `rows` are inputs that are entries of stacked arrays, `fetched` those that come from the host's
    memory before the program runs, `hosted` those that stay there.
    """
    reads: list[tuple[Var, ...]] = []
    turned_views: dict[Atom, Order] = {}
    needed_values: set[Atom] = set(program.outputs).union(*[e.inputs for e in program.equations])
    values = Values(
        program, (), (), {}, {}, {}, (), frozenset(rows), set(fetched), set(), needed_values, set(hosted), frozenset(), {}
    )  # fmt: skip
    roots, makers, users = values.roots, values.makers, values.users
    roles = _roles_of(program)
    given = {a for e, r in zip(program.equations, roles, strict=True) if r is Role.LOOP for a in e.inputs}
    for i, eqn in enumerate(program.equations):
        role = roles[i]
        if role is Role.VIEW and not _is_seen(eqn, given, turned_views):
            role = roles[i] = Role.LIGHT
        if len(eqn.inputs) == 1:
            one = roots.get(eqn.inputs[0], eqn.inputs[0])
            operand_roots = (one,) if isinstance(one, Var) else ()
        else:
            operand_roots = tuple(dict.fromkeys([r for a in eqn.inputs if isinstance(r := roots.get(a, a), Var)]))
        reads.append(operand_roots)
        if role is Role.VIEW or role is Role.BARRIER:
            roots.update(zip(eqn.outputs, map(values.root, eqn.inputs), strict=False))
            if role is Role.BARRIER:
                pairs = zip(eqn.outputs, eqn.inputs, strict=False)
                turned_views.update([(v, turned_views[a]) for v, a in pairs if a in turned_views])
                values.stored.update(operand_roots)
                values.fenced.update(operand_roots)
            continue
        for var in operand_roots:
            if var in users:
                users[var].append(i)
            else:
                users[var] = [i]
        for var in eqn.outputs:
            makers[var] = i
        if role is not Role.LIGHT:
            _note_memory(values, i, role)
            in_memory = _operands_in_memory(eqn, role, operand_roots, target)
            if role is Role.PRODUCT and target.prologues == "narrow":
                in_memory = [v for v in in_memory if not _comes_narrow(v, program, roles, makers, roots)]
            values.stored.update(in_memory)
    outputs = tuple(map(values.root, program.outputs))
    values.stored.update([a for a in outputs if isinstance(a, Var)])
    return replace(values, roles=tuple(roles), reads=tuple(reads), outputs=outputs, turned=frozenset(turned_views))


def _note_memory(values: Values, i: int, role: Role) -> None:
    """Note the pieces that equation `i` fetches, what it leaves in the host's memory, and the carries that it hands on."""
    eqn = values.program.equations[i]
    piece = _piece_of(eqn) if role is Role.COLLECTIVE else None
    if piece is not None:
        values.pieces[i] = piece
        values.makers[piece] = i
    if role is Role.OFFLOAD:
        values.host.update(eqn.outputs)
    if role is Role.LOOP:
        values.host.update(_stacks_of_offloaded(eqn))
        values.roots.update((eqn.outputs[j], values.root(a)) for j, a in _unchanged_carries(eqn))


def _is_seen(eqn: Equation, given: AbstractSet[Atom], turned: dict[Atom, Order]) -> bool:
    """Whether a view takes no memory: strides show it, and no loop is `given` it, which takes its operands as arrays lie.

    Of those that lie in another order than their root `turned` gets the order.
    """
    moves = eqn.op.view and eqn.op.emit is None and eqn.op.collective is None
    if not moves and eqn.inputs[0] not in turned:
        return True
    order = order_of(eqn, turned)
    if order is None:
        return False
    if is_turned(order):
        if eqn.outputs[0] in given:
            return False
        turned[eqn.outputs[0]] = order
    return True


def _roles_of(program: Program) -> list[Role]:
    """The roles of the equations; those with the same params and types have the same."""
    role_by_key: dict[Any, Role] = {}
    role_by_op: dict[Op, Role | None] = {}
    roles: list[Role] = []
    for eqn in program.equations:
        op = eqn.op
        if op not in role_by_op:
            role_by_op[op] = role_of_op(op)
        always = role_by_op[op] if len(eqn.outputs) == 1 else None
        if always is not None:
            roles.append(always)
            continue
        key = (eqn.op, id(eqn.params), *[a.aval for a in eqn.inputs], None, *[v.aval for v in eqn.outputs])
        role = role_by_key.get(key)
        if role is None:
            role = role_by_key[key] = role_of(eqn)
        roles.append(role)
    return roles


def _operands_in_memory(eqn: Equation, role: Role, found: tuple[Var, ...], target: Target) -> Sequence[Var]:
    """The operands that an equation takes from memory, however they are made."""
    if role is Role.LIGHT or (role is Role.FOLD and takes_prologues(eqn, target)):
        return ()
    if role is Role.PRODUCT:
        return () if target.prologues is True else found
    if role is Role.OTHER and _is_lookup(eqn):
        return [v for v in found if v is not found[0]] if len(found) > 1 else ()
    if role is Role.UPDATE:
        windows = None if eqn.op.indexed is None else eqn.op.indexed(eqn.params, tuple(a.aval for a in eqn.inputs))
        if windows is not None and not windows.vectors:  # one window: what is written there is computed on the way
            return found[:1]
    return found


def _comes_narrow(
    var: Var, program: Program, roles: Sequence[Role], makers: dict[Var, int], roots: dict[Atom, Atom], chain: int = 4
) -> bool:
    """Whether a value is made by few light equations of values of at most half its bytes."""
    i = makers.get(var)
    if i is None or roles[i] is not Role.LIGHT or not chain:
        return False
    for atom in program.equations[i].inputs:
        root = roots.get(atom, atom)
        if not isinstance(root, Var) or 2 * root.aval.nbytes <= var.aval.nbytes:
            continue
        if root.aval.size > var.aval.size or not _comes_narrow(root, program, roles, makers, roots, chain - 1):
            return False
    return True


def _is_lookup(eqn: Equation) -> bool:
    """Whether an equation looks up no more elements than there are, each of which can be computed then."""
    op, params, _ = unwrap_op(eqn.op, eqn.params)
    if op.indexed is None or op.updates or len(eqn.outputs) != 1 or eqn.outputs[0].aval.size > eqn.inputs[0].aval.size:
        return False
    return op.indexed(params, tuple([a.aval for a in eqn.inputs])) is not None


def takes_prologues(eqn: Equation, target: Target) -> bool:
    """Whether a reduction reads operands that are computed while it runs."""
    return reduces_rows(eqn) if target.fold_prologues == "rows" else target.fold_prologues


def _piece_of(eqn: Equation) -> Var | None:
    """The operand of a collective that sends at most a quarter of its result; None for others."""
    op, params, mapped_dims = unwrap_op(eqn.op, eqn.params)
    if op.collective is None or "sizes" not in params or mapped_dims or len(eqn.outputs) != 1:
        return None
    out = eqn.outputs[0].aval
    if all(2 * a.aval.size < out.size for a in eqn.inputs):
        return None
    sizes = dict(zip(params["axes"], params["sizes"], strict=False))
    sent_bytes = op.collective.bytes_sent(tuple(a.aval for a in eqn.inputs), params, sizes)
    return Var(ShapedArray((sent_bytes,), np.dtype(np.uint8))) if 4 * sent_bytes <= out.nbytes else None


def _unchanged_carries(eqn: Equation) -> list[tuple[int, Atom]]:
    """The carries of a loop that each trip hands on as they are: their positions and first values."""
    loop = loop_of(eqn)
    starts = eqn.inputs[loop.carry]
    inside = loop.body.inputs[loop.num_consts : loop.num_consts + loop.num_carry]
    return [
        (j, start)
        for j, (start, var, out) in enumerate(zip(starts, inside, loop.body.outputs, strict=False))
        if var is out
    ]


def _stacks_of_offloaded(eqn: Equation) -> list[Var]:
    """The stacked results of a loop whose entries its body offloads."""
    loop = loop_of(eqn)
    offloaded_values = {v for e in loop.body.equations if role_of(e) is Role.OFFLOAD for v in e.outputs}
    stack_pairs = zip(eqn.outputs[loop.num_carry :], loop.body.outputs[loop.num_carry :], strict=True)
    return [out for out, entry in stack_pairs if entry in offloaded_values]


def fetched_rows(eqn: Equation, host: AbstractSet[Atom]) -> tuple[Var, ...]:
    """The inputs of a loop's body that are entries of stacks in the host's memory."""
    loop = loop_of(eqn)
    return tuple(row for row, stack in zip(rows_of(loop), eqn.inputs[loop.rows], strict=True) if stack in host)


def rows_of(loop: Loop) -> tuple[Var, ...]:
    """The inputs of a loop's body that are entries of stacked operands."""
    return loop.body.inputs[loop.num_consts + loop.num_carry :]


def loop_of(eqn: Equation) -> Loop:
    """The loop that an equation runs."""
    region = region_of(eqn)
    assert isinstance(region, Loop)
    return region
