"""What the distributions take: real numbers, promoted to one floating dtype and broadcast to one shape."""

from __future__ import annotations

from typing import Any

from shardwise.ir import Array
from shardwise.numpy._promote import broadcast_shapes, broadcast_to_shape, is_complex, promote_to_inexact


def real(name: str, *xs: Any) -> list[Array]:
    """The arguments of the function called `name`; ValueError for complex ones."""
    promoted = promote_to_inexact(name, *xs)
    if is_complex(promoted[0].dtype):
        raise ValueError(f"{name} is about real numbers; it got complex ones.")
    shape = broadcast_shapes(*(x.shape for x in promoted))
    return [broadcast_to_shape(x, shape) for x in promoted]
