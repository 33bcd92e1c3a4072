"""Cases for the derivatives of linear algebra, real and complex; see `op_cases`."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from tests.transforms.op_cases import Case, compl, normal

CASES: list[Case] = []


def _case(name: str, function: Any, *args: Any, **options: Any) -> None:
    """`function(la, jnp, *args)`, where `la` is the library's lax.linalg."""

    def with_library(lax: Any, *xs: Any) -> Any:
        root = lax.__name__.partition(".")[0]
        load = lambda name: importlib.import_module(f"{root}.{name}")  # noqa: E731
        return function(load("lax.linalg"), load("numpy"), *xs)

    CASES.append(Case(name, with_library, args, **options))


def _definite(x: np.ndarray) -> np.ndarray:
    exact = x @ np.conj(np.swapaxes(x, -1, -2)) + np.eye(x.shape[-1]) / 2
    return np.round(exact, 8) + 0.0  # the same on all processors, signs of zeros included


def _hermitian(jnp: Any, x: Any) -> Any:
    return (x + jnp.conj(jnp.swapaxes(x, -1, -2))) / 2


def _square(jnp: Any, x: Any) -> Any:
    """What eigenvectors are up to their phase: the squares of their absolute values."""
    return jnp.real(x * jnp.conj(x))


def _triangular(kind: str, make: Any, left: int, lower: int, transpose: int, conjugate: int, unit: int) -> None:
    def function(la: Any, jnp: Any, a: Any, b: Any) -> Any:
        return la.triangular_solve(
            a,
            b,
            left_side=bool(left),
            lower=bool(lower),
            transpose_a=bool(transpose),
            conjugate_a=bool(conjugate),
            unit_diagonal=bool(unit),
        )

    b = make(2, 3, 4) if left else make(2, 4, 3)
    _case(f"triangular_{left}{lower}{transpose}{conjugate}{unit}_{kind}", function, make(2, 3, 3) + 3 * np.eye(3), b)


for _kind, _make in (("r", normal), ("c", compl)):
    _case(f"cholesky_{_kind}", lambda la, jnp, x: la.cholesky(x), _definite(_make(2, 3, 3)))
    for _flags in range(32):
        _bits = [_flags >> i & 1 for i in range(5)]
        if sum(_bits) % 2:
            _triangular(_kind, _make, *_bits)
    for _m, _n in ((3, 3), (4, 2), (2, 4)):
        _case(f"lu_{_m}{_n}_{_kind}", lambda la, jnp, x: la.lu(x)[0], _make(2, _m, _n))
        _case(f"svd_values_{_m}{_n}_{_kind}", lambda la, jnp, x: la.svd(x, compute_uv=False), _make(2, _m, _n))
        _case(
            f"svd_left_{_m}{_n}_{_kind}",
            lambda la, jnp, x: _square(jnp, la.svd(x, full_matrices=False)[0]),
            _make(2, _m, _n),
        )
        _case(
            f"svd_right_{_m}{_n}_{_kind}",
            lambda la, jnp, x: _square(jnp, la.svd(x, full_matrices=False)[2]),
            _make(2, _m, _n),
        )
    for _m, _n in ((3, 3), (4, 2)):
        _case(f"q_{_m}{_n}_{_kind}", lambda la, jnp, x: la.qr(x, full_matrices=False)[0], _make(2, _m, _n))
        _case(f"r_{_m}{_n}_{_kind}", lambda la, jnp, x: la.qr(x, full_matrices=False)[1], _make(2, _m, _n))
    _case(f"eigh_values_{_kind}", lambda la, jnp, x: la.eigh(_hermitian(jnp, x))[1], _make(2, 3, 3))
    _case(f"eigh_vectors_{_kind}", lambda la, jnp, x: _square(jnp, la.eigh(_hermitian(jnp, x))[0]), _make(2, 3, 3))
    _case(f"eigvals_{_kind}", lambda la, jnp, x: jnp.sum(jnp.linalg.eigvals(x) ** 3), _make(2, 3, 3), second=False)
    for _n in (1, 2, 3, 4):
        _case(f"det_{_n}_{_kind}", lambda la, jnp, x: jnp.linalg.det(x), _make(2, _n, _n))
    _case(f"slogdet_sign_{_kind}", lambda la, jnp, x: jnp.linalg.slogdet(x)[0], _make(2, 3, 3))
    _case(f"slogdet_{_kind}", lambda la, jnp, x: jnp.linalg.slogdet(x)[1], _make(2, 3, 3))
    _case(f"solve_{_kind}", lambda la, jnp, a, b: jnp.linalg.solve(a, b), _make(2, 3, 3), _make(2, 3, 4))
    _case(f"inv_{_kind}", lambda la, jnp, x: jnp.linalg.inv(x), _make(2, 3, 3))
_case("det_singular", lambda la, jnp, x: jnp.linalg.det(x), np.array([[1.0, 2, 3], [2, 4, 6], [1, 0, 1]]))
_case("det_rank_one", lambda la, jnp, x: jnp.linalg.det(x), np.ones((3, 3)))
_case("det_singular_4", lambda la, jnp, x: jnp.linalg.det(x), np.diag([1.0, 2, 3, 0]), second=False)
_edge = np.array([0.0, 1, 1, 1])
_case(
    "tridiagonal_solve",
    lambda la, jnp, dl, d, du, b: la.tridiagonal_solve(dl * _edge, d + 3, du * _edge[::-1], b),
    normal(4),
    normal(4),
    normal(4),
    normal(4, 2),
)
