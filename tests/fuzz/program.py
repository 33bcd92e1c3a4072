"""Programs as data that can be written down, cut and run: statements, the functions that they hand to transforms, and text.

A program is one function `f` of its operands. Every name is defined once, so a nested function may use what stands before
it, and a statement can be cut out if nobody uses its name any longer.
"""

from __future__ import annotations

import copy
import math
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

AXES = ("x", "y", "z")
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Quality:
    """What is known of a value's numbers, so that a difference means something.

    Attributes:
        step: every element is a multiple of it, and none has ever been rounded; None if elements may be a little off.
        bound: no element is larger, unless it is infinite.
        noise: how far an element may be off, for whatever order and width the computation is done in.
    """

    step: float | None
    bound: float
    noise: float = 0.0

    @property
    def exact(self) -> bool:
        return self.step is not None


@dataclass(frozen=True)
class Value:
    """A name in a program, its type, and the quality of its numbers."""

    name: str
    shape: Shape
    dtype: str
    quality: Quality

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return self.name


@dataclass
class Function:
    """A local function: what stands in it, and the expression that it returns."""

    name: str
    parameters: list[str]
    statements: list[Statement] = field(default_factory=list)
    result: str = ""
    decorator: str = ""
    after: str = ""  # a line behind the definition

    def lines(self, indent: str) -> Iterator[str]:
        if self.decorator:
            yield f"{indent}{self.decorator}"
        yield f"{indent}def {self.name}({', '.join(self.parameters)}):"
        for statement in self.statements:
            yield from statement.lines(indent + "    ")
        yield f"{indent}    return {self.result}"
        if self.after:
            yield f"{indent}{self.after}"

    def uses(self) -> set[str]:
        own = set(self.parameters) | {s.name for s in self.statements}
        inner = set().union(*(s.uses() for s in self.statements)) if self.statements else set()
        return (inner | _names(self.result) | _names(self.after)) - own


@dataclass
class Statement:
    """`name = expression`, behind the functions that the expression calls."""

    name: str
    expression: str
    shape: Shape
    dtype: str
    functions: list[Function] = field(default_factory=list)

    def lines(self, indent: str) -> Iterator[str]:
        for function in self.functions:
            yield from function.lines(indent)
        yield f"{indent}{self.name} = {self.expression}"

    def uses(self) -> set[str]:
        own = {function.name for function in self.functions}
        return set().union(_names(self.expression), *(f.uses() for f in self.functions)) - own


def _names(text: str) -> set[str]:
    return set(re.findall(r"\b[vf]\d+\b", text))


@dataclass(frozen=True)
class Operand:
    """An argument of the program: its type, how it is made, and its spec on the mesh (as text)."""

    name: str
    shape: Shape
    dtype: str
    made: str
    spec: str


@dataclass
class Program:
    """The whole: operands, statements and results, with how far floats of each result may be off.

    Attributes:
        axis_type: of the mesh: Auto or Explicit.
        maps: whether the body has a `shard_map`, which needs the mesh whatever lies on it.
        refused: a program that the library refused while this one grew.
    """

    mesh: Shape
    axis_type: str
    operands: list[Operand]
    statements: list[Statement]
    results: list[str]
    noise: list[float]
    jit: str = ""  # further arguments of jit on the mesh, as text
    maps: bool = False
    refused: Program | None = None

    def text(self, how: str = "mesh", call: str | None = None) -> str:
        """The program, written down.

        Args:
            how: `mesh` puts operands on the mesh as their specs say; `plain` leaves them on one device, and constraints
                away; both call under jit. `eager` is `plain` without jit.
            call: what becomes of the function `f` and its `args`, if not that.
        """
        on_mesh = how == "mesh"
        lines = []
        if on_mesh or self.maps:
            lines.append(f"mesh = mesh_of({self.mesh}, {AXES[: len(self.mesh)]}, {self.axis_type!r})")
        if on_mesh:
            lines.append("put = lambda x, spec: jax.device_put(x, NamedSharding(mesh, spec))")
            fix = "lax.with_sharding_constraint" if self.axis_type == "Auto" else "jax.sharding.reshard"
            lines.append(f"constrain = lambda x, spec: {fix}(x, NamedSharding(mesh, spec))")
        else:
            lines.append("put = lambda x, spec: jnp.asarray(x)")
            lines.append("constrain = lambda x, spec: x")
        if self.maps:  # XLA's partitioner is wrong about some ops when shard_map splits what stands around it
            whole = "x" if on_mesh else "lax.with_sharding_constraint(x, NamedSharding(mesh, P()))"
            lines.append(f"whole = lambda x: {whole}")
        lines += ["def f(" + ", ".join(o.name for o in self.operands) + "):"]
        for statement in self.statements:
            lines += statement.lines("    ")
        lines += [f"    return [{', '.join(self.results)}]"]
        lines += ["args = (" + "".join(f"put({o.made}, {o.spec}), " for o in self.operands) + ")"]
        extra = f", {self.jit}" if self.jit and on_mesh else ""
        call = call or ("f(*args)" if how == "eager" else f"jax.jit(f{extra})(*args)")
        if on_mesh and self.axis_type == "Explicit":
            return "\n".join([*lines, "with jax.set_mesh(mesh):", f"    result = {call}"])
        return "\n".join([*lines, f"result = {call}"])

    def only(self, keep: list[int]) -> Program:
        """The program with those results only, and what they need."""
        program = replace(self, results=[self.results[i] for i in keep], noise=[self.noise[i] for i in keep])
        if program.jit and "out_shardings" in program.jit:
            program.jit = ""
        return program.without_dead()

    def without_dead(self) -> Program:
        """The program without statements and operands that nothing needs."""
        needed = set().union(*map(_names, self.results))
        statements = _live(self.statements, needed)
        operands = [o for o in self.operands if o.name in needed]
        if "argnums" in self.jit and len(operands) < len(self.operands):
            return replace(self, statements=statements, operands=operands or self.operands[:1], jit="")
        return replace(self, statements=statements, operands=operands or self.operands[:1])


EDITS = {"f": "({}) * 2", "c": "({}) * 2", "i": "({}) ^ 1", "b": "~({})"}


def edited(program: Program) -> Program | None:
    """The program with one of its statements, or of its operands, another one: always the same; None if it has none."""
    draw = random.Random(program.text())
    changed = copy.deepcopy(program)
    statements = list(every_statement(changed.statements))
    if draw.random() < 0.1 or not statements:
        at = draw.randrange(len(changed.operands))
        made = changed.operands[at].made
        if not made.endswith(")"):
            return None
        changed.operands[at] = replace(changed.operands[at], made=made.rpartition(",")[0] + ", 1000)")
        return changed
    statement = draw.choice(statements)
    letter = "b" if statement.dtype == "bool" else "i" if "int" in statement.dtype else statement.dtype[0]
    statement.expression = EDITS["f" if letter == "b" and statement.dtype != "bool" else letter].format(
        statement.expression
    )
    return changed


def every_statement(statements: list[Statement]) -> Iterator[Statement]:
    """The statements, and those of the functions that they call."""
    for statement in statements:
        yield statement
        for function in statement.functions:
            yield from every_statement(function.statements)


def _live(statements: list[Statement], needed: set[str]) -> list[Statement]:
    """The statements that lead to the names `needed`, to which those that they use are added."""
    kept = []
    for statement in reversed(statements):
        if statement.name not in needed:
            continue
        functions = []
        for function in statement.functions:
            inner = _names(function.result) | _names(function.after)
            functions.append(replace(function, statements=_live(function.statements, inner)))
        statement = replace(statement, functions=functions)
        needed |= statement.uses()
        kept.append(statement)
    return kept[::-1]
