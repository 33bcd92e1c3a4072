"""The pipeline: all passes, in order, from an inlined program to the program that a Plan runs.

    on_grid -> propagate -> merged_dims -> partition -> hoist -> late_sums -> simplify -> join_reductions
            -> collective_matmul -> fold_reductions -> whole_values        `PARTITIONING`
    device_choices                                                         `CHOOSING`, if devices go different ways
    loop_pieces -> conv_products -> wide_products -> outer_products -> window_pieces -> pad_sums -> scatter_sums -> joined_pads
                -> cut_pieces -> dims_apart -> columns_apart -> element_reads -> masked_sums -> crossing_reductions -> short_rows
                -> schedule -> epilogues -> computed_windows               `FUSING`, if there are large values
    loops_apart -> small                                                   `JOINING`, if there are small parts

Comes in: a `Module`, which is a program with its known layouts, and the `Context` that it is compiled for. A pass returns a new module
and changes neither input. From `partition` on the program is that of a device. The record of communication (`transfers_of`) is made from
the device program that `collective_matmul` returns, in which every collective is an equation; later passes are for devices of one process.
Where these would exchange what their one memory has, `whole_values` adds the program that runs instead of theirs. `FUSING` and `JOINING`
import the loop compiler and decide which equations run together. `run_passes` times each pass, and verifies its result if
`jax_enable_checks` is set.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from functools import partial
from importlib import import_module

from shardwise.base import config
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Axes, DimAxes
from shardwise.ir import Equation, Program, Spread, Var, subprograms, verify
from shardwise.passes import grid_params
from shardwise.passes.fold_reductions import fold_reductions
from shardwise.passes.grid import Grid
from shardwise.passes.hoist import hoist
from shardwise.passes.join_reductions import join_reductions
from shardwise.passes.late_sums import with_late_sums
from shardwise.passes.partition import partition
from shardwise.passes.parts import calls_replaced, devices_part, numpy_calls
from shardwise.passes.propagate import Placement, propagate
from shardwise.passes.simplify import simplify
from shardwise.passes.whole_values import whole_program
from shardwise.runtime import costs
from shardwise.runtime.env import Env


@dataclass(frozen=True, slots=True)
class Context:
    """The target of a compilation: devices and fixed layouts.

    Attributes:
        grid: the devices, and axes that refine all meshes of the program.
        free: per input, whether the compiler may choose its layout.
        results: per result, the layout that the caller fixes, or None.
    """

    grid: Grid
    free: tuple[bool, ...]
    results: tuple[Placement | None, ...]

    @property
    def env(self) -> Env:
        """The grid in the form that kernels use."""
        return Env(self.grid.names, self.grid.sizes, processes=self.grid.processes)

    @property
    def crossing(self) -> frozenset[str]:
        """The axes between whose devices processes talk."""
        owners = self.grid.processes
        return frozenset() if owners is None else frozenset(self.grid.names[a] for a in owners.crossing_axes())

    @property
    def devices(self) -> int:
        """The number of devices."""
        return len(self.grid.devices)


@dataclass(frozen=True, slots=True)
class Module:
    """A program between tracing and execution.

    Attributes:
        program: global until `partition`, per-device after it.
        global_program: the input of `partition`.
        device_program: the per-device program as N separate devices would run it: every collective is an equation.
        in_dims: the layout of each input, in grid axes.
        out_dims: the layout of each result, set by `partition`.
        layouts: the layout of each value of the global program; empty on one device.
        whole_program: the program on whole values that runs instead of `program` where one memory has all parts, if there is one.
        in_varies: the axes that do not split an input and over which its copies differ all the same; () if there are none.
        differs: all axes over which copies of values may differ, set by `partition`.
    """

    program: Program
    global_program: Program
    device_program: Program
    in_dims: tuple[DimAxes, ...]
    out_dims: tuple[DimAxes, ...] = ()
    layouts: Mapping[Var, DimAxes] = field(default_factory=dict)
    whole_program: Program | None = None
    in_varies: tuple[frozenset[str], ...] = ()
    differs: frozenset[str] = frozenset()

    def out_varies(self) -> list[frozenset[str]]:
        """The axes that do not split a result and over which its copies may differ."""
        return [
            self.differs.intersection(atom.aval.vma).difference(*dims) if self.differs else frozenset()
            for atom, dims in zip(self.program.outputs, self.out_dims, strict=True)
        ]


Pass = Callable[[Module, Context], Module]


def run_passes(
    passes: tuple[tuple[str, Pass], ...], module: Module, context: Context, seconds: dict[str, float]
) -> Module:
    """The module after these passes; adds the time of each to `seconds`."""
    for name, rewrite in passes:
        start = time.perf_counter()
        before = module.program
        module = rewrite(module, context)
        seconds[name] = time.perf_counter() - start
        if config.jax_enable_checks:
            verify(module.program, name, before)
    return module


def _on_grid(module: Module, context: Context) -> Module:
    program = grid_params.on_grid(module.program, context.grid)
    return replace(module, program=program, global_program=program)


def _propagate(module: Module, context: Context) -> Module:
    """Choose layouts for all values. An uncommitted argument takes the layout that suits the program."""
    if context.devices == 1:
        return module
    program, grid = module.program, context.grid
    axes = {n: s for n, s in zip(grid.names, grid.sizes, strict=True) if s > 1}
    inputs = [
        None if free else Placement(d, (False,) * len(d)) for d, free in zip(module.in_dims, context.free, strict=True)
    ]
    uneven_whole = program.outputs if config.dialect.jit.uneven_results_whole else ()
    layouts = propagate(program, axes, inputs, context.results, grid=grid, uneven_whole=uneven_whole)
    in_dims = tuple(
        layouts.get(v, d) if free else d
        for v, d, free in zip(program.inputs, module.in_dims, context.free, strict=True)
    )
    return replace(module, in_dims=in_dims, layouts=layouts)


def _merged_dims(module: Module, context: Context) -> Module:
    """Keep dims apart whose merging would gather them, and choose layouts again."""
    if context.devices == 1:
        return module
    from shardwise.passes.merged_dims import with_merged_dims_apart  # start-up time: products

    program = with_merged_dims_apart(module.program, module.layouts)
    if program is module.program:
        return module
    return _propagate(replace(module, program=program, global_program=program), context)


def _partition(module: Module, context: Context) -> Module:
    program, layouts = module.program, module.layouts
    wanted_dims: list[DimAxes | None] = []
    for fixed, atom in zip(context.results, program.outputs, strict=True):
        if fixed is None:
            wanted_dims.append(None)
        else:
            chosen = layouts.get(atom) if any(fixed.open) and isinstance(atom, Var) else None
            wanted_dims.append(fixed.dims if chosen is None else chosen)
    local, out_dims, differs = partition(program, context.grid, layouts, module.in_dims, wanted_dims, module.in_varies)
    return replace(module, program=local, device_program=local, out_dims=out_dims, differs=differs)


def _change_programs(module: Module, change: Callable[[Program], Program]) -> Module:
    """The module with both of its per-device programs changed; mostly they are one."""
    program = change(module.program)
    same = module.program is module.device_program
    return replace(module, program=program, device_program=program if same else change(module.device_program))


def _hoist(module: Module, context: Context) -> Module:
    """Take what stays the same out of loops, unless rings are asked for: these save the memory that a gathered constant takes."""
    if _may_have_rings(context):
        return module
    return _change_programs(module, hoist)


def _may_have_rings(context: Context) -> bool:
    choice = config.shardwise_collective_matmul
    return choice == "on" or (choice == "auto" and bool(context.crossing))


def _simplify(module: Module, context: Context) -> Module:
    return _change_programs(module, lambda program: simplify(program, context.devices))


SumsMap = Callable[[Program, Callable[[Axes], bool]], Program]


def _change_sums(module: Module, context: Context, change: SumsMap) -> Module:
    """Change when sums over devices are taken. The program that runs changes only those over axes along which each process has one
    part: products sum over several parts themselves.
    """
    names, owners = context.grid.names, context.grid.processes
    apart = frozenset() if owners is None else frozenset(names[a] for a in owners.undivided_axes())
    program = change(module.program, apart.issuperset) if apart else module.program
    return replace(module, program=program, device_program=change(module.device_program, lambda axes: True))


def _late_sums(module: Module, context: Context) -> Module:
    return _change_sums(module, context, with_late_sums)


def _join_reductions(module: Module, context: Context) -> Module:
    return _change_sums(module, context, join_reductions)


def _collective_matmul(module: Module, context: Context) -> Module:
    """Rings, unless moves that no one asked for are refused: those of a ring would be such, the scatter that it replaces is none."""
    choice, is_crossing = config.shardwise_collective_matmul, context.crossing
    if config.shardwise_on_reshard == "raise" or not _may_have_rings(context):
        return module
    from shardwise.passes.collective_matmul import collective_matmul, pays_between  # start-up time: products and slices

    change = collective_matmul if choice == "on" else partial(collective_matmul, pays=pays_between(is_crossing))
    return _change_programs(module, change)


def _fold_reductions(module: Module, context: Context) -> Module:
    return replace(module, program=fold_reductions(module.program, context.crossing))


def _whole_values(module: Module, context: Context) -> Module:
    # Each device runs its program, when it is told to, or when devices have copies of their own.
    if config.shardwise_stepped or config.shardwise_whole_values == "off" or module.differs:
        return module
    return replace(module, whole_program=whole_program(module.global_program, module.program, context.grid))


def _later(name: str, function: str, where: Callable[[Equation], bool] | None = None) -> tuple[str, Pass]:
    """A pass over per-device programs, imported when it first runs: it imports the compiler, which many programs never need. `where`: it
    changes only programs with such equations.
    """
    module_name = f"shardwise.passes.{name}"

    def rewrite(module: Module, context: Context) -> Module:
        if where is not None and not _has_equations(module.program, where):
            return module
        change = getattr(import_module(module_name), function)
        return replace(module, program=change(module.program, context.env))

    return name, rewrite


def _has_equations(program: Program, where: Callable[[Equation], bool]) -> bool:
    """Whether there is such an equation, also in inner programs."""
    return any(where(e) or any(_has_equations(p, where) for _, p in subprograms(e.params)) for e in program.equations)


def _holds_programs(eqn: Equation) -> bool:
    return any(True for _ in subprograms(eqn.params))


def _is_product(eqn: Equation) -> bool:
    return eqn.op.contraction is not None


def _is_convolution(eqn: Equation) -> bool:
    return eqn.op.product and eqn.op.halo is not None


def _is_narrow_product(eqn: Equation) -> bool:
    return _is_product(eqn) and any(a.aval.dtype.itemsize < 4 for a in (*eqn.inputs, *eqn.outputs))


def _sums_nothing(eqn: Equation) -> bool:
    return _is_product(eqn) and not any(eqn.params["dimension_numbers"][0])


def _moves_elements(eqn: Equation) -> bool:
    return eqn.op.boxes is not None


def _adds_updates(eqn: Equation) -> bool:
    return eqn.op.updates and bool(eqn.op.additive)


def _is_update(eqn: Equation) -> bool:
    return eqn.op.updates


def _takes_columns(eqn: Equation) -> bool:
    return eqn.op.columns is not None


def _reads_elements(eqn: Equation) -> bool:
    return eqn.op.element_read is not None


def _reduces(eqn: Equation) -> bool:
    return eqn.op.fold is not None


def _is_collective(eqn: Equation) -> bool:
    return eqn.op.collective is not None


def _has_large_values(module: Module, spread: Spread) -> bool:
    """Whether the program computes with a value large enough to deserve its own loop."""
    return _has_values(module.device_program, spread)


def _has_values(program: Program, spread: Spread) -> bool:
    return any(
        spread.elements(a.aval) >= costs.FUSED_FEWEST for e in program.equations for a in (*e.inputs, *e.outputs)
    ) or any(_has_values(p, spread) for e in program.equations for _, p in subprograms(e.params))


def _has_small_parts(module: Module, spread: Spread) -> bool:
    """Whether a part may be worth compiling as a small program: there is a loop or branch, or many equations with small results."""
    if any(map(_holds_programs, module.device_program.equations)):
        return True
    small = [
        e for e in module.program.equations if all(spread.elements(v.aval) <= costs.SMALL_LARGEST for v in e.outputs)
    ]
    return sum(max(calls_replaced(e, spread), numpy_calls(e, spread)) for e in small) >= costs.SMALL_FEWEST


PARTITIONING: tuple[tuple[str, Pass], ...] = (
    ("on_grid", _on_grid),
    ("propagate", _propagate),
    ("merged_dims", _merged_dims),
    ("partition", _partition),
    ("hoist", _hoist),
    ("late_sums", _late_sums),
    ("simplify", _simplify),
    ("join_reductions", _join_reductions),
    ("collective_matmul", _collective_matmul),
    ("fold_reductions", _fold_reductions),
    ("whole_values", _whole_values),
)
PLACING = PARTITIONING[:3]  # the passes that give values their layouts on a grid
DEVICE_PROGRAM = PARTITIONING[:-2]  # the passes that also hold for devices of several machines
CHOOSING: tuple[tuple[str, Pass], ...] = (_later("device_choices", "with_device_choices"),)
FUSING: tuple[tuple[str, Pass], ...] = (
    _later("loop_pieces", "with_loops_in_pieces", _holds_programs),
    _later("conv_products", "with_conv_products", _is_convolution),
    _later("wide_products", "with_wide_products", _is_narrow_product),
    _later("outer_products", "with_outer_products", _sums_nothing),
    _later("window_pieces", "with_window_pieces", _is_collective),
    _later("pad_sums", "with_pad_sums", _moves_elements),
    _later("scatter_sums", "with_scatter_sums", _adds_updates),
    _later("joined_pads", "with_joined_pads", _moves_elements),
    _later("cut_pieces", "with_cut_pieces", _moves_elements),
    _later("dims_apart", "with_dims_apart", _moves_elements),
    _later("columns_apart", "with_columns_apart", _takes_columns),
    _later("element_reads", "with_element_reads", _reads_elements),
    _later("masked_sums", "with_masked_sums", _is_collective),
    _later("crossing_reductions", "with_crossing_reductions", _is_collective),
    _later("short_rows", "with_short_rows", _reduces),
    _later("schedule", "schedule"),
    _later("epilogues", "with_epilogues", _is_product),
    _later("computed_windows", "with_computed_windows", _is_update),
)
JOINING: tuple[tuple[str, Pass], ...] = (
    _later("loops_apart", "with_loops_apart", _holds_programs),
    _later("small", "find_small"),
)
PIPELINE = PARTITIONING + CHOOSING + FUSING + JOINING


def schedule_module(module: Module, context: Context, seconds: dict[str, float]) -> Module:
    """The module after those of the `CHOOSING`, `FUSING` and `JOINING` passes that can change it; unchanged if fusion is off."""
    if config.shardwise_fused != "auto":
        return module
    spread = context.env.spread
    if _has_equations(module.program, devices_part):
        module = run_passes(CHOOSING, module, context, seconds)
    if _has_large_values(module, spread):
        module = run_passes(FUSING, module, context, seconds)
    if _has_small_parts(module, spread):
        module = run_passes(JOINING, module, context, seconds)
    return module
