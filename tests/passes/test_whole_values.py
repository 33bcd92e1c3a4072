"""Programs on whole values: one process runs them in place of what its devices would exchange, which is on record."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.base import config
from shardwise.experimental.custom_partitioning import custom_partitioning
from shardwise.ir import verify
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

X = np.random.default_rng(0).normal(size=(8, 256)).astype(np.float32)
PLACES = np.random.default_rng(1).integers(0, 256, (8, 64)).astype(np.int32)
MESH = Mesh(np.array(sw.devices()[:8]).reshape(4, 2), ("x", "y"))
# What devices would exchange values for.
CASES = {
    "top_k": lambda x: tuple(lax.top_k(x, 4)),
    "argmax": lambda x: jnp.argmax(x, 1),
    "cumsum": lambda x: jnp.cumsum(x, 1),
    "cumlogsumexp": lambda x: lax.cumlogsumexp(x, 1, reverse=True),
    "shifted": lambda x: x[:, 1:] - x[:, :-1],
    "every third": lambda x: x[:, ::3] * 2,
    "joined": lambda x: jnp.concatenate([x, x + 1], 1),
    "rolled": lambda x: lax.fori_loop(0, 5, lambda i, x: x + jnp.roll(x, 1, 1), x),
    "scan": lambda x: lax.associative_scan(jnp.add, x, axis=1),
    "elements": lambda x: jnp.take_along_axis(x, jnp.asarray(PLACES), 1),
    "diagonal": lambda x: jnp.diag(x[:, :8]),
    "rows": lambda x: lax.with_sharding_constraint(x * 2, NamedSharding(MESH, P(("x", "y"), None))) + 1,
    "gradient": lambda x: sw.grad(lambda x: (jnp.diff(x, axis=1) ** 2).sum())(x),
    "branch": lambda x: lax.cond(x.sum() > 0, lambda x: x[:, 1:], lambda x: x[:, :-1], x),
}
# Where they exchange nothing, or only what sums and products take over all parts at once.
FLAT = {
    "elementwise": lambda x: jnp.sin(x) * 2 + 1,
    "sum": lambda x: x.sum(1),
    "product": lambda x: x @ x.T,
    "loop": lambda x: lax.fori_loop(0, 3, lambda i, x: x * 0.5, x),
}
SPECS = [P(None, "x"), P("y", "x"), P(None, ("y", "x"))]


@pytest.fixture(autouse=True)
def whole_values(apart):
    with config.override("shardwise_whole_values", "auto"):
        yield


def compiled(f, *args):
    return sw.jit(f).lower(*args).compile().runtime_executable()


def placed(spec):
    return sw.device_put(X, NamedSharding(MESH, spec))


def shapes(program):
    return [v.aval.shape for v in verify(program).outputs]


@pytest.mark.parametrize("name", CASES)
def test_what_devices_exchange_stays_on_record(name):
    """The device program has parts and collectives; what runs has whole values, and what is said of devices comes from the former."""
    made = compiled(CASES[name], placed(P(None, "x")))
    assert made.transfers
    assert made.whole_program is not None
    assert made.plan.program is not made.plan_of_devices.program
    assert shapes(made.whole_program) == [v.aval.shape for v in made.program.outputs]
    assert all(not v.aval.vma for e in made.whole_program.equations for v in e.outputs)
    assert not any(e.op.collective for e in made.whole_program.equations)


@pytest.mark.parametrize("name", FLAT)
def test_what_exchanges_nothing_runs_on_parts(name):
    made = compiled(FLAT[name], placed(P(None, "x")))
    assert made.whole_program is None
    assert made.plan_of_devices is made.plan


def test_they_can_be_switched_off():
    with config.override("shardwise_whole_values", "off"):
        made = compiled(CASES["shifted"], placed(P(None, "x")))
        assert made.whole_program is None
        (block,) = made.plan.run(*made.blocks([placed(P(None, "x"))]))
    assert block.shape == (1, 1, *X[:, 1:].shape)


def test_on_one_device_there_is_one_program():
    assert compiled(CASES["cumsum"], jnp.asarray(X)).whole_program is None


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("spec", SPECS)
def test_results_are_those_of_one_device_where_devices_put_them(name, spec):
    f = CASES[name]
    x = placed(spec)
    found = sw.jit(f)(x)
    with config.override("shardwise_stepped", True):
        stepped = sw.jit(f)(x)
    for one, other, want in zip(*map(sw.tree.leaves, (found, stepped, sw.jit(f)(X))), strict=True):
        assert one.sharding == other.sharding
        np.testing.assert_array_equal(one, want)
        np.testing.assert_allclose(other, want, rtol=1e-5, atol=1e-5)
        for part in one.addressable_shards:
            np.testing.assert_array_equal(part.data, np.asarray(want)[part.index])


def test_programs_with_code_per_device_run_as_devices_do():
    """`shard_map`, callbacks and partitionings of the user's see what each device has."""
    seen = []

    def with_callback(x):
        sw.debug.callback(lambda v: seen.append(v.shape), x)
        return jnp.cumsum(x, 1)

    mapped = sw.shard_map(lambda x: x + lax.psum(x, "x"), mesh=MESH, in_specs=P(None, "x"), out_specs=P(None, "x"))
    for f in (with_callback, lambda x: jnp.cumsum(mapped(x), 1), lambda x: jnp.cumsum(by_device(x), 1)):
        made = compiled(f, placed(P(None, "x")))
        assert made.whole_program is None and made.transfers
    rolled = sw.jit(lambda x: jnp.roll(by_device(x), 1, 1))
    np.testing.assert_array_equal(rolled(placed(P(None, "x"))), 100 * np.roll(X, 1, 1))


@custom_partitioning
def by_device(x):
    """The value; devices give a hundred times their part, to be told from it."""
    return x


by_device.def_partition(
    partition=lambda mesh, args, result: (mesh, lambda x: 100 * x, args[0].sharding, (args[0].sharding,)),
    infer_sharding_from_operands=lambda mesh, args, result: args[0].sharding,
    sharding_rule="i j -> i j",
)


@pytest.mark.parametrize("spec", SPECS)
def test_donated_arguments(spec):
    """An argument that is donated is gone, also when its memory is that of a view; its copies stay."""
    x = placed(spec)
    y, kept = x + 0, np.asarray(x)
    shown = y.addressable_shards[0].data
    result = sw.jit(lambda x: x.at[:, 1:].set(x[:, :-1] * 2), donate_argnums=0)(y)
    assert y.is_deleted()
    np.testing.assert_array_equal(result, np.concatenate([X[:, :1], X[:, :-1] * 2], 1))
    np.testing.assert_array_equal(x, kept)
    np.testing.assert_array_equal(shown, X[: shown.shape[0], : shown.shape[1]])


def test_donated_arguments_of_calls_that_raise_stay():
    x = placed(P(None, "x")) + 0
    f = sw.jit(lambda x: x.at[:, 1:].set(jnp.log(x[:, :-1])), donate_argnums=0)
    with sw.debug_nans(True), pytest.raises(FloatingPointError, match="log"):
        f(x)
    assert not x.is_deleted()
    np.testing.assert_array_equal(x, X)
