"""The plan of a device program on a machine: memory, traffic and time put together.

In: a `DeviceProgram` and a `Machine`. Out: a `Plan`. The parts are the planner's other modules; this one only joins them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shardwise.base.collector import pause_collector
from shardwise.ir import Equation, source_text, unwrap_op
from shardwise.passes import Transfer, transfers_of
from shardwise.planner.advice import advise
from shardwise.planner.axes import MeshPlacement, place_axes
from shardwise.planner.causes import interval, shares
from shardwise.planner.clock import schedule
from shardwise.planner.course import times_by_place
from shardwise.planner.flops import Product, product_of
from shardwise.planner.fuse import framed_groups
from shardwise.planner.links import crossing_of
from shardwise.planner.machine import Machine
from shardwise.planner.memory import Memory, memory_of
from shardwise.planner.result import Plan, Schedule, Traffic
from shardwise.planner.steps import StepCost, named_figure, steps_of
from shardwise.planner.target import for_chip
from shardwise.planner.work import DeviceProgram, Group
from shardwise.planner.written_kernels import products_of_kernel, too_large, written_kernel

BUFFERS = 200  # of the peak that a plan keeps

_ProductRun = tuple[Equation, Product, int]  # a product, its sizes, and how often it runs


@pause_collector
def make_plan(
    program: DeviceProgram, machine: Machine, *, name: str = "", calls: int = 1, notes: Sequence[str] = ()
) -> Plan:
    """The plan of one compiled step; `calls` is how often the program was called in the run that it comes from.

    Raises:
        ValueError: the program's mesh does not fit the machine.
    """
    start = time.perf_counter()
    placement = place_axes(program.sizes, machine)
    target = for_chip(machine.chip)
    parts, frame = framed_groups(program, target)
    memory = memory_of(program, parts, target, frame)
    tasks = schedule(parts, machine, placement)
    flops = math.fsum(t.flops for t in tasks.tasks)
    products = tuple(_products(parts, {}))
    transfers = transfers_of(program.program, program.sizes)
    return Plan(
        name=name or program.program.name,
        machine=machine.name,
        chip=machine.chip.kind,
        devices=math.prod(program.sizes.values()),
        mesh=dict(program.sizes),
        capacity=machine.chip.usable_bytes,
        arguments=memory.arguments,
        results=memory.results,
        aliased=memory.aliased,
        temporaries=memory.temporaries,
        peak=memory.peak,
        buffers=memory.buffers[:BUFFERS],
        profile=_profile(tasks, memory),
        schedule=tasks,
        seconds=interval(tasks, machine.chip.platform),
        flops=flops,
        model_flops=flops - _flops_again(products),
        peak_flops=_peak_flops(products, machine),
        shares=shares(tasks),
        traffic=tuple(_traffic(t, placement, program.together) for t in transfers),
        advice=advise(program, parts, memory, machine, tasks, transfers),
        notes=(*_notes(program, machine, parts), *notes),
        calls=calls,
        together=program.together,
        planning_seconds=time.perf_counter() - start,
    )


def _profile(tasks: Schedule, memory: Memory) -> tuple[tuple[float, int], ...]:
    """(seconds, bytes in use). Memory is counted in the program's order."""
    points = [(time, memory.usage[task.place]) for time, task in times_by_place(tasks)]
    return (*points, (tasks.seconds, memory.arguments + memory.results - memory.aliased))


def _products(parts: Sequence[Group], known: dict[Any, Product], trips: int = 1) -> Iterator[_ProductRun]:
    """Each product or convolution, with its sizes and number of runs. `known`: sizes by op, params and types."""
    for group in parts:
        if group.body:
            yield from _products(group.body, known, trips * (group.trips or 1))
        for eqn in () if group.body else group.equations:
            op, params = eqn.op, eqn.params
            if op is written_kernel:
                yield from [(eqn, product, trips) for product in products_of_kernel(eqn)]
            if op.product if "mapped_op" not in params else unwrap_op(op, params)[0].product:
                key = (eqn.op, id(eqn.params), *[a.aval for a in eqn.inputs], eqn.outputs[0].aval)
                product = known.get(key)
                if product is None:
                    product = known[key] = product_of(eqn)
                yield eqn, product, trips


def _flops_again(products: Sequence[_ProductRun]) -> float:
    """The products that remat recomputes: those of the backward pass whose line has them in the forward pass, too.

    The derivatives of a product contract other dims than it does itself.
    """
    first: dict[Any, float] = {}
    again: dict[Any, float] = {}
    for eqn, product, trips in products:
        source = eqn.source
        if not source:
            continue
        op, params, _ = unwrap_op(eqn.op, eqn.params)
        key = (source.place, op, params.get("dimension_numbers"))
        flops_by_source = again if source.backward else first
        flops_by_source[key] = flops_by_source.get(key, 0.0) + product.flops * trips
    return math.fsum(min(flops, first.get(key, 0.0)) for key, flops in again.items())


def _peak_flops(products: Sequence[_ProductRun], machine: Machine) -> float:
    """The device's FLOP/s in the dtype of most of the products."""
    by_dtype: dict[str, float] = {}
    for _, product, trips in products:
        name = max(product.dtypes, key=lambda d: d.itemsize).name
        by_dtype[name] = by_dtype.get(name, 0.0) + product.flops * trips
    peaks = machine.chip.flops
    return peaks.get(max(by_dtype, key=lambda n: by_dtype[n], default=""), max(peaks.values()))


def _traffic(transfer: Transfer, placement: MeshPlacement, together: bool) -> Traffic:
    """The traffic of one collective. Devices of one process read each other's memory, which takes no time."""
    line = None if transfer.source is None else transfer.source.place
    level, seconds = "", 0.0
    if not together:
        took = crossing_of(transfer, placement)
        level, seconds = took.level, took.seconds * transfer.known_trips
    return Traffic(transfer.kind, transfer.axes, transfer.total, transfer.trips, transfer.value, transfer.cause, transfer.implicit,
                   line, level, seconds)  # fmt: skip


def _notes(program: DeviceProgram, machine: Machine, parts: Sequence[Group]) -> Iterator[str]:
    """The assumptions of the plan, one sentence each."""
    used = math.prod(program.sizes.values())
    if used < machine.devices:
        yield f"the program runs on {used} of the {machine.devices} devices of {machine.name}; the others are idle"
    yield from machine.notes
    yield from dict.fromkeys(_endless(parts))
    yield from dict.fromkeys(_too_large(parts, machine))
    without: dict[str, Equation] = {}
    _note_algorithms(parts, machine.chip.steps, without)
    for name, eqn in without.items():
        where = f"{source_text(eqn.source)}: " if eqn.source else ""
        yield f"{where}{eqn.op.name} counts as its bytes alone, and may take much longer: {machine.name} has no figure for {name!r}"


def _too_large(parts: Sequence[Group], machine: Machine) -> Iterator[str]:
    """User-written kernels that the device cannot hold."""
    for group in parts:
        for eqn in group.equations:
            what = too_large(eqn, machine.chip) if eqn.op is written_kernel else ""
            if what:
                yield f"{source_text(eqn.source)}: {what}" if eqn.source else what
        yield from _too_large(group.body, machine)


def _note_algorithms(parts: Sequence[Group], figures: Mapping[str, StepCost], without: dict[str, Equation]) -> None:
    """Add to `without` the first equation of each algorithm without a measured figure; products count by their FLOPs."""
    for group in parts:
        for eqn in group.equations:
            if eqn.op.emit is not None or eqn.op.product or unwrap_op(eqn.op, eqn.params)[0].algorithm is None:
                continue
            name = steps_of(eqn).algorithm
            if name and named_figure(name, figures) is None:
                without.setdefault(name, eqn)
        _note_algorithms(group.body, figures, without)


def _endless(parts: Sequence[Group]) -> Iterator[str]:
    for group in parts:
        if group.body and group.trips is None:
            source = group.equations[-1].source
            where = f"{source_text(source)}: " if source else ""
            yield f"{where}how often the loop runs depends on values: one trip of it is counted"
        yield from _endless(group.body)
