"""Collectives on plain lists, the shared parts of `Collective.exchange`: the devices' results from the devices' operands.

Comes in: one tuple of operands per device, in row-major order of the axes. Goes out: one array per device.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base.shapes import Ndarray
from shardwise.ir.op import Params
from shardwise.runtime.monoids import MONOIDS

Operands = Sequence[Sequence[Ndarray]]


def first_operands(operands: Operands) -> list[Ndarray]:
    """Operand 0 of each device."""
    return [values[0] for values in operands]


def in_groups(values: Sequence[Any], params: Params, fold: Callable[[list[Any]], Sequence[Any]]) -> list[Any]:
    """`fold` applied to the members of each axis_index_group; it gives one result per member."""
    groups = params.get("groups") or (tuple(range(len(values))),)
    results: list[Any] = [None] * len(values)
    for group in groups:
        for member, result in zip(group, fold([values[i] for i in group]), strict=True):
            results[member] = result
    return results


def combine_members(kind: str, members: Sequence[Ndarray]) -> Ndarray:
    """The reduction of arrays by the monoid `kind`, in order."""
    dtype = members[0].dtype
    merge = MONOIDS[kind].function(dtype)
    return functools.reduce(lambda a, b: np.asarray(merge(a, b), dtype), members)


def parts(x: Ndarray, n: int, dim: int, tiled: bool) -> list[Ndarray]:
    """The n parts of `x` along a dim; if not `tiled`, its n entries, without that dim."""
    return np.split(x, n, dim) if tiled else [np.take(x, i, dim) for i in range(n)]
