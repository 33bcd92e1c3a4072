"""softmax, log-sum-exp and their kin: values, dtypes, weak types and derivatives as JAX has them."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise
import shardwise.nn as nn
import shardwise.numpy as jnp
from shardwise.sharding import AxisType, Mesh, NamedSharding, P
from tests.numpy.face import cases, check_case, check_error

CASES = """
nn.softmax(m)
nn.softmax(m, axis=0)
nn.softmax(t, axis=(0, -1))
nn.softmax(m, axis=None)
nn.softmax(i)
nn.softmax(h)
nn.softmax(bf)
nn.softmax(m * 1e4)
nn.softmax(m, where=bm)
nn.softmax(m, where=bm & False)
nn.softmax(m, axis=0, where=b)
nn.softmax(gap)
nn.softmax(z)
nn.log_softmax(m)
nn.log_softmax(t, axis=(0, -1))
nn.log_softmax(m * 1e4, axis=0)
nn.log_softmax(i)
nn.log_softmax(h)
nn.log_softmax(m, where=bm)
nn.logsumexp(m)
nn.logsumexp(m, axis=0)
nn.logsumexp(t, axis=(0, -1), keepdims=True)
nn.logsumexp(m * 1e4, axis=1)
nn.logsumexp(i)
nn.logsumexp(k)
nn.logsumexp(f)
nn.logsumexp(h)
nn.logsumexp(c)
nn.logsumexp(m, b=n)
nn.logsumexp(m, axis=1, b=w)
nn.logsumexp(m, axis=1, b=n, return_sign=True)
nn.logsumexp(m, axis=0, return_sign=True, keepdims=True)
nn.logsumexp(c, return_sign=True)
nn.logsumexp(m, axis=1, where=bm)
nn.logsumexp(m, where=bm & False)
nn.logsumexp(gap)
nn.logsumexp(jnp.array([-np.inf, -np.inf]))
nn.logsumexp(jnp.array([np.inf, 3]))
nn.logmeanexp(m)
nn.logmeanexp(m, axis=1, keepdims=True)
nn.logmeanexp(m, axis=1, where=bm)
nn.logmeanexp(m, where=b)
nn.logmeanexp(i)
nn.standardize(m)
nn.standardize(t, axis=(0, 1))
nn.standardize(m, axis=None)
nn.standardize(i)
nn.standardize(h)
nn.standardize(m, mean=0.5)
nn.standardize(m, variance=2.0, epsilon=0.1)
nn.standardize(m, mean=v, variance=w)
nn.standardize(m, where=bm)  # cancels
nn.standardize(m, algorithm="stable")
nn.one_hot(i, 8)
nn.one_hot(i, 4)
nn.one_hot(n, 3)
nn.one_hot(i, 8, axis=0)
nn.one_hot(n, 5, axis=1, dtype=np.int32)
nn.one_hot(k, 5)
nn.one_hot(u, 100, dtype="bfloat16")
nn.one_hot([0, 2], 3)
nn.one_hot(i, 0)
jax.grad(lambda x: (nn.softmax(x) * n).sum())(m)
jax.grad(lambda x: (nn.softmax(x, axis=0) * n).sum())(m)
jax.grad(lambda x: (nn.softmax(x, where=bm) * n).sum())(m)
jax.grad(lambda x: (nn.log_softmax(x) * n).sum())(m)
jax.grad(lambda x: (nn.log_softmax(x, axis=(0, 1)) * n).sum())(m)
jax.grad(lambda x: (nn.standardize(x) * n).sum())(m)
jax.grad(lambda x: (nn.standardize(x, algorithm="stable") * n).sum())(m)
jax.grad(lambda x: (nn.logsumexp(x, axis=1, keepdims=True) * n).sum())(m)
jax.grad(lambda x: (nn.logmeanexp(x, axis=0) * n).sum())(m)
jax.jvp(nn.softmax, (v,), (w,))
jax.hessian(lambda x: nn.softmax(x)[0])(v[:3])
"""

ERRORS = """
nn.softmax([1.0])
nn.softmax(k)
nn.softmax(m, axis=2)
nn.log_softmax([1.0])
nn.logsumexp([1.0])
nn.logsumexp(m, axis=2)
nn.standardize([1.0])
nn.standardize(m, algorithm="slow")
nn.one_hot(i, 3, axis=5)
jax.jit(nn.one_hot)(i, 3)
"""


@pytest.mark.parametrize("line", cases(CASES))
def test_as_jax(line):
    check_case(line)


@pytest.mark.parametrize("line", cases(ERRORS))
def test_errors(line):
    check_error(line)


def test_softmax_is_few_ops_and_knows_its_derivative():
    text = shardwise.jit(nn.softmax).lower(np.ones((4, 8), np.float32)).as_text()
    assert text.count("exp") == 1


def test_explicit_shardings_stay():
    mesh = Mesh(np.array(shardwise.devices()[:4]).reshape(2, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    x = shardwise.device_put(np.ones((4, 8), np.float32), NamedSharding(mesh, P("x", None)))
    for f in (nn.softmax, nn.log_softmax, nn.relu, nn.gelu, nn.standardize, lambda x: nn.one_hot(x.astype(int), 8)):
        for g in (f, shardwise.jit(f)):
            assert tuple(g(x).sharding.spec)[:2] == ("x", None)  # type: ignore[attr-defined]


def test_vmap_and_nesting():
    x = np.random.default_rng(5).normal(size=(3, 4, 8)).astype(np.float32)
    np.testing.assert_allclose(shardwise.vmap(nn.softmax)(x), nn.softmax(x), rtol=1e-6)
    np.testing.assert_allclose(
        shardwise.jit(shardwise.vmap(nn.log_softmax))(x), nn.log_softmax(x), rtol=1e-6, atol=1e-6
    )
    hessian = shardwise.jacfwd(shardwise.grad(lambda v: nn.softmax(v)[0]))(jnp.arange(3.0))
    assert hessian.shape == (3, 3)


def test_one_hot_over_a_mesh_axis():
    mesh = Mesh(np.array(shardwise.devices()[:4]), ("x",))
    f = shardwise.shard_map(
        lambda i: nn.one_hot(i, 4, axis="x")[:, None], mesh=mesh, in_specs=P(), out_specs=P(None, "x")
    )
    i = jnp.array([1, 3, 0])
    np.testing.assert_array_equal(f(i), nn.one_hot(i, 4))


def test_floats_are_no_codes():
    with pytest.warns(DeprecationWarning, match="integer-typed"):
        nn.one_hot(jnp.ones(3), 3)


def test_an_axis_of_logsumexp_may_be_an_array():
    x = jnp.ones((2, 3))
    assert nn.logsumexp(x, axis=(jnp.int32(0), 1)) == nn.logsumexp(x)
    assert nn.logsumexp(x, axis=jnp.int32(0)).shape == (3,)
