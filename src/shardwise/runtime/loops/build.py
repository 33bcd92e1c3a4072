"""`build_nest`: the one builder of nests, from what a pass computes and from how its values lie in memory.

Fused groups and small programs choose: the loops and what each is for (`Unit`), where values lie (`Stored`), and what one pass
computes (`Pass`). The nest has what follows from that: in which steps values are read and written, the leaf, the accumulators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Shape
from shardwise.ir import Equation, Fold, Literal
from shardwise.runtime.loops.layout import Roles
from shardwise.runtime.loops.nest import OVERLAP, Access, Ahead, Key, Leaf, Nest, Reduction, Saved, Values
from shardwise.runtime.loops.write import Steps, Writer, dtype_name
from shardwise.runtime.machine import Lane

Read = Callable[[Equation, Sequence[Key], Sequence[Lane]], Lane]


@dataclass(frozen=True, slots=True)
class Unit:
    """The loops of a unit of work.

    Attributes:
        roles: what each loop is for.
        extents: per loop.
        tile: the shape of a vector, whose dims lie along as many loops, from `roles.lane` on.
        tail: what becomes of elements that whole vectors leave over (see `Nest`).
        copies: accumulators per reduction.
    """

    roles: Roles
    extents: Steps
    tile: Shape
    tail: str = OVERLAP
    copies: int = 1


@dataclass(frozen=True, slots=True)
class Stored:
    """An operand or a result in memory.

    Attributes:
        place: the address of its first element.
        dtype: the dtype's name.
        steps: bytes per round of each loop.
        hint: how it is written, as `Writer.write` takes it.
        parts: the places of an operand whose elements lie in several, as `Access` has them.
        apart: the loop along which the places change, around the innermost loop.
    """

    place: str
    dtype: str
    steps: Steps
    hint: str = ""
    parts: Sequence[tuple[str, str]] = ()
    apart: int = 0

    def access(self, unit: Unit) -> Access:
        """How the loops of a unit meet it."""
        roles, steps = unit.roles, self.steps
        return Access(
            place=self.place,
            dtype=self.dtype,
            around=[steps[d] for d in roles.around],
            inner=steps[roles.inner],
            lanes=steps[roles.lane : roles.lane + len(unit.tile)],
            hint=self.hint,
            parts=self.parts,
            apart=list(roles.around).index(self.apart) if self.parts else 0,
        )


@dataclass(frozen=True, slots=True)
class Pass:
    """The computation of one way through memory. Values have keys; so have the results' places.

    Attributes:
        reads: the operands.
        tables: operands of which the leaf reads elements at positions.
        writes: per result the key of the value that goes there, and the place.
        leaf: adds to the values read those that are computed of them.
        known: values that are the same everywhere.
        reductions: those that end with the pass.
        recalls: values that passes before have saved.
        saves: values for later passes.
    """

    reads: Mapping[Key, Stored]
    writes: Mapping[Key, tuple[Key, Stored]]
    leaf: Leaf
    known: Values
    tables: Mapping[Key, Stored] = field(default_factory=dict[Key, Stored])
    reductions: Sequence[Reduction] = ()
    recalls: Mapping[Key, Saved] = field(default_factory=dict[Key, Saved])
    saves: Mapping[Key, Saved] = field(default_factory=dict[Key, Saved])


def build_nest(unit: Unit, computed: Pass, ahead: Ahead | None = None) -> Nest:
    """The nest of a pass over a unit; `ahead` asks for memory that later rounds read."""

    def leaf(values: Values) -> None:
        computed.leaf(values)
        for result, (key, _) in computed.writes.items():
            values[result] = values[key]

    return Nest(
        around=[unit.extents[d] for d in unit.roles.around],
        tile=unit.tile,
        along=unit.roles.along,
        reads={key: stored.access(unit) for key, stored in computed.reads.items()},
        writes={result: stored.access(unit) for result, (_, stored) in computed.writes.items()},
        leaf=leaf,
        known=computed.known,
        tables={key: stored.access(unit) for key, stored in computed.tables.items()},
        reductions=computed.reductions,
        recalls=computed.recalls,
        saves=computed.saves,
        tail=unit.tail,
        copies=unit.copies,
        ahead=ahead,
    )


# -- what equations compute ----------------------------------------------------------------------------------------------


def leaf_of(
    w: Writer, equations: Iterable[Equation], operands: Callable[[Equation], Iterable[Key]], read: Read | None = None
) -> Leaf:
    """The leaf of elementwise equations in their order; `operands` gives the keys of an equation's operands, or literals.

    `read` has the result of an equation that reads elements of a table, from the keys and values of its operands.
    """
    members = [(eqn, tuple(operands(eqn))) for eqn in equations]

    def leaf(values: Values) -> None:
        for eqn, keys in members:
            if not eqn.op.at_positions:
                compute(w, eqn, keys, values)
            else:
                assert read is not None
                values[eqn.outputs[0]] = read(eqn, keys, _lanes(w, keys, values))

    return leaf


def compute(w: Writer, eqn: Equation, operands: Iterable[Key], values: Values) -> None:
    """Add the result of an elementwise equation to the values, of which `operands` are keys, or literals."""
    (out,) = eqn.outputs
    width = w.width
    lanes = _lanes(w, operands, values)
    values[out] = w.emit(eqn.op, lanes, eqn.params, dtype_name(out.aval))
    w.at(width)


def _lanes(w: Writer, operands: Iterable[Key], values: Values) -> list[Lane]:
    return [w.constant(k.value, dtype_name(k.aval)) if isinstance(k, Literal) else values[k] for k in operands]


def reduction_of(eqn: Equation, source: Key) -> Reduction:
    """An equation that reduces the value with this key."""
    return Reduction(fold_of(eqn), source, dtype_name(eqn.inputs[0].aval))


def fold_of(eqn: Equation) -> Fold:
    """How a reduction is computed."""
    assert eqn.op.fold is not None
    return eqn.op.fold
