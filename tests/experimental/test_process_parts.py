"""Parts of dims that processes hold, from drawings of who owns which tile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import shardwise as jax
from shardwise._src.process_parts import (
    NonUniformShardingError,
    get_process_index_and_count,
    local_to_global_shape,
    num_addressable_indices,
)


def sharding_of(drawing: str, own: int) -> Any:
    """A sharding whose tiles (rows by columns) the processes of the drawing own, as process `own` sees it."""
    rows = drawing.split()
    devices = {(i, j): _Device(int(owner)) for i, row in enumerate(rows) for j, owner in enumerate(row)}

    def indices(shape: tuple[int, ...]) -> dict[Any, tuple[slice, ...]]:
        high, wide = shape[0] // len(rows), shape[1] // len(rows[0])
        return {d: (slice(i * high, (i + 1) * high), slice(j * wide, (j + 1) * wide)) for (i, j), d in devices.items()}

    return SimpleNamespace(
        devices_indices_map=indices,
        device_set=set(devices.values()),
        addressable_devices={d for d in devices.values() if d.process_index == own},
        is_fully_addressable=False,
        is_fully_replicated=False,
    )


class _Device:
    def __init__(self, process_index: int) -> None:
        self.process_index = process_index


@pytest.mark.parametrize(
    ("drawing", "rows", "columns", "shape"),
    [
        ("0011 2233", (0, 2), (0, 2), (10, 14)),
        ("0123 1032", (0, 1), (0, 2), (5, 14)),
        ("0101 2323", (0, 2), (0, 2), (10, 14)),
        ("0000 1111", (0, 2), (0, 1), (10, 7)),
    ],
)
def test_parts_of_uniform_shardings(drawing: str, rows: Any, columns: Any, shape: Any):
    sharding = sharding_of(drawing, 0)
    assert get_process_index_and_count(sharding, 0, 2) == rows
    assert get_process_index_and_count(sharding, 1, 2) == columns
    assert local_to_global_shape(sharding, (5, 7)) == shape


def test_every_part_has_its_index():
    assert [get_process_index_and_count(sharding_of("0011 2233", p), 0, 2)[0] for p in range(4)] == [0, 0, 1, 1]
    assert [get_process_index_and_count(sharding_of("0011 2233", p), 1, 2)[0] for p in range(4)] == [0, 1, 0, 1]


def test_parts_that_differ():
    sharding = sharding_of("0011 1010 0010 0111", 0)
    with pytest.raises(NonUniformShardingError, match="dim 1"):
        get_process_index_and_count(sharding_of("0011 1111", 0), 1, 2)
    assert get_process_index_and_count(sharding, 0, 2) == (0, 1)
    assert local_to_global_shape(sharding_of("0011 1111", 0), (2, 4)) == (None, None)
    assert num_addressable_indices(sharding_of("1221 1221 0000", 0), 0, (6, 8)) == 2
    assert num_addressable_indices(sharding_of("1221 1221 0000", 1), 1, (6, 8)) == 4


def test_one_process_holds_all():
    mesh = jax.make_mesh((2,), ("x",))
    inside: Any = getattr(jax, "_src")  # noqa: B009
    split = jax.NamedSharding(mesh, jax.P("x"))
    assert inside.sharding_impls.get_process_index_and_count(split, 0, 1) == (0, 1)
    assert inside.array.local_to_global_shape(split, (4,)) == (4,)
