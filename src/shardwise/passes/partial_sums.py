"""Ops that commute with sums over devices: what they make of partial sums sums up to what they make of the sums.

Comes in: an equation with the field `Op.additive`. Goes out: which operands may be partial sums, all at once, and whether the op rounds
no more, and wraps no later, than the sum does. `late_sums` takes sums behind such ops, `fold_reductions` before them.
"""

from __future__ import annotations

import numpy as np

from shardwise.base.dtypes import is_key_dtype, issubdtype
from shardwise.ir import Atom, Equation, Literal
from shardwise.ops.elementwise.casts import reduce_precision_p


def summed_operands(eqn: Equation) -> tuple[Atom, ...]:
    """The operands that may be partial sums, all of them at once."""
    return eqn.inputs if eqn.op.additive is True else eqn.inputs[slice(*(eqn.op.additive or (0,)))]


def keeps_sums(eqn: Equation) -> bool:
    """Whether an op commutes with sums over devices, and rounds no more than they do. Integers wrap where their type ends, so their
    width stays.
    """
    out = eqn.outputs[0].aval
    parts = summed_operands(eqn)
    if not parts or eqn.op.collective is not None or eqn.op is reduce_precision_p or not can_be_added(out.dtype):
        return False
    if not all(_adds_nothing(eqn, a) for a in eqn.inputs if not any(a is p for p in parts)):
        return False
    is_alike = all(can_be_added(a.aval.dtype) and is_float(a.aval.dtype) == is_float(out.dtype) for a in parts)
    if not is_alike:
        return False
    return all(
        a.aval.itemsize <= out.itemsize if is_float(out.dtype) else a.aval.itemsize == out.itemsize for a in parts
    )


def _adds_nothing(eqn: Equation, other: Atom) -> bool:
    """Whether an operand that is no partial sum only says what goes where, or is zero: a pad's value would be added once a device."""
    return eqn.op.indexed is not None or other.aval.dtype == np.bool_ or is_zero(other)


def is_zero(atom: Atom) -> bool:
    """Whether a value is known to be zero: a partial sum, too."""
    return isinstance(atom, Literal) and can_be_added(atom.aval.dtype) and bool(atom.value == 0)


def can_be_added(dtype: np.dtype) -> bool:
    """Whether partial sums of a type are worth what the sum is: numbers of at least a byte, floats of at least two."""
    if is_key_dtype(dtype):
        return False
    return dtype.kind in "iu" or (is_float(dtype) and dtype.itemsize >= 2)


def is_float(dtype: np.dtype) -> bool:
    """Whether a type is one of real floats."""
    return issubdtype(dtype, np.floating)
