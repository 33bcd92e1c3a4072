"""Tolerances say why they are wide, and the bounds of `tests/rounding.py` find what they are there to find."""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tests.rounding import assert_einsum, assert_normwise, assert_same_products

TESTS = Path(__file__).parent
WIDE = 1e-4  # float32 rounds to 6e-8: what is off by more than a thousand roundings has a reason
NAMES = {"rtol", "atol", "tolerance", "rel"}
OTHERS = {"pinv"}  # whose rtol says which singular values count
COMPARISONS = {
    "assert_allclose": (2, 3),
    "allclose": (2, 3),
    "assert_normwise": (2,),
    "close": (2,),
    "same": (2,),
    "approx": (1,),
}


def tolerances(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions that a node gives as tolerances: arguments, defaults, items and variables of such a name."""
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        yield from (node.args[i] for i in COMPARISONS.get(name, ()) if i < len(node.args))
        yield from (k.value for k in node.keywords if k.arg in NAMES and name not in OTHERS)
    elif isinstance(node, ast.arguments):
        given = [*node.posonlyargs, *node.args][::-1]
        yield from (default for a, default in zip(given, node.defaults[::-1], strict=False) if a.arg in NAMES)
        yield from (d for a, d in zip(node.kwonlyargs, node.kw_defaults, strict=True) if d and a.arg in NAMES)
    elif isinstance(node, ast.Dict):
        yield from (v for k, v in zip(node.keys, node.values, strict=True) if getattr(k, "value", None) in NAMES)
    elif isinstance(node, ast.Assign):
        names = {t.id.lower() for t in node.targets if isinstance(t, ast.Name)}
        if names & NAMES:
            yield node.value


def wide_without_reason(source: str) -> list[int]:
    """The lines of statements that have a wide tolerance and no comment, neither on their lines nor right above."""
    wide: list[ast.stmt] = []
    for statement in (n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.stmt)):
        inner = [n for n in ast.iter_child_nodes(statement) if not isinstance(n, ast.stmt)]
        parts = [statement, *(x for n in inner for x in ast.walk(n))]
        literals = [x.value for p in parts for e in tolerances(p) for x in ast.walk(e) if isinstance(x, ast.Constant)]
        if any(isinstance(v, float) and v >= WIDE for v in literals):
            wide.append(statement)
    if not wide:
        return []
    comments = {
        t.start[0]: t.line.lstrip().startswith("#")  # whether it has its line for itself
        for t in tokenize.generate_tokens(io.StringIO(source).readline)
        if t.type == tokenize.COMMENT
    }
    found: list[int] = []
    for statement in wide:
        body = getattr(statement, "body", None)
        last = body[0].lineno - 1 if body else statement.end_lineno or statement.lineno
        if comments.get(statement.lineno - 1) or any(n in comments for n in range(statement.lineno, last + 1)):
            continue
        found.append(statement.lineno)
    return found


def test_wide_tolerances_have_a_reason():
    found = [
        f"{path}:{n}" for path in sorted(TESTS.rglob("*.py")) for n in wide_without_reason(path.read_text("utf-8"))
    ]
    assert not found, f"Tighten these tolerances, or say in a comment why they are {WIDE} or wider: {', '.join(found)}"


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("np.testing.assert_allclose(a, b, rtol=1e-3)", [1]),
        ("np.testing.assert_allclose(a, b, 1e-3)", [1]),
        ("np.testing.assert_allclose(a, b, rtol=1e-5)", []),
        ("f(\n    a,  # half a unit\n    rtol=1e-3,\n)", []),
        ("# half a unit\nf(a, rtol=1e-3)", []),
        ("x = 1  # one\nf(a, rtol=1e-3)", [2]),
        ("def f(a, tolerance=1e-3):\n    return a  # it", [1]),
        ("with x:\n    close = dict(rtol=1e-3)", [2]),
        ("CLOSE = {'atol': 1e-3 if x else 0}", [1]),
        ("tolerance = 2e-2 if narrow else 1e-6", [1]),
        ("def f(a, *, rtol=0.1): ...", [1]),
        ("linalg.pinv(x, rtol=0.1)", []),
        ("check = lambda a, b: np.allclose(a, b, 0, 0.1)", [1]),
    ],
)
def test_wide_tolerances_are_found(source, lines):
    assert wide_without_reason(source) == lines


# -- tests/rounding.py -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "complex64"])
@pytest.mark.parametrize("depth", [1, 5, 200, 5000])
def test_products_round_and_nothing_else(dtype, depth):
    rng = np.random.default_rng(depth)
    a, b = (rng.normal(size=s).astype(getattr(ml_dtypes, dtype, dtype)) for s in ((20, depth), (depth, 30)))
    wide = {"float64": np.float64, "complex64": np.complex64}.get(dtype, np.float32)
    got = (a.astype(wide) @ b.astype(wide)).astype(a.dtype)
    assert_einsum(got, "ij,jk->ik", a, b)
    worse = [got + a[:, -1:] * b[-1:], -got]  # a term twice, another sign
    if dtype == "float32":
        worse.append(a.astype(ml_dtypes.bfloat16).astype(wide) @ b)
    for wrong in worse:
        with pytest.raises(AssertionError, match="times what is allowed"):
            assert_einsum(wrong.astype(a.dtype), "ij,jk->ik", a, b)


def test_shapes_and_integers_are_equal():
    with pytest.raises(AssertionError):
        assert_same_products(np.ones((1, 3)), np.ones((3, 3)), np.ones((3, 3)), 1)
    with pytest.raises(AssertionError):
        assert_normwise(np.array([1, 2]), np.array([1, 3]), 0.5)  # wide, and not for integers
    with pytest.raises(AssertionError):
        assert_normwise(np.array([1.0, np.nan]), np.array([1.0, 2.0]), 0.5)  # wide, and not for NaN


def test_normwise_is_relative_to_the_largest_finite_element():
    want = np.array([1e-3, -100.0, np.inf, np.nan])
    got = want.copy()
    got[0] += 1e-4
    assert_normwise(got, want, 2e-6)
    with pytest.raises(AssertionError):
        assert_normwise(got, want, 5e-7)
