"""Equal equations are partitioned once; a program comes out as if each had been partitioned by itself."""

from __future__ import annotations

import dataclasses
import re

import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ir import subprograms
from shardwise.passes import templates
from shardwise.passes.transfers import transfers_of
from shardwise.planner import device_program_of, make_plan, target
from shardwise.sharding import AxisType, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.passes.test_partition import names, parts

ODD = 2  # the layer that differs


def layer(x, w, scale, spec, mesh):
    h = jnp.tanh(x @ w[0]) * scale
    h = lax.with_sharding_constraint(h, NamedSharding(mesh, P(*spec)))
    return x + sw.nn.softmax(jnp.roll(h, 1, 1)) @ w[1]


def step(which, mesh):
    """A training step of layers one of which differs from the others in one thing, and its arguments."""
    width = [96 if which == "shape" and i == ODD else 64 for i in range(4)]

    def loss(ws, x):
        for i, w in enumerate(ws):
            scale = 2.0 if which == "constant" and i == ODD else 0.5
            spec = (None, "y") if which == "sharding" and i == ODD else ("x", "y")
            run = sw.checkpoint(layer, static_argnums=(2, 3, 4)) if i % 2 else layer
            x = run(x, w, scale, spec, mesh)
        return (x * x).sum()

    def update(ws, x):
        value, grads = sw.value_and_grad(loss)(ws, x)
        return sw.tree.map(lambda w, g: w - 0.1 * g, ws, grads), value

    def argument(shape, *spec):
        return sw.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

    ws = [(argument((32, n), "x", "y"), argument((n, 32), "y", "x")) for n in width]
    return sw.jit(update, donate_argnums=0), (ws, argument((16, 32), "x", None))


def planned(which):
    """The device program of the step, the lines of its equations, its transfers, and its plan without the time that planning took."""
    with sw.plan.on("v5e-16") as run:
        mesh = sw.make_mesh((4, 4), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
        f, args = step(which, mesh)
        f.lower(*args)
        ((called,),) = run.programs.values()
        program = device_program_of(called.executable, target.for_chip(run.machine.chip))
        plan = dataclasses.replace(make_plan(program, run.machine), planning_seconds=0.0)
    text = re.sub("0x[0-9a-f]+", "", str(program.program))
    return text, lines(program.program), transfers_of(program.program, program.sizes), plan


def lines(program):
    found = [e.source for e in program.equations]
    return found + [s for e in program.equations for _, p in subprograms(e.params) for s in lines(p)]


@pytest.mark.parametrize("which", ["none", "constant", "shape", "sharding"])
def test_layers_come_out_as_if_each_were_alone(which, monkeypatch):
    applied = []
    apply = templates.Template.apply
    monkeypatch.setattr(templates.Template, "apply", lambda *args: (applied.append(0), apply(*args)))
    found = planned(which)
    assert len(applied) > 50
    monkeypatch.setattr(templates, "key_of", lambda *args: None)
    assert planned(which) == found
    assert found[2]


def test_an_operand_that_is_there_twice_is_another_equation():
    local, _, _ = parts(lambda a, b: (lax.mul(a, a), lax.mul(a, b), lax.mul(b, b)), ["8,8 xy", "8,8 xy"])
    a, b = local.inputs
    assert [e.inputs for e in local.equations] == [(a, a), (a, b), (b, b)]


def test_each_equation_keeps_its_literals():
    local, _, transfers = parts(lambda a: (lax.add(a, 1.0), lax.add(a, 2.0), lax.mul(a, 2.0)), ["8,8 xy"])
    assert [e.inputs[1].val for e in local.equations] == [1.0, 2.0, 2.0]
    assert not transfers


def test_the_same_reshard_is_written_for_each():
    def f(a, b, c, d):
        return lax.dot(a, b), lax.dot(c, d)

    local, _, transfers = parts(f, ["8,8 -y", "8,8 y-"] * 2, ["x-", "x-"])
    half = len(local.equations) // 2
    assert names(local)[:half] == names(local)[half:]
    assert transfers[0] == dataclasses.replace(transfers[1], source=transfers[0].source)
