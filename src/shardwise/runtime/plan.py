"""From a per-device Program to one flat Python function over blocks.

Comes in: the program, with explicit collectives, and the `Env` of its device grid.
Goes out: `run(*blocks) -> tuple of blocks`, generated source with one line per equation, compiled once.

A value is deleted after its last use, so that its buffer goes back to the pool. A kernel that can write over an operand (it
has a method `over`) gets those that die with it in a list that nothing else refers to, checks that nobody else sees them, and
removes from the list those that it writes over.

Small values that follow from constants and the numbers of devices alone are computed in the first call, and belong to the plan.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy._core import umath as _umath

from shardwise.base.dtypes import physical
from shardwise.base.generated import define
from shardwise.base.locks import cached_property
from shardwise.base.shapes import Ndarray
from shardwise.base.tracebacks import PLACES
from shardwise.ir import Atom, Equation, Literal, Program, Var, calls_user, overwritten_operands, subprograms
from shardwise.runtime import costs
from shardwise.runtime.env import Env

# XLA computes inf and nan in silence. This is what `np.errstate(all="ignore")` sets, without its cost on every call.
_ERRORS = _umath._extobj_contextvar  # pyright: ignore[reportPrivateUsage]
_QUIET = _umath._make_extobj(all="ignore")  # pyright: ignore[reportPrivateUsage]

# For who follows a plan as it runs: the equation per generated line, among the globals of the code.
EQUATIONS = "__equations__"

_KNOWN_MOST = 1 << 12  # elements, on all devices, of a value that a plan keeps

Run = Callable[..., tuple[Ndarray, ...]]


class Plan:
    """A compiled per-device program. `run(*blocks)` computes its outputs; `source` is the generated code.

    Blocks of the inputs `owned` (positions) die with the call. If there are any, `run` takes one list instead, and empties it. If
    it raises, the list holds the inputs again, and None for each whose memory has been used. None has where the user's code raised.
    """

    __slots__ = ("env", "owned", "program", "run", "source")

    def __init__(self, program: Program, env: Env, owned: Sequence[int] = ()) -> None:
        self.program = program
        self.env = env
        self.owned = tuple(owned)
        writer = PlanWriter(program, env, self.owned)
        self.source = writer.source()
        namespace = writer.constants
        define(self.source, f"<plan of {program.name}>", namespace)
        if writer.known_source:
            define(writer.known_source, f"<constants of {program.name}>", namespace)
            namespace["known"] = _once(namespace["compute_known"])
        self.run: Run = namespace["run"]


def equation_lines(plan: Plan) -> dict[int, int]:
    """By line of a plan's source the number of the equation that it belongs to."""
    writer = PlanWriter(plan.program, plan.env, plan.owned)
    writer.source()
    return writer.places


class PlanWriter:
    """Writes the source: names for values, constants for kernels and literals, `del` after the last use."""

    def __init__(self, program: Program, env: Env, owned: Sequence[int]) -> None:
        self.program = program
        self.env = env
        self.owned = {program.inputs[i] for i in owned}
        # What no equation may write over: values that the caller keeps, or that are results.
        self.kept = {v for v in program.inputs if v not in self.owned} | {
            v for v in program.outputs if isinstance(v, Var)
        }
        self.constants: dict[str, Any] = {
            "asarray": np.asarray,
            "quiet": _QUIET,
            "errors": _ERRORS,
            "left": _recover_inputs,
        }
        self.places: dict[int, int] = {}  # the number of the equation by our line
        self.names: dict[Var, str] = {}
        self.views: set[Var] = set()  # of constants
        self.stretched_results = _stretched_results(program)
        self.known_source = ""  # the function that computes what the plan keeps
        self.last_use = _last_uses(program)
        # Until the last equation that runs code of the user's, what is owned stays as it is.
        self.settled = max([i for i, e in enumerate(program.equations) if calls_user(e)], default=-1) if owned else -1
        for var in self.owned:
            self.last_use[var] = max(self.last_use.get(var, -1), self.settled)

    @cached_property
    def windows(self) -> set[Var]:
        """Parts of a value that are read when an update is to be written over it: they are copied, so that the value need not be."""
        views: dict[Any, list[Var]] = {}
        found: set[Var] = set()
        outputs = {v for v in self.program.outputs if isinstance(v, Var)}

        def outlives(v: Var, i: int) -> bool:
            return v in outputs or self.last_use.get(v, -1) >= i or any(outlives(w, i) for w in views.get(v, ()))

        def search(x: Var, size: int, i: int) -> None:
            for v in views.get(x, ()):
                if 2 * v.aval.size > size:
                    search(v, size, i)
                elif outlives(v, i):
                    found.add(v)

        for i, eqn in enumerate(self.program.equations):
            x = eqn.inputs[0] if eqn.inputs else None
            if eqn.op.view or eqn.op.extracts == "window":
                views.setdefault(x, []).extend(eqn.outputs)
            for over in overwritten_operands(eqn):
                if over not in self.kept and self.last_use.get(over) == i:
                    search(over, over.aval.size, i)
        return found

    def constant(self, value: Any, hint: str) -> str:
        name = f"{hint}_{len(self.constants)}"
        self.constants[name] = value
        return name

    def source(self) -> str:
        program = self.program
        for i, var in enumerate(program.inputs):
            self.names[var] = f"a{i}"
        names = tuple(self.names[v] for v in program.inputs)
        inputs = ", ".join(names)
        lines = [f"def run({'given' if self.owned else inputs}):"]
        kept = {v for v in program.outputs if isinstance(v, Var)}
        if self.owned:
            lines += [f"    {inputs}, = given", "    given.clear()"]
        begun = len(lines)
        early = dict.fromkeys(self._known_equations())
        if early_names := self._write_known(list(early)):
            self.places[len(lines)] = next(iter(early))
            lines.append(f"    {', '.join(early_names)}, = known()")
        for i, eqn in enumerate(program.equations):
            if i in early:
                continue
            waited = self.owned if i == self.settled else ()
            dead = [
                v
                for v in dict.fromkeys((*eqn.inputs, *eqn.outputs, *waited))
                if isinstance(v, Var) and v not in kept and self.last_use.get(v, i) == i
            ]
            written = self.equation(eqn, dead)
            self.places |= dict.fromkeys(range(len(lines), len(lines) + len(written)), i)
            lines += written
            if dead:
                lines.append(f"    del {', '.join(self.names[v] for v in dead)}")
        body = lines[1:]
        if len(lines) > begun:
            back = (
                ["    except BaseException:", f"        left(given, locals(), {names})", "        raise"]
                if self.owned
                else []
            )
            guarded = [
                "    try:",
                *("    " + line for line in body),
                *back,
                "    finally:",
                "        errors.reset(before)",
            ]
            lines[1:] = ["    before = errors.set(quiet)", *guarded]
            # Lines count from 1, and two were put before them.
            self.places = {at + 3: number for at, number in self.places.items()}
            by_line = {at: program.equations[number] for at, number in self.places.items()}
            self.constants[EQUATIONS] = by_line
            self.constants[PLACES] = {at: eqn.source for at, eqn in by_line.items()}
        outs = ", ".join(self.output(a) for a in program.outputs)
        lines.append(f"    return ({outs}{',' if len(program.outputs) == 1 else ''})")
        return "\n".join(lines)

    def _known_equations(self) -> list[int]:
        """The numbers of the equations whose results are the same in all calls, and small."""
        values: set[Atom] = set()
        found: list[int] = []
        for i, eqn in enumerate(self.program.equations):
            if not all(isinstance(a, Literal) or a in values for a in eqn.inputs) or not self._is_pure(eqn):
                continue
            if all(self._elements(v) <= _KNOWN_MOST and v not in self.program.outputs for v in eqn.outputs):
                found.append(i)
                values.update(eqn.outputs)
        return found

    def _is_pure(self, eqn: Equation) -> bool:
        """Whether an equation of known operands may be computed once: one of elements, a view, or one without operands."""
        if calls_user(eqn) or (
            self.env.processes is not None and (eqn.op.across is not None or bool(subprograms(eqn.params)))
        ):
            return False
        return bool(self.env.lead) and (eqn.op.emit is not None or eqn.op.view or not eqn.inputs)

    def _elements(self, var: Var) -> int:
        return math.prod([var.aval.size, *map(self.env.size, var.aval.vma)])

    def _write_known(self, places: Sequence[int]) -> list[str]:
        """Write the function that computes these; the names of those of its results that other equations read."""
        equations = self.program.equations
        inside = set(places)
        lines = [line for i in places for line in self.equation(equations[i], [])]
        values = {v: None for i in places for v in equations[i].outputs}
        read = {a for i, e in enumerate(equations) if i not in inside for a in e.inputs}
        results = [v for v in values if v in read and v not in self.views]
        self.kept.update(values)
        self.last_use |= dict.fromkeys(values, len(equations))
        names = [self.names[v] for v in results]
        if names:
            self.known_source = "\n".join(["def compute_known():", *lines, f"    return {', '.join(names)},"])
        return names

    def equation(self, eqn: Equation, dead: list[Var]) -> list[str]:
        """The lines that compute an equation. Variables that these lines delete themselves are removed from `dead`."""
        if eqn.op.view and eqn.op.across is None and eqn.inputs and all(map(self._is_constant, eqn.inputs)):
            return self._constant_view(eqn, dead)
        for var in eqn.outputs:
            self.names[var] = f"v{len(self.names)}"
        targets = ", ".join(self.names[v] for v in eqn.outputs)
        if eqn.op.multiple_results:
            targets = f"({targets},)" if eqn.outputs else "_"
        if eqn.op.ufunc is not None:
            fn = self.constant(eqn.op.ufunc_for([a.aval.dtype for a in eqn.inputs]), eqn.op.name)
            args = ", ".join(self.elementwise(a, eqn.outputs[0].aval.ndim) for a in eqn.inputs)
            if self.env.lead and all(isinstance(a, Literal) for a in eqn.inputs):
                return [f"    {targets} = asarray({fn}({args})).reshape({(1,) * self.env.lead})"]
            return [f"    {targets} = {fn}({args})"]
        kernel = kernel_of(eqn, self.env)
        operands = ", ".join(self.operand(a) for a in eqn.inputs)
        over = getattr(kernel, "over", None)
        free = [i for i, a in enumerate(eqn.inputs) if a in dead and a not in self.kept and eqn.inputs.count(a) == 1]
        if free and self.owned and calls_user(eqn):  # which may raise
            free = [i for i in free if eqn.inputs[i] not in self.owned]
        if over is None or not free:
            apart = [self.names[v] for v in eqn.outputs if v in self.windows]
            lines = [f"    {targets} = {self.constant(kernel, eqn.op.name)}({operands})"]
            return lines + [f"    {name} = {name}.copy('K')" for name in apart]
        handed = [v for v in dict.fromkeys(eqn.inputs) if v in dead]  # one may stand there twice
        dead[:] = [v for v in dead if v not in handed]
        fn = self.constant(partial(over, tuple(free)), eqn.op.name)
        given = {k: self.names[v] for k, v in enumerate(eqn.inputs) if v in self.owned and v in handed}
        return [
            f"    handed = [{operands}]",
            *([f"    held = {given}"] if given else ()),
            f"    del {', '.join(self.names[v] for v in handed)}",
            f"    {targets} = {fn}(handed)",
            "    del handed",
        ]

    def _is_constant(self, atom: Atom) -> bool:
        return isinstance(atom, Literal) or atom in self.views

    def _constant_view(self, eqn: Equation, dead: list[Var]) -> list[str]:
        """A view of constants is made once, and belongs to the plan."""
        views = kernel_of(eqn, self.env)(*[self.constants[self.operand(a)] for a in eqn.inputs])
        for var, view in zip(eqn.outputs, views if eqn.op.multiple_results else (views,), strict=True):
            self.names[var] = self.constant(view.copy() if var in self.stretched_results else view, "c")
            self.views.add(var)
            self.last_use[var] = len(self.program.equations)
        dead[:] = [v for v in dead if v not in eqn.outputs]
        return []

    def elementwise(self, atom: Atom, ndim: int) -> str:
        """An operand of a broadcasting ufunc: a scalar that varies over devices gets the result's rank."""
        if isinstance(atom, Literal):
            return self.constant(atom.value, "c")  # 0-d arrays: ufuncs take them quicker than NumPy's scalars
        name = self.names[atom]
        missing = ndim - atom.aval.ndim
        if missing and self.env.lead and (atom.aval.vma or self.env.extra or self.env.lead > ndim):
            return f"{name}[..., {', '.join(['None'] * missing)}]"
        return name

    def operand(self, atom: Atom) -> str:
        if isinstance(atom, Literal):
            return self.constant(atom.value.reshape((1,) * self.env.lead), "c")
        name = self.names[atom]
        # Of 0-d arrays ufuncs make NumPy's scalars, which have no memory that a kernel could be pointed to.
        scalar = not self.env.lead and not atom.aval.ndim and atom not in self.program.inputs and atom not in self.views
        return f"asarray({name})" if scalar else name

    def output(self, atom: Atom) -> str:
        if isinstance(atom, Literal):
            return self.operand(atom)
        if atom in self.stretched_results and atom not in self.views:
            return f"{self.names[atom]}.copy()"
        return f"asarray({self.names[atom]})" if not self.env.lead and not atom.aval.ndim else self.names[atom]


def _once(compute: Callable[[], Any]) -> Callable[[], Any]:
    """A function that computes something when it is first called, and keeps it."""
    results: list[Any] = []

    def result() -> Any:
        if not results:
            results.append(compute())
        return results[0]

    return result


def _recover_inputs(given: list[Any], values: dict[str, Any], names: Sequence[str]) -> None:
    """Put into `given` what is left of the inputs of a plan that was broken off: among its values, or handed to a kernel."""
    if given:  # not begun
        return
    handed, held = values.get("handed", ()), values.get("held", {})
    found = {name: handed[k] for k, name in held.items() if k < len(handed)} | values
    given[:] = [found.get(name) for name in names]


def kernel_of(eqn: Equation, env: Env) -> Callable[..., Any]:
    """The equation's kernel as a function of its blocks."""
    op = eqn.op
    if op.across is not None and env.processes is not None and (op.absorbs is None or eqn.params.get("sum_axes")):
        types = tuple(a.aval for a in eqn.inputs), tuple(v.aval for v in eqn.outputs)
        return op.across(env, *types, dict(eqn.params))
    if op.compile is not None:
        types = tuple(a.aval for a in eqn.inputs), tuple(v.aval for v in eqn.outputs)
        return op.compile(env, *types, dict(eqn.params))
    if op.kernel is None and op.ufunc is not None:
        return op.ufunc
    return partial(op.block_kernel, env, **eqn.params)


def _stretched_results(program: Program) -> set[Var]:
    """Small results that are views which repeat elements. They get memory of their own: programs that read them have machine code, which
    would need a copy at each call.
    """
    outputs = {v for v in program.outputs if isinstance(v, Var)}
    views = [(e, v) for e in program.equations if e.op.view and e.inputs for v in e.outputs if v in outputs]
    return {
        v
        for e, v in views
        if v.aval.size > max(a.aval.size for a in e.inputs)
        and v.aval.size * physical(v.aval.dtype).itemsize <= costs.STRETCHED_MOST
    }


def _last_uses(program: Program) -> dict[Var, int]:
    last: dict[Var, int] = {}
    for i, eqn in enumerate(program.equations):
        for atom in eqn.inputs:
            if isinstance(atom, Var):
                last[atom] = i
    return last
