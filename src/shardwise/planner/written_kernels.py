"""Kernels that a program brings along (`Source.kernel`): their equations say what they compute, an accelerator runs them as one.

In: a per-device program. Out: the program with an equation per call of such a kernel, which reads and writes the memory once, or block by
block; and the seconds that it takes. What is between its equations stays in registers and on-chip memory.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from shardwise.ir import Atom, Equation, Kernel, Program, ShapedArray, Var, define_op
from shardwise.planner.efficiency import Seconds, written_kernel_seconds
from shardwise.planner.flops import Product, Work, work_of
from shardwise.planner.grid_steps import work_in_grid
from shardwise.planner.machine import Chip
from shardwise.planner.roles import Role, role_of
from shardwise.planner.target import Target


def _types(*_: ShapedArray, program: Program, kernel: Kernel) -> tuple[ShapedArray, ...]:
    return program.out_types


written_kernel = define_op("kernel", type_rule=_types, multiple_results=True, local=True)


def with_written_kernels(program: Program, target: Target) -> Program:
    """The program with the equations of each call of a kernel as one, where the target has a compiler for kernels."""
    if not target.kernels:
        return program
    mine = [i for i, eqn in enumerate(program.equations) if _kernel_of(eqn) is not None]
    if not mine:
        return program
    equations = program.equations
    free = _from_nothing(equations, mine)
    calls = [
        call for call in _calls(equations, mine, free) if len(call) > 1 or equations[call[0]].op.region is not None
    ]
    readers: dict[Atom, list[int]] = {}
    for i, eqn in enumerate(equations):
        for atom in eqn.inputs:
            readers.setdefault(atom, []).append(i)
    kernel_equations: list[Equation] = []
    for unit in _in_order(equations, calls):
        kernel_equations.append(
            _as_one(program, unit, free, readers) if _is_kernel(equations, unit) else equations[unit[0]]
        )
    alone = {v for i in free for v in equations[i].outputs}
    read = set[Atom](program.outputs)
    kept_equations: list[Equation] = []
    for eqn in reversed(kernel_equations):  # what kernels make for themselves is nobody else's
        if alone.isdisjoint(eqn.outputs) or not read.isdisjoint(eqn.outputs):
            kept_equations.append(eqn)
            read.update(eqn.inputs)
    return Program(program.inputs, tuple(reversed(kept_equations)), program.outputs, program.num_consts, program.name)


def products_of_kernel(eqn: Equation) -> tuple[Product, ...]:
    """The products of a call; none of an equation that is no kernel."""
    return _work_of_call(eqn).products if eqn.op is written_kernel else ()


def too_large(eqn: Equation, chip: Chip) -> str:
    """The reason why a TPU cannot hold a kernel's blocks and scratch memory; "" if it can."""
    if eqn.op is not written_kernel or chip.platform != "tpu" or _kernel_param(eqn).held <= chip.vmem_bytes:
        return ""
    kernel = _kernel_param(eqn)
    return (
        f"kernel {kernel.name} holds {kernel.held / 2**20:.0f} MiB in blocks and scratch memory, more than the "
        f"{chip.vmem_bytes / 2**20:.0f} MiB of VMEM: it does not compile there. Make its blocks smaller."
    )


def kernel_seconds_of(eqn: Equation, far: float, near: float, chip: Chip) -> tuple[float, Seconds]:
    """FLOPs of products, and seconds, of a call. `far` and `near` are the bytes of its operands and results in memory and on the chip."""
    kernel, work = _kernel_param(eqn), _work_of_call(eqn)
    calls = _calls_in(kernel, eqn)
    if kernel.bytes_accessed is not None:
        far = kernel.bytes_accessed * calls
        moved_bytes = far
    else:
        moved_bytes = far * kernel.again
    steps = calls * math.prod(kernel.grid) if kernel.grid else 0.0
    return work.product_flops, written_kernel_seconds(work, far, near, moved_bytes, steps, chip)


def _work_of_call(eqn: Equation) -> Work:
    """The work of a call: what the steps of its grid do, as much of it as the kernel's author says if he does."""
    kernel = _kernel_param(eqn)
    calls = _calls_in(kernel, eqn)
    if kernel.body is None:
        work = _scale_work(work_of((eqn,)), kernel.part)
    else:
        work = _scale_work(work_in_grid(kernel), calls)
    if kernel.flops is not None and work.flops:
        work = _scale_work(work, kernel.flops * calls / work.flops)
    if kernel.transcendentals is not None:
        work = replace(work, transcendentals=kernel.transcendentals * calls)
    return work


def _scale_work(work: Work, part: float) -> Work:
    """The work of so many calls, or of a part of one."""
    products = tuple([replace(p, batch=p.batch * part) for p in work.products])
    return replace(work, products=products, vector=work.vector * part, transcendentals=work.transcendentals * part)


def _calls_in(kernel: Kernel, eqn: Equation) -> float:
    """How many calls of the kernel an equation stands for, under `vmap` or on a part of the arrays: by the bytes of its results."""
    return sum([v.aval.nbytes for v in eqn.outputs]) / kernel.written if kernel.written else 1.0


def _kernel_param(eqn: Equation) -> Kernel:
    kernel: Kernel = eqn.params["kernel"]
    return kernel


def _kernel_of(eqn: Equation) -> Kernel | None:
    if eqn.source is None or eqn.source.kernel is None or role_of(eqn) is Role.COLLECTIVE:
        return None
    return eqn.source.kernel


def _is_kernel(equations: Sequence[Equation], unit: Sequence[int]) -> bool:
    """Whether equations are more than an op of their own: several, or a loop over a grid."""
    return len(unit) > 1 or (equations[unit[0]].op.region is not None and _kernel_of(equations[unit[0]]) is not None)


def _from_nothing(equations: Sequence[Equation], mine: Sequence[int]) -> dict[int, None]:
    """Positions of equations of kernels that follow from no value: each kernel makes them for itself."""
    made_values: set[Atom] = set()
    free_places: dict[int, None] = {}
    for i in mine:
        eqn = equations[i]
        if all(a in made_values for a in eqn.inputs if isinstance(a, Var)) and eqn.op.region is None:
            free_places[i] = None
            made_values.update(eqn.outputs)
    return free_places


def _calls(equations: Sequence[Equation], mine: Sequence[int], free: Collection[int]) -> list[list[int]]:
    """The equations of each call: those of one kernel that read each other's results. A kernel with a grid has one loop."""
    over: dict[int, int] = {}
    loops: dict[int, bool] = {}

    def first(i: int) -> int:
        while over[i] != i:
            i = over[i]
        return i

    makers: dict[Atom, int] = {}
    for i in mine:
        if i in free:
            continue
        eqn, kernel = equations[i], _kernel_of(equations[i])
        assert eqn.source is not None and kernel is not None
        over[i], loops[i] = i, eqn.op.region is not None and bool(kernel.grid)
        for atom in eqn.inputs:
            j = makers.get(atom)
            if j is None:
                continue
            maker = equations[j].source
            if maker is None or maker.kernel is not kernel or maker.backward != eqn.source.backward:
                continue
            one, other = first(i), first(j)
            if one != other and not (loops[one] and loops[other]):
                over[one] = other
                loops[other] = loops[one] or loops[other]
        makers.update(dict.fromkeys(eqn.outputs, i))
    calls: dict[int, list[int]] = {}
    for i in over:
        calls.setdefault(first(i), []).append(i)
    return list(calls.values())


def _in_order(equations: Sequence[Equation], calls: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """All equations, those of a call as one unit, so that each comes behind what it reads. Calls that wait for what waits for them are
    none: a collective between devices cuts them.
    """
    units = [tuple(call) for call in calls]
    unit_places = {i for unit in units for i in unit}
    units += [(i,) for i in range(len(equations)) if i not in unit_places]
    makers: dict[Atom, int] = {v: u for u, unit in enumerate(units) for i in unit for v in equations[i].outputs}
    missing_places: list[int] = []
    readers: list[list[int]] = [[] for _ in units]
    for u, unit in enumerate(units):
        before = {makers.get(a, u) for i in unit for a in equations[i].inputs} - {u}
        missing_places.append(len(before))
        for w in before:
            readers[w].append(u)
    ready = [(units[u][-1], u) for u, count in enumerate(missing_places) if not count]
    heapq.heapify(ready)
    order: list[tuple[int, ...]] = []
    while ready:
        _, u = heapq.heappop(ready)
        order.append(units[u])
        for reader in readers[u]:
            missing_places[reader] -= 1
            if not missing_places[reader]:
                heapq.heappush(ready, (units[reader][-1], reader))
    if len(order) == len(units):
        return order
    cut = min([u for u in range(len(calls)) if missing_places[u]], key=lambda u: calls[u][0])
    return _in_order(equations, [call for u, call in enumerate(calls) if u != cut])


def _as_one(
    program: Program, call: Sequence[int], free: Collection[int], readers: Mapping[Atom, Sequence[int]]
) -> Equation:
    """The equation of a call. `readers`: per value the positions of the equations that read it."""
    equations = program.equations
    inside = [equations[i] for i in (*_needed_equations(equations, call, free), *call)]
    inner_results = {v for eqn in inside for v in eqn.outputs}
    reads = tuple(
        dict.fromkeys([a for eqn in inside for a in eqn.inputs if isinstance(a, Var) and a not in inner_results])
    )
    own, results = set(call), set(program.outputs)
    call_results = [v for i in call for v in equations[i].outputs]
    writes = tuple([v for v in call_results if v in results or not own.issuperset(readers.get(v, ()))])
    last = next((equations[i] for i in call if equations[i].op.region is not None), equations[call[-1]])
    assert last.source is not None
    params: dict[str, Any] = {
        "program": Program(reads, tuple(inside), writes, 0, program.name),
        "kernel": last.source.kernel,
    }
    return Equation(written_kernel, reads, writes, params, last.source)


def _needed_equations(equations: Sequence[Equation], call: Sequence[int], free: Collection[int]) -> Iterator[int]:
    """The equations without operands whose results a call reads."""
    makers: Mapping[Atom, int] = {v: i for i in free for v in equations[i].outputs}
    needed_places: set[int] = set()
    waiting_places = list(call)
    while waiting_places:
        for atom in equations[waiting_places.pop()].inputs:
            i = makers.get(atom)
            if i is not None and i not in needed_places:
                needed_places.add(i)
                waiting_places.append(i)
    return iter(sorted(needed_places))
