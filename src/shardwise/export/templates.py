"""Programs of symbolic size: the common form of programs traced at several sizes, with expressions in the place of numbers.

In: programs traced at sampled sizes. Out: one template, and for given sizes the program that it stands for. A template is a Program whose
types, params and literals hold `SymbolicDim`s; it is never run. `Unlike` names a number that no expression gives.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from shardwise.base.caches import InternTable
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.export.dims import SymbolicDim, evaluate_size
from shardwise.export.samples import Samples
from shardwise.ir import Equation, Literal, Program, ShapedArray, Var
from shardwise.ir.digest import ProgramDigest

_interned_arrays: InternTable[tuple[Any, ...], SymbolicArray] = InternTable()
_MARKS = ("mesh", "spec", "vma", "unreduced", "reduced")


class Unlike(Exception):
    """The programs differ by more than expressions of their sizes."""


class SymbolicArray(ShapedArray):
    """The type of arrays of symbolic shape, such as ``float32[b,4]``."""

    __slots__ = ()

    def __new__(cls, shape: Sequence[Any], like: ShapedArray) -> SymbolicArray:
        """`like` with another shape."""
        key = (
            tuple(shape),
            *[id(d.scope) if isinstance(d, SymbolicDim) else 0 for d in shape],
            like.dtype,
            like.weak_type,
        )
        key += tuple(getattr(like, name) for name in _MARKS)
        known_array = _interned_arrays.get(key)
        if known_array is not None:
            return known_array
        self = object.__new__(cls)
        put = object.__setattr__
        put(self, "shape", tuple(shape))
        put(self, "ndim", len(shape))
        put(self, "size", math.prod(shape))
        for name in ("dtype", "weak_type", *_MARKS):
            put(self, name, getattr(like, name))
        return _interned_arrays.keep(key, self)

    def update(self, **changes: Any) -> ShapedArray:
        """This type with some fields replaced."""
        like = ShapedArray((1,) * self.ndim, self.dtype, self.weak_type, **{n: getattr(self, n) for n in _MARKS})
        return array_type(changes.pop("shape", self.shape), like.update(**changes))


def array_type(shape: Sequence[Any], like: ShapedArray) -> ShapedArray:
    """`like` with another shape, which may be symbolic."""
    if any(isinstance(d, SymbolicDim) for d in shape):
        return SymbolicArray(shape, like)
    return ShapedArray(shape, like.dtype, like.weak_type, **{name: getattr(like, name) for name in _MARKS})


@dataclass(frozen=True)
class Number:
    """A number of a program that depends on a size over `divisor`: it, its reciprocal, root or the root's reciprocal."""

    kind: str
    size: Any
    divisor: int

    def value(self, sizes: Mapping[str, int]) -> Any:
        """The number for these sizes."""
        n = evaluate_size(self.size, sizes)
        x = n / self.divisor
        match self.kind:
            case "int":
                return n
            case "float":
                return x
            case "1/n":
                return 1 / x if x else math.inf
            case "sqrt":
                return math.sqrt(max(x, 0.0))
            case _:
                return 1 / math.sqrt(x) if x > 0 else math.inf


class NumberLiteral(Literal):
    """A literal whose number depends on a size."""

    __slots__ = ("number",)

    def __init__(self, number: Number, like: Literal) -> None:
        super().__init__(like.value, like.aval)
        self.number = number


@dataclass(frozen=True)
class Record:
    """An object of params, of a class of ours, whose fields depend on sizes."""

    kind: type
    values: tuple[tuple[str, Any], ...]


def template_of(programs: Sequence[Program], samples: Samples) -> Program:
    """The program of symbolic size that gives `programs` at the sampled sizes.

    Raises:
        Unlike: there is none.
    """
    return _TemplateBuilder(samples).program(programs)


class _TemplateBuilder:
    def __init__(self, samples: Samples) -> None:
        self.samples = samples
        self.known: dict[tuple[int, ...], Program] = {}

    def size(self, values: Sequence[int], where: str) -> Any:
        fitted_size = self.samples.fit(values)
        if fitted_size is None:
            raise Unlike(f"{where} is {_some(values, self.samples)}")
        return fitted_size

    def program(self, programs: Sequence[Program]) -> Program:
        key = tuple(map(id, programs))
        if key in self.known:
            return self.known[key]
        first = programs[0]
        for other in programs:
            mine, theirs = ([e.op.name for e in p.equations] for p in (first, other))
            if mine != theirs:
                at = next(
                    (i for i, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b),
                    min(len(mine), len(theirs)),
                )
                raise Unlike(
                    f"{first.name} does other things at other sizes, from its equation {at} on ({' '.join(mine[at : at + 1])} or "
                    f"{' '.join(theirs[at : at + 1])})"
                )
        names: list[dict[Var, Var]] = [{} for _ in programs]

        def define(variables: Sequence[Var], where: str) -> Var:
            var = Var(self.aval([v.aval for v in variables], where))
            for known_names, v in zip(names, variables, strict=True):
                known_names[v] = var
            return var

        def read(atoms: Sequence[Any], where: str) -> Any:
            if all(isinstance(a, Literal) for a in atoms):
                return self.literal(atoms, where)
            names_found = {known_sizes.get(a) for known_sizes, a in zip(names, atoms, strict=True)}
            if len(names_found) != 1 or None in names_found:
                raise Unlike(f"{where} reads another value at other sizes")
            return names_found.pop()

        inputs = tuple(define(vs, "an input") for vs in _rows([p.inputs for p in programs], "the inputs"))
        equations: list[Equation] = []
        for eqns in zip(*[p.equations for p in programs], strict=True):
            one = eqns[0]
            where = one.op.name + (f" at {one.source.file}:{one.source.line}" if one.source else "")
            ins = tuple(read(atoms, where) for atoms in _rows([e.inputs for e in eqns], where))
            params = {k: self.value([e.params[k] for e in eqns], f"{k} of {where}") for k in one.params}
            outs = tuple(define(vs, where) for vs in _rows([e.outputs for e in eqns], where))
            equations.append(Equation(one.op, ins, outs, params, one.source))
        results = tuple(read(atoms, "a result") for atoms in _rows([p.outputs for p in programs], "the results"))
        joint_program = Program(inputs, tuple(equations), results, first.num_consts, first.name)
        self.known[key] = joint_program
        return joint_program

    def aval(self, avals: Sequence[ShapedArray], where: str) -> ShapedArray:
        first = avals[0]
        if all(a is first for a in avals):
            return first
        if any(a.ndim != first.ndim or a.update(shape=first.shape, spec=first.spec) is not first for a in avals):
            raise Unlike(f"the type of {where} is {[a.str_short() for a in avals]}")
        return array_type(
            [self.size(ns, f"a dim of {where}") for ns in zip(*[a.shape for a in avals], strict=True)], first
        )

    def literal(self, literals: Sequence[Literal], where: str) -> Literal:
        first = literals[0]
        if any(x.aval is not first.aval for x in literals):
            raise Unlike(f"the number that {where} reads has other types at other sizes")
        if len({x.value.tobytes() for x in literals}) == 1:
            return first
        return NumberLiteral(self.number([x.value for x in literals], where), first)

    def number(self, values: Sequence[Any], where: str) -> Number:
        """The size that numbers are made of. Each kind gives them to the last bit, as their dtype rounds it."""
        stored_dtype = np.asarray(values[0]).dtype
        reals = [np.asarray(x).item() for x in values]
        undone = {
            "int" if stored_dtype.kind in "iu" else "float": lambda x: x,
            "1/n": lambda x: 1 / x,
            "sqrt": lambda x: x * x,
            "1/sqrt": lambda x: 1 / (x * x),
        }
        for kind, divisor in itertools.product(undone, (1, 2, 4, 8) if stored_dtype.kind == "f" else (1,)):
            try:
                size = self.samples.fit([round(divisor * undone[kind](x)) for x in reals])
            except (ValueError, OverflowError, ZeroDivisionError, TypeError):
                continue
            if size is None:
                continue
            number = Number(kind, size, divisor)
            with np.errstate(all="ignore"):
                numbers = [np.asarray(number.value(env)).astype(stored_dtype) for env in self.samples.envs]
            if all(a.tobytes() == np.asarray(x, stored_dtype).tobytes() for a, x in zip(numbers, values, strict=True)):
                return number
        raise Unlike(f"a number that {where} reads is {_some(reals, self.samples)}")

    def value(self, values: Sequence[Any], where: str) -> Any:
        """A param."""
        first = values[0]
        kind = type(first)
        if any(type(v) is not kind and not isinstance(v, ShapedArray) for v in values):
            raise Unlike(f"{where} is {values}")
        if isinstance(first, Program):
            return self.program(values)
        if isinstance(first, ShapedArray):
            return self.aval(values, where)
        if isinstance(first, (tuple, list)):
            values_joined = [self.value(items, where) for items in _rows(values, where)]
            return kind(*values_joined) if hasattr(first, "_fields") else kind(values_joined)
        if isinstance(first, dict):
            if any(v.keys() != first.keys() for v in values):
                raise Unlike(f"{where} has other keys at other sizes")
            return {k: self.value([v[k] for v in values], where) for k in first}
        if kind is int:
            return self.size(values, where)
        if isinstance(first, (float, np.generic)):
            same = len({np.asarray(v).tobytes() for v in values}) == 1
            return first if same else self.number(values, where)
        if isinstance(first, np.ndarray):
            if any(v.shape != first.shape or v.tobytes() != first.tobytes() for v in values):
                raise Unlike(f"{where} is an array that depends on the sizes")
            return first
        if isinstance(first, slice):
            parts = [self.value([getattr(v, k) for v in values], where) for k in ("start", "stop", "step")]
            return slice(*parts)
        if all(v == first for v in values):
            return first
        if is_dataclass(first) and not isinstance(first, enum.Enum):
            named_values = [(f.name, self.value([getattr(v, f.name) for v in values], where)) for f in fields(first)]
            return Record(kind, tuple(named_values))
        raise Unlike(f"{where} is {values}")


def _some(values: Sequence[Any], samples: Samples) -> str:
    value_list = ", ".join(f"{value} at {env}" for value, env in zip(values[:4], samples.envs, strict=False))
    return f"no expression of the sizes: {value_list}, ..."


def _rows(columns: Sequence[Sequence[Any]], where: str) -> list[tuple[Any, ...]]:
    if len({len(c) for c in columns}) != 1:
        raise Unlike(f"{where}: their number depends on the sizes")
    return list(zip(*columns, strict=True))


def same_program(a: Program, b: Program) -> bool:
    """Whether two programs compute the same by the same equations."""
    digests = [ProgramDigest(p, lambda _: False) for p in (a, b)]
    return digests[0].whole == digests[1].whole


def instance_of(template: Program, sizes: Mapping[str, int]) -> Program:
    """The program that a template stands for at these sizes."""
    return _Instance(sizes).program(template)


class _Instance:
    def __init__(self, sizes: Mapping[str, int]) -> None:
        self.sizes = sizes
        self.known: dict[int, Program] = {}

    def program(self, template: Program) -> Program:
        if id(template) not in self.known:
            self.known[id(template)] = self._make_instance(template)
        return self.known[id(template)]

    def _make_instance(self, template: Program) -> Program:
        names: dict[Var, Var] = {}

        def define(var: Var) -> Var:
            names[var] = Var(self.value(var.aval))
            return names[var]

        def read(atom: Any) -> Any:
            return names[atom] if isinstance(atom, Var) else self.value(atom)

        inputs = tuple(map(define, template.inputs))
        equations: list[Equation] = []
        for eqn in template.equations:
            ins = tuple(map(read, eqn.inputs))
            params = {k: self.value(v) for k, v in eqn.params.items()}
            equations.append(Equation(eqn.op, ins, tuple(map(define, eqn.outputs)), params, eqn.source))
        results = tuple(map(read, template.outputs))
        return Program(inputs, tuple(equations), results, template.num_consts, template.name)

    def value(self, value: Any) -> Any:
        if isinstance(value, SymbolicDim):
            return value.evaluate(self.sizes)
        if isinstance(value, SymbolicArray):
            return array_type([evaluate_size(d, self.sizes) for d in value.shape], value)
        if isinstance(value, NumberLiteral):
            return Literal(np.asarray(value.number.value(self.sizes)).astype(value.value.dtype), value.aval)
        if isinstance(value, Number):
            return value.value(self.sizes)
        if isinstance(value, Record):
            return value.kind(**{k: self.value(v) for k, v in value.values})
        if isinstance(value, Program):
            return self.program(value)
        if isinstance(value, (tuple, list)):
            new_values = [self.value(v) for v in value]
            return type(value)(*new_values) if hasattr(value, "_fields") else type(value)(new_values)
        if isinstance(value, dict):
            return {k: self.value(v) for k, v in value.items()}
        if isinstance(value, slice):
            return slice(self.value(value.start), self.value(value.stop), self.value(value.step))
        return value
