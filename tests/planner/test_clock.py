"""The clock: tasks on streams, loops in their steady state, critical paths."""

import dataclasses
import math

import pytest
from ml_dtypes import bfloat16

from shardwise import checkpoint, checkpoint_policies, grad, lax
from shardwise.ad_checkpoint import checkpoint_name
from shardwise.ir import Equation, Program, ShapedArray, Var, all_ops, trace_program
from shardwise.planner.axes import place_axes
from shardwise.planner.causes import interval, shares
from shardwise.planner.clock import schedule
from shardwise.planner.efficiency import BESIDE
from shardwise.planner.fuse import groups
from shardwise.planner.machines import find
from shardwise.planner.streams import COMPUTE
from shardwise.planner.target import for_chip
from shardwise.planner.work import Group
from tests.planner.device_programs import array, device_program

SIZES = {"x": 16, "y": 16}
MACHINE = find("v6e-256")
PLACEMENT = place_axes(SIZES, MACHINE)


def value(*shape):
    return Var(ShapedArray(shape, bfloat16))


def gather(source, rows=None):
    """A gather over 'y' of a value's dim 0."""
    out = value(16 * source.aval.shape[0], *source.aval.shape[1:])
    params = {"axes": ("y",), "sizes": (16,), "dim": 0, "tiled": True, "invariant": False, "groups": None}
    return Group(
        "collective", (Equation(all_ops()["all_gather"], (source,), (out,), params),), (source,), (out,), overlaps=True
    ), out


def matmul(x, w):
    out = value(x.aval.shape[0], w.aval.shape[1])
    params = {
        "dimension_numbers": (((1,), (0,)), ((), ())),
        "precision": None,
        "preferred_element_type": None,
        "sum_axes": (),
    }
    return Group("product", (Equation(all_ops()["dot_general"], (x, w), (out,), params),), (x, w), (out,)), out


def run(*groups):
    return schedule(groups, MACHINE, PLACEMENT)


def test_a_collective_runs_beside_what_does_not_need_it():
    part, x, w = value(1024, 8192), value(16384, 8192), value(8192, 8192)
    first, whole = gather(part)
    second, _ = matmul(x, w)
    both = run(first, second)
    alone = run(second), run(first)
    slow, quick = sorted((p.seconds for p in alone), reverse=True)
    assert alone[0].seconds == slow
    assert both.seconds == pytest.approx(slow + BESIDE * quick)  # both want the memory
    assert {t.stream for t in both.tasks} == {COMPUTE, "ici"}
    third, _ = matmul(x, whole.__class__(ShapedArray((8192, 16384), bfloat16)))
    assert run(first, second, third).seconds > both.seconds


def test_what_reads_a_gathered_value_waits_for_it():
    part, x = value(1024, 8192), value(4096, 16384)
    first, whole = gather(part)
    second, _ = matmul(x, whole)
    got = run(first, second)
    assert got.seconds == pytest.approx(sum(t.seconds for t in got.tasks))
    assert all(t.critical for t in got.tasks)
    assert shares(got).keys() == {"collective:y", "product"}
    assert math.fsum(shares(got).values()) == pytest.approx(got.seconds)


def test_a_ring_hides_all_but_its_first_part():
    part, x = value(1024, 8192), value(16384, 16384)
    first, whole = gather(part)
    second, _ = matmul(x, whole)
    plain = run(first, second)
    joined = Group("product", (*first.equations, *second.equations), (part, x), second.writes, rings=16)
    ring = run(joined)
    link, product = (t.seconds - MACHINE.chip.overhead for t in plain.tasks)
    assert product > link
    expected = product + MACHINE.chip.overhead + BESIDE * link + link / 16
    assert ring.seconds == pytest.approx(expected, rel=1e-3)  # and a latency
    (task,) = ring.tasks
    assert (task.kind, task.axes, task.sent_bytes) == ("product", ("y",), 15 * part.aval.nbytes)


def test_groups_start_in_order_where_nothing_else_decides():
    x, w = value(4096, 4096), value(4096, 4096)
    groups = [matmul(x, w)[0] for _ in range(3)]
    got = run(*groups)
    assert [t.start for t in got.tasks] == sorted(t.start for t in got.tasks)
    assert got.seconds == pytest.approx(3 * got.tasks[0].seconds)
    assert all(t.kind == "product" and t.bound == "flops" for t in got.tasks)
    assert got.tasks[0].flops == 2 * 4096**3


def loop(body, groups, trips, num_carry):
    """A loop over `body`, whose last input is an entry of a stacked value, as one group."""
    x, rows = value(8), value(trips, 8)
    (eqn,) = trace_program(
        lambda x, rows: lax.scan(lambda c, r: (c + r, r), x, rows), [x.aval, rows.aval], "f", ["", ""]
    )[0].equations
    (name,) = [n for n, p in eqn.params.items() if isinstance(p, Program)]
    assert num_carry == 1
    changed = dataclasses.replace(eqn, params={**eqn.params, name: body})
    return Group("loop", (changed,), eqn.inputs, eqn.outputs, tuple(groups), trips)


def test_a_loop_gathers_the_weights_of_the_next_trip_meanwhile():
    carry, part = value(16384, 16384), value(1024, 16384)
    first, whole = gather(part)
    second, out = matmul(carry, whole)
    body = Program((carry, part), (*first.equations, *second.equations), (out, part))
    got = run(loop(body, (first, second), 10, 1))
    link, product = (run(g).seconds for g in (first, second))
    assert link < product
    assert got.seconds == pytest.approx(10 * (product + BESIDE * link) + link)
    (task,) = got.tasks
    assert (task.kind, task.trips) == ("loop", 10)
    assert task.flops == 10 * 2 * 16384**3
    assert shares(got) == {"product": pytest.approx(got.seconds)}


def test_a_loop_whose_links_have_more_to_do_is_bound_by_them():
    carry, part = value(64, 16384), value(1024, 16384)
    first, whole = gather(part)
    second, out = matmul(carry, whole)
    body = Program((carry, part), (*first.equations, *second.equations), (out, part))
    got = run(loop(body, (first, second), 10, 1))
    link = run(first).seconds
    assert got.seconds == pytest.approx(11 * link)
    assert set(shares(got)) == {"collective:y"}


def test_a_collective_on_the_carry_is_waited_for():
    carry, part = value(1024, 16384), value(64, 16384)
    first, whole = gather(carry)
    second, out = matmul(part, whole.__class__(ShapedArray((16384, 1024), bfloat16)))
    third = dataclasses.replace(second, reads=(part, whole))
    body = Program((carry, part), (*first.equations, *third.equations), (out, part))
    got = run(loop(body, (first, third), 10, 1))
    assert got.seconds == pytest.approx(10 * (run(first).seconds + run(third).seconds))


def test_the_interval_holds_the_prediction_and_is_wider_with_communication():
    part, x, w = value(1024, 8192), value(16384, 8192), value(8192, 8192)
    link, compute = run(gather(part)[0]), run(matmul(x, w)[0])
    for plan in (link, compute):
        bounds = interval(plan)
        assert bounds.low < bounds.likely == plan.seconds < bounds.high
    width = [(interval(p).high - interval(p).low) / p.seconds for p in (link, compute)]
    assert width[0] > width[1]
    rows = Group("fused", (Equation(all_ops()["exp"], (x,), (value(16384, 8192),), {}),), (x,), ())
    written = run(dataclasses.replace(rows, writes=rows.equations[0].outputs))
    assert interval(written, "gpu").high > interval(written).high


def test_nothing_takes_no_time():
    assert run().seconds == 0.0
    assert shares(run()) == {}


def offloading_step(machine, saves):
    """Seconds of a scanned network's gradient, and its tasks with those of loops' bodies."""
    policies = checkpoint_policies
    where = {"offload_src": "device", "offload_dst": "pinned_host"}
    names = {"names_which_can_be_saved": [], "names_which_can_be_offloaded": ["hidden"]}
    policy = policies.save_and_offload_only_these_names(**names, **where)
    if saves:
        policy = policies.save_only_these_names("hidden")

    def layer(x, w):
        return lax.dot(lax.tanh(checkpoint_name(lax.dot(x, w), "hidden")), w), None

    def loss(x, stack):
        return lax.reduce_sum(lax.scan(checkpoint(layer, policy=policy), x, stack)[0], axes=(0, 1))

    program = device_program(lambda x, s: [grad(loss)(x, s)], array(2048, 2048), array(8, 2048, 2048))
    target = for_chip(machine.chip)
    found = schedule(groups(program, target), machine, place_axes({}, machine))
    return found, [t for task in found.tasks for t in (task.body.tasks if task.body else (task,))]


def test_offloaded_values_cross_the_link_to_the_host_beside_computations():
    machine = find("v5e-1")
    kept, before = offloading_step(machine, saves=True)
    crossed, tasks = offloading_step(machine, saves=False)
    assert "host" not in {t.stream for t in before}
    copies = [t for t in tasks if t.stream == "host"]
    assert [t.name for t in copies] == ["offload", "fetch"]  # a value of each trip, there and back
    took = 2048 * 2048 * 4 / machine.chip.host_bandwidth
    assert [t.seconds for t in copies] == pytest.approx([took, took])
    assert crossed.seconds == pytest.approx(
        2 * 8 * took, rel=0.15
    )  # rtol: the first fetch, and kernels between the loops
    assert shares(crossed)["host"] > 0.9 * crossed.seconds > kept.seconds
    quick = dataclasses.replace(machine, chip=dataclasses.replace(machine.chip, host_bandwidth=1e12))
    hidden, _ = offloading_step(quick, saves=False)
    assert hidden.seconds < 1.1 * kept.seconds + took / 8


def test_a_machine_whose_host_has_the_same_memory_copies_nothing_there():
    machine = find("v5e-1")
    one_memory = dataclasses.replace(machine, chip=dataclasses.replace(machine.chip, host_bandwidth=0.0))
    _, tasks = offloading_step(one_memory, saves=False)
    assert {t.stream for t in tasks} == {COMPUTE}
