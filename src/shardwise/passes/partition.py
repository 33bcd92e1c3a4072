"""Partitioning: a global Program and a layout for each value become a per-device Program with explicit collectives.

Comes in: the program, `placements` (from propagate), the grid. Goes out: the program that every device runs: local
shapes, and an equation for each communication with the bytes it sends. It has the form that `shard_map` bodies have.
"""

from __future__ import annotations

from collections import ChainMap, Counter
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field, replace
from typing import Any, cast

from shardwise.base import config
from shardwise.base.config import context_token
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.locks import cached_property
from shardwise.base.shapes import Axes, DimAxes, Shape
from shardwise.ir import Atom, Equation, ExactParams, Literal, Program, ShapedArray, Var, calls_user
from shardwise.ir.op import Op
from shardwise.ir.program import NOWHERE, Need
from shardwise.ops.elementwise.binary import add_p
from shardwise.passes.assemble import Assembler, natural_layout
from shardwise.passes.by_rule import finish, partition_by_rule
from shardwise.passes.equals import merge_equal
from shardwise.passes.fills import moved_fills, on_scalars, without_elements
from shardwise.passes.frames import Frame, frame_along, in_frames
from shardwise.passes.grid import Grid
from shardwise.passes.moves import Copy, copy_of, reshard_atom
from shardwise.passes.positions import Positions, positions_of
from shardwise.passes.remade import remake_value
from shardwise.passes.reshard import resharding_bytes
from shardwise.passes.split import Known, local_results, local_type
from shardwise.passes.spread import spread
from shardwise.passes.templates import with_template
from shardwise.passes.transfers import transfer_cost
from shardwise.passes.trials import take_cheapest
from shardwise.passes.views import PlacedValue, View, compose, moves_split_dims, view_of_source
from shardwise.passes.windows import with_windows
from shardwise.runtime import costs
from shardwise.runtime.env import Env


@dataclass
class Region:
    """A program being partitioned: the layouts of its values and the equations made so far."""

    grid: Grid
    placements: Mapping[Var, DimAxes]
    scope: dict[str, Axes] = field(default_factory=dict)  # manual axis names -> grid axes
    manual: frozenset[str] = frozenset()  # grid axes that are manual here
    equations: list[Equation] = field(default_factory=list)
    values: dict[Var, tuple[Atom, DimAxes]] = field(default_factory=dict)
    views: dict[Var, View] = field(default_factory=dict)  # values assembled from others, laid out when they are read
    current: Equation | None = None
    partitioned: Sequence[Equation] = ()
    lone: AbstractSet[int] = frozenset()  # the ids of params that one equation alone has
    given: frozenset[Atom] = frozenset()  # the results of the program that consists of these
    known: Known = field(default_factory=Known)
    rounds: int = 1  # how often the program runs
    # Local values that are the same in all rounds: they are exchanged once.
    steady: set[Atom] = field(default_factory=set)
    # By slice of a local value, and the global shape: that value and its layout. Then: local values in other layouts.
    sliced: dict[tuple[Atom, Shape], tuple[Atom, DimAxes]] = field(default_factory=dict)
    moves: dict[Atom, tuple[Copy, ...]] = field(default_factory=dict)
    windows: dict[Any, tuple[Atom, Atom]] = field(default_factory=dict)  # exchanged ones and their fill values
    # By window with another fill value: the one that it was made of.
    refills: dict[Atom, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sizes = tuple(self.grid.axis_sizes.items())
        self.scoped = tuple(self.scope.items())

    @cached_property
    def across(self) -> tuple[Env, frozenset[str]] | None:
        """If the grid spans several processes: its `Env` with the owners of all parts, and the axes that cross processes."""
        grid = self.grid
        owners = grid.processes
        if owners is None:
            return None
        return Env(grid.names, grid.sizes, processes=owners), frozenset(grid.names[a] for a in owners.crossing_axes())

    @property
    def worth(self) -> int:
        """Additions and multiplications that a device does rather than send a byte."""
        return costs.OPERATIONS_PER_BYTE if self.across is None else costs.OPERATIONS_PER_BYTE_ACROSS

    @cached_property
    def readers(self) -> Counter[Atom]:
        """The number of equations that read each value."""
        return Counter([a for e in self.partitioned for a in e.inputs if isinstance(a, Var)])

    @cached_property
    def makers(self) -> dict[Atom, Equation]:
        """The equation that makes each value."""
        return {v: e for e in self.partitioned for v in e.outputs}

    @cached_property
    def users(self) -> dict[Atom, list[Equation]]:
        """The equations that read each value."""
        users_by_atom: dict[Atom, list[Equation]] = {}
        for eqn in self.partitioned:
            for atom in eqn.inputs:
                if isinstance(atom, Var):
                    users_by_atom.setdefault(atom, []).append(eqn)
        return users_by_atom

    def positions(self) -> Positions:
        """The positions of the program's uneven values in their frames."""
        known_positions = self.known.positions.get(id(self.partitioned))
        if known_positions is None:
            new_positions = positions_of(self.partitioned, self.placements)
            known_positions = self.known.positions[id(self.partitioned)] = self.partitioned, new_positions
        return known_positions[1]

    # -- reading and defining values -------------------------------------------------------------------------------------------

    def read(self, atom: Atom) -> tuple[Atom, DimAxes]:
        """The local atom of a global one, with its layout."""
        if isinstance(atom, Literal):
            return atom, ()
        if atom not in self.values:
            self._lay_out(atom, self.placement(atom))
        return self.values[atom]

    def read_freely(self, atom: Atom) -> tuple[Atom, DimAxes]:
        """`read`, where it does not matter how the value lies: a view that propagation leaves whole stays where its parts lie."""
        if isinstance(atom, Var) and self.is_view(atom) and not any(self.placement(atom)):
            self._lay_out(atom, natural_layout(self.views[atom], self.grid.axis_sizes))
        return self.read(atom)

    def layout(self, atom: Atom) -> DimAxes | None:
        """The layout of a value; None for literals, and for views that are not laid out yet."""
        return self.values[atom][1] if isinstance(atom, Var) and atom in self.values else None

    def view(self, atom: Atom) -> View:
        """The value as a view: parts of values that are laid out."""
        if isinstance(atom, Var) and atom in self.views:
            return self.views[atom]
        local, dims = self.read(atom)
        return view_of_source(PlacedValue(local, dims or ((),) * atom.aval.ndim, atom.aval.shape))

    def _lay_out(self, var: Var, placed: DimAxes) -> None:
        """Assemble a view in the layout of its parts if that fits, then move it to the layout `placed`."""
        view = self.views[var]
        outer, self.current = self.current, view.eqn
        near = placed if view.fills else natural_layout(view, self.grid.axis_sizes)
        atom = Assembler(self, var.aval).assemble(view, near)
        self.define(var, self.reshard(atom, near, placed, var.aval), placed)
        self.current = outer

    def define(self, var: Var, atom: Atom, dims: DimAxes) -> None:
        """Record the local atom, and its layout, of a global variable."""
        self.values[var] = (atom, dims)

    def sub(self, placements: Mapping[Var, DimAxes] | None = None, **changes: Any) -> Region:
        """A region for a nested program that shares this one's grid."""
        return Region(
            self.grid,
            self.placements if placements is None else placements,
            changes.get("scope", self.scope),
            changes.get("manual", self.manual),
            equations=self.equations,
            current=self.current,
            known=self.known,
        )

    def body(self, program: Program, key: tuple[Any, ...], make: Callable[[], Program]) -> Program:
        """`make()`, the local form of a program for the layouts in `key`, computed once per compilation."""
        placements = self.placements or None
        whole = (program, key, id(placements), self.scoped, self.manual)
        known_body = self.known.bodies.get(whole)
        if known_body is not None:
            return known_body[1]
        new_body = make()
        if not any(map(calls_user, program.equations)):
            self.known.bodies[whole] = placements, new_body
        return new_body

    def with_placements(self, placements: Mapping[Var, DimAxes]) -> Region:
        """This region with the layouts of more values."""
        all_placements = cast("dict[Var, DimAxes]", self.placements)  # nothing writes to it
        return self.with_fields(placements=ChainMap(dict(placements), all_placements))

    def local_type(self, aval: ShapedArray, dims: DimAxes) -> ShapedArray:
        """The per-device type of a value with this layout."""
        return local_type(aval, dims, self.grid.axis_sizes, self.scope)

    # -- emitting ----------------------------------------------------------------------------------------------------------------

    def emit(
        self,
        op: Op,
        atoms: Sequence[Atom],
        params: dict[str, Any],
        vma: frozenset[str] = frozenset(),
        need: Need | None = None,
    ) -> tuple[Var, ...]:
        """Append a local equation. `vma`: axes over which the results vary and the operands do not. `need`: why there is a collective."""
        outs = local_results(op, tuple([a.aval for a in atoms]), ExactParams(params), vma, context_token())
        return self.append(op, atoms, outs, params, need)

    def append(
        self, op: Op, atoms: Sequence[Atom], outs: Sequence[ShapedArray], params: Mapping[str, Any], need: Need | None
    ) -> tuple[Var, ...]:
        """`emit` with results of known types."""
        variables = tuple([Var(t) for t in outs])
        source = self.current.source if self.current else None
        if need is not None:
            source = (source or NOWHERE)._replace(need=need)
        self.equations.append(Equation(op, tuple(atoms), variables, params, source))
        if self.steady and all(isinstance(a, Literal) or a in self.steady for a in atoms):
            self.steady.update(v for v in variables if v.aval.nbytes <= costs.HOISTED_BYTES)
        return variables

    def collective(self, op: Op, atoms: Sequence[Atom], axes: Axes, aval: ShapedArray, params: dict[str, Any]) -> Var:
        """Append a collective of one result; see `collectives`."""
        return self.collectives(op, atoms, axes, aval, params)[0]

    def collectives(
        self, op: Op, atoms: Sequence[Atom], axes: Axes, aval: ShapedArray, params: dict[str, Any]
    ) -> tuple[Var, ...]:
        """Append a collective inserted by the partitioner; `aval` is the global type of the value that moves."""
        need = Need(self.current.op.name if self.current else "output", aval.str_short(), implicit=True)
        return self.emit(op, atoms, {"axes": axes, **params}, need=need)

    def cheapest(self, *ways: Callable[[Region], None]) -> None:
        """Partition the current equation in the way that sends the fewest bytes; the first way wins ties."""
        take_cheapest(self, ways)

    def with_fields(self, **fields: Any) -> Region:
        """This region with some fields replaced, for equations of the same program."""
        other = replace(self, **fields)
        other.readers, other.makers, other.users = self.readers, self.makers, self.users
        return other

    def with_whole(self, eqn: Equation, operand: int, dims: Sequence[int]) -> None:
        """`generic` with one operand gathered along `dims` first."""
        var = eqn.inputs[operand]
        local, have = self.read(var)
        assert isinstance(var, Var)
        whole = tuple(() if d in dims else axes for d, axes in enumerate(have))
        self.define(var, self.move_value(var, local, have, whole), whole)
        self.generic(eqn)
        self.define(var, local, have)

    def sizes_of(self, axes: Sequence[str]) -> tuple[int, ...]:
        """The sizes of grid axes."""
        return tuple(self.grid.axis_sizes[a] for a in axes)

    def reshard(self, atom: Atom, have: DimAxes, want: DimAxes, aval: ShapedArray) -> Atom:
        """Move `atom` from layout `have` to layout `want`; `aval` is the global type."""
        if have == want or isinstance(atom, Literal):
            return atom
        self.known.changes.moves = True
        return reshard_atom(self, atom, have, want, aval)

    def move_value(self, atom: Atom, local: Atom, have: DimAxes, want: DimAxes) -> Atom:
        """A value of layout `have` in layout `want`: resharded, or made there if it follows from no value that is split."""
        changes = self.known.changes
        changes.moves = True
        view = self.views.get(atom) if isinstance(atom, Var) else None
        if view is not None and view.fills:
            changes.alone = False
            return Assembler(self, atom.aval).assemble(view, want)
        if (
            isinstance(atom, Var)
            and have != want
            and (local, atom.aval.shape) not in self.sliced
            and self._sends(atom, have, want)
        ):
            there = None if any(want) else copy_of(self, local, want, atom.aval.shape)
            if there is not None:
                return there
            remade_atom = remake_value(self, atom, want)
            changes.asked.append((atom, want, remade_atom is not None))
            if remade_atom is not None:
                return remade_atom
        return self.reshard(local, have, want, atom.aval)

    def keep_copy(self, atom: Atom, copy: Copy) -> None:
        """Remember a local value in another layout."""
        self.moves[atom] = (*self.moves.get(atom, ()), copy)
        self.known.changes.copies.append((atom, copy))

    def keep_cut(self, part: Atom, shape: Shape, whole: Atom, dims: DimAxes) -> None:
        """Remember that a local value, of this global shape, was cut from another one in layout `dims`."""
        self.sliced[part, shape] = whole, dims
        self.known.parts.add(part)
        self.known.changes.cuts.append((part, shape, whole, dims))

    def _sends(self, atom: Atom, have: DimAxes, want: DimAxes) -> bool:
        """Whether devices exchange anything to change the layout of a value."""
        aval = atom.aval
        return resharding_bytes(have, want, aval.shape, aval.itemsize, self.grid.axis_sizes) > 0

    # -- equations ---------------------------------------------------------------------------------------------------------------

    def run(self, program: Program) -> None:
        """Partition every equation of `program`; its inputs must be defined."""
        self.partitioned, renamed_atoms = merge_equal(program.equations, self.placements)
        holders = Counter([id(e.params) for e in self.partitioned])
        self.lone = {number for number, count in holders.items() if count == 1}
        self.given = frozenset([renamed_atoms.get(a, a) for a in program.outputs if isinstance(a, Var)])
        outer = self.current
        for eqn in self.partitioned:
            self.current = eqn
            self.equation(eqn)
        self.current = outer
        for atom in program.outputs:
            if isinstance(atom, Var) and atom in renamed_atoms:
                self._copy(renamed_atoms[atom], atom)

    def _copy(self, var: Atom, other: Var) -> None:
        """Let `other` be the value `var`."""
        assert isinstance(var, Var)
        if var in self.values:
            self.values[other] = self.values[var]
        else:
            self.views[other] = self.views[var]

    def equation(self, eqn: Equation) -> None:
        """Partition an equation as its op requires."""
        if eqn.outputs and not eqn.outputs[0].aval.size and without_elements(self, eqn):
            return
        with_template(self, eqn, own=eqn.op.partition is not None)

    def usual(self, eqn: Equation) -> None:
        """Partition an equation by its op's boxes, or by its sharding rule; or as an equal one was."""
        with_template(self, eqn, own=False)

    def anew(self, eqn: Equation, own: bool) -> None:
        """Partition an equation without a look at equal ones, as its op does on its `own` or as `usual`."""
        if own:
            assert eqn.op.partition is not None
            eqn.op.partition(self, eqn)
        elif not self._defer_move(eqn):
            self.generic(eqn)

    def readers_of(self, eqn: Equation) -> tuple[int, ...]:
        """How many equations read each operand, but for those that take it as it lies: they share no move of it. Last, how many add the
        results to others: their sums over devices may become one.
        """
        additions = sum(e.op is add_p for v in eqn.outputs for e in self.users.get(v, ()))
        return (*[max(1, self.readers[a] - self._read_in_place(a)) for a in eqn.inputs], additions)

    def _read_in_place(self, atom: Atom) -> int:
        """How many elementwise equations have a result that shall lie as this value does."""
        _, have = self.read(atom)
        shape = atom.aval.shape
        return sum(
            e.op.emit is not None and any(v.aval.shape == shape and self.placement(v) == have for v in e.outputs)
            for e in self.users.get(atom, ())
        )

    def _defer_move(self, eqn: Equation) -> bool:
        """If an op only moves elements along split dims, record its result as a view of its operands, laid out when read."""
        boxes = eqn.op.boxes(eqn) if eqn.op.boxes is not None else None
        if boxes is None:
            return on_scalars(self, eqn)
        operands = [self.view(a) for a in eqn.inputs]
        has_views = any(self.is_view(a) for a in eqn.inputs)
        moves = any(moves_split_dims(of, operands, v.aval.shape) for of, v in zip(boxes, eqn.outputs, strict=True))
        if not has_views and not moves:
            return moved_fills(self, eqn, boxes, operands)
        self.known.changes.alone = False  # readers decide whether a view is laid out
        for var, of in zip(eqn.outputs, boxes, strict=True):
            view = compose(of, operands, var.aval.shape, eqn)
            self.views[var] = view
            if len(view.parts) > costs.VIEW_PARTS or (
                len(of) > 1 and not view.fills and self._divides(view) and not self._moves_on(var)
            ):
                self._lay_out(var, self.placement(var))
                del self.views[var]
        return True

    def record_views(self, eqn: Equation) -> None:
        """Record the results of an op that moves elements as views of its operands, whatever reads them."""
        boxes = eqn.op.boxes(eqn) if eqn.op.boxes is not None else None
        assert boxes is not None
        self.known.changes.alone = False
        operands = [self.view(a) for a in eqn.inputs]
        for var, of in zip(eqn.outputs, boxes, strict=True):
            self.views[var] = compose(of, operands, var.aval.shape, eqn)

    def _moves_on(self, var: Var) -> bool:
        """Whether one equation alone reads a value, and moves its elements on."""
        return self.readers[var] == 1 and self.users[var][0].op.boxes is not None

    def is_read(self, var: Var) -> bool:
        """Whether an equation reads a value, or the program gives it."""
        self.known.changes.alone = False
        return var in self.given or var in self.users

    def maker(self, atom: Atom) -> Equation | None:
        """The equation that makes a value; None for the program's inputs."""
        self.known.changes.alone = False
        return self.makers.get(atom)

    def read_in_parts(self, var: Var) -> bool:
        """Whether an equation takes boxes or windows of a value, rather than the value in the layout that propagation chose."""
        self.known.changes.alone = False
        return any(
            e.op.halo is not None or (e.op.boxes is not None and e.op.boxes(e) is not None)
            for e in self.users.get(var, ())
        )

    def _divides(self, view: View) -> bool:
        """Whether a view can take the layout of its parts."""
        near = natural_layout(view, self.grid.axis_sizes)
        return all(near[d] == view.axes(d) for d in view.moved_dims())

    def output(self, atom: Atom, dims: DimAxes) -> Atom:
        """A program output in the layout that the caller wants."""
        local, have = self.read(atom)
        return self.reshard(local, have, dims, atom.aval)

    def is_view(self, atom: Atom) -> bool:
        return isinstance(atom, Var) and atom in self.views and atom not in self.values

    def compute_in_frames(self, eqn: Equation) -> bool:
        """Compute with unevenly sized operands in their frames, if there are any and the op can; see `frames`."""
        outs = in_frames(self, eqn)
        self.known.changes.alone &= not outs
        return outs

    def frame(self, atom: Atom, d: int) -> Frame | None:
        """The frame of dim `d` of a view whose axes do not divide it; None if they do."""
        framed_atom = frame_along(self, atom, d)
        self.known.changes.alone &= framed_atom is None
        return framed_atom

    def placement(self, var: Var) -> DimAxes:
        """The layout that propagation chose for a value."""
        return self.placements.get(var, ((),) * var.aval.ndim)

    def result_layouts(self, eqn: Equation) -> tuple[DimAxes, ...]:
        """The layouts that propagation chose for the results of an equation."""
        return tuple([self.placement(v) for v in eqn.outputs])

    def generic(self, eqn: Equation) -> None:
        """Choose a split for each factor of the op's sharding rule, reshard the operands, compute, reduce."""
        if self.compute_in_frames(eqn) or with_windows(self, eqn):
            self.known.changes.alone = False
        else:
            partition_by_rule(self, eqn, self.result_layouts(eqn))

    def spread(self, eqn: Equation, whole: Atom) -> bool:
        """Put elements of `whole` with padding between them where a pad has them, if that is possible; see `passes.spread`."""
        return spread(self, eqn, whole)

    def finish(self, eqn: Equation, var: Var, dims: DimAxes, placed: DimAxes, partial: Axes) -> None:
        """Finish a result of which each device holds a partial reduction over these axes."""
        finish(self, eqn, var, dims, placed, partial)


def partition(
    program: Program,
    grid: Grid,
    placements: Mapping[Var, DimAxes],
    in_dims: Sequence[DimAxes],
    out_dims: Sequence[DimAxes | None],
    in_varies: Sequence[frozenset[str]] = (),
) -> tuple[Program, tuple[DimAxes, ...], frozenset[str]]:
    """The per-device program, the layouts of its outputs, and the axes over which copies of values may differ, as do those of inputs over
    `in_varies`. An output whose `out_dims` is None keeps its computed layout.

    An equation takes the way that sends the fewest bytes. Where another way sends hardly more, it may leave values where later equations
    need them, so the program is partitioned a second time, with those ways, and the better one of the two is taken.
    """
    differs = in_varies or [frozenset[str]()] * len(in_dims)

    def partition_with(known: Known) -> tuple[Program, tuple[DimAxes, ...], frozenset[str]]:
        known.differs = frozenset[str]().union(*differs)
        region = Region(grid, placements, known=known)
        return *_partition_program(program, region, list(zip(in_dims, differs, strict=True)), out_dims), known.differs

    memory = Known()
    best = partition_with(memory)
    if memory.close_calls:
        return min(best, partition_with(Known(takes_seconds=True)), key=lambda made: transfer_cost(made[0], grid))
    return best


def _partition_program(
    program: Program, region: Region, layouts: Sequence[tuple[DimAxes, Any]], out_dims: Sequence[DimAxes | None]
) -> tuple[Program, tuple[DimAxes, ...]]:
    inputs = []
    for var, (dims, varies) in zip(program.inputs, layouts, strict=True):
        local = Var(region.local_type(var.aval.update(vma=varies) if varies else var.aval, dims))
        inputs.append(local)
        region.define(var, local, dims)
    region.run(program)
    read = region.read if config.dialect.jit.uneven_results_whole else region.read_freely
    result_layouts = tuple(read(a)[1] if d is None else d for a, d in zip(program.outputs, out_dims, strict=True))
    outputs = [region.output(a, d) for a, d in zip(program.outputs, result_layouts, strict=True)]
    local_program = Program(tuple(inputs), tuple(region.equations), tuple(outputs), program.num_consts, program.name)
    return local_program, result_layouts
