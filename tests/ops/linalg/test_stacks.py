"""Many small matrices, one per lane: what LAPACK's functions for any matrices give, those that fail included."""

import numpy as np
import pytest

from shardwise.ops.linalg import determinants, lapack, stacks
from shardwise.ops.linalg.matrix_functions import _expm  # pyright: ignore[reportPrivateUsage]
from shardwise.runtime import costs
from shardwise.runtime.machine import available

pytestmark = [
    pytest.mark.skipif(not available(), reason="nothing can be compiled here"),
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]
# Systems of random matrices: the worst of some hundred has a condition of thousands.
TOLERANCE = {np.float32: 3e-3, np.float64: 1e-9}
COUNT = costs.STACKED_FEWEST + 3  # not a multiple of the lanes


def matrices(dtype, m, n):
    """Usual ones after those that functions may fail for."""
    x = np.random.default_rng(m * n).normal(size=(COUNT, m, n)).astype(dtype)
    least, most = (1e-34, 1e30) if dtype is np.float32 else (1e-300, 1e300)
    x[0], x[1], x[2, 0], x[3], x[4] = 0, -0.0, np.nan, np.inf, np.eye(m, n)
    x[5, :, 0], x[6, 0, 0], x[7, :, -1] = 0, -np.inf, np.nan
    x[8], x[9], x[10] = least * x[8], most * x[9], np.tril(x[10])
    return x


def agree(got, want, dtype):
    for x, y in zip(got, want, strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype
        np.testing.assert_array_equal(np.isfinite(x), np.isfinite(y))
        np.testing.assert_array_equal(np.isnan(x), np.isnan(y))
        x, y = (np.where(np.isfinite(v), v, 0) for v in (x, y))
        scale = np.abs(y).reshape(COUNT, -1).max(1).reshape(-1, *[1] * (y.ndim - 1)) + np.finfo(dtype).tiny
        assert np.max(np.abs(x - y) / scale) < TOLERANCE[dtype]


FUNCTIONS = {
    "det": (lambda x: [determinants.det(x)], lambda x: [determinants._det(x)]),
    "slogdet": (determinants.slogdet, determinants._slogdet),
    "lu": (lapack.lu, lapack._lu),
    "qr": (lambda x: lapack.qr(x, False, False), lambda x: lapack._qr(x, min(x.shape[-2:]))),
    "full qr": (lambda x: lapack.qr(x, True, False), lambda x: lapack._qr(x, x.shape[-2])),
    "solve": (lambda x: [lapack.solve(x, x[::-1], False)], lambda x: [lapack._general(x, x[::-1], False)]),
    "transposed": (lambda x: [lapack.solve(x, x[::-1], True)], lambda x: [lapack._general(x, x[::-1], True)]),
    **{
        f"lower={lower}, unit={unit}": (
            lambda x, lower=lower, unit=unit: [lapack.triangular_solve(x, x[::-1], True, lower, False, False, unit)],
            lambda x, lower=lower, unit=unit: [
                np.concatenate(
                    [
                        lapack.triangular_solve(a, b, True, lower, False, False, unit)
                        for a, b in zip(x[:, None], x[::-1, None], strict=True)
                    ]
                )
            ],
        )
        for lower, unit in ((True, False), (False, True))
    },
    "inv": (
        lambda x: [lapack.solve(x, np.eye(x.shape[-1], dtype=x.dtype)[None], False)],
        lambda x: [lapack._general(x, np.eye(x.shape[-1], dtype=x.dtype)[None], False)],
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    "dtype, m, n", [(np.float32, 2, 2), (np.float32, 5, 5), (np.float64, 3, 3), (np.float64, 4, 2)]
)
def test_as_for_any_matrices(name, dtype, m, n):
    if m != n and name not in ("lu", "qr", "full qr"):
        pytest.skip("of square matrices")
    x = matrices(dtype, m, n)
    if name in ("solve", "transposed") or "unit" in name:
        x[-11:] = 1  # right sides of those that fail
    if "unit" in name:
        x[11:] += 3 * np.eye(m, dtype=dtype)
    got = FUNCTIONS[name][0](x)
    agree(got, FUNCTIONS[name][1](x), dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 3, 4])
def test_cholesky(dtype, n):
    x = matrices(dtype, n, n)[11:]
    x = np.concatenate([x @ x.swapaxes(-1, -2) + np.eye(n, dtype=dtype), np.zeros((8, n, n), dtype)])
    x[3] = -x[3]
    x[4, 0, 0] = np.nan
    x[:, np.triu(np.ones((n, n), bool), 1)] = np.nan  # is not read
    got = stacks.cholesky(x)
    assert got is not None
    failed = np.isnan(got[:, -1, 0])
    assert np.flatnonzero(failed).tolist() == [3, 4, *range(len(x) - 8, len(x))]
    assert not np.triu(got, 1).any()
    want = np.linalg.cholesky(np.where(failed[:, None, None], np.eye(n), np.tril(x)).astype(dtype))
    assert np.max(np.abs(np.where(failed[:, None, None], 0, got - want)[~failed])) < TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("lower", [True, False])
def test_eigenpairs_have_the_signs_of_lapack(dtype, lower):
    few = np.array([0, 1, -1, 2, -3, 0.5, 1e-9, 1e20, 1e-30, np.inf, np.nan], dtype)
    a, b, c = (v.reshape(-1) for v in np.meshgrid(few, few, few))
    some = np.random.default_rng(0).normal(size=(3, COUNT)).astype(dtype)
    a, b, c = (np.concatenate([x, y]) for x, y in zip((a, b, c), some, strict=True))
    x = np.stack([a, b, b, c], -1).reshape(-1, 2, 2)
    for got, want in zip(lapack.eigh(x, lower), lapack._eigh(x, lower), strict=True):
        scale = np.nan_to_num(np.abs(want), posinf=0).max(axis=tuple(range(1, want.ndim)), keepdims=True)
        assert np.all(np.nan_to_num(np.abs(got - want)) <= 8 * np.finfo(dtype).eps * scale)
        np.testing.assert_array_equal(np.isnan(got), np.isnan(want))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64])
def test_exponentials_at_once(dtype):
    import scipy.linalg

    rng = np.random.default_rng(0)
    x = (rng.normal(size=(20, 3, 3)) * np.logspace(-3, 1, 20)[:, None, None]).astype(dtype)
    if np.dtype(dtype).kind == "c":
        x += 1j * x[::-1]
    got = _expm(x, 16)
    want = scipy.linalg.expm(x.astype(np.complex128))
    scale = np.abs(want).max((1, 2), keepdims=True)
    assert got.dtype == dtype
    assert np.max(np.abs(got - want) / scale) < (1e-11 if dtype is np.float64 else 3e-4)
    assert np.isnan(_expm(np.full((20, 2, 2), 1e6, dtype), 3)).all()
