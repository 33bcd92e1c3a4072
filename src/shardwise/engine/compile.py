"""Compiling: a global Program and its arguments' signatures become an `Executable`.

    inline -> the passes of `passes.pipeline` -> Plan

Comes in: the program, one `Signature` per input, a sharding or None per output. Goes out: an `Executable`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

from shardwise.base import config
from shardwise.base.collector import pause_collector
from shardwise.base.shapes import DimAxes
from shardwise.engine.data_free import DataFree, Request
from shardwise.engine.executable import Call, Executable, look_ahead
from shardwise.engine.guards import watch_keys
from shardwise.engine.placement import derive_sharding, incompatible_devices, on_mesh
from shardwise.engine.planned import recorder, tell_of_parent
from shardwise.engine.signature import Signature, array_type, signature
from shardwise.ir import Branches, Equation, Program, ShapedArray, Var, region_of, subprograms, verify
from shardwise.ops.devices.layout import spec_axes
from shardwise.passes import (
    DEVICE_PROGRAM,
    PARTITIONING,
    PLACING,
    Context,
    Grid,
    MeshKey,
    Module,
    Transfer,
    device_work,
    finer_mesh,
    inline_calls,
    make_grid,
    run_passes,
    transfer_cost,
    transfers_of,
)
from shardwise.passes.propagate import Placement
from shardwise.sharding import Device, Mesh, PmapSharding, Sharding, SingleDeviceSharding, get_concrete_mesh
from shardwise.sharding.backend import default_device
from shardwise.sharding.derive import is_abstract

OwnershipRule = Callable[[Sequence[tuple[int, ...]], Sequence[Signature], bool], Sequence[int]]


@pause_collector
def compile_program(
    program: Program,
    in_sigs: Sequence[Signature],
    out_shardings: Sequence[Sharding | None],
    *,
    names: Sequence[str] = (),
    default_mesh: Mesh | None = None,
    legacy: bool = False,
    captured: int = 0,
    owned: OwnershipRule | None = None,
    jitted: bool = False,
    runs: bool = True,
) -> Executable:
    """Compile `program` for arguments of these signatures.

    `out_shardings` fixes the layout of results (None: propagation decides). `names` are the arguments' names for errors.
    `default_mesh` is the mesh of a program that names no devices; if `legacy`, a program that names other devices is refused.
    `captured`: how many of the first arguments are arrays that the function closes over.
    `owned` returns the arguments that the program may delete, given the shapes of their shards, the results' signatures and whether
    there are several devices.
    `jitted`: whether the user asked for this program. In a planned run the program is only partitioned, and its call returns
    arrays without data. `runs`: whether it is to be finished at once, and not when it is first called.
    """
    seconds: dict[str, float] = {}
    start = time.perf_counter()
    traced_program = _verify_if_enabled(program, after="trace")
    program = _verify_if_enabled(
        inline_calls(program), "inline", traced_program
    )  # first: called functions name devices, too
    inner_shardings = list(_inner_shardings(program, set()))
    inner = [s for s, _ in inner_shardings if not is_abstract(s)]
    given, in_sigs = in_sigs, [_as_data(s) for s in in_sigs]
    devices, is_committed = _devices(program.name, in_sigs, names, out_shardings, inner, default_mesh, legacy)
    without_data = recorder() is not None or devices[0].client.stands_for_all
    if jitted and not without_data:
        tell_of_parent()
    if runs and not without_data:
        look_ahead(program)  # loads libraries while the passes run
    meshes = _meshes(program, devices, in_sigs, out_shardings, inner_shardings, default_mesh)
    seconds["inline"] = time.perf_counter() - start
    inlined_program = program
    module, context = _partition_on_grid(program, in_sigs, out_shardings, devices, meshes, without_data, seconds)
    if config.shardwise_on_reshard == "raise":
        _refuse_reshards(program.name, transfers_of(module.device_program, context.grid.axis_sizes))
    named_shardings = [s for s in out_shardings if s is not None] + inner
    mesh = default_mesh or get_concrete_mesh()
    shardings = _result_shardings(module, context, in_sigs, out_shardings, named_shardings, mesh, captured)
    out_sigs = [
        _result_signature(v.aval, sharding, is_committed, context.grid, varies)
        for v, sharding, varies in zip(module.global_program.outputs, shardings, module.out_varies(), strict=True)
    ]
    shards = [v.aval.shape for v in module.program.inputs]
    mine = () if owned is None else owned(shards, out_sigs, any(context.grid.mesh))
    if without_data:
        request = Request(inlined_program, tuple(given), tuple(out_shardings), default_mesh, legacy)
        return cast(Executable, DataFree(given, module, context, out_sigs, seconds, mine, names, jitted, request))

    def observe(executable: Executable) -> Call:
        if config.jax_debug_key_reuse:
            executable.call = watch_keys(executable.call, traced_program)
        return _observers[-1](executable, names) if _observers and jitted else executable.call

    new_executable = Executable(given, module, context, out_sigs, seconds, mine, names, observe)
    if runs:
        new_executable.finish()
    return new_executable


def _result_signature(
    aval: ShapedArray, sharding: Sharding, is_committed: bool, grid: Grid, varies: frozenset[str]
) -> Signature:
    """The signature of a result whose copies may differ along the grid axes `varies`."""
    places = grid.places_of(sharding.tiling(aval.ndim), varies) if varies else ()
    own_type = array_type(aval.shape, aval.dtype, aval.weak_type, sharding)
    return signature(own_type, sharding, is_committed, varies=places)


# From a program that the user compiled and its arguments' names to the replacement of its `call`.
Observer = Callable[[Executable, Sequence[str]], Call]
_observers: list[Observer] = []


@contextmanager
def observe_programs(observer: Observer) -> Generator[None]:
    """Let `observer` see the programs that the user compiles inside this context, and their calls."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def _lay_out_program(
    program: Program,
    in_sigs: Sequence[Signature],
    out_shardings: Sequence[Sharding | None],
    grid: Grid,
    seconds: dict[str, float],
) -> tuple[Module, Context]:
    """An inlined program with the layouts that its values get on this grid."""
    fixed_layouts = [
        None if s is None else Placement(_fixed_dims(grid, s, v.aval), spec_axes(s, v.aval.ndim)[1])
        for s, v in zip(out_shardings, program.outputs, strict=True)
    ]
    free = [i >= program.num_consts and not sig.committed for i, sig in enumerate(in_sigs)]
    context = Context(grid, tuple(free), tuple(fixed_layouts))
    module = Module(
        program,
        program,
        program,
        tuple([_in_dims(grid, sig) for sig in in_sigs]),
        in_varies=tuple([grid.axes_at(s.tiling, s.varies) for s in in_sigs]) if any(s.varies for s in in_sigs) else (),
    )
    return run_passes(PLACING, module, context, seconds), context


def _partition_on_grid(
    program: Program,
    in_sigs: Sequence[Signature],
    out_shardings: Sequence[Sharding | None],
    devices: tuple[Device, ...],
    meshes: Sequence[MeshKey],
    without_data: bool,
    seconds: dict[str, float],
) -> tuple[Module, Context]:
    """An inlined program with explicit collectives, on the grid of its meshes, or on a finer one where that moves and computes less."""
    passes = (DEVICE_PROGRAM if without_data else PARTITIONING)[len(PLACING) :]
    module, context = _lay_out_program(program, in_sigs, out_shardings, make_grid(devices, meshes), seconds)
    finer = finer_mesh(module.program, module.layouts, context.grid)
    module = run_passes(passes, module, context, seconds)
    fine = None if finer is None else make_grid(devices, [*meshes, finer])
    if fine is None or fine.kept_whole != context.grid.kept_whole:  # the processes form no grid on the finer one
        return module, context
    other, cut = _lay_out_program(program, in_sigs, out_shardings, fine, seconds)
    other = run_passes(passes, other, cut, seconds)
    cost, cut_cost = (
        transfer_cost(m.device_program, c.grid) + device_work(m.device_program)
        for m, c in ((module, context), (other, cut))
    )
    return (other, cut) if cut_cost < cost else (module, context)


def _result_shardings(
    module: Module,
    context: Context,
    in_sigs: Sequence[Signature],
    out_shardings: Sequence[Sharding | None],
    named: Sequence[Sharding | Mesh],
    mesh: Mesh,
    captured: int,
) -> Iterator[Sharding]:
    """The sharding of each result: the one asked for, or one that has the layout that propagation chose."""
    grid, program = context.grid, module.global_program
    first_sigs = [*in_sigs[captured:], *in_sigs[:captured]]
    own_meshes = [getattr(sig.sharding, "mesh", None) for sig in in_sigs]
    sources = _source_meshes(program, own_meshes, named, grid.devices)
    own: dict[Any, tuple[Signature]] = {  # an argument returned unchanged keeps its mesh
        v: (sig,) for v, sig, its in zip(program.inputs, in_sigs, own_meshes, strict=True) if its is not own_meshes[0]
    }
    for atom, dims, wanted_sharding, spec in zip(
        program.outputs, module.out_dims, out_shardings, context.results, strict=True
    ):
        if wanted_sharding is not None and not (spec and any(spec.open)):
            yield wanted_sharding
        elif not any(grid.mesh):
            yield _one_device(grid.devices[0], in_sigs, atom.aval)
        else:
            source = sources.get(atom)
            source_sharding = None if source is None or atom.aval.mesh is not None else on_mesh(source, grid, dims)
            yield source_sharding or derive_sharding(
                grid, dims, atom.aval, [*own.get(atom, ()), *first_sigs], named, mesh
            )


def _source_meshes(
    program: Program, in_meshes: Sequence[Any], named: Sequence[Sharding | Mesh], devices: tuple[Device, ...]
) -> dict[Any, Mesh]:
    """For values that follow from equations that all name one mesh: that mesh, which results wear.

    Values to which arguments on other meshes contribute are left out, and so is everything where no other mesh is named.
    """
    meshes = {n if isinstance(n, Mesh) else getattr(n, "mesh", None) for n in named}
    if not any(isinstance(m, Mesh) and m not in in_meshes for m in meshes):
        return {}
    meshes_by_sharding: dict[Any, frozenset[Any]] = {
        v: frozenset((m,)) for v, m in zip(program.inputs, in_meshes, strict=True) if isinstance(m, Mesh)
    }
    for eqn in program.equations:
        inner = [n if isinstance(n, Mesh) else getattr(n, "mesh", None) for n, _ in _equation_shardings(eqn, set())]
        own = frozenset([m for m in inner if isinstance(m, Mesh) and m.device_list == devices])
        if not own or isinstance(region_of(eqn), Branches):
            own = own.union(*[meshes_by_sharding.get(a, frozenset()) for a in eqn.inputs if isinstance(a, Var)])
        meshes_by_sharding.update(dict.fromkeys(eqn.outputs, own))
    return {v: m for v, ms in meshes_by_sharding.items() if len(ms) == 1 for m in ms if m not in in_meshes}


def _verify_if_enabled(program: Program, after: str, before: Program | None = None) -> Program:
    return verify(program, after, before) if config.jax_enable_checks else program


def _as_data(sig: Signature) -> Signature:
    """Other programs take a result of pmap as plain data: whole and uncommitted."""
    if not isinstance(sig.sharding, PmapSharding):
        return sig
    return signature(sig.aval, SingleDeviceSharding(default_device()), False)


def _in_dims(grid: Grid, sig: Signature) -> DimAxes:
    if sig.tiling is None or (sig.devices is not grid.devices and sig.devices != grid.devices):
        return ((),) * sig.aval.ndim
    return grid.dims_of(sig.tiling)


def _fixed_dims(grid: Grid, sharding: Sharding, aval: ShapedArray) -> DimAxes:
    tiling = sharding.tiling(aval.ndim)
    return ((),) * aval.ndim if tiling is None else grid.dims_of(tiling)


def _inner_shardings(program: Program, seen: set[tuple[int, int]]) -> Iterator[tuple[Sharding | Mesh, int]]:
    """The shardings that equations name, each with the rank of the operand: constraints, reshards, the meshes of shard_maps.

    Params in `seen` (their ids, with that rank) are left out: repeated layers share theirs.
    """
    for eqn in program.equations:
        if eqn.params:
            yield from _equation_shardings(eqn, seen)


def _equation_shardings(eqn: Equation, seen: set[tuple[int, int]]) -> Iterator[tuple[Sharding | Mesh, int]]:
    ndim = eqn.inputs[0].aval.ndim if eqn.inputs else 0
    key = id(eqn.params), ndim
    if key in seen:
        return
    seen.add(key)
    for value in eqn.params.values():
        if isinstance(value, (Sharding, Mesh)):
            yield value, ndim
    for _, sub in subprograms(eqn.params):
        yield from _inner_shardings(sub, seen)


def _mesh_of(item: Sharding | Mesh, ndim: int) -> Iterable[MeshKey]:
    """The mesh of `item`, or the grid by which it tiles values of `ndim` dims; none if its parts form no grid."""
    mesh = item if isinstance(item, Mesh) else getattr(item, "mesh", None)
    if mesh is not None:
        yield mesh.axis_names, mesh.axis_sizes
    elif isinstance(item, Sharding) and (tiling := item.tiling(ndim)) is not None:
        yield tiling.axis_names, tiling.mesh_shape


def _devices(
    name: str,
    in_sigs: Sequence[Signature],
    names: Sequence[str],
    outs: Sequence[Sharding | None],
    inner: Sequence[Sharding | Mesh],
    default_mesh: Mesh | None,
    legacy: bool,
) -> tuple[tuple[Device, ...], bool]:
    """The one ordered device list of the computation, and whether any argument commits it; raises if two disagree."""
    device_list: tuple[Device, ...] | None = None
    subject = ""
    name_list = list(names) or [""] * len(in_sigs)

    def meet(devices: tuple[Device, ...], what: str) -> None:
        nonlocal device_list, subject
        if device_list is None:
            device_list, subject = devices, what
        elif (
            device_list is not devices and device_list != devices
        ):  # mostly one tuple: comparing thousands of devices takes long
            raise incompatible_devices(name, subject, device_list, what, devices)

    for i, sig in enumerate(in_sigs):
        if sig.committed:
            label = name_list[i] or f"number {i}"
            shape = f"{sig.aval.dtype.name}[{','.join(map(str, sig.aval.shape))}]"
            meet(sig.devices, f"argument {label} of {name} with shape {shape}")
    for s in outs:
        if s is not None:
            meet(s.device_list, "explicit output sharding")
    for item in inner:
        meet(item.device_list, "shard_map inside jit" if isinstance(item, Mesh) else "sharding_constraint inside jit")
    context = default_mesh if default_mesh is not None and legacy else get_concrete_mesh()
    if not context.empty:
        meet(context.device_list, "jit's context mesh")
    if device_list is None and default_mesh is not None:
        return default_mesh.device_list, True
    if device_list is None:
        return (default_device(),), False
    return device_list, True


def _meshes(
    program: Program,
    devices: tuple[Device, ...],
    in_sigs: Sequence[Signature],
    outs: Sequence[Sharding | None],
    inner: Sequence[tuple[Sharding | Mesh, int]],
    default_mesh: Mesh | None,
) -> list[MeshKey]:
    """All meshes of the computation, the arguments' first."""
    keys: list[MeshKey] = []
    for sig in in_sigs:
        if sig.tiling is not None and (sig.devices is devices or sig.devices == devices):
            keys.append((sig.tiling.axis_names, sig.tiling.mesh_shape))
    for s, atom in zip(outs, program.outputs, strict=True):
        if s is not None:
            keys += _mesh_of(s, atom.aval.ndim)
    for item, ndim in inner:
        keys += _mesh_of(item, ndim)
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
