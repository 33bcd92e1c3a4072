"""Loops over large values in pieces: where elements along a dim do not meet, each piece of it goes through all rounds at once.

    for 50 rounds: x = 0.99 * x + 0.01 * x * x        for each piece of x: for 50 rounds: piece = 0.99 * piece + ...

Comes in: a per-device program. Goes out: the program with such loops as `in_pieces`. A round of the whole would read and write memory;
a piece stays in the cache. Where many devices have small parts, these follow each other as one. Under `vmap`, a `while_loop` whose
elements stop at different times ends for each piece when that is done.

Which dims of which values are cut is found by `loop_cuts`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from shardwise.base.shapes import Axes
from shardwise.ir import (
    ALONE,
    ANY_GOES_ON,
    Branches,
    Equation,
    Loop,
    Program,
    Spread,
    Var,
    map_equations,
    map_programs,
    region_of,
    subprograms,
)
from shardwise.passes.loop_cuts import FollowedDim, alone, cut, localize, one_apart, outermost, simple, sweep
from shardwise.passes.small import runs_small
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.machine import available, thread_count
from shardwise.runtime.small import Pieces, in_pieces, small_cost, writable


def with_loops_in_pieces(program: Program, env: Env) -> Program:
    """`program` with loops over large values in pieces, where each piece is a small program."""
    if env.extra or env.processes is not None or not available():
        return program
    return map_equations(program, lambda e: _in_pieces(e, env))


def _in_pieces(eqn: Equation, env: Env) -> Equation:
    region = region_of(eqn)
    if region is None:
        return eqn
    small = runs_small(eqn, env)
    if small and not (isinstance(region, Loop) and _is_large(region, env.spread)):
        return eqn
    if isinstance(region, Loop):
        own = map_programs(eqn, _of_each_device)
        piece_form = _pieces_of_devices(alone(own), env) if _may_be_cut(region, env.spread) else None
        if piece_form is not None:
            program, pieces, joined_axes = piece_form
            params = {"program": program, "pieces": pieces, "joined": joined_axes}
            return Equation(in_pieces, program.inputs, eqn.outputs, params, eqn.source)
    if small:
        return eqn
    # Where devices take part at different times, a loop inside must know which do: an element that takes no part may never stop.
    test_type = eqn.inputs[0].aval if isinstance(region, Branches) else region.test and region.test.outputs[0].aval
    return eqn if test_type is not None and test_type.vma else map_programs(eqn, lambda p: with_loops_in_pieces(p, env))


def _may_be_cut(loop: Loop, spread: Spread) -> bool:
    """Whether it goes round often enough, with large values, and all that it does is simple."""
    if (loop.length is not None and loop.length < costs.LOOP_FEWEST) or _size(loop, spread) <= costs.FUSED_FEWEST:
        return False
    return all(simple(_of_each_device(p)) for p in loop.programs)


def _is_large(loop: Loop, spread: Spread) -> bool:
    """Whether several threads may go through pieces of a loop that also runs small."""
    return _size(loop, spread) > costs.SMALL_LARGEST_IN_LOOPS


def _of_each_device(test: Program) -> Program:
    """A test of many elements as each device may make it of its own: those that have stopped keep their values."""
    if test.name != ANY_GOES_ON or len(test.equations) < 2:
        return test
    *before, own, last = test.equations
    collective = last.op.collective
    joins = collective is not None and collective.absorbed is not None and collective.absorbed(last.params) is not None
    if not joins or last.inputs != own.outputs or test.outputs != last.outputs:
        return test
    answer = Var(own.outputs[0].aval.update(vma=last.outputs[0].aval.vma))
    own_answer = Equation(own.op, own.inputs, (answer,), own.params, own.source)
    return replace(test, equations=(*before, own_answer), outputs=(answer,))


def _size(loop: Loop, spread: Spread) -> int:
    """The elements of the largest value that goes round."""
    first = loop.num_consts
    return max((spread.elements(v.aval) for v in loop.body.inputs[first : first + loop.num_carry]), default=0)


def _pieces_of_devices(program: Program, env: Env) -> tuple[Program, Pieces, Axes] | None:
    """The program of a loop, its pieces on each device, and no axes; where those would be too small, its pieces of the parts of all devices
    along axes, one after the other as a single part.
    """
    pieces = _pieces(program)
    if pieces is not None:
        return program, pieces, ()
    cut_form = cut(program, fewest=1)
    ends = [a for a in (*program.inputs, *program.outputs) if isinstance(a, Var)]
    if cut_form is None:
        return None
    axes = frozenset[str]().union(*[v.aval.vma for v in cut_form.dims])
    if not axes or any(v.aval.vma != (axes if v in cut_form.dims else frozenset()) for v in ends):
        return None
    if any(v.aval.vma and v not in cut_form.dims for v in _values(program)):
        return None
    joined_axes = tuple(a for a in env.axis_names if a in axes)
    wide = localize(program, cut_form.dims, cut_form.size * math.prod(map(env.size, joined_axes)))
    pieces = _pieces(wide)
    if pieces is None or (*pieces.operands, *pieces.results) != tuple(map(cut_form.dims.get, ends)):
        return None
    return program, pieces, joined_axes


def _pieces(program: Program) -> Pieces | None:
    cut_form = cut(program)
    if cut_form is None or not outermost(program, cut_form.dims):
        return None
    n, dims = cut_form.size, cut_form.dims
    step = min(n, _step(cut_form))
    if not cut_form.stop_apart:
        step = next(
            (k for k in range(step, step // 2, -1) if n % k == 0), step
        )  # no tail, which is a program of its own
    if step == n or _work(program) < costs.LOOP_LEAST:
        return None
    inner = _fit_piece(one_apart(program, dims) if step == 1 else localize(program, dims, step))
    if inner is None:
        return None
    steps, tail = divmod(n, step)
    parts = min(steps, max(1, int(_work(program) / costs.LOOP_PART)), costs.SMALL_PARTS)
    # Parts of one size are one program: rather fewer, if as many for each thread, since each part takes some time to begin.
    fewer = [k for k in range(parts, parts // 2, -1) if k % thread_count() == 0]
    parts = next((k for k in (*fewer, *range(parts, min(2 * parts, costs.SMALL_PARTS) + 1)) if steps % k == 0), parts)
    most = -(-steps // parts)  # as many for each part, or one less, so that no thread waits long for another
    longer = steps - parts * (most - 1)
    sizes = [most * step] * longer + [(most - 1) * step] * (parts - longer) + [tail] * (tail > 0)
    programs: dict[int, Program] = {}
    for size in dict.fromkeys(sizes):
        piece = inner if size != tail else _fit_piece(localize(program, dims, size))
        if piece is None:
            return None
        programs[size] = sweep(piece, size // step if size != tail else 1, program, dims)
    operands, results = tuple(map(dims.get, program.inputs)), tuple(map(dims.get, program.equations[0].outputs))
    return Pieces(tuple(sizes), programs, operands, results)


def _step(cut: FollowedDim) -> int:
    """The number of entries that go through the loop at once."""
    row = max(v.aval.size // cut.size for v in cut.dims)
    if cut.stop_apart:
        return costs.REGISTER_ELEMENTS if row == 1 else 1
    return max(1, costs.LOOP_PIECE // row)


def _work(program: Program) -> float:
    """About how many additions it takes."""
    loop = region_of(program.equations[0])
    return small_cost(program) * (1 if isinstance(loop, Loop) and loop.length is not None else costs.LOOP_ROUNDS)


def _fit_piece(piece: Program) -> Program | None:
    """The program of a piece; where that is too large, as a sweep along a further dim. None if there is none, or no small program."""
    if max(v.aval.size for v in _values(piece)) <= costs.LOOP_PIECE_MOST:
        return piece if all(writable(e, ALONE) for e in piece.equations) else None
    cut_form = cut(piece)
    if cut_form is None or not outermost(piece, cut_form.dims):
        return None
    n, dims, most = cut_form.size, cut_form.dims, min(cut_form.size, _step(cut_form))
    step = max(k for k in range(1, most + 1) if n % k == 0)
    if 4 * step < most:
        return None
    inner = _fit_piece(localize(piece, dims, step))
    return None if inner is None else sweep(inner, n // step, piece, dims)


def _values(program: Program) -> Iterator[Var]:
    """All values that a program makes, inner ones included."""
    for eqn in program.equations:
        yield from eqn.outputs
        for _, inner in subprograms(eqn.params):
            yield from _values(inner)
