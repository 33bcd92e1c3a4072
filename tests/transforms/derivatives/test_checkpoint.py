"""checkpoint: the same gradients with less kept, as the policy says, under every composition."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ad_checkpoint import checkpoint_name, print_saved_residuals, saved_residuals
from shardwise.passes.inline import inline_calls
from shardwise.sharding import PartitionSpec as P
from tests.rounding import assert_normwise

RNG = np.random.default_rng(3)
W = RNG.standard_normal((8, 8)).astype(np.float32)
X = RNG.standard_normal((4, 8)).astype(np.float32)
policies = sw.checkpoint_policies


def layer(w: Any, x: Any) -> Any:
    return jnp.tanh(checkpoint_name(x @ jnp.sin(w), "product"))


def model(wrap: Any) -> Any:
    def loss(w, x):
        for _ in range(3):
            x = wrap(layer)(w, x)
        return jnp.sum(x * x)

    return loss


PLAIN = model(lambda f: f)
POLICIES = {
    "default": None,
    "nothing": policies.nothing_saveable,
    "everything": policies.everything_saveable,
    "dots": policies.dots_saveable,
    "dots_no_batch": policies.dots_with_no_batch_dims_saveable,
    "dots_by_primitive": lambda primitive, *_, **__: primitive is lax.dot_general_p,
    "names": policies.save_only_these_names("product"),
    "other_names": policies.save_any_names_but_these("product"),
    "but_names": policies.save_anything_except_these_names("product"),
    "both": policies.save_from_both_policies(policies.save_only_these_names("product"), policies.nothing_saveable),
}


def rematted(name: str, **options: Any) -> Any:
    return model(lambda f: sw.checkpoint(f, policy=POLICIES[name], **options))


@pytest.mark.parametrize("name", POLICIES)
def test_same_gradients(name: str) -> None:
    loss = rematted(name)
    expected = np.asarray(sw.grad(PLAIN)(W, X))
    assert_normwise(sw.grad(loss)(W, X), expected, 1e-5)
    assert_normwise(sw.jit(sw.grad(loss))(W, X), expected, 1e-5)
    assert_normwise(sw.grad(sw.jit(loss))(W, X), expected, 1e-5)
    stack = np.stack([X, 2 * X])
    by_one = [np.asarray(sw.grad(PLAIN)(W, x)) for x in stack]
    assert_normwise(sw.vmap(sw.grad(loss), (None, 0))(W, stack), by_one, 1e-5)
    total = sw.jit(sw.grad(lambda w: jnp.sum(sw.vmap(loss, (None, 0))(w, stack))))(W)
    assert_normwise(total, np.sum(by_one, 0), 1e-5)
    forward = sw.jvp(PLAIN, (W, X), (W, X))[1]
    assert_normwise(sw.jvp(loss, (W, X), (W, X))[1], forward, 1e-5)
    second = lambda f: sw.jit(lambda w: sw.jvp(sw.grad(f), (w, X), (w, X))[1])(W)  # noqa: E731
    assert_normwise(second(loss), second(PLAIN), 1e-5)
    both = lambda f: sw.grad(lambda w: jnp.sum(sw.grad(f)(w, X) ** 2))(W)  # noqa: E731
    assert_normwise(both(loss), both(PLAIN), 1e-5)


def _kept(name: str) -> Counter[tuple[int, ...]]:
    """Shapes of what is kept, arguments aside."""
    return Counter(t.shape for t, origin in saved_residuals(rematted(name), W, X) if "argument" not in origin)


def test_what_is_kept() -> None:
    between_layers, after_loss = 2, 1
    assert _kept("default") == _kept("nothing") == {(4, 8): between_layers + after_loss}
    assert (
        _kept("dots")
        == _kept("names")
        == _kept("both")
        == _kept("dots_by_primitive")
        == {(4, 8): between_layers + after_loss + 3}
    )
    assert _kept("other_names") == _kept("nothing")
    assert _kept("everything")[(8, 8)] >= 1


def _ops(function: Any, *args: Any) -> Counter[str]:
    executable = sw.jit(function).lower(*args)._entry.executable
    return Counter(e.op.name for e in executable.device_program.equations)


def test_compiled_program_computes_again() -> None:
    plain, again, kept, chosen, merged = (
        _ops(sw.grad(f), W, X)
        for f in (
            PLAIN,
            rematted("nothing"),
            rematted("dots"),
            rematted("dots_by_primitive"),
            rematted("nothing", prevent_cse=False),
        )
    )
    assert again["sin"] == plain["sin"] + 3
    assert again["dot_general"] == plain["dot_general"] + 3
    assert kept["dot_general"] == chosen["dot_general"] == plain["dot_general"]
    assert merged["dot_general"] == plain["dot_general"]


def test_an_argument_at_a_time_is_kept_from_being_merged() -> None:
    def sines(prevent: Any) -> int:
        f = sw.checkpoint(lambda a, b: jnp.sin(jnp.cos(a["w"])) * jnp.sin(jnp.cos(b)), prevent_cse=prevent)
        return _ops(sw.value_and_grad(lambda a, b: f(a, b).sum(), (0, 1)), {"w": W}, W)["sin"]

    both, none = sines(True), sines(False)
    assert (
        both
        == sines((True, True))
        > sines(({"w": True}, False))
        == sines([False, True])
        > none
        == sines(({"w": False}, False))
    )


def test_policy_sees_inside_jit() -> None:
    loss = model(lambda f: sw.checkpoint(sw.jit(f), policy=policies.dots_saveable))
    assert _ops(sw.grad(loss), W, X)["dot_general"] == _ops(sw.grad(PLAIN), W, X)["dot_general"]


def test_sharded() -> None:
    mesh = sw.make_mesh((4,), ("x",), axis_types=(sw.sharding.AxisType.Auto,))
    loss = rematted("dots")
    mapped = sw.shard_map(lambda w, x: lax.psum(loss(w, x), "x"), mesh=mesh, in_specs=(P(), P("x")), out_specs=P())
    assert_normwise(sw.jit(sw.grad(mapped))(W, X), sw.grad(PLAIN)(W, X), 1e-5)
    x = sw.device_put(X, sw.NamedSharding(mesh, P("x")))
    assert_normwise(sw.jit(sw.grad(loss))(W, x), sw.grad(PLAIN)(W, X), 1e-5)


def test_closures_statics_and_trees() -> None:
    @sw.checkpoint
    def f(tree, *, scale):
        return {"out": tree["a"] * scale, "n": 3}

    assert sw.grad(lambda a: f({"a": a}, scale=4.0)["out"])(2.0) == 4
    g = sw.checkpoint(lambda n, x: x**2 if n > 1 else x, static_argnums=(0,))
    assert sw.grad(g, 1)(2, 3.0) == 6 and sw.grad(g, 1)(1, 3.0) == 1
    assert sw.grad(lambda a: sw.checkpoint(lambda x: x * a)(3.0) * a)(2.0) == 12
    with pytest.raises(sw.errors.TracerBoolConversionError) as caught:
        sw.grad(sw.checkpoint(lambda n, x: x**2 if n > 1 else x), 1)(2, 3.0)
    assert "static_argnums" in "".join(caught.value.__notes__)
    with pytest.raises(ValueError, match="static_argnums"):
        sw.grad(sw.checkpoint(lambda x: x, static_argnums=(2,)))(3.0)
    with pytest.raises(NotImplementedError, match="static_argnums"):
        sw.checkpoint(lambda x: x, concrete=True)
    assert sw.grad(sw.remat(lambda n, x: x**n, static_argnums=(0,)), 1)(2, 3.0) == 6
    with pytest.raises(TypeError, match="static_argnames"):
        cast(Any, sw.remat)(lambda x: x, static_argnames="x")


def test_what_would_be_offloaded_is_kept(capsys: Any) -> None:
    where = dict(offload_src="device", offload_dst="pinned_host")
    names: Any = dict(names_which_can_be_saved=[], names_which_can_be_offloaded=["hidden"], **where)
    for policy, same in (
        (policies.offload_dot_with_no_batch_dims(**where), policies.dots_with_no_batch_dims_saveable),
        (policies.save_and_offload_only_these_names(**names), policies.save_only_these_names("hidden")),
    ):
        texts = []
        for p in (policy, same):
            print_saved_residuals(sw.checkpoint(layer, policy=p), W, X)
            texts.append(capsys.readouterr().out)
        assert texts[0] == texts[1]
    with pytest.raises(ValueError, match="in names_which_can_be_saved and in"):
        policies.save_and_offload_only_these_names(**cast(Any, {**names, "names_which_can_be_saved": ["hidden"]}))


def test_print_saved_residuals(capsys: Any) -> None:
    print_saved_residuals(sw.checkpoint(layer, policy=POLICIES["names"]), W, X)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["f32[8,8] from the argument w", "f32[4,8] from the argument x"]
    assert len(lines) == 3


def test_saved_residuals_name_what_made_them() -> None:
    def two(*layers: Any) -> Any:
        return sw.checkpoint(jnp.sin)(jnp.sin(layers[1]) * layers[0]["w"])

    def origins(f: Any, *args: Any) -> list[str]:
        return [origin.partition(" from test")[0] for _, origin in saved_residuals(f, *args)]

    found = ["from the argument layers[0]['w']", "output of sin", "output of cos", "output of mul"]
    assert origins(two, {"w": 2.0}, 3.0) == found  # in the order of the program
    assert sorted(origins(sw.jit(two), {"w": 2.0}, 3.0)) == sorted(found)
    keeps = sw.checkpoint(layer, policy=policies.save_only_these_names("product"))
    dots = sw.checkpoint(layer, policy=policies.dots_saveable)
    assert origins(keeps, W, X)[2:] == ["named 'product'"]
    assert origins(dots, W, X)[2:] == ["output of dot_general"]


def test_same_as_jax() -> None:
    jax = pytest.importorskip("jax")
    theirs = jax.grad(lambda w, x: jax.numpy.sum(jax.checkpoint(lambda w, x: jax.numpy.tanh(x @ w))(w, x)))(W, X)
    ours = sw.grad(lambda w, x: jnp.sum(sw.checkpoint(lambda w, x: jnp.tanh(x @ w))(w, x)))(W, X)
    assert_normwise(ours, theirs, 5e-6)


def test_static_arguments_by_name():
    f = sw.checkpoint(lambda x, *, mode: x * x if mode == "square" else x, static_argnames="mode")
    assert sw.jit(sw.grad(lambda x: f(x, mode="square")))(3.0) == 6.0
    assert sw.jit(sw.grad(lambda x: f(x, mode="same")))(3.0) == 1.0


def test_eager_calls_are_traced_as_others() -> None:
    with pytest.raises(sw.errors.TracerBoolConversionError):
        sw.checkpoint(lambda x: x if x > 0 else -x)(1.0)
    assert sw.checkpoint(lambda x: x if x > 0 else -x, static_argnums=0)(-1.0) == 1
    with pytest.raises(ValueError, match="static_argnums"):
        sw.checkpoint(lambda x: x, static_argnums=3)(1.0)
    with pytest.raises(TypeError):
        sw.checkpoint(lambda x: "text")(1.0)


# -- one trace for all layers --------------------------------------------------------------------------------------------


def traces_of(jax: Any, calls: Any) -> list[int]:
    """The number of traces of a checkpointed function after each of `calls`, made under jit."""
    found: list[int] = []
    count = 0

    def f(x, scale=1):
        nonlocal count
        count += 1
        return jax.numpy.sin(x) * scale

    def run(x):
        for call in calls:
            call(jax, f, x)
            found.append(count)
        return x

    jax.jit(run)(X)
    return found


CALLS = [
    lambda jax, f, x: jax.checkpoint(f)(x),
    lambda jax, f, x: jax.checkpoint(f)(x),  # another wrapper of the same function
    lambda jax, f, x: jax.checkpoint(f)(x[:2]),
    lambda jax, f, x: jax.checkpoint(f, static_argnums=1)(x, 2),
    lambda jax, f, x: jax.checkpoint(f, static_argnums=1)(x, 2),
    lambda jax, f, x: jax.checkpoint(f, static_argnums=1)(x, 3),
    lambda jax, f, x: jax.grad(lambda x: jax.checkpoint(f)(x).sum())(x),
]


def test_a_function_is_traced_once_for_arguments_of_the_same_types():
    jax = pytest.importorskip("jax")
    expected = traces_of(jax, CALLS)
    assert traces_of(sw, CALLS) == expected
    assert expected == [1, 1, 2, 3, 3, 4, 4]


def test_equal_static_arguments_of_two_types_are_two():
    f = sw.checkpoint(lambda x, n: x * n, static_argnums=1)
    assert [f(jnp.int32(3), n).dtype for n in (2, 2.0, True)] == [jnp.int32, jnp.float32, jnp.int32]


def test_static_arguments_need_no_hash():
    def f(x, weights):
        return x * sum(weights)

    for weights in ([1.0, 2.0], [3.0], {4.0: None}):  # the first call of the function is like the others
        g = sw.checkpoint(f, static_argnums=1)
        assert [g(2.0, weights), sw.grad(g)(2.0, weights)] == [2 * sum(weights), sum(weights)]


@dataclass(frozen=True)
class Scaled:
    """A function that equals others with an equal factor."""

    factor: Any

    def __call__(self, x: Any) -> Any:
        return x * self.factor

    def called(self, x: Any) -> Any:
        return self(x)


@pytest.mark.parametrize("function", [lambda f: f, lambda f: f.called], ids=["object", "method"])
def test_equal_functions_that_compute_different_values_are_two(function):
    functions = [function(Scaled(factor)) for factor in (2, 2.0, True, 0.0, -0.0)]
    found = [sw.jit(sw.checkpoint(f))(jnp.int32(3)) for f in functions]
    expected = [f(jnp.int32(3)) for f in functions]
    assert [repr(x) for x in found] == [repr(x) for x in expected]


def test_captured_values_of_a_trace_are_not_kept_for_the_next():
    def loss(w, x):
        for i in range(3):
            scale = jnp.sin(w * (i + 1))

            def scaled(x):
                return jnp.tanh(x * scale)  # noqa: B023

            x = sw.checkpoint(scaled)(x)
        inner = lambda x: jnp.cos(x) * w  # noqa: E731
        return jnp.sum(sw.checkpoint(inner)(x) + sw.checkpoint(inner)(2 * x))

    def plain(w, x):
        for i in range(3):
            x = jnp.tanh(x * jnp.sin(w * (i + 1)))
        return jnp.sum(jnp.cos(x) * w + jnp.cos(2 * x) * w)

    for args in [(1.5, X[:1]), (2.5, X[:1])]:
        got, want = sw.jit(sw.grad(loss, (0, 1)))(*args), sw.jit(sw.grad(plain, (0, 1)))(*args)
        for g, w in zip(got, want, strict=True):
            assert_normwise(g, w, 1e-6)


@pytest.mark.parametrize("name", ["default", "dots", "names", "everything"])
def test_layers_that_share_a_trace_make_the_program_that_layers_of_their_own_make(name: str):
    def shared(w, x):
        for _ in range(4):
            x = sw.checkpoint(layer, policy=POLICIES[name])(w, x)
        return jnp.sum(x * x)

    def apart(w, x):
        for _ in range(4):
            x = sw.checkpoint(lambda w, x: layer(w, x), policy=POLICIES[name])(w, x)
        return jnp.sum(x * x)

    texts = [str(inline_calls(sw.make_jaxpr(sw.grad(f, (0, 1)))(W, X).program)) for f in (shared, apart)]
    assert texts[0] == texts[1]
    assert texts[0].count("tanh") == 8  # each layer, and again in the backward pass


def test_loops_in_layers_are_laid_out_each_on_its_own():
    mesh = sw.make_mesh((2, 2), ("a", "b"))

    def looped(x):
        return lax.scan(lambda c, _: (jnp.sin(c), None), x, None, length=3)[0]

    def f(x, y):
        layer = sw.checkpoint(looped)
        return layer(x), layer(y)

    given = [
        sw.device_put(np.ones((8, 8), np.float32), sw.NamedSharding(mesh, P(*s))) for s in (("a", None), (None, "b"))
    ]
    for x, y in zip(given, sw.jit(f)(*given), strict=True):
        assert y.sharding.is_equivalent_to(x.sharding, 2)


def test_a_policy_without_hash():
    class Names(list[str]):
        def __call__(self, primitive: Any, *_: Any, **params: Any) -> bool:
            return params.get("name") in self

    grads = [sw.grad(model(lambda f: sw.checkpoint(f, policy=p)), (0, 1))(W, X) for p in (Names(["product"]), None)]  # noqa: B023
    for g, w in zip(*grads, strict=True):
        assert_normwise(g, w, 1e-6)


def test_a_policy_that_was_called_keeps_nothing() -> None:
    found = []
    called: Any = policies.nothing_saveable()
    for policy in (called, None):
        f = sw.checkpoint(lambda w, x: jnp.tanh(jnp.tanh(x @ w)).sum(), policy=policy)
        found.append((len(saved_residuals(f, W, X)), sw.grad(f)(W, X).tolist()))
    assert found[0] == found[1]
    assert found[0][0] == 2


def test_policies_see_mapped_ops_of_derivatives() -> None:
    x = jnp.array([0.25, 0.5, -0.25])

    def third(policy):
        f = sw.checkpoint(lambda x: lax.dynamic_update_slice(x * 3, x[:1] * 2, (jnp.argmax(x),)) ** 2, policy=policy)
        return sw.jacrev(sw.jacfwd(sw.grad(lambda x: jnp.sum(f(x) ** 2))))(x)

    wanted = third(None)
    for policy in (sw.checkpoint_policies.dots_with_no_batch_dims_saveable, lambda op, *_, **params: True):
        np.testing.assert_array_equal(third(policy), wanted)


def test_policies_may_say_it_by_name():
    """What `ad_checkpoint` calls Saveable is kept, what it calls Recompute is computed again."""
    from shardwise import ad_checkpoint

    def f(x):
        return jnp.sin(jnp.cos(x))

    for verdict, plain in ((ad_checkpoint.Saveable, True), (ad_checkpoint.Recompute, False)):
        found = [
            saved_residuals(sw.checkpoint(f, policy=lambda *_, say=say, **__: say), 1.0) for say in (verdict, plain)
        ]
        assert len(found[0]) == len(found[1]) == 1 + plain
    place = ad_checkpoint.Offloadable(src="device", dst="pinned_host")
    assert (place.src, place.dst) == ("device", "pinned_host")


def in_a_loop(f):
    return lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=1)[0]


def in_a_branch(f):
    return lambda x: lax.cond(x > 0, f, lambda x: x, x)


def looping(w, x):
    def body(x, k):
        x = lax.cond(k > 0, lambda: layer(w, x), lambda: checkpoint_name(jnp.cos(x), "other") * 2)
        return x, checkpoint_name(x * k, "other")

    x, xs = lax.scan(body, x, jnp.arange(3.0))
    return jnp.sum(x * x) + lax.switch(jnp.int32(1), [lambda: xs.sum(), lambda: layer(w, xs[1]).sum()])


OF_LOOPS = {
    "nothing": (policies.nothing_saveable, []),
    "products": (policies.dots_saveable, [(3, 4, 8), (4, 8)]),
    "product": (policies.save_only_these_names("product"), [(3, 4, 8), (4, 8)]),
    "other": (policies.save_any_names_but_these("product"), [(3, 4, 8)] * 2),
    "offloaded": (
        policies.save_and_offload_only_these_names(
            names_which_can_be_saved=["other"],
            names_which_can_be_offloaded=["product"],
            offload_src="device",
            offload_dst="pinned_host",
        ),
        [(3, 4, 8)] * 3 + [(4, 8)],
    ),
    "everything": (policies.everything_saveable, None),
}


@pytest.mark.parametrize("name", OF_LOOPS)
def test_policies_reach_into_loops_and_branches(name: str) -> None:
    policy, kept = OF_LOOPS[name]
    wrapped = sw.checkpoint(looping, policy=policy)
    of_both = sw.grad(wrapped, (0, 1))
    wanted = sw.grad(looping, (0, 1))(W, X)
    for call in (of_both, sw.jit(of_both)):
        for a, b in zip(call(W, X), wanted, strict=True):
            assert_normwise(a, b, 1e-5)
    if kept is not None:
        found = [kind.shape for kind, origin in saved_residuals(wrapped, W, X) if "argument" not in origin]
        assert sorted(found) == kept


@pytest.mark.parametrize(
    ("policy", "times"),
    [
        (None, 2),
        (policies.nothing_saveable, 2),
        (policies.everything_saveable, 1),
        (policies.save_only_these_names("product"), 2),
        (policies.save_anything_except_these_names("product"), 1),
    ],
)
@pytest.mark.parametrize("wrap", [lambda f: f, in_a_loop, in_a_branch])
def test_callbacks_that_a_policy_keeps_are_not_called_again(policy, times, wrap):
    seen = []

    def f(x):
        y = checkpoint_name(x + 1.0, "product")
        sw.debug.callback(lambda y: seen.append(float(y)), y)
        return jnp.exp(y)

    once = sw.grad(sw.checkpoint(wrap(f), policy=policy))
    for call in (once, sw.jit(once)):
        seen.clear()
        assert float(call(2.0)) == pytest.approx(np.exp(3.0))
        assert seen == [3.0] * times
