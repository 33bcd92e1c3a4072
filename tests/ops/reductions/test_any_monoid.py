"""`reduce` with any monoid: beside JAX, and beside functions that no monoid is known for."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

from shardwise.ops.elementwise import binary
from shardwise.ops.reductions import any_monoid, reduce
from shardwise.ops.rules.convert import as_value
from shardwise.sharding import PartitionSpec as P

FOLDS = [
    ("add", 0.0, (0,)), ("add", 2.0, (0, 1)), ("add", 0, (0,)), ("mul", 1.0, (1,)), ("max", -np.inf, (1,)), ("min", np.inf, (0,)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "init", "dims"), FOLDS)
def test_knows_monoids(name, init, dims):
    lax = pytest.importorskip("jax").lax
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    got = any_monoid.reduce(as_value(x), init, getattr(binary, name), dims)
    np.testing.assert_allclose(np.asarray(got), lax.reduce(x, init, getattr(lax, name), dims))


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 8])
def test_folds_any_function(n):
    x = np.random.default_rng(n).uniform(0.1, 0.5, (n, 3)).astype(np.float32)
    combine = lambda a, b: binary.add(binary.mul(a, b), binary.add(a, b))  # noqa: E731
    got = any_monoid.reduce(as_value(x), 0.0, combine, (0,))
    np.testing.assert_allclose(np.asarray(got), np.prod(1 + x, 0) - 1, rtol=5e-6)
    pairs = lambda a, b: {"sum": binary.add(a["sum"], b["sum"]), "max": binary.max(a["max"], b["max"])}  # noqa: E731
    x = as_value(x)
    got = any_monoid.reduce({"sum": x, "max": x}, {"sum": 0.0, "max": 0.0}, pairs, (0, 1))
    np.testing.assert_allclose(np.asarray(got["sum"]), np.asarray(x).sum(), rtol=2e-6)
    np.testing.assert_allclose(np.asarray(got["max"]), np.asarray(x).max(initial=0))


def test_names_the_way_out():
    x = as_value(np.ones((3, 4), np.float32))
    with pytest.raises(NotImplementedError, match=r"lax\.scan"):
        any_monoid.reduce(x, 0.0, lambda a, b: reduce.reduce_sum(binary.add(a, b), ()), (0,))


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: any_monoid.reduce(x, np.ones(2, np.float32), binary.add, (0,)), ValueError, "scalar initial"),
        (lambda x: any_monoid.reduce(x, 0.0, binary.add, (5,)), ValueError, "out-of-bounds"),
        (lambda x: any_monoid.reduce((x, x), 0.0, binary.add, (0,)), ValueError, "structure"),
        (lambda x: any_monoid.reduce(x, 0.0, binary.max, (0,), out_sharding=P()), NotImplementedError, "reshard"),
    ],
)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call(as_value(np.ones((3, 4), np.float32)))


def test_the_signature_is_that_of_the_oracle():
    lax = pytest.importorskip("jax").lax
    assert list(inspect.signature(any_monoid.reduce).parameters) == list(inspect.signature(lax.reduce).parameters)
