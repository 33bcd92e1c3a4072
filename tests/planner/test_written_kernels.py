"""Kernels that programs bring along: one equation, one kernel, once through the memory."""

from __future__ import annotations

import functools

import pytest

import shardwise as jax
import shardwise.numpy as jnp
import shardwise.plan
from shardwise import lax
from shardwise.experimental import pallas as pl
from shardwise.experimental.pallas import tpu as pltpu
from shardwise.ir import Kernel, as_one_kernel, verify
from shardwise.planner.target import CPU_XLA, GPU, HERE, TPU
from shardwise.planner.written_kernels import with_written_kernels
from tests.planner.device_programs import array, program_of

X = array(256, 128)
V5P = "v5p-8"


def op_names(program):
    return [e.op.name for e in program.equations]


def softmax(x, kernel):
    with as_one_kernel(kernel):
        e = jnp.exp(x - lax.full((256, 128), 2.0))
        return e / e.sum(-1, keepdims=True)


def test_equations_of_a_kernel_are_one_where_a_compiler_for_kernels_is():
    program = program_of(lambda x: [softmax(x * 2, Kernel("softmax")) + 1], X)
    for target in (TPU, GPU):
        found = verify(with_written_kernels(program, target))
        assert op_names(found) == ["mul", "kernel", "add"]
    for target in (CPU_XLA, HERE):
        assert with_written_kernels(program, target) is program


def test_calls_of_one_kernel_are_apart():
    kernel = Kernel("softmax")
    found = with_written_kernels(program_of(lambda x: [softmax(x, kernel) + softmax(x.T.T * 3, kernel)], X), TPU)
    assert op_names(found).count("kernel") == 2 and "exp" not in op_names(found)


def test_a_kernel_that_waits_for_what_waits_for_it_is_no_kernel():
    kernel = Kernel("cut")

    def f(x):
        with as_one_kernel(kernel):
            y = jnp.exp(x)
        z = jnp.sin(y)
        with as_one_kernel(kernel):
            return [y + z]

    assert op_names(with_written_kernels(program_of(f, X), TPU)) == ["exp", "sin", "add"]


def planned(f, *types, on=V5P):
    return shardwise.plan.plan(jax.jit(f), *[jax.ShapeDtypeStruct(t.shape, t.dtype) for t in types], on=on)


def kernels_of(plan):
    return [t for t in plan.schedule.tasks if t.kind == "kernel"]


def product(x, y, block, **options):
    """A product in blocks."""

    def kernel(x, y, o, total):
        @pl.when(pl.program_id(2) == 0)
        def _():
            total[...] = jnp.zeros_like(total)

        total[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _():
            o[...] = total[...].astype(o.dtype)

    (m, k), n = x.shape, y.shape[1]
    return pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct((m, n), x.dtype),
        grid=(m // block, n // block, k // block),
        in_specs=[
            pl.BlockSpec((block, block), lambda i, j, k: (i, k)),
            pl.BlockSpec((block, block), lambda i, j, k: (k, j)),
        ],
        out_specs=pl.BlockSpec((block, block), lambda i, j, k: (i, j)),
        scratch_shapes=[pltpu.VMEM((block, block), jnp.float32)],
        name="product",
        **options,
    )(x, y)


HALF = array(4096, 4096, dtype="bfloat16")
PUBLISHED = {
    128: (11.772e-3, 0.1),
    1024: (0.889e-3, 0.25),
}  # seconds on a v5e, JAX's documentation; the second with its call


@pytest.mark.parametrize("block", PUBLISHED)
def test_a_product_in_blocks_takes_what_it_was_measured_to_take(block):
    plan = planned(functools.partial(product, block=block), HALF, HALF, on="v5e-1")
    (task,) = plan.schedule.tasks
    assert (task.name, task.kind, task.flops) == ("product", "kernel", 2 * 4096**3)
    assert plan.temporaries == 0
    seconds, error = PUBLISHED[block]
    assert plan.seconds.likely == pytest.approx(seconds, rel=error)


@pytest.mark.parametrize("inside", ["calls", "scan", "vmap", "shard_map"])
def test_kernels_within_transforms(inside):
    def f(x, y):
        if inside == "calls":
            return product(product(x, y, 512), y, 512)
        if inside == "scan":
            return lax.scan(lambda c, _: (product(c, y, 512), None), x, None, length=2)[0]
        if inside == "vmap":
            return jax.vmap(functools.partial(product, block=512))(jnp.stack([x, y]), jnp.stack([y, x]))
        mesh = jax.make_mesh((2,), ("a",), axis_types=(jax.sharding.AxisType.Auto,))
        spec = jax.sharding.PartitionSpec("a")
        call = functools.partial(product, block=512)
        both = jax.shard_map(call, mesh=mesh, in_specs=(spec, None), out_specs=spec, check_vma=False)
        return jnp.concatenate([both(x, y), both(y, x)])

    with shardwise.plan.on(V5P):
        found = planned(f, HALF, HALF)
    times = 1 if inside == "shard_map" else 2
    assert found.flops == pytest.approx(times * 2 * 4096**3, rel=1e-6)
    text = str(found)
    assert "product" in text and "dot_general" not in text and "dynamic_slice" not in text


def diagonal(x, causal):
    """In each step of the grid a product, or in those at and below the diagonal alone."""

    def kernel(x, o):
        def step():
            o[...] = jnp.dot(x[...], x[...])

        if causal == "when":
            pl.when(pl.program_id(1) <= pl.program_id(0))(step)
        elif causal == "loop":
            lax.fori_loop(0, pl.program_id(0) + 1, lambda i, _: step(), None)
        else:
            step()

    spec = pl.BlockSpec((128, 128), lambda i, j: (i, i))
    grid = (8, 1) if causal == "loop" else (8, 8)
    return pl.pallas_call(kernel, out_shape=x, grid=grid, in_specs=[spec], out_specs=spec)(x)


@pytest.mark.parametrize(("causal", "products"), [("never", 64), ("when", 36), ("loop", 36)])
def test_what_steps_of_the_grid_leave_out_is_not_counted(causal, products):
    assert planned(functools.partial(diagonal, causal=causal), array(1024, 1024)).flops == products * 2 * 128**3


def test_a_kernel_that_is_a_loop_and_no_more():
    def kernel(x, o):
        o[...] = x[...] * 2

    spec = pl.BlockSpec((128, 128), lambda i: (i, 0))
    f = functools.partial(pl.pallas_call, kernel, grid=(8,), in_specs=[spec], out_specs=spec, name="doubled")
    found = planned(lambda x: f(out_shape=x)(x), array(1024, 128))
    assert [t.name for t in found.schedule.tasks] == ["doubled"]


def test_an_estimate_of_the_author_counts():
    cost = pl.CostEstimate(flops=10**12, transcendentals=0, bytes_accessed=10**9)
    (task,) = kernels_of(planned(functools.partial(product, block=512, cost_estimate=cost), HALF, HALF))
    assert task.flops == pytest.approx(1e12, rel=0.01)  # elementwise ones, too, of which products are most
    many = pl.CostEstimate(flops=10, transcendentals=0, bytes_accessed=2765 * 10**6)
    (task,) = kernels_of(planned(functools.partial(product, block=512, cost_estimate=many), HALF, HALF))
    assert task.seconds == pytest.approx(1e-3, rel=0.25) and task.bound == "memory"  # with what memory reaches


def test_blocks_are_read_as_often_as_they_change():
    def seconds(index):
        spec = pl.BlockSpec((8192, 128), index)
        out = pl.BlockSpec((8, 128), lambda i, j: (i, 0))

        def kernel(x, o):
            o[...] = x[:8, :]

        def f(x):
            return pl.pallas_call(
                kernel, out_shape=jax.ShapeDtypeStruct((64, 128), x.dtype), grid=(8, 4), in_specs=[spec], out_specs=out
            )(x)

        return planned(f, array(8192 * 8, 128)).seconds.likely

    once, again, never = seconds(lambda i, j: (i, 0)), seconds(lambda i, j: (j, 0)), seconds(lambda i, j: (0, 0))
    assert again / once == pytest.approx(4, rel=0.15)  # with latencies
    assert never == pytest.approx(32 * 3.5e-7, rel=0.1)  # the least that steps take


def test_steps_of_mapped_kernels_take_their_time():
    def kernel(x, o):
        o[...] = x[...] + 1

    spec = pl.BlockSpec((8, 128), lambda i: (i, 0))
    f = functools.partial(pl.pallas_call, kernel, grid=(64,), in_specs=[spec], out_specs=spec)
    call = lambda x: f(out_shape=jax.ShapeDtypeStruct((512, 128), x.dtype))(x)  # noqa: E731
    one, many = planned(call, array(512, 128)), planned(jax.vmap(call), array(16, 512, 128))
    assert many.seconds.likely == pytest.approx(16 * one.seconds.likely, rel=0.05)  # with latencies


def test_a_kernel_that_does_not_fit_on_the_chip_is_named():
    wide = planned(functools.partial(product, block=4096), HALF, HALF)
    assert [n for n in wide.notes if "kernel product holds 160 MiB" in n and "Make its blocks smaller" in n]
    assert not [n for n in planned(functools.partial(product, block=512), HALF, HALF).notes if "holds" in n]
