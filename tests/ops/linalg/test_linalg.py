"""Linear algebra ops: values against the oracle, failures, loop dims, types, shardings."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import shardwise as sw
from shardwise.base.config import use_dialect
from shardwise.base.errors import ShardingTypeError
from shardwise.ir import ShapedArray, infer_types
from shardwise.lax import linalg
from shardwise.ops.linalg import decompositions as ops
from shardwise.ops.linalg import determinants, lapack, spectral
from shardwise.runtime.env import SINGLE, Env
from shardwise.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec
from tests.rounding import assert_normwise, assert_same_products

RNG = np.random.default_rng(0)
DTYPES = ["float32", "complex64"]


def matrix(*shape, dtype="float32"):
    x = RNG.normal(size=shape)
    return (x + 1j * RNG.normal(size=shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def definite(*batch, n=4, dtype="float32"):
    x = matrix(*batch, n, n, dtype=dtype)
    return (x @ np.conj(np.swapaxes(x, -1, -2)) + np.eye(n)).astype(dtype)


def oracle():
    return pytest.importorskip("jax").lax.linalg


TOLERANCE = 2e-5  # of well-conditioned systems of ten unknowns or less: some hundred roundings


def close(got, want):
    got = got if isinstance(got, tuple | list) else (got,)
    want = want if isinstance(want, tuple | list) else (want,)
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape and g.dtype == w.dtype, (g.aval, w)
        assert_normwise(g, w, TOLERANCE)


def assert_solves(a, b, c):
    """`a` @ `b` is `c`, where a solver found one of the factors: each of its steps rounds as the product does."""
    a, b = np.asarray(a), np.asarray(b)
    assert_same_products(a @ b, c, np.abs(a) @ np.abs(b), a.shape[-1] ** 2)


@pytest.mark.parametrize(("dtype", "batch"), [("float32", (2, 3)), ("complex64", ())])
def test_decompositions_are_the_oracles(dtype, batch):
    theirs = oracle()
    x, tall, s = matrix(*batch, 4, 4, dtype=dtype), matrix(*batch, 5, 3, dtype=dtype), definite(*batch, dtype=dtype)
    close(linalg.cholesky(s), theirs.cholesky(s))
    close(linalg.cholesky(s, symmetrize_input=False), theirs.cholesky(s, symmetrize_input=False))
    close(linalg.lu(x), theirs.lu(x))
    close(linalg.lu(tall), theirs.lu(tall))
    for a in (x, tall, np.swapaxes(tall, -1, -2)):
        for options in ({}, dict(full_matrices=False), dict(pivoting=True), dict(pivoting=True, full_matrices=False)):
            close(linalg.qr(a, **options), theirs.qr(a, **options))
        close(linalg.svd(a, compute_uv=False), theirs.svd(a, compute_uv=False))
        for full in (True, False):
            got, want = linalg.svd(a, full_matrices=full), theirs.svd(a, full_matrices=full)
            assert [g.shape for g in got] == [w.shape for w in want]
            u, sv, vh = map(np.asarray, got)
            k = sv.shape[-1]
            assert_normwise((u[..., :k] * sv[..., None, :]) @ vh[..., :k, :], a, TOLERANCE)
    for lower in (True, False):
        v, w = linalg.eigh(s, lower=lower, symmetrize_input=False)
        close(w, theirs.eigh(s)[1])
        assert_normwise(s @ np.asarray(v), np.asarray(v) * np.asarray(w)[..., None, :], TOLERANCE)
    want = theirs.eig(x)
    got = linalg.eig(x)
    assert [(g.shape, g.dtype) for g in got] == [(w.shape, w.dtype) for w in want]
    w, vl, vr = map(np.asarray, got)
    assert_normwise(x @ vr, vr * w[..., None, :], TOLERANCE)
    left = np.conj(np.swapaxes(vl, -1, -2))
    assert_normwise(left @ x, w[..., :, None] * left, TOLERANCE)
    (only,) = linalg.eig(x, compute_left_eigenvectors=False, compute_right_eigenvectors=False)
    assert_normwise(np.sort_complex(np.asarray(only)), np.sort_complex(w), TOLERANCE)
    close(linalg.hessenberg(x), theirs.hessenberg(x))
    t, z = map(np.asarray, linalg.schur(x))
    assert_normwise(z @ t @ np.conj(np.swapaxes(z, -1, -2)), x, TOLERANCE)
    close(linalg.tridiagonal(s), theirs.tridiagonal(s))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("batch", "left"), [((), True), ((), False), ((2, 30), False), ((2, 30), True)])
def test_triangular_solve(dtype, batch, left):
    theirs = oracle()
    a = matrix(*batch, 4, 4, dtype=dtype) + 3 * np.eye(4, dtype=dtype)
    b = matrix(*batch, 4, 3, dtype=dtype) if left else matrix(*batch, 3, 4, dtype=dtype)
    for lower in (True, False):
        for transpose in (True, False):
            for conjugate in (True, False):
                for unit in (True, False):
                    options = dict(
                        left_side=left, lower=lower, transpose_a=transpose, conjugate_a=conjugate, unit_diagonal=unit
                    )
                    full = np.tril(a) if lower else np.triu(a)
                    if unit:
                        full = full - full * np.eye(4, dtype=dtype) + np.eye(4, dtype=dtype)
                    full = np.swapaxes(full, -1, -2) if transpose else full
                    full = np.conj(full) if conjugate else full
                    x = np.asarray(linalg.triangular_solve(a, b, **options))
                    assert x.dtype == dtype
                    assert_solves(*((full, x) if left else (x, full)), b)
    vector = matrix(*batch, 4, dtype=dtype)
    options = dict(left_side=left, lower=True)
    close(linalg.triangular_solve(a, vector, **options), theirs.triangular_solve(a, vector, **options))


def test_other_solvers_and_products():
    theirs = oracle()
    n, k = 6, 2
    dl, d, du = matrix(3, n), matrix(3, n) + 4, matrix(3, n)
    dl[:, 0] = du[:, -1] = 0
    b = matrix(3, n, k)
    close(linalg.tridiagonal_solve(dl, d, du, b), theirs.tridiagonal_solve(dl, d, du, b))
    packed, tau = matrix(2, 5, 3), matrix(2, 3)
    close(linalg.householder_product(packed, tau), theirs.householder_product(packed, tau))
    a, c = matrix(2, 3, 4), definite(2, n=3)
    got = linalg.symmetric_product(a, c, alpha=2.0, beta=0.5, symmetrize_output=True)
    assert_normwise(got, 2 * a @ np.swapaxes(a, -1, -2) + 0.5 * c, TOLERANCE)
    r, w = np.linalg.cholesky(definite()).T.astype("f"), matrix(4)
    got = np.asarray(linalg.cholesky_update(r, w))
    assert_normwise(got.T @ got, r.T @ r + np.outer(w, w), TOLERANCE)
    pivots = np.array([[3, 2, 3], [0, 1, 2]], "int32")
    close(linalg.lu_pivots_to_permutation(pivots, 5), theirs.lu_pivots_to_permutation(pivots, 5))
    s, log = ops.slogdet(matrix(3, 4, 4))
    assert s.shape == log.shape == (3,)
    x, y = matrix(2, 4, 4), matrix(2, 4, 3)
    assert_solves(x, np.asarray(ops.solve(x, y)), y)
    assert_normwise(ops.det(x), np.linalg.det(x), TOLERANCE)


def test_failures_are_nan_and_stay_with_their_matrix():
    bad = np.stack([np.eye(3), -np.eye(3), np.full((3, 3), np.nan)]).astype("f")
    for got in (
        linalg.cholesky(bad),
        *linalg.eigh(bad),
        linalg.svd(bad, compute_uv=False),
        *linalg.eig(bad),
        *linalg.schur(bad),
    ):
        nan = np.any(np.isnan(np.asarray(got)).reshape(3, -1), axis=1)
        assert not nan[0] and nan[2]
    assert np.isnan(np.asarray(linalg.cholesky(bad))[1]).any()
    singular = np.zeros((2, 2), "f")
    assert not np.isfinite(np.asarray(ops.solve(singular, np.ones((2, 1), "f")))).any()


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0), (2, 0, 0), (0, 3, 3), (1, 1)])
def test_empty_and_small(shape):
    theirs = oracle()
    x = np.ones(shape, "f")
    for call in (
        lambda m: m.lu(x),
        lambda m: m.qr(x),
        lambda m: m.qr(x, full_matrices=False),
        lambda m: m.svd(x),
        lambda m: m.svd(x, full_matrices=False),
    ):
        got, want = call(linalg), call(theirs)
        assert [(g.shape, g.dtype) for g in got] == [(w.shape, w.dtype) for w in want]
    if shape[-1] == shape[-2]:
        for call in (lambda m: [m.cholesky(x)], lambda m: m.eigh(x), lambda m: m.eig(x), lambda m: m.schur(x)):
            got, want = call(linalg), call(theirs)
            assert [(g.shape, g.dtype) for g in got] == [(w.shape, w.dtype) for w in want]


# -- loop dims -----------------------------------------------------------------------------------------------------------------

KERNELS = [
    (ops.cholesky_p, [(3, 3)], {}),
    (ops.lu_p, [(4, 3)], {}),
    (ops.qr_p, [(4, 3)], dict(full=True, pivoting=False)),
    (spectral.svd_p, [(4, 3)], dict(full=False, vectors=True)),
    (spectral.eigh_p, [(3, 3)], dict(lower=True)),
    (spectral.eig_p, [(3, 3)], dict(left=True, right=True, vector_derivatives=False)),
    (spectral.schur_p, [(3, 3)], dict(vectors=True)),
    (ops.solve_p, [(3, 3), (3, 2)], {"transposed": False}),
    (ops.solve_p, [(3, 3), (3, 2)], {"transposed": True}),
    (ops.triangular_solve_p, [(3, 3), (3, 2)], dict(left=True, lower=True, transpose=False, conjugate=False, unit=False)),
    (ops.triangular_solve_p, [(3, 3), (2, 3)], dict(left=False, lower=False, transpose=True, conjugate=False, unit=True)),
    (ops.householder_product_p, [(4, 3), (2,)], {}),
    (ops.tridiagonal_solve_p, [(4,), (4,), (4,), (4, 2)], {"perturb_singular": False}),
    (ops.det_p, [(3, 3)], {}),
    (ops.slogdet_p, [(3, 3)], {}),
]  # fmt: skip


@pytest.mark.parametrize("case", KERNELS, ids=lambda c: c[0].name)
@pytest.mark.parametrize(
    "mix",
    [
        [(2, 1), (1, 3), (1, 1), (2, 3)],
        [(2, 3), (2, 1), (1, 3), (1, 1)],
        [(1, 1), (2, 3), (1, 1), (1, 3)],
        [(2, 3), (2, 3), (2, 3), (2, 3)],
    ],
)
def test_loop_dims_are_independent(case, mix):
    op, shapes, params = case
    square = op in (ops.cholesky_p, spectral.eigh_p)
    blocks = []
    for loops, core in zip(mix, shapes, strict=False):
        x = definite(*loops, n=3, dtype="float64") if square else matrix(*loops, *core, dtype="float64")
        blocks.append(x if len(core) == 1 else x + 4 * np.eye(*core))
    env = Env(("x", "y"), (2, 3))
    got = op.block_kernel(env, *blocks, **params)
    got = got if op.multiple_results else (got,)
    for i in range(2):
        for j in range(3):
            pick = lambda a: a[min(i, a.shape[0] - 1), min(j, a.shape[1] - 1)]  # noqa: B023, E731
            want = op.block_kernel(SINGLE, *map(pick, blocks), **params)
            want = want if op.multiple_results else (want,)
            for g, w in zip(got, want, strict=True):
                np.testing.assert_allclose(pick(g), w, rtol=1e-12, atol=1e-12)


def test_one_factorisation_serves_all_columns(monkeypatch):
    calls = []
    original = lapack.gufunc
    monkeypatch.setattr(lapack, "gufunc", lambda name, *xs: calls.append(xs[0].shape) or original(name, *xs))
    a, b = matrix(1, 4, 4), matrix(8, 4, 2)
    got = ops.solve_p.block_kernel(Env(("x",), (8,)), a, b, transposed=False)
    assert calls == [(4, 4)]
    assert_solves(np.broadcast_to(a, (8, 4, 4)), got, b)


# -- types, shardings ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: linalg.cholesky(np.ones((3, 4), "f")), TypeError),
        (lambda: linalg.cholesky(np.ones((3, 4), "f"), symmetrize_input=False), ValueError),
        (lambda: linalg.cholesky(np.ones(3, "f")), (TypeError, ValueError)),
        (lambda: linalg.cholesky(np.ones((3, 3), "int32")), TypeError),
        (lambda: linalg.eigh(np.ones((3, 4), "f"), symmetrize_input=False), ValueError),
        (lambda: linalg.triangular_solve(np.ones((3, 3), "f"), np.ones((4, 4), "f")), ValueError),
        (lambda: linalg.triangular_solve(np.ones((3, 3), "f"), np.ones((2, 4, 3), "f")), TypeError),
        (lambda: linalg.triangular_solve(np.ones((3, 3), "f"), np.ones((3, 3), "complex64")), TypeError),
        (lambda: linalg.householder_product(np.ones((3, 4), "f"), np.ones(3, "f")), ValueError),
        (
            lambda: linalg.tridiagonal_solve(np.ones(3, "f"), np.ones(4, "f"), np.ones(3, "f"), np.ones((3, 1), "f")),
            TypeError,
        ),
        (lambda: linalg.lu_pivots_to_permutation(np.arange(3), 2), ValueError),
        (lambda: linalg.svd(np.ones((3, 4), "f"), subset_by_index=(0, 2)), ValueError),
        (lambda: linalg.svd(np.ones((3, 4), "f"), algorithm=linalg.SvdAlgorithm.JACOBI), NotImplementedError),
        (lambda: linalg.eigh(np.eye(3), implementation=linalg.EighImplementation.QDWH), NotImplementedError),
    ],
)
def test_errors(call, error):
    with pytest.raises(error):
        call()


def test_narrow_floats():
    import ml_dtypes

    x = definite(n=3).astype(ml_dtypes.bfloat16)
    assert linalg.cholesky(x).dtype == ml_dtypes.bfloat16
    q, r = linalg.qr(x)
    # Both factors are rounded to bfloat16: a product of three terms is off by six of its halves of a unit, 2^-9 each.
    assert_normwise(np.asarray(q).astype("f") @ np.asarray(r).astype("f"), x.astype("f"), 2e-2)


def test_matrices_must_be_whole_in_explicit_mode():
    mesh = AbstractMesh((2,), ("x",), axis_types=(AxisType.Explicit,))
    whole = ShapedArray((4, 8, 8), np.dtype("f"), mesh=mesh, spec=(("x",), (), ()))
    with use_dialect("latest"):
        outs = infer_types(ops.lu_p, (whole,), {})
        assert [o.spec for o in outs] == [(("x",), (), ()), (("x",), ()), (("x",), ())]
        with pytest.raises(ShardingTypeError, match="unsharded on non-batch"):
            infer_types(ops.lu_p, (whole.update(spec=((), ("x",), ())),), {})
        with pytest.raises(ShardingTypeError, match="same batch sharding"):
            infer_types(ops.solve_p, (whole, whole.update(spec=((), (), ()))), {"transposed": False})


@pytest.mark.parametrize("spec", [("x",), (None, "x", "y"), ("x", "y")])
def test_sharding_never_changes_values(spec):
    mesh = sw.sharding.Mesh(np.array(sw.devices()).reshape(2, 4), ("x", "y"))
    x = definite(4, n=8)
    split = sw.device_put(x, NamedSharding(mesh, PartitionSpec(*spec)))
    close(sw.jit(linalg.cholesky)(split), linalg.cholesky(x))
    close(
        sw.jit(lambda a: linalg.triangular_solve(a, a, left_side=True, lower=True))(split),
        linalg.triangular_solve(x, x, left_side=True, lower=True),
    )
    close(sw.jit(linalg.lu)(split), linalg.lu(x))


def test_stacks_that_several_threads_share():
    many = matrix(3, 30, 40, 40, dtype="float64")
    one = many[:1]
    many[2, 7] = np.nan
    single = [
        functools.partial(lapack.svd, full=full, vectors=v) for full, v in ((False, False), (False, True), (True, True))
    ]
    single += [determinants.det, determinants.slogdet, functools.partial(lapack.eig, left=False, right=True)]
    for f in (*single, lambda x: lapack.cholesky(x @ np.swapaxes(x, -1, -2))):
        for x in (many, many.swapaxes(0, 1), one):
            got, want = f(x), [f(part) for part in x.reshape(-1, 40, 40)]
            if not isinstance(got, tuple):
                got, want = (got,), [(w,) for w in want]
            for i, g in enumerate(got):
                assert_normwise(g.reshape(-1, *g.shape[2:]), np.stack([np.asarray(w[i]) for w in want]), 1e-12)
    b = matrix(1, 30, 40, 3, dtype="float64")
    got = lapack.solve(many, b, transposed=False)
    for i, j in ((0, 0), (2, 7), (1, 29)):
        assert_normwise(got[i, j], lapack.solve(many[i, j], b[0, j], transposed=False), 1e-12)


@pytest.mark.parametrize("dtype", DTYPES)
def test_derivatives_of_eigenvectors_are_given_where_asked_for(dtype):
    jax = pytest.importorskip("jax")
    rng = np.random.default_rng(0)  # eigenvalues lie apart, so that rounding does not change their order
    x, t = (rng.normal(size=(2, 4, 4)).astype(dtype) for _ in range(2))
    x = x + (1j * t[::-1]).astype(dtype) if dtype == "complex64" else x
    for left, right in ((True, True), (False, True), (True, False)):
        options = dict(compute_left_eigenvectors=left, compute_right_eigenvectors=right, enable_eigvec_derivs=True)
        got = sw.jvp(lambda v, o=options: tuple(linalg.eig(v, **o)), (x,), (t,))
        want = jax.jvp(lambda v, o=options: tuple(oracle().eig(v, **o)), (x,), (t,))
        for g, w in zip(got, want, strict=True):
            close(g, w)
    with pytest.raises(NotImplementedError, match="enable_eigvec_derivs=True"):
        sw.jvp(lambda v: tuple(linalg.eig(v)), (x,), (t,))


def test_singular_tridiagonal_systems_are_perturbed():
    """Where JAX's solution of a singular system is exact, ours is the same; regular systems keep their solutions."""
    jax = pytest.importorskip("jax")
    theirs, column = jax.lax.linalg.tridiagonal_solve, np.ones((3, 1), "f")
    zero = np.zeros(3, "f")
    for dl, d, du in (
        ([0, 1, 1], zero, [1, 1, 0]),  # rows change places
        (zero, [1, 0, 1], zero),
        (zero, zero, zero),
    ):
        low, main, up = (np.asarray(v, "f") for v in (dl, d, du))
        found = linalg.tridiagonal_solve(low, main, up, column, perturb_singular=True)
        close(found, theirs(low, main, up, column, perturb_singular=True))
        assert np.isnan(np.asarray(linalg.tridiagonal_solve(low, main, up, column))).any()
    alone = linalg.tridiagonal_solve(zero[:1], zero[:1], zero[:1], column[:1], perturb_singular=True)
    close(alone, theirs(zero[:1], zero[:1], zero[:1], column[:1], perturb_singular=True))
    # The null vector of a path's Laplacian, by one step of inverse iteration.
    path = np.array([0, 1, 1, 1], "f"), -np.array([1, 2, 2, 1], "f"), np.array([1, 1, 1, 0], "f")
    vector = np.asarray(linalg.tridiagonal_solve(*path, np.ones((4, 1), "f"), perturb_singular=True))[:, 0]
    np.testing.assert_allclose(vector / np.linalg.norm(vector), 0.5, rtol=1e-6)
    rng = np.random.default_rng(5)
    dl, d, du = rng.normal(size=(3, 2, 6)).astype("f")
    b = rng.normal(size=(2, 6, 2)).astype("f")
    dl[:, 0] = du[:, -1] = 0
    for lib in (sw.jit, sw.vmap):
        found = lib(functools.partial(linalg.tridiagonal_solve, perturb_singular=True))(dl, d, du, b)
        close(found, linalg.tridiagonal_solve(dl, d, du, b))
    slope = sw.grad(lambda d: linalg.tridiagonal_solve(dl, d, du, b, perturb_singular=True).sum())(d)
    close(slope, sw.grad(lambda d: linalg.tridiagonal_solve(dl, d, du, b).sum())(d))
