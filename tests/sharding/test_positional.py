"""`PositionalSharding`; texts are those that JAX 0.5.3 prints."""

from __future__ import annotations

import numpy as np
import pytest

from shardwise.base.errors import IndivisibleError
from shardwise.sharding import HloSharding, Mesh, NamedSharding, P, PositionalSharding, devices
from shardwise.sharding.device import Client, Topology


@pytest.fixture
def flat():
    return PositionalSharding(devices())


TEXTS = [
    (
        lambda p: p,
        "PositionalSharding([{CPU 0} {CPU 1} {CPU 2} {CPU 3} {CPU 4} {CPU 5} {CPU 6} {CPU 7}], "
        "memory_kind=unpinned_host, shape=(8,))",
    ),
    (
        lambda p: p.reshape(2, 4),
        "PositionalSharding([[{CPU 0} {CPU 1} {CPU 2} {CPU 3}]\n"
        "                    [{CPU 4} {CPU 5} {CPU 6} {CPU 7}]], memory_kind=unpinned_host, shape=(2, 4))",
    ),
    (
        lambda p: p.reshape(2, 4).replicate(0),
        "PositionalSharding([[{CPU 0, 4} {CPU 1, 5} {CPU 2, 6} {CPU 3, 7}]], memory_kind=unpinned_host, shape=(1, 4))",
    ),
    (
        lambda p: p.reshape(2, 4).replicate(-1),
        "PositionalSharding([[{CPU 0, 1, 2, 3}]\n"
        "                    [{CPU 4, 5, 6, 7}]], memory_kind=unpinned_host, shape=(2, 1))",
    ),
    (
        lambda p: p.reshape(2, 4).replicate(),
        "PositionalSharding([[{CPU 0, 1, 2, 3, 4, 5, 6, 7}]], memory_kind=unpinned_host, shape=(1, 1))",
    ),
    (
        lambda p: p.reshape(2, 2, 2),
        "PositionalSharding([[[{CPU 0} {CPU 1}]\n                     [{CPU 2} {CPU 3}]]\n\n"
        "                    [[{CPU 4} {CPU 5}]\n                     [{CPU 6} {CPU 7}]]], "
        "memory_kind=unpinned_host, shape=(2, 2, 2))",
    ),
    (
        lambda p: p.reshape(4, 2).replicate(0, keepdims=False),
        "PositionalSharding([{CPU 0, 2, 4, 6} {CPU 1, 3, 5, 7}], memory_kind=unpinned_host, shape=(2,))",
    ),
    (
        lambda p: p.reshape(2, 2, 2).T.replicate(1),
        "PositionalSharding([[[{CPU 0, 2} {CPU 4, 6}]]\n\n                    [[{CPU 1, 3} {CPU 5, 7}]]], "
        "memory_kind=unpinned_host, shape=(2, 1, 2))",
    ),
    (
        lambda p: p.reshape(2, 4).replicate(0).reshape(2, 2),
        "PositionalSharding([[{CPU 0, 4} {CPU 1, 5}]\n"
        "                    [{CPU 2, 6} {CPU 3, 7}]], memory_kind=unpinned_host, shape=(2, 2))",
    ),
    (lambda p: PositionalSharding(devices()[0]), "PositionalSharding({CPU 0}, memory_kind=unpinned_host, shape=())"),
]


@pytest.mark.parametrize(("make", "text"), TEXTS)
def test_texts(flat, make, text):
    assert repr(make(flat)) == str(make(flat)) == text


def test_long_lists_break_as_in_jax():
    many = Client(Topology(devices_per_process=39)).devices()
    lengths = {n: [len(line) for line in repr(PositionalSharding(many[:n])).split("\n")] for n in (9, 10, 18, 39)}
    assert lengths == {9: [132], 10: [91, 69], 18: [91, 90, 70], 39: [91, 90, 91, 91, 115]}


def test_grids(flat):
    assert (flat.shape, flat.ndim, flat.num_devices, flat.memory_kind) == ((8,), 1, 8, "unpinned_host")
    assert flat.reshape((2, -1)).shape == (2, 4) and flat.reshape(2, 4).transpose(1, 0).shape == (4, 2)
    assert flat.reshape(2, 4).T == flat.reshape(2, 4).transpose() == flat.reshape(2, 4).transpose(None)
    assert flat.reshape(1, 2, 4).transpose((2, 0, 1)).shape == (4, 1, 2)
    assert flat.reshape(2, 4).replicate((0, 1)) == flat.reshape(2, 4).replicate()
    assert flat.replicate(0, keepdims=False).shape == ()
    assert flat.reshape(2, 4).replicate().is_fully_replicated and not flat.is_fully_replicated
    with pytest.raises(ValueError, match="reshape"):
        flat.reshape(3, 3)
    with pytest.raises(ValueError, match="out of bounds"):
        flat.replicate(2)


def test_equality(flat):
    assert flat == PositionalSharding(devices()) and hash(flat) == hash(PositionalSharding(devices()))
    assert flat.reshape(2, 4) == PositionalSharding(np.array(devices()).reshape(2, 4)) != flat
    assert flat != NamedSharding(Mesh(devices(), "x"), P("x"))
    assert flat.is_equivalent_to(NamedSharding(Mesh(devices(), "x"), P("x")), 1)
    mesh = Mesh(np.array(devices()).reshape(2, 4), ("x", "y"))
    assert flat.reshape(2, 4).T.is_equivalent_to(NamedSharding(mesh, P("y", "x")), 2)
    assert not flat.is_equivalent_to(NamedSharding(mesh, P("y", "x")), 2)
    assert flat.with_memory_kind("unpinned_host") == flat


def test_placement(flat):
    mesh = Mesh(np.array(devices()).reshape(2, 4), ("x", "y"))
    grid = flat.reshape(2, 4)
    for sharding, entries in [
        (grid, ("x", "y")),
        (grid.T, ("y", "x")),
        (grid.replicate(0), (None, "y")),
        (grid.T.replicate(1), ("y",)),
        (grid.replicate(), ()),
    ]:
        named = NamedSharding(mesh, P(*entries))
        assert sharding.device_list == tuple(devices())
        assert sharding.tiling(2).same_placement(named.tiling(2))
        assert sharding.devices_indices_map((8, 8)) == named.devices_indices_map((8, 8))
        assert sharding.shard_shape((8, 8)) == named.shard_shape((8, 8))
        assert sharding._to_xla_hlo_sharding(2) == HloSharding.from_tiling(named.tiling(2))
        assert PositionalSharding.from_tiling(devices(), named.tiling(2)) == sharding
    assert repr(grid.T._to_xla_hlo_sharding(2)) == "{devices=[4,2]0,4,1,5,2,6,3,7}"


def test_devices_in_no_grid_order():
    order = PositionalSharding(devices()).reshape(2, 2, 2).transpose(1, 0, 2).reshape(8)
    assert order.tiling(1) is not None
    order = [devices()[i] for i in (5, 1, 7)]
    assert PositionalSharding(order).devices_indices_map((3,))[devices()[1]] == (slice(1, 2),)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda p: PositionalSharding([]), ValueError, r"requires at least one device, got \[\]"),
        (lambda p: PositionalSharding(devices() * 2), ValueError, "twice"),
        (lambda p: PositionalSharding([1]), TypeError, "takes devices"),
        (lambda p: PositionalSharding(devices(), memory_kind="foo"), ValueError, "Got memory kind: foo"),
        (
            lambda p: p.shard_shape((8, 2)),
            ValueError,
            "only valid for values of rank 1, but was applied to a value of rank 2",
        ),
        (lambda p: p.devices_indices_map(()), ValueError, "of rank 0"),
        (lambda p: p.tiling(2), ValueError, "of rank 2"),
        (lambda p: p.shard_shape((7,)), IndivisibleError, "partitioned 8 times, but the dimension size is 7"),
    ],
)
def test_errors(flat, make, error, text):
    with pytest.raises(error, match=text):
        make(flat)
