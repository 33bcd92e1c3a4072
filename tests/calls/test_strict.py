"""Which dtypes, weak types and Python scalars the functions of `lax` take beside each other, beside JAX."""

from __future__ import annotations

import functools
import itertools
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise.lax.strict import OPERANDS

jax = pytest.importorskip("jax")

ARRAYS = "int8 int32 uint8 float16 float32 complex64 int32* float32*".split()
SCALARS = {"True": True, "2": 2, "2.0": 2.0, "2j": 2j, "-1": -1, "300": 300, "np.float64(2)": np.float64(2)}
FEW = ["int8", "float16", "float32", "float32*", "2", "2.0"]
TREES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "pad": lambda lax, x, y: lax.pad(x, y, [(1, 0, 0)] * np.ndim(x)),
    "reduce": lambda lax, x, y: lax.reduce(x, y, lax.max, (0,)),
    "reduce mixed": lambda lax, x, y: lax.reduce(x, y, lambda a, b: a + b * b, (0,)),
    "reduce of a list": lambda lax, x, y: lax.reduce([x], [y], lambda a, b: [lax.add(a[0], b[0])], (0,)),
    "reduce_window": lambda lax, x, y: lax.reduce_window(x, y, lax.max, (1,), (1,), "VALID"),
    "reduce_window sum": lambda lax, x, y: lax.reduce_window(x, y, lax.add, (1,), (1,), "VALID"),
    "concatenate": lambda lax, x, y: lax.concatenate([x, y], 0),
    "dynamic_update_slice": lambda lax, x, y: lax.dynamic_update_slice(x, y, (0,)),
    "dot_general": lambda lax, x, y: lax.dot_general(x, y, (((0,), (0,)), ((), ()))),
    "cond": lambda lax, x, y: lax.cond(True, lambda a, b: a, lambda a, b: b, x, y),
    "while_loop": lambda lax, x, y: lax.while_loop(lambda c: False, lambda c: y, x),
    "scan": lambda lax, x, y: lax.scan(lambda c, _: (y, None), x, None, length=2)[0],
    "full_like": lambda lax, x, y: lax.full_like(x, y),
    "select": lambda lax, x, y: lax.select(True, x, y),
    "select_n": lambda lax, x, y: lax.select_n(np.bool_(True), x, y),
}
OTHERWISE = {
    "random_gamma_grad": "JAX's takes operands of two dtypes in 0.10.2, and no scalars",
    "dot_general": "operands of two dtypes",
}


def answer(library: Any, function: Callable[..., Any], names: tuple[str, ...], shape: tuple[int, ...]) -> str:
    """Dtype and weak type of the result, or that it raises."""
    avals = {
        n: library.ShapeDtypeStruct(shape, np.dtype(n.rstrip("*")), weak_type=n.endswith("*"))
        for n in names
        if n not in SCALARS
    }

    def call(arrays: dict[str, Any]) -> Any:
        return function(*(SCALARS[n] if n in SCALARS else arrays[n] for n in names))

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            leaves = library.tree.leaves(library.eval_shape(call, avals))
    except Exception as error:
        kinds = {k.__name__ for k in type(error).__mro__}
        # JAX looks for the shape of a scalar where it expected an array, and says so by accident.
        return "raises" if kinds & {"TypeError", "ValueError", "AttributeError", "IndexError"} else type(error).__name__
    return " ".join(f"{x.dtype}{'*' if x.weak_type else ''}{x.shape}" for x in leaves)


@functools.cache
def of_arrays(count: int) -> list[str]:
    """The functions of JAX's `lax` that take so many arrays and need nothing else."""
    found = []
    for name in dir(jax.lax):
        function = getattr(jax.lax, name)
        if name.startswith("_") or not isinstance(function, types.FunctionType | type(jax.jit(abs))):
            continue
        if any(
            answer(jax, function, (dtype,) * count, (2,)) != "raises"
            and answer(jax, function, (dtype,) * (count - 1), (2,)) == "raises"
            for dtype in ("int32", "float32")
        ):
            found.append(name)
    return found


_asked: dict[Any, str] = {}  # JAX says the same beside both dialects


def differing(name: str, function: Callable[[Any], Callable[..., Any]], count: int, names: list[str]) -> list[str]:
    found = []
    for shape in ((), (2,)):
        for operands in itertools.product(names, repeat=count):
            ours = answer(sw, function(sw), operands, shape)
            key = (name, operands, shape)
            theirs = _asked[key] = _asked.get(key) or answer(jax, function(jax), operands, shape)
            if ours != theirs:
                found.append(f"{name}{operands} of {shape}: {ours}, JAX {theirs}")
    return found


def test_pairs(dialect: str) -> None:
    names = of_arrays(2)
    assert {n for n in OPERANDS if n not in TREES and n not in ("clamp", "betainc", *OTHERWISE)} <= set(names)
    found = []
    for name in names:
        if name not in OTHERWISE:
            every = [*ARRAYS, *SCALARS] if name in ("add", "pow") else FEW
            found += differing(name, lambda library, name=name: getattr(library.lax, name), 2, every)
    assert found == []


def test_triples(dialect: str) -> None:
    assert {"clamp", "betainc"} <= set(of_arrays(3))
    few = ["int8", "float32", "float32*", "2", "2.0"]
    assert [
        line
        for name in ("clamp", "betainc")
        for line in differing(name, lambda library, name=name: getattr(library.lax, name), 3, few)
    ] == []


def test_initial_values_branches_and_carries(dialect: str) -> None:
    found = []
    for name, call in TREES.items():
        names = [n for n in [*FEW, "np.float64(2)", "2j"] if name != "full_like" or dialect == "latest" or n != "2j"]
        found += differing(
            f"{name} as written", lambda library, call=call: functools.partial(call, library.lax), 2, names
        )
    assert found == []


def test_both_eras_are_strict_under_x64() -> None:
    x = jax.numpy.ones(2, "float32")
    for library in (sw, jax):
        wide = library.enable_x64 if library is jax else library.experimental.enable_x64
        with wide(), pytest.raises(TypeError, match="same dtypes, got float32, float64"):
            library.lax.add(library.numpy.asarray(np.asarray(x)), 2.0)
