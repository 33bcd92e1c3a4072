"""shard_map over Explicit axes under `latest`: unreduced and reduced specs, smap, and what vmap's dim is split over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base.config import use_dialect
from shardwise.sharding import AxisType, P

A, B = np.arange(8.0, dtype=np.float32).reshape(2, 4), np.arange(24.0, dtype=np.float32).reshape(4, 6)


@pytest.fixture(autouse=True)
def mesh() -> Iterator[None]:
    with use_dialect("latest"), sw.set_mesh(sw.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)):
        yield


def _same(found: object, expected: object) -> None:
    for ours, theirs in zip(sw.tree.leaves(found), sw.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(np.asarray(sw.reshard(ours, P())), np.asarray(theirs), rtol=1e-6)


def test_partial_sums_leave_and_enter() -> None:
    a, b = sw.device_put(A, P(None, "x")), sw.device_put(B, P("x", None))
    made = sw.shard_map(lambda a, b: lax.pcast(a @ b, "x", to="unreduced"), out_specs=P(unreduced={"x"}))
    summed = sw.shard_map(lambda z: lax.psum(z, "x"), out_specs=P())
    split = sw.shard_map(lambda z: lax.psum_scatter(z, "x", tiled=True), out_specs=P("x"))
    assert sw.typeof(sw.jit(made)(a, b)).unreduced == {"x"}
    for after in (lambda z: sw.reshard(z, P()), summed, split):
        run = lambda a, b: after(made(a, b))  # noqa: B023, E731
        loss = lambda a, b: (run(a, b) ** 2).sum()  # noqa: B023, E731
        for f in (run, sw.jit(run)):
            _same(f(a, b), A @ B)
        _same(sw.jit(sw.grad(loss, (0, 1)))(a, b), (2 * (A @ B) @ B.T, A.T @ (2 * (A @ B))))


def test_reduced_values_have_unreduced_gradients() -> None:
    x, w = sw.device_put(A.T, P("x", None)), sw.device_put(A, P(None, None, reduced={"x"}))
    f = sw.shard_map(lambda x, w: x @ w, out_specs=P("x"))
    dx, dw = sw.jit(sw.grad(lambda x, w: (f(x, w) ** 2).sum(), (0, 1)))(x, w)
    assert sw.typeof(dw).unreduced == {"x"}
    product = A.T @ A
    _same((dx, dw), (2 * product @ A.T, 2 * A @ product))
    gathered = sw.shard_map(lambda x: lax.all_gather(x, "x", tiled=True, to="reduced"), out_specs=P(reduced={"x"}))
    kept = sw.shard_map(lambda x: x * x, out_specs=P(reduced={"x"}))
    assert sw.typeof(kept(gathered(x))).reduced == {"x"}
    _same(sw.grad(lambda x: kept(gathered(x)).sum())(x), 2 * A.T)


def test_fsdp_by_reduced_gathers() -> None:
    x, w = sw.device_put(A.T, P(("x", "y"), None)), sw.device_put(B[:2], P("y", None))
    spread = sw.shard_map(
        lambda w: lax.pcast(w, "x", to="reduced"), in_specs=P("y", None), out_specs=P("y", None, reduced={"x"})
    )
    gather = sw.shard_map(
        lambda w: lax.all_gather(w, "y", tiled=True, to="reduced"), out_specs=P(None, None, reduced={"x", "y"})
    )
    _same(
        sw.jit(sw.grad(lambda x, w: jnp.sin(x @ gather(spread(w))).sum(), (0, 1)))(x, w),
        sw.grad(lambda x, w: jnp.sin(x @ w).sum(), (0, 1))(A.T, B[:2]),
    )


def test_what_is_refused() -> None:
    x = sw.device_put(A, P("x", None))
    part = partial(sw.shard_map, in_specs=P("x", None))
    with pytest.raises(ValueError, match="does not match the type"):
        part(lambda a: lax.psum(a, "x"), out_specs=P(unreduced={"x"}))(x)
    with pytest.raises(NotImplementedError, match="full manual mode"):
        part(lambda a: a, out_specs=P(unreduced={"x"}), axis_names={"x"})(x)
    with pytest.raises(ValueError, match="in one state"):
        part(lambda a: lax.pcast(a, ("x", "y"), to="reduced"), out_specs=P("x"))(x)
    with pytest.raises(TypeError, match="must be a tuple or a str"):
        part(lambda a: lax.pcast(a, {"x"}, to="varying"), out_specs=P("x"))(x)
    auto = sw.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    with sw.set_mesh(auto), pytest.raises(ValueError, match="type `Explicit`"):
        sw.shard_map(lambda a: a, in_specs=P(unreduced={"x"}), out_specs=P())(A)
    with sw.set_mesh(auto), pytest.raises(TypeError, match="not specified"):
        sw.smap(lambda a: a, out_axes=0, axis_name="x")(A)


def test_smap_reads_types_and_moves_arguments() -> None:
    x = sw.device_put(A, P("x", None))
    inner = lambda a: sw.smap(lambda b: b * 2, in_axes=0, out_axes=1, axis_name="y")(a.T)  # noqa: E731
    out = sw.smap(inner, out_axes=0, axis_name="x")(x)
    assert sw.typeof(out).spec == (("x",), ("y",))
    np.testing.assert_array_equal(out, np.concatenate([np.hstack([2 * r[None].T[:2], 2 * r[None].T[2:]]) for r in A]))


def test_a_vmapped_dim_stays_split() -> None:
    x = sw.device_put(A, P("x", "y"))
    f = sw.vmap(sw.shard_map(lambda a: lax.psum(a, "y"), in_specs=P("y"), out_specs=P(None)))
    for out in (f(x), sw.jit(f)(x)):
        assert sw.typeof(out).spec == (("x",), ())
        np.testing.assert_array_equal(out, A[:, :2] + A[:, 2:])


def test_types_tell_their_states() -> None:
    seen = []
    body = lambda a: seen.append(sw.typeof(a).mat) or a  # noqa: E731
    sw.jit(sw.shard_map(body, out_specs=P("x", reduced={"y"})))(sw.device_put(A, P("x", reduced={"y"})))
    (mat,) = seen
    assert (mat.varying, mat.unreduced, mat.reduced) == ({"x"}, set(), {"y"})
    whole = sw.typeof(jnp.ones(2)).mat
    assert whole.invarying(sw.make_mesh((2,), ("z",), axis_types=(AxisType.Manual,))) == {"z"}


def test_what_is_made_like_the_type_of_a_block_varies_as_it_does() -> None:
    def body(x):
        like = sw.eval_shape(jnp.sin, x)
        assert like.vma == {"x"}
        return lax.scan(lambda c, _: (c + x, None), lax.full_like(like, 1), None, length=2)[0]

    x = sw.device_put(A, P("x", None))
    np.testing.assert_array_equal(sw.shard_map(body, out_specs=P("x"))(x), 1 + 2 * A)


@pytest.mark.parametrize("to", ["varying", "reduced", "unreduced"])
def test_a_cast_over_no_axes_changes_nothing(to: str) -> None:
    x = jnp.arange(3.0)
    assert lax.pcast(x, (), to=to) is x
    seen: list[object] = []
    sw.shard_map(lambda x: (seen.append(sw.typeof(lax.pcast(x, (), to=to)).vma), x)[1], out_specs=P("x"))(
        sw.reshard(jnp.arange(4.0), P("x"))
    )
    assert seen == [frozenset({"x"})]


@pytest.mark.parametrize("name", ["all_gather", "psum", "psum_scatter", "all_to_all", "ppermute"])
def test_collectives_keep_what_is_reduced_over_other_axes(name: str) -> None:
    """Their cotangents are partial sums over those axes: a type that lost the mark would lose the cotangent with it."""
    collective = {
        "all_gather": lambda w: lax.all_gather(w, "y", tiled=True),
        "psum": lambda w: lax.psum(w, "y"),
        "psum_scatter": lambda w: lax.psum_scatter(w, "y", tiled=True),
        "all_to_all": lambda w: lax.all_to_all(w, "y", 0, 1, tiled=True),
        "ppermute": lambda w: lax.ppermute(w, "y", [(0, 1), (1, 0)]),
    }[name]

    def loss(w: sw.Array, marked: bool) -> sw.Array:
        def body(w: sw.Array) -> sw.Array:
            w = collective(lax.pcast(w, "x", to="reduced") if marked else w)
            assert w.aval.reduced == ({"x"} if marked else set())
            scale = 1.0 + lax.axis_index("x") + 2.0 * lax.axis_index("y")
            return (jnp.sin(w) * scale).sum()[None]

        return sw.shard_map(body, in_specs=P("y"), out_specs=P(("x", "y")))(w).sum()

    w = sw.device_put(B, P("y", None))
    _same(sw.jit(sw.grad(lambda w: loss(w, True)))(w), sw.jit(sw.grad(lambda w: loss(w, False)))(w))


@pytest.mark.parametrize("op", [lax.add, lax.mul, lax.max])
def test_reduced_beside_varying(op: Callable[..., Any]) -> None:
    """The reduced operand varies, too, and its cotangent is a partial sum."""
    x, w = sw.device_put(np.concatenate([A, -A]), P("x")), sw.device_put(A + 1, P(reduced={"x"}))
    f = sw.shard_map(lambda x, w: lax.psum(op(x, w), "x"), out_specs=P())
    dx, dw = sw.jit(sw.grad(lambda x, w: (f(x, w) ** 2).sum(), (0, 1)))(x, w)
    assert sw.typeof(dw).unreduced == {"x"}
    plain = lambda x, w: ((op(x[:2], w) + op(x[2:], w)) ** 2).sum()  # noqa: E731
    _same((dx, dw), sw.grad(plain, (0, 1))(np.concatenate([A, -A]), A + 1))


def test_varying_results_leave_as_partial_sums() -> None:
    a, b = sw.device_put(A, P(None, "x")), sw.device_put(B, P("x", None))
    f = sw.jit(sw.shard_map(lambda a, b: a @ b, out_specs=P(unreduced={"x"})))
    assert sw.typeof(f(a, b)).unreduced == {"x"}
    _same(f(a, b), A @ B)
    _same(
        sw.jit(sw.grad(lambda a, b: sw.reshard(f(a, b), P()).sum(), (0, 1)))(a, b),
        (A * 0 + B.sum(1), B * 0 + A.sum(0)[:, None]),
    )
    with pytest.raises(ValueError, match="unreduced"):
        sw.shard_map(lambda a: a, in_specs=P(), out_specs=P(unreduced={"x"}))(A)


def test_zero_cotangents_of_reduced_values_are_partial_sums() -> None:
    w = sw.device_put(A, P(reduced={"x"}))

    @sw.custom_vjp
    def constant(w: sw.Array) -> sw.Array:
        return w

    constant.defvjp(lambda w: (w, None), lambda _, ct: (None,))
    f = sw.shard_map(constant, out_specs=P(reduced={"x"}))
    assert sw.typeof(sw.jit(sw.grad(lambda w: f(w).sum()))(w)).unreduced == {"x"}
    _, back = sw.vjp(sw.jit(lambda w, v: v), w, w)
    unused, used = back(sw.reshard(A, P(unreduced={"x"})))
    assert sw.typeof(unused).unreduced == sw.typeof(used).unreduced == {"x"}
    _, tangent = sw.jvp(lambda w, v: jnp.concatenate([w, v]), (w, w), (w, sw.numpy.zeros_like(w)))
    assert sw.typeof(tangent).reduced == {"x"}
