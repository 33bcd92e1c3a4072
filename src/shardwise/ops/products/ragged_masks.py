"""`ragged_dot_general` as one product of all groups with all rows, those of other groups masked, for models of compilers that do so."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base.shapes import Ints
from shardwise.ir import Equation, Program, literal, trace_program
from shardwise.ops.products.ragged_sharding import dims_of
from shardwise.ops.rules.derivative import do
from shardwise.sharding import AbstractMesh, use_abstract_mesh


def masked_product(eqn: Equation) -> Program | None:
    """The program for an equation of a device's program; None where groups make no difference."""
    types, params = tuple([a.aval for a in eqn.inputs]), eqn.params
    roles = dims_of(types, params)
    if roles.batches:
        return None
    (lhs_con, rhs_con), (lhs_batch, rhs_batch) = roles.dims
    up = lambda dims: tuple(d + 1 for d in dims)  # noqa: E731
    given = {k: params[k] for k in ("precision", "preferred_element_type")}

    def product(lhs: Any, rhs: Any, sizes: Any) -> list[Any]:
        if roles.contracts:
            groups = eqn.outputs[0].aval.shape[0]
            pairs = zip(lhs_batch + lhs_con, rhs_batch + rhs_con, strict=True)
            partner = dict(pairs)
            there = tuple(partner[d] for d in roles.prefix)
            lhs = _with_masks(lhs, sizes, groups, roles.ragged_dim, roles.prefix)
            rhs = _with_masks(rhs, sizes, groups, roles.rhs_ragged, there)
            dims = ((up(lhs_con), up(rhs_con)), ((0, *up(lhs_batch)), (0, *up(rhs_batch))))
        else:
            assert roles.group is not None
            lhs = _with_masks(lhs, sizes, rhs.shape[roles.group], roles.ragged_dim, roles.prefix)
            dims = (((0, *up(lhs_con)), (roles.group, *rhs_con)), (up(lhs_batch), rhs_batch))
        return [do.dot_general(lhs, rhs, dimension_numbers=dims, out_sharding=None, **given)]

    with use_abstract_mesh(AbstractMesh((), ())):  # a device's values are typed without meshes
        program, captured_values = trace_program(product, types)
    return None if captured_values or program.outputs[0].aval != eqn.outputs[0].aval else program


def _with_masks(x: Any, sizes: Any, groups: int, dim: int, prefix: Ints) -> Any:
    """`x` for each of a device's groups, with zeros beside its positions along `dim`. Which groups these are makes no difference here."""
    shape = (groups, *x.shape)
    ends = do.cumsum(sizes, axis=sizes.ndim - 1, reverse=False)
    places: Ints = (0,)
    if sizes.ndim > 1:
        order = sorted(range(len(prefix)), key=prefix.__getitem__)
        places = (0, *[prefix[i] + 1 for i in order])
        ends, sizes = (do.transpose(v, permutation=(v.ndim - 1, *order)) for v in (ends, sizes))
    begins = do.sub(ends, sizes)
    if groups != sizes.shape[0]:
        start, limit = (0,) * sizes.ndim, (groups, *sizes.shape[1:])
        begins, ends = (do.slice(v, start_indices=start, limit_indices=limit, strides=None) for v in (begins, ends))
    wide = lambda v: do.broadcast_in_dim(v, shape=shape, broadcast_dimensions=places, out_sharding=None)  # noqa: E731
    at = do.iota(dtype=np.dtype(sizes.dtype), shape=shape, dimension=dim + 1, out_sharding=None)
    inside = do.and_(do.le(wide(begins), at), do.lt(at, wide(ends)))
    spread = do.broadcast_in_dim(x, shape=shape, broadcast_dimensions=tuple(range(1, x.ndim + 1)), out_sharding=None)
    zeros = do.broadcast_in_dim(literal(0, x.dtype), shape=shape, broadcast_dimensions=(), out_sharding=None)
    (out,) = do.optimization_barrier(do.select_n(inside, zeros, spread))  # a library multiplies it: it lies in memory
    return out
