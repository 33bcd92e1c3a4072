"""`einsum`: sums of products, also along a path that opt_einsum has found."""

from collections.abc import Callable, Sequence
from typing import Any

from shardwise import lax
from shardwise.ir import Array
from shardwise.numpy import einsum as einsum
from shardwise.numpy import einsum_path as einsum_path


def _einsum(  # pyright: ignore[reportUnusedFunction]  # libraries call it
    operands: Sequence[Any],
    contractions: Sequence[tuple[Sequence[int], Any, str]],
    precision: Any,
    preferred_element_type: Any,
    _dot_general: Callable[..., Array] = lax.dot_general,
    out_sharding: Any = None,
) -> Array:
    """The steps of a path in turn: each takes operands from the list by their places, and its result goes to the end."""
    left = list(operands)
    for number, (places, _, subscripts) in enumerate(contractions, 1):
        taken = [left.pop(place) for place in places]
        left.append(
            einsum(
                subscripts,
                *taken,
                precision=precision,
                preferred_element_type=preferred_element_type,
                _dot_general=_dot_general,
                out_sharding=out_sharding if number == len(contractions) else None,
            )
        )
    return left[0]
