"""Types of partial sums and of reduced values over Explicit axes: each row is what JAX 0.10.2 gives, or refuses, on 8 devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base.config import use_dialect
from shardwise.base.errors import ShardingTypeError
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P

A = np.round(np.random.default_rng(0).normal(size=(8, 8)), 1).astype(np.float32)
B = np.round(np.random.default_rng(1).normal(size=(8, 8)), 1).astype(np.float32)


@pytest.fixture(autouse=True)
def explicit():
    with use_dialect("latest"):
        mesh = jax.make_mesh((2, 4), ("x", "y"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
        with jax.set_mesh(mesh):
            yield mesh


def value(state: str):
    """plain, split over x, a partial sum over an axis (u: y), reduced over one (r: y), or both split and marked."""
    if state in ("plain", "split"):
        return jax.device_put(A, P("x" if state == "split" else None, None))
    if state[0] == "r":
        return jax.device_put(A, P("x" if state == "rs" else None, None, reduced={"x" if state == "rx" else "y"}))
    axis, rows = ("x", None) if state == "ux" else ("y", "x" if state == "us" else None)
    left, right = jax.device_put(A, P(rows, axis)), jax.device_put(B, P(axis, None))
    return jnp.einsum("ij,jk->ik", left, right, out_sharding=P(rows, None, unreduced={axis}))


WHOLE = {"u": A @ B, "us": A @ B, "ux": A @ B}


def whole(state: str):
    return WHOLE.get(state, A)


def summed(x):
    """What a value of any marks stands for."""
    return np.asarray(jax.reshard(x, P(*x.aval.sharding.spec.partitions)))


MARK = {
    "u": "{U:y}",
    "us": "{U:y}",
    "ux": "{U:x}",
    "r": "{R:y}",
    "rs": "{R:y}",
    "rx": "{R:x}",
    "plain": "",
    "split": "",
}

# Keep the marks of their one operand.
ALIKE = {
    "add": lambda x: x + x, "transpose": lambda x: x.T, "reshape": lambda x: x.reshape(x.shape[0], 2, 4),
    "convert": lambda x: x.astype(jnp.float32), "sum": lambda x: x.sum(1), "broadcast": lambda x: jnp.broadcast_to(x, (3, 8, 8)),
    "expand": lambda x: x[None], "concatenate": lambda x: jnp.concatenate([x, x], 1), "stack": lambda x: jnp.stack([x, x]),
    "pad": lambda x: jnp.pad(x, ((0, 0), (1, 1))), "where": lambda x: jnp.where(True, x, x), "copy": jnp.copy,
    "split": lambda x: jnp.split(x, 2, 1)[1], "stop": lax.stop_gradient, "barrier": lax.optimization_barrier,
    "update": lambda x: lax.dynamic_update_slice(x, x * 1, (0, 0)) if x.aval.reduced else lax.dynamic_update_slice(x, x, (0, 0)),
    "precision": lambda x: lax.reduce_precision(x, 8, 23),
    "scan": lambda x: lax.scan(lambda c, _: (c + c, None), x, None, length=2)[0], "jit": jax.jit(lambda x: x + x),
    "loop": lambda x: lax.fori_loop(0, 2, lambda i, c: c + c, x), "checkpoint": jax.checkpoint(lambda x: x + x),
}  # fmt: skip
# Keep `reduced`, as they are not linear; JAX refuses partial sums.
NONLINEAR = {
    "sin": jnp.sin, "exp": jnp.exp, "abs": jnp.abs, "square": jnp.square, "twice": lambda x: x * 2, "half": lambda x: x / 2,
    "more": lambda x: x + 1, "product": lambda x: x * x, "quotient": lambda x: x / (x + 9), "clip": lambda x: jnp.clip(x, -1, 1),
    "compare": lambda x: x > x, "maximum": lambda x: jnp.maximum(x, x), "negative": lambda x: -x, "mean": lambda x: x.mean(1),
}  # fmt: skip


@pytest.mark.parametrize("state", list(MARK))
def test_marks_go_on(state):
    functions = ALIKE if state[0] == "u" else ALIKE | NONLINEAR
    x = value(state)
    marked = jax.jit(lambda x: {name: f(x) for name, f in functions.items()})(x)
    marked |= {f"{name}, eager": functions[name](x) for name in ("add", "split", "concatenate", "update")}
    want = jax.jit(lambda x: {name: f(x) for name, f in functions.items()})(jnp.asarray(whole(state)))
    for name, out in marked.items():
        assert str(jax.typeof(out)).partition("]")[2] == MARK[state], (name, jax.typeof(out))
        expected = np.asarray(want[name.removesuffix(", eager")])
        np.testing.assert_allclose(summed(out), expected, rtol=1e-6, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("state", ["u", "us", "ux"])
def test_partial_sums_are_refused_where_the_sum_does_not_commute(state):
    for name in ("sin", "exp", "abs", "square", "more", "product", "quotient", "compare", "maximum"):
        with pytest.raises((ShardingTypeError, NotImplementedError)):
            NONLINEAR[name](value(state))


# Operands, and the marks of results: of additions, of products, of a matrix product; None where JAX raises.
PAIRS = [
    ("u", "u", "{U:y}", None, None), ("u", "us", "{U:y}", None, None), ("u", "ux", None, None, None),
    ("u", "plain", None, None, None), ("split", "us", None, None, None), ("u", "r", None, "{U:y}", None),
    ("r", "u", None, "{U:y}", None), ("u", "rx", None, None, None), ("us", "rs", None, "{U:y}", None),
    ("r", "r", "{R:y}", "{R:y}", ""), ("r", "rs", "{R:y}", "{R:y}", ""), ("r", "rx", None, None, ""),
    ("r", "plain", None, None, ""), ("split", "rs", None, None, ""), ("rs", "plain", None, None, ""),
]  # fmt: skip


@pytest.mark.parametrize(("left", "right", "added", "multiplied", "dot"), PAIRS)
def test_marks_meet(left, right, added, multiplied, dot):
    cases: list[tuple[Callable[..., Any], Any]] = [(jnp.add, added), (jnp.multiply, multiplied), (jnp.matmul, dot)]
    for f, want in cases:
        for run in (f, jax.jit(f)):
            if want is None:
                with pytest.raises(ShardingTypeError):
                    run(value(left), value(right))
                continue
            out = run(value(left), value(right))
            assert str(jax.typeof(out)).partition("]")[2] == want, f
            np.testing.assert_allclose(summed(out), f(whole(left), whole(right)), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("state", ["r", "rs", "rx"])
def test_cotangents_of_reduced_values_are_partial_sums(state):
    """Of every function, at every target of a reshard: the type, and the sum."""
    functions = {k: f for k, f in (ALIKE | NONLINEAR).items() if k not in ("compare", "stop", "loop")}
    functions |= {
        "slice": lambda x: x[:, 2:4],
        "reshard": lambda x: jax.reshard(x, P(None, "y")),
        "reshard to split": lambda x: jax.reshard(x, P("x", None)),
        "reduced": lambda x: x * x * jnp.sin(x),
    }

    def total(f, x):
        return jax.reshard(f(x), P()).sum() * 1.5

    found = jax.jit(lambda x: {name: jax.grad(total, 1)(f, x) for name, f in functions.items()})(value(state))
    want = jax.jit(lambda x: {name: jax.grad(lambda x, f=f: f(x).sum() * 1.5)(x) for name, f in functions.items()})(
        jnp.asarray(A)
    )
    for name, ct in found.items():
        assert str(jax.typeof(ct)).partition("]")[2] == MARK[state].replace("R", "U"), name
        np.testing.assert_allclose(summed(ct), np.asarray(want[name]), rtol=1e-5, atol=1e-5, err_msg=name)


def test_cotangents_of_partial_sums_are_reduced():
    for name, f in {"whole": P(None, None), "split": P(None, "y"), "other axis": P("x", None)}.items():
        x = value("u")
        out, back = jax.vjp(lambda x, f=f: jax.reshard(x, f), x)
        (ct,) = back(out)
        assert str(jax.typeof(ct)) == "float32[8,8]{R:y}", name
        np.testing.assert_allclose(np.asarray(ct), A @ B, rtol=1e-5, atol=1e-5)


def test_marks_stand_in_named_shardings(explicit):
    assert value("r").sharding == NamedSharding(explicit, P(None, None, reduced={"y"}))
    assert value("u").sharding == NamedSharding(explicit, P(None, None, unreduced={"y"}))


def test_types_can_leave_out_axes_of_size_one():  # as JAX 0.10.2
    mesh = jax.make_mesh((4, 1), ("x", "y"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    whole = np.ones((8, 4), np.float32)
    with jax.set_mesh(mesh):
        f = jax.jit(lambda x: jax.sharding.reshard(x, P("y", "x")))
        x = jax.device_put(whole, NamedSharding(mesh, P("x", "y")))
        assert str(jax.typeof(x)) == "float32[8@x,4@y]" and str(jax.typeof(f(x))) == "float32[8@y,4@x]"
        with jax.remove_size_one_mesh_axis_from_type(True):
            x = jax.device_put(whole, NamedSharding(mesh, P("x", "y")))
            assert str(jax.typeof(x)) == "float32[8@x,4]" and x.sharding.spec == P("x", "y")
            assert str(jax.typeof(f(x))) == "float32[8,4@x]" and f(x).sharding.spec == P(None, "x")
            np.testing.assert_array_equal(jax.jit(lambda x: x.T + 1)(x), whole.T + 1)


@pytest.mark.parametrize("axes", [{"x"}, {"y"}, {"x", "y"}])
def test_shards_of_partial_sums_add_up(axes):
    mesh = jax.make_mesh((2, 2), ("x", "y"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    host = np.arange(4.0, dtype=np.float32)
    kept = {"x", "y"} - axes
    with jax.set_mesh(mesh):
        made = jax.jit(lambda x: x, out_shardings=jax.P(*kept, unreduced=axes))(jnp.asarray(host))
        whole = jax.reshard(made, jax.P())
    total = np.zeros(4, np.float32)
    for shard in made.addressable_shards:
        total[shard.index] += np.asarray(shard.data)
    np.testing.assert_array_equal(total, host)
    np.testing.assert_array_equal(np.asarray(whole), host)


def test_gathers_from_reduced_tables():
    """Their cotangents add partial sums to a table of them."""
    table = jax.device_put(A, P(reduced={"x"}))
    at = jax.device_put(np.array([3, 0, 3, 5]), P("x"))
    loss = lambda t, i: (t.at[i].get(out_sharding=P("x", None)) ** 2).sum()  # noqa: E731
    slope = jax.jit(jax.grad(loss))(table, at)
    assert jax.typeof(slope).unreduced == {"x"}
    np.testing.assert_allclose(jax.reshard(slope, P()), jax.grad(lambda t: (t[np.array([3, 0, 3, 5])] ** 2).sum())(A))


def test_vmapped_products_keep_marks():
    w = jax.device_put(A, P(reduced={"x"}))
    x = jax.device_put(np.stack([A, B]), P(None, "x"))
    loss = lambda w, x: (jnp.dot(x, w, out_sharding=P("x")) ** 2).sum()  # noqa: E731
    slopes = jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0)))(w, x)
    assert jax.typeof(slopes).unreduced == {"x"}
    for found, rows in zip(jax.reshard(slopes, P()), (A, B), strict=True):
        np.testing.assert_allclose(found, 2 * rows.T @ (rows @ A), rtol=2e-5, atol=1e-5)


def test_ops_without_a_rule_for_partial_sums_are_not_implemented():
    with pytest.raises(NotImplementedError, match="sin does not take operands with partial sums"):
        jnp.sin(value("u"))


def test_types_may_leave_out_axes_of_size_one():
    """What names such an axis beside a type means the type without it."""
    mesh = jax.make_mesh((2, 1), ("a", "b"), axis_types=(jax.sharding.AxisType.Explicit,) * 2)
    with jax.remove_size_one_mesh_axis_from_type(True), jax.set_mesh(mesh):
        x = jax.device_put(A, P("a", "b"))
        assert jax.typeof(x).sharding.spec == P("a", None)
        kept = jax.jit(lambda x: lax.with_sharding_constraint(x * 2, P("a", "b")))(x)
        inner = jax.shard_map(lambda x: lax.psum(x, "a"), in_specs=P("a", "b"), out_specs=P(None, "b"))(x)
        both = jax.device_put(A, P(("a", "b")))
        mapped = jax.jit(jax.vmap(lambda row: row * 2, spmd_axis_name=("a", "b")))(both)
        np.testing.assert_allclose(kept, A * 2)
        np.testing.assert_allclose(mapped, A * 2)
        np.testing.assert_allclose(inner, A[:4] + A[4:])


def test_a_mesh_in_context_has_the_devices_of_the_computation():
    """Whoever names other devices in a mesh context, by arguments, results or constraints, is refused."""
    here, there = jax.make_mesh((2,), ("a",)), jax.sharding.Mesh(jax.devices()[2:4], ("b",))
    sharding = NamedSharding(there, P("b"))
    x = jax.device_put(A, sharding)
    calls = (
        lambda: jax.jit(lambda x: x + 1)(x),
        lambda: x + 1,
        lambda: jax.jit(lambda: jnp.zeros(8) + 1, out_shardings=sharding)(),
        lambda: jax.jit(lambda x: x + 1, in_shardings=sharding)(A),
        lambda: jax.jit(lambda x: lax.with_sharding_constraint(x, sharding))(A),
    )
    with jax.set_mesh(here):
        for call in calls:
            with pytest.raises(ValueError, match="Received incompatible devices"):
                call()


def test_random_bits_split_by_out_sharding():
    key = np.arange(4, dtype=np.uint32)
    draw = lambda key: lax.rng_bit_generator(key, (4, 8), out_sharding=P("x"))[1]  # noqa: E731
    for found in (draw(key).sharding, jax.jit(draw)(key).sharding):
        assert isinstance(found, NamedSharding) and found.spec == P("x", None)
    np.testing.assert_array_equal(draw(key), lax.rng_bit_generator(key, (4, 8))[1])
    np.testing.assert_array_equal(jax.jit(draw)(key), draw(key))


def test_creation_like_an_abstract_sharding(explicit):
    like = jax.ShapeDtypeStruct((8,), np.float32, sharding=NamedSharding(explicit.abstract_mesh, P("x")))
    assert jnp.zeros_like(like).sharding == NamedSharding(explicit, P("x"))
    assert jax.jit(lambda: jnp.ones_like(like)).trace().out_info.sharding.spec == P("x")


def test_percentile_of_a_split_dim():
    x = jax.device_put(np.arange(8.0, dtype=np.float32), P("x"))
    assert float(jax.jit(lambda x: jnp.percentile(x, 50, axis=0, out_sharding=P()))(x)) == 3.5


def test_broadcast_like_asks_for_one_layout():
    with pytest.raises(ValueError, match="incompatible types"):
        lax.broadcast_like(jax.device_put(A[0], P("x")), value("plain"))


@pytest.mark.parametrize(
    ("given", "wanted", "fits"),
    [
        (P("x"), P("y", "x"), True),
        (P(), P("y", "x"), True),
        (P("x"), P("y", None), False),
        (P("x"), P(None, "y"), False),
        (P("x"), P("x"), False),
    ],
)
def test_broadcast_to_splits_further_and_never_otherwise(given, wanted, fits):
    x = jax.device_put(A[0], given)
    if fits:
        assert jax.typeof(jnp.broadcast_to(x, (8, 8), out_sharding=wanted)).sharding.spec == wanted
    else:
        with pytest.raises(ValueError, match="broadcast_to: incompatible types"):
            jnp.broadcast_to(x, (8, 8), out_sharding=wanted)
    assert jax.typeof(lax.broadcast_in_dim(x, (8, 8), (1,), out_sharding=P("x", None))).sharding.spec == P("x", None)
