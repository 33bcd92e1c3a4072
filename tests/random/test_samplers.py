"""Samples equal JAX's: bits and uniform numbers exactly, others up to the rounding of their formulas."""

import numpy as np
import pytest

from shardwise import random
from shardwise.base import config

P = np.linspace(0.3, 4, 7, dtype=np.float32)
SHAPE = (300, 7)


@pytest.fixture(scope="module")
def jax():
    return pytest.importorskip("jax")


def pair(jax, name, *args, **kwargs):
    """The sample of each library, as NumPy arrays of one dtype and shape."""
    ours = np.asarray(getattr(random, name)(random.PRNGKey(7), *args, **kwargs))
    theirs = np.asarray(getattr(jax.random, name)(jax.random.PRNGKey(7), *args, **kwargs))
    assert ours.dtype == theirs.dtype
    assert ours.shape == theirs.shape
    return ours, theirs


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32"])
def test_bits_are_equal(jax, dtype):
    ours, theirs = pair(jax, "bits", (33, 5), dtype)
    assert (ours == theirs).all()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float8_e5m2"])
@pytest.mark.parametrize("bounds", [(), (-1, 1), (0.3, 4.7), (2, -1)])
def test_uniform_is_equal(jax, dtype, bounds):
    ours, theirs = pair(jax, "uniform", (501,), dtype, *bounds)
    assert (ours.astype(np.float32) == theirs.astype(np.float32)).all()


def test_uniform_takes_arrays_as_bounds(jax):
    ours, theirs = pair(jax, "uniform", (5, 7), minval=P, maxval=np.full((5, 1), 5.3, np.float32))
    assert (ours == theirs).all()


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int16", "uint8"])
@pytest.mark.parametrize("bounds", [(0, 10), (0, 256), (-5, 7), (3, 3), (-(2**31), 2**31 - 1)])
def test_randint_is_equal(jax, dtype, bounds):
    config.update("shardwise_dialect", "latest")  # the seed era drew narrow integers from narrow bits
    try:
        ours, theirs = pair(jax, "randint", (501,), *bounds, dtype)
    finally:
        config.update("shardwise_dialect", "seed")
    assert (ours == theirs).all()


@pytest.mark.parametrize(
    ("name", "args", "kwargs"),
    [
        ("bernoulli", (0.3, (101,)), {}),
        ("bernoulli", (0.3, (101,)), {"mode": "high"}),
        ("bernoulli", (np.linspace(0, 1, 11, dtype=np.float32),), {}),
        ("rademacher", ((101,),), {}),
        ("rademacher", ((101,), "float32"), {}),
        ("permutation", (1000,), {}),
        ("permutation", (np.arange(24.0, dtype=np.float32).reshape(4, 6),), {"axis": 1}),
        ("permutation", (np.arange(24.0, dtype=np.float32).reshape(4, 6),), {"axis": 1, "independent": True}),
        ("choice", (10, (3, 4)), {}),
        ("choice", (np.arange(24).reshape(4, 6), (3, 2)), {"axis": 1}),
        ("choice", (10, (2, 3)), {"replace": False}),
        ("choice", (np.arange(24).reshape(4, 6), (3,)), {"replace": False, "axis": 1}),
        ("choice", (4, (3,)), {"replace": False, "p": np.array([0.1, 0.2, 0.3, 0.4], np.float32)}),
        ("categorical", (np.log(P),), {"shape": (40,)}),
        ("categorical", (np.log(P.reshape(1, 7) * P[:, None]),), {"axis": 0, "shape": (5, 7)}),
        ("categorical", (np.log(P),), {"shape": (5,), "replace": False}),
    ],
)
def test_discrete_samples_are_equal(jax, name, args, kwargs):
    ours, theirs = pair(jax, name, *args, **kwargs)
    assert (ours == theirs).all()


@pytest.mark.parametrize(
    ("name", "args", "kwargs", "rtol"),
    [
        ("normal", (SHAPE,), {}, 1e-6),
        ("normal", (SHAPE, "complex64"), {}, 1e-6),
        ("normal", (SHAPE, "bfloat16"), {}, 1e-2),
        ("truncated_normal", (-1.0, 2.0, SHAPE), {}, 1e-5),
        ("truncated_normal", (-P, P[:, None]), {}, 1e-5),
        ("lognormal", (0.7, SHAPE), {}, 2e-6),
        ("maxwell", (SHAPE,), {}, 1e-6),
        ("double_sided_maxwell", (1.0, 2.0, SHAPE), {}, 1e-3),
        ("wald", (P, SHAPE), {}, 1e-3),
        ("weibull_min", (2.0, 1.5, SHAPE), {}, 1e-6),
        ("exponential", (SHAPE,), {}, 1e-6),
        ("cauchy", (SHAPE,), {}, 1e-5),
        ("laplace", (SHAPE,), {}, 1e-6),
        ("logistic", (SHAPE,), {}, 1e-3),
        ("gumbel", (SHAPE,), {}, 1e-3),
        ("gumbel", (SHAPE,), {"mode": "high"}, 1e-3),
        ("gumbel", (SHAPE,), {"mode": "highest"}, 1e-3),
        ("pareto", (P, SHAPE), {}, 1e-5),
        ("rayleigh", (P, SHAPE), {}, 1e-6),
        ("triangular", (-P, 0.1 * P, P + 1, SHAPE), {}, 1e-6),
        ("gamma", (P, SHAPE), {}, 1e-5),
        ("loggamma", (P, SHAPE), {}, 1e-3),
        ("beta", (P, 2.0, SHAPE), {}, 1e-5),
        ("dirichlet", (P, (300,)), {}, 1e-5),
        ("chisquare", (P, SHAPE), {}, 1e-5),
        ("f", (P, P + 1), {}, 1e-5),
        ("t", (P, SHAPE), {}, 1e-5),
        ("generalized_normal", (1.5, SHAPE), {}, 1e-5),
        ("ball", (3, 1.5, SHAPE), {}, 1e-5),
    ],
)
def test_continuous_samples_are_close(jax, name, args, kwargs, rtol):
    ours, theirs = pair(jax, name, *args, **kwargs)
    wide = np.complex64 if ours.dtype.kind == "c" else np.float32
    np.testing.assert_allclose(ours.astype(wide), theirs.astype(wide), rtol=rtol, atol=1e-6)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda key: random.bits(key, (), "int32"), ValueError),
        (lambda key: random.uniform(key, (), "int32"), ValueError),
        (lambda key: random.normal(key, (), "int32"), ValueError),
        (lambda key: random.randint(key, (), 0, 3, "float32"), TypeError),
        (lambda key: random.randint(key, (2,), np.arange(3), 7), ValueError),
        (lambda key: random.bernoulli(key, 1), TypeError),
        (lambda key: random.bernoulli(key, mode="middle"), ValueError),
        (lambda key: random.gamma(key, P, (3,)), ValueError),
        (lambda key: random.gumbel(key, mode="lowest"), ValueError),
        (lambda key: random.permutation(key, 1.5), TypeError),
        (lambda key: random.choice(key, 3, 4), TypeError),
        (lambda key: random.choice(key, 3, (4,), replace=False), ValueError),
        (lambda key: random.choice(key, 0, (4,)), ValueError),
        (lambda key: random.choice(key, 3, (4,), p=P), ValueError),
        (lambda key: random.dirichlet(key, 1.0), ValueError),
        (lambda key: random.categorical(key, np.log(P), shape=(8,), replace=False), ValueError),
        (lambda key: random.multivariate_normal(key, P, np.eye(3)), ValueError),
        (lambda key: random.multivariate_normal(key, P, np.eye(7), method="lu"), ValueError),
    ],
)
def test_arguments_that_do_not_fit_are_refused(call, error):
    with pytest.raises(error):
        call(random.PRNGKey(0))
