"""Sharding rules that collectives share: the dims that keep their sharding over Auto axes."""

from __future__ import annotations

from collections.abc import Callable

from shardwise.ir.op import Params, Types
from shardwise.sharding.rule import Kind, Rule


def same_dims(in_types: Types, out_types: Types, params: Params) -> Rule:
    """Each dim of operand i keeps its sharding in result i."""
    shapes = [t.shape for t in in_types]
    inputs, sizes = [], []
    for shape in shapes:
        inputs.append(tuple((len(sizes) + i,) if n != 1 else () for i, n in enumerate(shape)))
        sizes.extend(shape)
    return Rule(tuple(inputs), tuple(inputs), tuple(sizes), (Kind.PASS,) * len(sizes))


def moved_dim_rule(changed: Callable[[Params], tuple[int, ...]]) -> Callable[[Types, Types, Params], Rule]:
    """Dims named by `changed` (of the operand, if tiled) must be whole over Auto axes; the others keep their sharding."""

    def rule(in_types: Types, out_types: Types, params: Params) -> Rule:
        (x,), (out,) = in_types, out_types
        if x.ndim == out.ndim:
            fixed_dims = set(changed(params))
            dims = tuple((d,) if n != 1 and d not in fixed_dims else () for d, n in enumerate(x.shape))
            return Rule((dims,), (dims,), tuple(x.shape), (Kind.PASS,) * x.ndim)
        none = lambda t: ((),) * t.ndim  # noqa: E731
        return Rule((none(x),), (none(out),), (), ())

    return rule
