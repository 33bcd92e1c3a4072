"""Expressions in `jnp`, evaluated by shardwise (eagerly, traced, on 8 devices) and by JAX, and compared.

A table of cases is a text with one expression per line. Names of `DATA` in it are the operands: arrays in the first run,
traced arguments in the second, split arrays in the third. ``# static`` behind an expression says that the shape of its
result depends on values, so that tracing it raises ConcretizationTypeError.
"""

from __future__ import annotations

import ast
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardwise
import shardwise.lax
import shardwise.nn
import shardwise.numpy
from shardwise.base.errors import ConcretizationTypeError
from shardwise.sharding import Mesh, NamedSharding, P

RNG = np.random.default_rng(7)

DATA: dict[str, Any] = {
    "v": RNG.normal(size=8).astype(np.float32),
    "w": RNG.normal(size=8).astype(np.float32) + 2,
    "m": RNG.normal(size=(4, 8)).astype(np.float32),
    "t": RNG.normal(size=(2, 4, 8)).astype(np.float32),
    "sq": RNG.normal(size=(4, 4)).astype(np.float32),
    "odd": RNG.normal(size=(3, 5)).astype(np.float32),
    "i": np.array([3, 1, 3, 0, 7, 1, 1, 5], np.int32),
    "j": np.array([2, 0, 3, 9, 7, 4, 0, 5], np.int32),
    "n": RNG.integers(-4, 5, (4, 8)).astype(np.int32),
    "b": np.array([1, 0, 0, 1, 1, 0, 1, 0], bool),
    "bm": RNG.random((4, 8)) > 0.4,
    "u": RNG.integers(0, 255, 8).astype(np.uint8),
    "c": (RNG.normal(size=8) + 1j * RNG.normal(size=8)).astype(np.complex64),
    "h": RNG.normal(size=8).astype(np.float16),
    "bf": RNG.normal(size=8).astype(ml_dtypes.bfloat16),
    "gap": np.array([1, np.nan, -np.inf, 3, 3, np.nan, np.inf, 0], np.float32),
    "grid": np.array([-2.0, -1, -0.5, 0, 0.25, 0.5, 1, 2], np.float32),
    "a5": np.arange(5, dtype=np.float32),
    "z": np.zeros((0, 3), np.float32),
    "f": 2.5,
    "k": 3,
}

SPECS = {1: P(("x", "y")), 2: P("x", "y"), 3: P(None, "y", "x")}


def cases(table: str) -> list[Any]:
    """The lines of a table as pytest parameters."""
    lines = [line.strip() for line in table.strip().splitlines()]
    return [pytest.param(line, id=line) for line in lines if line and not line.startswith("#")]


def operands(expression: str) -> dict[str, Any]:
    """The entries of DATA that an expression names."""
    names = {node.id for node in ast.walk(ast.parse(expression, mode="eval")) if isinstance(node, ast.Name)}
    return {name: DATA[name] for name in sorted(names & DATA.keys())}


def evaluate(expression: str, library: Any, given: dict[str, Any]) -> Any:
    """The expression's value, `jnp` and `nn` being the library's."""
    scope = {"jnp": library.numpy, "nn": library.nn, "lax": library.lax, "np": np, "jax": library}
    return eval(expression, {**scope, **given})


def leaves(value: Any) -> list[Any]:
    """The arrays of nested tuples and lists."""
    if isinstance(value, tuple | list):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def check_values(got: Any, want: Any, exact: bool = False) -> None:
    """Equal shapes, dtypes and elements; elements that are floats up to some rounding."""
    got, want = leaves(got), leaves(want)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        a, b = np.asarray(g), np.asarray(w)
        assert a.shape == b.shape
        assert a.dtype == b.dtype, f"{a.dtype} instead of {b.dtype}"
        if isinstance(w, tuple | int | float | bool):
            assert g == w
        elif exact or a.dtype.kind in "biu":
            np.testing.assert_array_equal(a, b)
        else:
            wide = np.complex64 if a.dtype.kind == "c" else np.float32
            tolerance = 2e-2 if a.dtype.itemsize == 2 else 2e-5
            np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=tolerance, atol=tolerance)


def weak_types(value: Any) -> list[bool]:
    """Which leaves are weakly typed."""
    return [bool(getattr(leaf, "weak_type", False)) for leaf in leaves(value)]


def check_case(line: str) -> None:
    """One line of a table: JAX's values and types eagerly, and the same ones traced and split over devices."""
    jax = pytest.importorskip("jax")
    import jax.nn
    import jax.numpy

    expression, _, mark = line.partition("#")
    expression = expression.strip()
    static = mark.strip() == "static"
    host = operands(expression)
    arrays = {name: x for name, x in host.items() if isinstance(x, np.ndarray)}
    scalars = {name: x for name, x in host.items() if name not in arrays}

    want = evaluate(expression, jax, {**scalars, **{k: jax.numpy.asarray(x) for k, x in arrays.items()}})
    got = evaluate(expression, shardwise, {**scalars, **{k: shardwise.numpy.asarray(x) for k, x in arrays.items()}})
    check_values(got, want)
    assert weak_types(got) == weak_types(want), f"weak types {weak_types(got)} instead of {weak_types(want)}"
    check_values(evaluate(expression, shardwise, host), want)

    if not arrays:
        return
    traced = shardwise.jit(lambda given: evaluate(expression, shardwise, {**scalars, **given}))
    mesh = Mesh(np.array(shardwise.devices()[:8]).reshape(2, 4), ("x", "y"))
    split = {name: _split(x, mesh) for name, x in arrays.items()}
    check_values(evaluate(expression, shardwise, {**scalars, **split}), got)
    if static:
        with pytest.raises(ConcretizationTypeError):
            traced(arrays)
        return
    result = traced(arrays)
    check_values(result, got)
    assert weak_types(result) == weak_types(got)
    check_values(traced(split), got)


def _split(x: np.ndarray[Any, Any], mesh: Any) -> Any:
    spec = SPECS.get(x.ndim)
    if spec is None:
        return shardwise.numpy.asarray(x)
    sharding = NamedSharding(mesh, spec)
    try:
        return shardwise.device_put(x, sharding)
    except ValueError:  # does not divide
        return shardwise.device_put(x, NamedSharding(mesh, P()))


def check_error(line: str) -> None:
    """An expression that JAX refuses: shardwise raises an exception of the same builtin class."""
    jax = pytest.importorskip("jax")
    import jax.nn
    import jax.numpy

    host = operands(line)
    with pytest.raises(Exception) as theirs:  # noqa: PT011
        evaluate(line, jax, {k: jax.numpy.asarray(x) if isinstance(x, np.ndarray) else x for k, x in host.items()})
    builtin = next(c for c in theirs.type.__mro__ if c.__module__ == "builtins")
    with pytest.raises(builtin) as ours:
        evaluate(line, shardwise, {k: shardwise.numpy.asarray(x) if isinstance(x, np.ndarray) else x for k, x in host.items()})
    if theirs.type.__name__ == "ConcretizationTypeError":
        assert isinstance(ours.value, ConcretizationTypeError)
    assert not isinstance(ours.value, AssertionError)
