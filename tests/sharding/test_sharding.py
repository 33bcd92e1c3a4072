"""Shardings that users write: what follows from an index map."""

from __future__ import annotations

import pytest

from shardwise.base.config import use_dialect
from shardwise.sharding import (
    GSPMDSharding,
    Mesh,
    NamedSharding,
    P,
    PmapSharding,
    PositionalSharding,
    Sharding,
    SingleDeviceSharding,
    devices,
)
from shardwise.sharding.derive import sharding_like


class Halves(Sharding):
    """Two devices hold the halves of dim 0, of any shape."""

    @property
    def device_set(self):
        return set(devices()[:2])

    def devices_indices_map(self, global_shape):
        half = global_shape[0] // 2
        rest = (slice(None),) * (len(global_shape) - 1)
        return {device: (slice(i * half, (i + 1) * half), *rest) for i, device in enumerate(devices()[:2])}


class Fixed(Sharding):
    """Made for one shape only, and in an order of its own."""

    @property
    def _device_assignment(self):
        return devices()[3], devices()[1]

    def devices_indices_map(self, global_shape):
        return {devices()[3]: (slice(0, 2),), devices()[1]: (slice(2, 4),)}


def test_everything_follows_from_the_map():
    sharding = Halves()
    assert sharding.device_list == tuple(devices()[:2]) == sharding._device_assignment
    assert sharding.num_devices == 2 and sharding.addressable_devices == sharding.device_set
    assert sharding.is_fully_addressable and not sharding.is_fully_replicated and sharding.has_addressable_devices
    assert sharding.shard_shape((4, 3)) == (2, 3) and sharding.memory_kind is None
    assert sharding.addressable_devices_indices_map((4,)) == sharding.devices_indices_map((4,))
    tiling = sharding.tiling(2)
    assert tiling is not None
    assert (tiling.mesh_shape, tiling.axis_names, tiling.dims) == ((2,), ("_0",), ((0,), ()))
    sharding.check_compatible_aval((4,))
    with pytest.raises(NotImplementedError, match="memory kind"):
        sharding.with_memory_kind("x")


def test_equivalence():
    sharding = Halves()
    mesh = Mesh(devices()[:2], "x")
    assert sharding.is_equivalent_to(NamedSharding(mesh, P("x")), 2)
    assert NamedSharding(mesh, P("x")).is_equivalent_to(sharding, 2)
    assert not sharding.is_equivalent_to(NamedSharding(mesh, P()), 2)
    assert sharding.is_equivalent_to(sharding, 1) and sharding != Halves() and sharding.is_equivalent_to(Halves(), 1)


def test_a_map_for_one_shape():
    sharding = Fixed()
    assert sharding.tiling(1) is None
    tiling = sharding.tiling(1, (4,))
    assert tiling is not None and tiling.dims == ((0,),) and sharding.device_list == (devices()[3], devices()[1])
    assert sharding.shard_shape((4,)) == (2,) and sharding.device_set == {devices()[1], devices()[3]}


def test_maps_that_are_asked_once():
    calls = []

    class Counted(Halves):
        def devices_indices_map(self, global_shape):
            calls.append(global_shape)
            return super().devices_indices_map(global_shape)

    sharding = Counted()
    for shape in (None, None, (4,), (4,)):
        sharding.tiling(1, shape)
    assert calls == [(2,), (4,), (4,)]


def test_nothing_defined():
    class Empty(Sharding):
        pass

    for member in ("device_set", "device_list"):
        with pytest.raises(NotImplementedError, match="device_set"):
            getattr(Empty(), member)
    with pytest.raises(NotImplementedError, match="devices_indices_map"):
        Empty().devices_indices_map((2,))


def test_results_of_a_users_sharding_wear_a_tile_assignment():
    sharding = Halves()
    tiling = sharding.tiling(2)
    assert tiling is not None and sharding_like(sharding, tiling) is sharding
    turned = NamedSharding(Mesh(devices()[:2], "x"), P(None, "x"))
    assert repr(sharding_like(sharding, turned.tiling(2))) == (
        "GSPMDSharding({devices=[1,2]<=[2]}, memory_kind=unpinned_host)"
    )


@pytest.mark.parametrize(
    "make",
    [
        lambda: NamedSharding(Mesh(devices(), ("x",)), P("x")),
        lambda: SingleDeviceSharding(devices()[0]),
        lambda: GSPMDSharding.get_replicated(devices()),
        lambda: PositionalSharding(devices()),
        lambda: PmapSharding.default((8, 4), 0),
    ],
)
def test_hashes_stay_in_both_dialects(make):
    """The default memory has another name in each; a key of a table must be found again all the same."""
    hashes = set()
    for dialect in ("seed", "latest"):
        with use_dialect(dialect):
            sharding = make()
            hashes.add(hash(sharding))
    with use_dialect("seed"):
        assert hashes == {hash(sharding)}
        assert make() == sharding
