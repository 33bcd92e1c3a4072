"""Windows of arrays that loops compute where they lie: what `x.at[1:, :-1].add(a * b)` writes is not made apart, and then copied.

Comes in: a per-device program with its fused groups. Goes out: the program in which a group whose one result overwrites a window at a known
place is one equation with that update. The group may read the window, but no other part of the array, of which it would meet new elements.
"""

from __future__ import annotations

from shardwise.ir import Atom, Equation, Program, Var, live_equations, map_equations, map_programs
from shardwise.ops.indexing.slicing import dynamic_update_slice_p
from shardwise.ops.indexing.window_groups import computed_window_p, known_places
from shardwise.ops.shapes.pieces import slice_p
from shardwise.passes.parts import makers, users
from shardwise.runtime.env import Env
from shardwise.runtime.fused import fused
from shardwise.runtime.machine import available


def with_computed_windows(program: Program, env: Env) -> Program:
    """`program` with groups that compute windows in place."""
    return _compute_in_place(program) if available() else program


def _compute_in_place(program: Program) -> Program:
    program = map_equations(program, lambda e: e if e.op is fused else map_programs(e, _compute_in_place))
    if not any(e.op is dynamic_update_slice_p for e in program.equations):
        return program
    search = _Search(program)
    windows = [search.together(e) for e in program.equations]
    if all(new is None for new in windows):
        return program
    equations = tuple(new or old for new, old in zip(windows, program.equations, strict=True))
    return live_equations(Program(program.inputs, equations, program.outputs, program.num_consts, program.name))


class _Search:
    """Finds what computes the windows of updates."""

    def __init__(self, program: Program) -> None:
        self._equations = program.equations
        self._maker, self._users = makers(program), users(program)
        self._results = {v for v in program.outputs if isinstance(v, Var)}

    def together(self, eqn: Equation) -> Equation | None:
        """An update with the group that computes its window, as one equation; None where it stays."""
        if eqn.op is not dynamic_update_slice_p:
            return None
        array, update = eqn.inputs[:2]
        begins = known_places(eqn)
        if begins is None or not isinstance(array, Var) or not isinstance(update, Var) or update not in self._maker:
            return None
        group = self._equations[self._maker[update]]
        if group.op is not fused or len(group.outputs) != 1 or "space" in group.params:
            return None
        if update in self._results or len(self._users[update]) != 1:
            return None
        inputs = [a for a in dict.fromkeys(group.inputs) if isinstance(a, Var)]
        own = [a for a in inputs if self._is_window(a, array, begins, update.aval.shape)]
        others = [a for a in inputs if a not in own]
        if len(inputs) != len(group.inputs) or any(self._root(a) is self._root(array) for a in others):
            return None
        equations = (*[self._equations[self._maker[a]] for a in own], group, eqn)
        program = Program((array, *others), equations, eqn.outputs, 0, "window")
        return Equation(computed_window_p, program.inputs, eqn.outputs, {"program": program}, eqn.source)

    def _is_window(self, a: Atom, array: Var, begins: tuple[int, ...], sizes: tuple[int, ...]) -> bool:
        """Whether a value is the array's window."""
        if not isinstance(a, Var) or a not in self._maker:
            return False
        eqn = self._equations[self._maker[a]]
        if eqn.op is not slice_p or eqn.inputs[0] is not array or any(s != 1 for s in eqn.params["strides"] or ()):
            return False
        return tuple(eqn.params["start_indices"]) == begins and a.aval.shape == sizes

    def _root(self, a: Atom) -> Atom:
        """The value of which another one is a view."""
        while (
            isinstance(a, Var) and a in self._maker and (eqn := self._equations[self._maker[a]]).op.view and eqn.inputs
        ):
            a = eqn.inputs[0]
        return a
