"""`explain`: each value's layout, and each collective with its bytes, the op and the source line that caused it.

In: an Executable. Out: text, or the global program with its layouts as types.
"""

from __future__ import annotations

import shutil
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, cast

from shardwise.base.shapes import DimAxes
from shardwise.engine.executable import Executable
from shardwise.ir import Atom, Equation, Literal, Program, ShapedArray, Var, source_text
from shardwise.passes import Transfer
from shardwise.runtime.processes import exchanges
from shardwise.sharding import AbstractMesh
from shardwise.transforms.reports.explanation import Explanation, totals
from shardwise.transforms.reports.layers import equation_starts, fit_lines, with_layers_once
from shardwise.transforms.reports.memory import MemoryStats, memory_stats

_MOST = 5  # of the axes, kinds or lines that a summary names


def program_with_layouts(executable: Executable) -> Program:
    """The global program, with the layout of each value in its type, as an explicit type would show it."""
    program, (names, sizes) = executable.program, executable.grid.mesh
    if not names:
        return program
    mesh = AbstractMesh(sizes, names)
    layouts = {**executable.placements, **dict(zip(program.inputs, executable.in_dims, strict=True))}
    var_of: dict[Var, Var] = {}

    def show_atom(atom: Atom) -> Atom:
        if isinstance(atom, Literal):
            return atom
        if atom not in var_of:
            var_of[atom] = Var(_with_layout(atom.aval, layouts.get(atom), mesh))
        return var_of[atom]

    def rewrite_program(program: Program) -> Program:
        equations = tuple(
            Equation(e.op, tuple(map(show_atom, e.inputs)), tuple(map(show_atom, e.outputs)), params(e), e.source)  # type: ignore[arg-type]
            for e in program.equations
        )
        inputs, outputs = tuple(map(show_atom, program.inputs)), tuple(map(show_atom, program.outputs))
        return Program(inputs, equations, outputs, program.num_consts, program.name)  # type: ignore[arg-type]

    def params(eqn: Equation) -> dict[str, Any]:
        if "manual" in eqn.params:  # a shard_map's body has local types
            return dict(eqn.params)
        return {k: inner(v) for k, v in eqn.params.items()}

    def inner(value: Any) -> Any:
        if isinstance(value, Program):
            return rewrite_program(value)
        return tuple(map(inner, cast("tuple[Any, ...]", value))) if isinstance(value, tuple) else value

    return rewrite_program(program)


def _with_layout(aval: ShapedArray, dims: DimAxes | None, mesh: AbstractMesh) -> ShapedArray:
    return aval.update(mesh=mesh, spec=dims if dims is not None else ((),) * aval.ndim)


def grid_text(executable: Executable) -> str:
    """``8 devices, mesh ('x': 2, 'y': 4)``."""
    grid = executable.grid
    names, sizes = grid.mesh
    if not names:
        return f"1 device, {grid.devices[0]}"
    return f"{len(grid.devices)} devices, mesh ({', '.join(f'{n!r}: {s}' for n, s in zip(names, sizes, strict=True))})"


def program_text(program: Program, sources: bool) -> str:
    """The program's text; with `sources` each equation ends in the user's line that made it."""
    text = str(program)
    if not sources:
        return text
    lines = text.split("\n")
    starts = equation_starts(program, lines) or ()
    width = max((len(lines[i]) for i in starts), default=0)
    for i, eqn in zip(starts, program.equations, strict=False):
        if eqn.source:
            lines[i] = f"{lines[i]:<{width}}  # {source_text(eqn.source)}"
    return "\n".join(lines)


def explanation_of(executable: Executable, names: Sequence[str], result: bool, width: int | None) -> Explanation:
    """The partitioner's decisions, with a summary in front.

    Args:
        executable: what was compiled.
        names: those of the program's inputs.
        result: whether to add the cost of the compiled form.
        width: the characters of a line; None: those of the terminal, or any number where the output is none.
    """
    program = program_with_layouts(executable)
    transfers, memory = executable.transfers, memory_stats(executable, names)
    lines = [f"{executable.name}: {grid_text(executable)}", "", *_summary(transfers, memory), "", "values"]
    for name, var in zip(names, program.inputs, strict=True):
        lines.append(f"  {name}: {var.aval.str_short()}, {_local_bytes(executable, var.aval)} bytes per device")
    body = with_layers_once(program, program_text(program, sources=True).split("\n"))
    lines += [
        "",
        "program",
        *[f"  {line}" for line in body],
        "",
        *_collectives(transfers),
        *_process_traffic_lines(executable),
    ]
    if result:
        seconds = executable.seconds
        took = ", ".join(f"{stage} {1e3 * t:.1f} ms" for stage, t in seconds.items())
        lines += ["", f"compiled in {1e3 * sum(seconds.values()):.1f} ms: {took}"]
    if width is None and sys.stdout.isatty():
        width = shutil.get_terminal_size((120, 24)).columns
    return Explanation("\n".join(fit_lines(lines, width)), executable.name, transfers, memory)


def _summary(transfers: Sequence[Transfer], memory: MemoryStats) -> list[str]:
    """Memory, and the bytes that a device sends by axis, kind and line."""
    parts = (
        ("arguments", memory.argument_size_in_bytes),
        ("results", memory.output_size_in_bytes),
        ("temporaries", memory.temp_size_in_bytes),
        ("donated", memory.alias_size_in_bytes),
    )
    parts_text = ", ".join(f"{part} {n}" for part, n in parts if n or part != "donated")
    lines = ["summary", f"  peak memory: {memory.peak_memory_in_bytes} bytes per device ({parts_text})"]
    if not transfers:
        return [*lines, "  sends nothing"]
    lines.append(f"  sends {sum(t.total for t in transfers)} bytes per device")
    for by in ("axis", "kind", "line"):
        bytes_by_group = list(totals(transfers, by).items())
        rest = [("others", sum(n for _, n in bytes_by_group[_MOST:]))] if len(bytes_by_group) > _MOST else []
        lines.append(f"    by {by}: " + ", ".join(f"{name} {n}" for name, n in (*bytes_by_group[:_MOST], *rest)))
    return lines


def _local_bytes(executable: Executable, aval: ShapedArray) -> int:
    ways = 1
    sizes = executable.grid.axis_sizes
    for axes in aval.spec:
        for a in axes:
            ways *= sizes.get(a, 1)
    return aval.nbytes // ways


def _process_traffic_lines(executable: Executable) -> list[str]:
    """The bytes that this process sends to other processes."""
    if executable.grid.kept_whole:
        return [
            "",
            "between processes: nothing is sent; each keeps and computes all, as they form no grid among the mesh's devices",
        ]
    if executable.grid.processes is None:
        return []
    env = executable.plan.env
    assert env.processes is not None
    process_exchanges = list(exchanges(executable.folded_program, env))
    me, ranks = env.processes.me, env.processes.ranks
    total = sum(e.bytes * e.times for e in process_exchanges)
    lines = ["", f"between processes: process {me}, one of {len(ranks)}, sends {total} bytes in one run"]
    for e in process_exchanges:
        eqn = e.equation
        values = ", ".join(a.aval.str_short() for a in eqn.inputs)
        often = f", {e.times} times" if e.times != 1 else ""
        guess = ", as often as its loop or branch runs" if e.endless else ""
        where = f" at {source_text(eqn.source)}" if eqn.source else ""
        name = eqn.op.name if eqn.op.absorbs is None else f"{eqn.op.name} and {eqn.op.absorbs.name}"
        lines.append(
            f"  {name} over {', '.join(eqn.op.exchange_axes(eqn.params))} of {values} per device: {e.bytes} bytes{often}{guess}{where}"
        )
    return lines


def _collectives(transfers: Sequence[Transfer]) -> list[str]:
    if not transfers:
        return ["collectives: none"]
    total = sum(t.total for t in transfers)
    lines = [f"collectives: {len(transfers)}, sending {total} bytes per device"]
    for line, count in Counter(map(_collective, transfers)).items():
        lines.append(f"  {count} x {line}" if count > 1 else f"  {line}")
    if any(t.unasked for t in transfers):
        lines.append(
            "  Lay the operands out alike (in_shardings, device_put) to save the inserted moves; "
            "shardwise_on_reshard='raise' refuses them."
        )
    return lines


def _collective(t: Transfer) -> str:
    where = f" at {source_text(t.source)}" if t.source else ""
    by = f"inserted for {t.cause}" if t.implicit else "written by the program"
    side = ", backward" if t.backward else ""
    return f"{t.kind} over {', '.join(t.axes)} of {t.value}: {t.bytes} bytes{_often(t)}, {by}{where}{side}"


def _often(t: Transfer) -> str:
    times = f", {t.known_trips} times" if t.known_trips != 1 else ""
    return f"{times}, as often as its loop or branch runs (counted once)" if t.endless else times
