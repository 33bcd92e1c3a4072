"""`NamedSharding` and `SingleDeviceSharding`, beside JAX's."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from shardwise.base.config import use_dialect
from shardwise.base.errors import DuplicateSpecError, IndivisibleError
from shardwise.sharding import (
    AbstractMesh,
    AxisType,
    Mesh,
    NamedSharding,
    P,
    SingleDeviceSharding,
    devices,
    make_mesh,
)

AUTO = (AxisType.Auto, AxisType.Auto)
EXPLICIT = (AxisType.Explicit, AxisType.Explicit)
ABSTRACT = AbstractMesh((2, 4), ("x", "y"))


def mesh(axis_types=AUTO):
    return make_mesh((2, 4), ("x", "y"), axis_types=axis_types)


def named(*entries, **options):
    return NamedSharding(mesh(), P(*entries), **options)


def test_printed_as_the_seed_does():
    assert (
        repr(named("x", "y"))
        == str(named("x", "y"))
        == (
            "NamedSharding(mesh=Mesh('x': 2, 'y': 4, axis_types=(Auto, Auto)), spec=PartitionSpec('x', 'y'), "
            "memory_kind=unpinned_host)"
        )
    )
    assert repr(NamedSharding(ABSTRACT, P("x"))) == (
        "NamedSharding(mesh=AbstractMesh('x': 2, 'y': 4, axis_types=(Auto, Auto)), spec=PartitionSpec('x',))"
    )
    assert repr(SingleDeviceSharding(devices()[2])) == (
        "SingleDeviceSharding(device=CpuDevice(id=2), memory_kind=unpinned_host)"
    )


SPECS = [(), ("x",), ("y",), ("x", "y"), ("y", "x"), (("x", "y"),), (("y", "x"), None), (None, "x"), (None, ("x", "y"))]


@pytest.mark.parametrize("entries", SPECS, ids=str)
def test_same_as_jax(entries):
    jax = pytest.importorskip("jax")
    theirs = jax.sharding.NamedSharding(
        jax.make_mesh((2, 4), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2), jax.P(*entries)
    )
    with use_dialect("latest"):
        ours = named(*entries)
        assert repr(ours) == repr(theirs)
        for shape in [(8, 8), (16, 8), (0, 8), (8, 8, 3)]:
            mine, his = ours.devices_indices_map(shape), theirs.devices_indices_map(shape)
            assert [(d.id, i) for d, i in mine.items()] == [(d.id, i) for d, i in his.items()]
            assert ours.shard_shape(shape) == theirs.shard_shape(shape)
            assert ours.addressable_devices_indices_map(shape) == mine
        for member in ("is_fully_replicated", "is_fully_addressable", "num_devices", "memory_kind", "replicated_axes"):
            assert getattr(ours, member) == getattr(theirs, member), member
        for other in SPECS:
            mine, his = named(*other), theirs.update(spec=jax.P(*other))
            assert (ours == mine) == (theirs == his)
            assert ours.is_equivalent_to(mine, 2) == theirs.is_equivalent_to(his, 2), other


def test_equality():
    assert named("x") is named("x") and hash(named("x")) == hash(named("x"))
    assert named("x") != named("x", None) and NamedSharding(mesh(EXPLICIT), P("x")) != named("x")
    assert named("x").is_equivalent_to(named("x", None), 2) and not named("x").is_equivalent_to(3, 2)
    flat = NamedSharding(Mesh(devices(), "q"), P("q"))
    assert named(("x", "y")).is_equivalent_to(flat, 1) and not named(("y", "x")).is_equivalent_to(flat, 1)
    assert not named(("x", "y")).is_equivalent_to(NamedSharding(Mesh(devices()[::-1], "q"), P("q")), 1)
    assert NamedSharding(mesh(EXPLICIT), P("x")).is_equivalent_to(named("x"), 1)
    one = NamedSharding(Mesh(devices()[2:3], "q"), P("q"))
    single = SingleDeviceSharding(devices()[2])
    assert single.is_equivalent_to(one, 2) and one.is_equivalent_to(single, 2)
    assert not named().is_equivalent_to(single, 2) and not named("x", "y").is_equivalent_to(named("x"), 1)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (
            lambda: named("z"),
            ValueError,
            r"Resource axis: z of PartitionSpec\('z',\) is not found in mesh: \('x', 'y'\)",
        ),
        (lambda: named("x", "x"), DuplicateSpecError, r"PartitionSpec\('x', 'x'\) has duplicate entries for `x`"),
        (lambda: named(("x", "y"), "y"), DuplicateSpecError, "duplicate entries for `y`"),
        (lambda: named("x", memory_kind="foo"), ValueError, "memory kinds: unpinned_host. Got memory kind: foo"),
        (lambda: NamedSharding(mesh(), None), TypeError, r"Did you mean P\(\)"),
        (lambda: NamedSharding(mesh(), "x"), TypeError, "PartitionSpec"),
        (lambda: NamedSharding(mesh(), 3), TypeError, "PartitionSpec"),
        (lambda: NamedSharding(3, P()), TypeError, "Mesh or AbstractMesh"),  # type: ignore[arg-type]
        (lambda: NamedSharding(mesh(EXPLICIT), P(P.UNCONSTRAINED)), ValueError, "no mesh axis_types are `Auto`"),
        (lambda: NamedSharding(mesh(), P("x", unreduced={"y"})), ValueError, "of type `Explicit`"),
        (lambda: NamedSharding(mesh(EXPLICIT), P("x", reduced={"z"})), ValueError, "Reduced axes z is not found"),
    ],
)
def test_construction_errors(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_shape_errors():
    with pytest.raises(IndivisibleError, match=r"axis 0 is partitioned 2 times, but the dimension size is 7"):
        named("x").shard_shape((7,))
    with pytest.raises(IndivisibleError, match=r"^Sharding NamedSharding\("):
        named("x").devices_indices_map((7,))
    for call in (
        named("x", "y").shard_shape,
        named("x", "y").devices_indices_map,
        named("x", "y").check_compatible_aval,
    ):
        with pytest.raises(
            ValueError, match="only valid for values of rank at least 2, but was applied to a value of rank 1"
        ):
            call((8,))
    with pytest.raises(ValueError, match=r"rank 0. For scalars the PartitionSpec should be P\(\)"):
        named("x").check_compatible_aval(())
    named("x").check_compatible_aval((7,))


def test_specs_given_as_tuples():
    assert NamedSharding(mesh(), ("x",)) is named("x")
    with use_dialect("latest"), pytest.raises(AttributeError, match="takes a PartitionSpec"):
        NamedSharding(mesh(), ("x",))


def test_editing():
    assert named("x").with_spec(P("y")) is named("y") and named("x").with_spec(("y",)) is named("y")
    assert named("x").update(spec=P("y")) is named("y") and named("x").update(spec="y") is named("y")
    assert named("x").update(mesh=mesh(EXPLICIT)).mesh is mesh(EXPLICIT)
    assert named("x").with_memory_kind("unpinned_host") is named("x")
    with pytest.raises(ValueError, match="Got memory kind: zz"):
        named("x").with_memory_kind("zz")
    with use_dialect("latest"):
        pinned = named("x").with_memory_kind("pinned_host")
        assert pinned != named("x") and pinned.memory_kind == "pinned_host" and named("x").memory_kind == "device"
        assert not pinned.is_equivalent_to(named("x"), 1)
        assert pinned.update(spec=P("y")).memory_kind == "pinned_host"


def test_over_an_abstract_mesh():
    sharding = NamedSharding(ABSTRACT, P("x"))
    assert sharding.num_devices == 8 and sharding.shard_shape((8,)) == (4,) and not sharding.is_fully_replicated
    assert sharding.memory_kind is None and sharding.tiling(1) is named("x").tiling(1)
    for member in ("device_set", "device_list", "is_fully_addressable", "addressable_devices", "_device_assignment"):
        with pytest.raises(ValueError, match=f"^{member} is not implemented for `jax.sharding.AbstractMesh`"):
            getattr(sharding, member)
    with pytest.raises(ValueError, match="not implemented"):
        sharding.devices_indices_map((8,))
    assert not sharding.is_equivalent_to(named("x"), 2)
    assert pickle.loads(pickle.dumps(sharding)) is sharding
    with use_dialect("latest"), pytest.raises(ValueError, match="invalid memory kind: zz"):
        sharding.with_memory_kind("zz")


def test_unreduced_axes():
    sharding = NamedSharding(mesh(EXPLICIT), P(None, unreduced={"y"}))
    assert not sharding.is_fully_replicated and sharding.replicated_axes == {"x"}
    assert sharding.shard_shape((8,)) == (8,)


def test_members():
    sharding = named("x")
    assert sharding.device_set == set(devices()) == sharding.addressable_devices
    assert sharding.device_list == sharding._device_assignment == sharding._addressable_device_assignment
    assert sharding.has_addressable_devices and sharding.dims == (("x",),)
    assert named(P.UNCONSTRAINED).is_fully_replicated and named(P.UNCONSTRAINED).shard_shape((8,)) == (8,)
    assert NamedSharding(Mesh(devices()[:1], "q"), P("q")).is_fully_replicated
    tiling = named(("y", "x"), None).tiling(3)
    assert (tiling.mesh_shape, tiling.axis_names, tiling.dims) == ((2, 4), ("x", "y"), ((1, 0), (), ()))


def test_immutable_and_shared():
    with pytest.raises(AttributeError):
        named("x").mesh = None  # type: ignore[misc]
    assert copy.copy(named("x")) is named("x") is copy.deepcopy(named("x"))
    with pytest.raises(TypeError, match="cannot pickle 'Device' object"):
        pickle.dumps(named("x"))
    with pytest.raises(AttributeError, match="no attribute 'nope'"):
        _ = named("x").nope


def test_equal_device_lists_are_one_object():
    other = NamedSharding(Mesh(np.array(devices()).reshape(4, 2), ("a", "b")), P())
    assert other.device_list is named("x").device_list


def test_single_device():
    device = devices()[2]
    sharding = SingleDeviceSharding(device)
    assert sharding is SingleDeviceSharding(device) is SingleDeviceSharding(device, memory_kind="unpinned_host")
    assert sharding.devices_indices_map((2, 3)) == {device: (slice(None), slice(None))}
    assert sharding.shard_shape((2, 3)) == (2, 3) and sharding.num_devices == 1 and sharding.is_fully_replicated
    assert sharding.device_set == {device} == sharding.addressable_devices and sharding.device_list == (device,)
    assert sharding.tiling(2).mesh_shape == () and sharding.tiling(2).dims == ((), ())
    assert sharding != SingleDeviceSharding(devices()[1]) and copy.deepcopy(sharding) is sharding
    with pytest.raises(TypeError, match="takes a Device"):
        SingleDeviceSharding(3)
    with pytest.raises(ValueError, match="Got memory kind: foo"):
        SingleDeviceSharding(device, memory_kind="foo")
    with use_dialect("latest"):
        assert repr(sharding) == "SingleDeviceSharding(device=CpuDevice(id=2), memory_kind=device)"
        assert sharding != sharding.with_memory_kind("pinned_host")
