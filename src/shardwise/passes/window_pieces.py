"""Windows of split dims, as loops can read them: from the devices' parts, where these lie.

Comes in: a per-device program. Goes out: the program in which a slice of such a window (as `p[:, 1:]` of rows and their neighbours') is a
window of slices, and in which rows of the fill value that stand between pieces of a window are an operand. Loops then read the window in
place, and it is never made.
"""

from __future__ import annotations

from dataclasses import replace

from shardwise.ir import Equation, Program, ShapedArray, Var, map_equations, map_programs
from shardwise.ops.devices.halo_exchange import halo_exchange, without_gaps
from shardwise.ops.shapes.fill import stored_fill
from shardwise.ops.shapes.pieces import slice_p
from shardwise.passes.parts import read_by_loops, users
from shardwise.runtime.env import Env
from shardwise.runtime.fused import joined_pieces
from shardwise.runtime.machine import available


def with_window_pieces(program: Program, env: Env) -> Program:
    """`program` with windows that loops read in place. Parts of other processes lie elsewhere."""
    return _rewrite_windows(program, env) if env.processes is None and available() else program


def _rewrite_windows(program: Program, env: Env) -> Program:
    program = map_equations(program, lambda e: map_programs(e, lambda inner: _rewrite_windows(inner, env)))
    if not any(e.op is halo_exchange for e in program.equations):
        return program
    return _fill_windows(_slice_windows(program, env), env)


def _slice_windows(program: Program, env: Env) -> Program:
    """A slice of a window along other dims becomes a window of a slice, if loops read it or the window gets smaller."""
    used, reads = users(program), read_by_loops(program, env.spread)
    outputs = {v for v in program.outputs if isinstance(v, Var)}
    replacements: dict[int, list[Equation]] = {}
    for whole in program.equations:
        if whole.op is not halo_exchange:
            continue
        (out,) = whole.outputs
        readers = used.get(out, ())
        windows = {i: new for i in readers if (new := _window_of_slices(program.equations[i], whole)) is not None}
        sizes = sum(program.equations[i].outputs[0].aval.size for i in windows)
        smaller = out not in outputs and len(windows) == len(readers) and 2 * sizes <= out.aval.size
        replacements |= {i: new for i, new in windows.items() if smaller or reads(new[-1].outputs[0])}
    return _with(program, replacements)


def _window_of_slices(eqn: Equation, whole: Equation) -> list[Equation] | None:
    """A slice of a window along other dims as a window of slices of its sources; None where it is something else."""
    if eqn.op is not slice_p or any(s != 1 for s in eqn.params["strides"] or ()):
        return None
    dim, (*sources, fill), (out,) = whole.params["dim"], whole.inputs, eqn.outputs
    first, limit = eqn.params["start_indices"], eqn.params["limit_indices"]
    if limit[dim] - first[dim] != whole.params["width"]:
        return None
    new_equations: list[Equation] = []
    for x in sources:
        t, stop = x.aval, (*limit[:dim], x.aval.shape[dim], *limit[dim + 1 :])
        size = tuple(b - a for a, b in zip(first, stop, strict=True))
        part = Var(ShapedArray(size, t.dtype, t.weak_type, vma=t.vma))
        params = {"start_indices": first, "limit_indices": stop, "strides": None}
        new_equations.append(Equation(slice_p, (x,), (part,), params, eqn.source))
    inputs = (*[e.outputs[0] for e in new_equations], fill)
    return [*new_equations, Equation(halo_exchange, inputs, (out,), whole.params, eqn.source)]


def _fill_windows(program: Program, env: Env) -> Program:
    """Windows that loops read, with rows of fill values where no piece is."""
    reads = read_by_loops(program, env.spread)
    replacements: dict[int, list[Equation]] = {}
    for i, eqn in enumerate(program.equations):
        if eqn.op is not halo_exchange or not reads(eqn.outputs[0]):
            continue
        params, rows = without_gaps(eqn.params)
        *sources, fill = eqn.inputs
        dim, shape = eqn.params["dim"], eqn.outputs[0].aval.shape
        if not 0 < rows <= shape[dim]:
            continue
        row = Var(fill.aval.update(shape=(*shape[:dim], rows, *shape[dim + 1 :])))
        new = Equation(halo_exchange, (*sources, row, fill), eqn.outputs, params, eqn.source)
        if joined_pieces(new) is not None:
            replacements[i] = [
                Equation(stored_fill, (fill,), (row,), {"shape": row.aval.shape, "axes": ()}, eqn.source),
                new,
            ]
    return _with(program, replacements)


def _with(program: Program, replaced: dict[int, list[Equation]]) -> Program:
    if not replaced:
        return program
    equations = [e for i, old in enumerate(program.equations) for e in replaced.get(i, (old,))]
    return replace(program, equations=tuple(equations))
