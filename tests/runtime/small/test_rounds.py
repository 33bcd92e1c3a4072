"""Loops whose vectors go through all rounds in registers: which do, and that no bit changes."""

from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.runtime.small import rounds
from shardwise.runtime.small.kernel import available
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

pytestmark = pytest.mark.skipif(not available(), reason="nothing can be compiled here")


@pytest.fixture
def groups(monkeypatch):
    """The shapes that such loops go through."""
    found = []
    before = rounds.write_group

    def write_group(code, group):
        found.append(group.shape[code.lead :])
        before(code, group)

    monkeypatch.setattr(rounds, "write_group", write_group)
    return found


def some(*shape, dtype=np.float32):
    values = np.random.default_rng(0).uniform(0.1, 1, shape)
    return values.astype(dtype)


def check(f, *args):
    """The same as without compiled loops."""
    got = sw.tree.leaves(sw.jit(lambda *a: f(*a))(*args))
    with config.override("shardwise_fused", "off"):
        wanted = sw.tree.leaves(sw.jit(lambda *a: f(*a))(*args))
    for x, y in zip(got, wanted, strict=True):
        assert x.aval == y.aval
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))


def points(n, dtype: Any = np.complex64):
    """Complex values among which are zeros, infinities, NaN, the largest and the least."""
    parts = [0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan, 3e38, -2e19, 1e-30, 1e-45]
    odd = [complex(a, b) for a in parts for b in parts]
    drawn = np.random.default_rng(1).normal(size=(2, max(n, len(odd))))
    z = drawn[0] + 1j * drawn[1]
    z[: len(odd)] = odd
    return z[:n].astype(dtype)


def counted(step, *carry, length=7):
    return lax.fori_loop(0, length, lambda i, c: step(*c), carry)


def until(x, most):
    return lax.while_loop(lambda s: s[0] < most, lambda s: (s[0] + 1, s[1] * 0.75 + s[0]), (0, x))


ROUNDS = {
    "one carry": (lambda x: counted(lambda x: (x * 0.75 + 0.5,), x), some(13, 31)),
    "a counter": (lambda x: lax.fori_loop(0, 9, lambda i, x: x * 0.5 + i, x), some(700)),
    "two that change places": (lambda x, y: counted(lambda x, y: (y, x + y), x, y), some(17, 9), some(17, 9)),
    "five carries": (lambda *c: counted(lambda a, *c: (*c, a * 0.5 + c[0]), *c), *[some(100) + k for k in range(5)]),
    "constants": (lambda x, r, c: counted(lambda x: (x * r + c,), x), some(9, 33), some(1, 33), some(9, 1)),
    "what is the same everywhere": (lambda x: counted(lambda x, y: (x + y, y - x), x, jnp.full((9, 9), 2.0)), some(9, 9)),
    "choices": (lambda x: counted(lambda x: (jnp.where(x > 0.5, x * 0.25, x + 1),), x), some(5, 40)),
    "scalars go round, too": (lambda x: counted(lambda x, s: (x + s, s * 0.5), x, jnp.float32(3)), some(33)),
    "as often as a scalar says": (until, some(21, 5), np.int32(6)),
    "not once": (until, some(21, 5), np.int32(0)),
    "integers": (lambda x: counted(lambda x: (x * 5 + 3,), x), np.arange(77, dtype=np.uint8)),
    "floats and integers": (lambda x, n: counted(lambda x, n: (x + n, n + (x > 9)), x, n), some(50), np.arange(50, dtype=np.int32)),
    "bfloat16": (lambda x: counted(lambda x: (x * 2 - 1,), x), jnp.asarray(some(99), jnp.bfloat16)),
    "bools": (lambda x, b: counted(lambda x, b: (jnp.where(b, x + 1, x), ~b), x, b), some(40), some(40) > 0.5),
    "complex64": (lambda z: counted(lambda z: (z * z + 0.25,), z), some(40) + 1j * some(40)[::-1]),
    "complex128": (lambda z: counted(lambda z: (z * z + 0.25,), z), points(333, np.complex128)),
    "complex squares, of which some overflow": (lambda z: counted(lambda z: (0.5 * z**2,), z), points(301)),
    "complex quotients": (lambda z: counted(lambda z: (z - (z**3 - 1) / (3 * z**2),), z), points(301)),
    "complex ones that change places": (lambda z, y: counted(lambda z, y: (y, z + y), z, y), points(77), points(78)[1:]),
    "complex ones beside others": (lambda z, x: counted(lambda z, x: (z * x, x + z.real), z, x), points(45), some(45)),
    "complex scalars, too": (lambda z: counted(lambda z, s: (z + s, s * 0.5j), z, jnp.complex64(1 + 2j)), points(33)),
    "complex, as often as a scalar says": (
        lambda z, most: lax.while_loop(lambda s: s[0] < most, lambda s: (s[0] + 1, s[1] / (1 + 2j)), (0, z)),
        points(210), np.int32(6),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ROUNDS)
def test_vectors_go_through_all_rounds(name, groups):
    f, *args = ROUNDS[name]
    check(f, *args)
    assert groups == [np.shape(args[0])]


OTHERS = {
    "complex ones that only move": (lambda z, y: counted(lambda z, y: (y, z), z, y), points(77), points(78)[1:]),
    "reductions": (lambda x: counted(lambda x: (x + x.max(),), x), some(40)),
    "moves": (lambda x: counted(lambda x: (jnp.roll(x, 1) + 1,), x), some(40)),
    "rows that come in": (lambda x: lax.scan(lambda c, r: (c + r, None), x[0], x), some(5, 40)),
    "rows that come out": (lambda x: lax.scan(lambda c, _: (c + 1, c), x, None, length=5), some(40)),
    "carries of two shapes": (lambda x, y: counted(lambda x, y: (x + 1, y + 1), x, y), some(40), some(20)),
    "until all are done": (lambda x: lax.while_loop(lambda x: x.min() < 4, lambda x: x + 1, x), some(40)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_loops_stay_as_they_are(name, groups):
    f, *args = OTHERS[name]
    check(f, *args)
    assert not groups


def test_on_devices(groups):
    mesh = Mesh(np.array(sw.devices()[:8]), ("x",))
    x = sw.device_put(some(8, 40), NamedSharding(mesh, P("x")))
    check(lambda x: lax.fori_loop(0, 9, lambda i, x: x * 0.5 + i, x), x)
    assert groups == [(1, 40)]


def test_complex_loops_on_devices():
    """Split rows, under vmap, and scalars that go round as registers of their own."""
    mesh = Mesh(np.array(sw.devices()[:8]), ("x",))
    z = sw.device_put(points(8 * 41).reshape(8, 41), NamedSharding(mesh, P("x")))
    check(lambda z: lax.fori_loop(0, 9, lambda i, z: z * z / (z + 1) + i, z), z)
    check(sw.vmap(lambda z: lax.fori_loop(0, 9, lambda i, z: z * z / (z + 1) + i, z)), z)
    check(lambda z: lax.fori_loop(0, 5, lambda i, s: (s[1], s[0] * (1 - 2j)), (z[0, 20], z[1, 25])), z)


def test_large_complex_loops_and_squares():
    """In pieces, which threads share."""
    z = points(70001)
    check(lambda z: lax.fori_loop(0, 20, lambda i, z: z - (z**3 - 1) / (3 * z**2), z), z)
    check(lambda z: z**2, z)
    check(lambda z: z**2, points(70001, np.complex128))
