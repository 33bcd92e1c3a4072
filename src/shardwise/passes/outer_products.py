"""Writing products that sum over nothing out as multiplications, which join the loops around them.

Comes in: a per-device program. Goes out: the program in which such products are two operands repeated along each other's dims, and
multiplied. Nothing is kept of the repeated operands where the multiplication is part of a fused loop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from shardwise.ir import Atom, Equation, Program, Var, map_equations, map_programs
from shardwise.ops.elementwise.binary import mul_p
from shardwise.ops.shapes.broadcast import broadcast_in_dim_p
from shardwise.ops.shapes.transpose import transpose_p
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.machine import available


def with_outer_products(program: Program, env: Env) -> Program:
    """`program` with its large outer products written out."""
    del env
    return _rewrite_products(program) if available() else program


def _rewrite_products(program: Program) -> Program:
    program = map_equations(program, lambda e: map_programs(e, _rewrite_products))
    products = {e.outputs[0]: e for e in program.equations if _is_outer(e)}
    if not products:
        return program
    # A product that only a transpose reads, as in the slopes of einsums, is written as that lies: loops write rows, and copies turn them.
    reads = Counter(a for e in program.equations for a in e.inputs if isinstance(a, Var))
    reads.update(a for a in program.outputs if isinstance(a, Var))
    transposes = [e for e in program.equations if e.op is transpose_p]
    turns = {v: e for e in transposes for v in e.inputs if isinstance(v, Var) and v in products and reads[v] == 1}
    turned_ids, equations = {id(e) for e in turns.values()}, list[Equation]()
    for e in program.equations:
        if e.outputs and e.outputs[0] in products:
            equations += _product_to_multiply(e, turns.get(e.outputs[0]))
        elif id(e) not in turned_ids:
            equations.append(e)
    return Program(program.inputs, tuple(equations), program.outputs, program.num_consts, program.name)


def _is_outer(eqn: Equation) -> bool:
    """Whether this is a large product of floats of one type, with no dims to sum over, on a device or between devices."""
    (types, results), params = ([a.aval for a in side] for side in (eqn.inputs, eqn.outputs)), eqn.params
    if eqn.op.contraction is None or eqn.op.contraction(types, results, params) is None:
        return False
    contracted_dims, _ = params["dimension_numbers"]
    one_type = all(t.dtype == results[0].dtype for t in types)
    return (
        not any(contracted_dims) and not params.get("sum_axes") and one_type and results[0].size >= costs.FUSED_FEWEST
    )


def _product_to_multiply(eqn: Equation, turn: Equation | None) -> Iterator[Equation]:
    """The product, whose dims `turn` transposes, as repeated operands and their multiplication."""
    (lhs, rhs), (out,) = eqn.inputs, (eqn if turn is None else turn).outputs
    order_of = range(out.aval.ndim) if turn is None else turn.params["permutation"]
    place = {d: i for i, d in enumerate(order_of)}
    _, (lhs_batch, rhs_batch) = eqn.params["dimension_numbers"]
    batch, free = len(lhs_batch), lhs.aval.ndim - len(lhs_batch)
    parts: list[Atom] = []
    for operand, batched, first in ((lhs, lhs_batch, batch), (rhs, rhs_batch, batch + free)):
        own = iter(range(first, out.aval.ndim))
        dims = [place[list(batched).index(d) if d in batched else next(own)] for d in range(operand.aval.ndim)]
        if dims != sorted(dims):
            order = sorted(range(len(dims)), key=dims.__getitem__)
            turned_var = Var(operand.aval.update(shape=tuple(operand.aval.shape[d] for d in order)))
            yield Equation(transpose_p, (operand,), (turned_var,), {"permutation": tuple(order)}, eqn.source)
            operand, dims = turned_var, sorted(dims)
        wide = Var(operand.aval.update(shape=out.aval.shape))
        params = {"shape": out.aval.shape, "broadcast_dimensions": tuple(dims), "out_sharding": None}
        yield Equation(broadcast_in_dim_p, (operand,), (wide,), params, eqn.source)
        parts.append(wide)
    yield Equation(mul_p, tuple(parts), (out,), {}, eqn.source)
