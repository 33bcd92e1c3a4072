"""`make_plan`: the planner's parts put together."""

from __future__ import annotations

import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.plan import on, plan
from shardwise.sharding import AbstractMesh, P
from shardwise.sharding import NamedSharding as NS


def struct(shape, mesh, *spec, dtype=jnp.bfloat16):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=NS(mesh, P(*spec)))


def loss(w, x, wrap):
    layer = wrap(lambda x, w: jnp.tanh(x @ w))
    x, _ = jax.lax.scan(lambda x, w: (layer(x, w), None), x, w)
    return jnp.sum(x.astype(jnp.float32))


@pytest.mark.parametrize("batch, width", [(256, 512), (512, 512)])
def test_what_remat_computes_again_is_no_work_of_the_model(batch, width):
    mesh = AbstractMesh((8,), ("data",))
    args = struct((6, width, width), mesh), struct((batch, width), mesh, "data")
    kept, again = (
        plan(jax.grad(lambda w, x, wrap=wrap: loss(w, x, wrap)), *args, on="v5e-8")
        for wrap in (lambda f: f, jax.checkpoint)
    )
    product = 2 * batch * width * width // 8
    assert kept.flops == kept.model_flops == again.model_flops == 3 * 6 * product
    assert again.flops == 4 * 6 * product
    assert 0 < again.mfu < 1


def test_the_peak_is_that_of_the_products_dtype():
    mesh = AbstractMesh((4,), ("x",))
    peaks = [
        plan(lambda a: a @ a, struct((1024, 1024), mesh, dtype=dtype), on="h100-8").peak_flops
        for dtype in (jnp.bfloat16, jnp.float32)
    ]
    assert peaks[0] > peaks[1]


def test_schedule_shares_and_interval_agree():
    mesh = AbstractMesh((2, 4), ("x", "y"))
    found = plan(
        lambda a, b: jnp.tanh(a @ b), struct((4096, 8192), mesh, "x", "y"), struct((8192, 4096), mesh, "y"), on="v5p-16"
    )
    assert found.seconds.low < found.seconds.likely == found.schedule.seconds < found.seconds.high
    assert sum(found.shares.values()) == pytest.approx(found.schedule.seconds, rel=1e-9)
    (sent,) = [t for t in found.schedule.tasks if t.kind == "collective"]
    (record,) = found.traffic
    assert record.axes == sent.axes == ("y",) and record.nbytes == sent.sent_bytes
    assert record.level == sent.stream == "ici" and 0 < record.seconds <= sent.seconds
    assert len(found.profile) == len(found.schedule.tasks) + 1 and max(n for _, n in found.profile) == found.peak


def test_the_profile_has_the_peak_where_its_loop_runs():
    mesh = AbstractMesh((8,), ("data",))
    args = struct((64, 512, 512), mesh), struct((65536, 512), mesh, "data")
    found = plan(jax.grad(lambda w, x: loss(w, x, jax.checkpoint)), *args, on="v5e-8")
    times = [t for t, _ in found.profile]
    assert times == sorted(times) and max(n for _, n in found.profile) == found.peak
    backward = max((t for t in found.schedule.tasks if t.kind == "loop"), key=lambda t: t.start)
    after = [n for t, n in found.profile if t > backward.start + backward.seconds / 2]
    assert (backward.start, found.peak) in found.profile and max(after) < found.peak


@pytest.mark.parametrize("machine", ["v5e-8", "h100-8"])
def test_memory_analysis_is_that_of_the_plan(machine):
    with on(machine):
        mesh = jax.make_mesh((8,), ("data",))
        args = struct((64, 512, 512), mesh), struct((65536, 512), mesh, "data")
        f = jax.jit(jax.grad(lambda w, x: loss(w, x, jax.checkpoint)))
        memory, found = f.lower(*args).compile().memory_analysis(), plan(f, *args, on=machine)
    assert memory.peak_memory_in_bytes == found.peak
    assert memory.temp_size_in_bytes == found.temporaries and memory.argument_size_in_bytes == found.arguments


@pytest.mark.parametrize(("machine", "count"), [("a100-1", 2), ("v5p-2", 2), ("h100-1", 0), ("h200-1", 0)])
def test_a_note_says_which_algorithms_a_machine_has_no_figures_for(machine, count):
    x = jax.ShapeDtypeStruct((512, 512), jnp.float32)
    found = plan(lambda x: jnp.linalg.cholesky(jnp.sort(x, 0)) @ jnp.exp(jnp.sort(x, 0)), x, on=machine)
    notes = [note for note in found.notes if "counts as its bytes alone" in note]
    assert len(notes) == count and all("test_plan.py" in note and machine in note for note in notes)
