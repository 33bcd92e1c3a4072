"""Equal equations are partitioned once; a program comes out as if each had been partitioned by itself."""

from __future__ import annotations

import dataclasses
import re

import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ir import Literal, subprograms
from shardwise.passes import templates
from shardwise.passes.partition import Region
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


def planned(which, step=step):
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
    literals = [e.inputs[1] for e in local.equations]
    assert [a.val for a in literals if isinstance(a, Literal)] == [1.0, 2.0, 2.0]
    assert not transfers


def test_the_same_reshard_is_written_for_each():
    def f(a, b, c, d):
        return lax.dot(a, b), lax.dot(c, d)

    local, _, transfers = parts(f, ["8,8 -y", "8,8 y-"] * 2, ["x-", "x-"])
    half = len(local.equations) // 2
    assert names(local)[:half] == names(local)[half:]
    assert transfers[0] == dataclasses.replace(transfers[1], source=transfers[0].source)


# -- unrolled models of many kinds --------------------------------------------------------------------------------------------------

KINDS = ["gpt", "widths", "last", "tied", "dropout", "remat", "kinds"]


def norm(x):
    centered = x - x.mean(-1, keepdims=True)
    return centered * lax.rsqrt((centered**2).mean(-1, keepdims=True) + 1e-5)


def attention(x, w):
    q, k, v = (jnp.einsum("bsd,dhk->bshk", x, w[name]) for name in "qkv")
    scores = jnp.einsum("bshk,bthk->bhst", q, k)
    scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -1e9)
    return jnp.einsum("bhst,bthk,hkd->bsd", sw.nn.softmax(scores), v, w["o"])


def mlp(x, w):
    return sw.nn.gelu(x @ w["up"] + w["bias"]) @ w["down"]


def shifts(x, w):
    return x + jnp.roll(x, 1, 1) * w["bias"].mean() + jnp.pad(x[:, 1:], ((0, 0), (0, 1), (0, 0)))


def block(i, x, w, key, kind, mesh):
    x = lax.with_sharding_constraint(x, NamedSharding(mesh, P("x", None, None)))
    if kind == "kinds" and i % 3:
        return x + (shifts(norm(x), w) if i % 3 == 1 else mlp(norm(x), w))
    x = x + attention(norm(x), w)
    x = x + mlp(norm(x), w) * (2.0 if kind == "last" and i == 5 else 1.0)
    if kind == "dropout":
        x = jnp.where(sw.random.bernoulli(sw.random.fold_in(key, i), 0.9, x.shape), x, 0)
    return x


def model(kind, mesh, layers=6):
    """A training step of an unrolled decoder over ('x', 'y'), and its arguments."""

    def loss(ws, embedding, tokens, key):
        run = sw.checkpoint(block, static_argnums=(0, 4, 5)) if kind == "remat" else block
        x = embedding[tokens]
        for i, w in enumerate(ws):
            x = run(i, x, w, key, kind, mesh)
        logits = norm(x) @ (embedding.T if kind == "tied" else ws[0]["o"].reshape(-1, 32))
        return -sw.nn.log_softmax(logits).mean()

    def update(ws, embedding, tokens, key):
        value, grads = sw.value_and_grad(loss, argnums=(0, 1))(ws, embedding, tokens, key)
        return sw.tree.map(lambda w, g: w - 0.1 * g, (ws, embedding), grads), value

    def at(shape, *spec, dtype=jnp.float32):
        return sw.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, P(*spec)))

    widths = [96 if kind == "widths" and i % 4 == 2 else 64 for i in range(layers)]
    ws = [
        {
            **{name: at((32, 4, 8), "x", "y") for name in "qkv"},
            "o": at((4, 8, 32), "y", None, "x"),
            "up": at((32, n), "x", "y"),
            "bias": at((n,), "y"),
            "down": at((n, 32), "y", "x"),
        }
        for n in widths
    ]
    tokens, key = at((16, 8), "x", dtype=jnp.int32), at((2,), dtype=jnp.uint32)
    return sw.jit(update, donate_argnums=(0, 1)), (ws, at((64, 32), "y", "x"), tokens, key)


@pytest.mark.parametrize("kind", KINDS)
def test_unrolled_models_come_out_as_if_each_equation_were_alone(kind, monkeypatch):
    found = planned(kind, model)
    monkeypatch.setattr(templates, "key_of", lambda *args: None)
    assert planned(kind, model) == found
    assert found[2]


def manual_step(which, mesh):
    """Layers with bodies per device, loops and branches, traced once; one gets another layout, or is called from another line."""

    def body(x, w):
        h, _ = lax.scan(lambda h, row: (jnp.tanh(h + row.sum()), None), x @ w, w)
        return lax.psum(h, "y")

    each = sw.shard_map(body, mesh=mesh, in_specs=(P("x", "y"), P("y", None)), out_specs=P("x", None))
    partly = sw.shard_map(lambda x: lax.psum(x * 2, "y"), mesh=mesh, in_specs=P("y"), out_specs=P(), axis_names={"y"})

    @sw.jit
    def layer(x, w):
        x = each(x, w) + partly(w).sum(0)
        x = lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x)[:, ::-1]
        return lax.fori_loop(0, 3, lambda _, x: lax.sort(x * 0.5, dimension=0), x)

    def loss(ws, x):
        for i, w in enumerate(ws):
            odd = i == ODD and which == "layout"
            w = lax.with_sharding_constraint(w, NamedSharding(mesh, P("y", None if odd else "x")))
            if i == ODD and which == "line":
                x = lax.with_sharding_constraint(layer(x, w), NamedSharding(mesh, P(None, "y")))[::2].repeat(2, 0)
            else:
                x = lax.with_sharding_constraint(layer(x, w), NamedSharding(mesh, P(None, "y")))[::2].repeat(2, 0)
        return x.sum()

    ws = [sw.ShapeDtypeStruct((32, 32), jnp.float32, sharding=NamedSharding(mesh, P("x", "y")))] * 5
    x = sw.ShapeDtypeStruct((16, 32), jnp.float32, sharding=NamedSharding(mesh, P("x", None)))
    return sw.jit(loss), (ws, x)


@pytest.mark.parametrize("which", ["line", "layout"])
def test_ops_with_a_partition_of_their_own_come_out_as_if_each_were_alone(which, monkeypatch):
    applied = []
    apply = templates.Template.apply
    monkeypatch.setattr(
        templates.Template,
        "apply",
        lambda self, region, eqn, atoms: (applied.append(eqn.op), apply(self, region, eqn, atoms)),
    )
    found = planned(which, manual_step)
    owners = {op.name for op in applied if op.partition is not None}
    assert {"shard_map", "sharding_constraint", "cond"} <= owners
    monkeypatch.setattr(templates, "key_of", lambda *args: None)
    assert planned(which, manual_step) == found
    assert found[2]


def test_later_layers_move_values_by_the_templates_of_the_first(monkeypatch):
    anew = []
    partition = Region.anew
    monkeypatch.setattr(Region, "anew", lambda self, eqn, own: (anew.append(eqn.op), partition(self, eqn, own)))
    counts = []
    for layers in (4, 7):
        planned("gpt", lambda kind, mesh, layers=layers: model(kind, mesh, layers))
        counts.append(sum(op.product for op in anew))
        anew.clear()
    assert counts[0] == counts[1] > 0


def test_a_value_that_is_gathered_for_one_reader_is_there_for_the_next():
    def f(a, b, c, d, e):
        return lax.dot(a, b), lax.dot(a, c), lax.dot(d, b), lax.dot(d, c), lax.dot(d, e)

    local, _, transfers = parts(f, ["8,8 xy", "8,8 y-", "8,8 y-", "8,8 xy", "8,8 y-"], ["x-"] * 5)
    products = [e for e in local.equations if e.op.product]
    assert len(products) == 5
    first, second, third, fourth, fifth = (e.inputs[0] for e in products)
    assert first is second
    assert third is fourth is fifth
    assert first is not third
    assert transfers


def test_what_is_moved_once_is_computed_again_where_it_can_be(monkeypatch):
    mesh = sw.make_mesh((8,), ("x",), axis_types=(AxisType.Auto,))
    rows, columns = NamedSharding(mesh, P("x")), NamedSharding(mesh, P(None, "x"))

    def f(a, b, c):
        sent = lax.with_sharding_constraint(a * 2, rows)
        made = lax.with_sharding_constraint(lax.broadcasted_iota(jnp.float32, (64, 64), 0), rows)
        return [left @ right for left in (sent, made, -sent, -made) for right in (b, c)]

    args = [sw.ShapeDtypeStruct((64, 64), jnp.float32, sharding=s) for s in (rows, columns, columns)]
    lower = lambda: sw.jit(f, out_shardings=columns).lower(*args)._entry.executable  # noqa: E731
    found = lower()
    sent = transfers_of(found.device_program, found.grid.axis_sizes)
    assert [t.kind for t in sent] == ["all_gather"]  # of `sent`, whose negative is made of that
    monkeypatch.setattr(templates, "key_of", lambda *args: None)
    assert str(lower().device_program) == str(found.device_program)


@pytest.mark.parametrize(
    "f",
    [
        lambda a, b: [lax.pad(x, fill, [(0, 0, 0), (1, 1, 0)]) for fill in (0.0, 1.0) for x in (a, b)],
        lambda a, b: [lax.pad(x, fill, [(1, 7, 0), (0, 0, 0)]) for fill in (0.0, 1.0) for x in (a, b)],
        lambda a, b: [lax.dynamic_slice(x, (i, 2), (4, 4)) for i in (0, 4) for x in (a, b)],
        lambda a, b: [lax.sin(lax.concatenate([x, x], d)) + x.sum() for d in (0, 1) for x in (a, b)],
        lambda a, b: [lax.dot(x, y) for x in (a, b) for y in (a, b)],
        lambda a, b: [lax.rev(lax.cumsum(x, d), (d,)) for d in (0, 1) for x in (a, b)],
        lambda a, b: [lax.pad(x, fill, [(2, 1, 1), (0, 0, 0)]) for fill in (0.0, 1.0) for x in (a, b)],
        lambda a, b: [
            lax.dynamic_update_slice(x, y, (i, 2)) for i in (0, 4) for x, y in ((a, b[:4, :2]), (b, a[4:, 2:4]))
        ],
        lambda a, b: [lax.sort((x, y), dimension=d, num_keys=1)[1] for d in (0, 1) for x, y in ((a, b), (b, a))],
        lambda a, b: [jnp.argsort(jnp.argsort(x, 0), 0) for x in (a, b)] + [jnp.argsort(b, 0)],
        lambda a, b: [jnp.linalg.qr(x[:, :1])[i] for i in (0, 1) for x in (a, b)],
        lambda a, b: [x.reshape(2, 4, 8)[i] for i in (0, 1) for x in (a, b)],
    ],
    ids=[
        "pad",
        "pad a split dim",
        "dynamic_slice",
        "concatenate",
        "dot",
        "rev",
        "pad inside",
        "update",
        "sort",
        "ranks",
        "qr",
        "reshape",
    ],
)
def test_equations_with_equal_params_in_one_program(f, monkeypatch):
    found, dims, transfers = parts(f, ["8,8 x-", "8,8 x-"])
    monkeypatch.setattr(templates, "key_of", lambda *args: None)
    alone, expected, sent = parts(f, ["8,8 x-", "8,8 x-"])
    assert str(found) == str(alone)
    assert (dims, [dataclasses.astuple(t) for t in transfers]) == (expected, [dataclasses.astuple(t) for t in sent])
