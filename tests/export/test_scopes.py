"""Symbolic shapes as texts, the specs of arguments, and sizes found from shapes."""

from __future__ import annotations

import numpy as np
import pytest

from shardwise.export import SymbolicScope, symbolic_args_specs, symbolic_shape
from shardwise.export.scopes import solve_sizes


def test_symbolic_shape():
    a, four, b = symbolic_shape("a, 4, 2*b")
    assert (repr(a), four, repr(b)) == ("a", 4, "2*b")
    scope = a.scope
    assert symbolic_shape("(a, _)", like=(2, 3), scope=scope) == (a, 3)
    assert symbolic_shape("..., a,", like=(2, 3, 4), scope=scope) == (2, 3, a)
    assert symbolic_shape(None, like=(2, 3)) == (2, 3)
    assert symbolic_shape("") == symbolic_shape("()") == ()
    assert symbolic_shape("max(a, b), floordiv(a, 2)", scope=scope)[1] == a // 2


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("_", {}),
        ("...", {}),
        (None, {}),
        ("a,,b", {}),
        (", a", {}),
        ("a+", {}),
        ("a.b", {}),
        ("f(a)", {}),
        ("a / 2", {}),
        ("1.5", {}),
        ("a, _", {"like": (1,)}),
        ("a, 4", {"like": (3, 5)}),
        ("..., ...", {"like": (1, 2)}),
        ("a", {"constraints": ["a > 1"]}),
        ("a", {"constraints": ["a >= 9", "a <= 3"]}),
        ("a", {"constraints": ["1 == 2"]}),
        ("a", {"constraints": "a >= 9"}),
        ("a", {"constraints": ["a >= 9"], "scope": SymbolicScope()}),
        (4, {}),
    ],
)
def test_what_is_no_shape(text, options):
    with pytest.raises(ValueError, match=r"\w"):
        symbolic_shape(text, **options)


def test_symbolic_args_specs():
    args = (np.ones((3, 4)), {"k": np.ones((3, 2), np.int32)})
    for specs in (("b, _", {"k": "b, ..."}), "b, ...", ("b, 4", "b, _")):
        x, rest = symbolic_args_specs(args, specs)
        assert (str(x.shape), str(rest["k"].shape), x.dtype, rest["k"].dtype) == (
            "(b, 4)",
            "(b, 2)",
            "float32",
            "int32",
        )
        assert x.shape[0] == rest["k"].shape[0]
    assert symbolic_args_specs(args, ("b, ...", None))[1]["k"].shape == (3, 2)
    with pytest.raises(ValueError, match="tuple"):
        symbolic_args_specs(args, ("b, ...",))


def test_solved():
    a, b = symbolic_shape("a, b", constraints=["a <= 10"])
    assert solve_sizes([(2 * a, b + a)], [(6, 10)], ["x"]) == {"a": 3, "b": 7}
    for sizes, why in (((5, 9), "remainder 1"), ((0, 9), ">= 1"), ((6, 3), ">= 1"), ((40, 90), "'a <= 10'")):
        with pytest.raises(ValueError, match=why):
            solve_sizes([(2 * a, b + a)], [sizes], ["x"])
    with pytest.raises(ValueError, match=r"'a' should be 3 where .*, and is 4"):
        solve_sizes([(a,), (a,)], [(3,), (4,)], ["x", "y"])
    with pytest.raises(ValueError, match=r"Cannot solve .*\['a', 'b'\]"):
        solve_sizes([(a * b,)], [(6,)], ["x"])
