"""Values scattered into zeros that are added to another value: they are scattered into that value, where it lies.

    x + zeros.at[i].add(v)        (x + 0).at[i].add(v)

So are slopes made of values that are read element by element and as a whole: the logits of a cross entropy, for one. Neither the zeros nor
the sum go through memory. No bit changes: each place gets one update at most, and adding zero makes -0 what it becomes in the sum.

Comes in: a per-device program. Goes out: the program in which such sums are updates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from shardwise.ir import Atom, Equation, Literal, Program, Spread, Var, live_equations, map_equations, map_programs
from shardwise.ops.elementwise.binary import add_p
from shardwise.ops.indexing.scatter import scatter_add_p
from shardwise.ops.indexing.window_numbers import ScatterDimensionNumbers
from shardwise.ops.shapes.broadcast import broadcast_in_dim_p
from shardwise.passes.parts import makers, users
from shardwise.runtime import costs
from shardwise.runtime.env import Env


def with_scatter_sums(program: Program, env: Env) -> Program:
    """`program` with sums of values and scattered ones, where they are large, as updates of the values."""
    return _sum_in_place(program, env.spread)


def _sum_in_place(program: Program, spread: Spread) -> Program:
    program = map_equations(program, lambda e: map_programs(e, lambda inner: _sum_in_place(inner, spread)))
    if not any(e.op is scatter_add_p for e in program.equations):
        return program
    producers, used = makers(program), users(program)
    result_vars = {v for v in program.outputs if isinstance(v, Var)}
    equations = program.equations

    def scatter_of(a: Atom) -> Equation | None:
        """The equation that scatters into zeros what this sum alone reads."""
        if not isinstance(a, Var) or a in result_vars or a not in producers or len(used[a]) > 1:
            return None
        eqn = equations[producers[a]]
        if eqn.op is not scatter_add_p or not _writes_once(eqn):
            return None
        base = eqn.inputs[0]
        while isinstance(base, Var) and base in producers and equations[producers[base]].op is broadcast_in_dim_p:
            base = equations[producers[base]].inputs[0]
        return eqn if isinstance(base, Literal) and not any(base.value.tobytes()) else None

    replacements = {
        i: update
        for i, eqn in enumerate(equations)
        if eqn.op is add_p and spread.elements(eqn.outputs[0].aval) > costs.FUSED_FEWEST
        if (update := _as_update(eqn, scatter_of)) is not None
    }
    if not replacements:
        return program
    new_equations = [e for i, eqn in enumerate(equations) for e in replacements.get(i, (eqn,))]
    return live_equations(
        Program(program.inputs, tuple(new_equations), program.outputs, program.num_consts, program.name)
    )


def _as_update(eqn: Equation, scatter_of: Callable[[Atom], Equation | None]) -> Sequence[Equation] | None:
    """The equations that give a sum as an update of one of its operands; None if neither operand is scattered."""
    (out,) = eqn.outputs
    for one, other in (eqn.inputs, eqn.inputs[::-1]):
        scatter = scatter_of(one)
        if scatter is None or one is other or other.aval.shape != out.aval.shape or other.aval.vma != out.aval.vma:
            continue
        zeros, *places = scatter.inputs
        if out.aval.dtype.kind in "iu":
            return (Equation(scatter_add_p, (other, *places), (out,), scatter.params, eqn.source),)
        base = Var(other.aval.update(weak_type=False))
        return (
            Equation(add_p, (other, zeros), (base,), eqn.params, eqn.source),
            Equation(scatter_add_p, (base, *places), (out,), scatter.params, eqn.source),
        )
    return None


def _writes_once(eqn: Equation) -> bool:
    """Whether no element gets two updates, and the result is no part of a sum over devices."""
    params = eqn.params
    if params["operand_axes"] or params["update_axes"] or params.get("sum_axes"):
        return False
    numbers: ScatterDimensionNumbers = params["dimension_numbers"]
    indices = eqn.inputs[1].aval.shape[:-1]
    apart = [n for d, n in enumerate(indices) if d not in numbers.scatter_indices_batching_dims]
    return params["unique_indices"] or all(n == 1 for n in apart)
