"""Ops that move elements along a dim that the mesh axes do not divide: run them on a longer dim that the axes divide.

    the reverse of 65435 rows of a split value       reverse 65440 rows; the last 65435 are the result, a view

Comes in: an equation whose operands are views. Goes out: views of the operands padded at the end, and slices of the results.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from shardwise.ir import Atom, Equation, Var, literal
from shardwise.ops.shapes.pieces import pad_p, slice_p

_LEAST = 2  # rows per device; with fewer, the rows are gathered


def missing_rows(region: Any, eqn: Equation, dim: int) -> int:
    """The number of rows missing along `dim` for parts of equal size, if the operands are views split there; else 0."""
    axes = _axes(region, eqn, dim)
    n, ways = eqn.inputs[0].aval.shape[dim], math.prod(region.sizes_of(axes))
    return -n % ways if n >= _LEAST * ways else 0


def with_rows_behind(
    region: Any, eqn: Equation, dim: int, fills: Sequence[Any], first: int, run: Callable[[Any, Equation], None]
) -> None:
    """`run` the equation with operands padded at the end by the missing rows, of values `fills`; results begin at row `first`."""
    more, axes = missing_rows(region, eqn, dim), _axes(region, eqn, dim)
    rank = eqn.inputs[0].aval.ndim
    edges = tuple((0, more if d == dim else 0, 0) for d in range(rank))

    def longer(a: Atom) -> Var:
        return Var(a.aval.update(shape=tuple(n + high for n, (_, high, _) in zip(a.aval.shape, edges, strict=True))))

    def layout(v: Atom) -> Any:
        placement = region.placements.get(v, ((),) * rank)
        return tuple(
            axes if d == dim else () if set(axes).intersection(own) else own for d, own in enumerate(placement)
        )

    inputs, outputs = [longer(a) for a in eqn.inputs], [longer(v) for v in eqn.outputs]
    lay = layout(eqn.outputs[0])
    region = region.with_placements(dict.fromkeys([*inputs, *outputs], lay))
    for a, whole, fill in zip(eqn.inputs, inputs, fills, strict=True):
        behind = literal(fill, a.aval.dtype)
        region.usual(Equation(pad_p, (a, behind), (whole,), {"padding_config": edges}, eqn.source))
    run(region, Equation(eqn.op, tuple(inputs), tuple(outputs), eqn.params, eqn.source))
    begin = tuple(first if d == dim else 0 for d in range(rank))
    for whole, v in zip(outputs, eqn.outputs, strict=True):
        limits = tuple(b + n for b, n in zip(begin, v.aval.shape, strict=True))
        cut = {"start_indices": begin, "limit_indices": limits, "strides": None}
        region.usual(Equation(slice_p, (whole,), (v,), cut, eqn.source))


def _axes(region: Any, eqn: Equation, dim: int) -> tuple[str, ...]:
    return next((region.view(a).axes(dim) for a in eqn.inputs if region.is_view(a)), ())
