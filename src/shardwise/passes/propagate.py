"""Propagation: every value of a program gets a layout, starting from the layouts that the caller fixes.

Comes in: a global Program, the mesh axes that may be used, the placements of inputs, outputs and constrained values.
Goes out: for every variable, the mesh axes that split each of its dims.

Layouts flow forward and backward along each op's sharding rule (passes.factors handles one op), level by level: ops that
only rearrange elements come first, broadcasts come last. Within a level, ops are visited in program order. When a layout
changes, the other ops that use its value are visited again, until nothing changes. Layouts only grow, so this terminates.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any

from shardwise.base import config
from shardwise.base.caches import recent
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import DimAxes
from shardwise.ir import Atom, Equation, Literal, Program, Var, subprograms
from shardwise.passes.factors import LEVELS, MULTI_USE, PASS_THROUGH, SINGLE_USE, FactorRule, equation_flow, extend
from shardwise.passes.grid import Grid
from shardwise.sharding import AbstractMesh
from shardwise.sharding.rule import Kind, Rule


@dataclass(frozen=True)
class Placement:
    """The part of a value's layout that the caller fixes: the axes of each dim, and the dims that may be split further."""

    dims: DimAxes
    open: tuple[bool, ...]


Constrained = dict[Var, set[Placement]]  # the layouts that constraints and shard_maps want for their operands


def propagate(
    program: Program,
    mesh_axes: Mapping[str, int],
    inputs: Sequence[Placement | None],
    outputs: Sequence[Placement | None],
    *,
    fixed: Mapping[Var, Placement] | None = None,
    grid: Grid | None = None,
    uneven_whole: Iterable[Atom] = (),
) -> dict[Var, DimAxes]:
    """The layout of every variable of `program` and of the programs inside ops that have `edges`.

    `inputs` and `outputs` have one entry per input and output of the program; None leaves the value to propagation. An
    output's placement is a wish: its value takes as many of the axes as it can, unless its layout is fixed elsewhere.
    `fixed` overrides the layouts that types (explicit specs) and ops (constraints) give a value. `grid` translates the
    axes that types name; without it they are axes of `mesh_axes` already. No dim is split by axes that do not divide it;
    a value in `uneven_whole` that has such a dim is not split at all.
    """
    graph = _Graph(program, mesh_axes, fixed or {}, grid)
    for var, placement in zip(program.inputs, inputs, strict=True):
        if placement is not None:
            graph.fix(graph.id_of(var), placement)
    graph.connect(program)
    for atom, placement in zip(program.outputs, outputs, strict=True):
        if placement is not None and isinstance(atom, Var):
            graph.wishes.append(graph.wish(atom, placement))
    graph.settle()
    return graph.layouts(set(uneven_whole))


class _Graph:
    """The values and ops of a program. Values that must have one layout (targets of a data-flow edge) share an id."""

    def __init__(
        self, program: Program, mesh: Mapping[str, int], fixed: Mapping[Var, Placement], grid: Grid | None
    ) -> None:
        self.mesh = mesh
        self.fixed = fixed
        self.grid = grid
        self.manual = _NO_AXES  # axes that no value of the current program may gain
        self.ids: dict[Var, int] = {}
        self.dims: list[DimAxes] = []
        self.closed: list[tuple[bool, ...]] = []
        self.banned: list[frozenset[str]] = []  # axes that the value may not gain
        self.annotated: list[bool] = []  # whether the type, an op or the caller gives the value's layout
        self.nodes: list[tuple[FactorRule, tuple[int, ...]]] = []
        self.flows: dict[Any, FactorRule] = {}  # of equations, by op, params and types; the program keeps the params
        self.users: list[list[int]] = []  # nodes by value
        self.wishes: list[int] = []  # nodes for the layouts that the caller wishes for outputs
        self.uses: Counter[Atom] = Counter()
        self.targets: set[int] = set()  # values at the far end of a data-flow edge
        self.nothing = self._new((), frozenset())  # the value of every literal
        self.edges: dict[Equation, list[tuple[dict[Var, int], dict[Var, int]]]] = {}  # sources and targets
        self._survey(program, set())
        self.shared = {a for a, n in self.uses.items() if n > 1 and type(a) is Var and a.aval.ndim}

    # -- values ------------------------------------------------------------------------------------

    def _new(self, dims: DimAxes, banned: frozenset[str]) -> int:
        self.dims.append(dims)
        self.closed.append(_open(len(dims)))
        self.banned.append(banned)
        self.annotated.append(False)
        self.users.append([])
        return len(self.dims) - 1

    def id_of(self, atom: Atom) -> int:
        """The id of an atom's value; the first request makes the value from the atom's type."""
        if isinstance(atom, Literal):
            return self.nothing
        value_id = self.ids.get(atom)
        if value_id is None:
            value_id = self.ids[atom] = self._value(atom)
        return value_id

    def _value(self, var: Var) -> int:
        aval = var.aval
        if aval.mesh is None and not self.fixed:
            return self._new(_unsplit_layout(aval.ndim), self.manual)
        placement = self.fixed.get(var)
        if placement is not None:
            i = self._new(placement.dims, _NO_AXES)
            self.fix(i, placement)
            return i
        if aval.mesh is None:
            return self._new(_unsplit_layout(aval.ndim), self.manual)
        (explicit,) = self._translate_layout(aval.mesh, (aval.mesh.explicit_axes,))
        i = self._new(self._translate_layout(aval.mesh, aval.spec), self.manual.union(explicit))
        self.annotated[i] = bool(explicit)
        return i

    def _translate_layout(self, mesh: AbstractMesh, dims: DimAxes) -> DimAxes:
        """A layout in a type's mesh axes, translated to ours; axes of size 1 split nothing and are dropped."""
        if self.grid is not None:
            return self.grid.rename(mesh.axis_names, mesh.axis_sizes, dims)
        return tuple(tuple(a for a in axes if mesh.shape[a] > 1) for axes in dims)

    def fix(self, i: int, placement: Placement) -> None:
        """Give a value a layout that can grow only in the placement's open dims."""
        self.dims[i] = placement.dims
        self.closed[i] = tuple(not o for o in placement.open)
        self.annotated[i] = True

    def wish(self, atom: Atom, placement: Placement) -> int:
        """Let a value take a layout if it can, as if an op passed it on to a value with that layout; returns the node."""
        want = self._new(placement.dims, _NO_AXES)
        self.fix(want, placement)
        return self._node(_edge_flow((atom.aval.shape,) * 2, (0, 0), 1, SINGLE_USE), (self.id_of(atom), want))

    def layouts(self, uneven_whole: Collection[Atom] = ()) -> dict[Var, DimAxes]:
        """The layout of every variable. From the first axis that does not divide its dim, axes are dropped."""
        divided_dims: dict[int, DimAxes] = {}
        out: dict[Var, DimAxes] = {}
        for atom in uneven_whole:
            i = None if isinstance(atom, Literal) else self.ids.get(atom)
            if i is not None and self._dividing_axes(atom.aval.shape, self.dims[i]) != self.dims[i]:
                divided_dims[i] = ((),) * atom.aval.ndim
        layout_by_key: dict[tuple[tuple[int, ...], DimAxes], DimAxes] = {}
        for var, i in self.ids.items():
            dims = divided_dims.get(i)
            if dims is None:
                key = var.aval.shape, self.dims[i]
                dims = layout_by_key.get(key)
                if dims is None:
                    dims = layout_by_key[key] = self._dividing_axes(*key)
                divided_dims[i] = dims
            out[var] = dims
        return out

    def _dividing_axes(self, shape: tuple[int, ...], dims: DimAxes) -> DimAxes:
        for d, (size, axes) in enumerate(zip(shape, dims, strict=True)):
            ways = 1
            for k, a in enumerate(axes):
                ways *= self.mesh[a]
                if size % ways:
                    return self._dividing_axes(shape, (*dims[:d], axes[:k], *dims[d + 1 :]))
        return dims

    # -- structure ---------------------------------------------------------------------------------

    def _survey(self, program: Program, seen: set[int]) -> None:
        """Count uses, and give the targets of each data-flow edge one id, before any node is made."""
        if id(program) in seen:  # several ops may share a body; its values then have one layout in all of them
            return
        seen.add(id(program))
        self.uses.update(chain(chain.from_iterable([e.inputs for e in program.equations]), program.outputs))
        for eqn in program.equations:
            if eqn.op.edges is not None:
                inner = [p for _, p in subprograms(eqn.params)]
                for p in inner:
                    self._survey(p, seen)
                self._unite(eqn, inner)
            elif _is_partly_manual(eqn):
                with self._inside(eqn) as body:
                    self._survey(body, seen)

    def _unite(self, eqn: Equation, inner: Sequence[Program]) -> None:
        """Separate the sources of each group of an op's edges from the targets, and give the targets one id."""
        assert eqn.op.edges is not None
        self.edges[eqn] = []
        for group in eqn.op.edges(eqn):
            entries = [_with_offset(entry) for entry in group]
            enters = any(atom is a for atom, _ in entries for a in eqn.inputs)
            # A body may return its own arguments. So an argument is a target only where values enter, and each program
            # has only one target: results follow arguments in a group.
            targets = {v: o for v, o in entries if v in eqn.outputs}
            for p in inner if enters else ():
                targets.update(next(([(v, o)] for v, o in entries if v in p.inputs), []))
            sources = {v: o for v, o in entries if isinstance(v, Var) and v not in targets}
            self.edges[eqn].append((sources, targets))
            shared_ids: dict[int, int] = {}
            if len(targets) > 1 and len(sources) == 1 and not any(v in targets for v in eqn.outputs):
                # A branch uses the operand itself; a loop has its own copy.
                ((value, offset),) = sources.items()
                shared_ids[offset] = self.id_of(value)
            for v, o in targets.items():
                if v in self.ids:
                    shared_ids[o] = self.ids[v]
                else:
                    i = self.ids[v] = shared_ids[o] if o in shared_ids else self._value(v)
                    shared_ids[o] = i
                    self.targets.add(i)

    def _node(self, flow: FactorRule, ids: tuple[int, ...]) -> int:
        n = len(self.nodes)
        users, nothing = self.users, self.nothing
        for i in ids:
            if i != nothing:
                its = users[i]
                if not its or its[-1] != n:
                    its.append(n)
        self.nodes.append((flow, ids))
        return n

    def connect(self, program: Program, seen: set[int] | None = None) -> None:
        """Make the nodes of a program's equations, those of inner programs included."""
        seen = set() if seen is None else seen
        if id(program) in seen:
            return
        seen.add(id(program))
        for var in program.inputs:
            self.id_of(var)
        constraints: Constrained = {}
        for eqn in program.equations:
            if eqn.op.edges is not None:
                for _, inner in subprograms(eqn.params):
                    self.connect(inner, seen)
                self._edges(eqn)
            elif eqn.op.constrains is not None:
                self._constraint(eqn, constraints)
            elif eqn.op.boundary:
                self._shard_map(eqn, constraints, seen)
            else:
                self._equation(eqn)
            for var in eqn.outputs:
                if var not in self.ids:
                    self.id_of(var)
        self._pull(constraints)

    def _early(self, atoms: Sequence[Atom]) -> int:
        """The first level for ops that only rearrange these operands."""
        return SINGLE_USE if self.shared.isdisjoint(atoms) else MULTI_USE

    def _equation(self, eqn: Equation) -> None:
        inputs, ids = eqn.inputs, self.ids
        early = SINGLE_USE if self.shared.isdisjoint(inputs) else MULTI_USE
        key = (eqn.op, id(eqn.params), early, len(inputs), *[a.aval for a in inputs + eqn.outputs])
        flow = self.flows.get(key)
        if flow is None:
            flow = self.flows[key] = equation_flow(eqn, early)
        if not flow.turns:
            return
        known_ids = [ids[a] if a in ids else self.id_of(a) for a in inputs]  # type: ignore[index]
        self._node(flow, (*known_ids, *map(self.id_of, eqn.outputs)))

    def _edges(self, eqn: Equation) -> None:
        for sources, targets in self.edges[eqn]:
            entries = {self.id_of(v): (v, o) for v, o in (*sources.items(), *targets.items())}
            if len(entries) > 1:
                shapes, offsets = zip(*[(v.aval.shape, o) for v, o in entries.values()], strict=True)
                flow = _edge_flow(shapes, offsets, len({self.id_of(v) for v in sources}), self._early(list(sources)))
                self._node(flow, tuple(entries))

    def _constraint(self, eqn: Equation, constrained: Constrained) -> None:
        (operand,), (result,) = eqn.inputs, eqn.outputs
        i = self.id_of(result)
        if result not in self.fixed:
            # Axes that the type names join the axes that the constraint adds.
            wanted_dims, is_open = eqn.op.constrains(eqn)  # type: ignore[misc]
            both = zip(wanted_dims, self.dims[i], strict=True)
            dims = tuple(axes if set(known) <= set(axes) else known + axes for axes, known in both)
            self.fix(i, Placement(dims, is_open))
        if isinstance(operand, Var):
            open_dims = tuple(not c for c in self.closed[i])
            constrained.setdefault(operand, set()).add(Placement(self.dims[i], open_dims))
            if result.aval.ndim:
                flow = _edge_flow((result.aval.shape,) * 2, (0, 0), 1, PASS_THROUGH)
                self._node(flow, (self.id_of(operand), i))

    def _pull(self, constrained: Constrained) -> None:
        """Fix the layout of a value that has none if all closed constraints on it agree."""
        for var, placements in constrained.items():
            i = self.id_of(var)
            if len(placements) == 1 and not self.annotated[i] and i not in self.targets:
                (placement,) = placements
                if not any(placement.open):
                    self.fix(i, placement)

    def _shard_map(self, eqn: Equation, constrained: Constrained, seen: set[int]) -> None:
        params = eqn.params
        free = bool(params.get("auto"))
        for var, dims in zip(eqn.outputs, params["grid_out_dims"], strict=True):
            if var not in self.fixed:
                self.fix(self.id_of(var), Placement(dims, (free,) * len(dims)))
        entry_nodes: list[int] = []
        for atom, dims in zip(eqn.inputs, params["grid_in_dims"], strict=True):
            if isinstance(atom, Var):
                placement = Placement(dims, (free,) * len(dims))
                constrained.setdefault(atom, set()).add(placement)
                entry_nodes.append(self.wish(atom, placement))
        if not _is_partly_manual(eqn):
            return
        wished_dims = iter([self.nodes[n][1][1] for n in entry_nodes])
        with self._inside(eqn) as body:
            for atom, var, dims in zip(eqn.inputs, body.inputs, params["grid_in_dims"], strict=True):
                if isinstance(atom, Var):
                    self._node(
                        _block_flow(atom.aval.shape, self._ways(dims), True), (next(wished_dims), self.id_of(var))
                    )
            self.connect(body, seen)
            for var, atom, dims in zip(eqn.outputs, body.outputs, params["grid_out_dims"], strict=True):
                if isinstance(atom, Var):
                    self._node(
                        _block_flow(var.aval.shape, self._ways(dims), False), (self.id_of(atom), self.id_of(var))
                    )

    @contextmanager
    def _inside(self, eqn: Equation) -> Generator[Program]:
        """The body of a shard_map that leaves axes automatic; values of the body may not gain the manual axes."""
        outer = self.manual
        self.manual = outer | eqn.params["grid_manual"]
        yield eqn.params["program"]
        self.manual = outer

    def _ways(self, dims: DimAxes) -> tuple[int, ...]:
        return tuple([math.prod([self.mesh.get(a, 1) for a in axes]) for axes in dims])

    # -- the fixed point ---------------------------------------------------------------------------

    def settle(self) -> None:
        """Visit the nodes until no layout grows, level by level."""
        if not any(map(any, self.dims)):
            return
        nodes, dims = self.nodes, self.dims
        # Layers of a network repeat the same steps: each combination of layouts and limits is computed once.
        states = _States()
        state = [states.number_of(s) for s in zip(dims, self.closed, self.banned, strict=True)]
        steps: dict[Any, list[tuple[int, DimAxes, int]]] = {}
        users, is_split, is_reached = self.users, [any(d) for d in dims], bytearray(len(nodes))
        for i, split in enumerate(is_split):
            for n in users[i] if split else ():
                is_reached[n] = 1
        wishes = set(self.wishes)  # wishes come first, then program order; the top of the stack is its end
        order = [*(n for n in range(len(nodes) - 1, -1, -1) if n not in wishes), *reversed(self.wishes)]
        stacks: dict[int, list[int]] = {level: [] for level in LEVELS}
        for n in order:
            for level in nodes[n][0].turns:
                stacks[level].append(n)
        for level, stack in stacks.items():
            is_queued = bytearray(len(nodes))
            for n in stack:
                is_queued[n] = 1
            while stack:
                n = stack.pop()
                is_queued[n] = 0
                flow, ids = nodes[n]
                if not is_reached[n] or not flow.levels[level]:
                    continue
                before = [state[i] for i in ids]
                key = (flow, level, *before)
                growth = steps.get(key)
                if growth is None:
                    growth = steps[key] = states.growth(flow, level, before, self.mesh)
                for t, layout, next_state in growth:
                    i = ids[t]
                    again: Sequence[int] = (n,)  # if the op uses the value twice: with the value's new layout
                    if state[i] == before[t]:
                        dims[i], state[i] = layout, next_state
                        # Visit the first user in program order next, and the op that makes the value after its users.
                        again = [m for m in (users[i][0], *users[i][:0:-1]) if m != n]
                        if not is_split[i]:
                            is_split[i] = True
                            for m in users[i]:
                                is_reached[m] = 1
                    for m in again:
                        if not is_queued[m]:
                            is_queued[m] = 1
                            stack.append(m)


_State = tuple[
    DimAxes, tuple[bool, ...], frozenset[str]
]  # a value's layout, its closed dims, and the axes that it may not gain


class _States:
    """The states that values have been in, by number: numbers are compared faster than layouts."""

    def __init__(self) -> None:
        self._numbers: dict[_State, int] = {}
        self._states: list[_State] = []

    def number_of(self, state: _State) -> int:
        """The number of a state."""
        number = self._numbers.setdefault(state, len(self._states))
        if number == len(self._states):
            self._states.append(state)
        return number

    def growth(
        self, flow: FactorRule, level: int, before: Sequence[int], mesh: Mapping[str, int]
    ) -> list[tuple[int, DimAxes, int]]:
        """The tensors of an op whose layouts grow if they are in these states: which, their layouts, and the states after it."""
        layouts, closed_dims, banned_axes = zip(*[self._states[number] for number in before], strict=True)
        grown_layouts = extend(flow, level, list(layouts), list(closed_dims), list(banned_axes), mesh)
        return [(t, layout, self.number_of((layout, closed_dims[t], banned_axes[t]))) for t, layout in grown_layouts]


# -- identities ------------------------------------------------------------------------------------


@recent(1024)
def _edge_flow(
    shapes: tuple[tuple[int, ...], ...], offsets: tuple[int, ...], num_sources: int, early: int
) -> FactorRule:
    """The flow between copies of one value: sources first; `offsets` are the leading dims of each that do not take part."""
    element = shapes[0][offsets[0] :]
    tensors = tuple(((),) * o + tuple((d,) if n != 1 else () for d, n in enumerate(element)) for o in offsets)
    rule = Rule(tensors[:num_sources], tensors[num_sources:], element, (Kind.PASS,) * len(element))
    return FactorRule(rule, early, identity=True)


@recent(1024)
def _block_flow(shape: tuple[int, ...], ways: tuple[int, ...], enters: bool) -> FactorRule:
    """The flow between a value and its block in a shard_map: in each dim the block's axes follow the manual axes."""
    blocks = tuple(n // w for n, w in zip(shape, ways, strict=True))
    rank = len(shape)
    inner = tuple((rank + d,) if n != 1 else () for d, n in enumerate(blocks))
    whole = tuple(((d,) if w != 1 else ()) + own for d, (w, own) in enumerate(zip(ways, inner, strict=True)))
    sides = (whole, inner) if enters else (inner, whole)
    return FactorRule(
        Rule((sides[0],), (sides[1],), ways + blocks, (Kind.PASS,) * (2 * rank)), PASS_THROUGH, identity=True
    )


def _is_partly_manual(eqn: Equation) -> bool:
    """Whether this shard_map has automatic axes, so that layouts flow through its body."""
    return (
        eqn.op.boundary
        and bool(eqn.params.get("auto"))
        and config.dialect_of(eqn.params["era"]).shard_map.keeps_automatic_splits
    )


def _with_offset(entry: Any) -> tuple[Atom, int]:
    return entry if isinstance(entry, tuple) else (entry, 0)


_NO_AXES: frozenset[str] = frozenset()


@recent(64)
def _open(rank: int) -> tuple[bool, ...]:
    return (False,) * rank


@recent(64)
def _unsplit_layout(rank: int) -> DimAxes:
    return ((),) * rank
