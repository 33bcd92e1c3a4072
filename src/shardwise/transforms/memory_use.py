"""The memory that one run of a per-device program needs on each device.

Comes in: the program as it is executed, with its fused groups. Goes out: sizes by what they are for, and the peak: the most
bytes that arguments, temporaries and results take at one time. Views take nothing, values die after their last use, and
a fused loop writes its results over operands of their size that die with it. What kernels need within one call is not counted.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from shardwise.ir import Atom, Equation, Program, Var, subprograms


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
    return MemoryStats(code, arguments, outputs, alias, temporary, peak)


def temporary_bytes(program: Program) -> int:
    """The most bytes that values which are neither inputs nor outputs take at one time."""
    return _most(program, ())[0]


def _most(program: Program, owned: Collection[int]) -> tuple[int, int]:
    """The most bytes that temporaries, and that all values together, take at one time."""
    shown: dict[Var, Var] = {}  # of views: the value whose buffer they show

    def buffer(atom: Atom) -> Var | None:
        return shown.get(atom, atom) if isinstance(atom, Var) else None

    death: dict[Var, int] = {}
    for i, eqn in enumerate(program.equations):
        source = buffer(eqn.inputs[0]) if eqn.op.view and eqn.inputs else None
        if source is not None:
            shown[eqn.outputs[0]] = source
        for var in map(buffer, (*eqn.inputs, *eqn.outputs)):
            if var is not None:
                death[var] = i
    end = len(program.equations)
    results = {buffer(a) for a in program.outputs}
    lasting = results | {v for i, v in enumerate(program.inputs) if i not in owned}
    dying: dict[int, list[Var]] = {}
    for var, i in death.items():
        dying.setdefault(end if var in lasting else i, []).append(var)
    given = set(program.inputs)
    alive = peak = sum(v.aval.nbytes for v in program.inputs)
    temporary = most = 0
    for i, eqn in enumerate(program.equations):
        ending = dying.get(i, [])
        for var in _overwritten(eqn, ending):  # gone before the results come
            ending.remove(var)
            alive -= var.aval.nbytes
            temporary -= 0 if var in given else var.aval.nbytes
        for var in eqn.outputs:
            if var not in shown:
                alive += var.aval.nbytes
                temporary += 0 if var in results else var.aval.nbytes
        inside = 0
        if eqn.op.name not in ("fused", "epilogue"):  # what these compute meanwhile stays in registers and caches
            inside = max((temporary_bytes(p) for _, p in subprograms(eqn.params)), default=0)
        peak, most = max(peak, alive + inside), max(most, temporary + inside)
        for var in ending:
            alive -= var.aval.nbytes
            temporary -= 0 if var in given else var.aval.nbytes
    return most, peak


def _overwritten(eqn: Equation, dying: Collection[Var]) -> list[Var]:
    """Operands that die here and whose memory a result takes."""
    found: list[Var] = []
    one_pass = (
        eqn.op.name == "fused" and eqn.params.get("space") is None
    )  # groups with reductions read their operands twice
    for out in eqn.outputs if one_pass else ():
        same = (v for v in eqn.inputs if v in dying and v not in found)
        taken = next((v for v in same if isinstance(v, Var) and v.aval.shape == out.aval.shape
                      and v.aval.itemsize == out.aval.itemsize), None)  # fmt: skip
        if taken is not None:
            found.append(taken)
    return found
