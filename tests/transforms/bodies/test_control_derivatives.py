"""Derivatives and `vmap` of loops and branches against JAX; sharded, in shard_map, and the errors of what has none."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ir import subprograms
from shardwise.ops.control.scan import scan_p
from shardwise.sharding import AxisType, NamedSharding, P, make_mesh, use_mesh
from shardwise.transforms.interpreters.linearize import linearize_flat
from tests.rounding import assert_normwise
from tests.transforms.control_cases import COND, SCAN, WHILE, XS, W, X

CASES = {
    f"{kind}: {name}": case
    for kind, cases in (("scan", SCAN), ("cond", COND), ("while", WHILE))
    for name, case in cases.items()
}
TOLERANCE = 2e-5


@pytest.fixture(scope="module")
def jax():
    return pytest.importorskip("jax")


@pytest.mark.parametrize("name", CASES)
def test_same_as_jax(jax, name: str) -> None:
    ours, theirs = (J.tree_util.tree_leaves(CASES[name](J)) for J in (sw, jax))
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert_normwise(a, b, TOLERANCE)


# -- layouts ---------------------------------------------------------------------------------------------------------------

C8 = np.random.RandomState(3).randn(8, 4).astype("f4")
XS8 = np.random.RandomState(4).randn(5, 8, 4).astype("f4")


def loss(c, w, xs):
    def step(c, x):
        h = jnp.tanh(c @ w + x)
        return h, jnp.sin(h)

    c, ys = lax.scan(step, c, xs)
    return jnp.sum(c * c) + jnp.sum(ys**2)


@pytest.fixture(scope="module")
def expected():
    return sw.grad(loss, (0, 1, 2))(C8, W, XS8)


def check(ours, expected) -> None:
    for a, b in zip(ours, expected, strict=True):
        assert_normwise(a, b, TOLERANCE)


def mesh_of(kind: AxisType):
    return make_mesh((2, 4), ("a", "b"), axis_types=(kind,) * 2)


@pytest.mark.parametrize("jitted", [True, False])
@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_sharded(expected, kind: AxisType, jitted: bool) -> None:
    mesh = mesh_of(kind)
    args = [sw.device_put(v, NamedSharding(mesh, s)) for v, s in ((C8, P("a")), (W, P()), (XS8, P(None, "a")))]
    grad = sw.grad(loss, (0, 1, 2))
    with use_mesh(mesh):
        found = (sw.jit(grad) if jitted else grad)(*args)
    check(found, expected)
    if kind == AxisType.Explicit:
        assert [g.sharding.spec for g in found] == [P("a", None), P(None, None), P(None, "a", None)]


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_mapped_dim_sharded(expected, kind: AxisType) -> None:
    mesh = mesh_of(kind)
    c, xs = (
        sw.device_put(v, NamedSharding(mesh, s)) for v, s in ((C8[:, None], P("a")), (XS8[:, :, None], P(None, "a")))
    )
    with use_mesh(mesh):
        gc, gw, gxs = sw.jit(sw.vmap(sw.grad(loss, (0, 1, 2)), (0, None, 1)))(c, W, xs)
        ones = sw.jit(sw.vmap(lambda y: lax.scan(lambda c, _: (c * y, c), jnp.ones(4), None, length=3)[0]))(c[:, 0])
    check((gc[:, 0], gw.sum(0), np.asarray(gxs)[:, :, 0].swapaxes(0, 1)), expected)
    np.testing.assert_allclose(np.asarray(ones), C8**3, rtol=2e-6)


@pytest.mark.parametrize("checked", [True, False])
def test_in_shard_map(checked: bool) -> None:
    mesh = mesh_of(AxisType.Auto)

    def local(c, w, xs):
        def step(c, x):
            c = lax.cond(lax.axis_index("a") > 0, lambda c: jnp.sin(c), lambda c: c * 2, c)
            return lax.ppermute(jnp.tanh(c @ w) + x, "a", [(0, 1), (1, 0)]), lax.psum(c, "a")

        c, ys = lax.scan(step, c, xs)
        return lax.psum((c**2).sum(), "a"), ys

    def total(split):
        def f(*args):
            last, ys = split(*args)
            return last + (ys**2).sum()

        return f

    def whole(c, w, xs):
        def step(c, x):
            c = jnp.concatenate([c[:4] * 2, jnp.sin(c[4:])])
            h = jnp.tanh(c @ w) + jnp.concatenate([x[:4], x[4:]])
            return jnp.concatenate([h[4:], h[:4]]), c[:4] + c[4:]

        c, ys = lax.scan(step, c, xs)
        return (c**2).sum(), ys

    split = sw.shard_map(
        local, mesh=mesh, in_specs=(P("a"), P(), P(None, "a")), out_specs=(P(), P()), check_vma=checked
    )
    args = (C8, W, XS8)
    check(sw.grad(total(split), (0, 1, 2))(*args), sw.grad(total(whole), (0, 1, 2))(*args))
    check(sw.jvp(total(split), args, args), sw.jvp(total(whole), args, args))
    twice = [sw.jit(sw.grad(lambda x, f=f: (sw.grad(total(f))(x, W, XS8) ** 2).sum()))(C8) for f in (split, whole)]
    np.testing.assert_allclose(np.asarray(twice[0]), np.asarray(twice[1]), rtol=1e-5, atol=1e-5)


# -- what is kept ----------------------------------------------------------------------------------------------------------


def test_values_that_no_step_changes_are_not_stacked() -> None:
    def f(c, w):
        return lax.scan(lambda c, x: (c @ jnp.exp(w).T * x, None), c, XS[:, 0])[0]

    lin = linearize_flat(lambda c, w: [f(c, w)], [jnp.asarray(X), jnp.asarray(W)])
    assert sorted(r.shape for r in lin.residuals if r.ndim) == [(4, 4), (4, 4), (5,), (5, 4)]


def test_outputs_serve_as_residuals() -> None:
    def f(c):
        return lax.scan(lambda c, _: (jnp.exp(c),) * 2, c, None, length=3)

    lin = linearize_flat(lambda c: list(f(c)), [jnp.float32(0.1)])
    assert any(r is lin.results[1] for r in lin.residuals)
    (eqn,) = (e for e in lin.program.equations if e.op is scan_p)
    assert all(e.op.name == "mul" for _, body in subprograms(eqn.params) for e in body.equations)


# -- errors ----------------------------------------------------------------------------------------------------------------


def test_reverse_mode_of_while_raises(jax) -> None:
    for J in (sw, jax):
        with pytest.raises(ValueError, match=r"Reverse-mode differentiation does not work for lax\.while_loop"):
            J.grad(lambda x, J=J: J.lax.while_loop(lambda c: c < 10, lambda c: c * 2, x))(1.0)
        with pytest.raises(ValueError, match="fori_loop"):
            J.jit(J.grad(lambda x, n, J=J: J.lax.fori_loop(0, n, lambda i, c: c * 2, x)))(1.0, 3)


def test_integer_loops_have_zero_gradients(jax) -> None:
    for J in (sw, jax):
        counted = lambda x, J=J: x * J.lax.while_loop(lambda n: n < 5, lambda n: n + 2, 0)  # noqa: E731
        assert float(J.grad(counted)(2.0)) == 6.0


# -- vmap and None ---------------------------------------------------------------------------------------------------------


def test_vmap_with_none(jax) -> None:
    for J in (sw, jax):
        out, nothing, inner = J.vmap(lambda x, y: (x, None, {"a": None}))(X, None)
        assert nothing is None
        assert inner == {"a": None}
        np.testing.assert_array_equal(np.asarray(out), X)
        out, _ = J.vmap(lambda x, y: (x + y, None), (0, None), (0, None))(X, 1.0)
        np.testing.assert_array_equal(np.asarray(out), X + 1)
        assert J.vmap(lambda x: None)(X) is None
