"""Products with nothing to sum over: XLA multiplies there, and fuses that with what makes the operands and reads the results.

In: a per-device program. Out: the program with multiplications in their places.
"""

from __future__ import annotations

from math import prod
from typing import Any

from shardwise.ir import Equation, Program, trace_program
from shardwise.ops.products.dot_sharding import free_dims
from shardwise.ops.rules.derivative import do
from shardwise.ops.rules.precision import DotAlgorithm, DotAlgorithmPreset
from shardwise.planner.expand import expand_equations
from shardwise.planner.target import Target
from shardwise.runtime.products import DotDims
from shardwise.sharding import AbstractMesh, use_abstract_mesh


def with_outer_products(program: Program, target: Target) -> Program:
    """The program as XLA computes it."""
    if target.pooled:
        return program
    return expand_equations(
        program, lambda eqn: _product_to_multiply(eqn) if eqn.op.product and eqn.op.algorithm is None else None
    )


def _product_to_multiply(eqn: Equation) -> Program | None:
    """The product as a multiplication of broadcast operands; None where it sums over something, or by parts of numbers."""
    if "dimension_numbers" not in eqn.params:
        return None
    params, (lhs, rhs), out = eqn.params, [a.aval for a in eqn.inputs], eqn.outputs[0].aval
    dims: DotDims = params["dimension_numbers"]
    (summed_dims, _), (lhs_batch, rhs_batch) = dims
    if prod([lhs.shape[d] for d in summed_dims]) != 1 or params.get("sum_axes"):
        return None
    if isinstance(params["precision"], (DotAlgorithm, DotAlgorithmPreset)):
        return None
    lhs_free, rhs_free = free_dims(dims, lhs.ndim, rhs.ndim)

    def spread(x: Any, batch: tuple[int, ...], free: tuple[int, ...], at: int) -> Any:
        order = (*batch, *free)
        rest = tuple([d for d in range(x.ndim) if d not in order])
        x = do.convert_element_type(x, new_dtype=out.dtype, weak_type=False) if x.dtype != out.dtype else x
        if (*order, *rest) != tuple(range(x.ndim)):
            x = do.transpose(x, permutation=(*order, *rest))
        if rest:
            x = do.squeeze(x, dimensions=tuple(range(len(order), x.ndim)))
        places = (*range(len(batch)), *range(at, at + len(free)))
        return do.broadcast_in_dim(x, shape=out.shape, broadcast_dimensions=places, out_sharding=None)

    def product(x: Any, y: Any) -> list[Any]:
        left = spread(x, lhs_batch, lhs_free, len(lhs_batch))
        return [do.mul(left, spread(y, rhs_batch, rhs_free, len(lhs_batch) + len(lhs_free)))]

    with use_abstract_mesh(AbstractMesh((), ())):  # a device's values are typed without meshes
        program, captured_values = trace_program(product, (lhs, rhs))
    return None if captured_values or program.outputs[0].aval != out else program
