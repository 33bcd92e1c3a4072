"""Trees as vectors."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

import shardwise
import shardwise.numpy as jnp
from shardwise.flatten_util import ravel_pytree

TREE = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "b": [np.float32(7), np.zeros((0, 2), np.float32)]}


def test_there_and_back():
    vector, unravel = ravel_pytree(TREE)
    np.testing.assert_array_equal(vector, [7, 0, 1, 2, 3, 4, 5])
    back = unravel(2 * vector)
    assert shardwise.tree.structure(back) == shardwise.tree.structure(TREE)
    np.testing.assert_array_equal(back["w"], 2 * TREE["w"])
    assert back["b"][1].shape == (0, 2)


def test_dtypes_are_kept():
    tree = (np.int32(1), np.array([2.5], np.float32), np.array([True]), np.complex64(3 + 4j))
    vector, unravel = ravel_pytree(tree)
    assert vector.dtype == np.complex64
    back = unravel(vector)
    assert [b.dtype for b in back] == [np.int32, np.float32, np.bool_, np.complex64]
    assert [np.asarray(b).tolist() for b in back] == [1, [2.5], [True], 3 + 4j]
    with pytest.raises(TypeError, match="complex64"):
        unravel(vector.real)
    with pytest.raises(ValueError, match="shape"):
        unravel(vector[:2])


def test_nothing():
    vector, unravel = ravel_pytree({})
    assert vector.shape == (0,)
    assert unravel(vector) == {}


def test_derivatives():
    vector, unravel = ravel_pytree(TREE)
    slope = shardwise.jit(shardwise.grad(lambda v: (unravel(v)["w"] ** 2).sum()))(vector)
    np.testing.assert_array_equal(slope, [0, 0, 2, 4, 6, 8, 10])
    summed = shardwise.vmap(lambda v: jnp.sum(unravel(v)["w"]))(jnp.stack([vector, 2 * vector]))
    np.testing.assert_array_equal(summed, [15, 30])


def test_the_ways_back_of_equal_trees_are_equal():
    _, first = ravel_pytree(TREE)
    _, second = ravel_pytree(shardwise.tree.map(lambda x: x + 1, TREE))
    _, other = ravel_pytree([TREE])
    assert first == second
    assert hash(first) == hash(second)
    assert first != other
    for way in (copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        assert way == first
        assert way(np.zeros(7, np.float32))["w"].shape == (2, 3)
