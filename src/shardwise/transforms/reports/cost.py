"""The cost of a compiled program: arithmetic, bytes touched, bytes sent.

In: a Program, global or per-device. Out: numbers that depend on shapes alone, counted as XLA counts them where
it has a convention: a transcendental is not a flop, a multiply-add is two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from shardwise.ir import Branches, Equation, Program, region_of, rounds_of, subprograms, unwrapped
from shardwise.passes import Transfer
from shardwise.planner import product_of
from shardwise.sharding.rule import Kind


@dataclass
class Work:
    """Arithmetic of one program."""

    flops: float = 0.0
    transcendentals: float = 0.0
    bytes_accessed: float = 0.0

    def add(self, other: Work, times: float = 1.0) -> None:
        """Add `times` times the work of `other`."""
        self.flops += times * other.flops
        self.transcendentals += times * other.transcendentals
        self.bytes_accessed += times * other.bytes_accessed

    def raise_to(self, other: Work) -> None:
        """Take those amounts of `other` that are larger."""
        self.flops = max(self.flops, other.flops)
        self.transcendentals = max(self.transcendentals, other.transcendentals)
        self.bytes_accessed = max(self.bytes_accessed, other.bytes_accessed)


def program_work(program: Program) -> Work:
    """The work of running the program once; a loop of unknown length counts once, of branches the most of each amount."""
    work = Work()
    for eqn in program.equations:
        inner = [p for _, p in subprograms(eqn.params)]
        if isinstance(region_of(eqn), Branches):
            most = Work()
            for branch in inner:
                most.raise_to(program_work(branch))
            work.add(most)
            continue
        if inner:
            rounds = rounds_of(eqn)
            for body in inner:
                work.add(program_work(body), 1 if rounds is None else rounds)
            continue
        work.add(equation_work(eqn))
    return work


def equation_work(eqn: Equation) -> Work:
    """The work of one equation."""
    op = eqn.op
    moved = sum(a.aval.nbytes for a in eqn.inputs) + sum(v.aval.nbytes for v in eqn.outputs)
    size = sum(v.aval.size for v in eqn.outputs)
    if op.transcendental:
        return Work(0.0, size, moved)
    inner, _, _ = unwrapped(op, eqn.params)
    if inner.collective is not None:
        return Work(size if inner.collective.computes else 0.0, 0.0, moved)
    if inner.product:
        return Work(product_of(eqn).flops, 0.0, moved)
    if op.rule is None:
        return Work(size, 0.0, moved)
    in_types, out_types = tuple(a.aval for a in eqn.inputs), tuple(v.aval for v in eqn.outputs)
    rule = op.sharding_rule(in_types, out_types, eqn.params)
    if Kind.REDUCE not in rule.kinds:
        return Work(0.0, 0.0, moved)
    if inner.indexed is not None:  # a scatter that combines computes once per element of its updates, a gather nothing
        return Work(eqn.inputs[-1].aval.size if inner.updates else 0.0, 0.0, moved)
    return Work(sum(t.size for t in in_types), 0.0, moved)


def cost_of(program: Program, transfers: Sequence[Transfer] | None = None) -> dict[str, float]:
    """'flops', 'transcendentals', 'bytes accessed' and, given the record of communication, 'collective bytes' sent per device."""
    work = program_work(program)
    cost = {
        "flops": float(work.flops),
        "transcendentals": float(work.transcendentals),
        "bytes accessed": float(work.bytes_accessed),
    }
    if transfers is not None:
        cost["collective bytes"] = float(sum(t.total for t in transfers))
    return cost
