"""How an equation can run: what a compiler may do with it follows from the fields of its op.

In: an equation. Out: its `Role`. No op is known by name here.
"""

from __future__ import annotations

from enum import Enum, auto

from shardwise.base.caches import recent
from shardwise.ir import Branches, Equation, Op, region_of, unwrap_op
from shardwise.ir.op import Params
from shardwise.ops.elementwise.elementwise_ir import IDENTITY
from shardwise.sharding.rule import Kind


class Role(Enum):
    """The role of an equation in fusion."""

    VIEW = auto()  # its result is its operand, seen otherwise
    BARRIER = auto()  # its results are its operands, and nothing is fused across it
    # Each element of its result follows from few elements of operands: it can be computed wherever it is read.
    LIGHT = auto()
    FOLD = auto()  # a reduction: reads light values while they are computed
    PRODUCT = auto()
    COLLECTIVE = auto()
    LOOP = auto()
    BRANCHES = auto()
    UPDATE = auto()  # writes into operand 0 where that dies
    OFFLOAD = auto()  # copies to the host's memory
    OTHER = auto()  # reads and writes memory


def role_of(eqn: Equation) -> Role:
    """The role of an equation."""
    always = role_of_op(eqn.op)
    return _role_of(eqn) if always is None or len(eqn.outputs) != 1 else always


@recent()
def role_of_op(op: Op) -> Role | None:
    """The role of all equations of an op with one result, None where that follows from params or types."""
    depends = (op.region, op.collective, op.memory_kind, op.fold)
    if (
        any(field is not None for field in depends)
        or op.hands_on
        or op.local
        or op.effects
        or op.calls_user
        or op.updates
    ):
        return None
    if op.product:
        return Role.PRODUCT
    if op.emit is IDENTITY:
        return Role.VIEW
    return Role.LIGHT if op.emit is not None and not op.view else None


def _role_of(eqn: Equation) -> Role:
    region = region_of(eqn)
    if region is not None:
        return Role.BRANCHES if isinstance(region, Branches) else Role.LOOP
    op, params, _ = unwrap_op(eqn.op, eqn.params)
    if op.product:
        return Role.PRODUCT
    if op.collective is not None:
        return _role_of_collective(op, params, eqn)
    kind = memory_kind_of(eqn)
    if kind is not None:
        return Role.OTHER if kind == "device" else Role.OFFLOAD
    if op.hands_on:
        return Role.BARRIER if op.multiple_results else Role.VIEW
    if op.fold is not None:
        same = len(eqn.outputs) == 1 and eqn.inputs[0].aval.size == eqn.outputs[0].aval.size
        return Role.VIEW if same and eqn.inputs[0].aval.dtype == eqn.outputs[0].aval.dtype else Role.FOLD
    if op.local or op.effects or op.calls_user or (len(eqn.outputs) != 1 and op.boxes is None):
        return Role.OTHER
    if op.updates:
        return Role.UPDATE
    return _role_of_move(op, params, eqn)


def memory_kind_of(eqn: Equation) -> str | None:
    """The kind of memory to which an equation copies its operand; None if it does not say so."""
    op, params, _ = unwrap_op(eqn.op, eqn.params)
    return None if op.memory_kind is None else op.memory_kind(params)


def _role_of_collective(op: Op, params: Params, eqn: Equation) -> Role:
    assert op.collective is not None
    if op.collective.counted and op.exchange_axes(params):
        return Role.COLLECTIVE
    if not eqn.inputs or eqn.outputs[0].aval.shape != eqn.inputs[0].aval.shape:
        return Role.LIGHT
    return Role.VIEW


def _role_of_move(op: Op, params: Params, eqn: Equation) -> Role:
    out = eqn.outputs[0].aval
    if op.view and eqn.inputs and eqn.inputs[0].aval.size == out.size:
        return Role.LIGHT if _is_mirrored(eqn) else Role.VIEW
    if op.emit is not None or op.view or op.boxes is not None or op.rule is None:
        return Role.LIGHT
    if all(a.aval.ndim == 0 for a in eqn.inputs):  # an iota, the counters of random bits
        return Role.LIGHT
    windows = None if op.indexed is None else op.indexed(params, tuple(a.aval for a in eqn.inputs))
    if windows is not None and not windows.vectors:  # one window: its elements stand in a row
        return Role.LIGHT
    return Role.OTHER


def _is_mirrored(eqn: Equation) -> bool:
    """Whether a view runs backwards along a dim, as no layout of a compiler does."""
    rule = eqn.op.sharding_rule(tuple([a.aval for a in eqn.inputs]), tuple([v.aval for v in eqn.outputs]), eqn.params)
    return Kind.PERMUTE in rule.kinds


def reduces_rows(eqn: Equation) -> bool:
    """Whether a reduction runs along the last dim of its operand, whose elements lie side by side."""
    _, params, mapped_dims = unwrap_op(eqn.op, eqn.params)
    return eqn.inputs[0].aval.ndim - sum(operands[0] for operands in mapped_dims) - 1 in params["axes"]


def reduces_columns(eqn: Equation) -> bool:
    """Whether an equation reduces other dims than the last: all columns at once."""
    return eqn.op.fold is not None and not reduces_rows(eqn)


def cost_of(eqn: Equation) -> int:
    """The work for one element of the result, relative to an addition."""
    op, _, _ = unwrap_op(eqn.op, eqn.params)
    if op.emit is not None:
        return 0 if op.emit.moves else op.emit.cost
    return UNKNOWN if op.rule is None else 0


# Elementwise functions that are not written as vector code cost as much as an exponential function at least.
UNKNOWN = 15
