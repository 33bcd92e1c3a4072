"""The public functions of linear algebra as functions of one matrix, for the comparison with JAX at special matrices.

Each case takes a library's names and a matrix. Factors that are unique only up to signs, phases or the choice of a basis
come back as what does not depend on these: products that give the matrix back, and functions of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """`call(lib, x)` for matrices x of these `kinds`: 's'quare, 't'all, 'w'ide."""

    call: Callable[[Any, Any], Any]
    kinds: str = "s"
    derivative: bool = True


def mirror(lib: Any, x: Any) -> Any:
    """The conjugate transpose."""
    return lib.np.conj(lib.np.swapaxes(x, -1, -2))


def definite(lib: Any, x: Any) -> Any:
    return mirror(lib, x) @ x


def hermitian(lib: Any, x: Any) -> Any:
    return (x + mirror(lib, x)) / 2


def constant(x: Any, rows: int, columns: int | None = None) -> Any:
    """Fixed well conditioned numbers of the dtype of x."""
    rng = np.random.default_rng(5)
    out = rng.normal(size=(rows,) if columns is None else (rows, columns))
    if np.dtype(x.dtype).kind == "c":
        out = out + 1j * rng.normal(size=out.shape)
    return (out + (2 * np.eye(*out.shape) if columns is not None else 0)).astype(x.dtype)


def rebuilt(u: Any, s: Any, v: Any) -> Any:
    return (u * s[..., None, :].astype(u.dtype)) @ v


def thin(u: Any, s: Any, vh: Any) -> tuple[Any, Any, Any]:
    k = s.shape[-1]
    return u[..., :k], s, vh[..., :k, :]


def svd_parts(lib: Any, found: Any) -> Any:
    """Singular values, the matrix, and a function of it: the parts without the freedom of signs."""
    u, s, vh = thin(*found)
    return s, rebuilt(u, s, vh), rebuilt(u, s * s * s, vh)


def eigh_parts(lib: Any, values: Any, vectors: Any) -> Any:
    return (
        values,
        rebuilt(vectors, values, mirror(lib, vectors)),
        rebuilt(vectors, lib.np.exp(values), mirror(lib, vectors)),
    )


def moments(lib: Any, w: Any) -> Any:
    """What does not depend on the order of eigenvalues."""
    return lib.np.sum(w), lib.np.sum(w * w), lib.np.sum(w**3)


def qr_parts(lib: Any, q: Any, r: Any) -> Any:
    return q @ r, mirror(lib, r) @ r, mirror(lib, q) @ q


def pivoted(lib: Any, q: Any, r: Any, p: Any) -> Any:
    return (*qr_parts(lib, q, r), p)


NORMS = (None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)


def _norms(name: str) -> list[Case]:
    def of(order: Any) -> Case:
        if name == "norm":
            return Case(lambda lib, x: lib.linalg.norm(x, ord=order, axis=(-2, -1)), "stw")
        return Case(lambda lib, x: lib.linalg.matrix_norm(x, ord="fro" if order is None else order), "stw")

    return [of(order) for order in NORMS]


def _solved(name: str) -> list[Case]:
    return [
        Case(lambda lib, x: getattr(lib.linalg, name)(x, constant(x, x.shape[-1]))),
        Case(lambda lib, x: getattr(lib.linalg, name)(x, constant(x, x.shape[-1], 2))),
    ]


def _triangular(lib: Any, x: Any, **options: Any) -> Any:
    n = x.shape[-1]
    return lib.lax.linalg.triangular_solve(x, constant(x, n, n), **options)


NUMPY: dict[str, list[Case]] = {
    "cholesky": [
        Case(lambda lib, x: lib.linalg.cholesky(x)),
        Case(lambda lib, x: lib.linalg.cholesky(x, upper=True, symmetrize_input=False)),
        Case(lambda lib, x: lib.linalg.cholesky(definite(lib, x))),
    ],
    "cond": [Case(lambda lib, x, p=p: lib.linalg.cond(x, p)) for p in (None, -2, 1, -1, np.inf, "fro")]
    + [Case(lambda lib, x: lib.linalg.cond(x), "tw")],
    "cross": [Case(lambda lib, x: lib.linalg.cross(x[..., :3], constant(x, 3)), "s")],
    "det": [Case(lambda lib, x: lib.linalg.det(x))],
    "diagonal": [Case(lambda lib, x, o=o: lib.linalg.diagonal(x, offset=o), "stw") for o in (0, 1)],
    "eig": [Case(lambda lib, x: moments(lib, lib.linalg.eig(x)[0]), derivative=False)],
    "eigh": [
        Case(lambda lib, x: eigh_parts(lib, *lib.linalg.eigh(x))),
        Case(lambda lib, x: lib.linalg.eigh(x, UPLO="U")[0]),
    ],
    "eigvals": [Case(lambda lib, x: moments(lib, lib.linalg.eigvals(x)))],
    "eigvalsh": [Case(lambda lib, x: lib.linalg.eigvalsh(x))],
    "inv": [Case(lambda lib, x: lib.linalg.inv(x))],
    "lstsq": [
        Case(lambda lib, x: lib.linalg.lstsq(x, constant(x, x.shape[0])), "stw"),
        Case(lambda lib, x: lib.linalg.lstsq(x, constant(x, x.shape[0], 2), rcond=0.4)[0], "stw"),
    ],
    "matmul": [Case(lambda lib, x: lib.linalg.matmul(x, constant(x, x.shape[-1], 2)), "stw")],
    "matrix_norm": _norms("matrix_norm"),
    "matrix_power": [Case(lambda lib, x, n=n: lib.linalg.matrix_power(x, n)) for n in (0, 1, 3, -2)],
    "matrix_rank": [
        Case(lambda lib, x: lib.linalg.matrix_rank(x), "stw", derivative=False),
        Case(lambda lib, x: lib.linalg.matrix_rank(x, 0.1), "stw", derivative=False),
    ],
    "matrix_transpose": [Case(lambda lib, x: lib.linalg.matrix_transpose(x), "stw")],
    "multi_dot": [Case(lambda lib, x: lib.linalg.multi_dot([x, constant(x, x.shape[-1], 2), constant(x, 2)]), "stw")],
    "norm": _norms("norm"),
    "outer": [Case(lambda lib, x: lib.linalg.outer(x[..., 0, :], x[..., :, 0]), "s")],
    "pinv": [
        Case(lambda lib, x: lib.linalg.pinv(x), "stw"),
        Case(lambda lib, x: lib.linalg.pinv(x, rtol=0.4), "stw"),
        Case(lambda lib, x: lib.linalg.pinv(x, hermitian=True)),
    ],
    "qr": [
        Case(lambda lib, x: qr_parts(lib, *lib.linalg.qr(x)), "stw"),
        Case(lambda lib, x: qr_parts(lib, *lib.linalg.qr(x, mode="complete")), "stw"),
        Case(lambda lib, x: definite(lib, lib.linalg.qr(x, mode="r")), "stw"),
        Case(lambda lib, x: tuple(lib.linalg.qr(x, mode="raw")), "stw", derivative=False),
    ],
    "slogdet": [Case(lambda lib, x: tuple(lib.linalg.slogdet(x)))],
    "solve": _solved("solve"),
    "svd": [
        Case(lambda lib, x: svd_parts(lib, lib.linalg.svd(x, full_matrices=False)), "stw"),
        Case(lambda lib, x: svd_parts(lib, lib.linalg.svd(x)), "stw", derivative=False),
        Case(lambda lib, x: lib.linalg.svd(x, compute_uv=False), "stw"),
        Case(lambda lib, x: svd_parts(lib, lib.linalg.svd(x, hermitian=True))),
        Case(lambda lib, x: lib.linalg.svd(x, hermitian=True, compute_uv=False)),
    ],
    "svdvals": [Case(lambda lib, x: lib.linalg.svdvals(x), "stw")],
    "tensordot": [Case(lambda lib, x: lib.linalg.tensordot(x, x, axes=2), "stw")],
    "tensorinv": [Case(lambda lib, x: lib.linalg.tensorinv(x, 1))],
    "tensorsolve": [Case(lambda lib, x: lib.linalg.tensorsolve(x, constant(x, x.shape[-1])))],
    "trace": [Case(lambda lib, x, o=o: lib.linalg.trace(x, offset=o), "stw") for o in (0, -1)],
    "vecdot": [Case(lambda lib, x: lib.linalg.vecdot(x, constant(x, x.shape[-1])), "stw")],
    "vector_norm": [Case(lambda lib, x, o=o: lib.linalg.vector_norm(x, ord=o, axis=-1), "stw") for o in (2, 0, 3)],
}

SCIPY: dict[str, list[Case]] = {
    "block_diag": [Case(lambda lib, x: lib.scipy.block_diag(x, x), "stw")],
    "cho_factor": [
        Case(lambda lib, x: lib.scipy.cho_factor(definite(lib, x))[0]),
        Case(lambda lib, x: lib.scipy.cho_factor(x, lower=True)[0]),
    ],
    "cho_solve": [
        Case(lambda lib, x, lower=lower: lib.scipy.cho_solve((x, lower), constant(x, x.shape[-1])))
        for lower in (True, False)
    ],
    "cholesky": [Case(lambda lib, x, lower=lower: lib.scipy.cholesky(x, lower=lower)) for lower in (True, False)],
    "circulant": [Case(lambda lib, x: lib.scipy.circulant(x[..., 0, :]))],
    "companion": [Case(lambda lib, x: lib.scipy.companion(x[..., 0, :]))],
    "convolution_matrix": [Case(lambda lib, x: lib.scipy.convolution_matrix(x[..., 0, :], 4))],
    "det": [Case(lambda lib, x: lib.scipy.det(x))],
    "eigh": [
        Case(lambda lib, x: eigh_parts(lib, *lib.scipy.eigh(x))),
        Case(lambda lib, x: lib.scipy.eigh(x, lower=False, eigvals_only=True)),
    ],
    "eigh_tridiagonal": [
        Case(
            lambda lib, x: lib.scipy.eigh_tridiagonal(
                lib.np.real(lib.np.diagonal(x)), lib.np.real(lib.np.diagonal(x, 1)), eigvals_only=True
            ),
            derivative=False,
        )
    ],
    "expm": [
        Case(lambda lib, x: lib.scipy.expm(x)),
        Case(lambda lib, x: lib.scipy.expm(lib.np.triu(x), upper_triangular=True)),
        Case(lambda lib, x: lib.scipy.expm(x, max_squarings=1), derivative=False),
    ],
    "expm_frechet": [
        Case(lambda lib, x: lib.scipy.expm_frechet(x, constant(x, x.shape[-1], x.shape[-1]))),
        Case(
            lambda lib, x: lib.scipy.expm_frechet(
                x, constant(x, x.shape[-1], x.shape[-1]), method="blockEnlarge", compute_expm=False
            )
        ),
    ],
    "fiedler": [Case(lambda lib, x: lib.scipy.fiedler(x[..., 0, :]))],
    "fiedler_companion": [Case(lambda lib, x: lib.scipy.fiedler_companion(x[..., 0, :]))],
    "funm": [Case(lambda lib, x: lib.scipy.funm(x, lib.np.exp), derivative=False)],
    "hankel": [Case(lambda lib, x: lib.scipy.hankel(x[..., 0, :], x[..., 1, :]))],
    "hessenberg": [Case(lambda lib, x: lib.scipy.hessenberg(x, calc_q=True), derivative=False)],
    "inv": [Case(lambda lib, x: lib.scipy.inv(x))],
    "leslie": [Case(lambda lib, x: lib.scipy.leslie(x[..., 0, :], x[..., 1, 1:]))],
    "lu": [Case(lambda lib, x: lib.scipy.lu(x), "stw"), Case(lambda lib, x: lib.scipy.lu(x, permute_l=True), "stw")],
    "lu_factor": [Case(lambda lib, x: lib.scipy.lu_factor(x), "stw")],
    "lu_solve": [
        Case(lambda lib, x, t=t: lib.scipy.lu_solve(lib.scipy.lu_factor(x), constant(x, x.shape[-1], 2), trans=t))
        for t in (0, 1, 2)
    ],
    "polar": [
        Case(lambda lib, x: lib.scipy.polar(x), "st"),
        Case(lambda lib, x: lib.scipy.polar(x, side="left"), "sw"),
        Case(lambda lib, x: lib.scipy.polar(x, method="svd"), "stw"),
        Case(lambda lib, x: lib.scipy.polar(x, "left", method="svd"), "stw"),
    ],
    "qr": [
        Case(lambda lib, x: qr_parts(lib, *lib.scipy.qr(x)), "stw"),
        Case(lambda lib, x: qr_parts(lib, *lib.scipy.qr(x, mode="economic")), "stw"),
        Case(lambda lib, x: pivoted(lib, *lib.scipy.qr(x, mode="economic", pivoting=True)), "stw"),
        Case(lambda lib, x: definite(lib, lib.scipy.qr(x, mode="r")[0]), "stw"),
    ],
    "qr_multiply": [
        Case(lambda lib, x: definite(lib, lib.scipy.qr_multiply(x, constant(x, 2, x.shape[-2]))[1]), "stw")
    ],
    "rsf2csf": [
        Case(
            lambda lib, x: (lambda t, z: (z @ t @ mirror(lib, z), moments(lib, lib.np.diagonal(t))))(
                *lib.scipy.rsf2csf(*lib.scipy.schur(x))
            ),
            derivative=False,
        )
    ],
    "schur": [
        Case(
            lambda lib, x, o=o: (
                lambda t, z: (z @ t @ mirror(lib, z), mirror(lib, z) @ z, lib.np.sum(abs(lib.np.diagonal(t))))
            )(*lib.scipy.schur(x, o)),
            derivative=False,
        )
        for o in ("real", "complex")
    ],
    "solve": [
        Case(lambda lib, x, a=a: lib.scipy.solve(x, constant(x, x.shape[-1]), assume_a=a))
        for a in ("gen", "sym", "her")
    ]
    + [Case(lambda lib, x: lib.scipy.solve(definite(lib, x), constant(x, x.shape[-1]), assume_a="pos"))],
    "solve_sylvester": [
        Case(
            lambda lib, x, m=m: lib.scipy.solve_sylvester(x, constant(x, 2, 2), constant(x, x.shape[-1], 2), method=m),
            derivative=m == "eigen",
        )
        for m in ("schur", "eigen")
    ],
    "solve_triangular": [
        Case(
            lambda lib, x, t=t, lower=lower, u=u: lib.scipy.solve_triangular(
                x, constant(x, x.shape[-1]), trans=t, lower=lower, unit_diagonal=u
            )
        )
        for t in (0, 1, 2)
        for lower in (True, False)
        for u in (True, False)
    ],
    "sqrtm": [
        Case(lambda lib, x: lib.scipy.sqrtm(x), derivative=False),
        Case(lambda lib, x: lib.scipy.sqrtm(definite(lib, x)), derivative=False),
    ],
    "svd": [Case(lambda lib, x: svd_parts(lib, lib.scipy.svd(x, full_matrices=False)), "stw")],
    "toeplitz": [Case(lambda lib, x: lib.scipy.toeplitz(x[..., 0, :], x[..., 1, :]))],
}

LAX: dict[str, list[Case]] = {
    "cholesky": [
        Case(lambda lib, x: lib.lax.linalg.cholesky(x)),
        Case(lambda lib, x: lib.lax.linalg.cholesky(x, symmetrize_input=False)),
    ],
    "cholesky_update": [
        Case(
            lambda lib, x: lib.lax.linalg.cholesky_update(x, lib.np.real(x)[..., 0, :].astype(x.dtype)),
            derivative=False,
        )
    ],
    "eig": [
        Case(
            lambda lib, x: moments(
                lib, lib.lax.linalg.eig(x, compute_left_eigenvectors=False, compute_right_eigenvectors=False)[0]
            )
        )
    ],
    "eigh": [
        Case(lambda lib, x, lower=lower: eigh_parts(lib, *lib.lax.linalg.eigh(x, lower=lower)[::-1]))
        for lower in (True, False)
    ]
    + [Case(lambda lib, x: eigh_parts(lib, *lib.lax.linalg.eigh(x, symmetrize_input=False)[::-1]), derivative=False)],
    "hessenberg": [Case(lambda lib, x: lib.lax.linalg.hessenberg(x), derivative=False)],
    "householder_product": [
        Case(lambda lib, x: lib.lax.linalg.householder_product(x, constant(x, min(x.shape))), "st", derivative=False)
    ],
    "lu": [Case(lambda lib, x: lib.lax.linalg.lu(x), "stw")],
    "lu_pivots_to_permutation": [
        Case(
            lambda lib, x: lib.lax.linalg.lu_pivots_to_permutation(lib.lax.linalg.lu(x)[1], x.shape[-2]),
            "stw",
            derivative=False,
        )
    ],
    "ormqr": [
        Case(
            lambda lib, x, t=t: lib.lax.linalg.ormqr(
                x, constant(x, x.shape[-1]), constant(x, x.shape[-2], 2), transpose=t
            ),
            "st",
            derivative=False,
        )
        for t in (False, True)
    ],
    "qdwh": [Case(lambda lib, x: lib.lax.linalg.qdwh(x)[:2], "st", derivative=False)],
    "qr": [
        Case(lambda lib, x, f=f: qr_parts(lib, *lib.lax.linalg.qr(x, full_matrices=f)), "stw") for f in (True, False)
    ]
    + [Case(lambda lib, x: pivoted(lib, *lib.lax.linalg.qr(x, pivoting=True)), "stw")],
    "schur": [Case(lambda lib, x: (lambda t, z: z @ t @ mirror(lib, z))(*lib.lax.linalg.schur(x)), derivative=False)],
    "svd": [
        Case(lambda lib, x: svd_parts(lib, lib.lax.linalg.svd(x, full_matrices=False)), "stw"),
        Case(lambda lib, x: lib.lax.linalg.svd(x, compute_uv=False), "stw"),
    ],
    "symmetric_product": [
        Case(
            lambda lib, x: lib.lax.linalg.symmetric_product(
                x, constant(x, x.shape[-2], x.shape[-2]), alpha=2.0, beta=0.5, symmetrize_output=True
            ),
            "stw",
            derivative=False,
        )
    ],
    "triangular_solve": [
        Case(
            lambda lib, x, o=dict(left_side=side, lower=w, transpose_a=t, conjugate_a=t, unit_diagonal=u): _triangular(
                lib, x, **o
            )
        )
        for side in (True, False)
        for w in (True, False)
        for t in (True, False)
        for u in (True, False)
    ],
    "tridiagonal": [Case(lambda lib, x: lib.lax.linalg.tridiagonal(x)[1:3], derivative=False)],
    "tridiagonal_solve": [
        Case(
            lambda lib, x: lib.lax.linalg.tridiagonal_solve(
                x[..., 0, :], x[..., 1, :], x[..., 2, :], constant(x, x.shape[-1], 2)
            )
        )
    ],
}
