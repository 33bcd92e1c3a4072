"""Programs printed in JAX's form: names in order of appearance, params by name, lines broken at 80 columns."""

from __future__ import annotations

from collections import Counter, deque
from typing import Any

import numpy as np

from shardwise.base import config
from shardwise.ir import Atom, Equation, Literal, Program, ShapedArray, Var
from shardwise.transforms.programs.jaxpr_layout import Break, Doc, Group, group, join_docs, layout, nest
from shardwise.transforms.programs.primitives import jax_name


def primitive_name(eqn: Equation) -> str:
    """JAX's name of the op."""
    name_of = eqn.op.shown.name_of
    return jax_name(eqn.op) if name_of is None else name_of(eqn)


def jaxpr_text(program: Program) -> str:
    """The whole program as text."""
    shared_programs = _shared_programs(program)
    used = used_in(program)
    writer = _Writer(used)
    writer.dropped = {v for eqn in program.equations for v in eqn.outputs} - used
    everywhere = config.dialect.jaxprs.shared_programs_name_each_other
    if everywhere:
        writer.shared = {id(inner): name for name, inner in shared_programs}
    text = ""
    for name, inner in shared_programs:
        text += layout(group(f"let {name} = ", writer.definition(inner), " in")) + "\n"
        writer.shared = {**writer.shared, id(inner): name}
    return text + layout(writer.definition(program, outer=True))


def _shared_programs(program: Program) -> list[tuple[str, Program]]:
    """The inner programs that are written once, ahead of the program, with their names: programs of several equations, and long ones."""
    names: dict[int, str] = {}
    counts: dict[int, int] = {}
    program_of: dict[int, Program] = {}
    queue = deque([program])
    while queue:
        inner = queue.popleft()
        program_of[id(inner)] = inner
        longest = config.dialect.jaxprs.longest_inner
        long = longest is not None and inner is not program and len(inner.equations) > longest
        counts[id(inner)] = counts.get(id(inner), 0) + 1 + long
        for eqn in inner.equations:
            shown_params = eqn.op.shown.params(eqn)
            held_programs = [
                p
                for v in shown_params.values()
                for p in (v if isinstance(v, tuple) else (v,))
                if isinstance(p, Program)
            ]
            queue.extend(held_programs)
            if isinstance(shown_params.get("name"), str):
                for p in held_programs:
                    names.setdefault(id(p), shown_params["name"].strip("<>"))
    named_programs: list[tuple[str, Program]] = []
    name_counts: Counter[str] = Counter()
    for key, count in counts.items():
        if count > 1:
            name = names.get(key, "jaxpr")
            name_counts[name] += 1
            named_programs.append(
                (name if name_counts[name] == 1 else f"{name}{name_counts[name] - 1}", program_of[key])
            )
    return named_programs


def used_in(program: Program) -> set[Var]:
    """Variables that are read somewhere, in programs within as well."""
    used = {v for v in program.outputs if isinstance(v, Var)}
    for eqn in program.equations:
        used.update(v for v in eqn.inputs if isinstance(v, Var))
        for value in eqn.params.values():
            for inner in value if isinstance(value, tuple) else (value,):
                if isinstance(inner, Program):
                    used |= used_in(inner)
    return used


def equation_text(eqn: Equation) -> str:
    """One equation by itself."""
    return layout(_Writer(set(eqn.outputs)).equation(eqn))


def literal_text(x: Literal) -> str:
    """A constant, with its type where the dialect shows it."""
    value = x.value.item()
    if x.weak_type and x.aval.dtype == np.float32 and config.dialect.jaxprs.weak_literals_are_short:
        value = float(str(np.float32(value)))  # the Python number that it was, as far as it had a few digits
    return config.dialect.jaxprs.literal.format(value=value, type=x.aval.str_short())


class _Writer:
    def __init__(self, used: set[Var]) -> None:
        self.names: dict[Var, str] = {}
        self.count = 0
        self.used = used
        self.dropped: set[Var] = set()  # results of the outer program that nobody reads, which have no name
        self.shared: dict[int, str] = {}  # the names of programs that are written elsewhere, by identity

    def name(self, atom: Atom) -> str:
        if isinstance(atom, Literal):
            return literal_text(atom)
        if atom not in self.names:
            while _letters(self.count) in self.shared.values():
                self.count += 1
            self.names[atom] = _letters(self.count)
            self.count += 1
        return self.names[atom]

    def typed_name(self, var: Var) -> str:
        return f"{self.name(var)}:{var.aval.str_short()}"

    def binder_name(self, var: Var) -> str:
        return self.typed_name(var) if var not in self.dropped else f"_:{var.aval.str_short()}"

    def program(self, program: Program) -> Doc:
        """The program, or its name if it is shared."""
        return self.shared.get(id(program)) or self.definition(program)

    def definition(self, program: Program, outer: bool = False) -> Doc:
        """``{ lambda consts ; arguments. let equations in (results) }``"""
        const_count = program.num_consts if outer or config.dialect.jaxprs.inner_programs_have_constants else 0
        consts = " ".join(self.typed_name(v) for v in program.inputs[:const_count])
        args = " ".join(self.typed_name(v) for v in program.inputs[const_count:])
        body = join_docs([Break("; ")], [[self.equation(e)] for e in program.equations])
        outs = [self.name(v) for v in program.outputs]
        result = f"({', '.join(outs)}{',' if len(outs) == 1 else ''})"
        head = f"{{ lambda {consts}; {args}. let" if consts else f"{{ lambda ; {args}. let"
        if not body:
            return group(head, "  in ", result, " }")
        return group(head, nest(2, nest(2, Break(), *body), Break(), "in ", result, " }"))

    def equation(self, eqn: Equation) -> Doc:
        """``results = op[params] operands``"""
        if eqn.op.shown.text is not None:
            return eqn.op.shown.text(eqn, self.name, list(map(self.binder_name, eqn.outputs)))
        left = " ".join(map(self.binder_name, eqn.outputs))
        operands = [self.name(a) for a in eqn.inputs] or [""] * bool(eqn.outputs)
        params = self.params(eqn)
        name = primitive_name(eqn)
        head = f"{left} = {name}" if left else name
        # A long list of operands goes on in a new line only where the line is full already.
        right = nest(2, *[d for i, operand in enumerate(operands) for d in (group(Break()) if i else " ", operand)])
        if not params:
            return nest(0, head, right)
        inner = join_docs([Break()], [[p] for p in params])
        return nest(0, head, group("[", nest(2, Break(""), *inner), Break(""), "]"), right)

    def params(self, eqn: Equation) -> list[Doc]:
        shown_params = eqn.op.shown.params(eqn)
        return [self.param(eqn, key, shown_params[key]) for key in sorted(shown_params, key=lambda k: (k != "name", k))]

    def param(self, eqn: Equation, key: str, value: Any) -> Doc:
        if isinstance(value, Program):
            if id(value) in self.shared:
                return f"{key}={self.shared[id(value)]}"
            if eqn.op.call:  # its program uses the names of the caller
                met_vars: set[Var] = set()  # of an operand that is given twice the first input has the name
                for inner, outer in zip(value.inputs, eqn.inputs, strict=True):
                    if isinstance(outer, Var) and outer not in met_vars:
                        met_vars.add(outer)
                        self.names.setdefault(inner, self.name(outer))
                for inner, outer in zip(value.outputs, eqn.outputs, strict=True):
                    if isinstance(inner, Var) and outer in self.used:
                        self.names.setdefault(inner, self.name(outer))
            return group(f"{key}=", self.program(value))
        if isinstance(value, tuple) and any(isinstance(v, Program) for v in value):
            return Group(
                (f"{key}=(", nest(2, *[d for v in value for d in (Break(""), self.program(v))]), Break(""), ")")
            )
        return f"{key}={param_text(value)}"


def param_text(value: Any) -> str:
    """One param's value."""
    if isinstance(value, ShapedArray):
        return value.str_short()
    if isinstance(value, np.dtype):
        return value.name
    name = getattr(value, "__name__", None)
    return name if isinstance(name, str) else str(value)


def _letters(n: int) -> str:
    """a .. z, ba, bb, ...: numbers in base 26."""
    text = chr(97 + n % 26)
    while n >= 26:
        n //= 26
        text = chr(97 + n % 26) + text
    return text
