"""custom_linear_solve and custom_root: derivatives of exact solutions, whatever found them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.experimental import enable_x64
from shardwise.scipy.sparse.linalg import cg

RNG = np.random.default_rng(4)
A = RNG.standard_normal((4, 4)) + 4 * np.eye(4)
B = RNG.standard_normal(4)


@pytest.fixture(autouse=True)
def double_precision():
    with enable_x64():
        yield


def _dense(matvec: Any, b: Any) -> Any:
    """Solve by making the matrix."""
    return jnp.linalg.solve(sw.jacfwd(matvec)(b), b)


def implicit(a: Any, b: Any) -> Any:
    return lax.custom_linear_solve(lambda x: a @ x, b, _dense, _dense)


def explicit(a: Any, b: Any) -> Any:
    return jnp.linalg.solve(a, b)


LAWS = {
    "value": lambda f: f(A, B),
    "jit": lambda f: sw.jit(f)(A, B),
    "jvp": lambda f: sw.jvp(f, (A, B), (A.T, B + 1)),
    "grad": lambda f: sw.grad(lambda a, b: jnp.sum(jnp.sin(f(a, b))), (0, 1))(A, B),
    "jit grad": lambda f: sw.jit(sw.grad(lambda a, b: jnp.sum(jnp.sin(f(a, b))), (0, 1)))(A, B),
    "second": lambda f: sw.jvp(sw.grad(lambda a: jnp.sum(jnp.sin(f(a, B)))), (A,), (A.T,)),
    "vmap": lambda f: sw.vmap(f, (0, None))(np.stack([A, A.T]), B),
    "vmap both": lambda f: sw.vmap(f, (0, 1))(np.stack([A, A.T]), np.stack([B, 2 * B], 1)),
    "grad of vmap": lambda f: sw.grad(lambda b: jnp.sum(sw.vmap(f, (0, None))(np.stack([A, A.T]), b) ** 2))(B),
    "vmap of grad": lambda f: sw.vmap(sw.grad(lambda a, b: jnp.sum(f(a, b) ** 2)), (0, None))(np.stack([A, A.T]), B),
}


@pytest.mark.parametrize("name", LAWS)
def test_linear_solve(name: str) -> None:
    ours, theirs = LAWS[name](implicit), LAWS[name](explicit)
    for x, y in zip(sw.tree_util.tree_leaves(ours), sw.tree_util.tree_leaves(theirs), strict=True):
        np.testing.assert_allclose(np.asarray(x), np.asarray(y), rtol=1e-12, atol=1e-12)


def test_symmetric_trees_and_aux() -> None:
    s = A @ A.T

    def solve(matvec: Any, b: Any) -> Any:
        return {"x": jnp.linalg.solve(s, b["x"])}, 7

    def f(scale: Any, b: Any) -> Any:
        return lax.custom_linear_solve(
            lambda v: {"x": scale * (s @ v["x"])},
            {"x": b},
            lambda mv, r: ({"x": solve(mv, r)[0]["x"] / sw.lax.stop_gradient(scale)}, 7),
            symmetric=True,
            has_aux=True,
        )

    x, aux = f(1.0, B)
    np.testing.assert_allclose(x["x"], np.linalg.solve(s, B), rtol=1e-12)
    assert aux == 7
    gradient = sw.grad(lambda b: jnp.sum(f(1.0, b)[0]["x"] ** 2))(B)
    np.testing.assert_allclose(gradient, 2 * np.linalg.solve(s, np.linalg.solve(s, B)), rtol=1e-12)


def test_linear_solve_errors() -> None:
    with pytest.raises(TypeError, match="transpose_solve required"):
        sw.grad(lambda b: jnp.sum(lax.custom_linear_solve(lambda x: A @ x, b, _dense)))(B)
    with pytest.raises(TypeError, match="structure"):
        lax.custom_linear_solve(lambda x: A @ x, B, lambda mv, b: (b, b))
    with pytest.raises(ValueError, match="shapes and dtypes"):
        lax.custom_linear_solve(lambda x: A @ x, B, lambda mv, b: b[:2])


def test_root() -> None:
    def newton(f: Any, x: Any) -> Any:
        for _ in range(30):
            x = x - f(x) / sw.grad(f)(x)
        return x

    def root(a: Any) -> Any:
        return lax.custom_root(lambda x: x**3 - a, 1.0, newton, lambda g, y: y / g(1.0))

    assert float(root(8.0)) == pytest.approx(2)
    for gradient in (sw.grad(root), sw.jit(sw.grad(root)), lambda a: sw.jvp(root, (a,), (1.0,))[1]):
        assert float(gradient(8.0)) == pytest.approx(1 / 12)
    assert float(sw.grad(sw.grad(root))(8.0)) == pytest.approx(-2 / 9 * 8 ** (-5 / 3))
    points = np.array([1.0, 8.0, 27.0])
    np.testing.assert_allclose(sw.vmap(sw.grad(root))(points), points ** (-2 / 3) / 3, rtol=1e-12)
    x, aux = lax.custom_root(
        lambda x: x**3 - 8.0, 1.0, lambda f, x: (newton(f, x), 5), lambda g, y: y / g(1.0), has_aux=True
    )
    assert (float(x), aux) == (pytest.approx(2), 5)
    with pytest.raises(TypeError, match="structure"):
        lax.custom_root(lambda x: x, 1.0, lambda f, x: (x, x), lambda g, y: y)


def test_mapped_solvers_close_over_what_mapping_adds():
    matrix, many = A @ A.T, np.stack([B, B[::-1], 2 * B])

    def solution(b: Any) -> Any:
        return cg(lambda x: matrix @ x, b)[0]

    def slope(a: Any, b: Any) -> Any:
        return sw.grad(lambda a: cg(lambda x: a * (matrix @ x), b)[0].sum())(a)

    scales = np.array([1.0, 2.0, 3.0])
    np.testing.assert_allclose(sw.vmap(solution)(many), [solution(b) for b in many], rtol=1e-12)
    np.testing.assert_allclose(
        sw.vmap(slope)(scales, many), [slope(a, b) for a, b in zip(scales, many, strict=True)], rtol=1e-12
    )


@pytest.mark.parametrize("mapped", [False, True])
@pytest.mark.parametrize("compiled", [sw.jit, sw.checkpoint])
def test_derivatives_of_compiled_solvers_that_close_over_integers(compiled: Any, mapped: bool) -> None:
    """Rules run after the trace is over that made the guess, and the integers."""
    w = np.array([4.0]) if mapped else 4.0

    def root(w: Any, b: Any, n: Any) -> Any:
        def newton(f: Any, x: Any) -> Any:
            return lax.fori_loop(0, 30, lambda _, x: x - f(x) / sw.grad(f)(x), x), n

        x, count = lax.custom_root(lambda x: x**2 - w * b * n, 1.0 + 0 * w, newton, lambda g, y: y / g(1.0), True)
        return x * count

    def solution(w: Any, b: Any, n: Any) -> Any:
        return cg(lambda x: jnp.where(n > 2, w, 1.0) * n * x, b)[0]

    for f, expected in ((root, 3 * np.sqrt(24.0) / 8), (solution, -2 / 3 / 16)):
        call = compiled(sw.vmap(f, (0, None, None)) if mapped else f)
        found = sw.grad(lambda w, call=call: call(w, 2.0, 3).sum())(w)
        np.testing.assert_allclose(found, [expected] if mapped else expected, rtol=1e-12)
