"""Factorisations in machine code: of stacks of matrices, and inside of small programs."""

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.ops.linalg import factor_loops, lapack
from shardwise.runtime.machine.llvm import available
from shardwise.runtime.small import kernel as runtime_small
from tests.rounding import assert_normwise

pytestmark = pytest.mark.skipif(not available(), reason="nothing can be compiled here")
TOLERANCE = {np.float32: 1e-5, np.float64: 2e-14}  # of well-conditioned matrices: a hundred roundings
STEPS = 3


@pytest.fixture(autouse=True)
def doubles():
    with jax.enable_x64():
        yield


@pytest.fixture
def made(monkeypatch):
    """The small programs that are compiled while a test runs."""
    found = []
    before = runtime_small.compile_program

    def compiled(program, *args):
        found.append(program)
        return before(program, *args)

    monkeypatch.setattr(runtime_small, "compile_program", compiled)
    return found


def definite(dtype, *shape):
    a = np.random.default_rng(sum(shape)).normal(size=shape)
    return (a @ a.swapaxes(-1, -2) + shape[-1] * np.eye(shape[-1])).astype(dtype)


def both(f, *args):
    """The results of `f` as one machine function and as NumPy's and LAPACK's calls."""
    out = []
    for choice in ("auto", "off"):
        with config.override("shardwise_fused", choice):
            out.append(jax.tree.map(np.asarray, jax.jit(lambda *a: f(*a))(*args)))
    return out


# -- stacks --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 16, 17, 31, 32, 64, 96])
def test_stacks_of_cholesky_factors(dtype, n, monkeypatch):
    monkeypatch.setattr(factor_loops, "_FEWEST", 1)
    a = definite(dtype, 7, n, n)
    a[2] = -a[2]  # not definite
    got = factor_loops.cholesky(np.tril(a) + np.triu(np.full_like(a, np.nan), 1))  # the upper triangle is not read
    assert got is not None
    assert got.dtype == dtype
    kept = np.arange(7) != 2
    assert_normwise(got[kept], np.linalg.cholesky(a[kept]), TOLERANCE[dtype])
    assert np.isnan(got[2][np.tril_indices(n)]).all()
    assert not np.triu(got, 1).any()


def test_threads_share_a_stack(monkeypatch):
    a = definite(np.float32, 64, 64, 64)
    monkeypatch.setattr(factor_loops, "thread_count", lambda: 2)
    got = factor_loops.cholesky(a)
    monkeypatch.setattr(factor_loops, "thread_count", lambda: 1)
    np.testing.assert_array_equal(got, factor_loops.cholesky(a))


@pytest.mark.parametrize("how", [None, jax.P("x")])
def test_stacks_over_devices(how):
    a = definite(np.float32, 8, 32, 32)
    x = a if how is None else jax.device_put(a, jax.NamedSharding(jax.make_mesh((8,), ("x",)), how))
    got = jax.jit(lambda x: jnp.linalg.cholesky(x))(x)
    assert_normwise(got, np.linalg.cholesky(a), TOLERANCE[np.float32])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (3, 7, 4), (4, 7), (2, 2, 16, 17), (33, 33), (96, 64)], ids=str)
def test_lu_factors(dtype, shape):
    """As exact as LAPACK's, with its pivots, and its zeros where nothing is left to divide by."""
    x = np.random.default_rng(len(shape)).normal(size=shape).astype(dtype)
    x[..., 0] = 0
    factors = factor_loops.lu(x)
    assert factors is not None
    packed, pivots, order = factors
    expected = lapack._lu(x)
    np.testing.assert_array_equal(pivots, expected[1])
    np.testing.assert_array_equal(order, expected[2])
    k = min(shape[-2:])
    left, right = np.tril(packed[..., :k], -1) + np.eye(shape[-2], k), np.triu(packed[..., :k, :])
    rows = np.take_along_axis(x, order[..., None], -2)
    assert_normwise(left.astype(np.float64) @ right, rows, TOLERANCE[dtype])


def test_lu_factors_of_missing_values_are_lapacks():
    x = np.random.default_rng(0).normal(size=(3, 5, 5))
    x[1, 2, 3] = np.nan
    for got, expected in zip(lapack.lu(x), lapack._lu(x), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("count", [1, 3, lapack._FEW_ORDERS + 1])
def test_permutations_made_by_pivots(count):
    pivots = np.random.default_rng(0).integers(0, 9, (count, 5)).astype(np.int32)
    found = lapack.pivots_to_permutation(pivots, 9)
    for own, order in zip(pivots, found, strict=True):
        expected = np.arange(9)
        for i, at in enumerate(own):
            expected[[i, at]] = expected[[at, i]]
        np.testing.assert_array_equal(order, expected)


def test_what_is_left_to_lapack():
    assert factor_loops.lu(np.ones((2, 97, 8), np.float32)) is None
    assert factor_loops.lu(np.ones((0, 8, 8), np.float32)) is None
    assert factor_loops.lu(np.ones((8, 8), np.complex64)) is None
    assert factor_loops.cholesky(definite(np.float32, 64, 64)) is None  # one matrix
    assert factor_loops.cholesky(np.ones((8, 8, 8), np.complex64)) is None
    assert factor_loops.cholesky(np.ones((2, 200, 200), np.float32)) is None
    assert factor_loops.cholesky(np.ones((0, 8, 8), np.float32)) is None


# -- small programs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 16, 20])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_cholesky_in_a_loop(made, dtype, n, batch):
    a = definite(dtype, *batch, n, n)
    got, want = both(
        lambda a: lax.fori_loop(0, STEPS, lambda i, x: jnp.linalg.cholesky(a + x * 0.1), jnp.zeros_like(a)), a
    )
    assert made
    assert_normwise(got, want, TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 8, 16, 20])
@pytest.mark.parametrize("k", [1, 3, 20])
@pytest.mark.parametrize("batch", [(), (3,)])
def test_systems_in_a_loop(made, dtype, n, k, batch):
    a = definite(dtype, *batch, n, n) + np.triu(np.ones((n, n), dtype), 1)
    b = np.random.default_rng(k).normal(size=(*batch, n, k)).astype(dtype)
    for transposed in (False, True):

        def f(a, b, transposed=transposed):
            a = a.swapaxes(-1, -2) if transposed else a
            return lax.fori_loop(0, STEPS, lambda i, x: jnp.linalg.solve(a, x) * 0.5 + b, b)

        got, want = both(f, a, b)
        assert_normwise(got, want, TOLERANCE[dtype])
    assert made


def test_systems_with_one_matrix_for_many_sides(made):
    a, b = definite(np.float32, 1, 4, 4), np.random.default_rng(0).normal(size=(5, 4, 2)).astype(np.float32)
    got, want = both(lambda a, b: lax.fori_loop(0, 2 * STEPS, lambda i, x: jnp.linalg.solve(a, x) + b, b), a, b)
    assert made
    assert_normwise(got, want, TOLERANCE[np.float32])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (4, 4), (7, 5), (5, 7), (17, 17), (3, 6, 6)])
def test_lu_in_a_loop(made, dtype, shape):
    a = np.random.default_rng(sum(shape)).normal(size=shape).astype(dtype)

    def f(a):
        first = tuple(jnp.zeros_like(x) for x in lax.linalg.lu(a))
        return lax.fori_loop(0, STEPS, lambda i, x: tuple(lax.linalg.lu(a + x[0] * 0.1)), first)

    got, want = both(f, a)
    assert made
    assert_normwise(got[0], want[0], TOLERANCE[dtype])
    for x, y in zip(got[1:], want[1:], strict=True):
        assert x.dtype == np.int32
        np.testing.assert_array_equal(x, y)


def test_singular_and_indefinite_matrices_in_a_loop(made):
    a = np.ones((3, 3), np.float32)
    got, want = both(lambda a: lax.fori_loop(0, STEPS, lambda i, x: jnp.linalg.cholesky(a - 2 + 0 * x), a), a)
    np.testing.assert_array_equal(got, want)
    got, want = both(lambda a: lax.fori_loop(0, STEPS, lambda i, x: lax.linalg.lu(a * 0 + x * 0)[0], a), a)
    np.testing.assert_array_equal(got, want)
    got, want = both(lambda a: lax.fori_loop(0, STEPS, lambda i, x: jnp.linalg.solve(a, x[:, :1]) + x, a), a)
    assert not np.isfinite(got).any()
    assert not np.isfinite(want).any()
    assert made


def test_loops_of_factors_under_vmap(made):
    a = definite(np.float32, 4, 5, 5)

    def f(a):
        return lax.fori_loop(0, STEPS, lambda i, x: jnp.linalg.solve(jnp.linalg.cholesky(a + x * x), x), jnp.eye(5))

    got, want = both(jax.vmap(f), a.astype(np.float64))
    assert made
    assert_normwise(got, want, 1e-13)
