"""Small loops whose elements stop at different times, one element after the other.

    while any goes on: x = where(goes on, step(x), x)        for each element of x: while it goes on: element = step(element)

Comes in: a per-device program. Goes out: the program with such loops (`while_loop` under `vmap`) as scans over their elements, where each
has much to compute in a round. An element then goes round until it is done, not until all are, and its values stay close to the processor.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

from shardwise.ir import Equation, Loop, Program, Var, region_of
from shardwise.ops.shapes.reshape import reshape_p
from shardwise.passes.loop_cuts import alone, cut, one_apart, outermost, simple, sweep
from shardwise.passes.small import runs_small
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.small import small_cost


def with_loops_apart(program: Program, env: Env) -> Program:
    """`program` with such loops as scans; those that do not run as small programs stay."""
    new_equations = [_apart(e, env) for e in program.equations]
    if all(new == (old,) for new, old in zip(new_equations, program.equations, strict=True)):
        return program
    return replace(program, equations=tuple(itertools.chain(*new_equations)))


def _apart(eqn: Equation, env: Env) -> tuple[Equation, ...]:
    scan = _loop_to_scan(eqn, env)
    return scan if scan and all(runs_small(e, env) for e in scan) else (eqn,)


def _loop_to_scan(eqn: Equation, env: Env) -> tuple[Equation, ...] | None:
    """A loop as a scan, with what shapes its operands and results."""
    loop = region_of(eqn)
    if not isinstance(loop, Loop) or loop.test is None or loop.test.outputs[0].aval.vma or not runs_small(eqn, env):
        return None
    if not all(simple(p, products=True) for p in loop.programs):
        return None
    program = alone(eqn)
    cut_form = cut(program)
    if cut_form is None or not cut_form.stop_apart or not outermost(program, cut_form.dims):
        return None
    one = one_apart(program, cut_form.dims)
    if small_cost(one) < costs.LOOP_APART or any(v not in cut_form.dims for v in eqn.outputs):
        return None
    whole = sweep(one, cut_form.size, program, cut_form.dims)
    (scan,) = whole.equations
    before, renamed_vars = list[Equation](), dict[Var, Var]()
    for var, given in zip(whole.inputs, program.inputs, strict=True):
        renamed_vars[var] = given
        if given in cut_form.dims:
            renamed_vars[var] = Var(var.aval)
            before.append(_reshape_equation(given, renamed_vars[var], eqn))
    scan = replace(scan, inputs=tuple([renamed_vars[v] for v in scan.inputs if isinstance(v, Var)]), source=eqn.source)
    return (*before, scan, *[_reshape_equation(v, out, eqn) for v, out in zip(scan.outputs, eqn.outputs, strict=True)])


def _reshape_equation(given: Var, out: Var, eqn: Equation) -> Equation:
    """An equation, in the place of `eqn`, that gives a value another shape."""
    return Equation(reshape_p, (given,), (out,), {"new_sizes": out.aval.shape, "out_sharding": None}, eqn.source)
