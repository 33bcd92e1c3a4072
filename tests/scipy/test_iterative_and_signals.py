"""Iterative solvers, interpolation, cosine transforms, convolutions and code books, beside SciPy's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.cluster.vq
import scipy.fft
import scipy.ndimage
import scipy.signal

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.experimental import enable_x64
from shardwise.experimental.sparse import BCOO
from shardwise.scipy import cluster, fft, integrate, ndimage, signal
from shardwise.scipy.sparse import linalg
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

RNG = np.random.default_rng(3)
SQUARE = RNG.standard_normal((6, 6))
DEFINITE = SQUARE @ SQUARE.T + np.eye(6)
RIGHT = RNG.standard_normal(6)


@pytest.fixture(autouse=True)
def double_precision():
    with enable_x64():
        yield


@pytest.mark.parametrize("solver", [linalg.cg, linalg.bicgstab, linalg.gmres])
def test_solvers(solver) -> None:
    expected = np.linalg.solve(DEFINITE, RIGHT)
    x, info = solver(DEFINITE, RIGHT, tol=1e-10)
    assert info is None if solver is not linalg.gmres else info == 0
    np.testing.assert_allclose(np.asarray(x), expected, rtol=1e-6)
    by_product = lambda a, b: solver(lambda v: a @ v, b, tol=1e-10)[0]  # noqa: E731
    np.testing.assert_allclose(np.asarray(sw.jit(by_product)(DEFINITE, RIGHT)), expected, rtol=1e-6)
    solved = lambda a, b: jnp.sum(jnp.linalg.solve(a, b) ** 2)  # noqa: E731
    iterated = lambda a, b: jnp.sum(solver(lambda v: a @ v, b, tol=1e-12)[0] ** 2)  # noqa: E731
    for ours, exact in zip(
        sw.grad(iterated, (0, 1))(DEFINITE, RIGHT), sw.grad(solved, (0, 1))(DEFINITE, RIGHT), strict=True
    ):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(exact), rtol=1e-5, atol=1e-8)


def test_solvers_on_trees_and_general_matrices() -> None:
    twice = lambda t: {"a": 2 * t["a"], "b": 4 * t["b"]}  # noqa: E731
    x = linalg.cg(twice, {"a": RIGHT, "b": np.ones((2, 2))})[0]
    np.testing.assert_allclose(np.asarray(x["a"]), RIGHT / 2, rtol=1e-6)
    np.testing.assert_allclose(np.asarray(x["b"]), np.full((2, 2), 0.25), rtol=1e-6)
    general = SQUARE + 5 * np.eye(6)
    for solver in (linalg.bicgstab, linalg.gmres):
        found = solver(general, RIGHT, tol=1e-10, M=lambda v: v / 5)[0]
        np.testing.assert_allclose(np.asarray(found), np.linalg.solve(general, RIGHT), rtol=1e-6)
    restarted = linalg.gmres(DEFINITE, RIGHT, tol=1e-10, restart=3, maxiter=500)[0]
    np.testing.assert_allclose(np.asarray(restarted), np.linalg.solve(DEFINITE, RIGHT), rtol=1e-6)


@pytest.mark.parametrize("solver", [linalg.cg, linalg.bicgstab, linalg.gmres])
def test_solutions_keep_the_shardings_of_trees(solver) -> None:
    mesh = Mesh(np.array(sw.devices()[:8]).reshape(4, 2), ("x", "y"))
    shardings = {"field": NamedSharding(mesh, P("x", "y")), "row": NamedSharding(mesh, P(None, "y"))}
    b = {"field": np.arange(32.0).reshape(4, 8), "row": np.ones((1, 8))}

    def product(v):
        around = jnp.roll(v["field"], 1, 1) + jnp.roll(v["field"], -1, 1)
        return {"field": 3 * v["field"] + around, "row": 2 * v["row"]}

    solve = sw.jit(lambda b: solver(product, b, tol=1e-12)[0])
    args = sw.device_put(b, shardings)
    x = solve(args)
    assert sw.tree.map(lambda a: a.sharding, x) == shardings
    back = sw.tree.map(np.asarray, product(x))
    np.testing.assert_allclose(back["field"], b["field"], atol=1e-9)
    np.testing.assert_allclose(back["row"], b["row"], atol=1e-9)
    # The parts of arrays are not gathered for inner products: devices exchange sums, and rows at borders.
    sent = {t.kind for t in solve.lower(args).compile().runtime_executable().transfers}
    assert sent <= {"all_reduce", "permute"}


def test_solver_mistakes() -> None:
    with pytest.raises(TypeError, match="A is a matrix, and b a tree of 2 arrays"):
        linalg.cg(jnp.eye(4), [jnp.ones(2), jnp.ones(2)])
    with pytest.raises(ValueError, match="square matrix"):
        linalg.cg(np.ones((2, 3)), np.ones(2))
    with pytest.raises(ValueError, match="matching shapes"):
        linalg.cg(DEFINITE, RIGHT, np.ones(5))
    with pytest.raises(TypeError, match=r"either a function or ndarray: got A=\[\[1\]\]"):
        linalg.cg([[1]], np.ones(1))
    with pytest.raises(ValueError, match="tree structure"):
        linalg.cg(DEFINITE, RIGHT, [RIGHT])
    with pytest.raises(ValueError, match="solve_method"):
        linalg.gmres(DEFINITE, RIGHT, solve_method="other")


@pytest.mark.parametrize(
    "mode, theirs",
    [
        ("constant", "constant"),
        ("nearest", "nearest"),
        ("mirror", "mirror"),
        ("reflect", "reflect"),
        ("wrap", "grid-wrap"),
    ],
)
@pytest.mark.parametrize("order", [0, 1])
def test_map_coordinates(mode: str, theirs: str, order: int) -> None:
    x = RNG.standard_normal((5, 7))
    at = (
        [RNG.uniform(0, 4, 20), RNG.uniform(0, 6, 20)]
        if mode == "constant"
        else [RNG.uniform(-9, 12, 20), RNG.uniform(-9, 15, 20)]
    )
    expected = scipy.ndimage.map_coordinates(x, at, order=order, mode=theirs)
    np.testing.assert_allclose(
        np.asarray(ndimage.map_coordinates(x, at, order, mode)), expected, rtol=1e-12, atol=1e-12
    )


def test_map_coordinates_of_integers_and_mistakes() -> None:
    assert ndimage.map_coordinates(np.arange(6), [np.array([0.4, 2.6, 9.0])], 1, cval=7).tolist() == [0, 3, 7]
    slope = sw.grad(lambda c: ndimage.map_coordinates(np.arange(5.0) ** 2, [c], 1))(2.5)
    np.testing.assert_allclose(slope, 5)
    with pytest.raises(NotImplementedError, match="order"):
        ndimage.map_coordinates(np.ones(3), [np.ones(1)], 3)
    with pytest.raises(NotImplementedError, match="mode"):
        ndimage.map_coordinates(np.ones(3), [np.ones(1)], 1, "grid")
    with pytest.raises(ValueError, match="length"):
        ndimage.map_coordinates(np.ones(3), [np.ones(1)] * 2, 1)


@pytest.mark.parametrize("norm", [None, "ortho"])
@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_cosine_transforms(size: int, norm: str | None) -> None:
    x = RNG.standard_normal((3, size))
    for name in ("dct", "idct"):
        ours, theirs = getattr(fft, name), getattr(scipy.fft, name)
        np.testing.assert_allclose(np.asarray(ours(x, norm=norm)), theirs(x, norm=norm), rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(
            np.asarray(ours(x, n=4, axis=0, norm=norm)), theirs(x, n=4, axis=0, norm=norm), rtol=1e-12, atol=1e-12
        )
        many, all_of = getattr(fft, f"{name}n"), getattr(scipy.fft, f"{name}n")
        np.testing.assert_allclose(np.asarray(many(x, norm=norm)), all_of(x, norm=norm), rtol=1e-12, atol=1e-12)
    with pytest.raises(NotImplementedError, match="type 2"):
        fft.dct(x, type=3)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
def test_convolutions(mode: str) -> None:
    a, b = RNG.standard_normal(9), RNG.standard_normal(5)
    for name in ("convolve", "correlate", "fftconvolve"):
        ours, theirs = getattr(signal, name), getattr(scipy.signal, name)
        np.testing.assert_allclose(np.asarray(ours(a, b, mode)), theirs(a, b, mode), rtol=1e-12, atol=1e-12)
    x, y = RNG.standard_normal((6, 7)), RNG.standard_normal((3, 3)) + 1j * RNG.standard_normal((3, 3))
    for name in ("convolve2d", "correlate2d", "fftconvolve", "convolve"):
        ours, theirs = getattr(signal, name), getattr(scipy.signal, name)
        np.testing.assert_allclose(np.asarray(ours(x, y, mode)), theirs(x, y, mode), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        np.asarray(signal.convolve(a, b, mode, method="fft")), np.asarray(signal.convolve(a, b, mode)), atol=1e-12
    )


def test_signal_mistakes() -> None:
    with pytest.raises(ValueError, match="number of dimensions"):
        signal.convolve(np.ones(3), np.ones((3, 3)))
    with pytest.raises(ValueError, match="mode"):
        signal.convolve(np.ones(3), np.ones(3), "half")
    with pytest.raises(ValueError, match="smaller than the other"):
        signal.convolve2d(np.ones((2, 5)), np.ones((3, 3)), "valid")
    with pytest.raises(NotImplementedError, match="boundary"):
        signal.convolve2d(np.ones((3, 3)), np.ones((2, 2)), boundary="wrap")


def test_detrend_trapezoid_and_code_books() -> None:
    x = RNG.standard_normal((4, 9))
    cases: list[dict[str, Any]] = [{}, {"axis": 0}, {"type": "constant"}, {"bp": 4}]
    for options in cases:
        ours, theirs = signal.detrend(x, **options), scipy.signal.detrend(x, **options)
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(np.asarray(integrate.trapezoid(np.arange(4.0) ** 2, dx=0.5)), 4.75, rtol=1e-12)
    rows, book = RNG.standard_normal((7, 3)), RNG.standard_normal((4, 3))
    for ours, theirs in zip(cluster.vq.vq(rows, book), scipy.cluster.vq.vq(rows, book), strict=True):
        np.testing.assert_allclose(np.asarray(ours), theirs, rtol=1e-12)


def test_operators_that_are_no_arrays() -> None:
    """A sparse matrix, or any object with ``@`` and a square shape."""
    dense = np.diag([2.0, 3.0, 4.0]) + np.eye(3, k=1) * 0.5 + np.eye(3, k=-1) * 0.5
    b = np.arange(1.0, 4)

    class Scaled:
        shape = (3, 3)

        def __matmul__(self, v: Any) -> Any:
            return jnp.asarray(dense) @ v

    expected = np.linalg.solve(dense, b)
    for solver in (linalg.cg, linalg.bicgstab, linalg.gmres):
        for a in (Scaled(), BCOO.fromdense(jnp.asarray(dense))):
            np.testing.assert_allclose(solver(a, jnp.asarray(b), tol=1e-9)[0], expected, rtol=1e-7)
    with pytest.raises(ValueError, match="square"):
        linalg.cg(BCOO.fromdense(jnp.ones((2, 3))), jnp.ones(3))
