"""`shardwise.interpreters.batching`: how new primitives are mapped."""

from typing import Any

from shardwise import numpy
from shardwise.base.listing import listing as _listing
from shardwise.ops.rules.convert import as_array
from shardwise.ops.rules.derivative import full_in_front as _full_in_front
from shardwise.ops.rules.derivative import moved_to_front as move_to_front
from shardwise.ops.shapes.broadcast import broadcast as _broadcast
from shardwise.ops.shapes.transpose import transpose
from shardwise.transforms.interpreters.batch_trace import BatchTrace as BatchTrace
from shardwise.transforms.interpreters.batch_trace import BatchTracer as BatchTracer
from shardwise.transforms.interpreters.vmappable import is_vmappable as is_vmappable
from shardwise.transforms.interpreters.vmappable import register_vmappable as register_vmappable
from shardwise.transforms.interpreters.vmappable import unregister_vmappable as unregister_vmappable
from shardwise.transforms.programs.primitive_rules import axis_primitive_batchers as axis_primitive_batchers
from shardwise.transforms.programs.primitive_rules import primitive_batchers as primitive_batchers
from shardwise.transforms.programs.primitives import Primitive

not_mapped = None


def bdim_at_front(x: Any, bdim: int | None, size: int) -> Any:
    """`x` with its mapped dim first; a value that has none is repeated."""
    return _full_in_front(size, as_array(x), bdim)


def broadcast(x: Any, sz: int, axis: int) -> Any:
    """`x` repeated along a new dim `axis`."""

    full = _broadcast(x, (sz,))
    order = list(range(1, full.ndim))
    order.insert(axis % full.ndim, 0)
    return transpose(full, tuple(order))


def moveaxis(x: Any, src: int, dst: int) -> Any:
    """`x` with dim `src` at position `dst`."""
    return numpy.moveaxis(x, src, dst)


def defvectorized(prim: Primitive) -> None:
    """The primitive applies elementwise to one operand: its mapped dim stays where it is."""

    def rule(args: Any, dims: Any, **params: Any) -> Any:
        return prim.bind(*args, **params), dims[0]

    primitive_batchers[prim] = rule


def defbroadcasting(prim: Primitive) -> None:
    """The primitive applies elementwise to several operands: mapped dims come first, sizes of 1 broadcast."""

    def rule(args: Any, dims: Any, **params: Any) -> Any:
        size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
        return prim.bind(*[bdim_at_front(x, d, size) for x, d in zip(args, dims, strict=True)], **params), 0

    primitive_batchers[prim] = rule


__all__ = [
    "BatchTrace", "BatchTracer", "axis_primitive_batchers", "bdim_at_front", "broadcast", "defbroadcasting", "defvectorized",
    "is_vmappable", "move_to_front", "moveaxis", "not_mapped", "primitive_batchers", "register_vmappable", "unregister_vmappable",
]  # fmt: skip

__dir__ = _listing(__name__)
