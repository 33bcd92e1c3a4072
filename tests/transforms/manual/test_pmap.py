"""pmap: values, placement of results in both dialects, and what it refuses."""

from __future__ import annotations

import functools
from typing import Any, cast

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise.base.config import use_dialect
from shardwise.ops.devices import parallel
from shardwise.sharding import NamedSharding, PmapSharding
from shardwise.sharding import PartitionSpec as P
from shardwise.transforms.manual.pmap import HIDDEN_AXIS, pmap

X = np.arange(16, dtype=np.float32).reshape(8, 2)


def twice(x):
    return lax.mul(x, 2.0)


# -- values ----------------------------------------------------------------------------------------------------------------


def test_each_device_gets_a_slice():
    seen = []
    out = pmap(lambda x: seen.append(x.shape) or twice(x))(X)
    np.testing.assert_array_equal(out, 2 * X)
    assert seen == [(2,)]
    assert out.committed
    assert out.addressable_shards[1].data.shape == (1, 2)


def test_collectives_name_the_axis():
    out = pmap(lambda x: parallel.psum(x, "i"), axis_name="i")(X)
    np.testing.assert_array_equal(out, np.tile(X.sum(0), (8, 1)))
    np.testing.assert_array_equal(pmap(lambda x: parallel.axis_index("i"), axis_name="i")(X), np.arange(8))
    shifted = pmap(lambda x: parallel.ppermute(x, "i", [(i, (i + 1) % 8) for i in range(8)]), axis_name="i")(X)
    np.testing.assert_array_equal(shifted, np.roll(X, 1, 0))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_out_axes(axis):
    out = pmap(lambda x: x, out_axes=axis)(X)
    np.testing.assert_array_equal(out, np.moveaxis(X, 0, axis))


@pytest.mark.parametrize("axis", [1, -1])
def test_in_axes(axis):
    np.testing.assert_array_equal(pmap(twice, in_axes=axis)(X), 2 * X.T)


def test_trees_and_whole_arguments():
    def f(d, n, *, k):
        return {"sum": lax.add(d["a"], d["b"]), "k": k}, n

    out, n = pmap(f, in_axes=({"a": 0, "b": None}, None), out_axes=(0, None))({"a": X, "b": X[0]}, np.float32(3), k=X)
    np.testing.assert_array_equal(out["sum"], X + X[0])
    np.testing.assert_array_equal(out["k"], X)
    assert (n.shape, float(n)) == ((), 3.0)


def test_constants_and_scalars_are_stacked():
    out = pmap(lambda x: (3, lax.reduce_sum(x, (0,))))(X)
    np.testing.assert_array_equal(out[0], np.full(8, 3))
    np.testing.assert_array_equal(out[1], X.sum(1))


def test_static_arguments():
    traces = []

    def f(x, n):
        traces.append(n)
        return lax.mul(x, float(n))

    mapped = pmap(f, static_broadcasted_argnums=1)
    for n in (3, 3, 4):
        np.testing.assert_array_equal(mapped(X, n), n * X)
    assert traces == [3, 4]


def test_methods():
    class Scaled:
        @functools.partial(pmap, static_broadcasted_argnums=0)
        def of(self, x):
            return lax.mul(x, 3.0)

    np.testing.assert_array_equal(Scaled().of(X), 3 * X)
    assert Scaled.of.__name__ == "of"


def test_results_feed_the_next_call_from_anywhere():
    out = pmap(twice)(X)
    np.testing.assert_array_equal(pmap(twice)(out), 4 * X)
    np.testing.assert_array_equal(pmap(twice)(sw.device_put(X, sw.devices()[5])), 2 * X)
    np.testing.assert_array_equal(pmap(twice)(pmap(twice, in_axes=1)(X)), 4 * X.T)


def test_inside_jit():
    np.testing.assert_array_equal(sw.jit(lambda x: twice(pmap(twice)(x)))(X), 4 * X)


def test_donation():
    x = pmap(twice)(X)
    y = pmap(twice, donate_argnums=0)(x)
    assert x.is_deleted()
    np.testing.assert_array_equal(y, 4 * X)


def test_context_mesh_is_left_alone():
    with sw.sharding.use_mesh(sw.make_mesh((2, 4), ("x", "y"))):
        np.testing.assert_array_equal(pmap(twice)(X[:4]), 2 * X[:4])


def test_lower():
    lowered = pmap(lambda x: parallel.psum(x, "i"), axis_name="i").lower(X)
    assert "all_reduce over i" in lowered.explain()
    np.testing.assert_array_equal(lowered.compile()(X), np.tile(X.sum(0), (8, 1)))
    assert pmap(twice).eval_shape(X) == sw.ShapeDtypeStruct((8, 2), np.float32)


# -- placement -------------------------------------------------------------------------------------------------------------


def test_seed_results_have_pmap_shardings():
    out = pmap(twice)(X)
    assert out.sharding == PmapSharding.default((8, 2))
    assert "ShardingSpec((Chunked(8), NoSharding()), (ShardedAxis(axis=0),))" in repr(out.sharding)
    assert pmap(twice)(X[:4]).sharding == PmapSharding.default((4, 2))
    assert pmap(lambda x: x, out_axes=1)(X).sharding == PmapSharding.default((2, 8), 1)
    whole = pmap(lambda x: x, out_axes=None)(X)
    assert "ShardingSpec((NoSharding(),), (Replicated(replicas=8),))" in repr(whole.sharding)
    np.testing.assert_array_equal(whole, X[0])
    chosen = sw.devices()[2:4]
    assert pmap(twice, devices=chosen)(X[:2]).sharding == PmapSharding.default((2, 2), 0, chosen)


def test_latest_results_lie_on_a_hidden_mesh():
    with use_dialect("latest"):
        out = pmap(twice)(X)
        assert isinstance(out.sharding, NamedSharding)
        assert out.sharding.spec == P(HIDDEN_AXIS)
        assert out.sharding.mesh.shape == {HIDDEN_AXIS: 8}
        out = pmap(lambda x: x, axis_name="i", out_axes=1)(X)
        assert (out.sharding.mesh.axis_names, out.sharding.spec) == (("i",), P(None, "i"))


# -- refusals --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "args", "kind", "message"),
    [
        ({}, (np.ones((9, 2)),), ValueError, "requires 9 logical devices, but only 8"),
        (
            {},
            (X, np.ones((4, 2))),
            ValueError,
            r"one axis had size 8: axis 0 of argument x[\s\S]*size 4: axis 0 of argument y",
        ),
        ({}, ({"a": X, "b": np.ones(3)}, X), ValueError, r"size 3: axis 0 of argument x\['b'\] of type float"),
        ({"in_axes": None}, (X, X), ValueError, "at least one non-None value in in_axes"),
        ({}, ((), ()), ValueError, "at least one argument containing an array"),
        ({}, (3.0, X), ValueError, "rank should be at least 1, but is only 0"),
        ({"in_axes": 5}, (X, X), ValueError, "rank should be at least 6, but is only 2"),
        ({"in_axes": (0,)}, (X, X), ValueError, r"different lengths of tuple at key path\s+pmap in_axes"),
        ({"axis_size": 4}, (X, X), ValueError, "axis_size 4 doesn't match received axis_size 8"),
        ({"devices": 2}, (X[:3], X[:3]), ValueError, "axis_size=3, num_local_devices=2"),
        ({"static_broadcasted_argnums": 5}, (X, X), ValueError, "called with only 2 positional"),
        ({"static_broadcasted_argnums": 1}, (X, [3]), ValueError, "Non-hashable static"),
        ({"out_axes": 5}, (X, X), ValueError, "axis 5 is out of bounds for array of dimension 2"),
        ({"out_axes": (0, 0)}, (X, X), ValueError, r"pmap out_axes"),
    ],
)
def test_calls_that_are_refused(options: dict[str, Any], args, kind, message):
    if "devices" in options:
        options = dict[str, Any](devices=sw.devices()[: options["devices"]])
    with pytest.raises(kind, match=message):
        pmap(lambda x, y: (x,), **options)(*args)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"in_axes": "a"}, TypeError, "pmap in_axes must be an int, None"),
        ({"out_axes": 1.5}, TypeError, "pmap out_axes must be an int, None"),
        ({"devices": []}, ValueError, "must be non-empty"),
        ({"backend": "gpu"}, RuntimeError, "Unknown backend"),
        ({"global_arg_shapes": ((3,),)}, ValueError, "sharded_jit"),
    ],
)
def test_options_that_are_refused(options, kind, message):
    with pytest.raises(kind, match=message):
        pmap(twice, **options)


def test_only_functions_are_mapped():
    with pytest.raises(TypeError, match="Expected a callable value, got 3"):
        pmap(cast(Any, 3))


def test_nested_pmaps():
    """In the seed era the inner one gives what a device each would; today they are refused."""
    x = np.arange(16, dtype=np.float32).reshape(2, 4, 2)

    def body(x, y):
        place = parallel.axis_index(("i", "j"))
        return (
            parallel.psum(x, "j"),
            parallel.psum(x, ("i", "j")),
            lax.add(lax.mul(x, y), lax.convert_element_type(place, "float32")),
        )

    inner = pmap(body, "j", in_axes=(0, None), out_axes=(None, 0, 1))
    rows, total, scaled = pmap(inner, "i", in_axes=(0, None))(x, np.float32(2))
    np.testing.assert_array_equal(rows, x.sum(1))
    np.testing.assert_array_equal(total, np.broadcast_to(x.sum((0, 1)), (2, 4, 2)))
    np.testing.assert_array_equal(scaled, (2 * x + np.arange(8).reshape(2, 4, 1)).transpose(0, 2, 1))
    with pytest.raises(ValueError, match="requires 10 logical devices"):
        pmap(pmap(twice))(np.ones((2, 5)))
    with pytest.raises(ValueError, match="explicit devices"):
        pmap(pmap(twice, devices=sw.devices()))(np.ones((1, 8)))
    with use_dialect("latest"), pytest.raises(ValueError, match="do not nest"):
        pmap(pmap(twice, axis_name="j"), axis_name="i")(np.ones((2, 4)))


def test_groups_of_devices_sum_what_is_the_same_everywhere():
    halves = [[0, 1, 2, 3, 4], [5, 6, 7]]
    out = pmap(lambda x: lax.mul(x, parallel.psum(2.0, "i", axis_index_groups=halves)), axis_name="i")(X)
    np.testing.assert_array_equal(out, X * np.repeat([10, 6], [5, 3])[:, None])


def test_axis_that_is_not_in_scope():
    with pytest.raises(NameError, match="unbound axis name: j"):
        pmap(lambda x: parallel.psum(x, "j"), axis_name="i")(X)
