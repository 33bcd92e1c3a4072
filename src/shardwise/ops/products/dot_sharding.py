"""How a contraction is split over devices: its factors, explicit layouts, and the conditions for unreduced results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.base.errors import ShardingTypeError
from shardwise.ir import ShapedArray
from shardwise.ir.explicit import elementwise_error, type_error
from shardwise.ir.op import Params, Types
from shardwise.ir.types import Spec
from shardwise.runtime.products import DotDims
from shardwise.sharding import NamedSharding
from shardwise.sharding.rule import Kind, Rule


def free_dims(dims: DotDims, lhs_ndim: int, rhs_ndim: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The dims of lhs and of rhs that are neither contracted nor batch dims."""
    (lhs_con, rhs_con), (lhs_batch, rhs_batch) = dims
    return (
        tuple(d for d in range(lhs_ndim) if d not in lhs_con and d not in lhs_batch),
        tuple(d for d in range(rhs_ndim) if d not in rhs_con and d not in rhs_batch),
    )


def dot_rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    """Batch dims pass through all three tensors, free dims through two; contracted dims are reductions.

    Where both sides' free dims want the same axis, it goes to the larger side, and of equal ones to lhs (`rhs_first`: rhs).
    """
    lhs, rhs = in_types
    (lhs_con, rhs_con), (lhs_batch, rhs_batch) = params["dimension_numbers"]
    lhs_free, rhs_free = free_dims(params["dimension_numbers"], lhs.ndim, rhs.ndim)
    left, right = [0] * lhs.ndim, [0] * rhs.ndim
    sizes: list[int] = []

    def factor(d: int | None, e: int | None) -> None:
        """One more factor: dim d of lhs and dim e of rhs."""
        if d is not None:
            left[d] = len(sizes)
        if e is not None:
            right[e] = len(sizes)
        sizes.append(lhs.shape[d] if d is not None else rhs.shape[e] if e is not None else 1)

    for d, e in zip(lhs_batch, rhs_batch, strict=True):
        factor(d, e)
    for d in lhs_free:
        factor(d, None)
    for e in rhs_free:
        factor(None, e)
    for d, e in zip(lhs_con, rhs_con, strict=True):
        factor(d, e)
    factors = lambda entries: tuple((f,) if sizes[f] != 1 else () for f in entries)  # noqa: E731
    kept_count = len(sizes) - len(lhs_con)
    kinds = (Kind.PASS,) * kept_count + (Kind.REDUCE,) * len(lhs_con)
    favored_operand = 1 if params.get("rhs_first") else None
    return Rule(
        (factors(left), factors(right)), (factors(range(kept_count)),), tuple(sizes), kinds, favored=favored_operand
    )


def dot_explicit(in_types: Types, out_types: Types, params: Any, rule: Rule) -> tuple[Spec, ...]:
    """Batch dims must agree; a dim contracted over the same axes on both sides needs `out_sharding`."""
    lhs, rhs = in_types
    if params["out_sharding"] is not None:
        return (((),) * out_types[0].ndim,)  # the type rule puts in what was asked for
    (lhs_con, rhs_con), (lhs_batch, rhs_batch) = params["dimension_numbers"]
    for what, left, right in (("batch", lhs_batch, rhs_batch), ("contracting", lhs_con, rhs_con)):
        specs = tuple(_names(lhs, left)), tuple(_names(rhs, right))
        if any(a and b and a != b for a, b in zip(*specs, strict=True)):
            raise elementwise_error(
                f"dot_general requires lhs and rhs {what} dimensions to have consistent sharding, got "
                f"{specs[0]} and {specs[1]}. Reshard one operand, or give out_sharding=."
            )
    specs = tuple(_names(lhs, lhs_con)), tuple(_names(rhs, rhs_con))
    if any(a and b for a, b in zip(*specs, strict=True)):
        raise type_error(
            "Contracting dimensions are sharded and it is ambiguous how the output should be sharded: summed over the devices "
            "(P with None or other axes there) or left as partial sums. Please specify the output sharding via the "
            f"`out_sharding` parameter. Got lhs_contracting_spec={specs[0]} and rhs_contracting_spec={specs[1]}"
        )
    lhs_free, rhs_free = free_dims(params["dimension_numbers"], lhs.ndim, rhs.ndim)
    return ((*(lhs.spec[d] for d in lhs_batch), *(lhs.spec[d] for d in lhs_free), *(rhs.spec[d] for d in rhs_free)),)


def _names(t: ShapedArray, dims: Sequence[int]) -> tuple[Any, ...]:
    """The spec entries of some dims as users write them."""
    return tuple(None if not t.spec[d] else t.spec[d][0] if len(t.spec[d]) == 1 else t.spec[d] for d in dims)


def dot_localize(params: Params, in_types: Types, out_types: Types) -> Params:
    """The params of the product on one device, whose result has no layout."""
    return {**params, "out_sharding": None}


def with_mapped_dim(sharding: NamedSharding | None, at: int, *operands: tuple[Any, int | None]) -> NamedSharding | None:
    """The layout that is asked for a result which vmap gives one more dim, `at`: split as the mapped dim of an operand is.

    `operands`: each with its mapped dim, None without one.
    """
    if sharding is None:
        return None
    axes = next((split_axes for x, d in operands if d is not None and (split_axes := x.aval.spec[d])), None)
    entries = list(sharding.spec.partitions)
    entries.insert(at, axes)
    return NamedSharding(sharding.mesh, sharding.spec.update(partitions=entries))


def check_unreduced(sharding: NamedSharding, lhs: ShapedArray, rhs: ShapedArray, dims: DotDims) -> None:
    """Partial sums can be asked for over exactly the axes that split the contracted dims of both operands."""
    unreduced_axes = sharding.spec.unreduced
    if not unreduced_axes:
        return
    specs = _names(lhs, dims[0][0]), _names(rhs, dims[0][1])
    axes = frozenset(a for d in dims[0][0] for a in lhs.spec[d])
    if specs[0] != specs[1] or axes != unreduced_axes:
        raise ShardingTypeError(
            f"out_sharding asks for a result unreduced over {sorted(unreduced_axes)}, for which the contracting dims of both "
            f"operands must be split over exactly these axes; got lhs_contracting_spec={specs[0]} and "
            f"rhs_contracting_spec={specs[1]}."
        )
