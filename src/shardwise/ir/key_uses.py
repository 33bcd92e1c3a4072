"""`KeyUses`: which random keys an op or a program consumes, creates and forwards.

In: an equation, whose op declares its uses in `Op.keys`. Out: its `KeyUses`, in which `passes.key_reuse` finds keys that
are used twice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from shardwise.base.dtypes import KeyDtype
from shardwise.base.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from shardwise.ir.program import Equation, Program

Mask = Any  # whether keys are consumed: a bool for all of an array, or a bool ndarray of its shape


@dataclass(frozen=True)
class KeyUses:
    """How an equation or a program uses keys.

    Attributes:
        sinks: per consumed operand, a mask of its consumed keys.
        sources: positions of results that are fresh keys; other keys among the results count as used.
        forwards: per result that is an operand handed on, the operand's position.
    """

    sinks: Mapping[int, Mask] = field(default_factory=dict)
    sources: frozenset[int] = frozenset()
    forwards: Mapping[int, int] = field(default_factory=dict)


UsesOf = Callable[["Program"], KeyUses]

HANDS_ON: Final = KeyUses(forwards={0: 0})
MAKES: Final = KeyUses(sources=frozenset({0}))
DRAWS: Final = KeyUses({0: True})
SPLITS: Final = KeyUses({0: True}, frozenset({0}))
LEAVES: Final = KeyUses()


def overlap(a: Mask, b: Mask) -> bool:
    """Whether the masks share a key; masks of different shapes count as full."""
    if np.ndim(a) and np.ndim(b) and np.shape(a) != np.shape(b):
        return bool(np.any(a) and np.any(b))
    return bool(np.any(np.logical_and(a, b)))


def union(a: Mask, b: Mask) -> Mask:
    """The union of two masks."""
    if np.ndim(a) and np.ndim(b) and np.shape(a) != np.shape(b):
        return bool(np.any(a) or np.any(b))
    return np.logical_or(a, b)


def is_key(x: Any) -> bool:
    """Whether a value is an array of typed keys."""
    return isinstance(x.aval.dtype, KeyDtype)


def equation_uses(eqn: Equation, uses_of: UsesOf) -> KeyUses:
    """The uses of one equation; `uses_of` gives those of a program."""
    keys = eqn.op.keys
    if keys is None:
        return KeyUses({i: True for i, a in enumerate(eqn.inputs) if is_key(a)})
    return keys(eqn, uses_of) if callable(keys) else keys


def called_uses(eqn: Equation, uses_of: UsesOf) -> KeyUses:
    """`Op.keys` of an op that calls the program in its params."""
    return uses_of(eqn.params["program"])
