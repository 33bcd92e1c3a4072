"""Sums over devices of the rows that each has of a split table: `psum(where(own, table[positions], 0))`, as split embeddings have it,
or `psum_scatter`.

Comes in: a per-device program with its reads of elements. Goes out: the program in which such a read, its mask and its sum are one
equation, `masked_sum`, that reads the rows of the result alone, rather than as many on each device.
"""

from __future__ import annotations

from shardwise.ir import AbsorbedReduction, Atom, Equation, Program, Var
from shardwise.ops.elementwise.selection import select_n_p
from shardwise.ops.indexing.masked_sums import masked_sum_p, reads_rows
from shardwise.ops.shapes.broadcast import broadcast_in_dim_p
from shardwise.passes.parts import makers, users
from shardwise.passes.schedule import map_large
from shardwise.runtime.env import Env

_DTYPES = frozenset("fdiIlLqQ")  # whose sums are exact where all but one are zeros


def with_masked_sums(program: Program, env: Env) -> Program:
    """`program` with such sums as one equation."""
    return program if env.extra or env.processes is not None else _join_sums(program, env)


def _join_sums(program: Program, env: Env) -> Program:
    program = map_large(program, env, lambda inner: _join_sums(inner, env))
    search = _Search(program)
    for i, eqn in enumerate(program.equations):
        collective = eqn.op.collective
        reduction = collective.absorbed(eqn.params) if collective is not None and collective.absorbed else None
        if reduction is not None and reduction.kind == "sum":
            search.join(i, reduction)
    if not search.joined:
        return program
    equations = [
        search.joined.get(i, e) for i, e in enumerate(program.equations) if i in search.joined or i not in search.gone
    ]
    return Program(program.inputs, tuple(equations), program.outputs, program.num_consts, program.name)


def _is_same(eqn: Equation) -> bool:
    """Whether the result is the operand."""
    if eqn.op is broadcast_in_dim_p:
        return eqn.inputs[0].aval.shape == eqn.outputs[0].aval.shape  # dims stay in order
    return eqn.op.hands_on and len(eqn.inputs) == 1


def _rest_of(total: Equation, reduction: AbsorbedReduction) -> Program | None:
    """What makes of the sum as a whole what the collective gives each device."""
    if reduction.rest is None:
        return None
    (op, params), term = reduction.rest, total.inputs[0].aval
    whole = Var(term.update(vma=term.vma - set(total.params["axes"])))
    own = Equation(op, (whole,), total.outputs, dict(params), total.source)
    return Program((whole,), (own,), total.outputs, 0, "own parts")


class _Search:
    """Finds the sums of a program: by the number of the last equation what replaces all of them, and the numbers of the others."""

    def __init__(self, program: Program) -> None:
        self.joined: dict[int, Equation] = {}
        self.gone: set[int] = set()
        self._equations = program.equations
        self._made = makers(program)
        self._used = users(program)
        self._kept = set(program.outputs)

    def join(self, i: int, reduction: AbsorbedReduction) -> None:
        """Join the sum that equation i is with the choice and the read before it."""
        total = self._equations[i]
        if total.outputs[0].aval.dtype.char not in _DTYPES:
            return
        at = self._only(total.inputs[0], i)
        choice = None if at is None else self._equations[at]
        if at is None or choice is None or choice.op is not select_n_p or len(choice.inputs) != 3:
            return
        mask, *cases = choice.inputs
        zeros = [self._zeros(c) for c in cases]
        if mask.aval.dtype.kind != "b" or mask.aval.shape != choice.outputs[0].aval.shape or zeros.count(None) != 1:
            return
        members = [i, at]
        value, reader = cases[zeros.index(None)], at
        while (made := self._only(value, reader)) is not None:
            eqn = self._equations[made]
            members.append(made)
            if reads_rows(eqn) and set(total.params["axes"]) <= eqn.inputs[0].aval.vma:
                break
            if not _is_same(eqn):
                return
            value, reader = eqn.inputs[0], made
        else:
            return
        turned = zeros[1] is not None
        self._replace(mask, [*(zeros[turned] or []), *sorted(members)], members, turned, reduction)

    def _replace(
        self, mask: Atom, run: list[int], members: list[int], turned: bool, reduction: AbsorbedReduction
    ) -> None:
        """`run`: the equations of the sum's program; `members`: those that only it needs, from the sum to the read."""
        read, total = self._equations[members[-1]], self._equations[members[0]]
        inputs = (mask, *read.inputs)
        if not all(isinstance(a, Var) for a in inputs):
            return
        program = Program(
            inputs,  # type: ignore[arg-type]
            tuple([self._equations[k] for k in run]),
            total.outputs,
            0,
            "masked sum",
        )
        assert read.op.element_read is not None
        params = {
            "program": program,
            "read": read.op.element_read(read),
            "axes": total.params["axes"],
            "turned": turned,
            "rest": _rest_of(total, reduction),
        }
        self.joined[members[0]] = Equation(masked_sum_p, inputs, total.outputs, params, total.source)
        self.gone.update(members[1:])

    def _only(self, value: Atom, reader: int) -> int | None:
        """The equation that makes a value which only `reader` reads."""
        if not isinstance(value, Var) or value in self._kept or self._used[value] != [reader]:
            return None
        return self._made.get(value)

    def _zeros(self, atom: Atom) -> list[int] | None:
        """The equations that make the value if all its elements are 0, and not -0.0."""
        found = list[int]()
        while isinstance(atom, Var):
            made = self._made.get(atom)
            if made is None or not self._equations[made].op.view or len(self._equations[made].inputs) != 1:
                return None
            found.insert(0, made)
            (atom,) = self._equations[made].inputs
        return None if any(atom.value.tobytes()) else found
