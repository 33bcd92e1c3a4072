"""The equations that small programs can hold, and how they write them.

Comes in: an equation of a per-device program. Goes out: whether a small program can hold it (`writable`), and the `SmallForm` of its op:
declared by the op, or derived from its other fields.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from shardwise.base.dtypes import is_key_dtype
from shardwise.ir import Branches, Equation, Loop, Op, Program, SmallForm, Spread, Var, is_update, region_of
from shardwise.runtime import costs
from shardwise.runtime.fused import takes_type
from shardwise.runtime.loops import dtype_name
from shardwise.runtime.machine import TYPES
from shardwise.runtime.small import control, moves
from shardwise.runtime.small.code import Value
from shardwise.runtime.small.cost import small_cost
from shardwise.runtime.small.in_place import branch_updates, carry_updates
from shardwise.runtime.small.leads import axes_reduced, entry_of

if TYPE_CHECKING:
    from shardwise.runtime.small.body import BodyWriter


def form_of(op: Op) -> SmallForm | None:
    """The form of an op that is neither elementwise nor a reduction."""
    if op.small is not None:
        return op.small
    if op.region is not None:
        return _REGION
    if op.hands_on:
        return _HANDED_ON
    if (op.view and op.collective is None) or (op.emit is not None and op.emit.moves):
        return _VIEW
    return None


def writable(eqn: Equation, spread: Spread, in_place: bool = False, largest: int = costs.SMALL_LARGEST) -> bool:
    """Whether an equation can be part of a small program on such devices; `in_place`: its result is no new value; `largest`: elements
    of a value on all devices.
    """
    op = eqn.op
    form = form_of(op)
    if (form is None and op.fold is None and op.emit is None) or op.has_effects(eqn.params):
        return False
    if any(dtype_name(a.aval) not in TYPES or not a.aval.size for a in (*eqn.inputs, *eqn.outputs)):
        return False
    if not (in_place or isinstance(region_of(eqn), Loop) or _modest(eqn, form, spread, largest)):
        return False
    if form is _REGION:
        return _region_fits(eqn, spread, largest)
    return form is None or form.fits is None or form.fits(eqn, spread)


def _reads_little(eqn: Equation, spread: Spread) -> bool:
    """Whether no operand is large, but for those of which the op takes a part."""
    parts = 1 if eqn.op.extracts or is_update(eqn) or eqn.op.view else 0
    return region_of(eqn) is not None or all(
        spread.elements(a.aval) <= costs.SMALL_LARGEST_READ for a in eqn.inputs[parts:]
    )


def _modest(eqn: Equation, form: SmallForm | None, spread: Spread, largest: int) -> bool:
    """Whether dtypes are known to the op's emitter, and results are small."""
    if any(spread.elements(v.aval) > largest for v in eqn.outputs) or not _reads_little(eqn, spread):
        return False
    if form is not None:
        return all(spread.elements(v.aval) <= costs.SMALL_LARGEST for v in eqn.outputs) or not _turns(eqn)
    fold, emit = eqn.op.fold, eqn.op.emit
    if fold is not None:
        x, axes = eqn.inputs[0].aval, eqn.params["axes"]
        crossed = axes_reduced(eqn)
        if spread.elements(x) > largest or (fold.positions and (len(axes) != 1 or crossed)):
            return False
        return takes_type(x, fold.kinds)
    assert emit is not None
    if not all(
        takes_type(a.aval, emit.kinds) or ("k" in emit.kinds and is_key_dtype(a.aval.dtype)) for a in eqn.inputs
    ):
        return False
    # Vector code would round a result of float64 to float32 before it becomes float16.
    narrow = dtype_name(eqn.outputs[0].aval) in ("float16", "bfloat16")
    return not (narrow and any(dtype_name(a.aval) == "float64" for a in eqn.inputs))


def _turns(eqn: Equation) -> bool:
    """Whether the op gives a view whose dims lie in another order: of a large value each element is then in a cache line of its own."""
    if not eqn.op.view or len(eqn.inputs) != 1:
        return False
    rule = eqn.op.sharding_rule((eqn.inputs[0].aval,), (eqn.outputs[0].aval,), eqn.params)
    before, after = ([f for dim in dims for f in dim] for dims in (rule.inputs[0], rule.outputs[0]))
    places = [before.index(f) for f in after if f in before]
    return places != sorted(places)


# -- equations that hold programs ----------------------------------------------------------------------------------------------


def _region_fits(eqn: Equation, spread: Spread, largest: int) -> bool:
    region = region_of(eqn)
    if isinstance(region, Branches):
        return not eqn.inputs[0].aval.vma and _branches_fit(region, eqn, spread, largest)
    assert region is not None
    if region.length == 0 or (region.test is not None and region.test.out_types[0].vma):
        return False
    return _carry_fits(region, spread)


def _branches_fit(branches: Branches, eqn: Equation, spread: Spread, largest: int) -> bool:
    """Whether the values of branches are small, but for those that update a large operand."""
    large = [k for k, v in enumerate(eqn.outputs) if spread.elements(v.aval) > largest]
    found = [branch_updates(branches, k, spread) for k in large]
    touched = {v for f in found if f is not None for chain in f[1] for v in chain}
    return all(_body_fits(p, spread, touched, largest) for p in branches.programs)


def _carry_fits(loop: Loop, spread: Spread) -> bool:
    """Whether the carries are small."""
    body, first = loop.body, loop.num_consts
    touched = {v for chain in carry_updates(loop, spread) for v in chain}  # in windows only
    largest = costs.SMALL_LARGEST_IN_LIGHT_LOOPS if _is_light(loop, spread) else costs.SMALL_LARGEST_IN_LOOPS
    for v in (*body.inputs[first : first + loop.num_carry], *body.outputs):
        if spread.elements(v.aval) > largest and v not in touched:
            return False
    return all(_body_fits(p, spread, touched, largest) for p in loop.programs)


def _is_light(loop: Loop, spread: Spread) -> bool:
    """Whether a round has few additions, and no loop inside."""
    inside = any(isinstance(region_of(e), Loop) for p in loop.programs for e in p.equations)
    return not inside and sum(small_cost(p, spread) for p in loop.programs) <= costs.SMALL_LIGHT


def _body_fits(
    program: Program, spread: Spread, touched: Collection[Var] = (), largest: int = costs.SMALL_LARGEST
) -> bool:
    return all(writable(e, spread, any(v in touched for v in e.outputs), largest) for e in program.equations)


def mapped_fits(eqn: Equation, spread: Spread) -> bool:
    """`SmallForm.fits` of an op under `vmap`: the op's own, on one entry of the mapped operands."""
    inner: Op = eqn.params["mapped_op"]
    if inner.small is None or not inner.small.mapped:
        return False
    one = replace(spread, entries=spread.entries * eqn.params["size"])
    return writable(entry_of(eqn), one, is_update(eqn))  # the whole's size is asked of `eqn`


def _hand_on(body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Sequence[Value | None]) -> list[Value]:
    """The operands, which are the results."""
    return list(values)


_REGION = SmallForm(control.region)
_VIEW = SmallForm(moves.view)
_HANDED_ON = SmallForm(_hand_on)
