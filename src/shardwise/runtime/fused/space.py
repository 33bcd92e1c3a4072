"""The loops of a fused group, and where each equation belongs in them.

A `IterationSpace` has a loop per grid axis and per dim of the full shape; some of them are reduced. Values of a group are *full*, one per
point of the space, or belong to a *row*: one per point of the loops that are kept. Where nothing is reduced, all are full.
`IterationSpace.takes` says which equations can be members. A `Graph` lists the members by the pass over a row that computes
them: the result of a reduction is known after its pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.locks import cached_property
from shardwise.base.shapes import Shape
from shardwise.ir import Equation, Literal, Program, ShapedArray, Var
from shardwise.runtime import costs
from shardwise.runtime.machine import TYPES

Places = tuple[int | None, ...]  # per dim of a value the dim of the full shape it runs along; None for size 1

_KINDS = {"b": "bool", "i": "int", "u": "uint", "f": ("float", "bfloat"), "w": ("float32", "float64"),
          "s": ("float32", "float16", "bfloat16"), "c": "complex", "k": "key"}  # fmt: skip
_IN_GROUPS = TYPES.keys() - {"complex128"}  # of at most 64 bits


@dataclass(frozen=True)
class IterationSpace:
    """`shape` and the grid axes `vma` over which full values vary; of these, `axes` and `crossed` are reduced."""

    shape: Shape
    axes: tuple[int, ...]
    vma: frozenset[str]
    crossed: frozenset[str] = frozenset()

    @cached_property
    def whole(self) -> bool:
        """Whether nothing is reduced: all values are full."""
        return not self.axes and not self.crossed

    @cached_property
    def kept(self) -> Shape:
        """The shape of rows without the reduced dims."""
        return tuple(n for d, n in enumerate(self.shape) if d not in self.axes)

    @cached_property
    def held(self) -> Shape:
        """The shape of rows in which the reduced dims have size 1."""
        return tuple(1 if d in self.axes else n for d, n in enumerate(self.shape))

    def is_full(self, aval: ShapedArray) -> bool:
        """Whether a value of the group is full."""
        return aval.shape == self.shape and aval.vma == self.vma

    def is_row(self, aval: ShapedArray) -> bool:
        """Whether a value of the group belongs to a row."""
        return aval.shape in (self.held, self.kept) and aval.vma == self.vma - self.crossed

    def places(self, shape: Shape) -> Places | None:
        """The loops of a value's dims by its shape; None if it is neither full nor a row's."""
        if shape == self.shape or shape == self.held:
            loops: Places = tuple(range(len(shape)))
        elif shape == self.kept:
            loops = tuple(d for d in range(len(self.shape)) if d not in self.axes)
        else:
            return None
        return tuple(None if n == 1 else d for n, d in zip(shape, loops, strict=True))

    def operand_places(self, eqn: Equation, i: int) -> Places:
        """The loops of the dims of operand `i` of a member."""
        shape = eqn.inputs[i].aval.shape
        assert eqn.op.emit is not None or eqn.op.fold is not None or eqn.op.at_positions
        found = self.places(shape if eqn.op.fold is not None else eqn.outputs[0].aval.shape)
        assert found is not None
        if not shape or eqn.op.fold is not None:
            return found if shape else ()
        if eqn.op.emit is not None and eqn.op.emit.moves:
            own = self.places(shape)
            assert own is not None
            return own
        return tuple(None if n == 1 else d for n, d in zip(shape, found, strict=True))

    def takes(self, eqn: Equation) -> bool:
        """Whether the equation can be a member of a group with these loops."""
        if not eqn.outputs or eqn.outputs[0].aval.dtype.name not in _IN_GROUPS:
            return False
        op, out = eqn.op, eqn.outputs[0].aval
        if op.fold is not None:
            return space_of(eqn) == self
        if (pieces := joined_pieces(eqn)) is not None:
            return self.is_full(out) and not any(p.over for p in pieces)
        if op.at_positions:
            return self.is_full(out) and reads_elements(eqn)
        if op.emit is None or not all(fits(a.aval, op.emit.kinds) for a in eqn.inputs):
            return False
        if out.dtype.name == "float16" and any(a.aval.dtype.name == "float64" for a in eqn.inputs):
            return False  # would be rounded twice
        if not (self.is_full(out) or self.is_row(out)) or all(isinstance(a, Literal) for a in eqn.inputs):
            return False
        return self._moves_along(eqn) if op.emit.moves else True

    def _moves_along(self, eqn: Equation) -> bool:
        """Whether each dim of operand and result runs along the loop that its place in the space says."""
        x, out = eqn.inputs[0].aval, eqn.outputs[0].aval
        theirs, ours = self.places(x.shape), self.places(out.shape)
        if theirs is None or ours is None:
            return False
        rule = eqn.op.sharding_rule((x,), (out,), eqn.params)
        loops: dict[int, int | None] = {}
        for factors, loop in zip(rule.outputs[0], ours, strict=True):
            if len(factors) > 1:
                return False
            loops.update(dict.fromkeys(factors, loop))
        return all(
            loop is None or (len(factors) == 1 and loops.get(factors[0]) == loop)
            for factors, loop in zip(rule.inputs[0], theirs, strict=True)
        )

    def __str__(self) -> str:
        text = f"{self.shape} by {self.axes}"
        return f"{text} over {','.join(sorted(self.crossed))}" if self.crossed else text


def cost_of(eqn: Equation) -> int:
    """The cost of the equation per element of a group, relative to an addition."""
    emit = eqn.op.emit
    return emit.cost if emit is not None else costs.FUSED_READ if eqn.op.at_positions else 0


def takes_type(aval: ShapedArray, kinds: str) -> bool:
    """Whether an emitter for these kinds takes values of this type, which vector code can hold."""
    name = aval.dtype.name
    return name in TYPES and any(name.startswith(_KINDS[k]) for k in kinds)


def fits(aval: ShapedArray, kinds: str) -> bool:
    """Whether groups, too, can hold them."""
    return aval.dtype.name in _IN_GROUPS and takes_type(aval, kinds)


def space_of(eqn: Equation) -> IterationSpace | None:
    """The loops that a reduction asks for; None if it is none, or cannot be written as vector code."""
    fold = eqn.op.fold
    if fold is None or not isinstance(eqn.inputs[0], Var) or eqn.outputs[0].aval.dtype.name not in _IN_GROUPS:
        return None
    aval = eqn.inputs[0].aval
    if aval.dtype.kind == "c":  # kernels add up large complex values faster, both parts with one instruction
        return None
    crossed = frozenset(eqn.params.get("sum_axes") or ())
    if not fits(aval, fold.kinds) or not crossed <= aval.vma or eqn.params.get("out_sharding") is not None:
        return None
    space = IterationSpace(aval.shape, tuple(sorted(eqn.params["axes"])), aval.vma, crossed)
    return None if space.held == space.shape and not crossed else space


def reads_elements(eqn: Equation) -> bool:
    """Whether the equation reads elements at positions that are operands each, of types that vector code can hold."""
    if not eqn.op.at_positions or eqn.inputs[0].aval.dtype.name not in _IN_GROUPS:
        return False
    rank = eqn.outputs[0].aval.ndim
    return all(fits(a.aval, "iu") and a.aval.ndim in (0, rank) for a in eqn.inputs[1:])


@dataclass(frozen=True)
class InputAccess:
    """An input as one kind of operand needs it. `row`: it does not vary along reduced loops.

    `along`: a piece of a value is read from it, whose element 0 along that dim of the full shape would be its element -`start`.
    `at`: it is a table, whose elements are read at positions along these dims of its own, from each of which on `spans` are in it.
    """

    number: int
    places: Places
    row: bool
    along: int | None = None
    start: int = 0
    at: Shape = ()
    spans: Shape = ()


class Graph:
    """The members of a group by pass.

    `accesses` are the inputs as they are read; `operands[eqn][i]` is an `InputAccess`'s number, or the Atom. Full values of pass p are
    computed in `needed[p]`, a tuple of equations in order, of which `saved[p]` are kept for later passes; `folds[p]` are the
    reductions that end with the pass, `rows[r]` the equations of rows that can be computed before pass r.
    """

    def __init__(self, program: Program, space: IterationSpace, keeps: bool) -> None:
        self.program = program
        self.space = space
        self.accesses: list[InputAccess] = []
        self.operands: dict[Equation, list[int | Literal | Var]] = {}
        self.ready: dict[Var, int] = {}  # the pass in which a full value, or before which a row's value is known
        self.full: set[Var] = set()
        self._inputs = {v: i for i, v in enumerate(program.inputs)}
        self._numbers: dict[InputAccess, int] = {}
        self._maker = {e.outputs[0]: e for e in program.equations}
        self.joins = {
            e: pieces for e in program.equations if (pieces := joined_pieces(e)) is not None
        }  # read where they lie
        for eqn in program.equations:
            self._place(eqn)
        self.outputs = tuple(v for v in program.outputs if isinstance(v, Var))
        sinks = [e.inputs[0] for e in program.equations if e.op.fold is not None]
        last = max([self.ready[v] for v in self.outputs if v in self.full] + [self._known_pass(v) for v in sinks] + [0])
        self.passes = last + 1
        self.folds = [
            [e for e in program.equations if e.op.fold is not None and self._known_pass(e.inputs[0]) == p]
            for p in range(self.passes)
        ]
        self.rows = [
            [
                e
                for e in program.equations
                if e.op.fold is None and e.outputs[0] not in self.full and self.ready[e.outputs[0]] == r
            ]
            for r in range(self.passes + 1)
        ]
        self.stores = [
            [k for k, v in enumerate(self.outputs) if v in self.full and self.ready[v] == p] for p in range(self.passes)
        ]
        self.saved: list[list[Var]] = [[] for _ in range(self.passes)]
        if keeps:
            self._save()
        self.needed = [self._full_equations(p, self._values_before(p)) for p in range(self.passes)]

    def _place(self, eqn: Equation) -> None:
        out = eqn.outputs[0]
        operands: list[int | Literal | Var] = []
        for i, atom in enumerate(eqn.inputs):
            if eqn in self.joins:
                break
            number = self._inputs.get(atom) if isinstance(atom, Var) else None
            if number is None or (i == 0 and eqn.op.at_positions):
                operands.append(atom)
            else:
                places = self.space.operand_places(eqn, i)
                reduced = set(places) & set(self.space.axes) or atom.aval.vma & self.space.crossed
                operands.append(self._number_access(InputAccess(number, places, not self.space.whole and not reduced)))
        if eqn.op.at_positions:
            assert eqn.op.element_read is not None
            read = eqn.op.element_read(eqn)
            assert read is not None
            assert isinstance(eqn.inputs[0], Var)
            places = tuple(o if o is None or self.space.shape[o] != 1 else None for o in read.along)
            table = InputAccess(self._inputs[eqn.inputs[0]], places, False, at=read.at, spans=read.spans)
            operands[0] = self._number_access(table)
        for piece in self.joins.get(eqn, ()):
            operands.append(self._number_access(piece.access(self._inputs[piece.source])))
        self.operands[eqn] = operands
        self.ready[out] = max([self._known_pass(a) for a in operands if isinstance(a, Var)], default=0)
        if eqn.op.fold is not None:
            self.ready[out] += 1
        elif self.space.whole or self.space.is_full(out.aval):
            self.full.add(out)

    def _number_access(self, access: InputAccess) -> int:
        if access not in self._numbers:
            self._numbers[access] = len(self.accesses)
            self.accesses.append(access)
        return self._numbers[access]

    def _known_pass(self, atom: object) -> int:
        return self.ready.get(atom, 0) if isinstance(atom, Var) else 0

    def same_where(self, accesses: Iterable[int]) -> set[int | Var]:
        """These accesses, and the values that are computed of nothing else: where those do not vary, these do not."""
        found: set[int | Var] = set(accesses)
        for eqn in self.program.equations:
            alike = all(isinstance(a, Literal) or a in found for a in self.operands[eqn])
            if alike and eqn.op.emit is not None and eqn not in self.joins:
                found.add(eqn.outputs[0])
        return found

    @cached_property
    def remembers(self) -> bool:
        """Whether functions need memory besides operands and results."""
        return any(self.folds) or any(self.saved)

    def reads(self, p: int) -> list[int | Literal | Var]:
        """The operands of the full values of pass p, and the values that it reduces or writes."""
        return [a for e in self.needed[p] for a in self.operands[e]] + self.sinks(p)

    def pass_equations(self, p: int) -> list[Equation]:
        """The equations that pass p computes; those that join values are read."""
        return [e for e in self.needed[p] if e not in self.joins]

    def used(self, p: int) -> list[int]:
        """The accesses that pass p reads in its loop, then, counted on from them, the results that it writes there."""
        loads = sorted({a for a in self.reads(p) if isinstance(a, int) and not self.accesses[a].row})
        return loads + [len(self.accesses) + k for k in self.stores[p]]

    def sinks(self, p: int) -> list[int | Literal | Var]:
        """The full values that pass p reduces or writes."""
        stored: list[int | Literal | Var] = [self.outputs[k] for k in self.stores[p]]
        return [self.operands[e][0] for e in self.folds[p]] + stored

    def _values_before(self, p: int) -> set[Var]:
        return {v for saved in self.saved[:p] for v in saved}

    def _full_equations(self, p: int, held: set[Var]) -> tuple[Equation, ...]:
        """The equations of full values that pass p computes; values `held` are not computed again."""
        found: set[Equation] = set()
        stack = [a for a in self.sinks(p) if isinstance(a, Var) and a not in held]
        while stack:
            eqn = self._maker.get(stack.pop())
            if eqn is None or eqn in found or eqn.outputs[0] not in self.full:
                continue
            found.add(eqn)
            stack.extend(a for a in self.operands[eqn] if isinstance(a, Var) and a not in held)
        return tuple(e for e in self.program.equations if e in found)

    def _save(self) -> None:
        """Choose the values that passes keep for later ones: those that are expensive to compute again."""
        for p in range(self.passes - 1):
            held = self._values_before(p)
            here = self._full_equations(p, held)
            total: dict[Var, int] = {}
            for eqn in here:
                own = cost_of(eqn)
                total[eqn.outputs[0]] = own + sum(total.get(a, 0) for a in self.operands[eqn] if isinstance(a, Var))
            for q in range(p + 1, self.passes):
                later = self._full_equations(q, held | set(self.saved[p]))
                new = [e for e in later if e not in here]
                wanted = {a for e in new for a in self.operands[e] if isinstance(a, Var)} | {
                    a for a in self.sinks(q) if isinstance(a, Var)
                }
                costly = [v for v, cost in total.items() if v in wanted and cost >= costs.FUSED_SAVED]
                self.saved[p] += [v for v in costly if v not in self.saved[p]]


@dataclass(frozen=True)
class Piece:
    """A part of another value, or all of it, that stands in a value from `start` on along a dim; it begins at `first` in its source.

    `over`: both are wholes along these mesh axes, which split the dim.
    """

    source: Var
    along: int
    start: int
    first: int = 0
    over: tuple[str, ...] = ()

    def access(self, number: int) -> InputAccess:
        """How loops read it, as this input of the group."""
        shape = self.source.aval.shape
        places = tuple(None if n == 1 and d != self.along else d for d, n in enumerate(shape))
        return InputAccess(number, places, False, self.along, self.start - self.first)


def joined_pieces(eqn: Equation) -> tuple[Piece, ...] | None:
    """The pieces of a result that is a few operands, one after the other along a dim; None if it is something else.

    Operands of a collective stand for wholes, of which there may be parts. Where it crosses processes, they lie elsewhere.
    """
    op, collective = eqn.op, eqn.op.collective
    if op.emit is not None or len(eqn.outputs) != 1:
        return None
    shape, found, over = eqn.outputs[0].aval.shape, None, ()
    if collective is not None and collective.boxes is not None:
        over = tuple(eqn.params["axes"])
        shape, found = collective.boxes(eqn) or (shape, None)
    elif op.boxes is not None:
        boxes = op.boxes(eqn)
        found = None if boxes is None else boxes[0]
    parts = [] if found is None else [b for b in found if math.prod(b.size)]
    if not 2 <= len(parts) <= costs.FUSED_JOINED or eqn.outputs[0].aval.dtype.name not in _IN_GROUPS:
        return None
    sources = [eqn.inputs[b.operand] for b in parts]
    dims = {d for b in parts for d, n in enumerate(shape) if b.size[d : d + 1] != (n,)}
    if len(dims) != 1 or not (over or all(a.aval.shape == b.size for a, b in zip(sources, parts, strict=True))):
        return None
    along, end, pieces = dims.pop(), 0, list[Piece]()
    for source, b in sorted(zip(sources, parts, strict=True), key=lambda pair: pair[1].at[along]):
        if b.at[along] != end or not isinstance(source, Var):
            return None
        pieces.append(Piece(source, along, end, b.first[along], over))
        end += b.size[along]
    return tuple(pieces) if end == shape[along] else None
