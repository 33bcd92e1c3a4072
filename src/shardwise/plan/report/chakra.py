"""A plan as MLCommons Chakra execution traces, which ASTRA-sim and other simulators read: a file per rank, and the groups of ranks.

`<name>.<rank>.et` holds messages of Chakra's `et_def.proto` (schema 0.0.4), each behind its length: one GlobalMetadata, then a Node per
task, loops unrolled. `comm_group.json` names the groups of ranks that collectives run in. All ranks run one program, so a file is made of
the same bytes but for the names of groups: these have one width, and are put into their places.

Ranks are positions in the mesh, row by row. A task waits for the last task of every stream that has ended when it starts in the plan. A
permute, or another exchange of those, is a send to the next rank along its axes, and a receive from the one before.
"""

from __future__ import annotations

import itertools
import json
import math
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from shardwise.base import protobuf
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.planner import Plan, Schedule, Task

VERSION = "0.0.4"
NODES = 2_000_000  # of a rank; a longer step is refused
_COMPUTE, _SEND, _RECEIVE, _COLLECTIVE = 4, 5, 6, 7  # NodeType
_INT32, _INT64, _UINT64, _BOOL, _STRING = 7, 9, 13, 27, 29  # fields of AttributeProto
_TYPES = {"reduce": 0, "gather": 2, "transpose": 6, "scatter": 7}  # CollectiveCommType by `Task.pattern`


def write_chakra(plan: Plan, folder: str | Path, ranks: int | None = None) -> list[Path]:
    """Write the traces of the first `ranks` ranks (all of the mesh) into `folder`, which is made. Gives the files.

    ValueError if there are no such ranks, or the step has more than NODES tasks.
    """
    groups = _Groups(plan.mesh)
    count = groups.ranks if ranks is None else ranks
    if not 0 < count <= groups.ranks:
        raise ValueError(f"ranks={ranks!r}: the plan has {groups.ranks} ranks, give 1 to {groups.ranks}.")
    trace = _Trace(groups)
    trace.schedule(plan.schedule, 0.0)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    name = "".join(c if c.isalnum() or c in "-_" else "_" for c in plan.name) or "step"
    files = [folder / f"{name}.{rank}.et" for rank in range(count)]
    for rank, file in enumerate(files):
        file.write_bytes(trace.of_rank(rank))
    members = folder / "comm_group.json"
    members.write_text(json.dumps(groups.members()))
    return [*files, members]


class _Groups:
    """The groups of ranks along axes of a mesh, each with a number."""

    def __init__(self, mesh: Mapping[str, int]) -> None:
        self.sizes = dict(mesh)
        self.ranks = math.prod(self.sizes.values())
        self.width = len(str(2 * self.ranks * max(1, len(self.sizes))))
        self._of: dict[tuple[str, ...], list[int]] = {}  # per rank the number of its group
        self._count = 0

    def along(self, axes: tuple[str, ...]) -> list[int]:
        """Per rank the number of its group along `axes`."""
        if axes not in self._of:
            others = [range(n) if a not in axes else (0,) for a, n in self.sizes.items()]
            first = {self._rank(at): i for i, at in enumerate(itertools.product(*others), self._count)}
            self._of[axes] = [first[self._rank(self._origin(at, axes))] for at in self._places()]
            self._count += len(first)
        return self._of[axes]

    def next(self, axes: tuple[str, ...], step: int) -> list[int]:
        """Per rank the one that is `step` further along `axes`, around the end."""
        sizes = [self.sizes[a] for a in axes]
        numbers = list[int]()
        for at in self._places():
            own = dict(zip(self.sizes, at, strict=True))
            place = 0
            for a, n in zip(axes, sizes, strict=True):
                place = place * n + own[a]
            place = (place + step) % math.prod(sizes)
            for a, n in zip(reversed(axes), reversed(sizes), strict=True):
                place, own[a] = divmod(place, n)
            numbers.append(self._rank(tuple(own.values())))
        return numbers

    def name(self, number: int) -> bytes:
        """The group's name: digits, as many for all."""
        return str(number).zfill(self.width).encode()

    def members(self) -> dict[str, list[int]]:
        """The ranks of each group by its name."""
        members_by_name: dict[str, list[int]] = {}
        for numbers in self._of.values():
            for rank, number in enumerate(numbers):
                members_by_name.setdefault(self.name(number).decode(), []).append(rank)
        return members_by_name

    def _places(self) -> Iterator[tuple[int, ...]]:
        return itertools.product(*map(range, self.sizes.values()))

    def _origin(self, at: Sequence[int], axes: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(0 if a in axes else i for a, i in zip(self.sizes, at, strict=True))

    def _rank(self, at: Sequence[int]) -> int:
        rank = 0
        for i, n in zip(at, self.sizes.values(), strict=True):
            rank = rank * n + i
        return rank


@dataclass(slots=True)
class _Trace:
    """The messages of all ranks: bytes, and between them what depends on the rank, as a bytes of one width per rank."""

    groups: _Groups
    pieces: list[bytes | list[bytes]] = field(default_factory=list[bytes | list[bytes]])
    # Per stream: when its tasks end, and the numbers of their nodes.
    _ends: dict[str, tuple[list[float], list[int]]] = field(default_factory=dict[str, tuple[list[float], list[int]]])
    _count: int = 0

    def __post_init__(self) -> None:
        self.pieces.append(_message(protobuf.text(1, VERSION)))

    def of_rank(self, rank: int) -> bytes:
        """The file of a rank."""
        return b"".join([piece if isinstance(piece, bytes) else piece[rank] for piece in self.pieces])

    def schedule(self, schedule: Schedule, start: float) -> None:
        """Add a node per task, from `start` (seconds) on."""
        for task in schedule.tasks:
            at = start + task.start
            if task.body is None:
                self._add(task, at)
                continue
            for trip in range(task.trips):
                self.schedule(task.body, at + trip * task.seconds / task.trips)

    def _add(self, task: Task, start: float) -> None:
        if self._count >= NODES:
            raise ValueError(f"the step has more than {NODES:,} tasks; plan fewer layers or trips for a Chakra trace.")
        before = list[int]()
        for ends, numbers in self._ends.values():
            earlier_count = bisect_right(ends, start + 1e-12)
            if earlier_count:
                before.append(numbers[earlier_count - 1])
        size = math.prod(self.groups.sizes.get(a, 1) for a in task.axes)
        if task.kind != "collective" or size == 1:
            work = _attribute("num_ops", _INT64, int(task.flops)) + _attribute(
                "tensor_size", _UINT64, int(task.hbm_bytes)
            )
            self._node(task.name, _COMPUTE, task, start, before, _attribute("is_cpu_op", _BOOL, 0) + work)
        elif task.pattern in _TYPES:
            comm_attributes = _attribute("comm_type", _INT64, _TYPES[task.pattern]) + _attribute(
                "comm_size", _INT64, _operand_bytes(task, size)
            )
            names = [self.groups.name(n) for n in self.groups.along(task.axes)]
            self._node(
                task.name,
                _COLLECTIVE,
                task,
                start,
                before,
                _attribute("is_cpu_op", _BOOL, 0) + comm_attributes,
                "pg_name",
                names,
            )
        else:
            nbytes = _attribute("is_cpu_op", _BOOL, 0) + _attribute("comm_size", _INT64, int(task.sent_bytes))
            nbytes += _attribute("comm_tag", _INT32, self._count)
            for kind, key, step in ((_SEND, "comm_dst", 1), (_RECEIVE, "comm_src", -1)):
                peers = [_fixed_varint(p) for p in self.groups.next(task.axes, step)]
                self._node(task.name, kind, task, start, before, nbytes, key, peers)
        ends, numbers = self._ends.setdefault(task.stream, ([], []))
        ends.append(start + task.seconds)
        numbers.append(self._count - 1)

    def _node(
        self,
        name: str,
        kind: int,
        task: Task,
        start: float,
        before: Sequence[int],
        attributes: bytes,
        key: str = "",
        values: list[bytes] | None = None,
    ) -> None:
        """One Node, whose last attribute, if any, differs by rank: all of one width, strings of digits or varints."""
        body = protobuf.number(1, self._count) + protobuf.text(2, name) + protobuf.number(3, kind)
        body += protobuf.numbers(5, before) if before else b""
        body += (
            protobuf.number(6, int(1e6 * start)) + protobuf.number(7, max(1, round(1e6 * task.seconds))) + attributes
        )
        self._count += 1
        if values is None:
            self.pieces.append(_message(body))
            return
        width = len(values[0])
        is_text = key == "pg_name"
        tag = protobuf.varint(_STRING << 3 | 2) + protobuf.varint(width) if is_text else protobuf.varint(_INT32 << 3)
        head = protobuf.text(1, key) + tag
        body += protobuf.varint(10 << 3 | 2) + protobuf.varint(len(head) + width) + head
        self.pieces += [protobuf.varint(len(body) + width) + body, values]


def _operand_bytes(task: Task, size: int) -> int:
    """The bytes that a rank brings to a collective over `size` ranks, from those that it sends in a ring."""
    sent_bytes = task.sent_bytes
    if task.pattern == "gather":
        return int(sent_bytes / (size - 1))
    whole = sent_bytes * size / (size - 1)
    return int(whole / 2 if task.pattern == "reduce" else whole)


# -- protobuf's wire format -----------------------------------------------------------------------------------------------------


def _fixed_varint(value: int) -> bytes:
    """A varint of four bytes, whatever the value: continuation bits with nothing behind them are allowed."""
    return bytes([value & 127 | 128, value >> 7 & 127 | 128, value >> 14 & 127 | 128, value >> 21 & 127])


def _attribute(name: str, tag: int, value: int) -> bytes:
    """An AttributeProto in a Node; `tag` is that of the value's type."""
    return protobuf.block(10, protobuf.text(1, name) + protobuf.number(tag, value))


def _message(body: bytes) -> bytes:
    return protobuf.varint(len(body)) + body
