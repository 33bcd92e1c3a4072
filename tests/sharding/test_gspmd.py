"""Tile assignments: fields, text, and the shardings they give."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from shardwise.base.config import use_dialect
from shardwise.base.errors import IndivisibleError
from shardwise.sharding import GSPMDSharding, HloSharding, Mesh, NamedSharding, OpSharding, P, devices

Type = OpSharding.Type
CUBE = [
    # spec over a (2, 2, 2) mesh, and its text at rank 2 in JAX 0.5.3 and 0.10.2 alike
    ((), "{replicated}"),
    (("a",), "{devices=[2,1,4]<=[8] last_tile_dim_replicate}"),
    (("b",), "{devices=[2,1,4]<=[2,2,2]T(1,0,2) last_tile_dim_replicate}"),
    (("c",), "{devices=[2,1,4]<=[4,2]T(1,0) last_tile_dim_replicate}"),
    (("a", "c"), "{devices=[2,2,2]<=[2,2,2]T(0,2,1) last_tile_dim_replicate}"),
    (("c", "a"), "{devices=[2,2,2]<=[4,2]T(1,0) last_tile_dim_replicate}"),
    ((("c", "a"), "b"), "{devices=[4,2]<=[4,2]T(1,0)}"),
    ((("a", "b"),), "{devices=[4,1,2]<=[8] last_tile_dim_replicate}"),
    ((("b", "c"), "a"), "{devices=[4,2]<=[2,4]T(1,0)}"),
    (("b", "c"), "{devices=[2,2,2]<=[2,4]T(1,0) last_tile_dim_replicate}"),
    (("c", "b"), "{devices=[2,2,2]<=[2,2,2]T(2,1,0) last_tile_dim_replicate}"),
    ((None, ("c", "b", "a")), "{devices=[1,8]<=[2,2,2]T(2,1,0)}"),
]


def op(**fields):
    made = OpSharding()
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def listed(**fields):
    return op(type=Type.OTHER, tile_assignment_devices=[0, 4, 1, 5, 2, 6, 3, 7], **fields)


STRIPED = listed(tile_assignment_dimensions=[4, 1, 2], replicate_on_last_tile_dim=True)


@pytest.mark.parametrize(("entries", "text"), CUBE, ids=str)
def test_text_of_a_spec(entries, text):
    mesh = Mesh(np.array(devices()).reshape(2, 2, 1, 2), ("a", "b", "one", "c"))
    sharding = NamedSharding(mesh, P(*entries))
    made = HloSharding.from_tiling(sharding.tiling(2))
    assert repr(made) == text
    read = HloSharding.from_string(text)
    assert read == made and hash(read) == hash(made) and repr(read) == text
    assert HloSharding.from_proto(made.to_proto()) == made and repr(HloSharding.from_proto(made.to_proto())) == text
    gspmd = GSPMDSharding(devices(), made)
    assert repr(gspmd) == f"GSPMDSharding({text}, memory_kind=unpinned_host)"
    assert gspmd.devices_indices_map((8, 8)) == sharding.devices_indices_map((8, 8))
    tiling = gspmd.tiling(2)
    assert tiling is not None and tiling.same_placement(sharding.tiling(2))
    assert gspmd.is_equivalent_to(sharding, 2) and sharding.is_equivalent_to(gspmd, 2) and gspmd != sharding


def test_text_beside_jax():
    jax = pytest.importorskip("jax")
    grid = np.array(jax.devices()[:8])
    for shape, names in [((2, 4), "xy"), ((2, 2, 2), "xyz"), ((8, 1), "xy")]:
        theirs, ours = jax.sharding.Mesh(grid.reshape(shape), tuple(names)), None
        ours = Mesh(np.array(devices()).reshape(shape), tuple(names))
        for entries in [("x",), ("y",), ("y", "x"), (("y", "x"),), (None, ("x", "y")), (names[-1], None, "x")]:
            if len(set(entries)) != len(entries):
                continue
            text = repr(jax.sharding.NamedSharding(theirs, jax.P(*entries))._to_xla_hlo_sharding(3))
            assert repr(HloSharding.from_tiling(NamedSharding(ours, P(*entries)).tiling(3))) == text


def test_listed_devices():
    sharding = GSPMDSharding(devices(), STRIPED)
    text = "{devices=[4,1,2]0,4,1,5,2,6,3,7 last_tile_dim_replicate}"
    assert repr(sharding) == f"GSPMDSharding({text}, memory_kind=unpinned_host)"
    starts = [index[0].indices(8)[0] for index in sharding.devices_indices_map((8, 2)).values()]
    assert starts == [0, 2, 4, 6, 0, 2, 4, 6]
    assert sharding.shard_shape((8, 2)) == (2, 2) and sharding.num_devices == 8
    assert sharding.device_list == tuple(devices()) and not sharding.is_fully_replicated
    assert sharding.is_equivalent_to(NamedSharding(Mesh(np.array(devices()).reshape(2, 4), ("x", "y")), P("y")), 2)
    tiling = sharding.tiling(2)
    assert tiling is not None and tiling.dims == ((1,), ())
    compact = op(
        type=Type.OTHER,
        tile_assignment_dimensions=[4, 1, 2],
        iota_reshape_dims=[2, 4],
        iota_transpose_perm=[1, 0],
        last_tile_dims=[Type.REPLICATED],
    )
    other = GSPMDSharding(devices(), compact)
    assert sharding == other and hash(sharding) == hash(other)
    assert "{devices=[4,1,2]<=[2,4]T(1,0) last_tile_dim_replicate}" in repr(other)


def test_devices_in_no_grid_order():
    order = op(type=Type.OTHER, tile_assignment_dimensions=[8, 1], tile_assignment_devices=[0, 3, 1, 2, 4, 7, 5, 6])
    sharding = GSPMDSharding(devices(), order)
    assert sharding.devices_indices_map((8, 2))[devices()[3]] == (slice(1, 2), slice(None))
    assert sharding.tiling(2) is None and sharding.shard_shape((8, 2)) == (1, 2)
    assert sharding.is_equivalent_to(GSPMDSharding(devices(), order.clone()), 2)
    assert not sharding.is_equivalent_to(GSPMDSharding(devices(), STRIPED), 2)


def test_replicated_forms_are_equal():
    plain = GSPMDSharding.get_replicated(devices())
    assert repr(plain) == "GSPMDSharding({replicated}, memory_kind=unpinned_host)"
    assert plain == GSPMDSharding(devices(), op(type=Type.REPLICATED))
    spelled = listed(tile_assignment_dimensions=[1, 1, 8], replicate_on_last_tile_dim=True)
    assert plain == GSPMDSharding(devices(), spelled) and hash(plain) == hash(GSPMDSharding(devices(), spelled))
    assert plain.is_fully_replicated and plain.shard_shape((3, 5)) == (3, 5)
    assert plain.is_equivalent_to(NamedSharding(Mesh(devices(), "x"), P()), 2)


def test_maximal_and_manual():
    maximal = GSPMDSharding(devices(), op(type=Type.MAXIMAL, tile_assignment_devices=[2]))
    assert repr(maximal) == "GSPMDSharding({maximal device=2}, memory_kind=unpinned_host)"
    assert HloSharding.from_string("{maximal device=2}") == maximal._hlo_sharding
    assert maximal.devices_indices_map((8,))[devices()[0]] == (slice(None),)
    assert repr(HloSharding.from_string("{manual}")) == "{manual}" and HloSharding.manual().is_manual()
    subgroup = HloSharding.from_string("{devices=[2,2,2]<=[8] last_tile_dims={manual}}")
    assert subgroup.subgroup_types() == [Type.MANUAL] and subgroup.ways == (2, 2)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: GSPMDSharding([], op()), ValueError, "at least one device"),
        (lambda: GSPMDSharding(devices(), 3), TypeError, "OpSharding or HloSharding"),
        (lambda: GSPMDSharding(devices(), "{replicated}"), TypeError, "from_string"),
        (lambda: GSPMDSharding(devices()[:4], STRIPED), ValueError, "exactly once"),
        (lambda: GSPMDSharding(devices(), op(), memory_kind="foo"), ValueError, "Got memory kind: foo"),
        (lambda: HloSharding.from_string("{devices=8}"), ValueError, "is no sharding"),
        (lambda: HloSharding.from_proto(listed(tile_assignment_dimensions=[3])), ValueError, "ask for 3 devices"),
        (lambda: HloSharding.from_proto(op(type=Type.TUPLE)), ValueError, "tuple"),
        (lambda: HloSharding.from_string("{devices=[8]<=[4]}"), ValueError, "differ in size"),
        (lambda: HloSharding.from_string("{devices=[8]<=[2,4]T(1,1)}"), ValueError, "does not permute"),
        (lambda: GSPMDSharding(devices(), STRIPED).shard_shape((7, 2)), IndivisibleError, r"factors: \[4, 1\]"),
        (lambda: GSPMDSharding(devices(), STRIPED).shard_shape((8,)), ValueError, "rank at least 2"),
        (lambda: GSPMDSharding(devices(), STRIPED).check_compatible_aval((8,)), ValueError, "rank at least 2"),
        (lambda: GSPMDSharding(devices(), STRIPED).devices_indices_map((8, 2, 3)), ValueError, "rank 2, but"),
    ],
)
def test_errors(make, error, text):
    with pytest.raises(error, match=text):
        make()


def test_fields_and_copies():
    fields = STRIPED.clone()
    fields.tile_assignment_dimensions.append(1)  # type: ignore[attr-defined]
    assert list(STRIPED.tile_assignment_dimensions) == [4, 1, 2]
    assert "type: OTHER\ntile_assignment_dimensions: 4\n" in repr(STRIPED) and "last_tile_dim: true" in repr(STRIPED)
    sharding = GSPMDSharding(devices(), STRIPED)
    assert copy.deepcopy(sharding) is sharding
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(sharding)
    with use_dialect("latest"):
        assert sharding.with_memory_kind("pinned_host") != sharding and sharding.memory_kind == "device"
