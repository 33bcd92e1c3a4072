"""custom_jvp, custom_vjp, custom_gradient, closure_convert and linear_call: rules are used everywhere, errors name them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.custom_derivatives import SymbolicZero, custom_vjp_primal_tree_values, linear_call
from shardwise.interpreters import ad
from shardwise.sharding import PartitionSpec as P

X = np.linspace(0.1, 1.0, 6, dtype=np.float32)


def _jvp_function(jax: Any, jnp: Any) -> Any:
    """sin(x) * y whose derivative in x is three times too big: whoever uses the rule shows it."""

    @jax.custom_jvp
    def f(x, y):
        return jnp.sin(x) * y

    @f.defjvp
    def f_jvp(primals, tangents):
        (x, y), (a, b) = primals, tangents
        return f(x, y), 3 * jnp.cos(x) * y * a + jnp.sin(x) * b

    return f


def _vjp_function(jax: Any, jnp: Any) -> Any:
    @jax.custom_vjp
    def f(x, y):
        return jnp.sin(x) * y

    f.defvjp(lambda x, y: (jnp.sin(x) * y, (x, y)), lambda r, ct: (3 * jnp.cos(r[0]) * r[1] * ct, jnp.sin(r[0]) * ct))
    return f


COMPOSITIONS = {
    "grad": lambda jax, jnp, f: jax.grad(f, (0, 1))(0.5, 2.0),
    "jit(grad)": lambda jax, jnp, f: jax.jit(jax.grad(f, (0, 1)))(0.5, 2.0),
    "grad(jit)": lambda jax, jnp, f: jax.grad(jax.jit(f), (0, 1))(0.5, 2.0),
    "vmap(grad)": lambda jax, jnp, f: jax.vmap(jax.grad(f, (0, 1)), (0, None))(X, 2.0),
    "grad(vmap)": lambda jax, jnp, f: jax.grad(lambda x, y: jnp.sum(jax.vmap(f, (0, None))(x, y)), (0, 1))(X, 2.0),
    "grad(vmap) axes": lambda jax, jnp, f: jax.grad(lambda x, y: jnp.sum(jax.vmap(f, (1, 0))(x, y)), (0, 1))(
        X.reshape(2, 3), X.reshape(3, 2)),
    "jit(grad(vmap(jit)))": lambda jax, jnp, f: jax.jit(jax.grad(lambda y: jnp.sum(jax.vmap(jax.jit(f), (0, None))(X, y))))(2.0),
    "grad(vmap(vmap))": lambda jax, jnp, f: jax.grad(
        lambda x, y: jnp.sum(jax.vmap(jax.vmap(f, (0, None)), (None, 0))(x, y)), (0, 1))(X, X[:2]),
    "second": lambda jax, jnp, f: jax.grad(jax.grad(f))(0.5, 2.0),
    "jacfwd(grad)": lambda jax, jnp, f: jax.jacfwd(jax.grad(f))(0.5, 2.0),
    "unused": lambda jax, jnp, f: jax.grad(lambda x: x * f(2.0, 3.0))(0.5),
    "value": lambda jax, jnp, f: (f(0.5, 2.0), jax.jit(f)(0.5, 2.0), jax.vmap(f, (0, None))(X, 2.0)),
    "checkpoint": lambda jax, jnp, f: jax.grad(jax.checkpoint(f), (0, 1))(0.5, 2.0),
    "keywords": lambda jax, jnp, f: jax.grad(lambda x: f(y=2.0, x=x))(0.5),
}  # fmt: skip
FORWARD = {
    "jvp": lambda jax, jnp, f: jax.jvp(f, (0.5, 2.0), (1.0, 0.5)),
    "jvp(vmap)": lambda jax, jnp, f: jax.jvp(lambda x: jax.vmap(f, (0, None))(x, 2.0), (X,), (X,)),
    "hessian": lambda jax, jnp, f: jax.hessian(f)(0.5, 2.0),
}


def _equal(ours: Any, theirs: Any) -> None:
    for a, b in zip(sw.tree_util.tree_leaves(ours), sw.tree_util.tree_leaves(theirs), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize(
    "make, name",
    [(m, n) for m in (_jvp_function, _vjp_function) for n in COMPOSITIONS] + [(_jvp_function, n) for n in FORWARD],
)
def test_rule_is_used_as_by_jax(make: Any, name: str) -> None:
    jax = pytest.importorskip("jax")
    program = {**COMPOSITIONS, **FORWARD}[name]
    _equal(program(sw, jnp, make(sw, jnp)), program(jax, jax.numpy, make(jax, jax.numpy)))


@pytest.mark.parametrize("make", [_jvp_function, _vjp_function])
def test_in_shard_map(make: Any) -> None:
    mesh = sw.make_mesh((4,), ("x",), axis_types=(sw.sharding.AxisType.Auto,))
    f = make(sw, jnp)
    each = sw.vmap(f, (0, None))
    mapped = sw.shard_map(
        lambda x, y: lax.psum(jnp.sum(each(x, y)), "x"), mesh=mesh, in_specs=(P("x"), P()), out_specs=P()
    )
    x = np.linspace(0, 1, 8, dtype=np.float32)
    got = sw.jit(sw.grad(mapped, (0, 1)))(x, 2.0)
    _equal(got, (3 * np.cos(x) * 2, np.sin(x).sum()))


def test_forward_mode_of_custom_vjp_is_refused() -> None:
    f = _vjp_function(sw, jnp)
    with pytest.raises(TypeError, match=r"forward-mode.*custom_vjp"):
        sw.jvp(f, (0.5, 2.0), (1.0, 0.5))
    with pytest.raises(TypeError, match=r"forward-mode.*custom_vjp"):
        sw.jit(lambda x: sw.jvp(f, (x, 2.0), (1.0, 0.5)))(0.5)


def test_nondiff_arguments() -> None:
    @sw.custom_jvp
    def plain(x):
        return x

    f = sw.custom_jvp(lambda function, x: function(x), nondiff_argnums=(0,))
    f.defjvp(lambda function, primals, tangents: (function(*primals), 5 * tangents[0]))
    assert sw.grad(lambda x: f(jnp.sin, x))(1.0) == 5
    g = sw.custom_jvp(lambda x, function: function(x), nondiff_argnames=("function",))
    g.defjvp(lambda function, primals, tangents: (function(*primals), 6 * tangents[0]))
    assert sw.jit(sw.grad(lambda x: g(x, jnp.sin)))(1.0) == 6
    h = sw.custom_vjp(lambda n, x: x * n, nondiff_argnums=0)
    h.defvjp(lambda n, x: (x * n, None), lambda n, residuals, ct: (ct * n * 10,))
    assert sw.grad(h, 1)(3, 2.0) == 30
    with pytest.raises(sw.errors.UnexpectedTracerError, match="nondiff_argnums"):
        sw.jit(lambda n: sw.grad(h, 1)(n, 2.0))(3.0)
    with pytest.raises(AttributeError, match="No JVP defined for custom_jvp function plain"):
        plain(1.0)
    with pytest.raises(AttributeError, match="No VJP defined for custom_vjp function"):
        sw.custom_vjp(lambda x: x)(1.0)


def test_defjvps() -> None:
    f = sw.custom_jvp(lambda x, y: x * y)
    f.defjvps(lambda t, out, x, y: 2 * t * y, None)
    np.testing.assert_allclose(sw.jvp(f, (2.0, 3.0), (1.0, 1.0)), (6, 6))
    with pytest.raises(TypeError, match="nondiff_argnums"):
        sw.custom_jvp(lambda x, y: x, nondiff_argnums=(1,)).defjvps(None)


def test_symbolic_zeros() -> None:
    seen: list[Any] = []
    f = sw.custom_jvp(lambda x, y: x * y)

    def rule(primals, tangents):
        seen.extend(tangents)
        (x, y), (a, b) = primals, tangents
        assert isinstance(b, SymbolicZero) and b.shape == () and b.dtype == np.float32
        return x * y, a * y

    f.defjvp(rule, symbolic_zeros=True)
    assert sw.grad(f)(2.0, 3.0) == 3
    g = sw.custom_vjp(lambda x, y: (x * y, y))

    def fwd(x, y):
        assert (x.perturbed, y.perturbed) == (True, False)
        return (x.value * y.value, y.value), y.value

    def bwd(y, cts):
        assert isinstance(cts[1], SymbolicZero)
        return cts[0] * y, None

    g.defvjp(fwd, bwd, symbolic_zeros=True)
    assert sw.grad(lambda x: g(x, 3.0)[0])(2.0) == 3


def test_trees_integers_and_none() -> None:
    @sw.custom_vjp
    def f(params, i):
        return {"out": params["w"] * i}

    f.defvjp(lambda params, i: (f(params, i), i), lambda i, ct: ({"w": ct["out"] * i * 2, "b": None}, None))
    got = sw.grad(lambda p: f(p, 3)["out"])({"w": 2.0, "b": 1.0})
    assert got == {"w": 6, "b": 0}


@pytest.mark.parametrize(
    "rule, error",
    [
        (lambda p, t: 1.0, "must produce a pair"),
        (lambda p, t: (p[0], (t[0], t[0])), "equal container"),
        (lambda p, t: ((p[0], p[0]), (t[0], t[0])), "structure"),
        (lambda p, t: (p[0], jnp.zeros(3)), "corresponding shapes and dtypes"),
    ],
)
def test_bad_jvp_rules(rule: Any, error: str) -> None:
    f = sw.custom_jvp(lambda x: x)
    f.defjvp(rule)
    with pytest.raises(TypeError, match=error):
        sw.jit(sw.grad(lambda x: sw.jit(f)(x)))(1.0)


@pytest.mark.parametrize(
    "fwd, bwd, kind, error",
    [
        (lambda x: x, lambda r, ct: (ct,), TypeError, "must produce a pair"),
        (lambda x: (x, None), lambda r, ct: ct, TypeError, "tuple of length equal"),
        (lambda x: (x, None), lambda r, ct: (ct, ct), TypeError, "tuple of length equal"),
        (lambda x: (x, None), lambda r, ct: ((ct, ct),), TypeError, "container"),
        (lambda x: (x, None), lambda r, ct: (jnp.zeros(3),), ValueError, "shapes and dtypes"),
        (lambda x: ((x, x), None), lambda r, ct: (ct,), TypeError, "structure"),
    ],
)
def test_bad_vjp_rules(fwd: Any, bwd: Any, kind: type[Exception], error: str) -> None:
    f = sw.custom_vjp(lambda x: x)
    f.defvjp(fwd, bwd)
    with pytest.raises(kind, match=error):
        sw.grad(lambda x: sw.jit(f)(x))(1.0)


def test_custom_gradient() -> None:
    @sw.custom_gradient
    def f(x):
        return x * x, lambda ct: (ct * 5 * x,)

    assert f(3.0) == 9 and sw.grad(f)(3.0) == 15 and sw.jit(sw.grad(f))(3.0) == 15
    np.testing.assert_allclose(sw.vmap(sw.grad(f))(X), 5 * X, rtol=1e-6)
    assert sw.grad(sw.grad(f))(3.0) == 5
    bad = sw.custom_gradient(lambda x, y: (x * y, lambda ct: (ct,)))
    with pytest.raises(TypeError, match="one cotangent per argument"):
        sw.grad(bad)(1.0, 2.0)


def test_closure_convert() -> None:
    def minimize(objective, x):
        """A root of the derivative by one Newton step, differentiable in what the objective closes over."""
        converted, consts = sw.closure_convert(objective, x)

        def step(x, *consts):
            return x - sw.grad(converted)(x, *consts) / sw.hessian(converted)(x, *consts)

        solve = sw.custom_vjp(step)
        solve.defvjp(lambda x, *c: (step(x, *c), (x, c)), lambda r, ct: (None, *[2 * ct for _ in r[1]]))
        return solve(x, *consts), len(consts)

    counts: list[int] = []

    def best(a):
        result, count = minimize(lambda x: (x - a) ** 2, 0.3)
        counts.append(count)
        return result

    assert best(2.0) == 2 and sw.grad(best)(2.0) == 2
    assert counts == [0, 1]
    converted, consts = sw.closure_convert(jnp.sin, 1.0)
    assert consts == [] and converted(1.0) == jnp.sin(1.0)


def test_linear_call() -> None:
    f = lambda x, y: linear_call(lambda r, v: v / r, lambda r, ct: 7 * ct / r, x, y)  # noqa: E731
    assert f(2.0, 8.0) == 4 and sw.jvp(lambda y: f(2.0, y), (8.0,), (4.0,))[1] == 2
    assert sw.grad(lambda y: f(2.0, y))(8.0) == 3.5
    assert sw.jit(sw.linear_transpose(lambda y: f(2.0, y), 1.0))(4.0) == (14.0,)
    with pytest.raises(NotImplementedError, match="residual"):
        sw.grad(f)(2.0, 8.0)


def test_python_numbers_among_residuals_stay_what_they_are() -> None:
    f = sw.custom_vjp(lambda x, y: x)
    f.defvjp(lambda x, y: (x, (True, 3, x)), lambda res, ct: (ct * res[1] if res[0] is True else None, ct))
    assert sw.grad(f)(2.0, None) == 3 == sw.jit(sw.grad(f))(2.0, None)
    assert sw.grad(lambda x: f({"a": x}["a"], None))(2.0) == 3


def test_custom_jvp_functions_that_are_linear_transpose() -> None:
    double = sw.custom_jvp(lambda x: 2 * x)
    double.defjvp(lambda p, t: (double(*p), double(*t)))
    assert sw.linear_transpose(sw.jit(double), 1.0)(3.0) == (6.0,) and sw.grad(double)(1.0) == 2


def test_rules_may_branch_on_values() -> None:
    @sw.custom_jvp
    def f(x):
        return jnp.sin(x) if x > 0 else jnp.cos(x)

    f.defjvp(lambda p, t: (f(*p), 2 * t[0] if p[0] > 0 else 3 * t[0]))
    assert [sw.grad(f)(v) for v in (2.0, -2.0)] == [2, 3]

    @sw.custom_vjp
    def g(x):
        return x if x > 0 else -x

    g.defvjp(lambda x: (g(x), x), lambda x, ct: (ct if x > 0 else 5 * ct,))
    assert [sw.grad(g)(v) for v in (2.0, -2.0)] == [1, 5]


def test_cotangents_of_rules_take_the_type_of_the_argument() -> None:
    f = sw.custom_vjp(lambda x: x)
    f.defvjp(lambda x: (x, None), lambda _, ct: (3,))
    found = sw.grad(lambda x: f(x).astype(jnp.float32))(jnp.bfloat16(1))
    assert found.dtype == jnp.bfloat16 and found == 3


@pytest.mark.parametrize("kind", ["checkpoint", "custom_jvp", "custom_vjp", "custom_vmap", "custom_gradient"])
def test_called_eagerly_a_function_gets_arrays_as_when_traced(kind: str) -> None:
    seen: list[tuple[Any, Any]] = []

    def fun(x, y):
        seen.append((x.dtype, y.dtype))
        return x.at[0].set(1) * y

    made: dict[str, Callable[[], Any]] = {
        "checkpoint": lambda: sw.checkpoint(fun),
        "custom_jvp": lambda: sw.custom_jvp(fun),
        "custom_vjp": lambda: sw.custom_vjp(fun),
        "custom_vmap": lambda: sw.custom_batching.custom_vmap(fun),
        "custom_gradient": lambda: sw.custom_gradient(lambda *args: (fun(*args), lambda ct: (ct, ct))),
    }
    call = made[kind]()
    if kind == "custom_jvp":
        call.defjvp(lambda p, t: (fun(*p), t[0]))
    elif kind == "custom_vjp":
        call.defvjp(lambda *p: (fun(*p), ()), lambda _, ct: (ct, ct))
    elif kind == "custom_vmap":
        call.def_vmap(lambda size, batched, *args: (fun(*args), True))
    for y in (2.0, np.float64(2), np.full(3, 2.0), 2):
        result = call(np.zeros(3), y)
        assert isinstance(result, sw.Array) and result.dtype == np.float32
        np.testing.assert_array_equal(result, [2, 0, 0])
    assert seen[0] == (np.float32, np.float32) and seen[-1] == (np.float32, np.int32)
    with pytest.raises(TypeError):
        call(np.zeros(3), "text")


def test_without_a_rule_a_custom_vmap_raises_also_where_nothing_is_mapped() -> None:
    with pytest.raises(AttributeError, match="No batching rule defined"):
        sw.custom_batching.custom_vmap(lambda x: x)(1.0)


def test_positions_of_nondiff_argnums_that_no_argument_has_raise() -> None:
    product = sw.custom_jvp(lambda x, y: x * y, nondiff_argnums=(2,))
    product.defjvp(lambda c, primals, tangents: (c, c))
    halves = sw.custom_vjp(lambda x: x / 2, nondiff_argnums=(1,))
    halves.defvjp(lambda x, c: (x, c), lambda c, residuals, ct: (ct,))
    for call in (lambda: product(2.0, 3.0), lambda: sw.jit(product)(2.0, 3.0), lambda: sw.grad(halves)(1.0)):
        with pytest.raises(
            IndexError, match=r"nondiff_argnums of <lambda> names position [12], but the call has [12] arg"
        ):
            call()


def _with_closed_over(kind: str, w: Any) -> Any:
    if kind == "custom_jvp":
        call: Any = sw.custom_jvp(lambda x: x * w)
        call.defjvp(lambda p, t: (p[0] * 2, t[0] * 2))
    else:
        call = sw.custom_vjp(lambda x: x * w)
        call.defvjp(lambda x: (x * 2, None), lambda _, ct: (ct * 2,))
    return call


@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
@pytest.mark.parametrize("mapped", [False, True])
def test_closed_over_values_are_not_differentiated(kind: str, mapped: bool) -> None:
    """As in JAX: a custom_vjp refuses, a custom_jvp has no derivative in them."""

    def outer(w: Any) -> Any:
        call = _with_closed_over(kind, w)
        return sw.vmap(call)(jnp.full(2, 3.0)).sum() if mapped else call(3.0)

    in_scan = lambda w: sw.lax.scan(lambda c, _: (_with_closed_over(kind, w)(c), None), 1.0, None, length=2)[0]  # noqa: E731
    for f in (sw.jit(outer), sw.checkpoint(outer), in_scan):
        value = 4 if f is in_scan else 12 if mapped else 6
        for derivative in (lambda w, f=f: sw.grad(f)(w), lambda w, f=f: sw.jvp(f, (w,), (1.0,))[1]):
            if kind == "custom_vjp":
                with pytest.raises(ad.CustomVJPException, match="<lambda> with respect to a closed-over value"):
                    derivative(2.0)
            else:
                assert float(derivative(2.0)) == 0.0
        assert float(sw.jit(lambda w, f=f: f(sw.lax.stop_gradient(w)))(2.0)) == value
        assert float(sw.grad(lambda w, f=f: f(sw.lax.stop_gradient(w)) + w)(2.0)) == 1.0


def _scaled(kind: str, y: Any, w: Any) -> Any:
    """``w * y``; the derivative closes over `w`, too."""
    if kind == "custom_jvp":
        call: Any = sw.custom_jvp(lambda x: x * w)
        call.defjvp(lambda p, t: (p[0] * w, t[0] * w))
    else:
        call = sw.custom_vjp(lambda x: x * w)
        call.defvjp(lambda x: (x * w, w), lambda r, ct: (ct * r,))
    return call(y)


@pytest.mark.parametrize("kind", ["custom_jvp", "custom_vjp"])
def test_rules_close_over_mapped_values(kind: str) -> None:
    """What is differentiated is not mapped, so the rule runs when the maps around it have ended."""
    three, two = jnp.arange(3.0), jnp.arange(2.0)
    once = lambda y: sw.vmap(lambda w: _scaled(kind, y, w))(three).sum()  # noqa: E731
    twice = lambda y: sw.vmap(lambda a: sw.vmap(lambda b: _scaled(kind, y, a * b))(two))(three).sum()  # noqa: E731
    outer = lambda y: sw.vmap(lambda a: sw.vmap(lambda b: _scaled(kind, y, a))(two))(three).sum()  # noqa: E731
    for f, slope in ((once, 3.0), (twice, 3.0), (outer, 6.0)):
        assert float(sw.grad(f)(5.0)) == float(sw.jit(sw.grad(f))(5.0)) == slope
    np.testing.assert_array_equal(sw.vmap(sw.grad(once))(two), [3.0, 3.0])


@pytest.mark.parametrize("step", [jnp.floor, jnp.sign, sw.jit(jnp.round), lambda x: x.astype(int)])
def test_closed_over_values_without_derivative_are_no_mistake(step: Any) -> None:
    def f(x: Any) -> Any:
        stepped, smooth = sw.checkpoint(lambda x: (step(x), x * x))(x)
        return _with_closed_over("custom_vjp", stepped)(x) + smooth

    assert float(sw.grad(sw.jit(f))(3.0)) == 8.0


@pytest.mark.parametrize(
    "around", [lambda f: sw.jit(f), lambda f: lambda x: lax.scan(lambda c, _: (f(c), None), x, None, length=1)[0]]
)
@pytest.mark.parametrize(
    "fwd",
    [lambda x: (jnp.zeros((3, *x.shape)), None), lambda x: (x.astype(jnp.float16), None), lambda x: ((x, x), None)],
)
def test_forward_rules_return_what_the_function_does(around: Any, fwd: Any) -> None:
    f = sw.custom_vjp(lambda x: x)
    f.defvjp(fwd, lambda _, ct: (ct,))
    with pytest.raises(TypeError, match="Custom VJP fwd rule <lambda> for function <lambda> must produce a pair"):
        sw.grad(lambda x: around(f)(x).sum())(jnp.float32(1))


@pytest.mark.parametrize("zero", [jnp.ones(2), jnp.ones(3, jnp.float16)])
def test_zeros_of_backward_rules_have_the_types_of_the_arguments(zero: Any) -> None:
    f = sw.custom_vjp(lambda x: x.sum())
    f.defvjp(lambda x: (x.value.sum(), None), lambda _, ct: (SymbolicZero(zero.aval),), symbolic_zeros=True)
    for g in (sw.grad(f), sw.jit(sw.grad(f))):
        with pytest.raises(ValueError, match="Consider just returning a None here"):
            g(jnp.ones(3))


def test_values_of_the_arguments_of_a_forward_rule() -> None:
    f = sw.custom_vjp(lambda p, y: p["x"] * y)

    def fwd(*args: Any) -> Any:
        p, y = custom_vjp_primal_tree_values(args)
        return f(p, y), (args[0]["x"].perturbed, args[1].perturbed, p["x"], y)

    f.defvjp(fwd, lambda r, ct: ({"x": r[3] * ct * r[0]}, r[2] * ct * r[1]), symbolic_zeros=True)
    assert sw.grad(f)({"x": 2.0}, 3.0) == {"x": 3.0} and float(sw.jit(sw.grad(f, 1))({"x": 2.0}, 3.0)) == 2.0
    with pytest.raises(TypeError, match="unexpected leaf type"):
        custom_vjp_primal_tree_values([1.0])


@pytest.mark.parametrize("backward", [lambda _, ct: (lax.psum(ct, "i"),), lambda _, ct: (jnp.ones(1),)])
def test_cotangents_vary_over_the_axes_over_which_the_arguments_do(backward: Any) -> None:
    twice = sw.custom_vjp(lambda x: 2 * x)
    twice.defvjp(lambda x: (2 * x, None), backward)
    mesh = sw.make_mesh((4,), ("i",), axis_types=(sw.sharding.AxisType.Auto,))
    total = lambda x, **check: sw.shard_map(twice, mesh=mesh, in_specs=P("i"), out_specs=P("i"), **check)(x).sum()  # noqa: E731
    with pytest.raises(ValueError, match="the same type as the argument"):
        sw.grad(total)(jnp.ones(4))
    assert sw.grad(lambda x: total(x, check_vma=False))(jnp.ones(4)).shape == (4,)


@pytest.mark.parametrize("value", [3, 2.5, True, 1j, np.arange(2.0), np.float16(1)], ids=lambda v: type(v).__name__)
def test_results_on_values_are_what_the_function_gives(value):
    forward = sw.custom_jvp(lambda x: value)
    forward.defjvp(lambda primals, tangents: (value, jnp.zeros_like(value)))
    reverse = sw.custom_vjp(lambda x: {"of": (value, x)})
    reverse.defvjp(lambda x: ({"of": (value, x)}, None), lambda _, ct: (ct["of"][1],))
    assert forward(1.0) is value
    result = reverse(1.0)["of"]
    assert result[0] is value
    assert isinstance(result[1], sw.Array)
    assert isinstance(sw.jit(forward)(1.0), sw.Array)


def _unused(jax: Any) -> Any:
    f = _vjp_function(jax, jax.numpy)

    def unused(x):
        f(x, x)
        return 3 * x

    return unused


@pytest.mark.parametrize(
    "wrap", [lambda f: f, sw.checkpoint, sw.jit, sw.vmap], ids=["plain", "checkpoint", "jit", "vmap"]
)
def test_a_call_of_which_nothing_is_used_has_a_forward_derivative_after_linearize(wrap):
    x = jnp.ones(2)
    assert sw.linearize(wrap(_unused(sw)), x)[1](x).tolist() == [3, 3]
