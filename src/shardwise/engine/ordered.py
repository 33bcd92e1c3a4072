"""Arrays whose dims are in a given order in memory."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from shardwise.engine.array import ArrayImpl
from shardwise.engine.signature import order_named, signature
from shardwise.ops.elementwise.layout_constraint import layout_constraint_p
from shardwise.ops.rules.convert import as_array


def in_order(x: ArrayImpl, order: tuple[int, ...] | None) -> ArrayImpl:
    """`x` with dims from the slowest to the fastest varying in `order`; its elements are copied if they lie otherwise.

    None gives `x` itself.
    """
    if order is None:
        return x
    own = x._sig
    sig = signature(own.aval, own.sharding, own.committed, order_named(order))
    if sig is own and order_named(order) is not None:
        return x
    if own.varies:  # its block stays: nobody reads the order of several copies from their memory
        return ArrayImpl(
            signature(own.aval, own.sharding, own.committed, order_named(order), own.varies),
            block=x.block,
            origin=x._known_origin,
        )
    dense = x.dense
    if dense.ndim:
        inverse = np.argsort(order)
        dense = np.ascontiguousarray(dense.transpose(order)).transpose(inverse)
    return ArrayImpl(sig, dense=dense, origin=x._known_origin)


def checked_order(layout: Any, shape: tuple[int, ...], what: str) -> tuple[int, ...]:
    """The order of a `Layout` for an array of this shape; ValueError if the ranks differ."""
    order = layout.major_to_minor
    if len(order) != len(shape):
        raise ValueError(
            f"One of {what} is incompatible with its layout annotation {layout}: Length of major_to_minor and the rank of the value "
            f"should match. Got major_to_minor={order} and shape={shape}."
        )
    return order


def _constrained_eagerly(x: Any, *, layout: Any) -> ArrayImpl:
    return in_order(cast("ArrayImpl", as_array(x)), layout.major_to_minor)


layout_constraint_p.eager = _constrained_eagerly
