"""What functions with rules, and their rules, get when they run: values or tracers, under which trace, in which order; beside JAX."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

import shardwise as sw


class Witness:
    """Functions that note each call: whether their arguments are traced or have values, and whether the caller's trace is current."""

    def __init__(self, jax: Any) -> None:
        self.jax = jax
        self.extend = importlib.import_module(f"{jax.__name__}.extend")
        self.calls: list[str] = []
        self.trace: Any = None

    def note(self, name: str, *args: Any) -> None:
        outside = self.extend.core.get_opaque_trace_state(convention="nnx") == self.trace
        self.calls.append(f"{name}({', '.join(map(self.describe, args))}) {'outside' if outside else 'inside'}")

    def describe(self, x: Any) -> str:
        if hasattr(x, "perturbed"):
            return f"{self.describe(x.value)} perturbed={x.perturbed}"
        if not isinstance(x, self.jax.Array):
            return "int" if isinstance(x, int) else type(x).__name__
        try:
            bool(x)
        except self.jax.errors.ConcretizationTypeError:
            return "unknown"
        return "known tracer" if isinstance(x, self.jax.core.Tracer) else "array"

    def observe(self, run: Any, function: Any) -> list[str]:
        """The calls, and the class of an error at the end."""
        self.calls, self.trace = [], self.extend.core.get_opaque_trace_state(convention="nnx")
        try:
            run(self.jax, function)
        except Exception as error:
            return [*self.calls, type(error).__name__]
        return self.calls


def reverse_rules(w: Witness, symbolic: bool = False, static: bool = False) -> Any:
    jnp = w.jax.numpy

    def plain(*args):
        w.note("f", *args)
        return jnp.sin(args[-1])

    def forward(*args):
        w.note("forward", *args)
        x = args[-1].value if symbolic else args[-1]
        y = jnp.sin(x)
        w.note("made", y)
        return y, (x, 3)

    def backward(*args):
        *fixed, (x, number), ct = args
        w.note("backward", *fixed, x, number, ct)
        return (ct * jnp.cos(x),)

    f = w.jax.custom_vjp(plain, nondiff_argnums=(0,) if static else ())
    f.defvjp(forward, backward, symbolic_zeros=symbolic)
    return (lambda x: f("static", x)) if static else f


def forward_rules(w: Witness, symbolic: bool = False, each: bool = False) -> Any:
    jnp = w.jax.numpy

    @w.jax.custom_jvp
    def f(x):
        w.note("f", x)
        return jnp.sin(x)

    def rule(primals, tangents):
        w.note("rule", *primals, *tangents)
        (x,), (t,) = primals, tangents
        y = jnp.sin(x)
        w.note("made", y)
        return y, t * jnp.cos(x)

    def push(t, y, x):
        w.note("push", t, y, x)
        return t * jnp.cos(x)

    if each:
        f.defjvps(push)
    else:
        f.defjvp(rule, symbolic_zeros=symbolic)
    return f


KINDS = {
    "custom_vjp": reverse_rules,
    "custom_vjp symbolic": lambda w: reverse_rules(w, symbolic=True),
    "custom_vjp static": lambda w: reverse_rules(w, static=True),
    "custom_jvp": forward_rules,
    "custom_jvp symbolic": lambda w: forward_rules(w, symbolic=True),
    "defjvps": lambda w: forward_rules(w, each=True),
}


def _scan(jax: Any, f: Any) -> Any:
    return lambda x: jax.lax.scan(lambda c, _: (f(c), None), x, None, length=2)[0]


X = 1.5
RUNS = {
    "call": lambda jax, f: f(jax.numpy.float32(X)),
    "jit": lambda jax, f: jax.jit(f)(X),
    "grad": lambda jax, f: jax.grad(f)(jax.numpy.float32(X)),
    "linearize": lambda jax, f: jax.linearize(f, jax.numpy.float32(X))[1](1.0),
    "vjp": lambda jax, f: jax.vjp(f, jax.numpy.float32(X))[1](jax.numpy.float32(X)),
    "jvp": lambda jax, f: jax.jvp(f, (jax.numpy.float32(X),), (jax.numpy.float32(X),)),
    "grad(grad)": lambda jax, f: jax.grad(jax.grad(f))(jax.numpy.float32(X)),
    "jit(grad)": lambda jax, f: jax.jit(jax.grad(f))(X),
    "grad(jit)": lambda jax, f: jax.grad(jax.jit(f))(X),
    "twice": lambda jax, f: jax.grad(lambda x: f(f(x)))(jax.numpy.float32(X)),
    "vmap(grad)": lambda jax, f: jax.vmap(jax.grad(f))(jax.numpy.ones(2)),
    "grad(scan)": lambda jax, f: jax.grad(_scan(jax, f))(X),
    "constant": lambda jax, f: jax.grad(lambda x: x * f(jax.numpy.float32(2)))(X),
    "stopped": lambda jax, f: jax.grad(lambda x: x + 0 * f(jax.lax.stop_gradient(x)))(jax.numpy.float32(X)),
    "aux": lambda jax, f: jax.grad(lambda x: (f(x), f(x)), has_aux=True)(jax.numpy.float32(X)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_beside_jax(kind):
    jax = pytest.importorskip("jax")
    ours, theirs = Witness(sw), Witness(jax)
    differ = {}
    for name, run in RUNS.items():
        seen, wanted = (w.observe(run, KINDS[kind](w)) for w in (ours, theirs))
        if seen != wanted:
            differ[name] = (seen, wanted)
    assert not differ


def test_a_forward_rule_may_change_what_the_caller_holds():
    """Libraries let the state of a module be changed only under the trace that made it."""
    made = sw.extend.core.get_opaque_trace_state()
    state = {}

    @sw.custom_vjp
    def f(x):
        return x * 2

    def forward(x):
        state["same trace"] = sw.extend.core.get_opaque_trace_state() == made
        state["value"] = float(x)
        return x * 2, None

    f.defvjp(forward, lambda _, ct: (ct * 3,))
    assert float(sw.grad(f)(4.0)) == 3
    assert state == {"same trace": True, "value": 4.0}
