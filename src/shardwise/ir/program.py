"""Programs: SSA lists of equations over typed values, with a text form and a verifier.

A Program is global (its types are global shapes) or per-device (local shapes, explicit collectives); the form is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

from shardwise.base import config
from shardwise.base.records import record
from shardwise.ir.op import Op
from shardwise.ir.showing import SHOWING
from shardwise.ir.types import ShapedArray
from shardwise.ir.value import Literal


class Var:
    """One value of a program, defined once. Compared by identity."""

    __slots__ = ("aval",)

    def __init__(self, aval: ShapedArray) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return f"Var({self.aval.str_short()})"


Atom = Var | Literal


class Need(NamedTuple):
    """Why there is a collective.

    Attributes:
        op: the op that needed its result; of one that the user wrote its own.
        value: the global type of the value that it works on.
        implicit: whether the partitioner inserted it.
    """

    op: str
    value: str
    implicit: bool


class Source(NamedTuple):
    """The origin of an equation. False if no line is known.

    Attributes:
        file: of the user's code.
        line: in that file. Derivatives have the line of the op that they differentiate.
        backward: whether the equation belongs to a backward pass, or is computed again for one.
        need: of a collective.
        kernel: the one that the equation belongs to.
    """

    file: str
    line: int
    backward: bool = False
    need: Need | None = None
    kernel: Kernel | None = None

    def __bool__(self) -> bool:
        return bool(self.file)

    @property
    def place(self) -> tuple[str, int] | None:
        """File and line alone, None where no line is known."""
        return (self.file, self.line) if self.file else None


NOWHERE = Source("", 0)


@record
class Equation:
    """`outputs = op[params](inputs)`, with the user's source line that caused it."""

    op: Op
    inputs: tuple[Atom, ...]
    outputs: tuple[Var, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    source: Source | None = None

    def __repr__(self) -> str:
        return _Printer().equation(self)


@record
class Program:
    """Inputs, equations, outputs. The first `num_consts` inputs are values captured from outside the function."""

    inputs: tuple[Var, ...]
    equations: tuple[Equation, ...]
    outputs: tuple[Atom, ...]
    num_consts: int = 0
    name: str = "f"
    _effects: bool | None = field(default=None, init=False)  # once it was asked for
    _holders: tuple[int, ...] | None = field(default=None, init=False)  # likewise

    @property
    def holders(self) -> tuple[int, ...]:
        """The positions of the equations whose params hold programs."""
        if self._holders is None:
            holds: dict[int, bool] = {}  # by id of the params: many equations have the same
            places: list[int] = []
            for i, eqn in enumerate(self.equations):
                has_program = holds.get(id(eqn.params))
                if has_program is None:
                    has_program = holds[id(eqn.params)] = bool(subprograms(eqn.params))
                if has_program:
                    places.append(i)
            object.__setattr__(self, "_holders", tuple(places))
            return tuple(places)
        return self._holders

    @property
    def has_effects(self) -> bool:
        """Whether an equation has effects."""
        if self._effects is None:
            any_effects = any(e.op.effects and e.op.has_effects(e.params) for e in self.equations)
            object.__setattr__(self, "_effects", any_effects)
            return any_effects
        return self._effects

    @property
    def in_types(self) -> tuple[ShapedArray, ...]:
        """Types of the inputs, captured values first."""
        return tuple(v.aval for v in self.inputs)

    @property
    def out_types(self) -> tuple[ShapedArray, ...]:
        """Types of the outputs."""
        return tuple(v.aval for v in self.outputs)

    def __str__(self) -> str:
        return _Printer().program(self)

    __repr__ = __str__


@record
class Kernel:
    """Equations that an accelerator runs as one kernel, as somebody wrote it; here they are those of its interpreter.

    Attributes:
        name: of the kernel.
        grid: how often it runs, per axis; a step after the other on a TPU. () where it is the equations and no more.
        body: what a step computes: the first operands after the captured values are its position in the grid.
        again: how many bytes its steps read and write in memory, relative to those of its operands and results, each once.
        held: bytes of on-chip memory that it asks for.
        part: the share of its equations' work that the kernel does: it leaves out masked elements.
        flops, transcendentals, bytes_accessed: the needs of a call as its author states them; None where he does not.
        written: bytes of the results of one such call.
    """

    name: str
    grid: tuple[int, ...] = ()
    body: Program | None = None
    again: float = 1.0
    held: int = 0
    part: float = 1.0
    flops: float | None = None
    transcendentals: float | None = None
    bytes_accessed: float | None = None
    written: int = 0


def subprograms(params: Mapping[str, Any]) -> Sequence[tuple[str, Program]]:
    """The programs held by an equation's params: loop bodies, branches, called functions."""
    programs: tuple[tuple[str, Program], ...] = ()
    for name, value in params.items():
        if isinstance(value, Program):
            programs += ((name, value),)
        elif isinstance(value, tuple) and Program in map(type, value):
            programs += tuple([(f"{name}[{i}]", item) for i, item in enumerate(value) if isinstance(item, Program)])
    return programs


def map_programs(eqn: Equation, change: Callable[[Program], Program]) -> Equation:
    """The equation with `change` applied to each program in its params; the equation itself if none changes."""
    new_params: dict[str, Any] = {}
    for name, value in eqn.params.items():
        new: Any = value
        if type(value) is Program:
            new = change(value)
        elif type(value) is tuple and Program in map(type, value):
            new = tuple(change(v) if type(v) is Program else v for v in value)
            if all(a is b for a, b in zip(new, value, strict=True)):
                new = value
        if new is not value:
            new_params[name] = new
    return Equation(eqn.op, eqn.inputs, eqn.outputs, {**eqn.params, **new_params}, eqn.source) if new_params else eqn


class ProgramMap:
    """`map_programs` of many equations: those that share their params, as the layers of an unrolled model do, share the changed ones."""

    __slots__ = ("_change", "_done", "_params")

    def __init__(self, change: Callable[[Program], Program]) -> None:
        self._change = change
        self._done: dict[Program, Program] = {}
        self._params: dict[
            int, tuple[Mapping[str, Any], Mapping[str, Any]]
        ] = {}  # by identity, which both are kept for

    def of(self, program: Program) -> Program:
        """The changed program."""
        known_program = self._done.get(program)
        if known_program is None:
            known_program = self._done[program] = self._change(program)
        return known_program

    def params_of(self, eqn: Equation) -> Mapping[str, Any]:
        """The params of the changed equation."""
        return (self._params.get(id(eqn.params)) or self._mapped_params(eqn))[1]

    def _mapped_params(self, eqn: Equation) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        new_params = self._params[id(eqn.params)] = eqn.params, map_programs(eqn, self.of).params
        return new_params

    def inside(self, program: Program) -> Program:
        """The program with the programs in its equations changed; the program itself if none changes."""
        new: dict[int, Equation] = {}
        for i in program.holders:
            eqn = program.equations[i]
            new_params = self.params_of(eqn)
            if new_params is not eqn.params:
                new[i] = Equation(eqn.op, eqn.inputs, eqn.outputs, new_params, eqn.source)
        if not new:
            return program
        equations = list(program.equations)
        for i, eqn in new.items():
            equations[i] = eqn
        return Program(program.inputs, tuple(equations), program.outputs, program.num_consts, program.name)


def map_equations(program: Program, change: Callable[[Equation], Equation]) -> Program:
    """The program with `change` applied to each equation; the program itself if none changes."""
    equations = tuple(change(e) for e in program.equations)
    if all(new is old for new, old in zip(equations, program.equations, strict=True)):
        return program
    return Program(program.inputs, equations, program.outputs, program.num_consts, program.name)


def source_text(source: Source | tuple[str, int] | None) -> str:
    """``file.py:12`` or an empty text."""
    return f"{source[0].rpartition('/')[2]}:{source[1]}" if source else ""


class _Printer:
    def __init__(self) -> None:
        self.names: dict[Var, str] = {}

    def name(self, atom: Atom) -> str:
        if isinstance(atom, Literal):
            return repr(atom)
        if atom not in self.names:
            self.names[atom] = _letters(len(self.names))
        return self.names[atom]

    def typed_name(self, var: Var) -> str:
        return f"{self.name(var)}:{var.aval.str_short()}"

    def equation(self, eqn: Equation) -> str:
        params = [f"{k}={_param(v)}" for k, v in eqn.params.items() if not _has_program(v) and v is not None]
        bracket = f"[{' '.join(params)}]" if params else ""
        args = " ".join(self.name(a) for a in eqn.inputs)
        return f"{' '.join(self.typed_name(v) for v in eqn.outputs)} = {eqn.op.name}{bracket} {args}".rstrip()

    def program(self, program: Program, indent: str = "") -> str:
        consts = " ".join(self.typed_name(v) for v in program.inputs[: program.num_consts])
        args = " ".join(self.typed_name(v) for v in program.inputs[program.num_consts :])
        lines = [f"{{ lambda {consts}; {args}. let".replace("lambda ;", "lambda ;")]
        for eqn in program.equations:
            lines.append(f"{indent}    {self.equation(eqn)}")
            for key, inner in subprograms(eqn.params):
                lines.append(f"{indent}      {key}={_Printer().program(inner, indent + '      ')}")
        outs = ", ".join(self.name(v) for v in program.outputs)
        lines.append(f"{indent}  in ({outs}{',' if len(program.outputs) == 1 else ''}) }}")
        return "\n".join(lines)


def _has_program(value: Any) -> bool:
    return isinstance(value, Program) or (isinstance(value, tuple) and any(isinstance(v, Program) for v in value))


def _param(value: Any) -> str:
    text = getattr(value, "__name__", None) or str(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _letters(n: int) -> str:
    text = ""
    n += 1
    while n:
        n, r = divmod(n - 1, 26)
        text = chr(97 + r) + text
    return text


def calls_user(eqn: Equation) -> bool:
    """Whether an equation, or a program in its params, runs user code or has effects."""
    if eqn.op.calls_user or eqn.op.has_effects(eqn.params):
        return True
    return any(calls_user(e) for _, inner in subprograms(eqn.params) for e in inner.equations)


def called_effects(params: Mapping[str, Any]) -> bool:
    """`Op.effects` of an op that calls the program in its params."""
    return params["program"].has_effects


def is_update(eqn: Equation) -> bool:
    """Whether the result is operand 0 with elements replaced (`Op.updates`), also of an op that is mapped."""
    inner = eqn.params.get("mapped_op")
    return eqn.op.updates or (isinstance(inner, Op) and inner.updates and bool(eqn.params["mapped"][0]))


def overwritten_operands(eqn: Equation) -> list[Var]:
    """The operands over which an equation's kernel may write a result, where nobody else sees them."""
    over = eqn.op.writes_over
    places = over(eqn.params) if over is not None else (0,) if is_update(eqn) else ()
    return [x for x in (eqn.inputs[i] for i in places) if isinstance(x, Var)]


def live_equations(program: Program) -> Program:
    """`program` without equations whose results nobody uses and which have no effects."""
    needed_atoms: set[Atom] = set(program.outputs)
    kept_equations: list[Equation] = []
    for eqn in reversed(program.equations):
        if not needed_atoms.isdisjoint(eqn.outputs) or (eqn.op.effects and eqn.op.has_effects(eqn.params)):
            kept_equations.append(eqn)
            needed_atoms.update(eqn.inputs)
    if len(kept_equations) == len(program.equations):
        return program
    return Program(program.inputs, tuple(reversed(kept_equations)), program.outputs, program.num_consts, program.name)


def kept_equations(program: Program) -> Program:
    """The equations that calls and bodies keep of a traced program: live ones; all of them if key reuse is checked.

    A key counts as used even if nobody uses its numbers. Programs that are shown have all that the function did.
    """
    return program if config.jax_debug_key_reuse or SHOWING.get() else live_equations(program)
