"""Programs in the form that interpreters written for JAX walk: `ClosedJaxpr`, `Jaxpr`, `JaxprEqn`, `Primitive`.

In: a Program. Out: views of it under JAX's names. An equation's ``primitive.bind(*values, **params)`` applies its op
to other values, so `eval_jaxpr` and the interpreters in JAX's tutorials work on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from shardwise.base.locks import cached_property
from shardwise.ir import (
    Array,
    Atom,
    Equation,
    Literal,
    Op,
    Program,
    ShapedArray,
    Trace,
    Var,
    bind,
    eval_program,
    install_primitives,
    subprograms,
    tracing,
)
from shardwise.ir.references import Reference
from shardwise.ir.sources import NameStack, SourceInfo
from shardwise.ops.indexing.reference_ops import REFERENCE_OPS
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.transforms import reports
from shardwise.transforms.programs.jaxpr_text import equation_text, jaxpr_text, primitive_name
from shardwise.transforms.programs.primitives import Primitive, own_params, primitive_of


class EqnParams(dict[str, Any]):
    """An equation's params. Programs among them are Jaxprs under JAX's names, beside the names that the op itself takes; what only JAX's
    text has, as `unroll` of a scan, can be asked for by its name.
    """

    def __init__(self, eqn: Equation) -> None:
        super().__init__(eqn.params)
        self._equation = eqn
        shown_form = eqn.op.shown
        holds_programs = any(True for _ in subprograms(eqn.params))
        self._aliases = {theirs: ours for ours, theirs in shown_form.renamed.items()} if holds_programs else {}
        text = shown_form.params(eqn) if shown_form.whole is not None or shown_form.change is not None else {}
        known_names = () if shown_form.whole is not None else {*eqn.params, *shown_form.renamed.values()}
        self._shown = {k: v for k, v in text.items() if k not in known_names}

    def __missing__(self, key: str) -> Any:
        return as_jaxpr(self[self._aliases[key]]) if key in self._aliases else self._shown[key]

    def __contains__(self, key: object) -> bool:
        if not isinstance(key, str):
            return False
        return super().__contains__(key) or super().__contains__(self._aliases.get(key)) or key in self._shown

    def items(self) -> Any:
        """Pairs, with programs as Jaxprs under JAX's names."""
        names = {ours: theirs for theirs, ours in self._aliases.items()}
        return [(names.get(k, k), as_jaxpr(v)) for k, v in super().items()]

    def keys(self) -> Any:
        """The names, those of programs as JAX's. Copies made by ``dict(params)`` and ``**params`` have them."""
        return [k for k, _ in self.items()]

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def values(self) -> Any:
        """The values, with programs as Jaxprs."""
        return [v for _, v in self.items()]

    def copy(self) -> EqnParams:
        """A copy, which knows the same names."""
        other = EqnParams(self._equation)
        dict.clear(other)
        dict.update(other, dict.items(self))
        return other

    def pop(self, key: str, *default: Any) -> Any:
        """Take a param out, by either name."""
        if not super().__contains__(key) and key in self._aliases:
            return as_jaxpr(super().pop(self._aliases[key], *default))
        return super().pop(key, *default)

    def get(self, key: str, default: Any = None) -> Any:
        """The param, or `default`."""
        try:
            return self[key]
        except KeyError:
            return default


def as_jaxpr(value: Any) -> Any:
    """Programs as ClosedJaxprs, in tuples too; other values as they are."""
    if isinstance(value, Program):
        return ClosedJaxpr(value)
    return tuple(map(as_jaxpr, value)) if type(value) is tuple else value


class JaxprEqn:
    """One equation."""

    __slots__ = ("equation",)

    def __init__(self, equation: Equation) -> None:
        self.equation = equation

    primitive = property(lambda self: _shown_primitive(self.equation), doc="The operation.")
    invars = property(lambda self: list(self.equation.inputs), doc="Operands: Vars and Literals.")
    outvars = property(lambda self: list(self.equation.outputs), doc="Results.")
    op = property(lambda self: self.equation.op, doc="The op behind the primitive.")
    effects = property(lambda self: frozenset({self.op.name} if self.op.has_effects(self.equation.params) else ()))
    source_info = property(
        lambda self: SourceInfo(self.equation.source, NameStack()),
        doc="The line of the user's code; scopes are not kept.",
    )

    @property
    def params(self) -> dict[str, Any]:
        """The op's params."""
        return _shown_params(self.equation)

    def replace(
        self,
        *,
        invars: Sequence[Atom] | None = None,
        outvars: Sequence[Var] | None = None,
        primitive: Primitive | None = None,
        params: dict[str, Any] | None = None,
    ) -> JaxprEqn:
        """The equation with some parts changed."""
        old = self.equation
        return new_jaxpr_eqn(
            old.inputs if invars is None else invars,
            old.outputs if outvars is None else outvars,
            self.primitive if primitive is None else primitive,
            dict(old.params) if params is None else params,
            source_info=self.source_info,
        )

    def __repr__(self) -> str:
        return equation_text(self.equation)


def _shown_params(eqn: Equation) -> dict[str, Any]:
    params = EqnParams(eqn)
    for key, value in eqn.params.items():
        if isinstance(value, tuple) and any(isinstance(v, Program) for v in value):
            params[key] = as_jaxpr(value)
    return params


def _shown_primitive(eqn: Equation) -> Primitive:
    return primitive_of(eqn.op, primitive_name(eqn))


def new_jaxpr_eqn(
    invars: Iterable[Atom],
    outvars: Iterable[Var],
    primitive: Primitive,
    params: dict[str, Any],
    effects: Any = (),
    source_info: SourceInfo | None = None,
    ctx: Any = None,
) -> JaxprEqn:
    """An equation; `effects` and `ctx` follow from the primitive here and are not read."""
    if primitive.op is None:
        raise TypeError(f"the primitive {primitive} has no op: bind it in a traced function instead.")
    line = None if source_info is None else source_info.traceback
    operands = tuple(invars)
    return JaxprEqn(
        Equation(primitive.op, operands, tuple(outvars), own_params(primitive.op, params, len(operands)), line)
    )


class Jaxpr:
    """A program: ``Jaxpr(constvars, invars, outvars, eqns)``."""

    def __init__(
        self,
        constvars: Iterable[Var],
        invars: Iterable[Var],
        outvars: Iterable[Atom],
        eqns: Iterable[JaxprEqn],
        effects: Any = (),
        debug_info: Any = None,
        is_high: bool = False,
    ) -> None:
        consts = tuple(constvars)
        equations = tuple(e.equation for e in eqns)
        self.program = Program((*consts, *invars), equations, tuple(outvars), len(consts))

    @classmethod
    def of(cls, program: Program) -> Jaxpr:
        """The view of a program."""
        self = object.__new__(cls)
        self.program = program
        return self

    constvars = property(lambda self: list(self.program.inputs[: self.program.num_consts]))
    invars = property(lambda self: list(self.program.inputs[self.program.num_consts :]))
    outvars = property(lambda self: list(self.program.outputs))
    debug_info = None  # names of arguments and results are not kept with a program

    @cached_property
    def eqns(self) -> list[JaxprEqn]:
        """The equations."""
        return [JaxprEqn(e) for e in self.program.equations]

    @property
    def effects(self) -> frozenset[str]:
        """Names of the ops that are kept for their effects."""
        return frozenset(e.op.name for e in self.program.equations if e.op.has_effects(e.params))

    def replace(
        self,
        *,
        constvars: Any = None,
        invars: Any = None,
        outvars: Any = None,
        eqns: Any = None,
        effects: Any = None,
        debug_info: Any = None,
    ) -> Jaxpr:
        """The program with some parts changed. `effects` follow from the equations; `debug_info` is not kept."""
        del effects, debug_info
        pick = lambda given, own: own if given is None else given  # noqa: E731
        return Jaxpr(
            pick(constvars, self.constvars),
            pick(invars, self.invars),
            pick(outvars, self.outvars),
            pick(eqns, self.eqns),
        )

    def pretty_print(
        self,
        *,
        source_info: bool = False,
        print_shapes: bool = True,
        custom_pp_eqn_rules: bool = True,
        name_stack: bool = False,
        print_effects: bool = False,
        use_color: bool | None = None,
    ) -> str:
        """The text; `source_info` adds the user's line to each equation.

        There is one form only: `print_shapes`, `custom_pp_eqn_rules`, `name_stack`, `print_effects` and `use_color` have no effect.
        """
        del print_shapes, custom_pp_eqn_rules, name_stack, print_effects, use_color
        return reports.program_text(self.program, source_info) if source_info else str(self)

    def __repr__(self) -> str:
        return jaxpr_text(self.program)


class ClosedJaxpr:
    """A program with the values that it captured: ``ClosedJaxpr(jaxpr, consts)``."""

    def __init__(self, jaxpr: Jaxpr | Program, consts: Sequence[Any] = ()) -> None:
        self.jaxpr = Jaxpr.of(jaxpr) if isinstance(jaxpr, Program) else jaxpr
        self.consts = list(consts)

    program = property(lambda self: self.jaxpr.program, doc="The program itself.")
    eqns = property(lambda self: self.jaxpr.eqns, doc="The equations.")
    effects = property(lambda self: self.jaxpr.effects, doc="Names of the ops that are kept for what they do.")
    literals = property(lambda self: self.consts, doc="The captured values, under their old name.")

    @property
    def in_avals(self) -> list[ShapedArray]:
        """Types of the arguments."""
        return [v.aval for v in self.jaxpr.invars]

    @property
    def out_avals(self) -> list[ShapedArray]:
        """Types of the results."""
        return list(self.program.out_types)

    def replace(self, *, jaxpr: Jaxpr | None = None, consts: Sequence[Any] | None = None) -> ClosedJaxpr:
        """With another program, or other values."""
        return ClosedJaxpr(jaxpr or self.jaxpr, self.consts if consts is None else consts)

    def map_jaxpr(self, function: Callable[[Jaxpr], Jaxpr]) -> ClosedJaxpr:
        """With the program `function(jaxpr)`."""
        return ClosedJaxpr(function(self.jaxpr), self.consts)

    def pretty_print(self, *, source_info: bool = False, **options: Any) -> str:
        """The text; `source_info` adds the user's line to each equation."""
        return self.jaxpr.pretty_print(source_info=source_info, **options)

    def __repr__(self) -> str:
        return repr(self.jaxpr)


class DropVar(Var):
    """A result that nobody reads, in programs that mark them; ours print them as ``_`` and keep plain Vars."""


def jaxprs_in_params(params: dict[str, Any]) -> Iterator[Jaxpr]:
    """The programs among an equation's params: branches, bodies, called functions."""
    for value in params.values():
        for item in value if isinstance(value, tuple) else (value,):
            inner_jaxpr = as_jaxpr(item)
            if isinstance(inner_jaxpr, ClosedJaxpr):
                yield inner_jaxpr.jaxpr


def subjaxprs(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """The programs within the equations of a program."""
    for eqn in jaxpr.eqns:
        yield from jaxprs_in_params(eqn.params)


def eval_jaxpr(jaxpr: Jaxpr, consts: Sequence[Any], *args: Any, propagate_source_info: bool = True) -> list[Any]:
    """The results of a program on these captured values and arguments, as a flat list.

    Without `propagate_source_info` JAX forgets the lines of the program; here equations that are traced anew have the caller's.
    """
    del propagate_source_info
    values = [x if isinstance(x, (Array, Reference)) else as_array(as_value(x)) for x in (*consts, *args)]
    if len(values) != len(jaxpr.program.inputs):
        raise ValueError(
            f"the program takes {len(jaxpr.invars)} arguments and {len(jaxpr.constvars)} captured values, got {len(args)} "
            f"and {len(consts)}."
        )
    return [as_array(x) if isinstance(x, Literal) else x for x in eval_program(jaxpr.program, values, _bind_equation)]


def _bind_equation(eqn: Equation, inputs: Sequence[Any]) -> Any:
    """The results of an equation; operations on references are calls of their methods."""
    if eqn.op in REFERENCE_OPS:
        assert eqn.op.eager is not None
        return eqn.op.eager(*inputs, **eqn.params)
    if any(isinstance(x, Reference) for x in inputs):
        raise NotImplementedError(
            f"eval_jaxpr: {primitive_name(eqn)} takes a Ref, and runs where the function itself is called. Call the function."
        )
    return bind(eqn.op, *inputs, **eqn.params)


def jaxpr_as_fun(closed_jaxpr: ClosedJaxpr) -> Callable[..., list[Any]]:
    """The program as a function of its arguments, giving a flat list."""
    return lambda *args: eval_jaxpr(closed_jaxpr.jaxpr, closed_jaxpr.consts, *args)


def _process_primitive(trace: Trace, op: Op, args: tuple[Any, ...], params: dict[str, Any]) -> Any:
    """Give a call to a library's trace, as the primitives and the params that equations of it show."""
    if op.shown.parts is not None and op.inline is None:  # of calls it gets the programs
        with tracing(trace):
            parts = op.shown.parts(args, params)
        if parts is not None:
            return parts
    eqn = Equation(op, args, (), params)
    values = [as_array(a) if isinstance(a, Literal) else a for a in args]
    own_params = op.shown.without_absent(_shown_params(eqn))
    shown_params = {op.shown.renamed.get(k, k): v for k, v in own_params.items()}
    out = trace.process_primitive(_shown_primitive(eqn), values, shown_params)
    return [as_value(o) for o in out] if op.multiple_results else as_value(out)


install_primitives(_process_primitive)
