"""Templates: what partitioning makes of one equation is made again of its equals, as the layers of an unrolled model are full of them.

Equations are equal if they have the same op, params and types, and if propagation and earlier equations have put operands and results
into the same layouts. Equations whose operands are views, or that make views, have no template: what becomes of them depends on the
values that the views were made of. Nor have those that bring operands into other layouts: these may be there by then.

Comes in: an equation and the region that it is partitioned in. Goes out: its local equations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shardwise.base.config import context_token
from shardwise.ir import Atom, Equation, Literal, Need, Op, ShapedArray, Var
from shardwise.ir.program import NOWHERE
from shardwise.passes.grid import DimAxes

if TYPE_CHECKING:
    from shardwise.passes.partition import Region

Operand = tuple[Atom, DimAxes]  # a local atom with its layout


@dataclass(frozen=True, slots=True)
class Line:
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
    """

    params: Mapping[str, Any]
    literals: tuple[Literal, ...]
    lines: tuple[Line, ...]
    results: tuple[tuple[int, DimAxes], ...]
    readers: tuple[int, ...] | None

    def apply(self, region: Region, eqn: Equation, operands: Sequence[Operand]) -> None:
        """Append the local equations of `eqn`, and define its results."""
        pool: list[Atom] = [atom for atom, _ in operands]
        pool += self.literals
        assert region.current is not None
        source, append = region.current.source, region.equations.append
        for line in self.lines:
            variables = tuple([Var(t) for t in line.types])
            where = source if line.need is None else (source or NOWHERE)._replace(need=line.need)
            append(Equation(line.op, tuple([pool[i] for i in line.inputs]), variables, line.params, where))
            pool += variables
        values = region.values
        for var, (i, dims) in zip(eqn.outputs, self.results, strict=True):
            values[var] = pool[i], dims


def with_template(region: Region, eqn: Equation) -> None:
    """Partition an equation by its template if there is one, else anew."""
    found = key_of(region, eqn)
    if found is None:
        return region.anew(eqn)
    key, operands = found
    template = region.known.templates.get(key)
    if template is not None and (template.readers is None or template.readers == region.readers_of(eqn)):
        return template.apply(region, eqn, operands)
    known, start = region.known, len(region.equations)
    moves, weighed = known.moves, known.weighed
    region.anew(eqn)
    if known.moves > moves:  # the region remembers what it has moved, and later equations use it
        return
    template = record(region, eqn, operands, start, region.readers_of(eqn) if known.weighed > weighed else None)
    if template is not None:
        known.templates[key] = template


def key_of(region: Region, eqn: Equation) -> tuple[tuple[Any, ...], list[Operand]] | None:
    """What partitioning an equation depends on, and its local operands; None if it has no template."""
    values, views, placements, current = region.values, region.views, region.placements, region.current
    if current is None or region.steady:
        return None
    key: list[Any] = [eqn.op, id(eqn.params), current.op, region.scoped, region.manual, context_token()]
    operands: list[Operand] = []
    for atom in eqn.inputs:
        if isinstance(atom, Literal):
            if eqn.op.boxes is not None:  # literals may say which element goes where
                return None
            operands.append((atom, ()))
            key.append(atom.aval)
            continue
        if atom in views:
            return None
        operand = values[atom]
        operands.append(operand)
        local, dims = operand
        key += (atom.aval, local.aval, dims)
    for var in eqn.outputs:
        key += (var.aval, placements.get(var))
    if len(operands) > 1:
        atoms = [atom for atom, _ in operands]
        if len(set(atoms)) < len(atoms):
            key += map(atoms.index, atoms)
    return tuple(key), operands


def record(
    region: Region, eqn: Equation, operands: Sequence[Operand], start: int, readers: tuple[int, ...] | None
) -> Template | None:
    """The template of an equation, whose local equations are those of `region` from `start` on; None if they are not all it left."""
    values, views, current = region.values, region.views, region.current
    assert current is not None
    if any(v in views or v not in values for v in eqn.outputs):
        return None
    if any(isinstance(a, Var) and values[a] is not known for a, known in zip(eqn.inputs, operands, strict=True)):
        return None
    made = region.equations[start:]
    known = {v for e in made for v in e.outputs}.union([atom for atom, _ in operands])
    others = dict.fromkeys([a for e in made for a in e.inputs if a not in known])
    literals = tuple([a for a in others if isinstance(a, Literal)])
    if len(literals) < len(others):
        return None
    places: dict[Atom, int] = {}
    pool = [*[atom for atom, _ in operands], *literals, *[v for e in made for v in e.outputs]]
    for i, atom in enumerate(pool):
        places.setdefault(atom, i)
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
        eqn.params, literals, tuple(lines), tuple([(places[atom], dims) for atom, dims in results]), readers
    )
