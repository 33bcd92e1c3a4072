"""jax_threefry_partitionable=False: the older order of counters gives JAX's own numbers, wherever keys and results lie."""

from __future__ import annotations

import contextlib

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
from shardwise.sharding import AxisType, NamedSharding
from shardwise.sharding import PartitionSpec as P

CALLS = {
    "split": lambda random, key: random.key_data(random.split(key, 3)),
    "split of one": lambda random, key: random.key_data(random.split(key, 1)),
    "split to a shape": lambda random, key: random.key_data(random.split(key, (2, 3))),
    "fold_in": lambda random, key: random.key_data(random.fold_in(key, 5)),
    **{
        f"bits {dtype} {shape}": lambda random, key, dtype=dtype, shape=shape: random.bits(key, shape, dtype)
        for dtype, shape in (
            ("uint8", (7,)),
            ("uint16", (4, 5)),
            ("uint32", ()),
            ("uint32", (301,)),
            ("uint64", (3,)),
            ("uint8", (0,)),
        )
    },
    "uniform bfloat16": lambda random, key: random.uniform(key, (5,), "bfloat16"),
    "normal float16": lambda random, key: random.normal(key, (3, 3), "float16"),
    "permutation": lambda random, key: random.permutation(key, 20),
    "categorical": lambda random, key: random.categorical(key, np.zeros((3, 4), np.float32)),
    "gamma": lambda random, key: random.gamma(key, np.array([0.3, 1.5, 9.0], np.float32)),
    "poisson": lambda random, key: random.poisson(key, np.array([0.5, 3.0, 40.0], np.float32)),
}


@contextlib.contextmanager
def older(*libraries):
    with contextlib.ExitStack() as stack:
        for library in libraries:
            stack.enter_context(library.threefry_partitionable(False))
            stack.enter_context(library.enable_x64(True) if library is not sw else sw.experimental.enable_x64(True))
        yield


@pytest.mark.parametrize("name", CALLS)
def test_as_jax(name):
    jax = pytest.importorskip("jax")
    with older(jax, sw):
        expected = np.asarray(CALLS[name](jax.random, jax.random.key(11)))
        ours = np.asarray(CALLS[name](sw.random, sw.random.key(11)))
        compiled = np.asarray(sw.jit(lambda key: CALLS[name](sw.random, key))(sw.random.key(11)))
    assert ours.dtype == expected.dtype
    for found in (ours, compiled):
        if expected.dtype.kind in "iub":
            np.testing.assert_array_equal(found, expected)
        else:
            tolerance = 8 * float(ml_dtypes.finfo(expected.dtype).eps)
            np.testing.assert_allclose(
                found.astype(np.float64), expected.astype(np.float64), rtol=tolerance, atol=tolerance
            )


def test_mapped_keys_and_split_results():
    mesh = sw.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    keys = sw.random.split(sw.random.key(0), 4)
    draw = lambda key: sw.random.bits(key, (8, 3))  # noqa: E731
    with older(sw):
        expected = np.stack([draw(key) for key in keys])
        np.testing.assert_array_equal(sw.vmap(draw)(keys), expected)
        lying = sw.device_put(keys, NamedSharding(mesh, P("x")))
        placed = sw.jit(sw.vmap(draw), out_shardings=NamedSharding(mesh, P("x", "y")))(lying)
        np.testing.assert_array_equal(placed, expected)
        assert placed.sharding.spec == P("x", "y")  # type: ignore[attr-defined]


def test_the_setting_is_part_of_what_a_compiled_function_depends_on():
    draw = sw.jit(lambda key: sw.random.uniform(key, (4,)))
    key = sw.random.key(3)
    first = np.asarray(draw(key))
    with sw.threefry_partitionable(False):
        other = np.asarray(draw(key))
        assert not np.array_equal(first, other)
    np.testing.assert_array_equal(draw(key), first)
