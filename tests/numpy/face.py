"""Expressions in `jnp`, evaluated by shardwise (eagerly, traced, on 8 devices) and compared with what JAX gives.

JAX takes a tenth of a second to compile one, so its answers are kept in ``recorded.jsonl``: ``python -m tests.numpy.face``
writes it anew, and `tests/test_records.py` compares it with the installed JAX. Expressions that it lacks are asked for at once.

A table of cases is a text with one expression per line. Names of `DATA` in it are the operands: arrays in the first run,
traced arguments in the second, split arrays in the third. ``# static`` behind an expression says that the shape of its
result depends on values, so that tracing it raises ConcretizationTypeError; ``# cancels`` that it subtracts nearly equal
values, so that the last digits of two libraries' results differ.
"""

from __future__ import annotations

import ast
import builtins
import functools
import importlib
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_NUM_CPU_DEVICES", "8")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

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


def over(functions: str, forms: str) -> str:
    """The table of these calls, `@` standing for each function in turn."""
    names = functions.split()
    return "".join(f"{form.strip().replace('@', name)}\n" for name in names for form in forms.strip().splitlines())


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


def tolerance_of(dtype: np.dtype[Any], cancels: bool = False) -> float:
    """How far elements of a dtype may lie apart, relative to their size or 1."""
    if dtype.itemsize == 2:
        return 8e-3  # a unit of bfloat16
    return 1e-4 if cancels else 5e-6  # of the seven digits of float32, what cancels loses three


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
            tolerance = tolerance_of(a.dtype)
            np.testing.assert_allclose(a.astype(wide), b.astype(wide), rtol=tolerance, atol=tolerance)


def weak_types(value: Any) -> list[bool]:
    """Which leaves are weakly typed."""
    return [bool(getattr(leaf, "weak_type", False)) for leaf in leaves(value)]


def check_case(line: str) -> None:
    """One line of a table: JAX's values and types eagerly, and the same ones traced and split over devices."""
    expression, _, mark = line.partition("#")
    expression = expression.strip()
    static, cancels = (mark.strip() == name for name in ("static", "cancels"))
    host = operands(expression)
    arrays = {name: x for name, x in host.items() if isinstance(x, np.ndarray)}
    scalars = {name: x for name, x in host.items() if name not in arrays}

    got = evaluate(expression, shardwise, _own(host))
    check_answer(got, jaxs_answer(expression), cancels)
    check_values(evaluate(expression, shardwise, host), got)
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


def check_error(line: str) -> None:
    """An expression that JAX refuses: shardwise raises an exception of the same builtin class."""
    answer = jaxs_answer(line)
    assert answer[0][0] == "raises", f"JAX answers {answer}"
    _, name, builtin = answer[0]
    with pytest.raises(getattr(builtins, builtin)) as raised:
        evaluate(line, shardwise, _own(operands(line)))
    if name == "ConcretizationTypeError":
        assert isinstance(raised.value, ConcretizationTypeError)


def _own(host: dict[str, Any]) -> dict[str, Any]:
    return {name: shardwise.numpy.asarray(x) if isinstance(x, np.ndarray) else x for name, x in host.items()}


def _split(x: np.ndarray[Any, Any], mesh: Any) -> Any:
    spec = SPECS.get(x.ndim)
    if spec is None:
        return shardwise.numpy.asarray(x)
    sharding = NamedSharding(mesh, spec)
    try:
        return shardwise.device_put(x, sharding)
    except ValueError:  # does not divide
        return shardwise.device_put(x, NamedSharding(mesh, P()))


# -- JAX's answers ---------------------------------------------------------------------------------------------

RECORD = Path(__file__).parent / "recorded.jsonl"


@functools.cache
def recorded() -> dict[str, list[Any]]:
    """The answers by expression."""
    return dict(json.loads(line) for line in RECORD.read_text().splitlines()) if RECORD.exists() else {}


def jaxs_answer(expression: str) -> list[Any]:
    """What JAX gives: per leaf [dtype, weak, shape, values], or ["raises", class, builtin class]."""
    found = recorded().get(expression)
    return live_answer(expression) if found is None else found


def live_answer(expression: str) -> list[Any]:
    """The same, from the JAX that is installed."""
    jax = pytest.importorskip("jax")
    pytest.importorskip("jax.nn")
    host = operands(expression)
    given = {name: jax.numpy.asarray(x) if isinstance(x, np.ndarray) else x for name, x in host.items()}
    try:
        value = evaluate(expression, jax, given)
    except Exception as error:
        builtin = next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")
        return [["raises", type(error).__name__, builtin]]
    return [_written(leaf) for leaf in leaves(value)]


def _written(leaf: Any) -> list[Any]:
    if not hasattr(leaf, "dtype"):
        return ["python", False, [], leaf]
    x = np.asarray(leaf)
    values = x.ravel().view(np.float32) if x.dtype.kind == "c" else x.ravel()
    wide = values.astype(np.float64) if values.dtype.kind not in "biu" else values
    rounded = [float(f"{n:.7g}") if isinstance(n, float) else n for n in wide.tolist()]
    return [x.dtype.name, bool(getattr(leaf, "weak_type", False)), list(x.shape), rounded]


def check_answer(got: Any, answer: list[Any], cancels: bool = False) -> None:
    """`got` has the types and values of JAX's answer."""
    got = leaves(got)
    assert answer == [] or answer[0][0] != "raises", f"JAX raises {answer[0][1]}"
    assert len(got) == len(answer)
    for leaf, (dtype, weak, shape, values) in zip(got, answer, strict=True):
        if dtype == "python":
            assert leaf == values
            continue
        assert leaf.dtype.name == dtype, f"{leaf.dtype} instead of {dtype}"
        assert list(leaf.shape) == shape
        assert leaf.weak_type == weak, f"weak_type {leaf.weak_type}"
        want = np.array(values, np.float64)
        if dtype.startswith("complex"):
            want = want.view(np.complex128)
        want = want.reshape(shape)
        have = np.asarray(leaf).astype(want.dtype)
        tolerance = 0 if leaf.dtype.kind in "biu" else tolerance_of(leaf.dtype, cancels)
        np.testing.assert_allclose(have, want, rtol=tolerance, atol=tolerance)


TABLES = (
    "numpy.test_manipulation numpy.test_joining numpy.test_padding numpy.test_selection numpy.test_sorting_search "
    "numpy.test_sets numpy.test_statistics numpy.test_histograms numpy.test_polynomial numpy.test_transformed nn.test_activations "
    "nn.test_normalization nn.test_attention nn.test_initializers"
).split()


def all_expressions() -> list[str]:
    """Every expression of the tables, sorted."""
    found = set()
    for name in TABLES:
        path = Path(__file__).parent.parent / f"{name.replace('.', '/')}.py"
        if not path.exists():
            continue
        module = importlib.import_module(f"tests.{name}")
        for table in (module.CASES, module.ERRORS):
            found |= {param.values[0].partition("#")[0].strip() for param in cases(table)}
    return sorted(found)


def write_record(keep: bool) -> None:
    """Ask JAX about every expression, or with `keep` only about new ones, and write the answers."""
    old = recorded() if keep else {}
    lines = [json.dumps([e, old[e] if e in old else live_answer(e)]) for e in all_expressions()]
    RECORD.write_text("".join(line + "\n" for line in lines))


if __name__ == "__main__":
    write_record(keep="--all" not in sys.argv)
