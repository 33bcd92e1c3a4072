"""Primitives: what equations show is what the names of `lax` give, whatever asks."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ad_checkpoint import checkpoint_name, saved_residuals
from shardwise.base.config import use_dialect
from shardwise.extend.core import Primitive, primitives
from shardwise.extend.linear_util import wrap_init
from shardwise.ir import Op

F = jnp.arange(1.0, 7.0).reshape(2, 3)
I = jnp.arange(6).reshape(2, 3)  # noqa: E741
B = I > 2
V = jnp.arange(4.0)
M = jnp.eye(3)
IMAGE, KERNEL = jnp.ones((1, 2, 5, 5)), jnp.ones((3, 2, 2, 2))

# A call for each name `<key>_p` of lax that stands for an op.
CALLS = {
    "abs": lambda: lax.abs(F),
    "acos": lambda: lax.acos(F),
    "acosh": lambda: lax.acosh(F),
    "add": lambda: lax.add(F, F),
    "and": lambda: lax.bitwise_and(I, I),
    "argmax": lambda: lax.argmax(F, 0, np.int32),
    "argmin": lambda: lax.argmin(F, 0, np.int32),
    "asin": lambda: lax.asin(F),
    "asinh": lambda: lax.asinh(F),
    "atan": lambda: lax.atan(F),
    "atan2": lambda: lax.atan2(F, F),
    "atanh": lambda: lax.atanh(F),
    "bessel_i0e": lambda: lax.bessel_i0e(F),
    "bessel_i1e": lambda: lax.bessel_i1e(F),
    "bitcast_convert_type": lambda: lax.bitcast_convert_type(F, np.int32),
    "broadcast_in_dim": lambda: lax.broadcast_in_dim(V, (2, 4), (1,)),
    "cbrt": lambda: lax.cbrt(F),
    "ceil": lambda: lax.ceil(F),
    "clamp": lambda: lax.clamp(F, F, F),
    "clz": lambda: lax.clz(I),
    "complex": lambda: lax.complex(F, F),
    "concatenate": lambda: lax.concatenate([F, F], 0),
    "cond": lambda: lax.cond(B[0, 0], lambda x: x, lambda x: x * 2, F),
    "conj": lambda: lax.conj(lax.complex(F, F)),
    "conv_general_dilated": lambda: lax.conv(IMAGE, KERNEL, (1, 1), "SAME"),
    "convert_element_type": lambda: lax.convert_element_type(F, np.int32),
    "cos": lambda: lax.cos(F),
    "cosh": lambda: lax.cosh(F),
    "cumsum": lambda: lax.cumsum(F),
    "cumprod": lambda: lax.cumprod(F),
    "cummax": lambda: lax.cummax(F),
    "cummin": lambda: lax.cummin(F),
    "cumlogsumexp": lambda: lax.cumlogsumexp(F),
    "digamma": lambda: lax.digamma(F),
    "div": lambda: lax.div(F, F),
    "dot_general": lambda: lax.dot(M, M),
    "dynamic_slice": lambda: lax.dynamic_slice(F, (I[0, 0], I[0, 1]), (1, 1)),
    "dynamic_update_slice": lambda: lax.dynamic_update_slice(F, F[:1], (I[0, 0], I[0, 1])),
    "eq": lambda: lax.eq(F, F),
    "erf": lambda: lax.erf(F),
    "erf_inv": lambda: lax.erf_inv(F),
    "erfc": lambda: lax.erfc(F),
    "exp": lambda: lax.exp(F),
    "exp2": lambda: lax.exp2(F),
    "expm1": lambda: lax.expm1(F),
    "fft": lambda: lax.fft(V, lax.FftType.RFFT, (4,)),
    "floor": lambda: lax.floor(F),
    "gather": lambda: jnp.take(V, I),
    "ge": lambda: lax.ge(F, F),
    "gt": lambda: lax.gt(F, F),
    "igamma": lambda: lax.igamma(F, F),
    "igammac": lambda: lax.igammac(F, F),
    "imag": lambda: lax.imag(lax.complex(F, F)),
    "integer_pow": lambda: lax.integer_pow(F, 3),
    "iota": lambda: lax.iota(np.int32, 3),
    "is_finite": lambda: lax.is_finite(F),
    "le": lambda: lax.le(F, F),
    "lgamma": lambda: lax.lgamma(F),
    "log": lambda: lax.log(F),
    "log1p": lambda: lax.log1p(F),
    "logistic": lambda: lax.logistic(F),
    "lt": lambda: lax.lt(F, F),
    "max": lambda: lax.max(F, F),
    "min": lambda: lax.min(F, F),
    "mul": lambda: lax.mul(F, F),
    "ne": lambda: lax.ne(F, F),
    "neg": lambda: lax.neg(F),
    "nextafter": lambda: lax.nextafter(F, F),
    "not": lambda: lax.bitwise_not(I),
    "optimization_barrier": lambda: lax.optimization_barrier(F),
    "or": lambda: lax.bitwise_or(I, I),
    "pad": lambda: lax.pad(V, np.float32(0), [(1, 1, 0)]),
    "polygamma": lambda: lax.polygamma(F, F),
    "population_count": lambda: lax.population_count(I),
    "pow": lambda: lax.pow(F, F),
    "real": lambda: lax.real(lax.complex(F, F)),
    "reduce_and": lambda: jnp.all(B),
    "reduce_max": lambda: jnp.max(F),
    "reduce_min": lambda: jnp.min(F),
    "reduce_or": lambda: jnp.any(B),
    "reduce_precision": lambda: lax.reduce_precision(F, 5, 5),
    "reduce_prod": lambda: jnp.prod(F),
    "reduce_sum": lambda: jnp.sum(F),
    "reduce_window_max": lambda: lax.reduce_window(F, -np.inf, lax.max, (1, 2), (1, 1), "VALID"),
    "reduce_window_min": lambda: lax.reduce_window(F, np.inf, lax.min, (1, 2), (1, 1), "VALID"),
    "reduce_window_sum": lambda: lax.reduce_window(F, 0.0, lax.add, (1, 2), (1, 1), "VALID"),
    "reduce_xor": lambda: lax.reduce_xor(I, axes=(0,)),
    "regularized_incomplete_beta": lambda: lax.betainc(F, F, F / 10),
    "rem": lambda: lax.rem(F, F),
    "reshape": lambda: lax.reshape(F, (3, 2)),
    "rev": lambda: lax.rev(F, (0,)),
    "round": lambda: lax.round(F),
    "rsqrt": lambda: lax.rsqrt(F),
    "scan": lambda: lax.scan(lambda c, x: (c + x, c), np.float32(0), V),
    "scatter": lambda: V.at[I[0]].set(0.0),
    "scatter_add": lambda: V.at[I[0]].add(1.0),
    "scatter_max": lambda: V.at[I[0]].max(1.0),
    "scatter_min": lambda: V.at[I[0]].min(1.0),
    "scatter_mul": lambda: V.at[I[0]].multiply(1.0),
    "scatter_sub": lambda: V.at[I[0]].subtract(1.0),
    "select_n": lambda: lax.select(B, F, F),
    "shift_left": lambda: lax.shift_left(I, I),
    "shift_right_arithmetic": lambda: lax.shift_right_arithmetic(I, I),
    "shift_right_logical": lambda: lax.shift_right_logical(I, I),
    "sign": lambda: lax.sign(F),
    "sin": lambda: lax.sin(F),
    "sinh": lambda: lax.sinh(F),
    "slice": lambda: lax.slice(F, (0, 0), (1, 1)),
    "sort": lambda: lax.sort(F),
    "split": lambda: lax.split(V, [2, 2]),
    "sqrt": lambda: lax.sqrt(F),
    "square": lambda: lax.square(F),
    "squeeze": lambda: lax.squeeze(IMAGE, (0,)),
    "sub": lambda: lax.sub(F, F),
    "tan": lambda: lax.tan(F),
    "tanh": lambda: lax.tanh(F),
    "top_k": lambda: lax.top_k(F, 2),
    "transpose": lambda: lax.transpose(F, (1, 0)),
    "while": lambda: lax.while_loop(lambda c: c < 3, lambda c: c + 1, np.int32(0)),
    "xor": lambda: lax.bitwise_xor(I, I),
    "zeta": lambda: lax.zeta(F, F),
    "linear_solve": lambda: lax.custom_linear_solve(lambda x: x * 2, V, lambda mv, y: y / 2, symmetric=True),
    "copy": lambda: jnp.copy(F),
    "igamma_grad_a": lambda: lax.igamma_grad_a(F, F),
}
MAPPED = {
    "pmax": lambda x: lax.pmax(x, "x"),
    "pmin": lambda x: lax.pmin(x, "x"),
    "all_gather": lambda x: lax.all_gather(x, "x"),
    "all_to_all": lambda x: lax.all_to_all(x.reshape(2, 3), "x", 0, 0),
    "ppermute": lambda x: lax.ppermute(x, "x", [(0, 1), (1, 0)]),
    "axis_index": lambda x: x + lax.axis_index("x"),
}
LINALG = {
    "cholesky": lambda: lax.linalg.cholesky(M),
    "eigh": lambda: lax.linalg.eigh(M),
    "lu": lambda: lax.linalg.lu(M),
    "qr": lambda: lax.linalg.qr(M),
    "svd": lambda: lax.linalg.svd(M),
    "triangular_solve": lambda: lax.linalg.triangular_solve(M, M),
}
# Where a primitive is not called as its name in lax says.
OTHER_NAMES = {"linear_solve": "custom_linear_solve"}


def equations(jaxpr):
    for eqn in jaxpr.eqns:
        yield eqn
        for value in eqn.params.values():
            for inner in value if isinstance(value, (tuple, list)) else (value,):
                if hasattr(inner := getattr(inner, "jaxpr", inner), "eqns"):
                    yield from equations(inner)


def check(module, name, jaxpr):
    found = getattr(module, f"{name}_p")
    want = OTHER_NAMES.get(name, name.replace("scatter_", "scatter-"))
    assert isinstance(found, Primitive) and getattr(primitives, f"{name}_p") is found
    assert (found.name, str(found)) == (want, want)
    seen = [e.primitive for e in equations(jaxpr.jaxpr)]
    assert any(p is found for p in seen), seen
    assert found in {*seen} and all((p is found) == (p == found) for p in seen)


@pytest.mark.parametrize("dialect", ["seed", "latest"])
def test_equations_show_what_the_names_give(dialect):
    with use_dialect(dialect):
        for name, call in CALLS.items():
            check(lax, name, jax.make_jaxpr(lambda call=call: call())())
        for name, call in LINALG.items():
            check(lax.linalg, name, jax.make_jaxpr(lambda call=call: call())())
        mesh = jax.make_mesh((2,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
        P = jax.sharding.PartitionSpec
        for name, call in MAPPED.items():
            mapped = jax.shard_map(call, mesh=mesh, in_specs=P("x"), out_specs=P("x"), check_vma=False)
            check(lax, name, jax.make_jaxpr(mapped)(jnp.ones(12)))


@pytest.mark.parametrize("module", [lax, lax.linalg])
def test_no_op_is_a_public_name(module):
    assert [n for n in dir(module) if isinstance(getattr(module, n), Op)] == []
    with pytest.raises(AttributeError, match="nothing_p"):
        _ = module.nothing_p


def test_params_are_copied_and_taken_out_under_their_names():
    eqn = jax.make_jaxpr(lambda x: jax.jit(lambda y: y * 2)(x))(1.0).eqns[0]
    for params in (eqn.params.copy(), dict(eqn.params), {**eqn.params}):
        assert "jaxpr" in params and "name" in params
        inner = params.pop("jaxpr")
        assert inner.jaxpr.eqns[0].primitive.name == "mul" and "jaxpr" not in params
        assert params.pop("jaxpr", None) is None
        with pytest.raises(KeyError):
            params.pop("jaxpr")
        params["jaxpr"] = jax.make_jaxpr(lambda y: y * 3)(1.0)
        assert float(eqn.primitive.bind(jnp.float32(2.0), **params)[0]) == 6.0
    assert "jaxpr" in eqn.params and sorted(eqn.params) == sorted(k for k, _ in eqn.params.items())


def test_primitives_take_no_functions_before_their_operands():
    assert not any(
        eqn.primitive.call_primitive or eqn.primitive.map_primitive for eqn in jax.make_jaxpr(jax.jit(abs))(1.0).eqns
    )


def test_primitives_bind():
    np.testing.assert_array_equal(lax.sin_p.bind(F), jnp.sin(F))
    dims = (((1,), (0,)), ((), ()))
    params = jax.make_jaxpr(lambda m: lax.dot_general(m, m, dims))(M).jaxpr.eqns[0].params
    np.testing.assert_array_equal(lax.dot_general_p.bind(M, M, **params), M)
    np.testing.assert_array_equal(jax.jit(lambda m: lax.dot_general_p.bind(m, m, **params))(M), M)
    scan = jax.make_jaxpr(lambda v: lax.scan(lambda c, x: (c + x, c), 0.0, v))(V).jaxpr.eqns[-1]
    assert scan.primitive is lax.scan_p


def interpreted(closed, params_of, *args):
    """The results of a program, each equation bound by its primitive."""
    env = dict(zip([*closed.jaxpr.constvars, *closed.jaxpr.invars], [*closed.consts, *args], strict=True))
    read = lambda v: v.val if hasattr(v, "val") else env[v]  # noqa: E731
    for eqn in closed.jaxpr.eqns:
        functions, params = eqn.primitive.get_bind_params(params_of(eqn))
        outs = eqn.primitive.bind(*functions, *map(read, eqn.invars), **params)
        env.update(zip(eqn.outvars, outs if eqn.primitive.multiple_results else [outs], strict=True))
    return [read(v) for v in closed.jaxpr.outvars]


as_is_or_copied = pytest.mark.parametrize(
    "params_of", [lambda eqn: eqn.params, lambda eqn: dict(eqn.params.items())], ids=["as is", "copied"]
)


@as_is_or_copied
def test_interpreters_bind_every_op(params_of):
    for name, call in CALLS.items():
        closed = jax.make_jaxpr(call)()
        again = jax.make_jaxpr(lambda closed=closed: interpreted(closed, params_of))()
        assert str(again) == str(closed), name


@as_is_or_copied
def test_interpreters_bind_what_equations_hold(params_of):
    """Those that pass params on as they found them, programs and rules among them, or copy them by the names that they show."""
    tripled = jax.custom_jvp(jnp.sin)
    tripled.defjvp(lambda primals, tangents: (tripled(*primals), 3 * tangents[0]))
    fived = jax.custom_vjp(jnp.sin)
    fived.defvjp(lambda x: (fived(x), None), lambda _, ct: (5 * ct,))

    def f(x):
        looped = lax.scan(lambda c, _: (c * 2, None), x, None, length=3)[0]
        branched = lax.cond(x > 0, lambda v: v, lambda v: -v, x)
        return jax.jit(lambda y: y * 2)(tripled(x)) + fived(x) + looped + branched + jax.checkpoint(jnp.cos)(x)

    closed = jax.make_jaxpr(f)(1.0)

    def again(x):
        return interpreted(closed, params_of, x)[0]

    for one in (lambda g: g(1.0), lambda g: jax.grad(g)(1.0), lambda g: jax.jit(jax.grad(g))(1.0)):
        np.testing.assert_array_equal(one(again), one(f))

    rewritten = closed.jaxpr.replace(eqns=[e.replace(params=params_of(e)) for e in closed.jaxpr.eqns])
    assert str(rewritten) == str(closed.jaxpr)
    np.testing.assert_array_equal(jax.core.eval_jaxpr(rewritten, closed.consts, 1.0)[0], f(1.0))


def test_bind_params_are_those_of_the_dialect():
    eqn = jax.make_jaxpr(lambda x: lax.reduce_sum(x, (0,)))(F).jaxpr.eqns[0]
    functions, params = eqn.primitive.get_bind_params(eqn.params)
    with use_dialect("latest"):
        alone = eqn.primitive.get_bind_params(eqn.params)
    assert (functions, params) == ([], alone)
    np.testing.assert_array_equal(eqn.primitive.bind(F, **alone), F.sum(0))


# -- what policies of checkpoint see -----------------------------------------------------------------------------------------


def network(w, x, kernel):
    y = jnp.sin(x @ w)
    z = checkpoint_name(jnp.exp(jnp.cos(y @ w)), "z")
    c = jnp.sin(lax.conv(IMAGE, kernel, (1, 1), "SAME"))
    s, _ = lax.scan(lambda c, _: (jnp.sin(c) * w[0, 0], None), z, None, length=3)
    return jnp.sum(jnp.tanh(s)) + jnp.sum(jnp.sin(c))


policies = jax.checkpoint_policies
# What real JAX keeps of `network`.
POLICIES = {
    "is": (lambda p, *_, **__: p is lax.dot_general_p, ["2,4", "2,4"]),
    "equals": (lambda p, *_, **__: p == lax.dot_general_p, ["2,4", "2,4"]),
    "is in": (lambda p, *_, **__: p in (lax.dot_general_p, lax.conv_general_dilated_p), ["1,3,5,5", "2,4", "2,4"]),
    "is in a set": (lambda p, *_, **__: p in {lax.exp_p, lax.dot_general_p}, ["2,4", "2,4", "2,4"]),
    "name": (lambda p, *_, **__: p.name == "dot_general", ["2,4", "2,4"]),
    "text": (lambda p, *_, **__: str(p) == "conv_general_dilated", ["1,3,5,5"]),
    "dots": (policies.dots_saveable, ["1,3,5,5", "2,4", "2,4"]),
    "no batch": (policies.dots_with_no_batch_dims_saveable, ["2,4", "2,4"]),
    "names": (policies.save_only_these_names("z"), ["2,4"]),
    "other names": (policies.save_any_names_but_these("z"), []),
    "nothing": (policies.nothing_saveable, []),
}


@pytest.mark.parametrize("name", list(POLICIES))
def test_policies_keep_what_they_say(name):
    policy, want = POLICIES[name]
    args = jnp.ones((4, 4)), jnp.ones((2, 4)), KERNEL
    wrapped = jax.checkpoint(network, policy=policy)
    kept = [
        (t, origin)
        for t, origin in saved_residuals(wrapped, *args)
        if "argument" not in origin and "constant" not in origin
    ]
    assert sorted(",".join(map(str, t.shape)) for t, _ in kept) == want
    np.testing.assert_allclose(jax.grad(wrapped)(*args), jax.grad(network)(*args), rtol=1e-6)


@pytest.mark.parametrize("name", ["after_all_p", "select_and_scatter_p", "eq_to_p", "stage_p"])
def test_primitives_without_equations_have_names(name):
    primitive = getattr(jax.lax, name)
    assert primitive is getattr(jax.extend.core.primitives, name)
    assert primitive != jax.lax.add_p
    table = {primitive: 1, jax.lax.add_p: 2}
    assert table[primitive] == 1
    with pytest.raises(NotImplementedError, match=f"{name[:-2]} is here for tables"):
        primitive.bind(1.0)
    with pytest.raises(NotImplementedError, match=f"{name[:-2]} is here for tables"):
        jax.jit(primitive.bind)(1.0)


BOUND: dict[str, tuple[Callable[..., Any], int]] = {
    "stack_p": (lambda x, y: jax.lax.stack_p.bind(x, y, axis=1), 2),
    "unstack_p": (lambda x: jax.lax.unstack_p.bind(x, axis=0), 1),
    "tile_p": (lambda x: jax.lax.tile_p.bind(x, reps=(2, 1)), 1),
    "approx_top_k_p": (
        lambda x: jax.lax.approx_top_k_p.bind(
            x,
            k=1,
            reduction_dimension=1,
            recall_target=0.9,
            is_max_k=False,
            reduction_input_size_override=-1,
            aggregate_to_topk=True,
        ),
        1,
    ),
}


@pytest.mark.parametrize("name", BOUND)
def test_primitives_of_functions_without_an_op_are_bound_as_in_jax(name):
    call, count = BOUND[name]
    theirs = importlib.import_module("jax")
    primitive = getattr(theirs.lax, name)
    operands = [np.arange(6.0, dtype=np.float32).reshape(2, 3) + i for i in range(count)]
    closed = jax.make_jaxpr(call)(*operands)
    (eqn,) = closed.eqns
    assert eqn.primitive is getattr(jax.lax, name)
    params = dict(eqn.params)
    want = primitive.bind(*[theirs.numpy.asarray(x) for x in operands], **params)
    found = jax.jit(call)(*operands)
    many = primitive.multiple_results
    for a, b in zip(found if many else [found], want if many else [want], strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", ["call_p", "closed_call_p"])
def test_calls_run_the_function_where_it_stands(name):
    def f(x: Any) -> Any:
        inner = wrap_init(lambda y: [jnp.sin(y) * x], debug_info=None)
        return getattr(primitives, name).bind(x, subfuns=(inner,))[0]

    assert jax.grad(f)(2.0) == jax.grad(lambda x: jnp.sin(x) * x)(2.0)
    np.testing.assert_array_equal(jax.jit(jax.vmap(f))(jnp.arange(3.0)), [f(x) for x in jnp.arange(3.0)])


def test_the_module_of_primitives_lists_what_it_gives_and_tells_what_was_meant():
    shown = dir(primitives)
    assert {"sin_p", "dot_general_p", "call_p", "svd_p"} <= set(shown)
    assert all(isinstance(getattr(primitives, name), Primitive) for name in shown)
    with pytest.raises(AttributeError, match="no attribute 'sinn_p'") as error:
        _ = primitives.sinn_p  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    assert error.value.obj is primitives  # where Python looks for what was meant


def test_params_may_have_any_name():
    names = "args axis_name ct dims env kind name operands params primals prim self size tangents types values".split()
    p = Primitive("scaled")
    rule: Any = lambda x, /, **params: x * params["size"]  # noqa: E731
    p.def_impl(rule)
    p.def_abstract_eval(lambda x, /, **_: x)
    jax.interpreters.mlir.register_lowering(p, jax.interpreters.mlir.lower_fun(rule, multiple_results=False))
    jax.interpreters.ad.deflinear2(p, lambda ct, x, /, **params: [p.bind(ct, **params)])
    jax.interpreters.batching.primitive_batchers[p] = lambda xs, ds, /, **params: (p.bind(*xs, **params), ds[0])
    scaled: Any = lambda x: p.bind(x, **dict.fromkeys(names, 3.0))  # noqa: E731
    for f in (
        scaled,
        jax.jit(scaled),
        jax.vmap(scaled),
        jax.jit(jax.vmap(scaled)),
        jax.jit(jax.grad(lambda x: scaled(x).sum())),
    ):
        assert f(jnp.ones(2)).tolist() == [3, 3]
    assert jax.jvp(scaled, (1.0,), (2.0,)) == (3, 6)
