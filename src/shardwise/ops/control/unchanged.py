"""What a loop's body hands through: a carry that no step changes is a constant of the loop, and entries that are outputs stay stacked.

So reverse-mode derivatives go past a `while_loop` that leaves a carry as it is, and `vmap` maps it only where the body needs it mapped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from shardwise.ir import Program

Mask = Sequence[bool]


def unchanged_carries(body: Program, first: int, count: int) -> list[bool]:
    """For each of the `count` carries that follow input `first`, whether its next value is itself."""
    return [body.outputs[i] is body.inputs[first + i] for i in range(count)]


def read_inputs(program: Program) -> list[bool]:
    """For each input of a program, whether an equation or a result reads it."""
    read = {id(a) for eqn in program.equations for a in eqn.inputs} | {id(a) for a in program.outputs}
    return [id(v) in read for v in program.inputs]


def with_constants(body: Program, first: int, unchanged: Mask) -> Program:
    """The body with its unchanged carries, of those that follow input `first`, as its first constants, and no longer among its results."""
    end = first + len(unchanged)
    constant_inputs, carry_inputs = apart(body.inputs[first:end], unchanged)
    _, results = apart(body.outputs[: len(unchanged)], unchanged)
    inputs = (*constant_inputs, *body.inputs[:first], *carry_inputs, *body.inputs[end:])
    outputs = (*results, *body.outputs[len(unchanged) :])
    return Program(inputs, body.equations, outputs, body.num_consts + len(constant_inputs), body.name)


def with_results(program: Program, kept: Mask) -> Program:
    """The program with these results alone."""
    outputs, _ = apart(program.outputs, kept)
    return Program(program.inputs, program.equations, tuple(outputs), program.num_consts, program.name)


def apart(items: Sequence[Any], chosen: Mask) -> tuple[list[Any], list[Any]]:
    """The chosen items, and the others."""
    pairs = list(zip(items, chosen, strict=True))
    return [x for x, c in pairs if c], [x for x, c in pairs if not c]


def merge_masked(chosen: Mask, those: Sequence[Any], others: Sequence[Any]) -> list[Any]:
    """The items that `apart` took apart, in their order."""
    first, second = iter(those), iter(others)
    return [next(first if c else second) for c in chosen]


def handed_entries(body: Program, num_carry: int, num_entries: int) -> Iterator[int | None]:
    """For each stacked output the number of the scanned array whose entry it is, or None."""
    last = len(body.inputs) - num_entries
    numbers = {id(v): i for i, v in enumerate(body.inputs[last:])}
    return (numbers.get(id(out)) for out in body.outputs[num_carry:])
