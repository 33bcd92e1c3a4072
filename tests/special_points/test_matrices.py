"""Linear algebra at special matrices: values and derivatives are JAX's, finite where JAX's are, and forward mode equals reverse.

What JAX answers is recorded in `matrices.jsonl.gz` (by `record_matrices.py`, since JAX compiles each function for a second).
"""

from __future__ import annotations

import functools
import gzip
import importlib
import json
import re
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.lax.linalg
import shardwise.scipy.linalg
from shardwise.base import config
from tests.special_points.matrices import FAMILIES, derivatives, library, stack, wave
from tests.special_points.record_matrices import RECORD, TABLES, entries, written

# Public names that are no functions of a matrix, and why.
SKIPPED = {
    "EigImplementation": "an enum", "EighImplementation": "an enum", "SvdAlgorithm": "an enum",
    "dft": "takes a size", "hadamard": "takes a size", "helmert": "takes a size", "hilbert": "takes a size",
    "invhilbert": "takes a size", "invpascal": "takes a size", "pascal": "takes a size",
}  # fmt: skip

ROUNDING = "the values are equal but for rounding: their distance, by which derivatives divide, is noise"
PIVOTS = "the last pivots are 0 but for rounding"
RANK = "the unitary factor of a singular matrix is not unique; an iteration leaves out of it what noise does not decide"
ZERO = "a value that is 0 but for rounding, which differs between processors"
SPREAD = "how far NaNs spread is up to the BLAS, whose loops differ between processors"
# Where we are not as JAX: patterns of keys and of names of matrices, the modes that are not compared ('both' is that of the two
# derivatives with each other), and why.
OURS: list[tuple[str, str, str, str]] = [
    (r"eigh\[", "orthogonal|symmetric, repeated|hermitian, repeated", "jvp vjp both", ROUNDING),
    (r"svd\[", "symmetric, repeated|no unit vectors|orthogonal|rank 1", "jvp vjp both", ROUNDING),
    (r"\.qr(_multiply)?\[", "rank|singular|zero column", "jvp vjp both", PIVOTS),
    (r"scipy.linalg.solve\[3\]", "rank|singular", "jvp vjp both", PIVOTS),
    (r"scipy.linalg.solve\[3\] complex", "", "vjp", "JAX takes a Hermitian matrix for its transpose"),
    (
        r"lstsq",
        "",
        "jvp vjp",
        "by a closed form, as that of pinv; JAX divides by distances of singular values, and squares a norm at 0",
    ),
    (r"lstsq", "nearly singular", "both", "ill-conditioned"),
    (
        r"polar",
        "",
        "jvp vjp",
        "by a closed form; JAX differentiates singular vectors, or iterations, which have no reverse mode",
    ),
    (r"polar", "rank|singular|zero|nilpotent", "value both", RANK),
    (r"qdwh", "rank|singular", "value", RANK),
    (r"slogdet", "nan", "value", "the sign of NaN is NaN"),
    (r"schur", "nan", "value", "vectors of NaN are NaN"),
    (r"sqrtm", "orthogonal|rank 2", "value", "roots of eigenvalues that are 0, or on the cut, but for rounding"),
    (r"solve_sylvester\[1\]", "nilpotent", "value", "the Schur form exists where eigenvectors are too few"),
    (
        r"toeplitz|hankel|convolution_matrix",
        "nan",
        "value",
        "JAX computes them by products, which spread NaN over rows",
    ),
    (
        r"norm\[",
        "nan",
        "jvp vjp",
        "where the largest sum is NaN so is its derivative; JAX finds no largest one, and gives 0",
    ),
    (r"cond\[0\] complex", "rank 1", "vjp", "a least singular value that is 0 but for rounding"),
    (r"cholesky\[|cho_factor\[", "nan", "value jvp vjp", SPREAD),
    (r"linalg\.lu(_factor)?\[", "nan|rank 1|zero", "vjp", SPREAD),
    (r"cholesky\[2\]|cho_factor\[0\]|scipy.linalg.solve\[3\]", "rank", "value jvp vjp both", ZERO),
    (r"cond\[", "rank|, singular", "value jvp vjp both", ZERO),
    (r"norm\[[26]\]|svd|eigvals\[|lax.linalg.eig\[", "rank 1", "jvp vjp both", ZERO),
    (r"funm|sqrtm", "rank", "value", ZERO),
    (r"pinv", "nearly singular", "both", "ill-conditioned"),
    (r"jnp.linalg.qr\[3\]", "hermitian", "value", "the last reflector turns what is 0 but for rounding"),
]
ENTRIES = list(entries())


@pytest.fixture(autouse=True, scope="module")
def latest():
    before = config.shardwise_dialect
    config.update("shardwise_dialect", "latest")
    yield
    config.update("shardwise_dialect", before)


@functools.cache
def recorded() -> dict[str, Any]:
    return dict(map(json.loads, gzip.decompress(RECORD.read_bytes()).decode().splitlines()))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_decompositions_return_from_infinities(value):
    x = np.array([[value, 2, 0], [1, 3, 1], [0, 1, 1], [2, 1, 0]], np.float32)
    for a in (x, x[:3], x.T, x[:3].astype(np.complex64)):
        for part in (*sw.numpy.linalg.svd(a), *sw.numpy.linalg.svd(a, full_matrices=False), sw.numpy.linalg.pinv(a)):
            assert np.isnan(part).all()
    # Matrices beside it in a stack do not feel it.
    u, s, vh = sw.numpy.linalg.svd(np.stack([x, np.eye(4, 3, dtype=np.float32)]))
    assert np.isnan(s[0]).all()
    np.testing.assert_allclose(s[1], 1)
    np.testing.assert_allclose((u[1, :, :3] * s[1]) @ vh[1], np.eye(4, 3), atol=1e-6)


def test_options_of_iterations_and_tolerances_act():
    x = np.array([[1, 2], [3, 1], [0.5, 2]], np.float32)
    exact, once = sw.scipy.linalg.polar(x)[0], sw.scipy.linalg.polar(x, max_iterations=1)[0]
    assert np.abs(np.asarray(once - exact)).max() > 1e-2
    np.testing.assert_allclose(sw.scipy.linalg.polar(x, eps=1e-6)[0], exact, atol=1e-5)
    np.testing.assert_allclose(sw.scipy.linalg.polar(x.T, "left", max_iterations=10)[0], exact.T, atol=1e-5)
    *_, steps, converged = sw.lax.linalg.qdwh(x, max_iterations=2)
    assert (int(steps), bool(converged)) == (2, False)
    *_, steps, converged = sw.lax.linalg.qdwh(x)
    assert (2 < int(steps) < 10, bool(converged)) == (True, True)
    tangents = [
        sw.jvp(f, (x,), (x[::-1].copy(),))[1] for f in (sw.scipy.linalg.polar, lambda x: sw.lax.linalg.qdwh(x)[:2])
    ]
    sw.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), tuple(tangents[0]), tuple(tangents[1]))

    a, b, c = np.diag([1.0, 2.0]).astype("f"), np.diag([-0.5, -1.9]).astype("f"), np.ones((2, 2), "f")
    assert np.isfinite(sw.scipy.linalg.solve_sylvester(a, b, c)).all()
    assert np.isnan(sw.scipy.linalg.solve_sylvester(a, b, c, tol=0.2)).all()


def test_every_public_function_is_in_a_table_or_skipped():
    for table, functions in TABLES.items():
        module = importlib.import_module(f"shardwise.{table.replace('jnp', 'numpy')}")
        names = {n for n in module.__all__ if not n.endswith("_p")}
        assert names == set(functions) | names & set(SKIPPED), table


def test_the_record_is_that_of_the_tables():
    assert set(recorded()) == {key for key, *_ in ENTRIES}


def differences(key: str, call: Any, dtype: str, kind: str, f: int) -> list[str]:
    names, xs = stack(FAMILIES[kind][f], dtype)
    theirs = recorded()[key]
    if theirs is None:
        return []
    lib, found, ours = library(sw), [], {}
    modes = [m for m in ("jvp", "vjp") if m in theirs or (m == "vjp" and "polar" in key)] or ["value"]
    for mode in modes:
        try:
            answer = sw.vmap(lambda x, mode=mode: derivatives(lib, call, x, mode))(xs)
        except Exception as error:
            found.append(f"{key} {mode}: {type(error).__name__}: {error}"[:300])
        else:
            ours |= {m: [np.asarray(leaf) for leaf in leaves] for m, leaves in answer.items()}
    found += unlike(key, names, ours)
    if {"jvp", "vjp"} <= ours.keys():
        for i, name in enumerate(names):
            if "both" not in _skipped(key, name):
                found += _modes_agree(f"{key} {name}", xs[i], [d[i] for d in ours["jvp"]], ours["vjp"][0][i])
    return found


def _skipped(key: str, name: str) -> set[str]:
    return {m for part, matrix, ms, _ in OURS if re.search(part, key) and re.search(matrix, name) for m in ms.split()}


def unlike(key: str, names: list[str], answers: dict[str, list[np.ndarray[Any, Any]]]) -> list[str]:
    """Where answers on a family differ from the recorded ones."""
    theirs, found = recorded()[key], []
    for i, name in enumerate(names):
        for mode in (answers.keys() & theirs.keys()) - _skipped(key, name):
            for j, (stacked, (dtype_name, shape, text)) in enumerate(zip(answers[mode], theirs[mode], strict=True)):
                x = stacked[i]
                if (x.dtype.name, list(x.shape)) != (dtype_name, shape):
                    found.append(f"{key} {name} {mode} {j}: {x.dtype}{x.shape}, JAX {dtype_name}{shape}")
                elif not _alike(x, text, i, mode, 2e-2 if name == "nearly singular" else 1e-3):
                    found.append(f"{key} {name} {mode} {j}: {x.tolist()}, JAX {_read(text, i, mode, x.dtype.kind)}")
    return found


def _read(text: Any, i: int, mode: str, kind: str) -> Any:
    """What the record says of one matrix."""
    if kind == "c":
        return [_read(part, i, mode, "f") for part in text]
    return [part[i] for part in text] if kind == "f" and mode != "jvp" else text[i]


def _alike(x: np.ndarray[Any, Any], text: Any, i: int, mode: str, tolerance: float) -> bool:
    if x.dtype.kind == "c":
        return _alike(x.real, text[0], i, mode, tolerance) and _alike(x.imag, text[1], i, mode, tolerance)
    if x.dtype.kind in "iub":
        return x.tolist() == text[i]
    marks = written(x[None], numbers=False)[0]
    if mode == "jvp":
        return marks == text[i]
    lines, numbers = text
    if marks != lines[i]:
        return False
    want, finite = np.array(numbers[i]), np.isfinite(x.ravel())
    scale = max(1.0, np.abs(want).max(initial=0))
    return bool((np.abs(x.ravel() - want)[finite] <= tolerance * scale).all())


def _modes_agree(
    key: str, x: np.ndarray[Any, Any], forward: list[np.ndarray[Any, Any]], gradient: np.ndarray[Any, Any]
) -> list[str]:
    """The product of a cotangent with the forward derivative is that of the gradient with the tangent."""
    if not np.isfinite(gradient).all() or not all(np.isfinite(d).all() for d in forward):
        return []
    pairs = [np.real(d * wave(d.shape, d.dtype, i)) for i, d in enumerate(forward)]
    left, right = sum(p.sum() for p in pairs), np.real(gradient * wave(x.shape, x.dtype, 0.3)).sum()
    scale = 1 + sum(np.abs(p).sum() for p in pairs) + np.abs(gradient).sum()
    return [] if abs(left - right) <= 1e-4 * scale else [f"{key}: forward {left}, reverse {right}"]


COMPLEX = [
    pytest.param(table, "complex64", marks=[] if table == "jnp.linalg" else pytest.mark.slow) for table in TABLES
]


@pytest.mark.parametrize(("table", "dtype"), [*[(table, "float32") for table in TABLES], *COMPLEX])
def test_values_and_derivatives_are_those_of_jax(table, dtype):
    found = []
    with np.errstate(all="ignore"):
        for key, case, name, kind, f in ENTRIES:
            if key.startswith(table) and name == dtype:
                found += differences(key, case.call, dtype, kind, f)
    assert not found, f"{len(found)} differ:\n" + "\n".join(found)
