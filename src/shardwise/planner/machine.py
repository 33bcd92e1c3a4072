"""Machines as data: chips, the links between them, and the slices that one can book."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import NamedTuple, overload

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.locks import cached_property
from shardwise.planner.curves import PlaceCosts, Point, Rates
from shardwise.planner.flops import Costly


@dataclass(frozen=True, slots=True)
class Chip:
    """One device.

    Attributes:
        kind: JAX's `device_kind`, ``TPU v5p``.
        platform: JAX's `platform`: 'tpu', 'gpu' or 'cpu'.
        flops: peak FLOP/s of matrix products by dtype name.
        vector_flops: peak FLOP/s of elementwise work in float32.
        hbm_bytes: memory of a device; `usable_bytes` of it are the program's.
        hbm_bandwidth: bytes/s.
        vmem_bytes: on-chip memory (VMEM, L2) of which programs keep values; 0 if none.
        vmem_bandwidth: bytes/s.
        tile: the side of the tiles in which matrix products are computed (of the systolic array, of a block of threads).
        units: how many of those tiles run at once.
        rates: bytes/s by how many a kernel touches; None: `hbm_bandwidth` of all.
        transcendental: elements/s of exp, log, tanh and their kin.
        function_costs: elements of exp that one of another function costs, by op, or op and kind of its operand
            (`planner.flops`); of those that are not there the ops know it.
        chained: seconds of an operation of a loop in a kernel whose next one waits for it.
        overhead: seconds from the end of one kernel to the start of the next.
        product_overhead: seconds for each product of a batch, besides those of its work.
        lookup, element: seconds for each place that a gather or scatter goes to, besides those of its bytes, where it moves several
            elements or one; 0 where it goes to many at once.
        update, updated_element: those of a scatter.
        combined: seconds for each element of the windows of a scatter that is combined with what is there.
        contended: seconds from one update of a place to the next.
        far_lookups: how much longer they take in a value that no cache holds.
        taken, put: seconds of a place with its bytes, of gathers and of scatters, in the place of those four.
        lookups_overhead: seconds until a gather or scatter begins, as `overhead`; 0: that.
        steps: seconds of a step of ops with algorithms of their own, by algorithm (`planner.steps`), or those by the size.
        turns: seconds of what such algorithms do one after the other, by algorithm, besides their steps.
        grid_step: seconds of a step of the grid of a kernel that a program brings along, at least; 0: steps run at once.
        host_bandwidth: bytes/s one way between a device's memory and the host's; 0 where they are one memory.
    """

    kind: str
    platform: str
    flops: Mapping[str, float]
    vector_flops: float
    hbm_bytes: int
    usable_bytes: int
    hbm_bandwidth: float
    vmem_bytes: int = 0
    vmem_bandwidth: float = 0.0
    tile: int = 128
    units: int = 1
    rates: Rates | None = None
    transcendental: float = 0.0
    function_costs: Mapping[Costly, float] = field(default_factory=dict[Costly, float])
    chained: float = 0.0
    overhead: float = 0.0
    product_overhead: float = 0.0
    lookup: float = 0.0
    element: float = 0.0
    update: float = 0.0
    updated_element: float = 0.0
    combined: float = 0.0
    contended: float = 0.0
    far_lookups: float = 1.0
    taken: PlaceCosts | None = None
    put: PlaceCosts | None = None
    lookups_overhead: float = 0.0
    steps: Mapping[str, float | Sequence[Point]] = field(default_factory=dict[str, float | Sequence[Point]])
    turns: Mapping[str, float] = field(default_factory=dict[str, float])
    grid_step: float = 0.0
    host_bandwidth: float = 0.0

    @property
    def counts_places(self) -> bool:
        """Whether each place that a gather or scatter goes to takes time."""
        return self.element > 0 or self.taken is not None


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the network, the innermost first.

    Attributes:
        name: 'ici', 'nvlink', 'ib', 'dcn', 'network'.
        shape: devices per dim: ``(4, 4, 8)`` of a torus, ``(8,)`` behind a switch.
        wrap: per dim, whether its ends are joined (a torus); all False behind a switch.
        switched: whether all devices reach each other at full bandwidth.
        bandwidth: bytes/s one way, of a link of the torus or of a device's port of the switch.
        latency: seconds from send to receive of a small message.
    """

    name: str
    shape: tuple[int, ...]
    wrap: tuple[bool, ...]
    switched: bool
    bandwidth: float
    latency: float

    @property
    def size(self) -> int:
        """The number of members of one group at this level: of devices, or of groups of the level below."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine that one can book: so many chips of one kind, joined by levels of network.

    Attributes:
        name: of the slice, as it was asked for.
        chip: one device of it.
        levels: of the network, the innermost first; their sizes multiply to the number of devices.
        processes: how many hosts run the program.
        sources: where the figures come from, ``what: document``.
        host: devices of one host along the dims of the innermost levels; () if hosts take devices in order.
        notes: what is not known of this machine, one sentence each.
    """

    name: str
    chip: Chip
    levels: tuple[Level, ...]
    processes: int
    sources: tuple[str, ...] = ()
    host: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def devices(self) -> int:
        """The number of devices."""
        return math.prod(level.size for level in self.levels)


class Place(NamedTuple):
    """The position of a device, in the terms of JAX's device objects.

    Attributes:
        id: unique in the machine.
        kind, platform: of the chip.
        process_index: the host that owns it.
        local_index: its position among the devices of its host.
        coords: of its chip in the slice, ``(x, y, z)``; None where there is no torus.
        core_on_chip: which device of its chip it is.
        slice_index: the slice, or the node of a cluster, that it belongs to.
    """

    id: int
    kind: str
    platform: str
    process_index: int
    local_index: int
    coords: tuple[int, int, int] | None
    core_on_chip: int
    slice_index: int


class Places(Sequence[Place]):
    """The places of a machine's devices in the order of `jax.devices()`: hosts in order, their devices in order. Made on demand."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        torus = [level for level in machine.levels if not level.switched]
        self._torus = torus[0].shape if torus else ()
        cores = machine.levels[0].size if torus and machine.levels[0] is not torus[0] else 1
        self._cores = cores
        self._slice_size = math.prod(self._torus) * cores if torus else machine.levels[0].size
        self._count = machine.devices
        self._per_host = self._count // machine.processes

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Place: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Place]: ...
    def __getitem__(self, index: int | slice) -> Place | Sequence[Place]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if not 0 <= index < len(self):
            raise IndexError(f"{self.machine.name} has {len(self)} devices; there is none at position {index}.")
        return self._place(index)

    def __iter__(self) -> Iterator[Place]:
        return map(self._place, range(self._count))

    @property
    def ids(self) -> Sequence[int]:
        """The id of each device."""
        if not self._torus:
            return range(self._count)
        size, numbers = self._slice_size, [number for number, _, _ in self._of_slice]
        return [first + n for first in range(0, self._count // len(numbers) * size, size) for n in numbers]

    @property
    def processes(self) -> int:
        """How many hosts own the devices."""
        return self.machine.processes

    def _place(self, index: int) -> Place:
        chip = self.machine.chip
        process, local = divmod(index, self._per_host)
        if not self._torus:
            return Place(index, chip.kind, chip.platform, process, local, None, 0, index // self._slice_size)
        which, within = divmod(index, len(self._of_slice))
        number, coords, core = self._of_slice[within]
        id = which * self._slice_size + number
        return Place(id, chip.kind, chip.platform, process, local, coords, core, which)

    @cached_property
    def _of_slice(self) -> tuple[tuple[int, tuple[int, int, int], int], ...]:
        """The devices of one slice: the number in it, the coordinates of the chip, and which device of the chip it is."""
        slices: list[tuple[int, tuple[int, int, int], int]] = []
        for host in range(max(1, self._slice_size // self._per_host)):
            for local in range(self._per_host):
                inner, core = divmod(local, self._cores)
                coords = self._coords(host, inner)
                number = 0
                for position, size in zip(reversed(coords), reversed(self._torus), strict=True):
                    number = number * size + position
                x, y, z = (*coords, 0, 0)[:3]
                slices.append((number * self._cores + core, (x, y, z), core))
        return tuple(slices)

    def _coords(self, host: int, inner: int) -> tuple[int, ...]:
        """The coordinates of a host's chip: x runs fastest, among hosts as among the chips of one."""
        coords: list[int] = []
        for size, own in zip(self._torus, self.machine.host, strict=True):
            host, host_at = divmod(host, size // own)
            inner, at = divmod(inner, own)
            coords.append(host_at * own + at)
        return tuple(coords)
