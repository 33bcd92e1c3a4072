"""The record of communication: the bytes that each device sends, how often, and why.

Comes in: a device program, in which every collective is an equation, and the sizes of its axes. Goes out: a `Transfer` for each
collective, with the trip count of the loops around it. `explain`, costs and the planner read only this record.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Axes
from shardwise.ir import Collective, Equation, Loop, Need, Op, Program, Source, region_of, subprograms, unwrap_op
from shardwise.ir.op import Params
from shardwise.ops.devices.all_to_all import all_to_all_op
from shardwise.passes.grid import Grid


@dataclass(frozen=True, slots=True)
class Transfer:
    """One collective, inserted by the partitioner or written by the user.

    Attributes:
        op: the collective.
        axes: its mesh axes.
        devices: the number of devices in one group.
        dtype: the dtype of the elements sent.
        bytes: the bytes that one device sends in one run of the equation.
        value: the global type of the value.
        cause: the op that needed the collective.
        source: the user's line; in a backward pass, the line of the forward op.
        implicit: whether the partitioner inserted it.
        known_trips: the product of the known lengths of the loops around it.
        endless: whether it is in a branch, or in a loop whose length only the run decides; such a loop counts as one trip.
    """

    op: Op
    axes: Axes
    devices: int
    dtype: np.dtype[np.generic]
    bytes: int
    value: str
    cause: str
    source: Source | None
    implicit: bool
    known_trips: int = 1
    endless: bool = False

    @property
    def kind(self) -> str:
        """Its name in `explain`."""
        return _collective(self.op).label

    @property
    def unasked(self) -> bool:
        """Whether it reshards a value although the user asked for no reshard."""
        return self.implicit and _collective(self.op).moves

    @property
    def backward(self) -> bool:
        """Whether it belongs to a backward pass."""
        return self.source is not None and self.source.backward

    @property
    def trips(self) -> int | None:
        """The number of times it runs; None if only the run decides."""
        return None if self.endless else self.known_trips

    @property
    def total(self) -> int:
        """The bytes that one device sends in all trips; loops of unknown length count once."""
        return self.bytes * self.known_trips


def transfers_of(program: Program, sizes: Mapping[str, int]) -> tuple[Transfer, ...]:
    """Every collective of a device program over axes of these sizes, inner programs included."""
    return tuple(_transfers(program, sizes, 1, False, set()))


def transfer_cost(program: Program, grid: Grid) -> float:
    """The bytes that a device sends in all trips, those of an all-to-all as many times as they take longer than others on these links."""
    crowding = grid.crowding
    transfers = transfers_of(program, grid.axis_sizes)
    if crowding is None:
        return sum([t.total for t in transfers])
    return sum([t.total * (crowding(tuple(t.axes)) if t.op is all_to_all_op else 1) for t in transfers])


def _transfers(
    program: Program, sizes: Mapping[str, int], trips: int, endless: bool, quiet: set[tuple[Op, int]]
) -> Iterator[Transfer]:
    """The transfers of a program that runs `trips` times. `quiet`: ops with ids of their params that send nothing and hold no programs."""
    for eqn in program.equations:
        key = eqn.op, id(eqn.params)
        if key in quiet:
            continue
        op, params, _ = unwrap_op(eqn.op, eqn.params)
        if op.collective is not None:
            if op.collective.counted:
                transfer = _transfer(eqn, op, params, sizes, trips, endless)
                if transfer.bytes or not transfer.implicit:
                    yield transfer
            continue
        region = region_of(eqn)
        bodies = region.programs if region is not None else [p for _, p in subprograms(eqn.params)]
        if not bodies:
            quiet.add(key)
        length = region.length if isinstance(region, Loop) else None
        for body in bodies:
            rounds = trips * (1 if length is None else length)
            yield from _transfers(body, sizes, rounds, endless or length is None, quiet)


def _transfer(eqn: Equation, op: Op, params: Params, sizes: Mapping[str, int], trips: int, endless: bool) -> Transfer:
    types = tuple(a.aval for a in eqn.inputs)
    need = eqn.source.need if eqn.source is not None else None
    if need is None:  # a program that was not partitioned
        need = Need(op.name, ", ".join(t.str_short() for t in types), implicit=False)
    axes = params["axes"]
    devices = math.prod(sizes.get(a, 1) for a in axes)
    sent_bytes = _collective(op).bytes_sent(types, params, sizes)
    return Transfer(
        op,
        axes,
        devices,
        types[0].dtype,
        sent_bytes,
        need.value,
        need.op,
        eqn.source or None,
        need.implicit,
        trips,
        endless,
    )


def _collective(op: Op) -> Collective:
    assert op.collective is not None, f"{op} is no collective"
    return op.collective
