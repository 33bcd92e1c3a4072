"""Derivatives through shard_map and of what happens inside it, with checked types and without."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.experimental import enable_x64
from shardwise.experimental.shard_map import shard_map as seed_shard_map
from shardwise.sharding import AxisType, P

RNG = np.random.default_rng(5)
A, W = RNG.standard_normal((8, 16)), RNG.standard_normal((16, 8))


@pytest.fixture(autouse=True)
def double_precision():
    with enable_x64():
        yield


def _mesh(kind: AxisType = AxisType.Auto) -> Any:
    return sw.make_mesh((2, 4), ("x", "y"), axis_types=(kind, kind))


# name: body, in_specs, out_specs, arguments
X, Y, XY, NONE = P("x"), P("y"), P("x", "y"), P()
CASES: dict[str, tuple[Any, Any, Any, tuple[Any, ...]]] = {
    "psum": (lambda x: lax.psum(x * x, "x"), X, NONE, (A,)),
    "psum of what is the same": (lambda x: lax.psum(jnp.sin(x), "y") * 1.0, X, X, (A,)),
    "data parallel": (lambda x, w: lax.pmean(jnp.sum(jnp.sin(x @ w), 0), ("x", "y")), (P(("x", "y")), NONE), NONE, (A, W)),
    "tensor parallel": (lambda x, w: lax.psum(x @ w, "y"), (XY, Y), X, (A, W)),
    "FSDP": (lambda x, w: jnp.sin(x @ lax.all_gather(w, "y", tiled=True, to="invarying")), (X, Y), X, (A, W)),
    "all_gather": (lambda x, w: lax.all_gather(x, "y", axis=1, tiled=True) @ w, (XY, P(None, "y")), XY, (A, W)),
    "all_gather stacked": (lambda x: jnp.sin(lax.all_gather(x, "y"))[0], XY, XY, (A,)),
    "all_gather of what varies over one axis": (lambda x: jnp.sin(lax.all_gather(x, ("x", "y"), tiled=True)), X, P(("x", "y")), (A,)),
    "all_to_all of what varies over one axis": (lambda x: jnp.sin(lax.all_to_all(x, ("y", "x"), 1, 0, tiled=True)), X, P(("x", "y")), (A,)),
    "ppermute of what varies over one axis": (lambda x: lax.ppermute(jnp.sin(x), ("x", "y"), [(0, 5), (3, 0)]), X, P(("x", "y")), (A,)),
    "all_gather invariant": (lambda x: jnp.sin(lax.all_gather(x, "y", tiled=True, to="invarying")), Y, NONE, (A,)),
    "psum_scatter": (lambda x, w: lax.psum_scatter(x @ w, "y", tiled=True), (XY, Y), P(("x", "y")), (A, W)),
    "psum_scatter stacked": (lambda x: lax.psum_scatter(x * x, "x", scatter_dimension=1), P(None, None, "x"), P(None, "x"),
                             (A.reshape(8, 2, 8),)),
    "ppermute": (lambda x: jnp.sin(lax.ppermute(x, "y", [(0, 1), (1, 2), (3, 0)])), XY, XY, (A,)),
    "all_to_all": (lambda x: jnp.sin(lax.all_to_all(x, "x", 1, 0, tiled=True)), X, X, (A,)),
    "all_to_all swap": (lambda x: jnp.sin(lax.all_to_all(x, "y", 1, 0)), P(None, None, "y"), P(None, None, "y"), (A.reshape(8, 4, 4),)),
    "positions": (lambda x: jnp.sin(x) * lax.axis_index("x"), NONE, X, (A,)),
    "tiled result": (lambda x: jnp.sin(x), NONE, X, (A,)),
    "closure": (lambda x: lax.psum(x @ (2 * W), "x"), X, NONE, (A,)),
    "nested jit": (lambda x, w: lax.psum(sw.jit(lambda a, b: jnp.tanh(a @ b))(x, w), "x"), (X, NONE), NONE, (A, W)),
    "remat": (lambda x, w: lax.psum(sw.checkpoint(lambda a, b: jnp.tanh(a @ b))(x, w), "x"), (X, NONE), NONE, (A, W)),
    "vmap inside": (lambda x, w: lax.psum(sw.vmap(lambda r: jnp.tanh(r @ w))(x), "x"), (X, NONE), NONE, (A, W)),
    "grad inside": (lambda x, w: sw.grad(lambda v: lax.psum(jnp.sum(jnp.sin(v @ w)), "x"))(x), (X, NONE), X, (A, W)),
    "integers": (lambda x, i: lax.psum(x * i, "x"), (X, NONE), NONE, (A, np.int32(3))),
    "two results": (lambda x: (lax.psum(x, "x"), jnp.cos(x)), X, (NONE, X), (A,)),
    "trees": (lambda t: {"a": t["a"] * 2, "b": lax.psum(t["b"], "x")}, X, {"a": X, "b": NONE}, ({"a": A, "b": A[:, 0]},)),
}  # fmt: skip


def _loss(name: str, check: bool) -> Any:
    body, ins, outs, _ = CASES[name]
    ins = ins if isinstance(ins, tuple) and not isinstance(ins, P) else (ins,)
    mapped = sw.shard_map(body, mesh=_mesh(), in_specs=ins, out_specs=outs, check_vma=check)

    def loss(*args: Any) -> Any:
        total = 0.0
        for i, leaf in enumerate(sw.tree_util.tree_leaves(mapped(*args))):
            total = total + jnp.sum(leaf * jnp.cos(leaf + i))
        return total

    return loss


def _along(args: Any, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    return sw.tree_util.tree_map(
        lambda x: rng.standard_normal(np.shape(x)) if np.asarray(x).dtype.kind == "f" else x, args
    )


def _dot(xs: Any, ys: Any) -> float:
    leaves = zip(sw.tree_util.tree_leaves(xs), sw.tree_util.tree_leaves(ys), strict=True)
    return sum(float(np.sum(np.asarray(x) * np.asarray(y))) for x, y in leaves if np.asarray(y).dtype.kind == "f")


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_gradients_from_outside(name: str, check: bool) -> None:
    args = CASES[name][3]
    loss, along = _loss(name, check), _along(args, 0)
    nums = tuple(i for i, a in enumerate(args) if np.asarray(sw.tree_util.tree_leaves(a)[0]).dtype.kind == "f")
    moved = lambda h: sw.tree_util.tree_map(  # noqa: E731
        lambda x, t: x + h * t if np.asarray(x).dtype.kind == "f" else x, args, along
    )
    value = sw.jit(loss)
    slope = (
        float(8 * (value(*moved(1e-4)) - value(*moved(-1e-4))) - (value(*moved(2e-4)) - value(*moved(-2e-4)))) / 12e-4
    )
    gradient = sw.grad(loss, nums)
    given = [along[i] for i in nums]
    assert _dot(gradient(*args), given) == pytest.approx(slope, rel=1e-7)
    assert _dot(sw.jit(gradient)(*args), given) == pytest.approx(slope, rel=1e-7)
    assert _dot(sw.grad(sw.jit(loss), nums)(*args), given) == pytest.approx(slope, rel=1e-7)

    def at(*chosen: Any) -> Any:
        full = list(args)
        for i, x in zip(nums, chosen, strict=True):
            full[i] = x
        return loss(*full)

    points = tuple(args[i] for i in nums)
    assert float(sw.jvp(at, points, tuple(given))[1]) == pytest.approx(slope, rel=1e-7)
    curvature = sw.jvp(lambda *c: sw.grad(at, tuple(range(len(nums))))(*c), points, tuple(given))[1]
    backward = sw.grad(
        lambda *c: sum(
            jnp.sum(g * t)
            for g, t in zip(
                sw.tree_util.tree_leaves(sw.grad(at, tuple(range(len(nums))))(*c)),
                sw.tree_util.tree_leaves(given),
                strict=True,
            )
        ),
        tuple(range(len(nums))),
    )(*points)
    for forward, reverse in zip(sw.tree_util.tree_leaves(curvature), sw.tree_util.tree_leaves(backward), strict=True):
        np.testing.assert_allclose(np.asarray(forward), np.asarray(reverse), rtol=1e-12, atol=1e-12)


SAMPLE = ["psum", "data parallel", "all_gather", "psum_scatter", "all_to_all", "tiled result"]


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize("name", SAMPLE)
def test_same_as_jax(name: str, check: bool) -> None:
    jax = pytest.importorskip("jax")
    mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    mine = dict(sw=jax, jnp=jax.numpy, lax=jax.lax)
    body, ins, outs, args = CASES[name]
    theirs = type(body)(body.__code__, {**body.__globals__, **mine}, body.__name__, body.__defaults__, body.__closure__)
    spec = lambda s: jax.P(*s) if isinstance(s, P) else tuple(map(spec, s))  # noqa: E731
    ins = ins if isinstance(ins, tuple) and not isinstance(ins, P) else (ins,)
    with jax.enable_x64(True):
        mapped = jax.shard_map(theirs, mesh=mesh, in_specs=spec(ins), out_specs=spec(outs), check_vma=check)
        expected = jax.jit(
            jax.grad(lambda *xs: (lambda o: jax.numpy.sum(o * jax.numpy.cos(o)))(mapped(*xs)), tuple(range(len(args))))
        )(*args)
    found = sw.jit(sw.grad(_loss(name, check), tuple(range(len(args)))))(*args)
    for ours, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(wanted), rtol=1e-12, atol=1e-12)


# -- inside of the body ------------------------------------------------------------------------------------------------------


def _inside(body: Any, ins: Any, outs: Any, check: bool, *args: Any) -> np.ndarray:
    return np.asarray(sw.jit(sw.shard_map(body, mesh=_mesh(), in_specs=ins, out_specs=outs, check_vma=check))(*args))


def test_gradient_of_what_is_the_same_everywhere() -> None:
    """Checked: the gradient of a replicated argument is the sum over devices. Unchecked: each device has its own part."""
    body = lambda x, w: sw.grad(lambda w: jnp.sum(jnp.sin(x @ w)))(w)  # noqa: E731
    expected = sw.grad(lambda w: jnp.sum(jnp.sin(A @ w)))(W)
    np.testing.assert_allclose(_inside(body, (X, NONE), NONE, True, A, W), expected, rtol=1e-12)
    parts = _inside(body, (X, NONE), X, False, A, W).reshape(2, 16, 8)
    np.testing.assert_allclose(parts.sum(0), expected, rtol=1e-12)


def test_gradient_of_psum() -> None:
    """Checked, a sum that all devices share is one value; unchecked, each device's copy of it counts."""
    body = lambda x: sw.grad(lambda v: jnp.sum(lax.psum(v * v, "x")))(x)  # noqa: E731
    np.testing.assert_allclose(_inside(body, X, X, True, A), 2 * A, rtol=1e-12)
    np.testing.assert_allclose(_inside(body, X, X, False, A), 4 * A, rtol=1e-12)


def test_pmap_is_unchecked() -> None:
    x = np.arange(8.0)
    np.testing.assert_allclose(sw.pmap(sw.grad(lambda v: lax.psum(v * v, "i")), axis_name="i")(x), 16 * x, rtol=1e-12)
    np.testing.assert_allclose(
        sw.grad(lambda v: jnp.sum(sw.pmap(lambda u: lax.psum(u * u, "i"), axis_name="i")(v)))(x), 16 * x
    )


def test_extrema_over_devices_have_no_derivative() -> None:
    for reduce, name in ((lax.pmax, "pmax"), (lax.pmin, "pmin")):
        f = sw.shard_map(lambda x, r=reduce: r(x, "x"), mesh=_mesh(), in_specs=X, out_specs=NONE)
        with pytest.raises(NotImplementedError, match=name):
            sw.grad(lambda x, f=f: jnp.sum(f(x)))(A)
        assert f(sw.lax.stop_gradient(A)).shape == (4, 16)


def test_residuals_stay_on_their_devices() -> None:
    """The backward pass of a mapped function moves nothing that the forward pass did not move."""

    def body(x, w):
        return jnp.sin(jnp.cos(x) * w)

    f = sw.shard_map(body, mesh=_mesh(), in_specs=(X, X), out_specs=X)
    lowered = sw.jit(sw.grad(lambda x, w: jnp.sum(f(x, w) ** 2))).lower(
        *(sw.device_put(v, sw.NamedSharding(_mesh(), X)) for v in (A, A))
    )
    assert [t.kind for t in lowered._entry.executable.transfers] == []


def test_linearize_and_linear_transpose() -> None:
    f = sw.shard_map(lambda x, w: lax.psum(x @ w, "y"), mesh=_mesh(), in_specs=(XY, Y), out_specs=X)
    out, push = sw.linearize(lambda x: f(x, W), A)
    np.testing.assert_allclose(out, A @ W, rtol=1e-12)
    np.testing.assert_allclose(push(2 * A), 2 * A @ W, rtol=1e-12)
    (back,) = sw.linear_transpose(lambda x: f(x, W), A)(A @ W)
    np.testing.assert_allclose(back, A @ W @ W.T, rtol=1e-12)
    rows = sw.jit(sw.jacrev(lambda x: f(x, W)[0]))(A)
    np.testing.assert_allclose(rows[:, 0], W.T, rtol=1e-12)
    np.testing.assert_allclose(sw.jacfwd(lambda x: f(x, W)[0])(A), rows, rtol=1e-12)


# -- partly manual, and explicit ---------------------------------------------------------------------------------------------


def test_some_axes_automatic() -> None:
    f = sw.shard_map(
        lambda x, w: lax.psum(jnp.sin(x @ w), "x"), mesh=_mesh(), in_specs=(X, NONE), out_specs=NONE, axis_names={"x"}
    )
    loss = lambda f: lambda x, w: jnp.sum(f(x, w) ** 2)  # noqa: E731
    whole = lambda x, w: jnp.sum(jnp.sin(x @ w).reshape(2, 4, 8), 0)  # noqa: E731
    expected = sw.grad(loss(whole), (0, 1))(A, W)
    placed = sw.device_put(A, sw.NamedSharding(_mesh(), XY)), sw.device_put(W, sw.NamedSharding(_mesh(), P(None, "y")))
    for found in (sw.jit(sw.grad(loss(f), (0, 1)))(*placed), sw.grad(loss(f), (0, 1))(*placed)):
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-12, atol=1e-12)


def test_nested() -> None:
    def outer(x):
        inner = sw.shard_map(
            lambda v: lax.psum(jnp.sin(v), "y"), in_specs=P(None, "y"), out_specs=NONE, axis_names={"y"}
        )
        return lax.psum(inner(x), "x")

    mesh = _mesh()
    f = sw.shard_map(outer, mesh=mesh, in_specs=X, out_specs=NONE, axis_names={"x"})
    gradient = sw.jit(sw.grad(lambda x: jnp.sum(f(x) ** 2)))(A)
    expected = sw.grad(lambda x: jnp.sum(jnp.sin(x).reshape(2, 4, 4, 4).sum((0, 2)) ** 2))(A)
    np.testing.assert_allclose(gradient, expected, rtol=1e-12)


def test_explicit_types() -> None:
    mesh = _mesh(AxisType.Explicit)
    with sw.sharding.use_mesh(mesh):
        x = sw.device_put(A, sw.NamedSharding(mesh, P("x", None)))
        f = sw.shard_map(lambda v: lax.psum(v * v, "x"), mesh=mesh, in_specs=P("x", None), out_specs=P(None, None))
        gradient = sw.jit(sw.grad(lambda x: jnp.sum(jnp.sin(f(x)))))(x)
        assert sw.typeof(gradient).sharding.spec == P("x", None)
    blocks = (A**2).reshape(2, 4, 16).sum(0)
    np.testing.assert_allclose(gradient, np.tile(np.cos(blocks), (2, 1)) * 2 * A, rtol=1e-12)


CASTS = {
    "reduced, then varying": lambda x, w: lax.psum(
        jnp.sin(x @ lax.pcast(lax.pcast(w, "x", to="reduced"), "x", to="varying")), "x"
    ),
    "reduced": lambda x, w: lax.psum(jnp.sin(x @ lax.pcast(w, "x", to="reduced")), "x"),
    "unreduced": lambda x, w: lax.psum(lax.pcast(jnp.sin(x @ w), "x", to="unreduced"), "x"),
}


@pytest.mark.parametrize("name", CASTS)
def test_casts_of_variance(name: str) -> None:
    """They change types, and who sums what when; never values."""
    f = sw.shard_map(CASTS[name], mesh=_mesh(), in_specs=(X, NONE), out_specs=NONE)
    found = sw.jit(sw.grad(lambda x, w: jnp.sum(jnp.cos(f(x, w))), (0, 1)))(A, W)
    whole = lambda x, w: jnp.sin(x @ w).reshape(2, 4, 8).sum(0)  # noqa: E731
    expected = sw.grad(lambda x, w: jnp.sum(jnp.cos(whole(x, w))), (0, 1))(A, W)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-12, atol=1e-12)


def test_in_the_seed_eras_shard_map_derivatives_are_each_devices_own() -> None:
    """Of a loss at parameters that all devices share, the device's part; and psum is its own transpose."""
    mapped = partial(seed_shard_map, mesh=_mesh(), in_specs=(X, NONE), out_specs=X)
    own = lambda x, w: sw.grad(lambda w: jnp.sum(jnp.sin(x @ w)))(w)  # noqa: E731
    expected = sw.grad(lambda w: jnp.sum(jnp.sin(A @ w)))(W)
    np.testing.assert_allclose(np.asarray(mapped(own)(A, W)).reshape(2, 16, 8).sum(0), expected, rtol=1e-12)
    summed = lambda x, w: sw.grad(lambda v: jnp.sum(lax.psum(v * v, "x")))(x)  # noqa: E731
    np.testing.assert_allclose(sw.jit(mapped(summed))(A, W), 4 * A, rtol=1e-12)
    with pytest.raises(ValueError, match="replication"):
        seed_shard_map(own, mesh=_mesh(), in_specs=(X, NONE), out_specs=NONE)(A, W)
    whole = sw.grad(lambda w: jnp.sum(mapped(lambda x, w: jnp.sin(x @ w))(A, w)))(W)  # from outside: as the types say
    np.testing.assert_allclose(whole, expected, rtol=1e-12)
