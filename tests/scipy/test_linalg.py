"""scipy.linalg: values of SciPy's, types of the oracle's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.linalg

import shardwise as sw
from shardwise.scipy import linalg
from shardwise.sharding import NamedSharding, PartitionSpec
from tests.rounding import assert_normwise

theirs: Any = scipy.linalg

RNG = np.random.default_rng(0)


def normal(*shape, dtype="float32"):
    x = RNG.normal(size=shape)
    return (x + 1j * RNG.normal(size=shape) if np.dtype(dtype).kind == "c" else x).astype(dtype)


def definite(n=4, dtype="float32"):
    x = normal(n, n, dtype=dtype)
    return (x @ np.conj(x.T) + np.eye(n)).astype(dtype)


TOLERANCE = 2e-5  # of well-conditioned systems of six unknowns or less: some hundred roundings


def close(got, want):
    got, want = (x if isinstance(x, tuple) else (x,) for x in (got, want))
    for g, w in zip(got, want, strict=True):
        assert np.shape(g) == np.shape(w)
        assert_normwise(g, w, TOLERANCE)


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_factorisations(dtype):
    a, x, tall = definite(dtype=dtype), normal(4, 4, dtype=dtype), normal(5, 3, dtype=dtype)
    for lower in (False, True):
        close(linalg.cholesky(a, lower), theirs.cholesky(a, lower))
        c, flag = linalg.cho_factor(a, lower)
        assert flag is lower
        for b in (normal(4, dtype=dtype), normal(4, 2, dtype=dtype)):
            close(linalg.cho_solve((c, lower), b), theirs.solve(a, b))
            close(linalg.solve(a, b, lower=lower, assume_a="pos"), theirs.solve(a, b))
            close(linalg.eigh(a, lower=lower, eigvals_only=True), theirs.eigvalsh(a))
            for trans in (0, 1, "C"):
                close(linalg.solve_triangular(a, b, trans, lower), theirs.solve_triangular(a, b, trans, lower))
    for b in (normal(4, dtype=dtype), normal(4, 2, dtype=dtype)):
        for trans in (0, 1, 2):
            close(linalg.lu_solve(linalg.lu_factor(x), b, trans), theirs.lu_solve(theirs.lu_factor(x), b, trans))
    for m in (x, tall, tall.T):
        close(linalg.lu(m), theirs.lu(m))
        close(linalg.lu(m, permute_l=True), theirs.lu(m, permute_l=True))
        for mode in ("full", "economic", "r"):
            close(linalg.qr(m, mode=mode), theirs.qr(m, mode=mode))
            close(linalg.qr(m, mode=mode, pivoting=True), theirs.qr(m, mode=mode, pivoting=True))
    close(linalg.qr_multiply(tall, normal(2, 5, dtype=dtype))[1], theirs.qr(tall, mode="economic")[1])
    close(linalg.hessenberg(x, calc_q=True), theirs.hessenberg(x, calc_q=True))
    t, z = map(np.asarray, linalg.schur(x, output="complex"))
    assert_normwise(z @ t @ np.conj(z.T), x, TOLERANCE)
    assert np.allclose(np.tril(t, -1), 0)
    if dtype == "float32":
        t, z = linalg.schur(x)
        t, z = map(np.asarray, linalg.rsf2csf(t, z))
        assert_normwise(z @ t @ np.conj(z.T), x, TOLERANCE)
    close(linalg.svd(tall, compute_uv=False), theirs.svdvals(tall))
    for side, m in (("right", tall), ("left", tall.T)):
        close(linalg.polar(m, side), theirs.polar(m, side))
    close(linalg.det(x), theirs.det(x))
    close(linalg.inv(a), theirs.inv(a))


@pytest.mark.parametrize("dtype", ["float32", "complex64"])
def test_matrix_functions(dtype):
    x = normal(4, 4, dtype=dtype)
    close(linalg.expm(x), theirs.expm(x))
    close(linalg.expm(x, upper_triangular=True), theirs.expm(np.triu(x)))
    assert np.isnan(np.asarray(linalg.expm(x * 1e6))).all()
    stack = np.stack([x, x / 2])
    close(linalg.expm(stack), np.stack([theirs.expm(s) for s in stack]))
    e = normal(4, 4, dtype=dtype)
    wide = "complex128" if dtype == "complex64" else "float64"
    close(linalg.expm_frechet(x, e), theirs.expm_frechet(x.astype(wide), e.astype(wide)))
    root = linalg.sqrtm(definite(dtype=dtype))
    assert root.dtype == "complex64"
    a, b, c = normal(3, 3, dtype=dtype), normal(4, 4, dtype=dtype), normal(3, 4, dtype=dtype)
    got = np.asarray(linalg.solve_sylvester(a, b, c))
    assert_normwise(a @ got + got @ b, c, 1e-4)  # the sum of two products may cancel


def test_tridiagonal_eigenvalues():
    d, e = normal(6), normal(5)
    close(linalg.eigh_tridiagonal(d, e, eigvals_only=True), theirs.eigh_tridiagonal(d, e, eigvals_only=True))
    close(
        linalg.eigh_tridiagonal(d, e, eigvals_only=True, select="i", select_range=(1, 3)),
        theirs.eigh_tridiagonal(d, e, eigvals_only=True, select="i", select_range=(1, 3)),
    )
    with pytest.raises(NotImplementedError):
        linalg.eigh_tridiagonal(d, e, select="v", select_range=(0, 1))


def test_the_off_diagonal_of_a_hermitian_matrix_is_the_one_above():
    d, e = normal(5).astype(np.complex64), normal(4, dtype="complex64")
    values, vectors = map(np.asarray, linalg.eigh_tridiagonal(d, e))
    matrix = np.diag(d) + np.diag(e, 1) + np.diag(e.conj(), -1)
    assert_normwise(matrix @ vectors, vectors * values, 1e-5)


def test_structured_matrices():
    c, r = normal(4), normal(3)
    close(linalg.toeplitz(c), theirs.toeplitz(c))
    close(linalg.toeplitz(c, r), theirs.toeplitz(c, r))
    close(linalg.hankel(c), theirs.hankel(c))
    close(linalg.hankel(c, np.r_[c[-1], r]), theirs.hankel(c, np.r_[c[-1], r]))
    close(linalg.circulant(c), theirs.circulant(c))
    close(linalg.leslie(c, r), theirs.leslie(c, r))
    close(linalg.companion(c), theirs.companion(c))
    close(linalg.fiedler(c), theirs.fiedler(c))
    for mode in ("full", "same", "valid"):
        close(linalg.convolution_matrix(r, 5, mode), theirs.convolution_matrix(r, 5, mode))
    for n in (1, 4):
        close(linalg.hilbert(n), theirs.hilbert(n))
        close(linalg.invhilbert(n), theirs.invhilbert(n))
        close(linalg.hadamard(n), theirs.hadamard(n))
        close(linalg.helmert(n, full=True), theirs.helmert(n, full=True))
        for kind in ("symmetric", "lower", "upper"):
            close(linalg.pascal(n, kind), theirs.pascal(n, kind))
            close(linalg.invpascal(n, kind), theirs.invpascal(n, kind))
        for scale in (None, "n", "sqrtn"):
            close(linalg.dft(n, scale), theirs.dft(n, scale))
    close(linalg.block_diag(normal(2, 3) * 0 + 1, r, 2.0), theirs.block_diag(np.ones((2, 3)), r, 2.0))
    assert linalg.block_diag().shape == (1, 0)
    stack = normal(2, 4)
    close(linalg.toeplitz(stack), np.stack([theirs.toeplitz(s) for s in stack]))


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: linalg.solve(np.eye(3), np.ones(3), assume_a="tri"), ValueError),
        (lambda: linalg.solve_triangular(np.eye(3), np.ones(3), trans="X"), ValueError),
        (lambda: linalg.solve_triangular(np.eye(3), np.ones(4)), ValueError),
        (lambda: linalg.lu_solve(linalg.lu_factor(np.eye(3)), np.ones(3), trans=3), ValueError),
        (lambda: linalg.qr(np.eye(3), mode="raw"), ValueError),
        (lambda: linalg.eigh(np.eye(3), np.eye(3)), NotImplementedError),
        (lambda: linalg.schur(np.eye(3), output="both"), ValueError),
        (lambda: linalg.expm(np.ones((2, 3))), ValueError),
        (lambda: linalg.expm_frechet(np.eye(2), np.eye(3)), ValueError),
        (lambda: linalg.sqrtm(np.eye(2), 2), NotImplementedError),
        (lambda: linalg.polar(np.eye(2), "up"), ValueError),
        (lambda: linalg.block_diag(np.ones((1, 1, 1))), ValueError),
        (lambda: linalg.pascal(3, "flat"), ValueError),
        (lambda: linalg.hadamard(3), ValueError),
        (lambda: linalg.dft(3, "x"), ValueError),
        (lambda: linalg.leslie(np.ones(3), np.ones(3)), ValueError),
        (lambda: linalg.rsf2csf(np.ones((2, 3)), np.eye(2)), ValueError),
        (lambda: linalg.solve_sylvester(np.eye(2), np.eye(3), np.ones((3, 2))), ValueError),
    ],
)
def test_errors(call, error):
    with pytest.raises(error):
        call()


def test_batches_of_vectors_warn():
    a = np.stack([definite(), definite()])
    b = normal(2, 4)
    with pytest.warns(FutureWarning):
        got = linalg.cho_solve(linalg.cho_factor(a), b)
    close(got, np.linalg.solve(a, b[..., None])[..., 0])


def test_sharding_never_changes_values():
    mesh = sw.sharding.Mesh(np.array(sw.devices()), ("x",))
    x = np.stack([definite() for _ in range(8)])
    split = sw.device_put(x, NamedSharding(mesh, PartitionSpec("x")))
    functions: list[Any] = [linalg.cholesky, linalg.expm, linalg.lu, lambda a: linalg.solve(a, a)]
    for f in functions:
        close(sw.jit(f)(split), f(x))


def test_sylvester_equations_broadcast():
    a, b = definite(3), definite(4)
    batch = np.stack([definite(3), definite(3)])
    for coefficients, right in (((batch, b), normal(3, 4)), ((a, b), normal(2, 3, 4)), ((a, b[None]), normal(2, 3, 4))):
        x = linalg.solve_sylvester(*coefficients, right)
        assert x.shape == (2, 3, 4)
        close(coefficients[0] @ x + x @ coefficients[1], np.broadcast_to(right, x.shape))


def test_schur_forms_broadcast_their_batches():
    forms = np.triu(np.arange(1.0, 28.0, dtype=np.float32).reshape(3, 3, 3))
    made = linalg.rsf2csf(forms, np.eye(3, dtype=np.float32))
    each = [linalg.rsf2csf(form, np.eye(3, dtype=np.float32)) for form in forms]
    for i in range(2):
        np.testing.assert_array_equal(np.asarray(made[i]), np.stack([np.asarray(one[i]) for one in each]))
    with pytest.raises(ValueError, match="must match"):
        linalg.rsf2csf(forms, np.eye(2))
