"""Links between processes: the four exchanges that all collectives are made of, and agreement on which comes next.

Two kinds of links do them: `shared.SharedLink` through memory that the processes of one node share, `network.NetworkLink`
through MPI. Arrays may be strided; both ends of a message have the same shape and dtype. Processes of a link count from 0 in
the order of their ranks.

`tag` stands for the exchange that this process is about to make. Where a link can compare tags for nothing it does.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.shapes import Ndarray

Combine = Callable[..., Any]


class Link(Protocol):
    """The processes of one group."""

    def meet(self, number: int) -> bool:
        """Wait for all of them; whether all came with this number."""
        ...

    def all_reduce(self, x: Ndarray, kind: str, tag: int, *more: Ndarray) -> Ndarray:
        """The reduction of everybody's contiguous `x` and `more` of its kind, bit for bit the same on all of them."""
        ...

    def reduce_scatter(self, parts: Sequence[Ndarray], out: Ndarray, kind: str, tag: int) -> None:
        """Into `out` the reduction of everybody's part for this process; ``parts[k]`` is for process k."""
        ...

    def all_gather(self, x: Ndarray, takes: Sequence[Ndarray], tag: int) -> None:
        """Into ``takes[k]`` the `x` of process k."""
        ...

    def swap(
        self,
        sends: Sequence[tuple[int, Ndarray]],
        takes: Sequence[tuple[int, int, Ndarray]],
        fan: int,
        largest: Sequence[tuple[int, ...]],
        itemsize: int,
        tag: int,
    ) -> None:
        """Messages between pairs of processes.

        Args:
            sends: (receiver, array), at most `fan` of them.
            takes: (sender, the place of the message among those that it sends, array to fill).
            fan: how many messages a process sends at most.
            largest: the shapes of all messages between any two processes, or of the largest ones.
            itemsize: bytes of an element, which processes without messages know from nothing else.
            tag: stands for the exchange.
        """
        ...


class Pieces:
    """An array of one shape cut into pieces of at most `room` bytes: ``pieces[j]`` is an index tuple."""

    __slots__ = ("_outer", "_per", "_size", "_step", "count")

    def __init__(self, shape: tuple[int, ...], itemsize: int, room: int) -> None:
        self.count = 1
        self._per = 0  # the whole is one piece
        if 0 in shape:
            self.count = 0
            return
        row = itemsize
        for d in reversed(range(len(shape))):
            if row * shape[d] > room:
                self._outer, self._size = shape[:d], shape[d]
                self._step = max(1, room // row)
                self._per = -(-shape[d] // self._step)
                self.count = math.prod(self._outer) * self._per
                return
            row *= shape[d]

    def __getitem__(self, j: int) -> tuple[Any, ...]:
        if not self._per:
            return (Ellipsis,)
        j, at = divmod(j, self._per)
        start = at * self._step
        index: list[Any] = [slice(start, min(start + self._step, self._size))]
        for n in reversed(self._outer):
            j, i = divmod(j, n)
            index.append(i)
        return tuple(reversed(index))


@recent(4096)
def pieces(shape: tuple[int, ...], itemsize: int, room: int) -> Pieces:
    """The (cached) Pieces of a shape."""
    return Pieces(shape, itemsize, room)


def combine_arrays(combine: Combine, arrays: Sequence[Ndarray], out: Ndarray) -> None:
    """Into `out` the reduction of two or more arrays, in order; `out` may be the first of them."""
    combine(arrays[0], arrays[1], out)
    for x in arrays[2:]:
        combine(out, x, out)


def as_bytes(x: Ndarray) -> Ndarray:
    """The memory of a contiguous array."""
    return x.reshape(-1).view(np.uint8) if x.ndim else x.reshape(1).view(np.uint8)


def _offer() -> None:
    """Let another process have the processor."""
    time.sleep(0)


offer: Callable[[], None] = getattr(os, "sched_yield", _offer)  # not on every system


def patiently(done: Callable[[], Any]) -> None:
    """Wait until `done()`, leaving the processor to others: more and more of it the longer it takes."""
    begin = time.monotonic()
    while not done():
        offer()
        waited = time.monotonic() - begin
        if waited > 0.01:
            time.sleep(min(waited / 50, 0.001))
