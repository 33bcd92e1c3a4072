"""`PmapSharding`; texts and index maps are those of JAX 0.5.3."""

from __future__ import annotations

import numpy as np
import pytest

from shardwise.sharding import (
    Chunked,
    Mesh,
    NamedSharding,
    NoSharding,
    P,
    PmapSharding,
    Replicated,
    ShardedAxis,
    ShardingSpec,
    Unstacked,
    devices,
)

SPEC = "ShardingSpec((Chunked(8), NoSharding()), (ShardedAxis(axis=0),))"


def test_texts():
    sharding = PmapSharding.default((8, 3))
    assert repr(sharding) == (
        f"PmapSharding(sharding_spec={SPEC}, devices=[CpuDevice(id=0) CpuDevice(id=1) CpuDevice(id=2) "
        "CpuDevice(id=3)\n CpuDevice(id=4) CpuDevice(id=5) CpuDevice(id=6) CpuDevice(id=7)])"
    )
    assert str(sharding) == (
        f"PmapSharding(sharding_spec={SPEC}, device_ids=[0, 1, 2, 3, 4, 5, 6, 7], device_platform=CPU, "
        "device_shape=(8,))"
    )
    parts = (Chunked([2, 2]), Unstacked(3), NoSharding(), ShardedAxis(1), Replicated(2))
    assert repr(parts) == "(Chunked(2,2), Unstacked(3), NoSharding(), ShardedAxis(axis=1), Replicated(replicas=2))"


def test_default():
    assert PmapSharding.default((4, 3)).device_list == tuple(devices()[:4])
    turned = PmapSharding.default((3, 4), sharded_dim=1)
    assert repr(turned.sharding_spec) == "ShardingSpec((NoSharding(), Chunked(4)), (ShardedAxis(axis=0),))"
    assert turned.devices_indices_map((3, 4))[devices()[2]] == (slice(None), slice(2, 3))
    copies = PmapSharding.default((3, 4), sharded_dim=None, devices=devices()[:2])
    assert repr(copies.sharding_spec) == "ShardingSpec((NoSharding(), NoSharding()), (Replicated(replicas=2),))"
    assert copies.is_fully_replicated and copies.shard_shape((3, 4)) == (3, 4)


def test_placement():
    sharding = PmapSharding.default((8, 3))
    assert list(sharding.devices_indices_map((8, 3)).items())[5] == (devices()[5], (slice(5, 6), slice(None)))
    assert sharding.shard_shape((8, 3)) == (1, 3) and sharding.shard_shape((8,)) == (1,)
    assert sharding.devices_indices_map((8,))[devices()[1]] == (slice(1, 2),)
    assert sharding.num_devices == 8 and sharding.memory_kind == "unpinned_host" and not sharding.is_fully_replicated
    assert sharding.device_set == set(devices()) and sharding.devices.shape == (8,)
    tiling = sharding.tiling(2)
    assert tiling is not None and (tiling.mesh_shape, tiling.dims) == ((8,), ((0,), ()))


def test_equality():
    sharding = PmapSharding.default((8, 3))
    assert sharding == PmapSharding.default((8, 3)) and hash(sharding) == hash(PmapSharding.default((8, 3)))
    assert sharding.is_equivalent_to(PmapSharding.default((8, 3)), 2)
    assert not sharding.is_equivalent_to(NamedSharding(Mesh(devices(), "x"), P("x")), 2)
    assert sharding != PmapSharding.default((8,)) and Chunked([8]) == Chunked((8,))


def test_several_cuts():
    cuts = (Chunked((2, 2)), Chunked([2]))
    forward = ShardingSpec(cuts, (ShardedAxis(0), ShardedAxis(1), ShardedAxis(2)))
    mixed = ShardingSpec(cuts, (ShardedAxis(2), ShardedAxis(0), ShardedAxis(1)))

    def starts(spec):
        return [tuple(entry.start for entry in index) for index in spec.indices((8, 4)).ravel()]

    assert starts(forward) == [(0, 0), (0, 2), (2, 0), (2, 2), (4, 0), (4, 2), (6, 0), (6, 2)]
    assert starts(mixed) == [(0, 0), (2, 0), (4, 0), (6, 0), (0, 2), (2, 2), (4, 2), (6, 2)]
    spec = ShardingSpec((Chunked((2, 2)), NoSharding()), (ShardedAxis(0), Replicated(2), ShardedAxis(1)))
    assert spec.indices((8, 3)).shape == (2, 2, 2)
    assert [index[0].start for index in spec.indices((8, 3)).ravel()] == [0, 2, 0, 2, 4, 6, 4, 6]
    assert PmapSharding(np.array(devices()), spec).shard_shape((8, 3)) == (2, 3)
    with pytest.raises(ValueError, match="must name each of the 3 cuts"):
        ShardingSpec(cuts, (ShardedAxis(0),))


def test_unstacked_parts_lack_the_dim():
    sharding = PmapSharding(devices(), ShardingSpec((Unstacked(8), NoSharding()), (ShardedAxis(0),)))
    assert sharding.devices_indices_map((8, 3))[devices()[5]] == (5, slice(None))
    assert sharding.shard_shape((8, 3)) == (3,) and sharding.tiling(2) is None


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda s: s.shard_shape((16, 3)), ValueError, r"sharded dimension 0 with value 16 in shape \(16, 3\).*=8"),
        (lambda s: s.devices_indices_map((7, 3)), ValueError, "with value 7"),
        (lambda s: s.check_compatible_aval((7, 3)), ValueError, "with value 7"),
        (lambda s: s.shard_shape(()), ValueError, "rank"),
        (lambda s: PmapSharding.default((3, 4), sharded_dim=None), ValueError, "One of sharded_dim or devices"),
        (lambda s: PmapSharding.default(()), ValueError, "no dim 0"),
        (lambda s: PmapSharding.default((30, 4)), ValueError, "needs 30 devices.*got 8"),
        (lambda s: PmapSharding([1], s.sharding_spec), TypeError, "takes devices"),
        (lambda s: PmapSharding(devices(), 3), TypeError, "ShardingSpec"),
        (lambda s: Chunked(8), TypeError, "sequence"),  # type: ignore[arg-type]
        (lambda s: s.with_memory_kind("unpinned_host"), NotImplementedError, "NamedSharding"),
    ],
)
def test_errors(make, error, text):
    with pytest.raises(error, match=text):
        make(PmapSharding.default((8, 3)))
