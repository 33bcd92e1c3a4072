"""Meshes over several processes: devices are arranged so that each process has a block."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from shardwise.sharding.ownership import arrange_devices, ownership


@dataclass(frozen=True)
class Place:
    """What ownership asks of a device."""

    id: int
    process_index: int
    client: Any = field(default_factory=lambda: SimpleNamespace(process_index_=0), hash=False, compare=False)


def _devices(processes: int, each: int) -> Any:
    return [Place(i, i // each) for i in range(processes * each)]


@pytest.mark.parametrize(
    ("processes", "each", "shape", "ids"),
    [
        (2, 4, (2, 4), [[0, 1, 2, 3], [4, 5, 6, 7]]),  # row-major where that will do
        (2, 4, (4, 2), [[0, 1], [2, 3], [4, 5], [6, 7]]),
        (3, 2, (2, 3), [[0, 2, 4], [1, 3, 5]]),
        (2, 3, (3, 2), [[0, 3], [1, 4], [2, 5]]),
        (3, 4, (2, 6), [[0, 1, 4, 5, 8, 9], [2, 3, 6, 7, 10, 11]]),
    ],
)
def test_each_process_gets_a_block(processes: int, each: int, shape: tuple[int, ...], ids: Any) -> None:
    grid = arrange_devices(_devices(processes, each), shape)
    assert np.vectorize(lambda d: d.id)(grid).tolist() == ids
    assert set(ownership(tuple(grid.ravel()), shape).ranks) == set(range(processes))


def test_where_no_block_fits_the_order_stays() -> None:
    devices = _devices(2, 3)[:5]
    assert arrange_devices(devices, (5, 1)).ravel().tolist() == devices
    devices[1], devices[3] = devices[3], devices[1]
    assert arrange_devices(devices, (5, 1)).ravel().tolist() == devices


@pytest.mark.parametrize(
    ("owners", "shape", "kept_whole"),
    [
        ([0, 0, 1, 1, 2, 2], (2, 3), True),  # process 1 has a device in either row
        (
            [0, 0, 1, 2],
            (2, 2),
            True,
        ),  # along the columns process 0 has something in common with the others, and not all
        ([0, 1, 1, 0], (2, 2), True),
        ([0, 1, 1, 0], (4,), False),
        ([0, 0, 1, 1, 1, 1], (3, 2), False),
        ([0, 1, 0, 1], (2, 2), False),
    ],
)
def test_where_processes_form_no_grid_each_has_all(owners: list[int], shape: tuple[int, ...], kept_whole: bool) -> None:
    devices: Any = tuple(Place(i, owner) for i, owner in enumerate(owners))
    found = ownership(devices, shape)
    assert (found.kept_whole, found.ranks) == (kept_whole, tuple(sorted(set(owners))))
    if kept_whole:
        assert found.extents == shape and found.crossing_axes() == ()
