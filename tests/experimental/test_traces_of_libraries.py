"""Traces that libraries define: ops come to them as primitives, with the params and operands of JAX."""

import inspect
from typing import Any

import numpy as np
import pytest

import shardwise as jax
from shardwise import numpy as jnp
from shardwise._src import (
    core,
    pjit,
)
from shardwise.extend import linear_util
from shardwise.extend.core import Primitive


class _Noted(core.Tracer):
    """A value with a note of the primitives that made it."""

    def __init__(self, trace: Any, value: Any, note: tuple[str, ...]) -> None:
        self._trace = trace
        self.value = value
        self.note = note

    @property
    def aval(self) -> Any:
        return jax.typeof(self.value)


class _Noting(core.Trace):
    """A trace as libraries write them: it runs primitives under the trace around it."""

    def __init__(self, around: Any) -> None:
        super().__init__()
        self.around = around

    def process_primitive(self, primitive: Primitive, tracers: Any, params: dict[str, Any]) -> Any:
        values = [t.value if isinstance(t, _Noted) else t for t in tracers]
        before = tuple(n for t in tracers if isinstance(t, _Noted) for n in t.note)
        with core.set_current_trace(self.around):
            out = primitive.bind(*values, **params)
        note = (*before, primitive.name)
        return [_Noted(self, o, note) for o in out] if primitive.multiple_results else _Noted(self, out, note)


def _noted(fun: Any, *args: Any) -> Any:
    with core.take_current_trace() as around:
        trace = _Noting(around)
        with core.set_current_trace(trace):
            return fun(*[_Noted(trace, a, ()) for a in args])


def _several(x: Any) -> Any:
    total, _ = jax.lax.scan(lambda c, y: (c + y, c * y), 0.0, x)
    return jnp.sum(jnp.sin(x) * 2 + jax.jit(jnp.cos)(x)) + total


def test_a_trace_of_a_library_gets_primitives():
    x = jnp.arange(4.0)
    out = _noted(_several, x)
    assert {"sin", "mul", "scan"} <= set(out.note)
    np.testing.assert_allclose(out.value, _several(x), rtol=1e-6)
    run = lambda x: _noted(_several, x).value  # noqa: E731
    np.testing.assert_allclose(jax.jit(run)(x), _several(x), rtol=1e-6)
    np.testing.assert_allclose(jax.grad(run)(x), jax.grad(_several)(x), rtol=1e-6)
    np.testing.assert_allclose(jax.vmap(run)(x[None])[0], _several(x), rtol=1e-6)


def test_a_trace_of_a_library_sees_the_programs_of_calls():
    seen = {}

    class Looking(_Noting):
        def process_primitive(self, primitive: Primitive, tracers: Any, params: dict[str, Any]) -> Any:
            seen[primitive] = params
            return super().process_primitive(primitive, tracers, params)

    with core.take_current_trace() as around, core.set_current_trace(Looking(around)) as trace:
        jax.jit(lambda x: x + 1)(_Noted(trace, jnp.ones(3), ()))
    assert len(seen[pjit.jit_p]["jaxpr"].jaxpr.eqns) == 1


def test_a_trace_of_a_library_gets_params_by_the_names_that_equations_show():
    seen = {}

    class Looking(_Noting):
        def process_primitive(self, primitive: Primitive, tracers: Any, params: dict[str, Any]) -> Any:
            seen[primitive.name] = params
            return super().process_primitive(primitive, tracers, params)

    with core.take_current_trace() as around, core.set_current_trace(Looking(around)) as trace:
        out: Any = jnp.broadcast_to(_Noted(trace, jnp.ones(3), ()), (2, 3))
    assert seen["broadcast_in_dim"] == {"shape": (2, 3), "broadcast_dimensions": (1,), "sharding": None}
    assert out.value.shape == (2, 3)


def test_a_trace_of_a_library_gets_operands_as_the_primitives_of_jax_take_them():
    seen, windows = [], {}
    i, y = jnp.array([-1, 0]), jnp.arange(12.0).reshape(2, 2, 3)

    class Looking(_Noting):
        def process_primitive(self, primitive: Primitive, tracers: Any, params: dict[str, Any]) -> Any:
            seen.append((primitive.name, [jnp.shape(t) for t in tracers]))
            if primitive.name in ("gather", "scatter-add"):
                windows[primitive.name] = params
            return super().process_primitive(primitive, tracers, params)

    x = jnp.array([[-1.0, 0.0], [2.0, jnp.nan]])
    with core.take_current_trace() as around, core.set_current_trace(Looking(around)) as trace:
        out: Any = jnp.heaviside(_Noted(trace, x, ()), 0.5)
        window: Any = jax.lax.dynamic_slice(_Noted(trace, x, ()), (-1, 0), (1, 2))
        z: Any = _Noted(trace, y, ())
        ends = [z[:, i], z[0, i, i], z.at[:, i].add(1.0)]
    assert all(shapes == [shapes[0]] * 3 for name, shapes in seen if name == "select_n" and shapes[0])
    np.testing.assert_array_equal(out.value, jnp.heaviside(x, 0.5))
    np.testing.assert_array_equal(window.value, x[1:])
    np.testing.assert_array_equal(ends[0].value, y[:, ::-1])
    np.testing.assert_array_equal(ends[1].value, [y[0, 1, 2], y[0, 0, 0]])
    np.testing.assert_array_equal(ends[2].value, y + 1)
    assert set(windows["gather"]) <= set(inspect.signature(jax.lax.gather).parameters)
    assert set(windows["scatter-add"]) <= set(inspect.signature(jax.lax.scatter_add).parameters)


class _Doubling(_Noting):
    """It wraps function and rule, as quax does, and doubles the results of both."""

    def process_custom_jvp_call(self, primitive: Primitive, fun: Any, jvp: Any, tracers: Any, *, symbolic_zeros: bool):
        values = [t.value if isinstance(t, _Noted) else t for t in tracers]
        fun, jvp = _doubled(fun), _doubled(jvp)
        params = {"subfuns": (fun, jvp), "symbolic_zeros": symbolic_zeros}
        outs = primitive.bind_with_trace(self.around, values, tuple(map(jax.typeof, values)), params)
        earlier = primitive.bind_with_trace(self.around, (fun, jvp, *values), {"symbolic_zeros": symbolic_zeros})
        np.testing.assert_array_equal(*[jax.lax.stop_gradient(o[0]) for o in (outs, earlier)])
        return [_Noted(self, o, (primitive.name,)) for o in outs]


@linear_util.transformation
def _doubled(*values: Any) -> Any:
    results = yield values, {}
    yield [r if r.dtype == jax.dtypes.float0 else 2 * r for r in results]


@pytest.mark.parametrize("symbolic_zeros", [False, True])
def test_a_trace_of_a_library_wraps_functions_with_rules(symbolic_zeros):
    @jax.custom_jvp
    def f(x, n):
        return {"sin": jnp.sin(x), "n": n}

    def rule(primals: Any, tangents: Any) -> Any:
        x, n = primals
        return f(x, n), {"sin": 10 * tangents[0], "n": np.zeros((), jax.dtypes.float0)}

    f.defjvp(rule, symbolic_zeros=symbolic_zeros)

    def run(x: Any) -> Any:
        with core.take_current_trace() as around:
            trace = _Doubling(around)
            with core.set_current_trace(trace):
                out: Any = f(_Noted(trace, x, ()), 3)
        assert out["sin"].note == ("custom_jvp_call",)
        return out["sin"].value

    x = jnp.float32(0.5)
    np.testing.assert_allclose(run(x), 2 * np.sin(0.5), rtol=1e-6)
    assert jax.grad(run)(x) == 20
    assert run(x) == f(x, 3)["sin"] * 2


def test_the_current_trace_is_an_attribute_of_the_context():
    assert core.trace_ctx.is_top_level()

    @jax.jit
    def f(x: Any) -> Any:
        assert not core.trace_ctx.is_top_level()
        with core.take_current_trace() as outer:
            assert core.trace_ctx.trace is not outer
        assert core.trace_ctx.trace is outer
        return x

    f(1.0)


def test_a_trace_without_rules_says_so():
    refused = pytest.raises(NotImplementedError, match="Trace defines no process_primitive")
    with core.take_current_trace(), core.set_current_trace(core.Trace()) as trace, refused:
        jnp.sin(_Noted(trace, jnp.ones(3), ()))
