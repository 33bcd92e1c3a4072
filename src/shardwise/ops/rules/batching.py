"""`vmap` of ops whose params name dims: the same op with the mapped dim in front and every dim number increased by one.

Each rule is an op's `batch`: ``(size, axis_name, values, dims, params) -> (outs, dims)``. An op without such a rule runs inside
the op `vmapped`, which hides it from partitioning, fusion and derivatives; the rules here keep the op visible.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.ir import bind, literal
from shardwise.ir.op import Params, find_op
from shardwise.ops.rules.derivative import do, full_in_front, moved_to_front
from shardwise.sharding import NamedSharding, PartitionSpec

BatchedValues = tuple[list[Any], list[int | None]]
_BOOL = np.dtype(np.bool_)


def up(dims: Sequence[int]) -> tuple[int, ...]:
    """The dim numbers once one more dim is in front."""
    return tuple(d + 1 for d in dims)


def mapped_sharding(sharding: NamedSharding | None, x: Any) -> NamedSharding | None:
    """`sharding` for a result with one more dim in front, sharded as dim 0 of `x`."""
    if sharding is None:
        return None
    marks = {k: set(v) for k in ("unreduced", "reduced") if (v := getattr(sharding.spec, k, None))}
    return NamedSharding(sharding.mesh, PartitionSpec(x.aval.spec[0] or None, *sharding.spec.partitions, **marks))


def in_front(name: str, change: Callable[..., dict[str, Any]]) -> Callable[..., BatchedValues]:
    """The rule of an op with one operand; ``change(size, **params)`` gives the params that differ with the mapped dim in front."""

    def batch(
        size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params
    ) -> BatchedValues:
        (x,), (dim,) = values, dims
        assert dim is not None
        x = moved_to_front(x, dim)
        new_params = {**params, **change(size, **params)}
        if "out_sharding" in new_params:
            new_params["out_sharding"] = mapped_sharding(new_params["out_sharding"], x)
        op = find_op(name)
        outs = bind(op, x, **new_params)
        outs = outs if op.multiple_results else [outs]
        return list(outs), [0] * len(outs)

    return batch


def shift_dims_rule(name: str, *params: str) -> Callable[..., BatchedValues]:
    """The rule of an op whose `params` each name a dim, or a tuple of dims, of its operand."""

    def change(size: int, **given: Any) -> dict[str, Any]:
        return {p: given[p] + 1 if isinstance(given[p], int) else up(given[p]) for p in params}

    return in_front(name, change)


def concatenate(
    size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params
) -> BatchedValues:
    """Every piece has the mapped dim in front."""
    fronts = [full_in_front(size, x, d) for x, d in zip(values, dims, strict=True)]
    return [do.concatenate(*fronts, dimension=params["dimension"] + 1)], [0]


def pad(size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params) -> BatchedValues:
    """The mapped dim is not padded. A mapped padding value is selected afterwards at the padded positions."""
    (x, value), (dim, value_dim) = values, dims
    config = ((0, 0, 0), *params["padding_config"])
    front = full_in_front(size, x, dim)
    if value_dim is None:
        return [do.pad(front, value, padding_config=config)], [0]
    inside = do.broadcast_in_dim(literal(False, _BOOL), shape=front.shape, broadcast_dimensions=(), out_sharding=None)
    outside = do.pad(inside, literal(True, _BOOL), padding_config=config)
    padded_front = do.pad(front, literal(0, x.dtype), padding_config=config)
    everywhere = do.broadcast_in_dim(value, shape=padded_front.shape, broadcast_dimensions=(0,), out_sharding=None)
    return [do.select_n(outside, padded_front, everywhere)], [0]


def sort(size: int, axis_name: Any, values: Sequence[Any], dims: Sequence[int | None], params: Params) -> BatchedValues:
    """Every operand has the mapped dim in front."""
    fronts = [full_in_front(size, x, d) for x, d in zip(values, dims, strict=True)]
    return list(do.sort(*fronts, **{**params, "dimension": params["dimension"] + 1})), [0] * len(values)
