"""`search`: layouts of one step, planned one by one; those that no other beats in both time and memory.

In: a function and types of its arguments, or a step of a planned run; the machine. Out: `SearchResult`. Rounds: mesh shapes, each
with a few layouts of all arguments; policies of checkpointed functions; single arguments otherwise; batches. Each round begins with the
best layouts of those before it.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import zip_longest
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.engine.data_free import DataFree
from shardwise.plan.alternatives import distance, others, shapes, whole_layouts, with_dims
from shardwise.plan.api import executable_of
from shardwise.plan.pasted import code_of
from shardwise.plan.points import Point, planned_point
from shardwise.plan.pool import Pool
from shardwise.plan.session import on as planned_run
from shardwise.plan.step import Sizes, Step, StepLayout
from shardwise.planner import Machine
from shardwise.planner.machines import find, neighbours

LAYOUTS = 200  # planned, if the caller does not say how many
BEST = 4  # layouts that a round begins with
SMALL = 0.003  # of the bytes of all arguments: smaller arguments keep their layout
LARGEST = 64  # multiple of the batch
FINEST = 4096  # denominator of a multiple of the batch
WORTH = 0.02  # of memory and time: a layout that saves less is no other choice
STARTS = 12  # layouts whose single arguments are changed, at most


@dataclass(frozen=True, slots=True)
class Choices:
    """The arguments of `search` that say what it may vary; None: what it thinks of itself."""

    meshes: Iterable[Mapping[str, int] | Sequence[int]] | None = None
    specs: Iterable[Any] | None = None
    remat: Iterable[str] | Mapping[str, Callable[..., Any]] | None = None
    batch: Iterable[float | Fraction] | None = None
    machines: Iterable[str] | None = None
    layouts: int = LAYOUTS
    processes: int = 2


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The result of a search.

    Attributes:
        step: the step that was varied.
        own: the program's own layout.
        front: those that fit and that no other beats in seconds per example and bytes, the fastest first.
        others: the best layout on each other machine, for the same batch and for as much per device.
        planned: how many layouts have a plan.
        refused: reasons for which others have none, with how many.
        varied: the arguments that were varied, one phrase each.
        kept: the arguments that could not be, with the reason.
        seconds: of the search.
    """

    step: Step
    own: Point
    front: tuple[Point, ...]
    others: tuple[Point, ...]
    planned: int
    refused: Mapping[str, int]
    varied: tuple[str, ...]
    kept: tuple[str, ...]
    seconds: float

    def code(self, point: Point) -> str:
        """A layout as code to paste: the mesh, and a PartitionSpec for each argument."""
        return code_of(self.step, point.layout)


def search(
    f: Callable[..., Any],
    args: Sequence[Any],
    *,
    on: str | Machine,
    kwargs: Mapping[str, Any] | None = None,
    meshes: Iterable[Mapping[str, int] | Sequence[int]] | None = None,
    specs: Iterable[Any] | None = None,
    remat: Iterable[str] | Mapping[str, Callable[..., Any]] | None = None,
    batch: Iterable[float | Fraction] | None = None,
    machines: Iterable[str] | None = None,
    layouts: int = LAYOUTS,
    processes: int = 2,
) -> SearchResult:
    """Layouts of ``f(*args, **kwargs)`` on the machine `on`: which are fast, and which take little memory.

    Args:
        f: a function, jitted or not.
        args: arrays or ShapeDtypeStructs with shardings over one mesh.
        on: the machine's name, such as ``v5p-256``, or a `Machine`.
        kwargs: arguments by name.
        meshes: sizes of the mesh's axes to try, ``{"data": 16, "model": 8}`` or ``(16, 8)``; left out: all that give as many devices;
            empty: the program's own only.
        specs: trees like `args` (or prefixes of it) of PartitionSpecs to try, None where the layout stays; left out: those that the search
            thinks of; empty: none.
        remat: policies for all checkpointed functions: names in jax.checkpoint_policies, or functions by a name of your own.
            Left out: four usual ones; empty: none.
        batch: sizes to try, as multiples of the batch in `args`; left out: doubled while it fits, halved until it does; empty: none.
        machines: names of other machines to look at; left out: those of half and of twice the size; empty: none.
        layouts: how many are planned at most.
        processes: that plan at the same time.

    Raises:
        ValueError: there is no such machine, policy or mesh axis, a size or a batch is not positive, or the mesh of `args` does not fit.

    >>> mesh = jax.sharding.AbstractMesh((4,), ("data",))
    >>> at = lambda *spec: jax.NamedSharding(mesh, jax.P(*spec))
    >>> x = jax.ShapeDtypeStruct((64, 256), jnp.float32, sharding=at("data"))
    >>> w = jax.ShapeDtypeStruct((256, 256), jnp.float32, sharding=at())
    >>> found = jax.plan.search(lambda x, w: jnp.tanh(x @ w).sum(), (x, w), on="v5e-4", layouts=4, processes=1)
    >>> len(found.front) > 0
    True
    """
    choices = Choices(meshes, specs, remat, batch, machines, layouts, processes)
    with planned_run(on) as run:
        return search_step(executable_of(f, args, kwargs or {}, run.machine), run.machine, choices)


def search_step(executable: DataFree, machine: Machine, choices: Choices) -> SearchResult:
    """`search` of a step that a planned run compiled; to be called within that run."""
    start = time.perf_counter()
    remat = choices.remat
    step = Step(executable, machine, dict(remat) if isinstance(remat, Mapping) else {})
    with Pool(step, choices.processes) as pool:
        run = _Search(step, pool, choices)
        run.run()
    points = run.points
    done_points = [p for p in points.values() if not p.error]
    own_point = points[run.own]
    return SearchResult(
        step,
        own_point,
        front_of([p for p in done_points if p.fits and not p.layout.machine]),
        run.best_elsewhere(),
        len(done_points),
        Counter(p.error for p in points.values() if p.error),
        tuple(run.varied),
        tuple(run.kept),
        time.perf_counter() - start,
    )


def front_of(points: Iterable[Point]) -> tuple[Point, ...]:
    """The points that no other beats, the fastest first; of nearly equal ones the one with the fewest changes."""
    front: list[Point] = []
    for p in sorted(points, key=lambda p: (float(f"{p.per_batch:.3g}"), len(p.layout.dims), p.peak)):
        if not front or p.peak < (1 - WORTH) * front[-1].peak:
            front.append(p)
    kept_points: list[Point] = []
    for p in reversed(front):
        if not kept_points or p.per_batch < (1 - WORTH) * kept_points[-1].per_batch:
            kept_points.append(p)
    return tuple(reversed(kept_points))


class _Search:
    """The state of one search: the layouts planned so far, and how many may follow."""

    def __init__(self, step: Step, pool: Pool, choices: Choices) -> None:
        if choices.layouts < 1:
            raise ValueError(f"layouts={choices.layouts}: a search plans at least one.")
        self.step, self.pool, self.left = step, pool, choices.layouts
        self.held = 0  # layouts for later rounds
        self.given_meshes = None if choices.meshes is None else [_sizes(m, step.sizes) for m in choices.meshes]
        self.given_specs = None if choices.specs is None else [step.dims_of_tree(tree) for tree in choices.specs]
        self.given_remat = None if choices.remat is None else tuple(choices.remat)
        self.given_batch = None if choices.batch is None else [_multiple(b) for b in choices.batch]
        names = neighbours(step.machine.name) if choices.machines is None else tuple(choices.machines)
        self.machines = {name: find(name).devices for name in names}
        self.points: dict[StepLayout, Point] = {}
        self.varied: list[str] = []
        self.kept: list[str] = []
        self.own = StepLayout(step.sizes)
        for name in self.given_remat or ():
            if name not in step.policies:
                raise ValueError(
                    f"remat={name!r}: no such policy; give names of {', '.join(step.policies)}, or functions by name."
                )

    def run(self) -> None:
        """All rounds. Raises what planning the program's own layout does: nothing can be compared with it."""
        own = self.points[self.own] = planned_point(self.step, self.own)
        self.left -= 1
        self._keep_batches([own])
        movable = not self.step.fixed
        for_machines = min(2 * BEST * len(self.machines), self.left // 4) if movable else 0
        self.held = for_machines + (min(3 * BEST, self.left // 4) if self.given_batch != [] else 0)
        if movable:
            self._meshes()
        else:
            self.kept.append(f"the mesh, the specs and the machine: {self.step.fixed}")
        self._policies()
        if movable and self.given_specs is None:
            self._arguments()
        self.held = for_machines
        self._batches()
        self.held = 0
        if movable:
            self._other_machines()
        if any(layout.keep_batch for layout in self.points):
            self.varied.append("constraints of values inside that carry all of a split batch")

    def _plan(self, layouts: Iterable[StepLayout]) -> list[Point]:
        """Plan those that are new, as many as are left; of one that loses its batch the better of it and of that which keeps it."""
        new = [k for k in dict.fromkeys(layouts) if k not in self.points][: max(self.left - self.held, 0)]
        self.left -= len(new)
        new_points = self.pool.plan(new)
        self.points.update(zip(new, new_points, strict=True))
        kept_points = self._keep_batches(new_points)
        return [min(p, kept_points.get(p.layout, p), key=_rank) for p in new_points]

    def _keep_batches(self, points: Iterable[Point]) -> dict[StepLayout, Point]:
        """By layout that loses its batch, the point of the one that keeps it; none where the caller gives the specs."""
        losing_layouts = [p.layout for p in points if p.loses_batch and self.given_specs is None]
        lost_layouts = losing_layouts[: max(self.left - self.held, 0)]
        self.left -= len(lost_layouts)
        new_points = self.pool.plan([replace(layout, keep_batch=True) for layout in lost_layouts])
        self.points.update((p.layout, p) for p in new_points)
        return {layout: p for layout, p in zip(lost_layouts, new_points, strict=True) if not p.error}

    def _best(self, count: int = BEST) -> list[Point]:
        """The layouts to go on with: the fastest of those that fit, then the smallest."""
        done_points = [p for p in self.points.values() if not p.error and not p.layout.machine]
        fits = sorted((p for p in done_points if p.fits), key=lambda p: (p.per_batch, p.peak))
        rest = sorted((p for p in done_points if not p.fits), key=lambda p: p.peak)
        small = sorted(fits, key=lambda p: (p.peak, p.seconds))[:1]
        return list({p.layout: p for p in (*fits[: count - 1], *small, *rest)}.values())[:count]

    # -- rounds ----------------------------------------------------------------------------------------------------------------

    def _meshes(self) -> None:
        step = self.step
        meshes = self.given_meshes or [step.sizes]
        if self.given_meshes is None:
            meshes = sorted(
                shapes(step.sizes, math.prod(n for _, n in step.sizes)), key=lambda m: distance(m, step.sizes)
            )
        layouts = [StepLayout(mesh) for mesh in meshes]
        if self.given_specs is not None:
            layouts = [StepLayout(mesh, dims) for mesh in meshes for dims in ((), *self.given_specs)]
        first = self._plan(layouts)
        if len(meshes) > 1 or self.given_meshes:
            names = ", ".join(name for name, _ in step.sizes)
            self.varied.append(f"the sizes of the mesh's axes {names} ({len(meshes)} shapes)")
        else:
            self.kept.append(
                f"the mesh: {'its axes have no other sizes' if self.given_meshes is None else 'none is given'}"
            )
        if self.given_specs is not None:
            if self.given_specs:
                self.varied.append(f"the specs of the arguments ({len(self.given_specs)} given)")
            return
        good = [p.layout.mesh for p in sorted(first, key=lambda p: (not p.fits, p.per_batch)) if not p.error]
        wholes = dict.fromkeys((step.sizes, *good)) if self.given_meshes is None else dict.fromkeys(meshes)
        self._plan(
            [StepLayout(mesh, dims) for mesh in list(wholes)[: 2 * BEST] for dims in whole_layouts(step, mesh)][
                : max((self.left - self.held) // 2, 1)
            ]
        )

    def _policies(self) -> None:
        names = tuple(self.step.policies) if self.given_remat is None else self.given_remat
        if not names:
            return
        cannot, checkpoints = self.step.traces
        if not checkpoints and not self.step.bodies:
            self.kept.append(
                f"remat: {cannot or 'the program checkpoints nothing (jax.checkpoint), and scans nothing'}"
            )
            return
        around = "" if checkpoints else " around the functions of scans"
        self.varied.append(f"the policy of jax.checkpoint{around} ({', '.join(names)})")
        self._plan([replace(p.layout, remat=name) for name in names for p in self._best()])

    def _arguments(self) -> None:
        """Single arguments otherwise, one at a time; then those changes together that are good alone."""
        step = self.step
        total = sum(a.nbytes for a in step.arguments)
        large = [
            i
            for i, a in enumerate(step.arguments)
            if a.shape and (a.nbytes >= SMALL * total or a.batch_dim is not None)
        ]
        if not large:
            return
        self.varied.append(f"the axes that split each dim of {len(large)} kinds of arguments")
        seen_layouts: set[StepLayout] = set()
        while self.left > self.held:
            start = next((p for p in self._best(STARTS) if p.layout not in seen_layouts), None)
            if start is None:
                return
            seen_layouts.add(start.layout)
            moved_points: dict[int, Point] = {}
            now = dict(start.layout.dims)
            for i in sorted(large, key=lambda i: -step.arguments[i].nbytes):
                tried_points = self._plan(
                    [
                        with_dims(step, start.layout, i, d)
                        for d in others(step.arguments[i], now.get(i), start.layout.mesh)
                    ]
                )
                better = min((p for p in tried_points if _better(p, start)), key=_rank, default=None)
                if better is not None:
                    moved_points[i] = better
            together = start.layout
            steps: list[StepLayout] = []
            for i, p in sorted(moved_points.items(), key=lambda item: _rank(item[1])):
                together = with_dims(step, together, i, dict(p.layout.dims).get(i, step.arguments[i].dims))
                steps.append(together)
            self._plan(steps)

    def _batches(self) -> None:
        step = self.step
        if self.given_batch == []:
            return
        if not any(a.batch_dim is not None for a in step.arguments):
            self.kept.append("the batch: no argument is one for certain")
            return
        if self.step.traces[0]:
            self.kept.append(f"the batch: {self.step.traces[0]}")
            return
        if self.given_batch is not None:
            self._plan([replace(p.layout, batch=b) for b in self.given_batch for p in self._best()])
            self.varied.append(f"the batch ({', '.join(map(str, self.given_batch))} times its size)")
            return
        tried_points: list[Point] = []
        best_points = self._best()
        while best_points and self.left > self.held:
            next_layouts = [(p, k) for p in best_points if (k := _next_batch(p)) is not None and k not in self.points]
            new_points = self._plan([k for _, k in next_layouts])
            tried_points += new_points
            pairs = zip([p for p, _ in next_layouts], new_points, strict=False)
            best_points = [new for old, new in pairs if not new.error and _goes_on(old, new)]
        if any(not p.error for p in tried_points):
            self.varied.append("the batch (doubled while it fits and examples take less time, halved until it fits)")
        elif tried_points:
            self.kept.append(f"the batch: {tried_points[0].error}")

    def _other_machines(self) -> None:
        """The best layouts on other machines: for this batch, and for as many examples per device."""
        step = self.step
        count = math.prod(n for _, n in step.sizes)
        has_batch = (
            self.given_batch != [] and not step.traces[0] and any(a.batch_dim is not None for a in step.arguments)
        )
        starts = [p for p in self._best(len(self.points)) if p.layout.batch == 1][:2] or self._best(2)
        layout_lists: list[list[StepLayout]] = []
        for name, devices in self.machines.items():
            factor = Fraction(devices, step.machine.devices)
            sizes = list(shapes(step.sizes, max(int(count * factor), 1)))
            there: list[StepLayout] = []
            for p in starts:
                near = sorted(sizes, key=lambda m: distance(m, p.layout.mesh))[: len(step.sizes)]
                batches = (p.layout.batch, p.layout.batch * factor) if has_batch else (p.layout.batch,)
                there += [replace(p.layout, mesh=mesh, batch=b, machine=name) for mesh in near for b in batches]
            layout_lists.append(there)
        self._plan([k for row in zip_longest(*layout_lists) for k in row if k is not None])
        if self.machines:
            self.varied.append(f"the machine ({', '.join(self.machines)})")

    def best_elsewhere(self) -> tuple[Point, ...]:
        """Per other machine and batch the fastest layout that fits, or the smallest."""
        best_by_machine: dict[tuple[str, Fraction], Point] = {}
        for p in sorted(self.points.values(), key=_rank):
            if p.layout.machine and not p.error:
                best_by_machine.setdefault((p.layout.machine, p.layout.batch), p)
        order = list(self.machines)
        return tuple(sorted(best_by_machine.values(), key=lambda p: (order.index(p.layout.machine), p.layout.batch)))


def _rank(p: Point) -> tuple[bool, float, int]:
    return (not p.fits, p.per_batch if p.fits else 0.0, p.peak)


def _next_batch(p: Point) -> StepLayout | None:
    """Twice the batch of a layout that fits, half the batch of one that does not."""
    batch = p.layout.batch * (Fraction(2) if p.fits else Fraction(1, 2))
    return replace(p.layout, batch=batch) if Fraction(1, LARGEST) <= batch <= LARGEST else None


def _goes_on(old: Point, new: Point) -> bool:
    """Whether the next batch is worth planning after that from `old` to `new`."""
    if not old.fits:
        return not new.fits
    return new.fits and new.per_batch < (1 - WORTH) * old.per_batch


def _better(p: Point, than: Point) -> bool:
    return not p.error and _rank(p) < _rank(than)


def _sizes(given: Mapping[str, int] | Sequence[int], own: Sizes) -> Sizes:
    names = [name for name, _ in own]
    if isinstance(given, Mapping):
        if set(given) != set(names):
            raise ValueError(f"the mesh {dict(given)} has other axes than the program's: {', '.join(names)}.")
        sizes = tuple((name, given[name]) for name in names)
    elif len(given) == len(names):
        sizes = tuple(zip(names, given, strict=True))
    else:
        raise ValueError(
            f"the mesh {tuple(given)} has {len(given)} axes, the program's {len(names)}: {', '.join(names)}."
        )
    if any(n < 1 for _, n in sizes):
        raise ValueError(f"the mesh {dict(sizes)} has an axis of no devices; sizes are 1 or more.")
    return sizes


def _multiple(batch: float | Fraction) -> Fraction:
    multiple = Fraction(batch).limit_denominator(FINEST)
    if multiple <= 0:
        raise ValueError(f"batch={batch}: give positive multiples of the program's own batch, at least 1/{FINEST}.")
    return multiple
