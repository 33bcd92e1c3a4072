"""`shardwise.core`: the types behind arrays, for programs that ask what they were given."""

from typing import Any

from shardwise.ir import ShapedArray as ShapedArray
from shardwise.ir import Tracer as Tracer
from shardwise.ops.convert import as_value

__all__ = ["ShapedArray", "Tracer", "get_aval"]


def get_aval(x: Any) -> ShapedArray:
    """The type (shape, dtype, weak_type) of an array, tracer, or host value; TypeError for anything else."""
    return as_value(x).aval
