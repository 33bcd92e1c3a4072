"""The placement of a mesh's axes in a machine: each axis as segments of physical dims.

In: the sizes of the mesh axes, and a `Machine`. Out: a `MeshPlacement`, which `links` reads. The rules are those of
`mesh_utils.create_device_mesh`: slices and nodes take the outermost axes; within a torus the last axis, which communicates the most,
chooses first, and takes as many whole dims as it can; what lies behind a switch is filled in order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import combinations
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.planner.machine import Machine


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of one physical dim that an axis takes.

    Attributes:
        level: index into the machine's levels.
        dim: index into the level's shape.
        size: how many positions of the dim.
        stride: how far apart neighbours are along the dim.
        wrap: whether its ends are joined: it takes the whole dim of a torus.
    """

    level: int
    dim: int
    size: int
    stride: int
    wrap: bool


@dataclass(frozen=True, slots=True)
class MeshPlacement:
    """The segments of each mesh axis, the innermost level first.

    `crossings` are the times of collectives that `links` has computed: layers of a network repeat a few.
    """

    machine: Machine
    segments: Mapping[str, tuple[Segment, ...]]
    crossings: dict[Any, Any] = field(default_factory=dict[Any, Any], compare=False)

    def of(self, axes: Sequence[str]) -> tuple[Segment, ...]:
        """The segments of these axes together, as one group of devices; those of a dim that follow each other are joined."""
        segments: list[Segment] = []
        for part in sorted(
            (s for a in axes for s in self.segments.get(a, ())), key=lambda s: (s.level, s.dim, s.stride)
        ):
            last = segments[-1] if segments else None
            if last and (last.level, last.dim, last.stride * last.size) == (part.level, part.dim, part.stride):
                level = self.machine.levels[part.level]
                size = last.size * part.size
                segments[-1] = Segment(
                    part.level, part.dim, size, last.stride, _wraps(level.wrap, level.shape, part.dim, size)
                )
            else:
                segments.append(part)
        return tuple(segments)


def parts_of_axes(sizes: Mapping[str, int]) -> dict[str, list[str]]:
    """The axes of the user's mesh, each with its parts on the grid: where the program cuts `model` in two, `model.0` and `model.1`."""
    parts: dict[str, list[str]] = {}
    for name in sizes:
        axis, _, number = name.rpartition(".")
        if number.isdigit() and (number == "0" or f"{axis}.0" in sizes):
            parts.setdefault(axis, []).append(name)
        else:
            parts[name] = [name]
    return parts


def place_axes(sizes: Mapping[str, int], machine: Machine) -> MeshPlacement:
    """The placement of a mesh's axes over this machine's devices.

    A mesh of fewer devices than the machine has takes the first ones.

    Raises:
        ValueError: the mesh has more devices than the machine, or does not divide into its levels.
    """
    total = math.prod(sizes.values())
    if total > machine.devices or machine.devices % total:
        raise ValueError(
            f"The mesh {dict(sizes)} has {total} devices, but {machine.name} has {machine.devices}. "
            "The sizes of the axes must multiply to the number of devices, or to a part of it."
        )
    spare_sizes = dict(sizes)
    segments: dict[str, list[Segment]] = {name: [] for name in sizes}
    inner = [i for i, level in enumerate(machine.levels) if not level.switched]
    # On a torus, the devices of a chip are a dim of it.
    torus = tuple(range(inner[0] + 1)) if inner else (0,)
    capacity = math.prod(machine.levels[i].size for i in torus)
    for index in range(len(machine.levels) - 1, torus[-1], -1):
        within = math.prod(level.size for level in machine.levels[:index])
        quota = -(-math.prod(spare_sizes.values()) // within)
        _take_outermost(spare_sizes, segments, index, min(quota, machine.levels[index].size))
    rest = math.prod(spare_sizes.values())
    if rest > capacity:
        raise ValueError(
            f"The mesh {dict(sizes)} does not divide into the levels of {machine.name}: "
            f"{', '.join(f'{level.name} {level.size}' for level in machine.levels)}."
        )
    if inner:
        _place_on_torus(spare_sizes, segments, machine, torus)
    else:
        stride = 1
        for name in reversed(spare_sizes):
            if spare_sizes[name] > 1:
                segments[name].append(Segment(0, 0, spare_sizes[name], stride, False))
                stride *= spare_sizes[name]
    return MeshPlacement(
        machine, {name: tuple(sorted(parts, key=lambda s: s.level)) for name, parts in segments.items()}
    )


def _take_outermost(left: dict[str, int], found: dict[str, list[Segment]], index: int, quota: int) -> None:
    """The first axes take the members of a level behind a switch: slices, nodes."""
    stride = quota
    for name, size in left.items():
        part = math.gcd(size, quota)
        if part > 1:
            stride //= part
            quota //= part
            left[name] = size // part
            found[name].append(Segment(index, 0, part, stride, False))


def _place_on_torus(
    left: dict[str, int], found: dict[str, list[Segment]], machine: Machine, torus: Sequence[int]
) -> None:
    # The torus' own dims first, then the devices of a chip: the order of dims in JAX's physical mesh.
    dims = [(level, dim) for level in reversed(torus) for dim in range(len(machine.levels[level].shape))]
    shape = _first_devices([machine.levels[level].shape[dim] for level, dim in dims], math.prod(left.values()))
    parts = assign(shape, tuple(left.values()))
    for at, (level, dim) in enumerate(dims):
        stride = 1
        # Later axes run fastest within a dim, so they get neighbours.
        for name, part in reversed(list(zip(left, parts, strict=True))):
            if part[at] > 1:
                whole = machine.levels[level]
                wrap = _wraps(whole.wrap, whole.shape, dim, part[at])
                found[name].append(Segment(level, dim, part[at], stride, wrap))
                stride *= part[at]


def _wraps(wrap: Sequence[bool], shape: Sequence[int], dim: int, size: int) -> bool:
    return wrap[dim] and size == shape[dim]


def _first_devices(shape: Sequence[int], count: int) -> tuple[int, ...]:
    """A box of `count` devices within a torus, as near to its proportions as factors allow."""
    box = list(shape)
    while math.prod(box) > count:
        excess = math.prod(box) // count
        for at in sorted(range(len(box)), key=lambda i: -box[i]):
            factor = next((p for p in range(2, excess + 1) if excess % p == 0 and box[at] % p == 0), None)
            if factor is not None:
                box[at] //= factor
                break
        else:
            break
    return tuple(box)


def assign(physical: Sequence[int], logical: Sequence[int]) -> list[tuple[int, ...]]:
    """For each logical axis its factor in each physical dim; the products are the axes' sizes.

    Whole dims if each axis is a product of some of them, else dims are split.

    Raises:
        ValueError: the sizes do not multiply to the same number.
    """
    if math.prod(physical) != math.prod(logical):
        raise ValueError(f"A mesh of {tuple(logical)} does not fill a machine of {tuple(physical)}.")
    return _whole_dims(physical, logical) or _split_dims(physical, logical)


def _whole_dims(physical: Sequence[int], logical: Sequence[int]) -> list[tuple[int, ...]] | None:
    spare_dims = list(physical)
    parts = [(1,) * len(physical) for _ in logical]
    for axis in reversed(range(len(logical))):
        chosen = next(
            (
                dims
                for count in range(len(physical), 0, -1)
                for dims in combinations(range(len(physical)), count)
                if math.prod(spare_dims[d] for d in dims) == logical[axis]
            ),
            None,
        )
        if chosen is None:
            if logical[axis] > 1:
                return None
            continue
        parts[axis] = tuple(physical[d] if d in chosen else 1 for d in range(len(physical)))
        spare_dims = [0 if d in chosen else n for d, n in enumerate(spare_dims)]
    return parts


def _split_dims(physical: Sequence[int], logical: Sequence[int]) -> list[tuple[int, ...]]:
    used = [1] * len(physical)
    parts = [(1,) * len(physical) for _ in logical]
    for axis in reversed(range(len(logical))):
        free = [n // u for n, u in zip(physical, used, strict=True)]
        best = max(_factors(logical[axis], free), key=lambda z: _preference(z, physical, used))
        parts[axis] = best
        used = [u * z for u, z in zip(used, best, strict=True)]
    return parts


def _factors(size: int, free: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All ways to write `size` as a product of divisors of the free sizes."""
    if not free:
        if size == 1:
            yield ()
        return
    for first in range(1, math.gcd(size, free[0]) + 1):
        if size % first == 0 and free[0] % first == 0:
            for rest in _factors(size // first, free[1:]):
                yield (first, *rest)


def _preference(
    parts: Sequence[int], physical: Sequence[int], used: Sequence[int]
) -> tuple[int, int, int, tuple[int, ...]]:
    """The rank of a choice: more of it in whole dims, more whole dims, then the preference of `create_device_mesh`."""
    whole = [z for z, n in zip(parts, physical, strict=True) if z == n]
    shared_size = math.prod(z for z, u in zip(parts, used, strict=True) if u > 1)
    return math.prod(whole), sum(z > 1 for z in whole), shared_size, tuple(parts)
