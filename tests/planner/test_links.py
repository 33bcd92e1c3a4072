"""Seconds of collectives: the formulas of public documents, worked out by hand."""

import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.ir import all_ops
from shardwise.plan import on, plan
from shardwise.planner.axes import place_axes
from shardwise.planner.links import cross_axes, crowding_of
from shardwise.planner.machines import find
from shardwise.sharding import NamedSharding, P


def seconds(pattern, nbytes, axes, sizes, machine):
    return cross_axes(pattern, nbytes, axes, place_axes(sizes, find(machine))).seconds


def test_a_gather_on_a_ring_uses_both_directions():
    # Scaling book, part 3: V / W_ici for the bytes of the result, W_ici both ways.
    got = seconds("gather", 2**30 / 16, ("x",), {"y": 16, "x": 16}, "v6e-256")
    assert got == pytest.approx(2**30 * 15 / 16 / 1.8e11 + 8e-6)


def test_two_dims_are_twice_as_fast_as_one():
    sizes = {"y": 16, "x": 16}
    one = cross_axes("gather", 2**24, ("x",), place_axes(sizes, find("v6e-256")))
    two = cross_axes("gather", 2**20, ("y", "x"), place_axes(sizes, find("v6e-256")))
    # The same result, 2**28 bytes.
    assert (one.seconds - one.latency) / (two.seconds - two.latency) == pytest.approx(2, rel=0.07)


def test_a_line_is_half_as_fast_as_a_ring():
    ring = cross_axes("gather", 2**20, ("x",), place_axes({"y": 16, "x": 16}, find("v6e-256")))
    line = cross_axes("gather", 2**20, ("x",), place_axes({"y": 8, "x": 16}, find("v6e-8x16")))
    short = cross_axes("gather", 2**20, ("x",), place_axes({"y": 8, "x": 8}, find("v6e-64")))
    assert line.seconds == ring.seconds  # 16 is a whole dim in both
    assert (short.seconds - short.latency) / 7 == pytest.approx(2 * (ring.seconds - ring.latency) / 15)


def test_an_all_reduce_is_a_scatter_and_a_gather():
    placement = place_axes({"y": 16, "x": 16}, find("v6e-256"))
    whole = cross_axes("reduce", 2**26, ("x",), placement)
    scatter, gather = cross_axes("scatter", 2**26, ("x",), placement), cross_axes("gather", 2**22, ("x",), placement)
    assert whole.seconds == pytest.approx(scatter.seconds + gather.seconds)
    assert scatter.seconds == pytest.approx(gather.seconds)


def test_an_all_to_all_on_a_ring_takes_a_quarter_of_a_gather():
    # Scaling book, part 3: of the same global array, on a bidirectional ring.
    placement = place_axes({"y": 16, "x": 16}, find("v6e-256"))
    gather, exchange = cross_axes("gather", 2**24, ("x",), placement), cross_axes("transpose", 2**24, ("x",), placement)
    share = (exchange.seconds - exchange.latency) / (gather.seconds - gather.latency)
    assert share == pytest.approx(0.25, rel=0.07)  # 15 steps of a ring, not 16


def test_behind_a_switch_the_port_is_busy():
    got = cross_axes("gather", 2**24, ("x",), place_axes({"x": 8}, find("h100-8")))
    assert got.seconds - got.latency == pytest.approx(7 * 2**24 / 4.5e11)
    exchange = cross_axes("transpose", 2**24, ("x",), place_axes({"x": 8}, find("h100-8")))
    assert exchange.seconds - exchange.latency == pytest.approx(7 / 8 * 2**24 / 4.5e11)


def test_bytes_cross_the_slow_level_once():
    placement = place_axes({"x": 128}, find("h100-8x16"))
    got = cross_axes("scatter", 2**30, ("x",), placement)
    # Inside of nodes first: an eighth of the bytes is left to reduce over the nodes.
    assert got.by_level["ib"] == pytest.approx(2**30 / 8 * 15 / 16 / 5e10 + 14e-6 * 8, rel=1e-6)
    assert got.by_level["nvlink"] == pytest.approx(2**30 * 7 / 8 / 4.5e11 + 3.4e-6 * 6, rel=1e-6)
    back = cross_axes("gather", 2**30 / 128, ("x",), placement)
    assert back.by_level == pytest.approx(got.by_level)


def test_slices_exchange_over_the_data_centre_network():
    got = cross_axes("reduce", 2**30, ("data",), place_axes({"data": 2, "fsdp": 256}, find("2x-v6e-256")))
    assert got.level == "dcn"
    assert got.seconds - got.latency == pytest.approx(2**30 / 1.25e10)


def test_a_shift_goes_to_a_neighbour():
    got = cross_axes("shift", 2**20, ("x",), place_axes({"y": 16, "x": 16}, find("v6e-256")))
    assert got.seconds == pytest.approx(2**20 / 9e10 + 1e-6)


def test_an_axis_of_one_device_costs_nothing():
    assert cross_axes("gather", 2**20, ("x",), place_axes({"x": 1, "y": 8}, find("v6e-8"))).seconds == 0.0


def test_65536_devices_cost_what_16_do():
    # A machine of that size comes from several slices; nothing may look at its devices one by one.
    placement = place_axes({"data": 256, "fsdp": 256}, find("256x-v6e-256"))
    assert cross_axes("reduce", 2**20, ("data", "fsdp"), placement).seconds > 0


def test_an_unknown_pattern_raises():
    with pytest.raises(ValueError, match="'scan'"):
        seconds("scan", 1, ("x",), {"x": 8}, "v6e-8")


def test_each_collective_says_its_pattern():
    known = {name: op.collective.pattern for name, op in all_ops().items() if op.collective and op.collective.counted}
    assert set(known.values()) == {"gather", "scatter", "reduce", "transpose", "shift"}
    placement = place_axes({"x": 8}, find("v6e-8"))
    assert all(cross_axes(pattern, 2**20, ("x",), placement).seconds > 0 for pattern in known.values())
    assert known["all_gather"] == "gather"
    assert known["all_to_all"] == "transpose"


def test_a_byte_of_an_all_to_all_takes_longer_on_a_torus_and_as_long_behind_a_switch():
    torus, switch = [crowding_of(find(name), {"a": 4, "b": 8}) for name in ("v5e-4x8", "h100-8")]
    assert switch is None  # such a mesh does not fit
    assert torus is not None
    alone, other, joint = torus(("a",)), torus(("b",)), torus(("a", "b"))
    assert 1 < alone < other < joint
    behind = crowding_of(find("h100-8"), {"a": 8})
    assert behind is not None
    assert behind(("a",)) == pytest.approx(1)


@pytest.mark.parametrize(
    ("machine", "devices", "kind"), [("tpu7x-4x4x4", 128, "reduce_scatter"), ("h100-8", 8, "all_to_all")]
)
def test_derivatives_of_experts_move_what_takes_least_time(machine, devices, kind):
    """Of 8-bit tokens an all-to-all sends a quarter of what a sum of the weights' gradients sends: on a torus the sum takes less time."""
    with on(machine):
        mesh = jax.make_mesh((devices,), ("fsdp",))
        at = lambda shape, dtype, *spec: jax.ShapeDtypeStruct(  # noqa: E731
            shape, dtype, sharding=NamedSharding(mesh, P(*spec))
        )
        product = jax.jit(
            lambda x, g: jnp.einsum("becd,becf->edf", x, g, preferred_element_type=jnp.bfloat16),
            out_shardings=NamedSharding(mesh, P(None, "fsdp")),
        )
        x = at((4 * devices, devices, 64, 2048), jnp.float8_e4m3fn, "fsdp")
        made = plan(product, x, at((4 * devices, devices, 64, 1024), jnp.float8_e4m3fn, "fsdp"), on=machine)
    assert kind in {t.kind for t in made.traffic}
