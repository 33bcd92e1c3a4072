"""A layout of a compiled step is planned as the program that is written so."""

from __future__ import annotations

from fractions import Fraction

import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.plan import StepLayout, on, plan
from shardwise.plan.api import executable_of
from shardwise.plan.step import Step
from shardwise.sharding import AbstractMesh, AxisType, P
from shardwise.sharding import NamedSharding as NS
from tests.plan.steps import BATCH, WIDTH, made, struct


@pytest.fixture
def step():
    with on("v5e-16") as run:
        yield Step(executable_of(*made((4, 4)), {}, run.machine), run.machine)


def figures(found):
    return found.peak, found.seconds, found.arguments, found.aliased, found.traffic, dict(found.mesh)


def argument(step, name):
    return next(i for i, a in enumerate(step.arguments) if name in a.names)


def mesh(*sizes):
    return tuple(zip(("data", "model"), sizes, strict=True))


def test_arguments_that_belong_together_are_one(step):
    first, second, batch = step.arguments
    assert first.names == ("params[0]['down']", "params[1]['down']") and first.state and first.batch_dim is None
    assert second.dims == (("data",), ("model",)) and second.nbytes == 2 * 4 * 4 * WIDTH**2
    assert batch.names == ("x",) and (batch.state, batch.batch_dim) == (False, 0)


@pytest.mark.parametrize("sizes", [(16, 1), (8, 2), (1, 16)])
def test_other_meshes(step, sizes):
    written = plan(made(sizes)[0], *made(sizes)[1], on="v5e-16")
    assert figures(step.plan(StepLayout(mesh(*sizes)))) == figures(written)


@pytest.mark.parametrize("width", [None, P.UNCONSTRAINED])
def test_other_specs_and_the_batch_with_its_constraints(width):
    with on("v5e-16") as run:
        step = Step(executable_of(*made((4, 4), width=width), {}, run.machine), run.machine)
        dims = {
            argument(step, "params[0]['up']"): ((), ("data", "model")),
            argument(step, "x"): (("data", "model"), ()),
        }
        found = step.plan(StepLayout(mesh(8, 2), tuple(sorted(dims.items()))))
    f, args = made((8, 2), up=P(None, ("data", "model")), x=P(("data", "model")), width=width)
    assert figures(found) == figures(plan(f, *args, on="v5e-16"))


@pytest.mark.parametrize("name", ["everything_saveable", "dots_saveable"])
def test_other_policies(step, name):
    assert step.traces == ("", True)
    f, args = made((8, 2), policy=getattr(jax.checkpoint_policies, name))
    found, own = step.plan(StepLayout(mesh(8, 2), remat=name)), step.plan(StepLayout(mesh(8, 2)))
    assert figures(found) == figures(plan(f, *args, on="v5e-16"))
    assert found.flops < own.flops and found.peak >= own.peak


def test_other_batches(step):
    f, args = made((4, 4), batch=2 * BATCH)
    assert figures(step.plan(StepLayout(mesh(4, 4), batch=Fraction(2)))) == figures(plan(f, *args, on="v5e-16"))
    with pytest.raises(ValueError, match=r"1/3 times 512, the length of x, is no whole number"):
        step.plan(StepLayout(mesh(4, 4), batch=Fraction(1, 3)))


def test_donated_arguments_are_donated_in_other_layouts():
    with on("v5e-16") as run:
        step = Step(executable_of(*made((4, 4), donated=0), {}, run.machine), run.machine)
        found = step.plan(StepLayout(mesh(8, 2)))
    assert figures(found) == figures(plan(*flat(made((8, 2), donated=0)), on="v5e-16"))
    assert found.aliased > 0


def flat(made):
    return made[0], *made[1]


def test_other_machines(step):
    written = plan(made((8, 4))[0], *made((8, 4))[1], on="v6e-32")
    assert figures(step.plan(StepLayout(mesh(8, 4), machine="v6e-32"))) == figures(written)


def test_layouts_that_cannot_be(step):
    with pytest.raises(ValueError, match=r"dim 0 of x, 512 long, is not divided by the axes data"):
        step.plan(StepLayout(mesh(3, 1), tuple((i, ((), ())) for i, a in enumerate(step.arguments) if a.state)))
    with pytest.raises(ValueError, match="has 64 devices, more than the machine's 16"):
        step.plan(StepLayout(mesh(16, 4)))


def test_programs_whose_types_name_the_mesh_keep_their_layout():
    ring = AbstractMesh((16,), ("x",))

    def by_hand(x):
        return jax.shard_map(lambda x: jax.lax.psum(x, "x"), mesh=ring, in_specs=P("x"), out_specs=P())(x)

    typed = AbstractMesh((16,), ("x",), axis_types=(AxisType.Explicit,))
    with on("v5e-16") as run:
        for f, over in ((by_hand, ring), (jnp.sin, typed)):
            x = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=NS(over, P("x")))
            step = Step(executable_of(f, (x,), {}, run.machine), run.machine)
            assert "explicit axes or shard_map" in step.fixed
            assert step.plan(StepLayout(step.sizes)).peak
            with pytest.raises(ValueError, match="cannot be replaced"):
                step.plan(StepLayout((("x", 8),)))


def test_static_and_named_arguments_stay_what_they_are():
    over = AbstractMesh((4, 4), ("data", "model"))

    def scaled(power, params, *, x, twice):
        y = jnp.sum(x @ params["w"]) ** power
        return 2 * y if twice else y

    f = jax.jit(scaled, static_argnums=0, static_argnames="twice")
    w, x = struct(over, (WIDTH, WIDTH), P("model")), struct(over, (64, WIDTH), P("data"))
    with on("v5e-16") as run:
        step = Step(executable_of(f, (3, {"w": w}), {"x": x, "twice": True}, run.machine), run.machine)
        found = step.plan(StepLayout(mesh(4, 4), batch=Fraction(2)))
    larger = struct(over, (128, WIDTH), P("data"))
    assert figures(found) == figures(plan(f, 3, {"w": w}, x=larger, twice=True, on="v5e-16"))


def test_a_static_position_that_is_given_by_name_makes_no_other_static():
    """`f(x, w, power=3)` with static_argnums=2: the call has no position 2, and 0 is not meant."""
    over = AbstractMesh((4, 4), ("data", "model"))
    f = jax.jit(lambda x, w, power: jnp.sum(x @ w) ** power, static_argnums=2)
    x, w = struct(over, (64, WIDTH), P("data")), struct(over, (WIDTH, WIDTH), P("model"))
    with on("v5e-16") as run:
        step = Step(executable_of(f, (x, w), {"power": 3}, run.machine), run.machine)
        found = step.plan(StepLayout(mesh(4, 4), batch=Fraction(2)))
    assert figures(found) == figures(plan(f, struct(over, (128, WIDTH), P("data")), w, power=3, on="v5e-16"))
