"""Values made where they are needed: what follows from whole values alone is computed again there, which sends nothing.

    i = iota()               split over x, as its reader is
    sort(bits, i)            needs all of it on each device: a second iota, not a gather

Comes in: a value whose layout has to change. Goes out: the same value in the new layout, if positions, random numbers of a key and the
like are all that it is made of. `simplify` merges what is computed twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardwise.ir import Atom, Equation, Literal, Var, calls_user, subprograms
from shardwise.passes.grid import DimAxes
from shardwise.sharding.rule import Kind

if TYPE_CHECKING:
    from shardwise.passes.partition import Region

MOST_EQUATIONS = 32


def remade(region: Region, var: Var, want: DimAxes) -> Atom | None:
    """`var` in layout `want`, computed from whole values smaller than itself; None if other values are needed."""
    needed: dict[Equation, None] = {}
    if not _collect(region, var, var.aval.size, needed):
        return None
    copies: dict[Atom, Var] = {v: Var(v.aval) for eqn in needed for v in eqn.outputs}
    inner = region.placing({new: want for old, new in copies.items() if old.aval.shape == var.aval.shape})
    for eqn in needed:
        inputs = tuple([copies.get(a, a) for a in eqn.inputs])
        outputs = tuple([copies[v] for v in eqn.outputs])
        outer, inner.current = inner.current, eqn
        inner.equation(Equation(eqn.op, inputs, outputs, eqn.params, eqn.source))
        inner.current = outer
    local, have = inner.read(copies[var])
    return inner.reshard(local, have, want, var.aval)


def _collect(region: Region, atom: Atom, size: int, needed: dict[Equation, None]) -> bool:
    """Add the equations that make `atom`, in order; False if values are needed that are split, or not smaller than `size`."""
    if isinstance(atom, Literal):
        return True
    layout = region.layout(atom)
    if layout is not None and not any(layout) and atom.aval.size < size:
        return True
    eqn = region.makers.get(atom)
    if eqn is None or not _makes_anywhere(eqn) or len(needed) >= MOST_EQUATIONS:
        return False
    if not all([_collect(region, a, size, needed) for a in eqn.inputs]):
        return False
    needed[eqn] = None
    return True


def _makes_anywhere(eqn: Equation) -> bool:
    """Whether any device can compute any part of an equation's results from whole operands."""
    op = eqn.op
    if op.collective is not None or op.has_effects(eqn.params):
        return False
    if calls_user(eqn) or op.multiple_results or any(True for _ in subprograms(eqn.params)):
        return False
    types = tuple([a.aval for a in eqn.inputs])
    rule = op.sharding_rule(types, tuple([v.aval for v in eqn.outputs]), eqn.params)
    return all(kind is Kind.PASS for kind in rule.kinds)
