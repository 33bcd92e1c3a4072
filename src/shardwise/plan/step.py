"""A step that can be compiled again in another layout: other mesh sizes, other specs of its arguments, policies or batches.

In: a program compiled in a planned run. Out: the same for a `StepLayout`. Meshes and specs are replaced in the traced program, so that a
layout costs one partitioning; policies and batches are traced anew, once each.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from fractions import Fraction
from typing import Any, cast

import numpy as np

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.locks import cached_property
from shardwise.base.shapes import DimAxes
from shardwise.base.tree import broadcast_prefix, tree_flatten, tree_unflatten
from shardwise.engine.compile import compile_program
from shardwise.engine.data_free import DataFree
from shardwise.engine.inspection import ShapeDtypeStruct
from shardwise.engine.signature import Signature, array_type, signature
from shardwise.ir import Equation, Program, map_equations, map_programs, subprograms
from shardwise.ops.devices.layout import spec_axes
from shardwise.plan.lost_batches import Pin, lost_batches, with_pins
from shardwise.plan.roles import Argument, arguments_of, follow
from shardwise.planner import Machine, Plan, client_of, device_program_of, for_chip, make_plan
from shardwise.planner.machines import find
from shardwise.sharding import AbstractMesh, Device, Mesh, NamedSharding, PartitionSpec, Sharding
from shardwise.sharding.spec import entry_axes
from shardwise.transforms.derivatives.checkpoint import checkpoint_policies
from shardwise.transforms.derivatives.checkpointed_bodies import checkpointed_bodies
from shardwise.transforms.derivatives.other_policy import every_policy
from shardwise.transforms.jit.stages import Traced
from shardwise.transforms.tracing import from_beginning

Sizes = tuple[tuple[str, int], ...]

# In the order of what they save, the least first.
POLICIES: dict[str, Callable[..., Any]] = {
    "nothing_saveable": checkpoint_policies.nothing_saveable,
    "dots_with_no_batch_dims_saveable": checkpoint_policies.dots_with_no_batch_dims_saveable,
    "dots_saveable": checkpoint_policies.dots_saveable,
    "everything_saveable": checkpoint_policies.everything_saveable,
}
_LEAST = "nothing_saveable"  # what saves least is asked for first
LONGEST = 160  # of the reason of an error
_SPACES = re.compile(r"\s+")
TRACES = 6  # kept: traces of large programs are large


@dataclass(frozen=True, slots=True)
class StepLayout:
    """One way to lay out and to compute a step.

    Attributes:
        mesh: sizes by axis name.
        dims: of arguments laid out otherwise than the program says, by their number: per dim the axes that split it.
        remat: the policy of all checkpointed functions, by its name in `POLICIES` or by that of the search's own; '': as written.
        batch: times that of the program.
        machine: the name of another machine than that of the step; '': the step's.
        keep_batch: whether values inside that carry all of a split batch are constrained to their part of it.
    """

    mesh: Sizes
    dims: tuple[tuple[int, DimAxes], ...] = ()
    remat: str = ""
    batch: Fraction = Fraction(1)
    machine: str = ""
    keep_batch: bool = False


class Step:
    """A program of the user's, and its arguments as a search varies them.

    Args:
        executable: as compiled in a planned run.
        machine: that it is planned for.
        policies: policies of the caller's own, by name.
    """

    def __init__(
        self, executable: DataFree, machine: Machine, policies: dict[str, Callable[..., Any]] | None = None
    ) -> None:
        assert executable.user_call is not None
        self.machine = machine
        self.executable = executable
        self.policies = POLICIES | (policies or {})
        self._traces: dict[tuple[str, Fraction], DataFree] = {("", Fraction(1)): executable}
        self._programs: dict[Any, Program] = {}
        self._pins: dict[StepLayout, tuple[Pin, ...]] = {}
        self._meshes: dict[tuple[Sizes, str], Mesh] = {}
        self._others: dict[str, tuple[Machine, Sequence[Device]]] = {}
        self._least: Traced | None = None  # the function traced with the policy `_LEAST`, once that was tried

    @cached_property
    def mesh(self) -> Mesh | None:
        """The mesh over which arguments, results and constraints lie; None if there is none, or several that differ."""
        request = self.executable.request
        shardings = [sig.sharding for sig in request.in_sigs] + [s for s in request.out_shardings if s is not None]
        named_meshes = [_mesh_of(item) for item in (*shardings, *_inner(request.program))]
        mesh_by_axes = {(m.axis_names, m.axis_sizes): m for m in named_meshes if isinstance(m, Mesh)}
        return next(iter(mesh_by_axes.values())) if len(mesh_by_axes) == 1 else None

    @cached_property
    def fixed(self) -> str:
        """Why the program's layouts cannot be replaced; '' if they can."""
        program = self.executable.request.program
        if self.mesh is None:
            return "it runs on one device, or over several meshes"
        if any(v.aval.mesh is not None for v in program.inputs) or _names_types(program):
            return "its types name the mesh (explicit axes or shard_map)"
        return ""

    @cached_property
    def sizes(self) -> Sizes:
        """The program's own mesh."""
        return () if self.mesh is None else tuple(self.mesh.shape.items())

    @cached_property
    def constrained(self) -> bool:
        """Whether the program constrains values inside."""
        return any(isinstance(item, NamedSharding) for item in _inner(self.executable.request.program))

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """The arguments; those that lie alike because they belong together are one."""
        return arguments_of(self.executable)

    # -- layouts -----------------------------------------------------------------------------------------------------------------

    def plan(self, layout: StepLayout) -> Plan:
        """The plan of a layout.

        Raises:
            ValueError: the layout's axes do not divide an argument, or the program does not compile for it.
        """
        return self.plan_compiled(layout, self.compile_layout(layout))

    def plan_compiled(self, layout: StepLayout, executable: DataFree) -> Plan:
        """The plan of a layout that is compiled already."""
        machine = self.machine_of(layout)
        return make_plan(device_program_of(executable, for_chip(machine.chip)), machine)

    def machine_of(self, layout: StepLayout) -> Machine:
        """The machine that a layout is for."""
        return self._other(layout.machine)[0] if layout.machine else self.machine

    def _other(self, name: str) -> tuple[Machine, Sequence[Device]]:
        if name not in self._others:
            machine = find(name)
            self._others[name] = machine, client_of(machine).devices()
        return self._others[name]

    def compile_layout(self, layout: StepLayout) -> DataFree:
        """The program in that layout."""
        return self._compile_with(layout, self.pins_of(layout) if layout.keep_batch else ())

    def pins_of(self, layout: StepLayout, compiled: DataFree | None = None) -> tuple[Pin, ...]:
        """The constraints by which a layout keeps its batch; none where no value loses it. `compiled`: the program without them."""
        layout = replace(layout, keep_batch=False)
        if layout not in self._pins:
            compiled = compiled or self._compile_with(layout, ())
            call = self.compile_variant(layout.remat, layout.batch).user_call
            assert call is not None
            dims = {leaf: a.batch_dim for a in self.arguments if a.batch_dim is not None for leaf in a.leaves}
            batch = {i: dims[leaf] for i, leaf in enumerate(call.leaves) if leaf in dims}
            mesh = None if self.fixed else self._mesh_of_sizes(layout.mesh, layout.machine)
            self._pins[layout] = () if mesh is None else lost_batches(compiled, batch, mesh)
        return self._pins[layout]

    def _compile_with(self, layout: StepLayout, pins: Sequence[Pin]) -> DataFree:
        trace = self.compile_variant(layout.remat, layout.batch)
        if layout.mesh == self.sizes and not layout.dims and not layout.machine and not pins:
            return trace
        if self.fixed:
            raise ValueError(f"the layouts of {self.executable.name} cannot be replaced: {self.fixed}")
        mesh = self._mesh_of_sizes(layout.mesh, layout.machine)
        new = dict(layout.dims)
        by_leaf = {leaf: new[i] for i, a in enumerate(self.arguments) if i in new for leaf in a.leaves}
        request, call = trace.request, trace.user_call
        assert call is not None
        sigs = tuple(
            _place_argument(sig, mesh, by_leaf.get(leaf), name)
            for sig, leaf, name in zip(request.in_sigs, call.leaves, trace.names, strict=True)
        )
        pairs = follow(trace)
        outs = tuple(
            None if s is None else _sharding_over(s, mesh, by_leaf.get(call.leaves[pairs[i]]) if i in pairs else None)
            for i, s in enumerate(request.out_shardings)
        )
        default = None if request.default_mesh is None else mesh
        program = self._program_over(mesh, layout, request.program)
        return cast(
            DataFree,
            compile_program(
                with_pins(program, pins, mesh) if pins else program,
                sigs,
                outs,
                names=trace.names,
                default_mesh=default,
                legacy=request.legacy,
                owned=lambda *_: trace.owned,
            ),
        )

    def compile_variant(self, remat: str, batch: Fraction) -> DataFree:
        """The program with that policy and batch, in its own layout."""
        known_trace = self._traces.get((remat, batch))
        if known_trace is not None:
            return known_trace
        while len(self._traces) >= TRACES:  # the first is the program's own
            del self._traces[list(self._traces)[1]]
        call = self.executable.user_call
        assert call is not None
        args, kwargs = self._with_batch(batch)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with self._with_policy(self.policies[remat]) if remat else nullcontext():
                least = self._least if (remat, batch) == (_LEAST, 1) else None
                known_trace = (least or call.wrapped.trace(*args, **kwargs)).lower()._entry.executable
        assert isinstance(known_trace, DataFree)
        self._traces[remat, batch] = known_trace
        return known_trace

    @cached_property
    def traces(self) -> tuple[str, bool]:
        """Why the function cannot be traced again ('' if it can), and whether it checkpoints functions, so that policies matter.

        Wrappers of other libraries may be callable in their own calls only.
        """
        call = self.executable.user_call
        assert call is not None
        try:
            with every_policy(POLICIES[_LEAST]) as policy:
                trace = call.wrapped.trace(*call.args, **call.kwargs)
        except Exception as error:  # it is the user's
            return f"the function cannot be traced again ({reason(error)})", False
        if policy.used and self.policies[_LEAST] is POLICIES[_LEAST]:
            self._least = trace
        return "", policy.used

    @cached_property
    def bodies(self) -> tuple[tuple[str, int], ...]:
        """The lines of the scans whose functions policies are tried on: none where the program checkpoints functions itself."""
        cannot, checkpoints = self.traces
        if cannot or checkpoints:
            return ()
        call = self.executable.user_call
        assert call is not None
        try:
            with warnings.catch_warnings(), checkpointed_bodies(POLICIES[_LEAST]) as lines:
                warnings.simplefilter("ignore")
                call.wrapped.trace(*call.args, **call.kwargs)
        except Exception:  # it is the user's, who wrote these functions to run as they are
            return ()
        return tuple(lines)

    def _with_policy(self, policy: Callable[..., Any]) -> AbstractContextManager[object]:
        """A context in which checkpointed functions take this policy; if there are none, the functions of scans are checkpointed."""
        return checkpointed_bodies(policy) if self.bodies else every_policy(policy)

    def _with_batch(self, batch: Fraction) -> tuple[tuple[Any, ...], dict[str, Any]]:
        call = self.executable.user_call
        assert call is not None
        if batch == 1:
            return call.args, dict(call.kwargs)
        leaves, tree = self.flat_arguments()
        for a in self.arguments:
            for leaf in a.leaves if a.batch_dim is not None else ():
                leaves[leaf] = _scale_dim(leaves[leaf], a.batch_dim or 0, batch, a.names[0])
        dynamic, keywords = tree_unflatten(tree, leaves)
        args = list(call.args)
        for i, arg in zip(self._dynamic, dynamic, strict=True):
            args[i] = arg
        return tuple(args), {**call.kwargs, **keywords}

    def flat_arguments(self) -> tuple[list[Any], Any]:
        """The leaves of the call's arguments without the static ones, and their tree: (args, kwargs)."""
        call = self.executable.user_call
        assert call is not None
        static = call.wrapped._options.args.static_names
        keywords = {k: v for k, v in call.kwargs.items() if k not in static}
        leaves, tree = tree_flatten((tuple(call.args[i] for i in self._dynamic), keywords))
        return leaves, tree

    @property
    def _dynamic(self) -> list[int]:
        """The positions of the arguments that are not static."""
        call = self.executable.user_call
        assert call is not None
        static = from_beginning(call.wrapped._options.args.static_nums, len(call.args))
        return [i for i in range(len(call.args)) if i not in static]

    def dims_of_tree(self, tree: Any) -> tuple[tuple[int, DimAxes], ...]:
        """The layouts that a tree of PartitionSpecs gives: one like the arguments, or a prefix of it. None: as written.

        Raises:
            ValueError: the tree does not fit the arguments, or a spec names an axis that the mesh does not have.
        """
        leaves, structure = self.flat_arguments()
        whole = tree_unflatten(structure, leaves)[0]
        specs = broadcast_prefix(tree, whole, is_leaf=lambda x: x is None or isinstance(x, PartitionSpec))
        dims_by_leaf: dict[int, DimAxes] = {}
        number = {leaf: i for i, a in enumerate(self.arguments) for leaf in a.leaves}
        for leaf, spec in enumerate(specs):
            if spec is None or leaf not in number:
                continue
            a = self.arguments[number[leaf]]
            if not isinstance(spec, PartitionSpec) or len(spec) > len(a.shape):
                raise ValueError(f"specs: {spec} is no PartitionSpec of {a.names[0]}, which has {len(a.shape)} dims.")
            if PartitionSpec.UNCONSTRAINED in spec.partitions:
                raise ValueError(f"specs: {spec} leaves a dim of {a.names[0]} open; give axes or None for each dim.")
            entries = [entry_axes(e) for e in spec.partitions]
            unknown = {x for axes in entries for x in axes} - {name for name, _ in self.sizes}
            if unknown:
                raise ValueError(f"specs: {spec} names the axes {sorted(unknown)}; the mesh has {dict(self.sizes)}.")
            dims_by_leaf[number[leaf]] = (*entries, *((),) * (len(a.shape) - len(entries)))
        return tuple(sorted(dims_by_leaf.items()))

    def _mesh_of_sizes(self, sizes: Sizes, machine: str) -> Mesh:
        own = self.mesh
        assert own is not None
        if sizes == self.sizes and not machine:
            return own
        if (sizes, machine) not in self._meshes:
            count = math.prod(n for _, n in sizes)
            devices = self._other(machine)[1] if machine else own.devices.flat[0].client.devices()
            if len(devices) < count:
                raise ValueError(f"the mesh {dict(sizes)} has {count} devices, more than the machine's {len(devices)}")
            cut = np.array(list(devices[:count]), object).reshape([n for _, n in sizes])
            self._meshes[sizes, machine] = Mesh(cut, [name for name, _ in sizes], own.axis_types)
        return self._meshes[sizes, machine]

    def _program_over(self, mesh: Mesh, layout: StepLayout, program: Program) -> Program:
        """The traced program with its constraints over `mesh`; those of the batch dim follow the batch."""
        new = dict(layout.dims)
        moves = [
            (a.shape[a.batch_dim] * layout.batch, a.dims[a.batch_dim], new[i][a.batch_dim])
            for i, a in enumerate(self.arguments)
            if a.batch_dim is not None and i in new and a.dims[a.batch_dim] != new[i][a.batch_dim]
        ]
        if mesh is self.mesh and not moves:
            return program

        def over(program: Program) -> Program:
            return map_equations(program, replace_params)

        def replace_params(eqn: Equation) -> Equation:
            params = {k: _pin_to_mesh(v, eqn, mesh, moves) for k, v in eqn.params.items()}
            if any(params[k] is not eqn.params[k] for k in params):
                eqn = Equation(eqn.op, eqn.inputs, eqn.outputs, params, eqn.source)
            return map_programs(eqn, over)

        key = id(program), mesh, tuple(moves)
        if key not in self._programs:
            if len(self._programs) >= TRACES:
                self._programs.clear()
            self._programs[key] = over(program)
        return self._programs[key]


def reason(error: Exception) -> str:
    """An error's message, in one short line."""
    kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
    text = _SPACES.sub(" ", f"{kind}{error}")
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _mesh_of(item: Any) -> Any:
    return item if isinstance(item, Mesh) else getattr(item, "mesh", None)


def _inner(program: Program) -> Sequence[Any]:
    """The shardings and meshes that equations name."""
    shardings: list[Any] = []
    for eqn in program.equations:
        shardings += [v for v in eqn.params.values() if isinstance(v, (Sharding, Mesh))]
        for _, inner in subprograms(eqn.params):
            shardings += _inner(inner)
    return shardings


def _names_types(program: Program) -> bool:
    """Whether equations compute for a mesh of fixed sizes: those of a shard_map, and those whose types name it."""
    return any(
        any(isinstance(v, (Mesh, AbstractMesh)) for v in eqn.params.values())
        or any(v.aval.mesh is not None for v in eqn.outputs)
        or any(_names_types(inner) for _, inner in subprograms(eqn.params))
        for eqn in program.equations
    )


def _scale_dim(leaf: Any, dim: int, batch: Fraction, name: str) -> Any:
    """A type with a dim so many times as long."""
    size = leaf.shape[dim] * batch
    if size.denominator != 1:
        raise ValueError(f"{batch} times {leaf.shape[dim]}, the length of {name}, is no whole number")
    shape = (*leaf.shape[:dim], int(size), *leaf.shape[dim + 1 :])
    sharding = getattr(leaf, "sharding", None)
    if isinstance(sharding, NamedSharding):
        _check_divides(shape, sharding, name)
    return ShapeDtypeStruct(shape, leaf.dtype, sharding=sharding, weak_type=leaf.weak_type)


def _check_divides(shape: tuple[int, ...], sharding: NamedSharding, name: str) -> None:
    for d, (n, axes) in enumerate(zip(shape, spec_axes(sharding, len(shape))[0], strict=True)):
        if n % math.prod(sharding.mesh.shape[a] for a in axes):
            raise ValueError(f"dim {d} of {name}, {n} long, is not divided by the axes {', '.join(axes)}")


def spec_of(dims: DimAxes) -> PartitionSpec:
    """Per dim its axes, as a PartitionSpec."""
    entries = [_entry(axes) for axes in dims]
    while entries and entries[-1] is None:
        entries.pop()
    return PartitionSpec(*entries)


def _entry(axes: tuple[str, ...]) -> str | tuple[str, ...] | None:
    return axes if len(axes) > 1 else axes[0] if axes else None


def _sharding_over(sharding: Sharding, mesh: Mesh, dims: DimAxes | None) -> Sharding:
    """A sharding over `mesh`, with other dims if they are given."""
    return _mesh_sharding(sharding, mesh, dims) if isinstance(sharding, NamedSharding) else sharding


def _mesh_sharding(sharding: NamedSharding, mesh: Mesh, dims: DimAxes | None) -> NamedSharding:
    spec = sharding.spec if dims is None else spec_of(dims)
    return NamedSharding(mesh, spec, memory_kind=sharding.memory_kind)


def _place_argument(sig: Signature, mesh: Mesh, dims: DimAxes | None, name: str) -> Signature:
    """The signature of an argument over `mesh`. ValueError where the axes do not divide it."""
    sharding = sig.sharding
    if isinstance(sharding, NamedSharding):
        new_sharding = _mesh_sharding(sharding, mesh, dims)
    elif dims is not None:
        new_sharding = NamedSharding(mesh, spec_of(dims))
    elif sig.committed:
        raise ValueError(f"{name} is placed on {len(sig.devices)} devices by no mesh")
    else:
        return sig
    _check_divides(sig.aval.shape, new_sharding, name)
    aval = array_type(sig.aval.shape, sig.aval.dtype, sig.aval.weak_type, new_sharding)
    return signature(aval, new_sharding, sig.committed or dims is not None)


def _pin_to_mesh(
    value: Any, eqn: Equation, mesh: Mesh, moves: Sequence[tuple[Fraction, tuple[str, ...], tuple[str, ...]]]
) -> Any:
    """A param over `mesh`. A constraint that splits the batch as the batch was split splits it as it is split now."""
    if not isinstance(value, NamedSharding):
        return value
    spec = list(value.spec.partitions)
    shape = eqn.inputs[0].aval.shape
    for d, (entry, n) in enumerate(zip(spec, shape, strict=False)):
        axes = entry_axes(entry)
        for size, before, after in moves:
            if axes and axes == before and (n == size or (d == 0 and size % n == 0)):
                rest = {a for i, e in enumerate(spec) if i != d for a in entry_axes(e)}
                spec[d] = _entry(tuple(a for a in after if a not in rest))
    return NamedSharding(mesh, value.spec.update(partitions=tuple(spec)), memory_kind=value.memory_kind)
