"""What functions close over is let go with them: at once, or where rules of the user's are in a cycle, when Python collects."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.sharding import PartitionSpec as P


def _with_rule(f: Callable[..., Any], kind: Any) -> Any:
    call = kind(f)
    if kind is sw.custom_jvp:
        call.defjvp(lambda p, t: (f(*p), t[0]))
    else:
        call.defvjp(lambda y: (f(y), None), lambda _, ct: (ct,))
    return call


def _split(f: Callable[..., Any]) -> Any:
    return sw.shard_map(f, mesh=sw.make_mesh((2,), ("x",)), in_specs=P(), out_specs=P())


CALLS: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "jit": lambda f: sw.jit(f)(1.0),
    "lower": lambda f: sw.jit(f).lower(1.0),
    "compile": lambda f: sw.jit(f).lower(1.0).compile()(1.0),
    "donated": lambda f: sw.jit(f, donate_argnums=0)(jnp.float32(1)),
    "nested jit": lambda f: sw.jit(sw.jit(f))(1.0),
    "grad of jit": lambda f: sw.grad(sw.jit(f))(1.0),
    "jit of grad": lambda f: sw.jit(sw.grad(f))(1.0),
    "vmap": lambda f: sw.jit(sw.vmap(f))(jnp.arange(3.0)),
    "checkpoint": lambda f: sw.jit(sw.grad(sw.checkpoint(f)))(1.0),
    "scan": lambda f: lax.scan(lambda c, x: (c + f(x), x), 0.0, jnp.arange(3.0)),
    "shard_map": lambda f: sw.jit(_split(f))(1.0),
    "custom_jvp": lambda f: sw.jvp(_with_rule(f, sw.custom_jvp), (1.0,), (1.0,)),
    "custom_vjp": lambda f: sw.grad(_with_rule(f, sw.custom_vjp))(1.0),
    "leaves with paths": lambda f: sw.tree_util.tree_flatten_with_path(f.__closure__[0].cell_contents),  # type: ignore[attr-defined]
}
IN_CYCLES: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "custom_jvp": lambda f: sw.jit(_with_rule(f, sw.custom_jvp))(1.0),
    "custom_vjp": lambda f: sw.jit(sw.grad(_with_rule(f, sw.custom_vjp)))(1.0),
}


def _closed_over(call: Callable[[Callable[..., Any]], Any]) -> weakref.ref[Any]:
    x = jnp.arange(3.0)
    call(lambda y: (x * y).sum())
    return weakref.ref(x)


@pytest.mark.parametrize("name", CALLS)
def test_closed_over_arrays_go_with_the_function(name: str) -> None:
    gc.disable()
    try:
        assert _closed_over(CALLS[name])() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("name", IN_CYCLES)
def test_no_cache_holds_functions_with_what_they_close_over(name: str) -> None:
    gc.disable()  # what is made stays young: a collection need not look at all that other tests left
    try:
        left = _closed_over(IN_CYCLES[name])
        gc.collect(1)
        assert left() is None
    finally:
        gc.enable()
