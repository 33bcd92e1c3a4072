"""Products beside gathers and scatters as rings: each multiplies parts that its neighbours pass on."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.ir import verify
from shardwise.passes.collective_matmul import Ring, collective_matmul, pays_between
from shardwise.runtime import costs
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.rounding import assert_normwise

RNG = np.random.default_rng(7)
N = 32
MESH = Mesh(np.array(sw.devices()[:4]), ("x",))
SQUARE = Mesh(np.array(sw.devices()[:4]).reshape(2, 2), ("x", "y"))


def compiled(f, args, choice):
    """The result of a function under this choice, and its executable."""
    with config.override("shardwise_collective_matmul", choice):
        return np.asarray(sw.jit(f)(*args)), sw.jit(f).lower(*args).compile().runtime_executable()


def both(f, *specs, mesh=MESH, dtype=np.float32, shapes=((N, N), (N, N))):
    """Results without rings and with them, and the collectives with them."""
    given = [RNG.standard_normal(s).astype(np.float32).astype(dtype) for s in shapes]
    if np.dtype(dtype).kind == "i":
        given = [RNG.integers(-9, 9, s).astype(dtype) for s in shapes]
    args = [sw.device_put(x, NamedSharding(mesh, s)) for x, s in zip(given, specs, strict=True)]
    plain, before = compiled(f, args, "off")
    ringed, after = compiled(f, args, "on")
    verify(after.device_program, after="collective_matmul")
    assert sum(t.bytes for t in before.transfers) == sum(t.bytes for t in after.transfers) > 0
    assert plain.dtype == ringed.dtype
    return plain, ringed, before.transfers, after.transfers


def kinds(transfers):
    return [t.kind for t in transfers]


def rows(product, mesh=MESH):
    return lambda a, b: lax.with_sharding_constraint(product(a, b), NamedSharding(mesh, P("x")))


PRODUCTS = {
    "columns of the right": (lambda a, b: a @ b, (P("x"), P(None, "x"))),
    "columns of the left": (
        lambda a, b: lax.with_sharding_constraint(a @ b, NamedSharding(MESH, P(None, "x"))),
        (P("x"), P(None, "x")),
    ),
    "turned": (lambda a, b: a @ b.T, (P("x"), P("x"))),
    "contracted": (rows(lambda a, b: a @ b), (P("x"), P("x"))),
    "contracted, turned": (rows(lambda a, b: a @ b.T), (P("x"), P(None, "x"))),
    "scattered": (rows(lambda a, b: a @ b), (P(None, "x"), P("x"))),
    "scattered columns": (
        lambda a, b: lax.with_sharding_constraint(a @ b, NamedSharding(MESH, P(None, "x"))),
        (P(None, "x"), P("x")),
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16, np.int32, np.complex64])
def test_values_and_bytes_stay(name, dtype):
    f, specs = PRODUCTS[name]
    plain, ringed, before, after = both(f, *specs, dtype=dtype)
    assert len(before) == 1
    assert kinds(after) == ["permute"] * 3
    assert {(t.cause, t.source, t.value) for t in after} == {(t.cause, t.source, t.value) for t in before}
    # sums in another order; those of bfloat16 are rounded to 8 bits, scattered ones after each addition
    assert_normwise(ringed, plain, 2**-7 if dtype == jnp.bfloat16 else 1e-6)


def test_stacks_and_several_axes():
    f = lambda a, b: jnp.einsum("nij,njk->nik", a, b)  # noqa: E731
    shapes = ((2, N, N), (2, N, N))
    plain, ringed, _, after = both(f, P(None, "x"), P(None, None, "x"), shapes=shapes)
    assert_normwise(ringed, plain, 1e-6)
    assert kinds(after) == ["permute"] * 3
    split = P(("x", "y"))
    plain, ringed, _, after = both(lambda a, b: a @ b, split, P(None, ("x", "y")), mesh=SQUARE)
    assert_normwise(ringed, plain, 1e-6)
    assert kinds(after) == ["permute"] * 3
    plain, ringed, _, after = both(lambda a, b: a @ b, P("x"), P("y", "x"), mesh=SQUARE)
    assert_normwise(ringed, plain, 1e-6)
    assert "permute" in kinds(after)


def test_in_loops_and_derivatives():
    def steps(a, w):
        body = lambda x, w: (jnp.tanh(rows(lambda x, w: x @ w / N)(x, w)), None)  # noqa: E731
        return lax.scan(body, a, w)[0]

    layers, shapes = (P("x"), P(None, "x")), ((N, N), (3, N, N))
    plain, ringed, _, after = both(steps, *layers, shapes=shapes)
    assert_normwise(ringed, plain, 1e-6)
    plain, ringed, _, after = both(sw.grad(lambda a, w: (steps(a, w) ** 2).sum()), *layers, shapes=shapes)
    assert_normwise(ringed, plain, 1e-5)
    assert "permute" in kinds(after) and any(t.backward for t in after)


def test_explain_shows_the_ring_with_its_line():
    f = rows(lambda a, b: a @ b)
    a, b = [sw.device_put(jnp.ones((N, N)), NamedSharding(MESH, P("x"))) for _ in range(2)]
    with config.override("shardwise_collective_matmul", "on"):
        text = sw.jit(f).lower(a, b).compile().explain()
    assert f"3 x permute over x of f32[{N},{N}]: {N * N} bytes, inserted for dot_general at" in text
    assert "test_collective_matmul.py" in text and "all_gather" not in text


def device_program(f, *specs, mesh=MESH):
    args = [sw.device_put(jnp.ones((N, N)), NamedSharding(mesh, s)) for s in specs]
    return sw.jit(f).lower(*args).compile().runtime_executable().device_program


def test_what_stays():
    written = sw.shard_map(
        lambda a, b: a @ lax.all_gather(b, "x", axis=1, tiled=True), mesh=MESH, in_specs=(P("x"), P(None, "x")), out_specs=P("x")
    )  # fmt: skip
    same = lambda a, b: lax.with_sharding_constraint(a @ b, NamedSharding(MESH, P()))  # noqa: E731
    read_besides = lambda a, b: (  # noqa: E731
        rows(lambda a, b: a @ b)(a, b), lax.with_sharding_constraint(b, NamedSharding(MESH, P())))  # fmt: skip
    for f, specs in (
        (written, (P("x"), P(None, "x"))),
        (read_besides, (P("x"), P("x"))),
        (lambda a, b: jnp.sin(a) + b, (P("x"), P(None, "x"))),
        (same, (P(), P("x"))),
    ):
        program = device_program(f, *specs)
        assert collective_matmul(program) is program, program
    program = device_program(rows(lambda a, b: a @ b), P("x"), P("x"))
    assert collective_matmul(program) is not program
    assert collective_matmul(program, lambda ring: False) is program


def test_rings_of_many_devices_stay_collectives(monkeypatch):
    program = device_program(rows(lambda a, b: a @ b), P("x"), P("x"))
    monkeypatch.setattr(costs, "RING_DEVICES", 3)
    assert collective_matmul(program) is program


def test_what_the_pass_is_told():
    seen: list[Ring] = []
    collective_matmul(device_program(rows(lambda a, b: a @ b), P("x"), P("x")), lambda ring: bool(seen.append(ring)))
    (ring,) = seen
    parts, own, sums = 2 * N * N, N * N // 4, 3 * N * N
    assert ring == Ring(("x",), 4, N * N * 4, parts + own + sums, 2 * N * N * N // 4)
    free = device_program(lambda a, b: a @ b, P("x"), P(None, "x"))
    scattered = device_program(rows(lambda a, b: a @ b), P(None, "x"), P("x"))
    for program in (free, scattered):
        collective_matmul(program, lambda ring: bool(seen.append(ring)))
    assert [r.held for r in seen[1:]] == [parts + N * N // 4] * 2


def test_where_it_pays():
    enough = costs.RING_BYTES * costs.RING_OPERATIONS_PER_BYTE
    pays = pays_between(frozenset({"x"}))
    assert pays(Ring(("x", "y"), 4, costs.RING_BYTES, 0, enough))
    assert not pays(Ring(("y",), 4, costs.RING_BYTES, 0, enough))
    assert not pays(Ring(("x",), 4, costs.RING_BYTES, 1, enough))
    assert not pays(Ring(("x",), 4, costs.RING_BYTES, 0, enough - 1))


def test_one_process_needs_no_rings_unless_it_is_told(monkeypatch):
    monkeypatch.setattr(costs, "RING_BYTES", -(1 << 30))
    monkeypatch.setattr(costs, "RING_OPERATIONS_PER_BYTE", 0)
    args = [sw.device_put(jnp.ones((N, N)), NamedSharding(MESH, P("x"))) for _ in range(2)]
    f = rows(lambda a, b: a @ b)
    for choice, expected in (("off", ["all_gather"]), ("auto", ["all_gather"]), ("on", ["permute"] * 3)):
        assert kinds(compiled(f, args, choice)[1].transfers) == expected
    with pytest.raises(ValueError, match="shardwise_collective_matmul"):
        config.update("shardwise_collective_matmul", "sometimes")


def test_scatters_stay_where_moves_are_refused():
    args = [sw.device_put(jnp.ones((N, N)), NamedSharding(MESH, s)) for s in (P(None, "x"), P("x"))]
    with config.override("shardwise_on_reshard", "raise"):
        _, found = compiled(rows(lambda a, b: a @ b), args, "on")
    assert kinds(found.transfers) == ["reduce_scatter"]
