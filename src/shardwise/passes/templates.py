"""Templates: what partitioning makes of one equation is made again of its equals, as the layers of an unrolled model are full of them.

Equations are equal if they have the same op, params and types, and if propagation and earlier equations have put operands and results
into the same layouts, and have been brought into the same other layouts before. Equations whose operands are views, or that make views,
have no template: what becomes of them depends on the values that the views were made of. Nor have those whose operands were cut from
values that are there, or are computed again rather than moved.

Comes in: an equation and the region that it is partitioned in. Goes out: its local equations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from shardwise.base.config import context_token
from shardwise.ir import Atom, Equation, Literal, Need, Op, ShapedArray, Var
from shardwise.ir.program import NOWHERE
from shardwise.passes.grid import DimAxes
from shardwise.passes.moves import Copy
from shardwise.passes.remade import is_remade

if TYPE_CHECKING:
    from shardwise.passes.partition import Region


class Line(NamedTuple):
    """A local equation of a template.

    Attributes:
        op, params: its own.
        inputs: positions in the pool of atoms: the operands, then literals, then the results of earlier lines.
        types: of its results.
        need: why there is a collective; None for other equations.
    """

    op: Op
    inputs: tuple[int, ...]
    types: tuple[ShapedArray, ...]
    params: Mapping[str, Any]
    need: Need | None


@dataclass(frozen=True, slots=True)
class Template:
    """The local equations of an equation.

    Attributes:
        params: those of the equation: keys hold their id.
        literals: that lines read besides those of the equation.
        lines: the local equations.
        results: for each result its position in the pool, and its layout.
        readers: the readers of each operand where they decided how the equation is split, else None.
        moves: whether values are moved.
        copies: values in other layouts, to be remembered: the position of a value, and its copy with its position.
        cuts: values that are parts of others, to be remembered: the position of the part, its global shape, the position of the other
            value and its layout.
        moved: positions of operands that are moved because they cannot be computed again, and the layouts that they are needed in.
    """

    params: Mapping[str, Any]
    literals: tuple[Literal, ...]
    lines: tuple[Line, ...]
    results: tuple[tuple[int, DimAxes], ...]
    readers: tuple[int, ...] | None
    moves: bool = False
    copies: tuple[tuple[int, Copy, int], ...] = ()
    cuts: tuple[tuple[int, tuple[int, ...], int, DimAxes], ...] = ()
    moved: tuple[tuple[int, DimAxes], ...] = ()

    def fits(self, region: Region, eqn: Equation, operands: Sequence[Atom]) -> bool:
        """Whether what the key does not say of an equation is as it was."""
        if self.readers is not None and self.readers != region.readers_of(eqn):
            return False
        if not self.moves:
            return True
        inputs = eqn.inputs
        if not region.known.parts.isdisjoint(operands):
            return False
        return not any(is_remade(region, cast(Var, inputs[i]), want) for i, want in self.moved)

    def apply(self, region: Region, eqn: Equation, operands: Sequence[Atom]) -> None:
        """Append the local equations of `eqn`, and define its results."""
        pool: list[Atom] = [*operands, *self.literals]
        assert region.current is not None
        source, append = region.current.source, region.equations.append
        for op, inputs, types, params, need in self.lines:
            variables = (Var(types[0]),) if len(types) == 1 else tuple([Var(t) for t in types])
            where = source if need is None else (source or NOWHERE)._replace(need=need)
            atoms = (pool[inputs[0]],) if len(inputs) == 1 else tuple([pool[i] for i in inputs])
            append(Equation(op, atoms, variables, params, where))
            pool += variables
        values = region.values
        for var, (i, dims) in zip(eqn.outputs, self.results, strict=True):
            values[var] = pool[i], dims
        if self.moves:
            self._remember(region, eqn, pool)

    def _remember(self, region: Region, eqn: Equation, pool: Sequence[Atom]) -> None:
        moves, known = region.moves, region.known
        known.moves += 1
        known.asked += [(eqn.inputs[i], want, False) for i, want in self.moved]
        for i, copy, at in self.copies:
            atom = pool[i]
            moves[atom] = (*moves.get(atom, ()), Copy(copy.dims, copy.shape, pool[at]))
        for i, shape, at, dims in self.cuts:
            region.sliced[pool[i], shape] = pool[at], dims
            known.parts.add(pool[i])
        known.remembered += len(self.copies) + len(self.cuts)


def with_template(region: Region, eqn: Equation) -> None:
    """Partition an equation by its template if there is one, else anew."""
    found = key_of(region, eqn)
    if found is None:
        return region.anew(eqn)
    key, operands = found
    template = region.known.templates.get(key)
    if template is not None and template.fits(region, eqn, operands):
        return template.apply(region, eqn, operands)
    before = Before(region, operands)
    region.anew(eqn)
    template = record(region, eqn, operands, before)
    if template is not None:
        region.known.templates[key] = template


@dataclass(slots=True)
class Before:
    """How much a region had learned before an equation."""

    equations: int
    moves: int
    remembered: int
    asked: int
    windowed: int
    weighed: int
    copies: dict[Atom, int]  # of operands

    def __init__(self, region: Region, operands: Sequence[Atom]) -> None:
        known = region.known
        self.equations = len(region.equations)
        self.moves = known.moves
        self.remembered = known.remembered
        self.asked = len(known.asked)
        self.windowed = known.windowed
        self.weighed = known.weighed
        self.copies = {a: len(region.moves.get(a, ())) for a in operands}


def key_of(region: Region, eqn: Equation) -> tuple[tuple[Any, ...], list[Atom]] | None:
    """What partitioning an equation depends on, and its local operands with their copies; None if it has no template."""
    values, views, placements, current = region.values, region.views, region.placements, region.current
    if current is None or region.steady:
        return None
    key: list[Any] = [eqn.op, id(eqn.params), current.op, region.scoped, region.manual, context_token()]
    operands: list[Atom] = []
    moves = region.moves
    copies: list[Atom] = []
    for atom in eqn.inputs:
        if isinstance(atom, Literal):
            operands.append(atom)
            key.append(atom.aval)
            if eqn.op.boxes is not None:  # literals may say which element goes where
                key.append(atom.value.tobytes())
            continue
        if atom in views:
            return None
        local, dims = values[atom]
        operands.append(local)
        key += (atom.aval, local.aval, dims)
        if local in moves and local not in operands[:-1]:
            for copy in moves[local]:
                copies.append(copy.atom)
                key += (copy.dims, copy.shape, copy.atom.aval)
    for var in eqn.outputs:
        key += (var.aval, placements.get(var))
    operands += copies
    if len(operands) > 1 and len(set(operands)) < len(operands):
        key += map(operands.index, operands)
    return tuple(key), operands


def record(region: Region, eqn: Equation, operands: Sequence[Atom], before: Before) -> Template | None:
    """The template of an equation, whose local equations are those of `region` since `before`; None if they are not all it left."""
    values, views, current, known = region.values, region.views, region.current, region.known
    assert current is not None
    if known.windowed > before.windowed or any(v in views or v not in values for v in eqn.outputs):
        return None
    if any(isinstance(a, Var) and values[a][0] is not atom for a, atom in zip(eqn.inputs, operands, strict=False)):
        return None
    made = region.equations[before.equations :]
    atoms = {v for e in made for v in e.outputs}.union(operands)
    others = dict.fromkeys([a for e in made for a in e.inputs if a not in atoms])
    literals = tuple([a for a in others if isinstance(a, Literal)])
    if len(literals) < len(others):
        return None
    places: dict[Atom, int] = {}
    pool = [*operands, *literals, *[v for e in made for v in e.outputs]]
    for i, atom in enumerate(pool):
        places.setdefault(atom, i)
    remembered = Remembered() if known.moves == before.moves else _remembered(region, eqn, operands, places, before)
    if remembered is None:
        return None
    lines = [
        Line(
            e.op,
            tuple([places[a] for a in e.inputs]),
            tuple([v.aval for v in e.outputs]),
            e.params,
            e.source.need if e.source is not None and e.source is not current.source else None,
        )
        for e in made
    ]
    results = [values[v] for v in eqn.outputs]
    if any(atom not in places for atom, _ in results):
        return None
    return Template(
        eqn.params,
        literals,
        tuple(lines),
        tuple([(places[atom], dims) for atom, dims in results]),
        region.readers_of(eqn) if known.weighed > before.weighed else None,
        *remembered,
    )


class Remembered(NamedTuple):
    """The fields of a template that say what a region remembers of moved values."""

    moves: bool = False
    copies: tuple[tuple[int, Copy, int], ...] = ()
    cuts: tuple[tuple[int, tuple[int, ...], int, DimAxes], ...] = ()
    moved: tuple[tuple[int, DimAxes], ...] = ()


def _remembered(
    region: Region, eqn: Equation, operands: Sequence[Atom], places: Mapping[Atom, int], before: Before
) -> Remembered | None:
    """What a region remembers since `before` of an equation that moved values; None if a template cannot say it."""
    known, sliced = region.known, region.sliced
    asked = known.asked[before.asked :]
    inputs = eqn.inputs
    if not known.parts.isdisjoint(operands):
        return None
    if any(made or atom not in inputs for atom, _, made in asked):
        return None
    number = known.remembered - before.remembered
    cuts = [
        (places[part], shape, places[whole], dims)
        for (part, shape), (whole, dims) in islice(reversed(sliced.items()), number)  # the last ones are new
        if part in places and whole in places and part not in before.copies
    ]
    copies = [
        (i, copy, places[copy.atom])
        for atom, i in places.items()
        for copy in region.moves.get(atom, ())[before.copies.get(atom, 0) :]
        if copy.atom in places
    ]
    if len(cuts) + len(copies) < number:
        return None
    moved = tuple([(inputs.index(atom), want) for atom, want, _ in asked])
    return Remembered(True, tuple(copies), tuple(reversed(cuts)), moved)
