"""A loop of known length as one Python function: the body's plan stands inside the loop, not behind a call.

Comes in: a body whose values have no leading dims (one device). Goes out: `run(blocks)` from a list, which it empties, of captured
values, first carries and scanned arrays, to last carries and stacked outputs. A step costs its kernels' calls and hardly more: rows
come from iterating arrays, where an elementwise op makes an output, it writes it where it is stacked, and what updates a carry
writes into it, if nothing else refers to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base.dtypes import physical
from shardwise.base.generated import define
from shardwise.ir import Equation, Literal, Program, Var, calls_user, overwritten_operands
from shardwise.runtime.env import Env
from shardwise.runtime.memory import pool
from shardwise.runtime.plan import PlanWriter


def loop_of(
    body: Program, env: Env, num_consts: int, num_carry: int, length: int, reverse: bool
) -> Callable[..., tuple[Any, ...]]:
    """The loop's function; ValueError where blocks have leading dims."""
    if env.lead:
        raise ValueError("a loop's plan is for one device; blocks with leading dims go through the body's own plan.")
    writer = _LoopWriter(readers_first(body), env, num_consts, num_carry, length, reverse)
    source = writer.source()
    define(source, f"<loop of {body.name}>", writer.constants)
    return writer.constants["run"]


def readers_first(program: Program) -> Program:
    """`program` with each update of an input moved behind the input's other readers, unless a reader needs the update: then
    the update may be written over the input.
    """
    if any(map(calls_user, program.equations)):  # in the order in which they stand
        return program
    equations, inputs = list(program.equations), set(program.inputs)
    for update in [e for e in program.equations if not inputs.isdisjoint(overwritten_operands(e))]:
        at = equations.index(update)
        waiting = set(update.outputs)
        later, others = [update], []
        for eqn in equations[at + 1 :]:
            if waiting.intersection(a for a in eqn.inputs if isinstance(a, Var)):
                waiting.update(eqn.outputs)
                later.append(eqn)
            else:
                others.append(eqn)
        if any(x in e.inputs for x in overwritten_operands(update) for e in others):
            equations[at:] = [*others, *later]
    if equations == list(program.equations):
        return program
    return Program(program.inputs, tuple(equations), program.outputs, program.num_consts, program.name)


class _LoopWriter(PlanWriter):
    def __init__(self, program: Program, env: Env, num_consts: int, num_carry: int, length: int, reverse: bool) -> None:
        super().__init__(program, env, ())
        end = num_consts + num_carry
        self.carry, self.xs = program.inputs[num_consts:end], program.inputs[end:]
        self.carry_outs, self.ys = program.outputs[:num_carry], program.outputs[num_carry:]
        self.length = length
        self.step = "[::-1]" if reverse else ""
        self.constants["empty"] = pool.empty
        self.uses: dict[Any, int] = {}
        for atom in (*[a for e in program.equations for a in e.inputs], *program.outputs):
            self.uses[atom] = self.uses.get(atom, 0) + 1
        # Carries that a step replaces: what it made of them before may be written over.
        self.replaced = {v for v, o in zip(self.carry, self.carry_outs, strict=True) if v is not o} - set(
            program.outputs
        )
        self.kept -= self.replaced
        self.fresh: set[Var] = set()  # values in memory of their own, that a ufunc made

    def source(self) -> str:
        for i, var in enumerate(self.program.inputs):
            self.names[var] = f"a{i}"
        given = [f"x{i}" if v in self.xs else f"a{i}" for i, v in enumerate(self.program.inputs)]
        lines = ["def run(given):"]
        if given:
            lines += [f"    {', '.join(given)}, = given", "    given.clear()"]
        targets, rows = [], []
        for name, var in zip(given[len(given) - len(self.xs) :], self.xs, strict=True):
            targets.append(self.names[var])
            rows.append(self._rows(name, var.aval.ndim))
        for j, atom in enumerate(self.ys):
            dtype = self.constant(physical(atom.aval.dtype), "t")
            lines.append(f"    s{j} = empty({(self.length, *atom.aval.shape)}, {dtype})")
            targets.append(f"r{j}")
            rows.append(self._rows(f"s{j}", atom.aval.ndim))
        lines += ["    before = errors.set(quiet)", "    try:"]
        if len(rows) > 1:
            lines.append(f"        for {', '.join(targets)} in zip({', '.join(rows)}):")
        else:
            lines.append(
                f"        for {targets[0]} in {rows[0]}:" if rows else f"        for _ in range({self.length}):"
            )
        lines += ["            " + line for line in self._body()]
        lines += ["    finally:", "        errors.reset(before)"]
        outs = [*[self.names[v] for v in self.carry], *[f"s{j}" for j in range(len(self.ys))]]
        lines.append(f"    return ({', '.join(outs)}{',' if len(outs) == 1 else ''})")
        return "\n".join(lines)

    def _rows(self, name: str, ndim: int) -> str:
        """The entries of an array one by one; iterating a vector would give scalars, not arrays."""
        if ndim:
            return name + self.step
        order = f"range({self.length - 1}, -1, -1)" if self.step else f"range({self.length})"
        return f"[{name}[i, ...] for i in {order}]"

    def _body(self) -> list[str]:
        outputs = {v for v in self.program.outputs if isinstance(v, Var)}
        inputs = set(self.program.inputs)
        lines: list[str] = []
        for i, eqn in enumerate(self.program.equations):
            dead = [
                v
                for v in dict.fromkeys((*eqn.inputs, *eqn.outputs))
                if isinstance(v, Var)
                and v not in outputs
                and (v not in inputs or v in self.replaced)
                and self.last_use.get(v, i) == i
            ]
            lines += [line.removeprefix("    ") for line in self._place_result(eqn, dead)]
            if dead:
                lines.append(f"del {', '.join(self.names[v] for v in dead)}")
        for j, atom in enumerate(self.ys):
            if isinstance(atom, Literal) or self.names[atom] != f"r{j}":
                lines.append(f"r{j}[...] = {self.output(atom)}")
        changed = [
            (self.names[v], self.output(o)) for v, o in zip(self.carry, self.carry_outs, strict=True) if v is not o
        ]
        if changed:
            lines.append(f"{', '.join(n for n, _ in changed)} = {', '.join(o for _, o in changed)}")
        # The next step finds what it gets under one name alone, and entries that have been copied give their buffers back.
        made = {v for e in self.program.equations for v in e.outputs}
        own = {self.names[o] for o in self.program.outputs if isinstance(o, Var) and o in made}
        gone = sorted(own - {f"r{j}" for j in range(len(self.ys))} - self.constants.keys())
        lines += [f"del {', '.join(gone)}"] if gone else []
        return lines or ["pass"]

    def _place_result(self, eqn: Equation, dead: list[Var]) -> list[str]:
        """An equation's lines; a ufunc writes a stacked result into its row, and another over an operand that dies."""
        lines = self.equation(eqn, dead)
        fn = eqn.op.ufunc_for([a.aval.dtype for a in eqn.inputs]) if eqn.op.ufunc is not None else None
        if not isinstance(fn, np.ufunc) or not eqn.outputs[0].aval.ndim:
            return lines
        (var,) = eqn.outputs
        self.fresh.add(var)
        name = self.names[var]
        if var in self.ys:
            full = any(a.aval.shape == var.aval.shape for a in eqn.inputs if not isinstance(a, Literal))
            target = self.names[var] = f"r{self.ys.index(var)}" if full else name
        else:
            dying = [
                a
                for a in eqn.inputs
                if isinstance(a, Var)
                and a in self.fresh
                and a in dead
                and self.uses[a] == 1
                and (a.aval.shape, a.aval.dtype) == (var.aval.shape, var.aval.dtype)
            ]
            target = self.names[dying[0]] if dying else name
        call = lines[0].partition(" = ")[2]
        if target == name:
            return lines
        word = "out=" if fn in (np.maximum, np.minimum) else ""  # of these NumPy takes it by name only, some day
        return [f"{'' if var in self.ys else f'{name} = '}{call.removesuffix(')')}, {word}{target})"]
