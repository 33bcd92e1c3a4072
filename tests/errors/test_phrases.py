"""Wrong programs raise what JAX raises, and say the words that people search for and match in their tests.

`wrong_programs.txt` has one program a line, after `##` the words that JAX's message and ours share. Both libraries run
each, so that no line outlives what JAX says.
"""

from __future__ import annotations

import importlib
import re
import warnings
from pathlib import Path
from typing import Any

import pytest

from shardwise.base.config import use_dialect

LINES = (Path(__file__).parent / "wrong_programs.txt").read_text().splitlines()
TOPICS: dict[str, list[tuple[str, str]]] = {}
programs: list[tuple[str, str]] = []
for line in LINES:
    if line.startswith("# "):
        programs = TOPICS.setdefault(line[2:], [])
    elif line:
        program, _, phrase = line.partition("  ## ")
        programs.append((program, phrase))

SETUP = """
import numpy as np
P, NS, Mesh, lax, jit, shard_map = jax.P, jax.NamedSharding, jax.sharding.Mesh, jax.lax, jax.jit, jax.shard_map
mesh = Mesh(np.array(jax.devices()[:8]).reshape(2, 4), ('x', 'y'))
explicit = jax.make_mesh((2,), ('x',), axis_types=(jax.sharding.AxisType.Explicit,))
v, m, key = jnp.arange(8.0), jnp.ones((8, 8)), jax.random.key(0)
kept = []
def keep(x):
    kept.append(x)
    return x
def under(mesh, run):
    with jax.set_mesh(mesh):
        return run()
def leak(run):
    run(v)
    return kept.pop()
def checking(run):
    with jax.checking_leaks():
        return run()
def bad_jvp(rule):
    f = jax.custom_jvp(lambda x: x)
    f.defjvp(rule)
    return f
def nondiff(n):
    f = jax.custom_jvp(lambda *a: a[0], nondiff_argnums=(n,))
    f.defjvp(lambda *a: a)
    return f
def bad_vjp(fwd, bwd):
    f = jax.custom_vjp(lambda x: x)
    f.defvjp(fwd, bwd)
    return f
def deleted():
    x = jnp.ones(4)
    x.delete()
    return x
def donated():
    x = jnp.ones(4)
    jit(lambda x: x + 1, donate_argnums=0)(x)
    return x + 1
"""


def names_of(library: str) -> dict[str, Any]:
    """What the programs use, of one of the libraries."""
    for module in ("numpy", "nn", "image", "test_util", "tree_util"):
        importlib.import_module(f"{library}.{module}")
    jax = importlib.import_module(library)
    names: dict[str, Any] = {"jax": jax, "jnp": jax.numpy}
    exec(SETUP, names)
    return names


def raised(program: str, names: dict[str, Any]) -> Exception | None:
    """What the program raises."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            eval(program, names)
    except Exception as error:
        return error
    finally:
        names["kept"].clear()
    return None


def said(error: Exception) -> str:
    """The message in one line."""
    return re.sub(r"\s+", " ", str(error))


def classes(error: Exception, module: str) -> list[str]:
    """The classes of an error that a module defines, the nearest first."""
    return [c.__name__ for c in type(error).__mro__ if c.__module__.partition(".")[0] == module]


@pytest.mark.parametrize("topic", TOPICS)
def test_errors_are_jaxs_and_hold_its_words(topic: str) -> None:
    wrong = []
    with use_dialect("latest"):
        ours, theirs = names_of("shardwise"), names_of("jax")
        for program, phrase in TOPICS[topic]:
            error, model = raised(program, ours), raised(program, theirs)
            if error is None or model is None:
                wrong.append(f"{program}: {error!r} here, {model!r} in JAX")
                continue
            family = classes(model, "builtins")[0]
            public = set(classes(model, "jax")) & set(dir(theirs["jax"].errors))
            if family not in classes(error, "builtins") or not public <= {c.__name__ for c in type(error).__mro__}:
                wrong.append(f"{program}: {type(error).__name__} here, {type(model).__name__} in JAX")
            wrong += [
                f"{program}: {who} does not say {phrase!r} but {said(e)!r}"
                for who, e in (("shardwise", error), ("JAX", model))
                if phrase not in said(e)
            ]
    assert not wrong, "\n".join(wrong)
