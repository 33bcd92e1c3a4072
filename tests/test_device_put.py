"""device_put under transformations: moves between devices have derivatives, and say where a compiled program runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P


def halves():
    devices = np.array(sw.devices())
    return [NamedSharding(Mesh(devices[i : i + 4], "x"), P("x")) for i in (0, 4)]


def test_cotangents_of_a_move_go_back_to_where_the_value_was():
    here, there = halves()
    x = sw.device_put(np.arange(4.0, dtype=np.float32), here)

    def loss(x, **src):
        y = sw.device_put(sw.jit(jnp.square)(x), there, **src)
        return jnp.sum(sw.jit(lambda y: y * 3)(y))

    for options in ({}, {"src": here}):
        assert loss(x, **options).sharding.device_set == there.device_set
        slope = sw.grad(lambda x: loss(x, **options))(x)  # noqa: B023
        assert slope.sharding == here
        np.testing.assert_array_equal(slope, 6 * np.arange(4.0))
    value, tangent = sw.jvp(loss, (x,), (x,))
    assert value.sharding.device_set == tangent.sharding.device_set == there.device_set
    assert sw.vmap(lambda x: sw.device_put(x, sw.devices()[1]))(x).devices() == {sw.devices()[1]}


def test_in_a_compiled_program_a_sharding_names_the_devices_and_a_device_nothing():
    here, there = halves()
    x = jnp.arange(4.0)
    moved = sw.jit(lambda x: sw.device_put(x, there))(x)
    assert moved.sharding == NamedSharding(there.mesh, P()) and moved.committed
    spread = NamedSharding(there.mesh, P())
    assert sw.jit(lambda x: sw.device_put(1.0, spread) + x)(x).sharding.device_set == there.device_set
    assert not sw.jit(lambda x: sw.device_put(x, sw.devices()[1]))(x).committed
    with pytest.raises(ValueError, match="incompatible devices"):
        sw.jit(lambda x: sw.device_put(x, there))(sw.device_put(x, here))


def test_options_may_be_trees():
    here, there = halves()
    x, y = jnp.arange(4.0), jnp.arange(8.0)
    a, b = sw.device_put([x, y], [here, there], src=[None, here], donate=[True, False], may_alias=None)
    assert a.sharding == here and b.sharding == there
    with pytest.raises(ValueError, match="source specification must be a tree prefix"):
        sw.device_put([x, y], here, src=[here])
    with pytest.raises(ValueError, match="cannot be True at the same time"):
        sw.device_put([x, y], here, donate=[True, False], may_alias=True)


def test_clearing_caches_forgets_what_was_made_from_programs():
    square = sw.jit(jnp.square)
    sw.grad(lambda x: sw.jit(jnp.sum)(square(x)))(jnp.ones(3))
    sw.clear_caches()
    np.testing.assert_array_equal(sw.grad(lambda x: jnp.sum(square(x)))(jnp.ones(3)), 2 * np.ones(3))


def test_trees_of_host_arrays():
    """They are copies of their own, in the type, on the target; errors are those of one array, each time."""
    here, there = halves()
    tree: dict[str, Any] = {"a": np.arange(8.0), "b": [np.ones((4, 3), np.float32), np.zeros(12, np.int64)]}
    put: Any = None
    for target in (here, sw.devices()[3], {"a": there, "b": here}):
        for _ in range(2):  # the second time by what is known of the types
            put = sw.device_put(tree, target)
            for name, host, got in [("a", tree["a"], put["a"]), *zip("bb", tree["b"], put["b"], strict=True)]:
                alone = sw.device_put(host, target[name] if isinstance(target, dict) else target)
                assert (got.aval, got.sharding, got.committed) == (alone.aval, alone.sharding, True)
                np.testing.assert_array_equal(got, host)
    tree["a"][0] = 7
    assert put["a"][0] == 0
    for _ in range(2):
        with pytest.raises(ValueError, match="divisible"):
            sw.device_put([np.ones(4), np.ones(6)], here)
    assert not sw.device_put([np.ones(3), None, np.ones(2)])[0].committed


def test_what_one_per_device_takes():
    devices = sw.devices()[:2]
    for put in (lambda: sw.device_put_sharded([], []), lambda: sw.device_put_replicated(1.0, [])):
        with pytest.raises(ValueError, match="at least one device"):
            put()
    for unlike in ([jnp.ones(2), jnp.ones(3)], [jnp.ones(2), jnp.ones(2, int)]):
        with pytest.raises(ValueError, match="one shape and dtype"):
            sw.device_put_sharded(unlike, devices)


def test_copy_to_host_async_asks_leaves_of_other_classes():
    class Remote:
        def copy_to_host_async(self):
            asked.append(self)

    asked: list[object] = []
    tree = [jnp.ones(2), Remote(), object(), 3]
    assert sw.copy_to_host_async(tree) is tree
    assert asked == tree[1:2]
