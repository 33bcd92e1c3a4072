"""`prevent_cse` of a checkpointed call: which operands the second computation gets through a barrier, all or none, or one by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.base.tree import broadcast_prefix

PreventedLeaves = bool | tuple[bool, ...]


def normalize_prevent_cse(prevent_cse: Any) -> bool | tuple[Any, ...]:
    """The argument as the user wrote it, a sequence as a tuple. TypeError if it is neither a bool nor a sequence."""
    if isinstance(prevent_cse, Sequence):
        return tuple(prevent_cse)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if not isinstance(prevent_cse, bool):
        raise TypeError(
            f"prevent_cse takes a bool, or a tuple with a bool per positional argument, got {type(prevent_cse).__name__}."
        )
    return prevent_cse


def per_leaf(given: bool | tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> PreventedLeaves:
    """A bool per leaf of the arguments. ValueError if the tuple's structure is no prefix of theirs."""
    if isinstance(given, bool):
        return given
    return tuple([bool(x) for x in broadcast_prefix(given, (args, kwargs) if kwargs else args, name="prevent_cse")])


def among(prevented: PreventedLeaves, before: int = 0, after: int = 0) -> PreventedLeaves:
    """The flags, with those of captured values before them, which need no barrier, and of computed values after them, which need one."""
    return prevented if isinstance(prevented, bool) else (False,) * before + prevented + (True,) * after


def behind_barrier(prevented: PreventedLeaves, count: int, kept: int) -> list[int]:
    """The positions of the values that get a barrier, of `count` operands and the `kept` values after them."""
    each = (prevented,) * (count + kept) if isinstance(prevented, bool) else among(prevented, after=kept)
    assert not isinstance(each, bool)
    return [i for i, p in enumerate(each) if p]
