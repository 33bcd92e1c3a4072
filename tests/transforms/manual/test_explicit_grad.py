"""Explicit shardings: a gradient has the type of what it is the gradient of, a tangent that of the result."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.sharding import P

RNG = np.random.default_rng(2)
KEYS = np.array([0, 2, 2])


def _f(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


M, V = _f(8, 8), _f(8)
ROW, COL, BOTH, NONE = P("x", None), P(None, "y"), P("x", "y"), P(None, None)
BATCH = P("x", None, None)
# name: function, one spec per argument (None: a host array), arguments
CASES: dict[str, tuple[Any, ...]] = {
    "add": (lambda a, b: a + b, (ROW, BOTH), M, M),
    "a row": (lambda a, b: a * b, (BOTH, P("y")), M, V),
    "a host array": (lambda a, b: jnp.sin(a) * b, (BOTH, None), M, M),
    "row and column": (lambda a, b: a * b, (ROW, COL), _f(8, 1), _f(1, 8)),
    "a scalar": (lambda a, b: a * b, (ROW, P()), M, np.float32(2)),
    "sum": (lambda a: jnp.sum(a * a, 1), (BOTH,), M),
    "max": (lambda a: jnp.max(a, 0), (BOTH,), M),
    "mean": (lambda a: jnp.mean(a, 0, keepdims=True), (BOTH,), M),
    "dot": (lambda a, b: a @ b, (ROW, COL), M, M),
    "dot, one side": (lambda a, b: a @ b, (BOTH, NONE), M, M),
    "dot, contracted": (lambda a, b: jnp.dot(a, b, out_sharding=P("x", None)), (BOTH, P("y", None)), M, M),
    "dot, batched": (lambda a, b: jnp.einsum("bij,bjk->bik", a, b), (BATCH, P("x", None, "y")), _f(2, 4, 8), _f(2, 8, 4)),
    "partial sums": (lambda a, b: sw.reshard(jnp.dot(a, b, out_sharding=P("x", None, unreduced={"y"})), BOTH),
                     (BOTH, P("y", None)), M, M),
    "transpose": (lambda a: a.T, (BOTH,), _f(8, 4)),
    "split a dim": (lambda a: jnp.reshape(a, (2, 4, 8)), (BOTH,), M),
    "merge dims": (lambda a: jnp.reshape(a, (64,), out_sharding=P("y")), (BOTH,), M),
    "broadcast": (lambda a: jnp.broadcast_to(a, (8, 8)), (P("y"),), V),
    "where": (lambda a, b: jnp.where(a > 0, a, b), (ROW, ROW), M, M),
    "where scalar": (lambda a: jnp.where(a > 0, a, 0), (ROW,), M),
    "concatenate": (lambda a, b: jnp.concatenate([a, b], 1), (ROW, ROW), M, M),
    "slice": (lambda a: a[:4, 2:4], (ROW,), M),
    "pad": (lambda a: jnp.pad(a, ((0, 0), (1, 1))), (ROW,), M),
    "gather": (lambda a: a[KEYS], (COL,), M),
    "gather out": (lambda a: a.at[np.arange(8)[::-1]].get(out_sharding=BOTH), (COL,), M),
    "update": (lambda a, b: a.at[KEYS[:2]].add(b), (COL, COL), M, _f(2, 8)),
    "dynamic": (lambda a, b: lax.dynamic_update_slice(a, b, (0, 2)), (ROW, ROW), M, _f(8, 4)),
    "cumsum": (lambda a: jnp.cumsum(a, 1), (ROW,), M),
    "cumprod": (lambda a: jnp.cumprod(a, 1), (ROW,), M),
    "sort": (lambda a: jnp.sort(a, 1), (ROW,), M),
    "top_k": (lambda a: lax.top_k(a, 2)[0], (ROW,), M),
    "softmax": (lambda a: sw.nn.softmax(a, 1), (ROW,), M),
    "reshard": (lambda a: sw.reshard(a, P(None, "x")) * 2, (BOTH,), M),
    "auto_axes": (lambda a, b: sw.sharding.auto_axes(lambda a, b: a @ b, out_sharding=ROW)(a, b), (BOTH, P("y", "x")), M, M),
    "cholesky": (lambda a: jnp.linalg.cholesky(jnp.einsum("bij,bkj->bik", a, a) + np.eye(3, dtype=np.float32)), (BATCH,), _f(2, 3, 3)),
    "qr": (lambda a: jnp.linalg.qr(a)[0], (BATCH,), _f(2, 3, 3)),
    "det": (lambda a: jnp.linalg.det(a), (BATCH,), _f(2, 3, 3)),
    "convolution": (lambda a, b: lax.conv_general_dilated(a, b, (1,), "SAME"), (BATCH, P(None, None, None)), _f(4, 3, 8), _f(5, 3, 3)),
    "pool": (lambda a: lax.reduce_window(a, -np.inf, lax.max, (1, 2), (1, 2), "VALID"), (ROW,), M),
    "vmap": (lambda a, b: sw.vmap(jnp.dot, (0, None))(a, b), (ROW, NONE), M, M),
    "checkpoint": (lambda a, b: sw.checkpoint(lambda a, b: jnp.sin(a @ b))(a, b), (ROW, COL), M, M),
    "scan": (lambda a: lax.scan(lambda c, x: (c * x, c), a, jnp.arange(1.0, 4.0))[0], (ROW,), M),
}  # fmt: skip


@pytest.fixture(params=["seed", "latest"])
def mesh(request: Any) -> Any:
    before = sw.config.shardwise_dialect
    sw.config.update("shardwise_dialect", request.param)
    made = sw.make_mesh((2, 4), ("x", "y"), axis_types=(sw.sharding.AxisType.Explicit,) * 2)
    context = sw.set_mesh(made) if request.param == "latest" else sw.sharding.use_mesh(made)
    with context:
        yield made
    sw.config.update("shardwise_dialect", before)


@pytest.mark.parametrize("name", CASES)
def test_types(name: str, mesh: Any) -> None:
    function, specs, *args = CASES[name]
    placed = [a if s is None else sw.device_put(a, sw.NamedSharding(mesh, s)) for a, s in zip(args, specs, strict=True)]

    def loss(*xs: Any) -> Any:
        return jnp.sum(jnp.sin(function(*xs)))

    nums = tuple(range(len(args)))
    slopes = []
    for gradient in (sw.jit(sw.grad(loss, nums)), sw.grad(loss, nums), sw.grad(sw.jit(loss), nums)):
        found = gradient(*placed)
        for g, x, s in zip(found, placed, specs, strict=True):
            if s is not None:
                assert sw.typeof(g).sharding.spec == sw.typeof(x).sharding.spec
        slopes.append(sum(float(np.sum(np.asarray(g) * np.cos(a))) for g, a in zip(found, args, strict=True)))
    tangents = tuple(jnp.cos(p) for p in placed)
    out, tangent = sw.jit(lambda xs, ts: sw.jvp(function, xs, ts))(tuple(placed), tangents)
    assert sw.typeof(tangent).sharding.spec == sw.typeof(out).sharding.spec
    along = float(np.sum(np.cos(np.asarray(out)) * np.asarray(tangent)))
    np.testing.assert_allclose(slopes, along, rtol=2e-5, atol=2e-6)


def test_one_tangent(mesh: Any) -> None:
    a, b = sw.device_put(M, sw.NamedSharding(mesh, ROW)), sw.device_put(M, sw.NamedSharding(mesh, BOTH))
    out, tangent = sw.jvp(lambda a: a + b, (a,), (a,))
    assert sw.typeof(tangent).sharding.spec == sw.typeof(out).sharding.spec == BOTH


def test_cotangents_are_checked(mesh: Any) -> None:
    x = sw.device_put(M, sw.NamedSharding(mesh, ROW))
    _, pull = sw.vjp(jnp.sin, x)
    with pytest.raises(ValueError, match="laid out otherwise"):
        pull(sw.device_put(M, sw.NamedSharding(mesh, COL)))


@pytest.mark.parametrize("inside", [True, False], ids=["in the context of the mesh", "without context"])
@pytest.mark.parametrize(
    "loss",
    [
        lambda w, x: jnp.tanh(x @ w).sum(),
        lambda w, x: jnp.einsum("jk,ij->ki", w, x).sum(),
        lambda w, x: sw.vmap(lambda row: row @ w)(x).sum(),
        lambda w, x: sw.lax.scan(lambda c, _: (jnp.tanh(c @ w[:2].T) @ w[:2], None), x @ w, None, length=2)[0].sum(),
    ],
    ids=["matmul", "einsum", "vmap", "scan"],
)
def test_gradients_of_weights_that_lie_on_no_mesh_are_whole(loss, inside):
    mesh = sw.make_mesh((4,), ("x",), axis_types=(sw.sharding.AxisType.Explicit,))
    host = np.arange(24, dtype=np.float32).reshape(8, 3) / 24
    w = jnp.ones((3, 2)) / 3
    x = sw.device_put(host, sw.NamedSharding(mesh, sw.P("x")))
    with sw.set_mesh(mesh) if inside else contextlib.nullcontext():
        made = sw.jit(sw.grad(loss))(w, x)
    assert made.sharding.is_fully_replicated and sw.typeof(made).shape == (3, 2)
    np.testing.assert_allclose(np.asarray(made), np.asarray(sw.grad(loss)(w, jnp.asarray(host))), rtol=1e-5)


# -- no mesh in context --------------------------------------------------------------------------------------------------

ELEMENTWISE = {
    "sin": jnp.sin,
    "square": lambda v: v * v,
    "double": lambda v: v * 2,
    "negative": lambda v: -v,
    "itself": lambda v: v,
}


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_tangents_and_cotangents_without_a_mesh_outside_of_any(name: str) -> None:
    """Host tangents, and the unit vectors of Jacobians, meet values on an explicit mesh; nothing else says which devices it has."""
    f, x = ELEMENTWISE[name], np.linspace(-1, 1, 8, dtype=np.float32)
    mesh = sw.make_mesh((4, 2), ("x", "y"), axis_types=(sw.sharding.AxisType.Explicit,) * 2)
    v, one = sw.device_put(x, sw.NamedSharding(mesh, P("x"))), np.ones(8, np.float32)
    slope = sw.jvp(f, (x,), (one,))[1]
    for derive in (sw.jacfwd, sw.jacrev):
        np.testing.assert_allclose(derive(f)(v), np.diag(slope), rtol=1e-6)
    for tangent in (sw.jvp(f, (v,), (one,))[1], sw.linearize(f, v)[1](one), *sw.vjp(f, v)[1](one)):
        np.testing.assert_allclose(tangent, slope, rtol=1e-6)
    hessian = sw.hessian(lambda v: (f(v) ** 3).sum())
    np.testing.assert_allclose(sw.jit(hessian)(v), hessian(x), rtol=1e-5, atol=1e-6)
