"""The sizes of products, which what devices compute and plans count by.

In: a product's op, types and params. Out: `ProductSizes`. A dim of the result belongs to the operand from which its factor comes.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from shardwise.ir import Groups, Op, ShapedArray, unwrap_op
from shardwise.ir.op import Params, Types


class ProductSizes(NamedTuple):
    """A batch of matrix products ``[m, k] @ [k, n]``; sizes of several dims are multiplied."""

    batch: float
    m: int
    n: int
    k: int

    @property
    def multiplications(self) -> float:
        """The multiplications of all of them."""
        return float(self.batch) * self.m * self.n * self.k


def sizes_of_product(op: Op, in_types: Types, out: ShapedArray, params: Params) -> ProductSizes:
    """The sizes of a matrix product or convolution; of one by groups those of a group, as a batch of them."""
    rule = op.sharding_rule(in_types, (out,), params)
    left, right = ({f for dim in rule.inputs[i] for f in dim} for i in range(2))
    batch = m = n = 1
    for size, dim in zip(out.shape, rule.outputs[0], strict=True):
        if left & set(dim) and right & set(dim):
            batch *= size
        elif right & set(dim):
            n *= size
        else:
            m *= size
    kept_factors = {f for dim in rule.outputs[0] for f in dim}
    k = math.prod(
        [size for size, dim in zip(in_types[1].shape, rule.inputs[1], strict=True) if not kept_factors & set(dim)]
    )
    base, inner, _ = unwrap_op(op, params)
    if base.grouped is None:
        return ProductSizes(batch, m, n, k)
    return ProductSizes(*_per_group(base.grouped.groups(in_types, inner), batch, m, k, n))


def _per_group(groups: Groups, batch: float, m: int, k: int, n: int) -> tuple[float, int, int, int]:
    """Batch, m, n and k of a product for each group, if these have equal parts of the rows, or of what is summed.

    Those given are of a product of all rows with all groups that the device has: these are counted in k, or where each has a result in m.
    """
    whole = k if groups.results else m
    each = max(1, whole // groups.total)
    batch *= groups.own * whole / (groups.total * each)
    return (batch, m // groups.own, n, each) if groups.results else (batch, each, n, k // groups.own)
