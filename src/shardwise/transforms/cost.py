"""What a compiled program costs: arithmetic, bytes touched, bytes sent, and the memory one device needs.

Comes in: a Program and the transfers of its partitioning. Goes out: numbers that depend on shapes alone, counted as XLA
counts them where it has a convention: a transcendental is not a flop, a multiply-add is two.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from shardwise.ir import Atom, Equation, Literal, Program, Var, subprograms
from shardwise.passes.partition import Transfer
from shardwise.sharding.rule import Kind

TRANSCENDENTAL = frozenset(
    "acos acosh asin asinh atan atan2 atanh cbrt cos cosh digamma erf erf_inv erfc exp exp2 expm1 lgamma log log1p logistic "
    "pow rsqrt sin sinh sqrt tan tanh".split()
)


@dataclass
class Work:
    """Arithmetic of one program."""

    flops: float = 0.0
    transcendentals: float = 0.0
    bytes_accessed: float = 0.0

    def add(self, other: Work, times: float = 1.0) -> None:
        """Count `other` as well, `times` over."""
        self.flops += times * other.flops
        self.transcendentals += times * other.transcendentals
        self.bytes_accessed += times * other.bytes_accessed


def program_work(program: Program) -> Work:
    """What running the program once takes; a loop of unknown length counts once, of a conditional every branch."""
    work = Work()
    for eqn in program.equations:
        inner = [p for _, p in subprograms(eqn.params)]
        if inner:
            times = eqn.params.get("length", 1)
            for body in inner:
                work.add(program_work(body), times)
            continue
        work.add(equation_work(eqn))
    return work


def equation_work(eqn: Equation) -> Work:
    """What one equation takes."""
    op = eqn.op
    moved = sum(a.aval.nbytes for a in eqn.inputs) + sum(v.aval.nbytes for v in eqn.outputs)
    size = sum(v.aval.size for v in eqn.outputs)
    if op.name in TRANSCENDENTAL:
        return Work(0.0, size, moved)
    if op.collective:
        return Work(size if op.name in ("all_reduce", "reduce_scatter") else 0.0, 0.0, moved)
    if op.rule is None:
        return Work(size, 0.0, moved)
    in_types, out_types = tuple(a.aval for a in eqn.inputs), tuple(v.aval for v in eqn.outputs)
    rule = op.sharding_rule(in_types, out_types, eqn.params)
    if Kind.REDUCE not in rule.kinds:
        return Work(0.0, 0.0, moved)
    if len(eqn.inputs) == 2 and op.reduction_of(eqn.params) == "sum" and len(eqn.outputs) == 1:
        # A product: each element of the result takes a multiply-add for each element of an operand that it lacks.
        shared = {f for dim in rule.outputs[0] for f in dim}
        own = [n for n, dim in zip(in_types[1].shape, rule.inputs[1], strict=True) if not shared & set(dim)]
        return Work(2.0 * size * math.prod(own), 0.0, moved)
    return Work(sum(t.size for t in in_types), 0.0, moved)


def cost_of(program: Program, transfers: Sequence[Transfer] | None = None) -> dict[str, float]:
    """'flops', 'transcendentals', 'bytes accessed' and, given the transfers, 'collective bytes' sent per device."""
    work = program_work(program)
    cost = {"flops": float(work.flops), "transcendentals": float(work.transcendentals),
            "bytes accessed": float(work.bytes_accessed)}  # fmt: skip
    if transfers is not None:
        cost["collective bytes"] = float(sum(t.bytes for t in transfers))
    return cost


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


def memory_of(program: Program, alias: int, code: int) -> MemoryStats:
    """The memory of a per-device program; `alias` bytes of donated arguments serve for results."""
    arguments = sum(v.aval.nbytes for v in program.inputs)
    outputs = sum(a.aval.nbytes for a in program.outputs)
    temp = temporary_bytes(program)
    return MemoryStats(code, arguments, outputs, alias, temp, arguments + outputs + temp - alias)


def temporary_bytes(program: Program) -> int:
    """The most bytes that values which are neither inputs nor outputs take at one time."""
    given = set(program.inputs) | {a for a in program.outputs if isinstance(a, Var)}
    last: dict[Var, int] = {}
    for i, eqn in enumerate(program.equations):
        for atom in (*eqn.inputs, *eqn.outputs):
            if _is_temporary(atom, given):
                last[atom] = i  # type: ignore[index]
    dying: dict[int, int] = {}
    for var, i in last.items():
        dying[i] = dying.get(i, 0) + var.aval.nbytes
    alive = most = 0
    for i, eqn in enumerate(program.equations):
        alive += sum(v.aval.nbytes for v in eqn.outputs if _is_temporary(v, given))
        inside = max((temporary_bytes(p) for _, p in subprograms(eqn.params)), default=0)
        most = max(most, alive + inside)
        alive -= dying.get(i, 0)
    return most


def _is_temporary(atom: Atom, given: set[Var]) -> bool:
    return not isinstance(atom, Literal) and atom not in given
