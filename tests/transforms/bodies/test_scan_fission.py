"""Scans cut in three give what the loop gave, step by step; and nothing large is kept for all steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.runtime import costs
from tests.rounding import assert_normwise

RNG = np.random.default_rng(0)
W = (RNG.normal(size=(4, 4)) / 2).astype(np.float32)
XS = RNG.normal(size=(6, 3, 4)).astype(np.float32)
H = RNG.normal(size=(3, 4)).astype(np.float32)
COUNTS = np.arange(6, dtype=np.int32)


def recurrent(h, x):
    h = jnp.tanh(h @ W + jnp.sin(x) @ W)
    return h, (h.sum(), x * 2, jnp.float32(3))


def sums(carry, x):
    total, count, product = carry
    return (total + x, count + 1, product + x.T @ (x * x)), total.sum()


def products_of_later_values(carry, x):
    state, product = carry
    state = jnp.tanh(state @ W + x)
    return (state, product + (state * 2).T @ jnp.sin(state)), None


def steady(carry, x):
    return carry + jnp.cos(W).sum(), (W, x[0], carry)


def gathered(carry, i):
    return carry.at[i % 3].add(1.0), (carry[i % 3], jnp.sort(carry, axis=-1), jnp.where(i > 2, carry, 0.0))


def nested(carry, x):
    inner, ys = lax.scan(lambda c, row: (c * 0.5 + row, c), carry[0], x)
    return carry + inner, (ys, lax.fori_loop(0, 3, lambda i, v: v * 0.5 + i, x))


def only_outputs(carry, x):
    return carry, jnp.exp(x) @ W


CASES = {
    "recurrent": (recurrent, H, XS),
    "largest": (lambda c, x: (jnp.maximum(c, x), jnp.minimum(c, x)), H, XS),
    "sums": (sums, (np.zeros((3, 4), np.float32), np.int32(0), np.zeros((4, 4), np.float32)), XS),
    "products of later values": (products_of_later_values, (H, np.zeros((4, 4), np.float32)), XS),
    "steady": (steady, np.float32(1), XS),
    "gathered": (gathered, H, COUNTS),
    "nested": (nested, H, XS),
    "only outputs": (only_outputs, H, XS),
    "only sums": (lambda c, x: (c + x @ W, None), H, XS),
    "a product of steady values": (lambda c, x: (c + jnp.asarray(W) @ jnp.asarray(W), x.sum()), W, XS),
    "half known": (lambda c, x: (c + x.T @ jnp.ones((3, 4)), x.sum()), W, XS),
    "scalars": (lambda c, i: (jnp.sin(c) + i, c * i), np.float32(0.5), COUNTS),
    "no entries": (lambda c, _: (jnp.sin(c) * 2, c.sum()), H, None),
    "integers": (lambda c, i: (c + i, i * i), np.int32(4), COUNTS),
    "complex": (lambda c, x: (c + x * 1j, c.real), H.astype(np.complex64), XS),
    "swapped": (lambda c, x: ((c[1], c[0] + x), c[0]), (H, 2 * H), XS),
}


@pytest.fixture(autouse=True)
def quickly_compiled():
    before = sw.config.shardwise_fused
    sw.config.update("shardwise_fused", "off")
    yield
    sw.config.update("shardwise_fused", before)


def both(monkeypatch, call):
    """What `call()` gives with its scans cut, and with its scans as they are."""
    found = []
    for shortest in (2, 10**9):
        monkeypatch.setattr(costs, "FISSION_SHORTEST", shortest)
        found.append(sw.tree.map(np.asarray, call()))
    return found


def agree(got, wanted):
    assert sw.tree.structure(got) == sw.tree.structure(wanted)
    for a, b in zip(sw.tree.leaves(got), sw.tree.leaves(wanted), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        assert_normwise(a, b, 5e-5)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_results(monkeypatch, name, reverse):
    f, init, xs = CASES[name]
    length = 6 if xs is None else None
    agree(*both(monkeypatch, lambda: sw.jit(lambda c, xs: lax.scan(f, c, xs, length, reverse))(init, xs)))


@pytest.mark.parametrize("name", ["recurrent", "sums", "steady", "nested", "only sums", "half known", "swapped"])
def test_derivatives_and_batches(monkeypatch, name):
    f, init, xs = CASES[name]
    assert xs is not None

    def loss(init, xs):
        leaves = sw.tree.leaves(lax.scan(f, init, xs))
        return sum(jnp.sin(v).sum() for v in leaves if v.dtype == np.float32)

    agree(*both(monkeypatch, lambda: sw.jit(sw.value_and_grad(loss, 1))(init, xs)))
    agree(*both(monkeypatch, lambda: sw.jit(sw.vmap(sw.grad(loss, 1), (None, 0)))(init, np.stack([xs, 2 * xs]))))


def test_random_numbers(monkeypatch):
    keys = sw.random.split(sw.random.key(3), 6)

    def draw(total, key):
        noise = sw.random.normal(key, (3,))
        return total + noise, (noise, sw.random.randint(sw.random.split(key)[0], (2,), 0, 1000))

    agree(*both(monkeypatch, lambda: sw.jit(lambda keys: lax.scan(draw, np.zeros(3, np.float32), keys))(keys)))


def test_on_a_mesh(monkeypatch):
    mesh = sw.make_mesh((4, 2), ("x", "y"))
    split = sw.sharding.NamedSharding(mesh, sw.P(None, None, "y"))
    agree(*both(monkeypatch, lambda: sw.jit(lambda h, xs: lax.scan(recurrent, h, xs))(H, sw.device_put(XS, split))))


def drawn(total, key):
    """Each device draws and counts for its own part."""
    noise = sw.random.normal(key, (8,)) + jnp.arange(8) + sw.random.randint(sw.random.split(key)[0], (8,), 0, 1000)
    return jnp.where(total > 0, total + noise, noise), noise * 2


def test_parts_of_values_on_a_mesh(monkeypatch):
    keys = sw.random.split(sw.random.key(3), 6)
    split = sw.sharding.NamedSharding(sw.make_mesh((4, 2), ("x", "y")), sw.P("x"))
    step = lambda total, key: drawn(lax.with_sharding_constraint(total, split), key)  # noqa: E731
    f = lambda start, keys: lax.scan(step, start, keys)  # noqa: E731
    start = sw.device_put(jnp.zeros(8), split)
    alone = sw.jit(lambda start, keys: lax.scan(drawn, start, keys))(np.zeros(8, np.float32), keys)
    for found in both(monkeypatch, lambda: sw.jit(f)(start, keys)):
        agree(found, alone)
    (scan,) = [e for e in equations(monkeypatch, f, start, keys) if e.op.name == "scan"]
    assert [e.op.name for e in scan.params["body"].equations] == ["gt", "add", "select_n"]
    monkeypatch.setattr(costs, "FISSION_LARGEST", 6 * 8)  # on all devices together they would be 6 * 2 * 8
    (scan,) = [e for e in equations(monkeypatch, lambda *a: f(*a), start, keys) if e.op.name == "scan"]
    assert "random_block" in [e.op.name for e in scan.params["body"].equations]


def equations(monkeypatch, f, *args):
    monkeypatch.setattr(costs, "FISSION_SHORTEST", 2)
    program = sw.jit(f).lower(*args).compile().runtime_executable().device_program
    return program.equations


def test_what_stays_in_the_loop(monkeypatch):
    (scan,) = [e for e in equations(monkeypatch, lambda xs: lax.scan(recurrent, H, xs), XS) if e.op.name == "scan"]
    assert [e.op.name for e in scan.params["body"].equations] == ["dot_general", "add", "tanh"]
    names = [
        e.op.name for e in equations(monkeypatch, lambda xs: lax.scan(lambda c, x: (c + x.T @ x, None), W, xs), XS)
    ]
    assert names == ["transpose", "dot_general", "add"]


def test_rows_that_come_of_numbers_stay_in_the_loop(monkeypatch):
    row = np.ones((1, 2048), np.float32)

    def scan_of(row):
        f = lambda c, i: (lax.dynamic_update_slice(c, row * jnp.sqrt(i * 1.0), (i, 0)), i * 2)  # noqa: E731
        found = equations(monkeypatch, lambda c: lax.scan(f, c, jnp.arange(8)), np.zeros((16, row.size), np.float32))
        (scan,) = [e for e in found if e.op.name == "scan"]
        return [e.op.name for e in scan.params["body"].equations]

    assert scan_of(row) == [
        "mul",
        "dynamic_update_slice",
    ]  # numbers are computed at once, the rows when they are written
    assert scan_of(row[:, :20]) == ["dynamic_update_slice"]


def test_large_values_stay_in_the_loop(monkeypatch):
    monkeypatch.setattr(costs, "FISSION_LARGEST", 6 * 12)
    f = lambda c, x: (c + 1, jnp.exp(x[:, :, None] * jnp.ones(5)).sum(axis=-1))  # noqa: E731
    (scan,) = [e for e in equations(monkeypatch, lambda xs: lax.scan(f, np.float32(0), xs), XS) if e.op.name == "scan"]
    assert "exp" in [e.op.name for e in scan.params["body"].equations]


def test_large_sums_of_products_of_small_values_leave_the_loop(monkeypatch):
    monkeypatch.setattr(costs, "FISSION_LARGEST", 6 * 12)  # factors have 12 elements, their product has 16

    def body(carry, x, read=False):
        state, total = carry
        state = jnp.tanh(state @ W + x)
        product = lax.dot_general(state, jnp.sin(state), (((0,), (0,)), ((), ())))
        return (state, total + product), product.sum() if read else None

    def products(read):
        f: Callable[..., Any] = lambda xs: lax.scan(lambda c, x: body(c, x, read), (H, W), xs)  # noqa: E731
        agree(*both(monkeypatch, lambda: sw.jit(lambda *a: f(*a))(XS)))
        found = equations(monkeypatch, f, XS)
        (scan,) = [e for e in found if e.op.name == "scan"]
        return [sum(e.op.name == "dot_general" for e in made) for made in (found, scan.params["body"].equations)]

    assert products(read=False) == [1, 1]
    assert products(read=True) == [0, 2]


MAKE = [  # what a random body makes of two earlier values
    lambda a, b: a * b * 0.5,
    lambda a, b: a @ b * 0.3,
    lambda a, b: a.T @ b,
    lambda a, b: jnp.sin(a) + b.sum(0) * 0.1,
    lambda a, b: jnp.asarray(W) @ a,
]


@pytest.mark.parametrize("seed", range(16))
def test_random_bodies_are_their_steps(seed):
    """Carries that are replaced and carries that are added to, of values made in any order."""
    rng = np.random.default_rng(seed)
    adds = rng.random(rng.integers(1, 4)) < 0.6
    made = rng.integers(2, 9)
    plan = [(rng.integers(len(MAKE)), *rng.integers(0, len(adds) + 1 + k, 2)) for k in range(made)]
    outs, ys = rng.integers(0, len(adds) + 1 + made, len(adds)), rng.integers(0, len(adds) + 1 + made, 2)

    def step(carry, x):
        values = [*carry, x]
        for k, a, b in plan:
            values.append(MAKE[k](values[a], values[b]))
        new = [c + values[o] if add else jnp.tanh(values[o]) for c, o, add in zip(carry, outs, adds, strict=True)]
        return tuple(new), [values[y] for y in ys]

    carry = tuple(rng.normal(size=(4, 4)).astype(np.float32) * 0.3 for _ in adds)
    xs = rng.normal(size=(5, 4, 4)).astype(np.float32) * 0.3
    last, stacked = sw.jit(lambda carry, xs: lax.scan(step, carry, xs))(carry, xs)
    want: list[list[np.ndarray]] = []
    for x in xs:
        carry, row = step(carry, x)
        want.append([np.asarray(y) for y in row])
    for got, expected in zip([*last, *stacked], [*carry, *map(np.stack, zip(*want, strict=True))], strict=True):
        assert_normwise(np.asarray(got), np.asarray(expected), 1e-5)
