"""Templates: what partitioning makes of one equation is made again of its equals, as the layers of an unrolled model are full of them.

Equations are equal if they have the same op, params and types, and if propagation and earlier equations have put operands and results
into the same layouts, and have been brought into the same other layouts before. Ops with a partition of their own must stand at the
same line, too: programs that they hold have lines. Equations whose operands are views, or that make views,
have no template: what becomes of them depends on the values that the views were made of. Nor have those whose operands were cut from
values that are there, or are computed again rather than moved, nor those that run code of the user's.

Comes in: an equation and the region that it is partitioned in. Goes out: its local equations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from shardwise.base.config import context_token
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import DimAxes
from shardwise.ir import Atom, Equation, Literal, Need, Op, ShapedArray, Source, Var, calls_user
from shardwise.ir.program import NOWHERE
from shardwise.passes.moves import Copy
from shardwise.passes.remade import is_remade

if TYPE_CHECKING:
    from shardwise.passes.partition import Region


class TemplateEquation(NamedTuple):
    """A local equation of a template.

    Attributes:
        op, params: its own.
        inputs: positions in the pool of atoms: the operands, then literals, then the results of earlier lines.
        types: of its results.
        need: why there is a collective; None for other equations.
        source: of an op with a partition of its own: the line, which may be one of a program that it holds. None: that of the equation.
    """

    op: Op
    inputs: tuple[int, ...]
    types: tuple[ShapedArray, ...]
    params: Mapping[str, Any]
    need: Need | None
    source: Source | None


@dataclass(frozen=True, slots=True)
class Template:
    """The local equations of an equation.

    Attributes:
        kept: the params of the equation, and the layouts of values by which its op partitions it: keys hold their ids.
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

    kept: tuple[Mapping[Any, Any], ...]
    literals: tuple[Literal, ...]
    lines: tuple[TemplateEquation, ...]
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
        for op, inputs, types, params, need, own in self.lines:
            variables = (Var(types[0]),) if len(types) == 1 else tuple([Var(t) for t in types])
            where = (source if need is None else (source or NOWHERE)._replace(need=need)) if own is None else own
            atoms = (pool[inputs[0]],) if len(inputs) == 1 else tuple([pool[i] for i in inputs])
            append(Equation(op, atoms, variables, params, where))
            pool += variables
        values = region.values
        for var, (i, dims) in zip(eqn.outputs, self.results, strict=True):
            values[var] = pool[i], dims
        if self.moves:
            self._remember(region, eqn, pool)

    def _remember(self, region: Region, eqn: Equation, pool: Sequence[Atom]) -> None:
        changes = region.known.changes
        changes.moves = True
        changes.asked += [(eqn.inputs[i], want, False) for i, want in self.moved]
        for i, copy, at in self.copies:
            region.keep_copy(pool[i], Copy(copy.dims, copy.shape, pool[at]))
        for i, shape, at, dims in self.cuts:
            region.keep_cut(pool[i], shape, pool[at], dims)


@dataclass(slots=True)
class Changes:
    """The changes that an equation made to its region besides local equations and its results, and the state that they followed from.

    A template is made of it. So whatever a way to partition equations reads of their neighbours, or writes that later ones read, is said
    here, by the methods of `Region` that do it or by the way itself.

    Attributes:
        moves: whether a value was brought into another layout, or windows exchanged: what then happens follows from earlier moves.
        copies: values that were brought into other layouts, each with its copy.
        cuts: parts of values that are there: the part, its global shape, the value that it was cut from and that value's layout.
        asked: the values that might have been computed again in the layout that they were brought into, that layout, and whether they were.
        alone: False where windows, frames, fills or views decided, which depend on neighbours.
        weighed: whether the number of readers decided how the equation is split.
    """

    moves: bool = False
    copies: list[tuple[Atom, Copy]] = field(default_factory=list["tuple[Atom, Copy]"])
    cuts: list[tuple[Atom, tuple[int, ...], Atom, DimAxes]] = field(
        default_factory=list["tuple[Atom, tuple[int, ...], Atom, DimAxes]"]
    )
    asked: list[tuple[Atom, DimAxes, bool]] = field(default_factory=list["tuple[Atom, DimAxes, bool]"])
    alone: bool = True
    weighed: bool = False

    def add(self, inner: Changes) -> None:
        """Add the changes of an equation inside of this one."""
        self.moves |= inner.moves
        self.copies += inner.copies
        self.cuts += inner.cuts
        self.asked += inner.asked
        self.alone &= inner.alone
        self.weighed |= inner.weighed


def with_template(region: Region, eqn: Equation, own: bool) -> None:
    """Partition an equation by its template if there is one, else anew; `own`: as its op does."""
    found = None if id(eqn.params) in region.lone else key_of(region, eqn, own)
    if found is None:
        return region.anew(eqn, own)
    key, operands = found
    template = region.known.templates.get(key)
    if template is not None and template.fits(region, eqn, operands):
        return template.apply(region, eqn, operands)
    memory, number = region.known, len(region.equations)
    outer, memory.changes = memory.changes, Changes()
    region.anew(eqn, own)
    changes, memory.changes = memory.changes, outer
    outer.add(changes)
    template = record(region, eqn, operands, region.equations[number:], changes, own)
    if template is not None:
        memory.templates[key] = template


def key_of(region: Region, eqn: Equation, own: bool) -> tuple[tuple[Any, ...], list[Atom]] | None:
    """The key of an equation's template, and its local operands with their copies; None if it has no template."""
    values, views, placements, current = region.values, region.views, region.placements, region.current
    if current is None or region.steady:
        return None
    key: list[Any] = [eqn.op, own, id(eqn.params), current.op, region.scoped, region.manual, context_token()]
    operands: list[Atom] = []
    values_matter = own or eqn.op.boxes is not None  # literals may say which element goes where
    if own:
        key += (id(placements), current.source)
    moves = region.moves
    copies: list[Atom] = []
    for atom in eqn.inputs:
        if isinstance(atom, Literal):
            operands.append(atom)
            key.append(atom.aval)
            if values_matter:
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


def record(
    region: Region, eqn: Equation, operands: Sequence[Atom], made: Sequence[Equation], changes: Changes, own: bool
) -> Template | None:
    """The template of an equation that became the local equations `made`; None if a template cannot say what else it changed."""
    values, views, current = region.values, region.views, region.current
    assert current is not None
    if not changes.alone or any(v in views or v not in values for v in eqn.outputs) or (own and calls_user(eqn)):
        return None
    if any(isinstance(a, Var) and values[a][0] is not atom for a, atom in zip(eqn.inputs, operands, strict=False)):
        return None
    atoms = {v for e in made for v in e.outputs}.union(operands)
    others = dict.fromkeys([a for e in made for a in e.inputs if a not in atoms])
    literals = tuple([a for a in others if isinstance(a, Literal)])
    if len(literals) < len(others):
        return None
    places: dict[Atom, int] = {}
    pool = [*operands, *literals, *[v for e in made for v in e.outputs]]
    for i, atom in enumerate(pool):
        places.setdefault(atom, i)
    region_moves = _remembered_moves(region, eqn, operands, places, changes) if changes.moves else RegionMoves()
    if region_moves is None:
        return None
    lines = [
        TemplateEquation(
            e.op,
            tuple([places[a] for a in e.inputs]),
            tuple([v.aval for v in e.outputs]),
            e.params,
            e.source.need if e.source is not None and e.source is not current.source else None,
            e.source if own else None,
        )
        for e in made
    ]
    results = [values[v] for v in eqn.outputs]
    if any(atom not in places for atom, _ in results):
        return None
    return Template(
        (eqn.params, region.placements),
        literals,
        tuple(lines),
        tuple([(places[atom], dims) for atom, dims in results]),
        region.readers_of(eqn) if changes.weighed else None,
        *region_moves,
    )


class RegionMoves(NamedTuple):
    """The fields of a template that say what a region remembers of moved values."""

    moves: bool = False
    copies: tuple[tuple[int, Copy, int], ...] = ()
    cuts: tuple[tuple[int, tuple[int, ...], int, DimAxes], ...] = ()
    moved: tuple[tuple[int, DimAxes], ...] = ()


def _remembered_moves(
    region: Region, eqn: Equation, operands: Sequence[Atom], places: Mapping[Atom, int], changes: Changes
) -> RegionMoves | None:
    """The moves of values that a region remembers of an equation; None if a template cannot say it."""
    inputs = eqn.inputs
    if not region.known.parts.isdisjoint(operands):
        return None
    if any(made or atom not in inputs for atom, _, made in changes.asked):
        return None
    # A body has a memory of its own, and that of a way that was not taken is gone.
    its_copies = [(atom, copy) for atom, copy in changes.copies if copy in region.moves.get(atom, ())]
    its_cuts = [cut for cut in changes.cuts if (cut[0], cut[1]) in region.sliced]
    known_atoms = [a for atom, copy in its_copies for a in (atom, copy.atom)]
    known_atoms += [a for part, _, whole, _ in its_cuts for a in (part, whole)]
    if not places.keys() >= set(known_atoms):
        return None
    copies = tuple([(places[atom], copy, places[copy.atom]) for atom, copy in its_copies])
    cuts = tuple([(places[part], shape, places[whole], dims) for part, shape, whole, dims in its_cuts])
    moves = tuple([(inputs.index(atom), want) for atom, want, _ in changes.asked])
    return RegionMoves(True, copies, cuts, moves)
