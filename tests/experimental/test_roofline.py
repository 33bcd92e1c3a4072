"""What a function computes, reads and sends on each device. Figures marked so are those of JAX 0.10.2's roofline."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.experimental.roofline import (
    RooflineResult,
    RooflineShape,
    register_roofline,
    register_standard_roofline,
    roofline,
    roofline_and_grad,
    rules,
)
from shardwise.extend.core import Primitive
from shardwise.sharding import AbstractMesh, Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

ABSTRACT = AbstractMesh((4, 2), ("x", "y"))
SQUARE = 4 * 64 * 64


def struct(*shape, dtype=jnp.float32, sharding=None):
    return jax.ShapeDtypeStruct(shape, dtype, sharding=sharding)


@pytest.fixture(params=["abstract", "concrete"])
def mesh(request):
    return ABSTRACT if request.param == "abstract" else Mesh(np.array(jax.devices()[:8]).reshape(4, 2), ("x", "y"))


def test_products_and_elementwise_ops():  # as JAX
    structs, found = roofline(lambda a, b: jnp.sin(a @ b) + a)(struct(64, 64), struct(64, 64))
    assert structs == struct(64, 64)
    assert found == RooflineResult(
        flops=524288,
        unfused_flops=532480,
        hbm_bytes=3 * SQUARE,
        peak_hbm_bytes=2 * SQUARE,
        unfused_hbm_bytes=8 * SQUARE,
    )


def test_reductions_and_literals():  # as JAX
    _, found = roofline(lambda a: (a * 2).sum(0))(struct(64, 32))
    assert found == RooflineResult(unfused_flops=4064, peak_hbm_bytes=8192, unfused_hbm_bytes=24708)


def test_an_operand_that_is_read_twice_counts_twice():  # as JAX
    assert roofline(lambda a: a * a)(struct(64, 32))[1].unfused_hbm_bytes == 3 * 64 * 32 * 4


def test_operands_on_the_chip():  # as JAX
    a, b = struct(64, 32), struct(32, 16)
    assert roofline(jnp.matmul, pin_lhs_in_vmem=True)(a, b)[1].hbm_bytes == 32 * 16 * 4
    assert roofline(jnp.matmul, pin_rhs_in_vmem=True)(a, b)[1].hbm_bytes == (64 * 32 + 64 * 16) * 4


@pytest.mark.parametrize(
    ("f", "in_spec", "out_spec", "nbytes", "hops"),
    [  # as JAX
        (lambda a: lax.psum_scatter(a, "x", tiled=True), P(None), P("x"), {"x": 6144}, {"x": 4}),
        (lambda a: lax.psum(a, ("x", "y")), P(("x", "y")), P(None), {"x": 896, "y": 896}, {"x": 16, "y": 16}),
        (lambda a: lax.all_to_all(a, "x", 0, 1, tiled=True), P("x"), P("x"), {"x": 2048}, {"x": 2}),
        (
            lambda a: lax.all_to_all(a, ("x", "y"), 0, 1, tiled=True),
            P(("x", "y")),
            P(("x", "y")),
            {"x": 2048, "y": 2048},
            {"x": 3, "y": 3},
        ),
        (lambda a: lax.ppermute(a, "x", [(i, (i + 1) % 4) for i in range(4)]), P("x"), P("x"), {"x": 2048}, {"x": 1}),
        (
            lambda a: lax.ppermute(a, ("x", "y"), [(0, 5), (5, 0), (1, 1), (2, 7)]),
            P(("x", "y")),
            P(("x", "y")),
            {"x": 2048, "y": 2048},
            {"x": 3, "y": 3},
        ),
        (lambda a: lax.all_gather(a, "x", tiled=True), P("x"), P("x"), {"x": 6144}, {"x": 4}),
    ],
    ids=["psum_scatter", "psum", "all_to_all", "all_to_all of two axes", "ring", "hops", "all_gather"],
)
def test_written_collectives(mesh, f, in_spec, out_spec, nbytes, hops):
    structs, found = roofline(f, mesh, (in_spec,), out_spec)(struct(64, 32))
    assert structs.sharding == NamedSharding(mesh, out_spec)
    assert (found.ici_bytes, found.ici_latency, found.flops) == (nbytes, hops, 0)


def test_an_axis_of_one_device_sends_nothing():
    one = AbstractMesh((1,), ("x",))
    found = roofline(lambda a: lax.psum(a, "x"), one, (P("x"),), P())(struct(8, 8))[1]
    assert not any(found.ici_bytes.values()) and not any(found.ici_latency.values())


def test_the_backward_pass(mesh):  # flops, hbm_bytes, ici_bytes as JAX
    a, b = struct(64, 32, dtype=jnp.bfloat16), struct(32, 16, dtype=jnp.bfloat16)
    structs, forward, backward = roofline_and_grad(lambda a, b: jnp.tanh(a @ b), mesh, (P("x"), P()), P("x"))(a, b)
    assert structs.sharding == NamedSharding(mesh, P("x"))
    assert (forward.flops, forward.hbm_bytes, forward.ici_bytes) == (16384, 2560, {})
    assert (backward.flops, backward.hbm_bytes, backward.ici_bytes) == (32768, 5120, {"x": 1536})
    both = roofline(lambda a, b: jnp.tanh(a @ b), vjp=True)(a, b)[1]
    assert (both.flops, both.hbm_bytes) == (196608, 21504)


def test_loops_count_as_often_as_they_run():
    once = roofline(lambda a: jnp.tanh(a @ a))(struct(64, 64))[1]
    scanned = roofline(lambda a: lax.scan(lambda c, _: (jnp.tanh(c @ c), None), a, None, length=5)[0])(struct(64, 64))[
        1
    ]
    assert (scanned.flops, scanned.hbm_bytes) == (5 * once.flops, 5 * once.hbm_bytes)
    assert scanned.peak_hbm_bytes <= 3 * once.peak_hbm_bytes
    endless = roofline(lambda a: lax.while_loop(lambda c: c[0, 0] > 0, lambda c: c @ c, a))(struct(64, 64))[1]
    assert endless.flops == once.flops


def test_of_branches_the_largest():
    f = roofline(lambda n, a: lax.switch(n, [lambda a: a, lambda a: a @ a @ a, lambda a: a @ a], a))
    assert f(struct(dtype=jnp.int32), struct(64, 64))[1].flops == 2 * 2 * 64**3


def test_inserted_collectives(mesh):
    a = struct(64, 32, sharding=NamedSharding(mesh, P(None, "x")))
    b = struct(32, 16, sharding=NamedSharding(mesh, P("x")))
    found = roofline(jnp.matmul)(a, b)[1]
    assert found.flops == 2 * 64 * 32 * 16 // 4
    assert found.ici_bytes == {"x": 2 * 3 * 64 * 16 * 4 // 4}  # an all-reduce of the product
    assert roofline(jnp.matmul, mesh)(struct(64, 32), struct(32, 16))[1].flops == 2 * 64 * 32 * 16


def test_rows_for_the_neighbour():
    rows = struct(64, 32, sharding=NamedSharding(ABSTRACT, P("x")))
    found = roofline(jax.jit(lambda a: jnp.roll(a, 1, 0), out_shardings=rows.sharding))(rows)[1]
    assert found.ici_bytes == {"x": 32 * 4} and found.ici_latency == {"x": 1}


def test_results_add_up():  # as JAX
    total = RooflineResult(flops=3, ici_bytes={"x": 2}) * 2 + RooflineResult(
        flops=1, ici_bytes={"y": 2}, peak_hbm_bytes=3
    )
    assert total == RooflineResult(flops=7, ici_bytes={"x": 4, "y": 2}, peak_hbm_bytes=3)
    assert 2 * RooflineResult(hbm_bytes=5) == RooflineResult(hbm_bytes=10)
    assert RooflineResult.zeros() == RooflineResult()
    assert RooflineShape.total_bytes([jax.typeof(jnp.ones((2, 3))), jax.typeof(jnp.ones(4, jnp.int8))]) == 28
    with pytest.raises(TypeError, match="the type of an array"):
        RooflineShape.from_aval("f32")


def test_rules_of_the_users_own(monkeypatch):
    monkeypatch.setattr(rules, "_rules", {})
    seen = []

    @register_roofline(lax.sin_p)
    def many(ctx, x, **params):
        seen.append((ctx.name_stack, ctx.mesh, ctx.avals_out[0].shape, params))
        return RooflineResult(flops=100 * x.size)

    register_standard_roofline(lax.dot_general_p)
    found = roofline(lambda a: jnp.sin(a @ a))(struct(8, 8))[1]
    assert found.flops == 6400 and seen[0][2] == (8, 8)
    with pytest.raises(NotImplementedError, match="the ops that it is made of"):
        register_roofline(Primitive("mine"))


def test_the_counted_program_is_printed(capsys):
    roofline(lambda a: jnp.sin(a), ABSTRACT, (P("x"),), P("x"), print_jaxpr=True)(struct(8, 8))
    assert "f32[2,8]" in capsys.readouterr().out
