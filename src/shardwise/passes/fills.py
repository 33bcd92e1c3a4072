"""Fills: arrays whose elements are all one scalar. Every device makes its part itself, so none is ever sent.

    zeros rolled, sliced or padded with zeros        the same zeros
    the negative of ones                             the scalar -1, spread out where it is read
    windows that are larger than their array         no elements: nothing is computed, or fetched from neighbours

Comes in: an equation. Goes out: views that fill, and for elementwise ops the equation on the scalars.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from shardwise.base.dtypes import is_key_dtype
from shardwise.ir import Atom, Box, Equation, Literal, Var, calls_user, literal, unwrap_op
from shardwise.passes.views import PlacedValue, View, compose, spread

if TYPE_CHECKING:
    from shardwise.passes.partition import Region


def without_elements(region: Region, eqn: Equation) -> bool:
    """Record results that have no elements as fills. True if all are such, and the op does nothing besides."""
    for var in eqn.outputs:
        if var.aval.size or is_key_dtype(var.aval.dtype):
            return False
    if not eqn.outputs or eqn.op.collective is not None or calls_user(eqn):
        return False
    for var in eqn.outputs:
        region.views[var] = spread(PlacedValue(literal(0, var.aval.dtype), (), ()), var.aval.shape, eqn)
    return True


def moved_fills(region: Region, eqn: Equation, boxes: Sequence[Sequence[Box]], operands: Sequence[View]) -> bool:
    """Record the results of an equation that moves elements as fills, if they are. True if nothing is left to compute."""
    arrays = [v for v in operands if v.shape]
    if not all(v.fills for v in arrays):
        return False
    views = [compose(of, operands, var.aval.shape, eqn) for var, of in zip(eqn.outputs, boxes, strict=True)]
    if not all(v.fills for v in views):
        return False
    region.views.update(zip(eqn.outputs, views, strict=True))
    return bool(arrays)  # a broadcast is computed as it is


def scalar_of(region: Region, atom: Atom) -> Atom | None:
    """The local scalar that fills a value; None if it may have different elements."""
    if isinstance(atom, Literal) or not atom.aval.shape:
        return region.read(atom)[0]
    view = region.views.get(atom)
    return view.parts[0].source.atom if view is not None and view.parts and view.fills else None


def on_scalars(region: Region, eqn: Equation) -> bool:
    """Compute an elementwise equation on scalars if these fill its operands; its result is such a fill."""
    op, _, _ = unwrap_op(eqn.op, eqn.params)
    plain = op.rule is None and op.emit is not None and op.partition is None and not op.multiple_results
    arrays = [a for a in eqn.inputs if isinstance(a, Var) and a.aval.shape]
    if op is not eqn.op or not plain or not arrays or not eqn.outputs[0].aval.size:
        return False
    if not all(a in region.views for a in arrays):
        return False
    scalars = [scalar_of(region, a) for a in eqn.inputs]
    known_scalars = [a for a in scalars if a is not None]
    if len(known_scalars) < len(scalars):
        return False
    (out,) = region.emit(op, known_scalars, dict(eqn.params))
    region.views[eqn.outputs[0]] = spread(PlacedValue(out, (), ()), eqn.outputs[0].aval.shape, eqn)
    return True
