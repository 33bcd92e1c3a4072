"""The memory that one run of a per-device program needs on each device.

In: the program as it is executed, with its fused groups. Out: sizes by what they are for, and the peak: the most
bytes that arguments, temporaries and results take, and the buffers of those that are gone, which the pool keeps for others of their
size. Views take nothing, values die after their last use, and a fused loop writes its results over operands of their size that die
with it; what kernels need within one call is counted where the op says it (`Op.workspace`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from shardwise.ir import Atom, Equation, Program, Var, subprograms
from shardwise.runtime import costs
from shardwise.runtime.memory import room_of


@dataclass(frozen=True)
class MemoryStats:
    """Bytes that one device needs for one run."""

    generated_code_size_in_bytes: int
    argument_size_in_bytes: int
    output_size_in_bytes: int
    alias_size_in_bytes: int
    temp_size_in_bytes: int
    peak_memory_in_bytes: int
    host_generated_code_size_in_bytes: int = 0
    host_argument_size_in_bytes: int = 0
    host_output_size_in_bytes: int = 0
    host_alias_size_in_bytes: int = 0
    host_temp_size_in_bytes: int = 0


def memory_of(program: Program, owned: Collection[int], code: int) -> MemoryStats:
    """The memory of a per-device program that may take over the inputs `owned` (positions)."""
    arguments = sum(v.aval.nbytes for v in program.inputs)
    outputs = sum(a.aval.nbytes for a in program.outputs)
    alias = sum(program.inputs[i].aval.nbytes for i in owned)
    temporary, peak = _most(program, owned)
    return MemoryStats(code, arguments, outputs, alias, temporary.total(), peak)


class _Rooms:
    """Bytes in use by size of buffer, and the peak of each: the pool keeps a buffer for others of its size."""

    def __init__(self) -> None:
        self.used: Counter[int] = Counter()
        self.most: Counter[int] = Counter()

    def take(self, nbytes: int) -> None:
        """Allocate a value's buffer."""
        room = _room(nbytes)
        self.used[room] += nbytes
        self.most[room] = max(self.most[room], self.used[room])

    def leave(self, nbytes: int) -> None:
        """Free a value's buffer."""
        self.used[_room(nbytes)] -= nbytes

    def visit(self, other: Mapping[int, int]) -> None:
        """Account for the temporary use of `other`."""
        for room, nbytes in other.items():
            self.most[room] = max(self.most[room], self.used[room] + nbytes)


def _room(nbytes: int) -> int:
    """The size of the buffer; 0 for all that are no buffers of the pool."""
    return room_of(nbytes) if nbytes >= costs.POOLED_FROM else 0


def _most(program: Program, owned: Collection[int]) -> tuple[Counter[int], int]:
    """The most bytes that temporaries take, by size of their buffers, and all that values and waiting buffers take together."""
    shown: dict[Var, Var | None] = {}  # of views: the value whose buffer they show; None: that of a constant

    def buffer(atom: Atom) -> Var | None:
        return shown.get(atom, atom) if isinstance(atom, Var) else None

    death: dict[Var, int] = {}
    for i, eqn in enumerate(program.equations):
        if eqn.op.view and eqn.inputs:
            shown[eqn.outputs[0]] = buffer(eqn.inputs[0])
        for var in map(buffer, (*eqn.inputs, *eqn.outputs)):
            if var is not None:
                death[var] = i
    end = len(program.equations)
    results = {buffer(a) for a in program.outputs}
    lasting = results | {v for i, v in enumerate(program.inputs) if i not in owned}
    dying: dict[int, list[Var]] = {}
    for var, i in death.items():
        dying.setdefault(end if var in lasting else i, []).append(var)
    kept = sum(v.aval.nbytes for i, v in enumerate(program.inputs) if i not in owned)
    given = set(program.inputs)
    every, temporary = _Rooms(), _Rooms()
    for i in owned:
        every.take(program.inputs[i].aval.nbytes)

    def gone(var: Var) -> None:
        every.leave(var.aval.nbytes)
        if var not in given:
            temporary.leave(var.aval.nbytes)

    for i, eqn in enumerate(program.equations):
        ending = dying.get(i, [])
        for var in _overwritten(eqn, ending):  # freed before the results are allocated
            ending.remove(var)
            gone(var)
        for var in eqn.outputs:
            if var not in shown:
                every.take(var.aval.nbytes)
                if var not in results:
                    temporary.take(var.aval.nbytes)
        if not eqn.op.local:
            for _, inner in subprograms(eqn.params):
                inside = _most(inner, ())[0]
                every.visit(inside)
                temporary.visit(inside)
        if eqn.op.workspace is not None:
            types = tuple(a.aval for a in eqn.inputs), tuple(v.aval for v in eqn.outputs)
            buffers = eqn.op.workspace(*types, eqn.params)
            needed = Counter[int]()
            for nbytes in (buffers,) if isinstance(buffers, int) else buffers:
                needed[_room(nbytes)] += nbytes
            every.visit(needed)
            temporary.visit(needed)
        for var in ending:
            gone(var)
    return temporary.most, kept + every.most.total()


def _overwritten(eqn: Equation, dying: Collection[Var]) -> list[Var]:
    """Operands that die here and whose memory a result takes."""
    found: list[Var] = []
    takes_over = eqn.op.takes_over is not None and eqn.op.takes_over(eqn.params)
    for out in eqn.outputs if takes_over else ():
        same = (v for v in eqn.inputs if v in dying and v not in found)
        taken = next(
            (
                v
                for v in same
                if isinstance(v, Var) and v.aval.shape == out.aval.shape and v.aval.itemsize == out.aval.itemsize
            ),
            None,
        )
        if taken is not None:
            found.append(taken)
    return found
