"""Searches: what they find is what the program has if it is written so; what they leave alone they say."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, cast

import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.plan import advise, on, plan, search
from shardwise.plan.report import layouts
from shardwise.plan.step import Step
from shardwise.sharding import AbstractMesh, P
from shardwise.sharding import NamedSharding as NS
from tests.plan.steps import made

WIDE = 32768
LINE = AbstractMesh((16,), ("data",))


def replicated(mesh=LINE, w=None, x=None):
    """A step whose weights lie whole on every device: its float32 weights and gradients do not fit a v5e."""
    at = lambda shape, spec: jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NS(mesh, spec))  # noqa: E731

    def step(params, x):
        grads = jax.grad(lambda p: jnp.sum(jnp.tanh(x @ p["a"]) @ p["b"]))(params)
        return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)

    w = w or {"a": P(), "b": P()}
    return step, ({k: at((WIDE, WIDE), s) for k, s in w.items()}, at((256, WIDE), P("data") if x is None else x))


def test_what_does_not_fit_is_made_to_fit():
    f, args = replicated()
    found = search(f, args, on="v5e-16", layouts=30, processes=1, machines=())
    assert not found.own.fits and found.front and all(p.fits for p in found.front)
    times, peaks = [p.per_batch for p in found.front], [p.peak for p in found.front]
    assert times == sorted(times) and peaks == sorted(peaks, reverse=True)
    assert found.planned + sum(found.refused.values()) <= 30


def test_the_code_gives_the_planned_layout(dialect):
    f, args = replicated()
    found = search(f, args, on="v5e-16", layouts=20, processes=1, machines=(), batch=())
    best = found.front[0]
    code = found.code(best)
    names: dict[str, Any] = {"jax": jax, "P": P}
    with on("v5e-16"):
        exec(code, names)
        written = plan(*_flat(replicated(names["mesh"], names["params_specs"], names.get("x_specs"))), on="v5e-16")
    assert (written.peak, written.seconds.likely) == (best.peak, best.seconds)
    types = {"seed": "", "latest": ", axis_types=(jax.sharding.AxisType.Auto,) * 1"}[dialect]
    assert code.startswith(f"mesh = jax.make_mesh((16,), ('data',){types})\n")


def _flat(made):
    return made[0], *made[1]


def test_given_choices_are_the_only_ones():
    f, args = made((4, 4))
    specs = [(None, P(("data", "model"))), ([{"up": P("data"), "down": P("model")}] * 2, None)]
    found = search(
        f, args, on="v5e-16", meshes=[(4, 4), {"data": 2, "model": 8}], specs=specs, remat=["dots_saveable"], batch=[2],
        machines=(), processes=1,
    )  # fmt: skip
    two = {(("data", 4), ("model", 4)), (("data", 2), ("model", 8))}
    tried = {(p.layout.mesh, p.layout.remat, p.layout.batch) for p in (found.own, *found.front)}
    assert tried <= {(mesh, remat, batch) for mesh in two for remat in ("", "dots_saveable") for batch in (1, 2)}
    # Two meshes of three layouts each; then at most four of them with the policy, and four with the batch.
    assert 6 < found.planned <= 6 + 4 + 4 and not found.refused
    assert "2 shapes" in found.varied[0] and "2 given" in found.varied[1]


def test_given_specs_are_tried_on_the_own_mesh_where_no_other_is_given():
    f, args = made((4, 4))
    specs = [(None, P(("data", "model")))]
    found = search(f, args, on="v5e-16", meshes=(), specs=specs, remat=(), batch=(), machines=(), processes=1)
    assert found.planned == 2 and found.kept == ("the mesh: none is given",)
    (varied,) = found.varied
    assert "1 given" in varied
    found = search(f, args, on="v5e-16", meshes=(), remat=(), batch=(), machines=(), processes=1, layouts=20)
    assert {p.layout.mesh for p in found.front} == {found.own.layout.mesh}


def test_a_mesh_of_one_device_has_one_on_half_the_machine_too():
    mesh = AbstractMesh((1,), ("data",))
    at = lambda shape: jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NS(mesh, P("data")))  # noqa: E731
    f = lambda w, x: jnp.sum(x @ w)  # noqa: E731
    found = search(f, (at((64, 64)), at((32, 64))), on="v5e-16", processes=1, layouts=20, batch=())
    assert {(p.layout.machine, p.layout.mesh) for p in found.others} == {
        ("v5e-8", (("data", 1),)), ("v5e-32", (("data", 2),)),
    }  # fmt: skip


@pytest.mark.filterwarnings(r"ignore:os\.fork\(\) was called:RuntimeWarning")  # of JAX, if a test before imported it
def test_two_processes_find_what_one_finds():
    f, args = made((4, 4))
    one, two = (search(f, args, on="v5e-16", layouts=24, processes=n) for n in (1, 2))
    assert one.front == two.front and one.others == two.others and one.planned == two.planned > 10


def test_policies_and_other_machines():
    f, args = made((4, 4), donated=(0,))
    own = {"mine": jax.checkpoint_policies.everything_saveable}
    found = search(f, args, on="v5e-16", meshes=[(4, 4)], specs=(), remat=own, batch=(2,), processes=1)
    everything = next(p for p in found.front if p.layout.remat == "mine" and p.layout.batch == 1)
    assert everything.seconds < found.own.seconds and everything.peak > found.own.peak
    assert "policy = mine  # of every jax.checkpoint" in found.code(everything)
    assert {p.layout.machine for p in found.others} == {"v5e-8", "v5e-32"}
    assert {(p.layout.machine, p.layout.batch) for p in found.others} >= {("v5e-32", 1), ("v5e-32", 2)}


def test_an_own_policy_may_have_the_name_of_a_usual_one():
    f, args = made((4, 4))
    own = {"dots_saveable": jax.checkpoint_policies.everything_saveable}
    found = search(f, args, on="v5e-16", meshes=(), specs=(), remat=own, batch=(), machines=(), processes=1)
    point = next(p for p in found.front if p.layout.remat)
    assert "policy = dots_saveable  # of every jax.checkpoint" in found.code(point)


def test_what_cannot_be_varied_is_said():
    ring = AbstractMesh((16,), ("x",))

    def by_hand(x):
        return jax.shard_map(lambda x: jax.lax.psum(x, "x"), mesh=ring, in_specs=P("x"), out_specs=P())(x)

    x = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=NS(ring, P("x")))
    found = search(by_hand, (x,), on="v5e-16", processes=1)
    assert found.planned == 1 and [line.partition(":")[0] for line in found.kept] == [
        "the mesh, the specs and the machine",
        "remat",
        "the batch",
    ]
    page = layouts.text(found)
    assert "as it is: remat: the program checkpoints nothing" in page and "no layout is faster" in page


@pytest.mark.parametrize(
    "choices, message",
    [
        ({"meshes": [(16,)]}, r"the mesh \(16,\) has 1 axes, the program's 2: data, model"),
        ({"meshes": [{"data": 4, "tensor": 4}]}, "has other axes than the program's: data, model"),
        ({"remat": ["dots"]}, "remat='dots': no such policy; give names of nothing_saveable"),
        ({"specs": [(None, P("rows"))]}, r"names the axes \['rows'\]; the mesh has {'data': 4, 'model': 4}"),
        ({"specs": [(None, P("data", None, "model"))]}, "is no PartitionSpec of x, which has 2 dims"),
        ({"specs": [(None, P(P.UNCONSTRAINED))]}, "leaves a dim of x open; give axes or None"),
        ({"meshes": [(0, 4)]}, r"the mesh {'data': 0, 'model': 4} has an axis of no devices"),
        ({"meshes": [(-4, -4)]}, "has an axis of no devices"),
        ({"batch": [2, 0]}, r"batch=0: give positive multiples of the program's own batch, at least 1/4096"),
        ({"batch": [-1]}, "batch=-1: give positive multiples"),
        ({"machines": ["v5e-8", "v0-16"]}, "No machine is called 'v0-16'"),
        ({"layouts": 0}, "a search plans at least one"),
        ({"processes": 0}, "there has to be one"),
    ],
)
def test_choices_that_are_none(choices, message, monkeypatch):
    monkeypatch.setattr(Step, "plan", lambda *_: pytest.fail("a layout is planned before the choices are checked"))
    f, args = made((4, 4))
    with pytest.raises(ValueError, match=message):
        search(f, args, on="v5e-16", **cast(Any, {"processes": 1, **choices}))


def test_a_mesh_that_does_not_fit_the_machine_is_an_error():
    mesh = AbstractMesh((3,), ("data",))
    x = jax.ShapeDtypeStruct((66, 66), jnp.float32, sharding=NS(mesh, P("data")))
    with pytest.raises(ValueError, match="has 3 devices, but v5e-16 has 16"):
        search(lambda x: x @ x, (x,), on="v5e-16", processes=1)


def test_steps_that_take_no_time_have_no_speed():
    x = jax.ShapeDtypeStruct((4096, 4096), jnp.float32, sharding=NS(LINE, P("data")))
    f = jax.jit(lambda x: x, out_shardings=NS(LINE, P()))
    found = search(f, (x,), on="v5e-16", processes=1)
    assert found.own.seconds > 0 == found.front[0].seconds
    shown = layouts.text(found)
    own, first = (re.findall(rf"\n  {name} +(\S+ \S+) +(\S+)", shown)[0] for name in ("own", "1"))
    assert own[1] == "1.00" and first == ("0 s", "128")  # the speed is left out: the peak follows


def test_every_reason_is_printed_whole():
    f, args = made((4, 4))
    found = search(f, args, on="v5e-16", processes=1, layouts=1)
    reasons = {f"reason {i} {'that goes on ' * 20}end": i for i in range(1, 13)}
    page = layouts.text(replace(found, refused=reasons))
    assert page.count("impossible (") == page.count(" end\n") == layouts.ROWS


def test_a_batch_that_the_program_fixes_is_kept():
    mesh = AbstractMesh((16,), ("data",))
    at = lambda shape, spec: jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NS(mesh, spec))  # noqa: E731
    found = search(
        lambda w, x: jnp.sum(jnp.reshape(x @ w, (64, 2, 1024))), (at((2048, 2048), P()), at((64, 2048), P("data"))),
        on="v5e-16", layouts=20, processes=1,
    )  # fmt: skip
    assert any(line.startswith("the batch: TypeError: cannot reshape") for line in found.kept)
    assert "impossible" in layouts.text(found)


def test_functions_that_trace_once_keep_policy_and_batch():
    f, args = made((4, 4))
    traced = []

    def once(params, x):
        if traced:
            raise RuntimeError("there is no call around this")
        traced.append(x)
        return f(params, x)

    found = search(once, args, on="v5e-16", layouts=20, processes=1)
    reason = "the function cannot be traced again (RuntimeError: there is no call around this)"
    assert found.kept == (f"remat: {reason}", f"the batch: {reason}")
    assert len({p.layout.mesh for p in found.front}) > 1 and found.others and not found.refused
    traced.clear()
    assert advise(once, args, on="v5e-16") == plan(f, *args, on="v5e-16").advice
