"""numpy.linalg: values and types of NumPy's and the oracle's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import shardwise as sw
from shardwise.numpy import linalg
from shardwise.sharding import NamedSharding, PartitionSpec
from tests.rounding import assert_normwise

RNG = np.random.default_rng(0)


def normal(*shape, dtype="float32"):
    x = RNG.normal(size=shape)
    return (x + 1j * RNG.normal(size=shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def definite(*batch, n=4, dtype="float32"):
    x = normal(*batch, n, n, dtype=dtype)
    return (x @ np.conj(np.swapaxes(x, -1, -2)) + np.eye(n)).astype(dtype)


TOLERANCE = 2e-5  # of well-conditioned systems of six unknowns or less: some hundred roundings


def close(got, want):
    assert got.shape == np.shape(want)
    assert_normwise(got, want, TOLERANCE)


def wide(x):
    return x.astype("c16" if x.dtype.kind == "c" else "d")


A, B, C = definite(), definite(2, 3), definite(2, dtype="complex64")
T = normal(2, 5, 3)


@pytest.mark.parametrize("x", [A, B, C, T, np.swapaxes(T, -1, -2)], ids=["A", "B", "C", "tall", "flat"])
def test_what_describes_a_matrix(x):
    w = wide(x)
    square = x.shape[-1] == x.shape[-2]
    close(linalg.svdvals(x), np.linalg.svd(w, compute_uv=False))
    close(linalg.pinv(x), np.linalg.pinv(w))
    close(linalg.matrix_rank(x), np.linalg.matrix_rank(w))
    norms: tuple[Any, ...] = (None, 2, -2, *((1, "fro", np.inf) if square else ()))
    for p in norms:
        close(linalg.cond(x, p), np.linalg.cond(w, p))
    for ord in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
        for keepdims in (False, True):
            close(linalg.matrix_norm(x, ord=ord, keepdims=keepdims), np.linalg.norm(w, ord, (-2, -1), keepdims))
    for ord in (None, 0, 1, 2, 3, -1, 0.5, np.inf, -np.inf):
        close(linalg.norm(x, ord, axis=-1, keepdims=True), np.linalg.norm(w, ord, axis=-1, keepdims=True))
        close(
            linalg.vector_norm(x, ord=2 if ord is None else ord),
            np.linalg.vector_norm(w, ord=2 if ord is None else ord),
        )
    close(linalg.norm(x), np.linalg.norm(w))
    close(linalg.norm(x, "fro", axis=(0, 1)), np.linalg.norm(w, "fro", axis=(0, 1)))
    close(linalg.diagonal(x, offset=1), np.linalg.diagonal(w, offset=1))
    close(linalg.trace(x), np.linalg.trace(w))
    close(linalg.matrix_transpose(x), np.linalg.matrix_transpose(w))
    if square:
        close(linalg.det(x), np.linalg.det(w))
        for method in (None, "qr"):
            for got, want in zip(linalg.slogdet(x, method=method), np.linalg.slogdet(w), strict=True):
                close(got, want)
        close(linalg.inv(x), np.linalg.inv(w))
        for n in (-2, -1, 0, 1, 2, 3, 7):
            close(linalg.matrix_power(x / 4, n), np.linalg.matrix_power(w / 4, n))


@pytest.mark.parametrize("x", [A, B, C], ids=["A", "B", "C"])
def test_decompositions(x):
    w = wide(x)
    close(linalg.cholesky(x), np.linalg.cholesky(w))
    close(linalg.cholesky(x, upper=True), np.linalg.cholesky(w, upper=True))
    close(linalg.eigvalsh(x), np.linalg.eigvalsh(w))
    for uplo in ("L", "U"):
        found = linalg.eigh(x, uplo)
        v = np.asarray(found.eigenvectors)
        close(found.eigenvalues, np.linalg.eigvalsh(w))
        assert_normwise(x @ v, v * np.asarray(found.eigenvalues)[..., None, :], TOLERANCE)
    for result in (linalg.svd(x), linalg.svd(x, hermitian=True), linalg.svd(x, full_matrices=False)):
        u, s, vh = map(np.asarray, result)
        assert_normwise((u * s[..., None, :]) @ vh, x, TOLERANCE)
        close(result.S, np.linalg.svd(w, compute_uv=False))
    close(
        linalg.svd(x - 5 * np.eye(4, dtype="f"), compute_uv=False, hermitian=True),
        np.linalg.svd(w - 5 * np.eye(4), compute_uv=False),
    )
    q, r = linalg.qr(x)
    assert_normwise(np.asarray(q) @ np.asarray(r), x, TOLERANCE)
    close(linalg.qr(x, "r"), np.asarray(r))
    general = x @ np.diag(np.arange(1, 5)).astype("f")
    assert linalg.eigvals(general).dtype == "complex64"
    found = linalg.eig(general)
    v = np.asarray(found.eigenvectors)
    assert_normwise(general @ v, v * np.asarray(found.eigenvalues)[..., None, :], TOLERANCE)


def test_systems():
    for a, b in (
        (A, normal(4)),
        (A, normal(4, 2)),
        (B, normal(4, 2)),
        (B, normal(3, 4, 1)),
        (B[0, :1], normal(5, 4, 2)),
        (C, normal(4, 3)),
    ):
        vector = b.ndim == 1
        want = np.linalg.solve(wide(a), wide(b)[..., None] if vector else wide(b))
        close(linalg.solve(a, b), want[..., 0] if vector else want)
    x = normal(2, 4)
    close(linalg.solve(B[0, 0], x[0]), np.linalg.solve(wide(B[0, 0]), x[0]))
    m, y = normal(6, 3), normal(6, 2)
    for rhs in (y, y[:, 0]):
        got, want = linalg.lstsq(m, rhs), np.linalg.lstsq(wide(m), rhs, rcond=None)
        close(got[0], want[0])
        assert int(got[2]) == want[2]
        close(got[3], want[3])
        assert_normwise(np.ravel(got[1]), want[1], TOLERANCE)
    flat = linalg.lstsq(m.T, normal(3), numpy_resid=True)
    assert flat[1].shape == (0,)
    a = normal(2, 3, 6)
    close(linalg.tensorinv(a), np.linalg.tensorinv(wide(a)))
    a, b = normal(2, 3, 2, 3), normal(2, 3)
    close(linalg.tensorsolve(a, b), np.linalg.tensorsolve(wide(a), b))
    close(
        linalg.tensorsolve(np.moveaxis(a, 2, 0), b, axes=(0, 3)),
        np.linalg.tensorsolve(wide(np.moveaxis(a, 2, 0)), b, axes=(0, 3)),
    )


def test_products():
    x, y, z = normal(3, 4), normal(4, 5), normal(5, 2)
    close(linalg.matmul(x, y), x @ y)
    close(linalg.multi_dot([x, y, z]), x @ y @ z)
    close(linalg.multi_dot([x[0], y, z, z[0]]), x[0] @ y @ z @ z[0])
    close(linalg.outer(x[0], y[0]), np.outer(x[0], y[0]))
    close(linalg.tensordot(x, y, axes=1), x @ y)
    close(linalg.vecdot(x, x), np.linalg.vecdot(x, x))
    u, v = normal(2, 3), normal(4, 1, 3)
    close(linalg.cross(u, v), np.linalg.cross(u, v))
    close(linalg.cross(u.T, u.T[::-1], axis=0), np.linalg.cross(u.T, u.T[::-1], axis=0))


@pytest.mark.parametrize("dtype", ["int32", "bool", "float32", "complex64"])
def test_types_are_the_oracles(dtype):
    jax = pytest.importorskip("jax")
    x = np.eye(4).astype(dtype)
    calls = ("cholesky", "svd", "eig", "eigvals", "eigh", "eigvalsh", "qr", "inv", "pinv", "det", "slogdet", "matrix_rank", "cond",
             "trace", "norm", "vector_norm", "matrix_norm", "svdvals")  # fmt: skip
    for name in calls:
        want = jax.eval_shape(getattr(jax.numpy.linalg, name), x)
        got = getattr(linalg, name)(x)
        flat = lambda v: list(v) if isinstance(v, tuple) else [v]  # noqa: E731
        assert [(g.shape, g.dtype, g.weak_type) for g in flat(got)] == [
            (w.shape, w.dtype, w.weak_type) for w in flat(want)
        ], name
        if isinstance(want, tuple):
            assert cast(Any, type(got))._fields == cast(Any, type(want))._fields
    two = lambda f: f(x, x)  # noqa: E731
    for name in ("solve", "lstsq"):
        want = jax.eval_shape(lambda a, b: getattr(jax.numpy.linalg, name)(a, b), x, x)  # noqa: B023
        got = two(getattr(linalg, name))
        flat = lambda v: list(v) if isinstance(v, tuple) else [v]  # noqa: E731
        assert [(g.shape, g.dtype) for g in flat(got)] == [(w.shape, w.dtype) for w in flat(want)], name


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: linalg.inv(np.ones((2, 3))), ValueError),
        (lambda: linalg.det(np.ones((2, 3))), ValueError),
        (lambda: linalg.slogdet(np.ones(3)), ValueError),
        (lambda: linalg.slogdet(np.eye(3), method="svd"), ValueError),
        (lambda: linalg.solve(np.ones(3), np.ones(3)), ValueError),
        (lambda: linalg.solve(np.eye(3), np.ones(4)), ValueError),
        (lambda: linalg.solve(np.ones((2, 3, 3)), np.ones((2, 3))), ValueError),
        (lambda: linalg.eigh(np.eye(3), "X"), ValueError),
        (lambda: linalg.qr(np.eye(3), "fast"), ValueError),
        (lambda: linalg.norm(np.ones((2, 2, 2)), 2), ValueError),
        (lambda: linalg.norm(np.ones((2, 2)), "big"), ValueError),
        (lambda: linalg.vector_norm(np.ones(2), ord="inf"), ValueError),
        (lambda: linalg.matrix_power(np.ones(3), 2), TypeError),
        (lambda: linalg.matrix_power(np.ones((2, 3)), 2), TypeError),
        (lambda: linalg.matrix_power(np.eye(3), cast(Any, 2.5)), TypeError),
        (lambda: linalg.multi_dot([np.ones((2, 3))]), ValueError),
        (lambda: linalg.multi_dot([np.ones((2, 3)), np.ones((4, 3))]), ValueError),
        (lambda: linalg.outer(np.ones((2, 2)), np.ones(2)), ValueError),
        (lambda: linalg.cross(np.ones(2), np.ones(2)), ValueError),
        (lambda: linalg.matrix_transpose(np.ones(2)), ValueError),
        (lambda: linalg.cond(np.ones(2)), ValueError),
        (lambda: linalg.cond(np.ones((0, 2))), ValueError),
        (lambda: linalg.cond(np.ones((3, 2)), 1), ValueError),
        (lambda: linalg.lstsq(np.ones((3, 2)), np.ones(2)), ValueError),
        (lambda: linalg.lstsq(np.ones((3, 2, 2)), np.ones(3)), TypeError),
        (lambda: linalg.tensorinv(np.ones((2, 3)), 1), ValueError),
        (lambda: linalg.tensorinv(np.ones((2, 3)), 0), ValueError),
        (lambda: linalg.tensorsolve(np.ones((2, 3)), np.ones(3)), ValueError),
        (lambda: linalg.matrix_rank(np.eye(2), 1e-3, tol=1e-3), ValueError),
        (lambda: linalg.pinv(np.eye(2), 1e-3, rcond=1e-3), ValueError),
    ],
)
def test_errors(call, error):
    with pytest.raises(error):
        call()


def test_singular_and_empty():
    singular = np.ones((2, 2), "f")
    assert np.isinf(linalg.cond(np.zeros((2, 2), "f"), 1))
    assert float(linalg.det(singular)) == 0
    sign, log = linalg.slogdet(np.zeros((2, 2), "f"))
    assert float(sign) == 0 and float(log) == -np.inf
    assert linalg.pinv(np.ones((0, 3), "f")).shape == (3, 0)
    assert int(linalg.matrix_rank(singular)) == 1
    assert int(linalg.matrix_rank(np.zeros(3))) == 0
    assert linalg.inv(np.ones((0, 0), "f")).shape == (0, 0)


@pytest.mark.parametrize("spec", [("x",), (None, "x", "y"), ("x", "y")])
def test_sharding_never_changes_values(spec):
    mesh = sw.sharding.Mesh(np.array(sw.devices()).reshape(2, 4), ("x", "y"))
    x = definite(4, n=8)
    split = sw.device_put(x, NamedSharding(mesh, PartitionSpec(*spec)))
    functions: list[Callable[[Any], Any]] = [
        linalg.inv,
        linalg.det,
        linalg.eigvalsh,
        linalg.pinv,
        linalg.cond,
        lambda a: linalg.norm(a, axis=(1, 2)),
        lambda a: linalg.solve(a, a[0]),
    ]
    for f in functions:
        close(sw.jit(f)(split), np.asarray(f(x)))
