"""Triangular systems inside of small programs: results are LAPACK's, and loops over them are one machine function."""

from typing import Any

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.runtime.small.kernel import available
from shardwise.scipy.linalg import solve_triangular

pytestmark = pytest.mark.skipif(not available(), reason="nothing can be compiled here")
STEPS = 3


def both(f, *args):
    """The results of `f` as one machine function and as NumPy's and LAPACK's calls."""
    out = []
    for choice in ("auto", "off"):
        with config.override("shardwise_fused", choice):
            out.append(np.asarray(jax.jit(lambda *a: f(*a))(*args)))
    return out


def systems(n, k, dtype, *batch, left=True):
    rng = np.random.default_rng(n + k)
    a = rng.uniform(-1, 1, (*batch, n, n)) / n + 2 * np.eye(n)
    return a.astype(dtype), rng.uniform(-1, 1, (*batch, *((n, k) if left else (k, n)))).astype(dtype)


def stepping(**options):
    """A loop whose steps solve a system with what the one before has found."""

    def f(a, b):
        return lax.fori_loop(0, STEPS, lambda i, x: lax.linalg.triangular_solve(a, x, **options) * 0.5 + b, b)

    return f


CLOSE: dict[Any, dict[str, Any]] = {
    np.float32: {"rtol": 5e-6, "atol": 1e-6},
    np.float64: {"rtol": 1e-12, "atol": 1e-13},
}


@pytest.mark.parametrize("dtype", CLOSE)
@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("transpose_a", [True, False])
@pytest.mark.parametrize("unit_diagonal", [True, False])
def test_every_form(made, dtype, left, lower, transpose_a, unit_diagonal):
    options = dict(left_side=left, lower=lower, transpose_a=transpose_a, unit_diagonal=unit_diagonal)
    with jax.enable_x64():
        for n, k, batch in ((1, 1, ()), (4, 1, ()), (3, 5, ()), (7, 33, ()), (20, 3, ()), (4, 3, (2, 3))):
            got, want = both(stepping(**options), *systems(n, k, dtype, *batch, left=left))
            assert got.dtype == dtype
            np.testing.assert_allclose(got, want, **CLOSE[dtype])
    assert len(made) >= 6


def test_the_other_triangle_is_not_read():
    a, b = systems(5, 2, np.float32)
    for lower in (True, False):
        kept = np.tril(a) if lower else np.triu(a)
        spoiled = np.where(kept == 0, np.nan, kept).astype(np.float32)
        f = stepping(left_side=True, lower=lower)
        np.testing.assert_array_equal(both(f, spoiled, b)[0], both(f, kept, b)[0])


def test_singular_systems():
    """A zero on the diagonal gives infinities and NaN where LAPACK has them."""
    for at in range(4):
        a, b = systems(4, 2, np.float32)
        a[at, at] = 0
        got, want = both(lambda a, b: lax.fori_loop(0, 1, lambda i, x: solve_triangular(a, x, lower=True) + i, b), a, b)
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_a_long_scan_is_one_function(made):
    a, b = systems(4, 1, np.float32)

    def f(a, b):
        return lax.scan(lambda x, _: ((y := solve_triangular(a, x, lower=True) * 0.5 + 1), y[0]), b, None, length=500)

    x, ys = jax.jit(f)(a, b[:, 0])
    assert len(made) == 1
    assert {"scan"} <= {e.op.name for e in made[0].equations}
    want = b[:, 0].astype(np.float64)
    for y in np.asarray(ys):
        want = np.linalg.solve(np.tril(a).astype(np.float64), want) * 0.5 + 1
        np.testing.assert_allclose(y, want[0], rtol=1e-6)
    np.testing.assert_allclose(x, want, rtol=1e-6)


def test_under_vmap_and_gradients(made):
    a, b = systems(4, 2, np.float32, 6)
    f = stepping(left_side=True, lower=True)
    np.testing.assert_allclose(*both(jax.vmap(f), a, b), rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(*both(jax.vmap(f, (None, 0)), a[0], b), rtol=2e-6, atol=1e-6)
    assert len(made) == 2
    np.testing.assert_allclose(*both(jax.grad(lambda a, b: f(a, b).sum()), a[0], b[0]), rtol=5e-6, atol=1e-6)


def test_on_a_mesh(made):
    mesh = jax.make_mesh((4, 2), ("x", "y"))
    a, b = systems(4, 2, np.float32, 8)
    want = both(jax.vmap(stepping(left_side=True, lower=True)), a, b)[1]
    for spec in (jax.P("x"), jax.P(("x", "y"))):
        placed = [jax.device_put(v, jax.NamedSharding(mesh, spec)) for v in (a, b)]
        got = jax.jit(jax.vmap(stepping(left_side=True, lower=True)))(*placed)
        np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6)
    assert len(made) >= 2


def test_what_is_large_or_complex_stays_lapacks(made):
    big = systems(128, 128, np.float32)
    for a, b in (big, systems(3, 2, np.complex64)):
        jax.jit(stepping(left_side=True, lower=True))(jnp.asarray(a), jnp.asarray(b))
    assert not any(e.op.name == "triangular_solve" for p in made for e in p.equations)
