"""Values made where they are needed: what follows from whole values alone is computed again there, which sends nothing.

    i = iota()               split over x, as its reader is
    sort(bits, i)            needs all of it on each device: a second iota, not a gather

    t = x[tokens]            reads all of x, which was gathered for it; t is split as `tokens` are
    y.at[rows].set(t)        needs all of t on each device: a second look into x, not a gather of t

Comes in: a value whose layout has to change. Goes out: the same value in the new layout, if positions, random numbers of a key and the
like are all that it is made of, or if it is wanted whole and values that every device holds already are. `simplify` merges what is computed
twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shardwise.base.shapes import DimAxes
from shardwise.ir import Atom, Equation, Literal, Var, calls_user, subprograms
from shardwise.passes.moves import copy_of
from shardwise.runtime import costs
from shardwise.sharding.rule import Kind

if TYPE_CHECKING:
    from shardwise.passes.partition import Region


def remake_value(region: Region, var: Var, want: DimAxes) -> Atom | None:
    """`var` in layout `want`, computed from values that each device holds whole; None if other values are needed."""
    recipe = _equations_needed(region, var, want)
    if recipe is None:
        return None
    needed_equations, held_atoms = recipe
    copies: dict[Atom, Var] = {
        v: Var(v.aval) for v in (*held_atoms, *[v for eqn in needed_equations for v in eqn.outputs])
    }
    inner = region.with_placements({new: want for old, new in copies.items() if old.aval.shape == var.aval.shape})
    for old, atom in held_atoms.items():
        inner.define(copies[old], atom, ((),) * old.aval.ndim)
    for eqn in needed_equations:
        inputs = tuple([copies.get(a, a) for a in eqn.inputs])
        outputs = tuple([copies[v] for v in eqn.outputs])
        outer, inner.current = inner.current, eqn
        inner.equation(Equation(eqn.op, inputs, outputs, eqn.params, eqn.source))
        inner.current = outer
    local, have = inner.read(copies[var])
    return inner.reshard(local, have, want, var.aval)


def is_remade(region: Region, var: Var, want: DimAxes) -> bool:
    """Whether `remake_value` makes anything of a value."""
    return _equations_needed(region, var, want) is not None


def _equations_needed(region: Region, var: Var, want: DimAxes) -> tuple[dict[Equation, None], dict[Atom, Atom]] | None:
    """The equations that make `var` from whole values, and by split value the local atom that is all of it."""
    needed_equations: dict[Equation, None] = {}
    held_atoms: dict[Atom, Atom] = {}
    return (
        (needed_equations, held_atoms)
        if _collect(region, var, var.aval.size, needed_equations, held_atoms, whole=not any(want))
        else None
    )


def _collect(
    region: Region, atom: Atom, size: int, needed: dict[Equation, None], held: dict[Atom, Atom], whole: bool
) -> bool:
    """Add the equations that make `atom`, in order; False if other values are needed.

    These are whole ones smaller than `size`, and, to make a `whole` value, split ones of which each device has all.
    """
    if isinstance(atom, Literal):
        return True
    layout = region.layout(atom)
    if layout is not None and not any(layout) and (whole or atom.aval.size < size):
        return True
    if whole and (copy := _whole_copy(region, atom)) is not None:
        held[atom] = copy
        return True
    eqn = region.makers.get(atom)
    if eqn is None or eqn in needed:
        return eqn is not None
    if len(needed) >= costs.REMADE_EQUATIONS or not _is_made_anywhere(region, eqn, whole):
        return False
    if not all([_collect(region, a, size, needed, held, whole) for a in eqn.inputs]):
        return False
    needed[eqn] = None
    return True


def _whole_copy(region: Region, atom: Atom) -> Atom | None:
    """The local atom that is all of a value that is laid out split."""
    return None if region.layout(atom) is None else whole_copy(region, region.read(atom)[0], atom.aval.shape)


def whole_copy(region: Region, local: Atom, shape: tuple[int, ...]) -> Atom | None:
    """The local atom that is all of a value: gathered for another reader, or what the part was cut from; None if there is none."""
    copy = copy_of(region, local, ((),) * len(shape), shape)
    if copy is not None:
        return copy
    source, dims = region.sliced.get((local, shape), (None, ()))
    return None if any(dims) else source


def _is_made_anywhere(region: Region, eqn: Equation, whole: bool) -> bool:
    """`_makes_anywhere`, asked once for equal equations."""
    key = eqn.op, id(eqn.params), whole, tuple([a.aval for a in eqn.inputs]), tuple([v.aval for v in eqn.outputs])
    answers = region.known.anywhere
    known_answer = answers.get(key)
    if known_answer is None:
        known_answer = answers[key] = eqn.params, _makes_anywhere(eqn, whole)
    return known_answer[1]


def _makes_anywhere(eqn: Equation, whole: bool) -> bool:
    """Whether any device can soon compute any part of an equation's results from whole operands; if it is wanted `whole`, all of it."""
    op = eqn.op
    if op.collective is not None or op.has_effects(eqn.params):
        return False
    if calls_user(eqn) or op.multiple_results or any(True for _ in subprograms(eqn.params)):
        return False
    types = tuple([a.aval for a in eqn.inputs])
    rule = op.sharding_rule(types, tuple([v.aval for v in eqn.outputs]), eqn.params)
    looks_up = whole and op.indexed is not None and not op.updates
    result_factors = {f for dim in rule.outputs[0] for f in dim} if looks_up else set(range(len(rule.kinds)))
    return all(rule.kinds[f] is Kind.PASS for f in result_factors)
