"""Which trace is at work, functions with wrappers around them, and programs of the unknown part of a function."""

from typing import Any

import pytest

import shardwise as jax
from shardwise import numpy as jnp
from shardwise.api_util import flatten_fun, flatten_fun_nokwargs, rebase_donate_argnums, safe_map
from shardwise.extend import core
from shardwise.extend import linear_util as lu
from shardwise.interpreters import partial_eval as pe
from shardwise.tree_util import tree_flatten, tree_unflatten


def test_states_are_equal_within_one_trace():
    outside = core.get_opaque_trace_state(convention="flax")
    assert outside == core.get_opaque_trace_state()
    seen = []

    def note(x):
        seen.append(core.get_opaque_trace_state())
        assert seen[-1] == core.get_opaque_trace_state()
        return x * 2.0

    for transform in (jax.jit, jax.grad, lambda f: lambda x: jax.vmap(f)(x[None])):
        transform(note)(jnp.float32(1.0))
    assert len(seen) == 3
    assert all(a != b for i, a in enumerate([outside, *seen]) for b in seen[i:])
    assert outside == core.get_opaque_trace_state()


def test_what_is_at_work():
    def ask(x):
        found.append(
            (
                core.unsafe_am_i_under_a_jit_DO_NOT_USE(),
                core.unsafe_am_i_under_a_vmap_DO_NOT_USE(),
                core.unsafe_get_axis_names_DO_NOT_USE(),
            )
        )
        return x

    found: list[Any] = []
    x = jnp.ones(2)
    for run in (ask, jax.jit(ask), jax.vmap(ask, axis_name="i"), jax.jit(jax.vmap(ask))):
        run(x)
    assert found[:3] == [(False, False, []), (True, False, []), (False, True, ["i"])]
    assert found[3][:2] == (True, True)
    assert not core.nonempty_axis_env_DO_NOT_USE()


def test_trace_taken_and_set_back():
    @jax.jit
    def f(x):
        with core.take_current_trace() as trace:
            now = float(jnp.sum(jnp.ones(3)))  # runs at once
            with core.set_current_trace(trace):
                return x * now

    assert float(f(2.0)) == 6.0


def test_mapped_types():
    aval = core.mapped_aval(3, 1, jax.core.ShapedArray((2, 3), jnp.float32))
    assert aval.shape == (2,)
    assert core.unmapped_aval(3, 1, aval).shape == (2, 3)
    assert core.mapped_aval(3, None, aval) is aval
    assert core.primal_dtype_to_tangent_dtype(jnp.float32) == jnp.float32
    assert core.primal_dtype_to_tangent_dtype(jnp.int32) == jax.dtypes.float0


def test_wrapped_functions_run_the_last_wrapper_first():
    @lu.transformation
    def doubled(by, *args):
        outs = yield [a + by for a in args], {}
        yield [2 * o for o in outs]

    @lu.transformation2
    def plus(f, by, *args):
        return [o + by for o in f(*args)]

    @lu.transformation_with_aux
    def counted(*args):
        outs = yield args, {}
        yield outs, len(outs)

    fun, count = counted(plus(doubled(lu.wrap_init(lambda x, k: [x * k], {"k": 10}), 1), 5))
    with pytest.raises(lu.StoreException):
        count()
    assert fun.call_wrapped(3) == [85]
    assert count() == 1
    with pytest.raises(lu.StoreException):
        fun.call_wrapped(3)


def test_generators_leave_their_contexts_when_the_function_fails():
    left = []

    @lu.transformation
    def guarded(*args):
        try:
            yield (yield args, {})
        finally:
            left.append(True)

    def fails(x):
        raise KeyError(x)

    with pytest.raises(KeyError):
        guarded(lu.wrap_init(fails)).call_wrapped(1)
    assert left == [True]


def test_merge_and_cache():
    calls = []

    @lu.transformation_with_aux2
    def noted(f, store, *args):
        store.store("aux")
        return f(*args)

    @lu.cache
    def run(fun, n):
        calls.append(n)
        return fun.call_wrapped(n)

    def identity(n):
        return n

    for _ in range(2):
        fun, aux = noted(lu.wrap_init(identity))
        _, other = noted(lu.wrap_init(identity))
        assert run(fun, 4) == 4
        assert lu.merge_linear_aux(aux, other) == (True, "aux")
        assert lu.merge_linear_aux(other, aux) == (False, "aux")
    assert calls == [4]


def test_flat_functions():
    leaves, tree = tree_flatten(((1, {"a": 2}), {"k": 3}))
    fun, out = flatten_fun(lu.wrap_init(lambda x, y, k: {"sum": x + y["a"] + k}), tree)
    assert fun.call_wrapped(*leaves) == [6]
    assert tree_unflatten(out(), [6]) == {"sum": 6}
    fun, out = flatten_fun_nokwargs(lu.wrap_init(lambda x, y: (y, x)), tree_flatten((1, 2))[1])
    assert fun.call_wrapped(1, 2) == [2, 1]
    assert safe_map(lambda x, y: x + y, [1, 2], [3, 4]) == [4, 6]
    with pytest.raises(AssertionError):
        safe_map(lambda x, y: x, [1], [])
    assert rebase_donate_argnums((1, 3), (0, 2)) == (0, 1)
    with pytest.raises(ValueError, match="intersect"):
        rebase_donate_argnums((1,), (1,))


def test_types_from_the_shardings_of_others():
    mesh = jax.make_mesh((1,), ("x",), axis_types=(jax.sharding.AxisType.Explicit,))
    aval = jax.device_put(jnp.ones((2, 3)), jax.NamedSharding(mesh, jax.P("x"))).aval
    auto = jnp.ones((2, 3)).aval
    for t in (aval, auto):
        again = jax.core.ShapedArray(t.shape, t.dtype, sharding=t.sharding)
        assert again is t
        assert t.update(sharding=t.sharding) is t
    item = jax.core.ShapedArray((3,), aval.dtype, sharding=aval.sharding.update(spec=jax.P(*aval.sharding.spec[1:])))
    assert item.sharding.spec == jax.P(None)
    with pytest.raises(ValueError, match="does not fit"):
        jax.core.ShapedArray((), aval.dtype, sharding=aval.sharding)


def partial_values():
    return [pe.PartialVal.unknown(jax.core.ShapedArray((2,), jnp.float32)), pe.PartialVal.known(jnp.ones(2))]


def test_known_part_runs_at_once():
    inner = jax.jit(lambda x, y: (x + y, jnp.sin(y)))

    def f(x, y):
        a, b = inner(x, y)
        return [a, b, jnp.float32(3.0) + 1, x.shape[0]]

    jaxpr, values, consts = pe.trace_to_jaxpr_nounits(lu.wrap_init(f), partial_values())
    assert [v.is_known() for v in values] == [False, True, True, True]
    assert float(values[1].get_known()[0]) == float(jnp.sin(jnp.float32(1.0)))
    assert float(values[2].get_known()) == 4.0
    assert values[0].get_aval().shape == (2,)
    assert [e.primitive.name for e in jaxpr.eqns] == ["add"]
    (out,) = jax.core.eval_jaxpr(jaxpr, consts, jnp.zeros(2))
    assert out.tolist() == [1.0, 1.0]


def test_known_part_within_jit_belongs_to_it():
    @jax.jit
    def outer(z):
        _, values, _ = pe.trace_to_jaxpr_nounits(lu.wrap_init(lambda x: [x * 2, z + 1]), partial_values()[:1])
        return values[1].get_known()

    assert float(outer(1.0)) == 2.0


def pushed_to_zero(x, y):
    return jax.lax.while_loop(lambda c: c[1][0] > 0, lambda c: (c[0] + 1, c[1] - 1), (x, y))


@pytest.mark.parametrize(
    ("call", "known"),
    [
        (lambda x, y: jax.lax.scan(lambda c, z: (c + z, z * 2), x, y[:, None]), [False, True]),
        (
            lambda x, y: jax.lax.fori_loop(0, 3, lambda i, c: (c[0] + c[1], c[1] * 2, y), (x, y, x)),
            [False, True, False],
        ),
        (pushed_to_zero, [False, True]),
        (lambda x, y: pushed_to_zero(y, x), [False, False]),
        (lambda x, y: jax.lax.cond(y[0] > 0, lambda: (x, y * 2), lambda: (x + 1, y)), [False, True]),
        (lambda x, y: jax.lax.cond(x[0] > 0, lambda: (x, y * 2), lambda: (x + 1, y)), [False, False]),
        (lambda x, y: jax.checkpoint(lambda x, y: (x + y, jnp.sin(y)))(x, y), [False, True]),
        (lambda x, y: jax.jit(lambda x: (x, jnp.ones(2)))(x), [False, True]),
        (lambda x, y: jax.lax.scan(lambda c, z: (c, jnp.cos(y)), x, None, length=2), [False, True]),
    ],
)
def test_known_results_of_loops_branches_and_calls(call, known):
    def f(x, y):
        return list(call(x, y))

    jaxpr, values, consts = pe.trace_to_jaxpr_nounits(lu.wrap_init(f), partial_values())
    assert [v.is_known() for v in values] == known
    x, y = jnp.array([3.0, 4.0]), jnp.ones(2)
    expected = f(x, y)
    found = iter(jax.core.eval_jaxpr(jaxpr, consts, x))
    for value, exact in zip(values, expected, strict=True):
        out = value.get_known() if value.is_known() else next(found)
        assert out.tolist() == exact.tolist()


def test_loops_that_print_run_once(capsys):
    def f(x, y):
        def step(c, z):
            jax.debug.print("step {}", z)
            return c + z, z * 2

        return list(jax.lax.scan(step, x[0], y))

    jaxpr, values, consts = pe.trace_to_jaxpr_nounits(lu.wrap_init(f), partial_values())
    assert not any(v.is_known() for v in values)
    jax.core.eval_jaxpr(jaxpr, consts, jnp.zeros(2))
    assert capsys.readouterr().out.count("step") == 2


def both(x, y):
    return jnp.sin(x), jnp.cos(y)


HOLDING = {
    "pjit": jax.jit(both),
    "remat2": jax.checkpoint(both),
    "shard_map": lambda *xs: jax.shard_map(
        both, mesh=jax.make_mesh((1,), ("i",)), in_specs=jax.P("i"), out_specs=jax.P("i")
    )(*xs),
    "scan": lambda *xs: jax.lax.scan(lambda c, _: (both(*c), None), xs, length=2)[0],
    "cond": lambda *xs: jax.lax.cond(True, both, lambda *xs: xs, *xs),
}


@pytest.mark.parametrize("name", HOLDING)
def test_programs_inside_give_some_results(name):
    x = jnp.arange(2.0)
    jaxpr = jax.make_jaxpr(HOLDING[name])(x, x)
    small, used = pe.dce_jaxpr(jaxpr.jaxpr, [False, True])
    (eqn,) = small.eqns
    assert used == [False, True] and len(eqn.outvars) == 1 and eqn.primitive.name == name
    assert (jax.core.eval_jaxpr(small, jaxpr.consts, x)[0] == HOLDING[name](x, x)[1]).all()


def test_programs_for_some_results():
    jaxpr = jax.make_jaxpr(lambda x, y: (jnp.sin(x), jnp.cos(y)))(1.0, 2.0).jaxpr
    small, used = pe.dce_jaxpr(jaxpr, [False, True])
    assert used == [False, True]
    assert [e.primitive.name for e in small.eqns] == ["cos"]
    assert pe.dce_jaxpr(jaxpr, [False, True], instantiate=True)[1] == [True, True]
    jaxpr, types, consts = pe.trace_to_jaxpr_dynamic(
        lu.wrap_init(lambda x: [x + 1]), [jax.core.ShapedArray((), jnp.int32)]
    )
    assert (types[0].dtype, consts, len(jaxpr.eqns)) == (jnp.int32, [], 1)
