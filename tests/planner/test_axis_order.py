"""Advice on the order of a mesh's axes says what the program with that mesh takes."""

from __future__ import annotations

import math

import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.plan import plan
from shardwise.planner import Advice, Plan
from shardwise.sharding import AbstractMesh, P
from shardwise.sharding import NamedSharding as NS

WIDTH, HIDDEN, ROWS = 4096, 16384, 1 << 16


def planned(on: str, **sizes: int) -> Plan:
    """A step of a layer whose products are split over 'model' and its rows over the other axes."""
    mesh = AbstractMesh(tuple(sizes.values()), tuple(sizes))
    rows = tuple(a for a in sizes if a != "model")

    def struct(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NS(mesh, P(*spec)))

    def step(w_in, w_out, x):
        def loss(w_in, w_out):
            return jnp.mean((jax.nn.gelu(x @ w_in) @ w_out).astype(jnp.float32) ** 2)

        return jax.grad(loss, (0, 1))(w_in, w_out)

    args = struct((WIDTH, HIDDEN), None, "model"), struct((HIDDEN, WIDTH), "model", None), struct((ROWS, WIDTH), rows)
    return plan(jax.jit(step), *args, on=on)


def orders(found: Plan) -> list[Advice]:
    return [a for a in found.advice if a.change.startswith("Make the mesh")]


@pytest.mark.parametrize("on", ["2x-v5p-64", "h100-8x8"])
def test_axes_that_send_much_go_over_fast_links(on):
    before, after = planned(on, model=8, data=8), planned(on, data=8, model=8)
    (advice,) = orders(before)
    assert "make_mesh((8, 8), ('data', 'model'))" in advice.change and not orders(after)
    assert advice.seconds == pytest.approx(before.schedule.seconds - after.schedule.seconds)
    assert advice.seconds > before.schedule.seconds / 4


def test_many_axes_and_those_of_one_device():
    sizes = {"model": 4, "one": 1, "a": 2, "b": 2, "c": 2, "d": 2}
    (advice,) = orders(planned("2x-v5p-64", **sizes))
    named = advice.change.rpartition("(('")[2] if "(('" in advice.change else advice.change.rpartition(", ('")[2]
    order = [name.strip(" ')") for name in named.split(",")]
    assert sorted(order) == sorted(sizes) and order.index("model") > 0 and order.index("one") == 1
    after = planned("2x-v5p-64", **{name: sizes[name] for name in order})
    before = planned("2x-v5p-64", **sizes)
    assert advice.seconds == pytest.approx(before.schedule.seconds - after.schedule.seconds)


def test_axes_of_which_the_program_uses_parts_have_their_own_names():
    mesh = AbstractMesh((8, 8), ("model", "data"))

    def struct(shape, *spec):
        return jax.ShapeDtypeStruct(shape, jnp.bfloat16, sharding=NS(mesh, P(*spec)))

    def heads(x, w_in, w_out):
        return jnp.tanh((x @ w_in).reshape(len(x), 2, 4, -1)).reshape(len(x), -1) @ w_out

    args = struct((ROWS, WIDTH), "data"), struct((WIDTH, 8192), None, "model"), struct((8192, WIDTH), "model", None)
    found = plan(jax.jit(heads), *args, on="2x-v5p-64")
    assert set(found.mesh) == {"model.0", "model.1", "data"}
    (advice,) = orders(found)
    assert "make_mesh((8, 8), ('data', 'model'))" in advice.change


def test_machines_of_one_kind_of_link_have_no_better_order():
    for sizes in ({"model": 4, "data": 2}, {"data": 2, "model": 4}):
        assert math.prod(sizes.values()) == 8 and not orders(planned("h100-8", **sizes))
