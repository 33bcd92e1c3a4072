"""`lax.scaled_dot`: products of matrices whose blocks along the contracted dims share a scale."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from shardwise.base.dtypes import check_requested
from shardwise.ir import Array
from shardwise.ops.elementwise.binary import mul
from shardwise.ops.elementwise.casts import convert_element_type
from shardwise.ops.products.contract import dot_general
from shardwise.ops.rules.convert import as_array
from shardwise.ops.shapes.broadcast import broadcast_in_dim
from shardwise.ops.shapes.reshape import reshape

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def scaled_dot(
    lhs: Any,
    rhs: Any,
    *,
    lhs_scale: Any = None,
    rhs_scale: Any = None,
    dimension_numbers: Any = None,
    preferred_element_type: Any = None,
) -> Array:
    """``dot_general(lhs * lhs_scale, rhs * rhs_scale)`` with operands and scales rounded to bfloat16.

    Args:
        lhs_scale: has the dims of `lhs`; the size of a contracted dim divides that of `lhs`, and each entry scales a block.
        rhs_scale: the same for `rhs`.
        dimension_numbers: as of `dot_general`; by default the products of the last two dims, the others being batch dims.
        preferred_element_type: the result's dtype, bfloat16 by default.

    TypeError where ranks or sizes do not fit.

    >>> a, scale = jnp.ones((2, 4), jnp.bfloat16), jnp.full((2, 1), 2.0, jnp.bfloat16)
    >>> lax.scaled_dot(a, jnp.ones((4, 3), jnp.bfloat16), lhs_scale=scale).shape
    (2, 3)
    """
    a, b = as_array(lhs), as_array(rhs)
    wanted_dtype = (
        _BFLOAT16 if preferred_element_type is None else check_requested(preferred_element_type, "scaled_dot")
    )
    if dimension_numbers is None:
        if a.ndim < 2:
            raise TypeError(f"scaled_dot takes operands with at least 2 dims, got shape {a.shape}.")
        batch = tuple(range(a.ndim - 2))
        dimension_numbers = (((a.ndim - 1,), (a.ndim - 2,)), (batch, batch))
    (a_contracted, b_contracted), (a_batch, b_batch) = dimension_numbers
    if a.ndim != b.ndim or len(a_batch) != len(b_batch) or len(a_contracted) != len(b_contracted):
        raise TypeError(
            f"scaled_dot takes operands of one rank with as many batch and contracted dims, got shapes {a.shape} and "
            f"{b.shape} with dimension_numbers={dimension_numbers}."
        )
    a = _apply_scale("lhs", a, lhs_scale, a_contracted)
    b = _apply_scale("rhs", b, rhs_scale, b_contracted)
    return dot_general(a, b, dimension_numbers, preferred_element_type=wanted_dtype)


def _apply_scale(name: str, x: Array, scale: Any, contracted: Sequence[int]) -> Array:
    """`x` times its scale, each entry of which is repeated along the contracted dims."""
    x = convert_element_type(x, _BFLOAT16)
    if scale is None:
        return x
    s = convert_element_type(as_array(scale), _BFLOAT16)
    fits = s.ndim == x.ndim and all(
        m and n % m == 0 if d in contracted else n == m for d, (n, m) in enumerate(zip(x.shape, s.shape, strict=False))
    )
    if not fits:
        raise TypeError(
            f"scaled_dot: {name}_scale of shape {s.shape} does not fit {name} of shape {x.shape}: contracted dims "
            f"{tuple(contracted)} are to be multiples, the others equal."
        )
    for d in contracted:
        blocks = (*s.shape[: d + 1], x.shape[d] // s.shape[d], *s.shape[d + 1 :])
        spread = broadcast_in_dim(s, blocks, [i if i <= d else i + 1 for i in range(s.ndim)])
        s = reshape(spread, (*s.shape[:d], x.shape[d], *s.shape[d + 1 :]))
    return mul(x, s)
