"""The plan of one compiled step on one machine, as data that reports, advice and search read.

Bytes and seconds are those of one device. Every device runs the same program, so one stands for all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import ClassVar

from shardwise.base.html import text_html
from shardwise.base.lazy_dataclasses import dataclass

Line = tuple[str, int]  # a file of the user's, and a line in it


@dataclass(frozen=True, slots=True)
class Buffer:
    """A value in a device's memory.

    Attributes:
        name: of an argument or result its path (``params['w']``), of others the op that makes it.
        kind: 'argument', 'constant', 'temporary', 'saved' (kept by a loop for its backward pass), 'carry' or 'result'.
        nbytes: with the target's padding.
        type: its type on one device, ``bf16[8,512]``.
        spec: per dim the mesh axes that split it.
        global_shape: its shape over all devices.
        source: the user's line that made it.
        count: how many like it are alive together (the layers of an unrolled model).
    """

    name: str
    kind: str
    nbytes: int
    type: str
    spec: tuple[tuple[str, ...], ...] = ()
    global_shape: tuple[int, ...] = ()
    source: Line | None = None
    count: int = 1


@dataclass(frozen=True, slots=True)
class Task:
    """One thing that a device does: a fused group, a product, a collective, a loop.

    Attributes:
        name: ``dot_general``, ``fused: mul add tanh``, ``all_gather``.
        kind: 'product', 'fused', 'move', 'collective', 'loop', 'kernel' (that the program brings along) or 'other'.
        stream: what is busy: 'compute', 'host' (the link to the host's memory), or the level of the network ('ici', 'dcn', 'nvlink', ...).
        start: seconds from the start of the schedule that holds the task.
        seconds: of a loop, of all its trips.
        flops: floating-point operations, a multiply-add is two; of a loop, of all trips. So are the bytes.
        hbm_bytes: read from and written to the device's memory.
        sent_bytes: sent to other devices.
        axes: the mesh axes of a collective.
        bound: what bounds it: 'flops', 'memory', 'link' or 'latency'; empty for loops.
        value: type of the result on one device.
        cause: what a collective is for: the op that needed it, or 'written by the program'.
        source: the user's line; of a collective of the backward pass that of the forward op.
        backward: whether it belongs to a backward pass.
        trips: how often the body runs; 1 for all but loops.
        body: of a loop, the schedule of one trip.
        critical: whether the step would be shorter if this took no time.
        place: its position in the program; a task on another stream may start before its predecessors.
        pattern: of a collective, who sends to whom: `Collective.pattern`.
    """

    name: str
    kind: str
    stream: str
    start: float
    seconds: float
    flops: float = 0.0
    hbm_bytes: float = 0.0
    sent_bytes: float = 0.0
    axes: tuple[str, ...] = ()
    bound: str = ""
    value: str = ""
    cause: str = ""
    source: Line | None = None
    backward: bool = False
    trips: int = 1
    body: Schedule | None = None
    critical: bool = False
    place: int = 0
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Tasks in the order in which they start, and the seconds from the first start to the last end."""

    tasks: tuple[Task, ...]
    seconds: float


@dataclass(frozen=True, slots=True)
class Interval:
    """A prediction: the most likely value, and the bounds between which four of five fall."""

    low: float
    likely: float
    high: float


@dataclass(frozen=True, slots=True)
class Advice:
    """A change that is worth trying.

    Attributes:
        change: what to do, in one sentence.
        effect: what the planner predicts of it, in one sentence with figures.
        source: the line to change.
        seconds: predicted seconds saved per step; negative where the step gets longer.
        nbytes: predicted bytes saved at the peak; negative where more is needed.
        fits: whether the step then fits though it does not now.
    """

    change: str
    effect: str
    source: Line | None = None
    seconds: float = 0.0
    nbytes: int = 0
    fits: bool = False


@dataclass(frozen=True, slots=True)
class Traffic:
    """All bytes that one cause sends: the record of communication, one entry per collective of the device program.

    Attributes:
        kind: 'all_gather', 'reduce_scatter', 'all_reduce', 'all_to_all', 'permute', 'relayout'.
        axes: the mesh axes that it runs over.
        nbytes: sent by one device in one step, all trips together.
        trips: how often it runs; None in a loop whose trips are not known, where `nbytes` counts one.
        level: the network that it takes, ('ici', 'dcn', ...).
    """

    kind: str
    axes: tuple[str, ...]
    nbytes: int
    trips: int | None
    value: str
    cause: str
    implicit: bool
    source: Line | None = None
    level: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """One compiled step on one machine.

    Attributes:
        name: of the jitted function.
        machine: the slice's name, ``v5p-256``.
        chip: the device's kind, ``TPU v5p``.
        devices: how many devices the program runs on.
        mesh: sizes by axis name.
        calls: how often the program was called in the run; 0 if it was compiled ahead of time, and no program was called.
        capacity: bytes of memory that programs may use on one device.
        arguments, results, aliased, temporaries: bytes; `aliased` are results in the memory of donated arguments.
        peak: the most bytes in use at once.
        buffers: those in use at the peak, the largest first.
        profile: (seconds, bytes in use) over the step, in order.
        schedule: the tasks of one step.
        seconds: of one step.
        flops: of one device; `model_flops` without what remat computes again.
        peak_flops: the device's FLOP/s in the dtype of most of the products.
        shares: seconds by cause on the critical path: 'product', 'memory', 'collective:<axes>', 'host', 'latency'.
        traffic: the record of communication.
        planning_seconds: what it took to plan.
        together: whether bytes, FLOPs and seconds are those of all devices together, which share one machine and one process.
        measured: of a run that was measured, the place of each task of `schedule` and its seconds.
        measured_seconds: of its quickest step; 0 if none was measured.
        notes: what the model does not know of this program, one sentence each.

    `str` of it is the page that `shardwise plan` prints.
    """

    page: ClassVar[Callable[[Plan], str] | None] = None  # how it is told in words; `shardwise.plan` sets it

    name: str
    machine: str
    chip: str
    devices: int
    mesh: Mapping[str, int]
    capacity: int
    arguments: int
    results: int
    aliased: int
    temporaries: int
    peak: int
    buffers: tuple[Buffer, ...]
    profile: tuple[tuple[float, int], ...]
    schedule: Schedule
    seconds: Interval
    flops: float
    model_flops: float
    peak_flops: float
    shares: Mapping[str, float] = field(default_factory=dict[str, float])
    traffic: tuple[Traffic, ...] = ()
    advice: tuple[Advice, ...] = ()
    notes: tuple[str, ...] = ()
    calls: int = 1
    planning_seconds: float = 0.0
    together: bool = False
    measured: tuple[tuple[int, float], ...] = ()
    measured_seconds: float = 0.0

    @property
    def fits(self) -> bool:
        """Whether the peak is within the device's memory."""
        return self.peak <= self.capacity

    @property
    def mfu(self) -> float:
        """Model FLOPs utilization: the model's FLOPs over what the device could do in the step's time."""
        return self.model_flops / (self.seconds.likely * self.peak_flops) if self.seconds.likely else 0.0

    def __repr__(self) -> str:
        fits = "fits" if self.fits else "does not fit"
        return (
            f"<Plan of {self.name} on {self.machine}: {self.devices:,} x {self.chip}, {fits}, "
            f"{self.seconds.likely:.3g} s a step>"
        )

    def __str__(self) -> str:
        page = type(self).page
        return repr(self) if page is None else page(self)

    def _repr_html_(self) -> str:
        return text_html(str(self))
