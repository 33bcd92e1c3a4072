"""Compiling: a global Program and its arguments' signatures become an `Executable`.

    inline -> the passes of `passes.pipeline` -> Plan

Comes in: the program, one `Signature` per input, a sharding or None per output. Goes out: an Executable whose `call`
takes and returns Arrays. It keeps the device program, from which `explain` gets the transfers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import numpy as np

from shardwise.base import config
from shardwise.base.collector import uncollected
from shardwise.base.events import COMPILED, record_event_duration_secs
from shardwise.engine.array import ArrayImpl, nothing
from shardwise.engine.data_free import DataFree, Request
from shardwise.engine.guards import refusing, watching_keys
from shardwise.engine.placement import derive_sharding, incompatible_devices
from shardwise.engine.planned import recorder
from shardwise.engine.signature import Signature, array_type, signature
from shardwise.ir import Literal, Program, ShapedArray, subprograms, verify
from shardwise.ir.digest import encoded
from shardwise.ops.devices.layout import spec_axes
from shardwise.passes import (
    DEVICE_PROGRAM,
    PARTITIONING,
    Context,
    DimAxes,
    Grid,
    MeshKey,
    Module,
    PartForm,
    Transfer,
    inline_calls,
    make_grid,
    run_passes,
    scheduled,
    transfers_of,
)
from shardwise.passes.propagate import Placement
from shardwise.runtime.blocks import BlockForm, Ndarray
from shardwise.runtime.plan import Plan
from shardwise.runtime.processes import FEW, MASK, Announced, history
from shardwise.runtime.stepped import SteppedPlan
from shardwise.sharding import (
    Device,
    Mesh,
    NamedSharding,
    PmapSharding,
    Sharding,
    SingleDeviceSharding,
    get_concrete_mesh,
)
from shardwise.sharding.device import default_device
from shardwise.sharding.ownership import takes_part

new_array = ArrayImpl.__new__
F = TypeVar("F", bound=Callable[..., Any])
Owned = Callable[[Sequence[Signature], bool], Sequence[int]]


class Executable:
    """A program compiled for arguments of given signatures."""

    __slots__ = ("_announced", "_forms", "_transfers", "_written", "call", "device_program", "folded_program", "grid", "in_dims",
                 "in_sigs", "kept", "name", "out_dims", "out_sigs", "owned", "placements", "plan", "program", "seconds")  # fmt: skip

    def __init__(
        self,
        in_sigs: Sequence[Signature],
        module: Module,
        context: Context,
        out_sigs: Sequence[Signature],
        seconds: dict[str, float],
        owned: Sequence[int] = (),
        names: Sequence[str] = (),
    ) -> None:
        """Schedule `module`, which is partitioned. `owned`: arguments that a call deletes, and whose buffers results may take; a call
        that raises keeps them, except those whose buffers are already taken. `names`: the arguments' names.
        """
        start, before = time.perf_counter(), sum(seconds.values())
        self.program = program = module.global_program
        self.name = program.name
        self.in_sigs = tuple(in_sigs)
        self.grid = grid = context.grid
        self.in_dims = in_dims = module.in_dims
        self.out_dims = module.out_dims
        self.out_sigs = tuple(out_sigs)
        self.device_program = module.device_program
        self.folded_program = device_program = module.program
        self._transfers: tuple[Transfer, ...] | None = None
        self.seconds = seconds
        self.placements = module.layouts  # of the global program's values, in grid axes; empty on one device
        env = context.env
        self.owned = tuple(owned)
        checks = config.jax_debug_nans or config.jax_debug_infs
        forms: list[BlockForm | PartForm] = []
        for sig, dims in zip(in_sigs, in_dims, strict=True):
            forms.append(grid.form(sig.aval.shape, dims) if sig.spans else grid.whole_form(sig.aval.shape, dims))
        # None: the argument's own block already has the form that the program needs.
        self._forms: list[BlockForm | PartForm | None] = [
            None if f is s.form else f for f, s in zip(forms, in_sigs, strict=True)
        ]
        if config.shardwise_stepped:
            self.plan = SteppedPlan(device_program, env)
        else:
            _look_ahead(device_program)
            device_program = scheduled(module, context, seconds).program
            # An argument keeps its buffer if it is not in the program's form, or if results are checked for NaNs after the run.
            taken = () if grid.processes is not None or checks else [i for i in owned if self._forms[i] is None]
            self.plan = Plan(device_program, env, taken)
        self._announced = None
        if grid.processes is not None:  # all processes run this one program
            hosts = [i for i, sig in enumerate(in_sigs) if not sig.spans]
            self._announced = Announced(
                self.plan, self.folded_program, self.name, names, program.num_consts, hosts, _layouts(out_sigs)
            )
        self._written = self._caller(checks=checks) if takes_part(grid.devices) else None
        self.call = self._written or self._left_out
        self.call = refusing(self.call, self.name, grid.processes is not None)
        if checks:
            self.call = self._checking(self.call, config.jax_debug_nans, config.jax_debug_infs)
        seconds["codegen"] = time.perf_counter() - start - (sum(seconds.values()) - before)

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """The record of communication, computed from the device program on first use."""
        if self._transfers is None:
            self._transfers = transfers_of(self.device_program, self.grid.axis_sizes)
        return self._transfers

    def blocks(self, args: Sequence[ArrayImpl | Literal]) -> list[Ndarray]:
        """The arguments in the block form that the program needs."""
        out = []
        for x, form in zip(args, self._forms, strict=True):
            if type(x) is Literal:
                out.append(x.value if form is None else form.from_dense(x.value))
                continue
            assert isinstance(x, ArrayImpl)
            out.append(x.block if form is None else form.from_dense(x.dense))
        return out

    def _left_out(self, args: Sequence[ArrayImpl | Literal]) -> list[ArrayImpl]:
        """`call` in a process that owns none of the devices: it computes nothing, and returns empty results of the right types."""
        for x in args:
            if isinstance(x, ArrayImpl):
                x._check_alive()
        for i in self.owned:
            x = args[i]
            if isinstance(x, ArrayImpl):
                x.delete()
        return [nothing(sig) for sig in self.out_sigs]

    def _checking(self, call: Any, nans: bool, infs: bool) -> Any:
        """`call`, raising FloatingPointError if a result holds a NaN (debug_nans) or an infinity (debug_infs)."""

        def checked(args: Sequence[ArrayImpl | Literal]) -> list[ArrayImpl]:
            results = call(args)
            for x in results:
                if x.dtype.kind in "fc":
                    for looked, test, what in ((nans, np.isnan, "nan"), (infs, np.isinf, "inf")):
                        if looked and test(x.block).any():
                            raise FloatingPointError(
                                f"invalid value ({what}) encountered in {self.name}: a result of type "
                                f"{x.aval.str_short()} holds it."
                            )
            for i in self.owned:
                x = args[i]
                if isinstance(x, ArrayImpl):
                    x.delete()
            return results

        return checked

    def single(self) -> Any:
        """`call` for a program with one result; it returns that result instead of a list."""
        if self.call is self._written:
            return self._caller(single=True)
        call = self.call
        return lambda args: call(args)[0]

    def _caller(self, single: bool = False, checks: bool = False) -> Any:
        """`call(args) -> list of Arrays`, generated for this program: the dispatch path has no loops. `single`: it returns an Array.
        `checks`: results are checked after the call, which therefore keeps owned arguments.
        """
        names = [f"a{i}" for i in range(len(self.in_sigs))]
        told = self._announced
        meets = told is not None and told.meeting is not None
        constants: dict[str, Any] = {"run": self.plan.run if told is None else told.run}
        constants |= {"new": new_array, "ArrayImpl": ArrayImpl, "Literal": Literal}
        lines = ["def call(args):"]
        if names:
            lines.append(f"    {', '.join(names)}, = args")
        for i, form in enumerate(self._forms):
            if form is None:
                lines += [
                    f"    b{i} = a{i}.value if type(a{i}) is Literal else a{i}._block",
                    f"    if b{i} is None: b{i} = a{i}.block",
                ]
            else:
                constants[f"form{i}"] = form.from_dense
                lines.append(f"    b{i} = form{i}(a{i}.value if type(a{i}) is Literal else a{i}.dense)")
        outs = [f"r{i}" for i in range(len(self.out_sigs))]
        blocks = ", ".join(f"b{i}" for i in range(len(names)))
        if told is not None:
            terms = []
            for i, sig in enumerate(self.in_sigs):
                if sig.spans:
                    terms.append(f"a{i}._origin")
                else:
                    constants[f"seen{i}"] = told.seen(i)
                    terms.append(f"seen{i}(a{i}.value if type(a{i}) is Literal else a{i}.dense)")
            lines += [f"    terms = ({', '.join([str(told.number), *terms])},)", f"    origin = hash(terms) & {MASK}"]
            constants |= {"told": told.told, "notes": history.notes, "shorten": history.shorten}
            lines += ["    notes.append((origin, told))", f"    if len(notes) > {FEW}: shorten()"]
            if meets:
                blocks = ", ".join(["origin, terms", *[f"b{i}" for i in range(len(names))]])
        taken = self.plan.owned if isinstance(self.plan, Plan) else ()
        run_line = f"    {', '.join(outs) + ', = ' if outs else ''}run({'blocks' if taken else blocks})"
        if taken:  # only this list refers to the blocks
            lines += [f"    blocks = [{blocks}]", f"    del {blocks}", "    try:"]
            lines += [f"        if type(a{i}) is not Literal: a{i}.delete()" for i in taken]
            lines += ["    " + run_line, "    except BaseException:"]
            lines += [f"        if type(a{i}) is not Literal: a{i}._block = blocks[{i}]" for i in taken]
            lines.append("        raise")
        else:
            lines.append(run_line)
        if not checks:
            lines += [f"    if type(a{i}) is not Literal: a{i}.delete()" for i in self.owned if i not in taken]
        for i, sig in enumerate(self.out_sigs):
            constants[f"s{i}"] = sig
            lines += [f"    x{i} = new(ArrayImpl)", f"    x{i}._sig = s{i}"]
            form = self.grid.form(sig.aval.shape, self.out_dims[i])
            if form is sig.form:
                lines += [f"    x{i}._block = r{i}", f"    x{i}._dense = x{i}._npy = x{i}._shards = None"]
            else:  # the result's own mesh divides the devices in another way than the grid
                constants[f"dense{i}"] = form.to_dense
                lines += [f"    x{i}._dense = dense{i}(r{i})", f"    x{i}._block = x{i}._npy = x{i}._shards = None"]
            if told is not None:
                lines.append(f"    x{i}._origin = origin + {i}")
        results = ", ".join(f"x{i}" for i in range(len(outs)))
        lines.append(f"    return {results}" if single else f"    return [{results}]")
        exec(compile("\n".join(lines), f"<call of {self.name}>", "exec"), constants)
        return constants["call"]


def _layouts(sigs: Sequence[Signature]) -> str:
    return " ".join([encoded((s.aval, s.sharding, s.committed)).hex() for s in sigs])


@uncollected
def compile_program(
    program: Program,
    in_sigs: Sequence[Signature],
    out_shardings: Sequence[Sharding | None],
    *,
    names: Sequence[str] = (),
    default_mesh: Mesh | None = None,
    legacy: bool = False,
    owned: Owned | None = None,
    jitted: bool = False,
) -> Executable:
    """Compile `program` for arguments of these signatures.

    `out_shardings` fixes the layout of results (None: propagation decides). `names` are the arguments' names for errors.
    `default_mesh` is the mesh of a program that names no devices; if `legacy`, a program that names other devices is refused.
    `owned` returns the arguments that the program may delete, given the results' signatures and whether there are several devices.
    `jitted`: whether the user asked for this program. In a planned run the program is only partitioned, and its call returns
    arrays without data.
    """
    seconds: dict[str, float] = {}
    start = time.perf_counter()
    traced = _verified(program, after="trace")
    program = _verified(inline_calls(program), after="inline")  # first: called functions name devices, too
    inner = [s for s in _inner_shardings(program) if not _is_abstract(s)]
    given, in_sigs = in_sigs, [_as_data(s) for s in in_sigs]
    devices, committed = _devices(program.name, in_sigs, names, out_shardings, inner, default_mesh, legacy)
    grid = make_grid(devices, _meshes(program, devices, in_sigs, out_shardings, default_mesh))
    fixed = [
        None if s is None else Placement(_fixed_dims(grid, s, v.aval), spec_axes(s, v.aval.ndim)[1])
        for s, v in zip(out_shardings, program.outputs, strict=True)
    ]
    free = [i >= program.num_consts and not sig.committed for i, sig in enumerate(in_sigs)]
    context = Context(grid, tuple(free), tuple(fixed))
    seconds["inline"] = time.perf_counter() - start
    inlined = program
    module = Module(program, program, program, tuple([_in_dims(grid, sig) for sig in in_sigs]))
    without_data = recorder() is not None or devices[0].client.stands_for_all
    module = run_passes(DEVICE_PROGRAM if without_data else PARTITIONING, module, context, seconds)
    program = module.global_program
    if config.shardwise_on_reshard == "raise":
        _refuse_reshards(program.name, transfers_of(module.device_program, grid.axis_sizes))

    named = [s for s in out_shardings if s is not None] + inner
    mesh = default_mesh or get_concrete_mesh()
    meshes = [getattr(sig.sharding, "mesh", None) for sig in in_sigs]
    own: dict[Any, tuple[Signature]] = {  # an argument returned unchanged keeps its mesh
        v: (sig,) for v, sig, its in zip(program.inputs, in_sigs, meshes, strict=True) if its is not meshes[0]
    }
    out_sigs = []
    for atom, dims, wanted, spec in zip(program.outputs, module.out_dims, out_shardings, fixed, strict=True):
        if wanted is not None and not (spec and any(spec.open)):
            sharding = wanted
        elif not grid.names:
            sharding = _one_device(grid.devices[0], in_sigs, atom.aval)
        else:
            sharding = derive_sharding(grid, dims, atom.aval, [*own.get(atom, ()), *in_sigs], named, mesh)
        aval = array_type(atom.aval.shape, atom.aval.dtype, atom.aval.weak_type, sharding)
        out_sigs.append(signature(aval, sharding, committed))
    mine = owned(out_sigs, bool(grid.names)) if owned is not None else ()
    if without_data:
        asked = Request(inlined, tuple(given), tuple(out_shardings), default_mesh, legacy)
        return cast(Executable, DataFree(given, module, context, out_sigs, seconds, mine, names, jitted, asked))
    done = Executable(given, module, context, out_sigs, seconds, mine, names)
    if config.jax_debug_key_reuse:
        done.call = watching_keys(done.call, traced)
    record_event_duration_secs(COMPILED, sum(seconds.values()), fun_name=f"jit({program.name})")
    if _observers and jitted:
        done.call = _observers[-1](done, names)
    return done


# From a program that the user compiled and its arguments' names to the replacement of its `call`.
Observer = Callable[[Executable, Sequence[str]], Callable[[Sequence[ArrayImpl | Literal]], list[ArrayImpl]]]
_observers: list[Observer] = []


@contextmanager
def observed(observer: Observer) -> Generator[None]:
    """Let `observer` see the programs that the user compiles inside this context, and their calls."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def _verified(program: Program, after: str) -> Program:
    return verify(program, after) if config.jax_enable_checks else program


def _look_ahead(program: Program) -> None:
    """Let the ops of a program, inner programs included, prepare their kernels (`Op.ahead`)."""
    for eqn in program.equations:
        if eqn.op.ahead is not None:
            eqn.op.ahead(tuple([a.aval for a in eqn.inputs]), eqn.params)
        for _, inner in subprograms(eqn.params):
            _look_ahead(inner)


def _as_data(sig: Signature) -> Signature:
    """Other programs take a result of pmap as plain data: whole and uncommitted."""
    if not isinstance(sig.sharding, PmapSharding):
        return sig
    return signature(sig.aval, SingleDeviceSharding(default_device()), False)


def _in_dims(grid: Grid, sig: Signature) -> DimAxes:
    if sig.tiling is None or sig.devices != grid.devices:
        return ((),) * sig.aval.ndim
    return grid.dims_of(sig.tiling)


def _fixed_dims(grid: Grid, sharding: Sharding, aval: ShapedArray) -> DimAxes:
    tiling = sharding.tiling(aval.ndim)
    return ((),) * aval.ndim if tiling is None else grid.dims_of(tiling)


def _inner_shardings(program: Program) -> Any:
    """The shardings that equations name: constraints, reshards, the meshes of shard_maps."""
    for eqn in program.equations:
        for value in eqn.params.values():
            if isinstance(value, (Sharding, Mesh)):
                yield value
        for _, sub in subprograms(eqn.params):
            yield from _inner_shardings(sub)


def _inner_meshes(program: Program) -> Iterable[MeshKey]:
    """The meshes of those shardings, abstract ones included."""
    for eqn in program.equations:
        for value in eqn.params.values():
            if isinstance(value, (Sharding, Mesh)):
                yield from _mesh_of(value, eqn.inputs[0].aval.ndim if eqn.inputs else 0)
        for _, sub in subprograms(eqn.params):
            yield from _inner_meshes(sub)


def _mesh_of(item: Sharding | Mesh, ndim: int) -> Iterable[MeshKey]:
    """The mesh of `item`, or the grid by which it tiles values of `ndim` dims; none if its parts form no grid."""
    mesh = item if isinstance(item, Mesh) else getattr(item, "mesh", None)
    if mesh is not None:
        yield mesh.axis_names, mesh.axis_sizes
    elif isinstance(item, Sharding) and (tiling := item.tiling(ndim)) is not None:
        yield tiling.axis_names, tiling.mesh_shape


def _is_abstract(sharding: Sharding | Mesh) -> bool:
    return isinstance(sharding, NamedSharding) and not isinstance(sharding.mesh, Mesh)


def _device_tuple(item: Any) -> tuple[Device, ...]:
    return tuple(item.devices.flat) if isinstance(item, Mesh) else item.device_list


def _devices(
    name: str,
    in_sigs: Sequence[Signature],
    names: Sequence[str],
    outs: Sequence[Sharding | None],
    inner: Sequence[Any],
    default_mesh: Mesh | None,
    legacy: bool,
) -> tuple[tuple[Device, ...], bool]:
    """The one ordered device list of the computation, and whether any argument commits it; raises if two disagree."""
    found: tuple[Device, ...] | None = None
    subject = ""
    listed = list(names) or [""] * len(in_sigs)

    def meet(devices: tuple[Device, ...], what: str) -> None:
        nonlocal found, subject
        if found is None:
            found, subject = devices, what
        elif found != devices:
            raise incompatible_devices(name, subject, found, what, devices)

    for i, sig in enumerate(in_sigs):
        if sig.committed:
            label = listed[i] or f"number {i}"
            shape = f"{sig.aval.dtype.name}[{','.join(map(str, sig.aval.shape))}]"
            meet(sig.devices, f"argument {label} of {name} with shape {shape}")
    for s in outs:
        if s is not None:
            meet(s.device_list, "explicit output sharding")
    for item in inner:
        meet(
            _device_tuple(item), "shard_map inside jit" if isinstance(item, Mesh) else "sharding_constraint inside jit"
        )
    mesh = get_concrete_mesh() if default_mesh is None else default_mesh
    if not mesh.empty:
        if found is None:
            return _device_tuple(mesh), True
        if (default_mesh is None or legacy) and found != _device_tuple(mesh) and mesh.size != 1:
            raise incompatible_devices(name, subject, found, "jit's context mesh", _device_tuple(mesh))
    if found is None:
        return (default_device(),), False
    return found, True


def _meshes(
    program: Program,
    devices: tuple[Device, ...],
    in_sigs: Sequence[Signature],
    outs: Sequence[Sharding | None],
    default_mesh: Mesh | None,
) -> list[MeshKey]:
    """All meshes of the computation, the arguments' first."""
    keys: list[MeshKey] = []
    for sig in in_sigs:
        if sig.tiling is not None and sig.devices == devices:
            keys.append((sig.tiling.axis_names, sig.tiling.mesh_shape))
    for s, atom in zip(outs, program.outputs, strict=True):
        if s is not None:
            keys += _mesh_of(s, atom.aval.ndim)
    keys += _inner_meshes(program)
    for mesh in (default_mesh, get_concrete_mesh()):
        if mesh is not None and not mesh.empty and mesh.size == len(devices):
            keys.append((mesh.axis_names, mesh.axis_sizes))
    return keys


def _one_device(device: Device, in_sigs: Sequence[Signature], aval: ShapedArray) -> Sharding:
    """The sharding of a result of this type on one device. ValueError if the type is split over a mesh of several devices."""
    if aval.mesh is not None and any(aval.spec) and aval.mesh.size > 1:
        raise ValueError(
            f"Length of device assignment 1 is not equal to the size of the mesh {aval.mesh.size} of {aval.mesh}, over which a result of "
            f"type {aval.str_short()} is split: nothing says on which devices. Call the function under set_mesh(mesh)."
        )
    for sig in in_sigs:
        if sig.devices == (device,) and (sig.committed or isinstance(sig.sharding, SingleDeviceSharding)):
            return sig.sharding if isinstance(sig.sharding, SingleDeviceSharding) else SingleDeviceSharding(device)
    return SingleDeviceSharding(device)


def _refuse_reshards(name: str, transfers: Sequence[Transfer]) -> None:
    """ValueError if there are collectives that reshard values and that the user did not write."""
    for t in transfers:
        if t.unasked:
            where = f" at {t.source.file}:{t.source.line}" if t.source else ""
            raise ValueError(
                f"{name}: {t.cause}{where} needs an implicit {t.kind} over {t.axes} of {t.value} ({t.bytes} bytes per "
                "device), and shardwise_on_reshard is 'raise'. Reshard the operand yourself, or allow it."
            )
