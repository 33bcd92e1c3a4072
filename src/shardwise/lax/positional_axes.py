"""Collectives that reduce over names of axes, positions of dims, or both: `psum(x, ('i', 0))`.

A position is a dim of the operand, and goes from its shape. It is reduced first, so that less is sent.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base.dtypes import to_inexact
from shardwise.base.tree import tree_map
from shardwise.ir import Array, literal
from shardwise.ops.devices import parallel
from shardwise.ops.elementwise.binary import div
from shardwise.ops.elementwise.casts import convert_element_type
from shardwise.ops.reductions.reduce import reduce_max, reduce_min, reduce_sum
from shardwise.ops.rules.dims import dim_indices
from shardwise.ops.rules.operands import Value, operand

__all__ = ["pmax", "pmean", "pmin", "psum"]


def _with_positions(collective: Callable[..., Any], reduced: Callable[[Value, tuple[int, ...]], Array]) -> Any:
    """`collective`, which takes names, made to take positions too; `reduced` is the same reduction over dims."""
    name = collective.__name__

    @functools.wraps(collective)
    def over_axes(x: Any, axis_name: Any, *, axis_index_groups: Any = None) -> Any:
        axes = tuple(axis_name) if isinstance(axis_name, tuple | list) else (axis_name,)
        positions = tuple([a for a in axes if isinstance(a, int)])
        if not positions:
            return collective(x, axis_name, axis_index_groups=axis_index_groups)
        if axis_index_groups is not None:
            raise ValueError(f"{name}: axis_index_groups go with names of axes alone, got axes {axes}.")

        def here(leaf: Any) -> Array:
            value = operand(name, leaf)
            return reduced(value, dim_indices(positions, value.ndim, name))

        names = tuple([a for a in axes if not isinstance(a, int)])
        local = tree_map(here, x)
        return collective(local, names) if names else local

    return over_axes


def _sum(x: Value, dims: tuple[int, ...]) -> Array:
    return reduce_sum(convert_element_type(x, np.dtype(np.int32)) if x.dtype == np.bool_ else x, dims)


def _mean(x: Value, dims: tuple[int, ...]) -> Array:
    total = _sum(x, dims)
    total = convert_element_type(total, to_inexact(total.dtype))
    return div(total, literal(math.prod([x.shape[d] for d in dims]), total.dtype, weak_type=True))


psum = _with_positions(parallel.psum, _sum)
pmean = _with_positions(parallel.pmean, _mean)
pmax = _with_positions(parallel.pmax, reduce_max)
pmin = _with_positions(parallel.pmin, reduce_min)
