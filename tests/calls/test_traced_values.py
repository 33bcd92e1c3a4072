"""Functions that get no array: what they make is traced exactly where it is in JAX.

In a program that is traced, values made of host values are arrays of that program; under `grad` and `vmap` alone they are concrete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import shardwise
from tests.calls.beside import Failure, Library, outcome
from tests.calls.table import calls, tables

MODULES = ("numpy", "numpy.fft", "lax", "nn", "random")

# Beside the calls of the table: host values of all kinds that become arrays, and ways back from arrays.
EXPRESSIONS = """
jnp.asarray(False)
jnp.asarray(1, dtype=jnp.int8)
jnp.array(1.5)
jnp.array(np.float32(1.5), copy=False)
jnp.array([[1, 2], [3, 4]])
jnp.array([])
jnp.array([True, 2.5, np.float32(1)])
jnp.array([captured, 1.0])
jnp.array([captured[0], 1.0])
jnp.array([captured, captured[:2]])
jnp.array([host, host])
jnp.array(range(3))
jnp.asarray(memoryview(host))
jnp.asarray(Named())
jnp.asarray(host)
jnp.asarray(host, dtype=int)
jnp.asarray(host, copy=True)
jnp.asarray(host, device=jax.devices()[0])
jnp.asarray(captured)
jnp.asarray(captured, dtype=captured.dtype)
jnp.array(captured)
jnp.array(1, ndmin=2)
jnp.copy(host)
jnp.copy(1.0)
jnp.float32(1)
jnp.bool_(True)
jnp.complex64(host)
jnp.frombuffer(b"abcd", dtype=jnp.uint8)
jnp.from_dlpack(host)
jnp.full(3, host)
jnp.squeeze(host)
jnp.transpose(host)
jnp.ravel(1.0)
jnp.tril_indices(2)
jnp.ix_(np.arange(2))
jax.device_put(1.0)
jax.device_put({"a": host, "b": captured})
lax.convert_element_type(host, np.float32)
lax.expand_dims(host, ())
if_true(jnp.asarray(True))
if_true(jnp.ones(1))
int(jnp.asarray(3))
[1, 2][jnp.int32(1)]
np.asarray(jnp.array([1]))
jnp.asarray(3).item()
jnp.zeros(jnp.asarray(3))
jnp.arange(np.array(3))
jnp.repeat(captured, np.array([1, 0, 2]))
jnp.repeat(captured, jnp.array([1, 0, 2]))
jnp.delete(captured, np.array([0, 2]))
jnp.delete(captured, jnp.array([0, 2]))
captured[jnp.asarray(2)]
captured[jnp.array([0, 2])]
captured[jnp.array([True, False, True])]
jnp.where(jnp.array([True, False]))
jnp.unique(host)
""".strip().splitlines()


class Named:
    """A host array behind a method."""

    def __jax_array__(self) -> Any:
        return np.ones(2, np.float32)


def if_true(x: Any) -> bool:
    """Whether `x` is true, as `if` asks for it."""
    return bool(x)


def kind(made: Any, jax: Any) -> str:
    """Which leaves are traced, which are arrays and which are neither; or the class of an error."""
    if isinstance(made, Failure):
        return made.classes[0]
    sorts = {jax.core.Tracer: "traced", jax.Array: "concrete"}
    return " ".join(
        next((word for sort, word in sorts.items() if isinstance(leaf, sort)), "neither")
        for leaf in jax.tree.leaves(made)
    )


def within(transform: Callable[..., Any], makers: list[Callable[[], Any]], jax: Any) -> list[str]:
    """What each maker makes in a function under `transform`."""
    found: list[str] = []

    def body(x: Any) -> Any:
        found.extend(kind(outcome(make), jax) for make in makers)
        return x

    transform(jax, body)
    return found


TRANSFORMS = {
    "jit": lambda jax, body: jax.eval_shape(body, 1.0),
    "jit of grad": lambda jax, body: jax.eval_shape(jax.grad(body), 1.0),
    "jit of vmap": lambda jax, body: jax.eval_shape(jax.vmap(body), np.ones(2)),
    "shown": lambda jax, body: jax.make_jaxpr(body)(1.0),
    "checkpoint": lambda jax, body: jax.eval_shape(jax.checkpoint(body), 1.0),
    "scan": lambda jax, body: jax.eval_shape(lambda c: jax.lax.scan(lambda c, _: (body(c), None), c, length=1), 1.0),
    "shard_map": lambda jax, body: jax.eval_shape(
        jax.shard_map(body, mesh=jax.make_mesh((1,), ("x",)), in_specs=jax.P(), out_specs=jax.P()), np.ones(1)
    ),
}
CONCRETE = {
    "eager": lambda jax, body: body(1.0),
    "grad": lambda jax, body: jax.grad(body)(1.0),
    "vmap": lambda jax, body: jax.vmap(body)(np.ones(2)),
    "known while compiling": lambda jax, body: jax.eval_shape(lambda x: at_once(jax, body, x), 1.0),
}


def at_once(jax: Any, body: Callable[[Any], Any], x: Any) -> Any:
    with jax.ensure_compile_time_eval():
        return body(x)


@pytest.fixture(scope="module")
def libraries() -> Iterator[tuple[Library, Library]]:
    before = shardwise.config.shardwise_dialect
    shardwise.config.update("shardwise_dialect", "latest")
    yield Library("shardwise"), Library("jax")
    shardwise.config.update("shardwise_dialect", before)


def expressions(library: Library) -> list[Callable[[], Any]]:
    host = np.arange(3, dtype=np.float32)
    captured = library.jax.numpy.asarray(host)
    names = {**library.names, "host": host, "captured": captured, "Named": Named, "if_true": if_true}
    return [lambda source=source: eval(source, names) for source in EXPRESSIONS]


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_expressions(transform: str, libraries: tuple[Library, Library]) -> None:
    ours, theirs = [within(TRANSFORMS[transform], expressions(lib), lib.jax) for lib in libraries]
    differences = [(s, o, t) for s, o, t in zip(EXPRESSIONS, ours, theirs, strict=True) if o != t]
    assert not differences


@pytest.mark.parametrize("transform", CONCRETE)
def test_concrete(transform: str, libraries: tuple[Library, Library]) -> None:
    made = within(CONCRETE[transform], expressions(libraries[0]), shardwise)
    assert "traced" not in " ".join(made) and not [e for e in made if e.startswith(("Tracer", "Concretization"))]


def test_calls_without_arrays(libraries: tuple[Library, Library]) -> None:
    table = tables()
    chosen = [
        call
        for module in MODULES
        for call in calls(module, table[module][0])
        if not call.then and not any(a.letters for a in call.arguments)
    ]
    # What JAX gives here are no arrays: types, NumPy's integers, tokens.
    chosen = [c for c in chosen if c.name not in ("key_dtype", "after_all", "create_token") and "tuple" not in c.name]
    ours, theirs = [
        within(TRANSFORMS["jit"], [lambda c=c, lib=lib: lib.run(c, lib.hosts) for c in chosen], lib.jax)
        for lib in libraries
    ]
    differences = [(c.name, c.source, o, t) for c, o, t in zip(chosen, ours, theirs, strict=True) if o != t]
    assert not differences and len(chosen) > 200
