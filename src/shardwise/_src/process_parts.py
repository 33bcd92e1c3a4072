"""What part of a dim each process holds, as libraries that load data ask; `_src.sharding_impls` and `_src.array` give these names."""

from collections import defaultdict
from typing import Any

from shardwise.sharding import Sharding

Shape = tuple[int, ...]


class NonUniformShardingError(ValueError):
    """Processes hold parts of a dim that differ in size, or that overlap."""


def _indices_by_process(sharding: Sharding, dim: int, shape: Shape) -> dict[int, frozenset[tuple[int, int]]]:
    """The ranges of `dim` that the devices of each process hold, by process."""
    ranges: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)
    for device, index in sharding.devices_indices_map(shape).items():
        assert index is not None
        tile = range(shape[dim])[index[dim]]
        ranges[device.process_index].add((tile.start, tile.stop))
    return {process: frozenset(own) for process, own in ranges.items()}


def _own_process(sharding: Sharding) -> int:
    return next(iter(sharding.addressable_devices)).process_index


def get_process_index_and_count(tensor_sharding: Sharding, dim: int, ndims: int) -> tuple[int, int]:
    """Which of the different parts of `dim` this process holds, and how many there are: ``(0, 1)`` where all hold all of it.

    Raises:
        NonUniformShardingError: the parts differ in size, or overlap.
    """
    if tensor_sharding.is_fully_addressable or tensor_sharding.is_fully_replicated:
        return 0, 1
    size = len(tensor_sharding.device_set)  # any sharding over these devices divides it
    ranges = _indices_by_process(tensor_sharding, dim, (size,) * ndims)
    parts = sorted(set(ranges.values()), key=sorted)
    if len({len(part) for part in parts}) > 1 or sum(map(len, parts)) != len(frozenset[Any].union(*parts)):
        raise NonUniformShardingError(
            f"processes hold parts of dim {dim} that differ in size or overlap: {tensor_sharding}. Order the mesh so that each process "
            "has a block of it, or give the global shape."
        )
    return parts.index(ranges[_own_process(tensor_sharding)]), len(parts)


def local_to_global_shape(sharding: Sharding, local_shape: Shape) -> tuple[int | None, ...]:
    """The global shape of an array of which each process holds a part of `local_shape`; None for dims where parts differ."""

    def whole(dim: int) -> int | None:
        try:
            return local_shape[dim] * get_process_index_and_count(sharding, dim, len(local_shape))[1]
        except NonUniformShardingError:
            return None

    return tuple(map(whole, range(len(local_shape))))


def num_addressable_indices(tensor_sharding: Sharding, dim: int, global_shape: Shape) -> int:
    """How many of the indices of `dim` this process holds."""
    ranges = _indices_by_process(tensor_sharding, dim, global_shape)
    return sum(stop - start for start, stop in ranges[_own_process(tensor_sharding)])
