"""`plan(f, *args, on=...)`: one function, on arguments that are types alone."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.plan import on, plan
from shardwise.sharding import AbstractMesh, Mesh, P
from shardwise.sharding import NamedSharding as NS

SHAPE = (4096, 4096)


def step(w, x):
    return w - jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w)))(w)


def args_on(mesh):
    at = lambda *spec: jax.ShapeDtypeStruct(SHAPE, jnp.float32, sharding=NS(mesh, P(*spec)))  # noqa: E731
    return at("x", "y"), at("x")


@pytest.mark.parametrize("f", [step, jax.jit(step)])
def test_arguments_over_an_abstract_mesh(f):
    found = plan(f, *args_on(AbstractMesh((32, 4), ("x", "y"))), on="v5p-256")
    assert (found.machine, found.devices, found.mesh) == ("v5p-256", 128, {"x": 32, "y": 4})
    assert found.arguments == 4 * 4096**2 // 128 + 4 * 4096**2 // 32
    assert found.flops == 4 * 4096**3 // 128
    assert {axis for t in found.traffic for axis in t.axes} == {"x"}


def test_every_kind_of_mesh_gives_the_same_plan():
    here = Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))
    with on("v5p-16"):
        there = Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))
        plans = [plan(step, *args_on(there), on="v5p-16")]
    plans += [plan(step, *args_on(m), on="v5p-16") for m in (here, AbstractMesh((4, 2), ("x", "y")))]
    assert len({(p.peak, p.flops, p.seconds, p.mesh["x"], tuple(p.traffic)) for p in plans}) == 1


def test_donation_and_shapes_without_layout():
    given = jax.ShapeDtypeStruct(SHAPE, jnp.bfloat16)
    found = plan(jax.jit(lambda w: w * 2, donate_argnums=0), given, on="h100-8")
    assert (found.chip, found.devices, found.arguments, found.aliased) == (
        "NVIDIA H100 80GB HBM3",
        1,
        2 * 4096**2,
        2 * 4096**2,
    )


def test_arrays_are_arguments_too():
    assert plan(jnp.sin, jnp.ones(1000), on="v5p-8").arguments == 4000


@pytest.mark.parametrize(
    "mesh, machine, message",
    [
        ((16, 16), "v5p-256", r"mesh \{'x': 16, 'y': 16\} of 256 devices, but v5p-256 has 128"),
        ((3, 5), "v5p-256", r"The mesh \{'x': 3, 'y': 5\} has 15 devices"),
        ((2, 2), "v5p-255x", "v5p"),
    ],
)
def test_meshes_and_machines_that_do_not_fit(mesh, machine, message):
    shape = jax.ShapeDtypeStruct((240, 240), jnp.float32, sharding=NS(AbstractMesh(mesh, ("x", "y")), P("x")))
    with pytest.raises(ValueError, match=message):
        plan(lambda x: x + 1, shape, on=machine)


def test_here_nothing_has_changed():
    with pytest.raises(ZeroDivisionError):
        plan(lambda x: x + 1 // 0, jnp.ones(3), on="v5p-8")
    assert jax.default_backend() == "cpu" and float(jax.jit(lambda x: x + 1)(1.0)) == 2.0
