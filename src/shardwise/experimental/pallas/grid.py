"""The position of a step in the grid: `program_id` and `num_programs`, which kernels and index maps ask for."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

from shardwise import lax
from shardwise import numpy as jnp
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Array


@dataclass(frozen=True)
class Position:
    """The step that is traced: its index along each axis of the grid, and the sizes of the grid."""

    indices: Sequence[Array]
    sizes: Sequence[Any]

    def check_axis(self, axis: int) -> int:
        """`axis`; ValueError if the grid does not have it."""
        if not -len(self.sizes) <= axis < len(self.sizes):
            raise ValueError(f"Axis {axis} is out of bounds for grid {tuple(self.sizes)}")
        return axis


class _State(threading.local):
    position: Position | None = None


_state = _State()


@contextmanager
def at_position(indices: Sequence[Array], sizes: Sequence[Any]) -> Generator[None]:
    """Context in which a kernel, or an index map, is traced."""
    before = _state.position
    _state.position = Position(indices, sizes)
    try:
        yield
    finally:
        _state.position = before


def _position(function: str) -> Position:
    if _state.position is None:
        raise AssertionError(f"{function} is called outside of a kernel: it has a value where pallas_call traces one.")
    return _state.position


def program_id(axis: int) -> Array:
    """The index of the current step along an axis of the grid, an int32 scalar.

    Raises:
        AssertionError: outside of a kernel.
        ValueError: the grid does not have the axis.
    """
    position = _position("program_id")
    return position.indices[position.check_axis(axis)]


def num_programs(axis: int) -> int | Array:
    """The size of the grid along an axis, an int where it is known.

    Raises:
        AssertionError: outside of a kernel.
        ValueError: the grid does not have the axis.
    """
    position = _position("num_programs")
    return position.sizes[position.check_axis(axis)]


def unravel(step: Array, sizes: Sequence[Any]) -> list[Array]:
    """The indices of a step, the last one the fastest."""
    indices: list[Array] = []
    rest = step
    for size in reversed(sizes):
        bound = jnp.int32(size)
        indices.append(lax.rem(rest, bound))
        rest = lax.div(rest, bound)
    return indices[::-1]
