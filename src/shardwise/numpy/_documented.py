"""Docstrings of the elementwise functions that are made from ops: their operands and results, and an example of each.

`tests/test_docstrings.py` runs the examples.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

# By name: the arguments of a call, a change of its result, and the text that Python shows then.
_EXAMPLES: Final = {
    "exp": ("(jnp.array([0.0, 1.0])).round(3)", "Array([1.   , 2.718], dtype=float32)"),
    "expm1": ("(jnp.array([0.0, 1.0])).round(3)", "Array([0.   , 1.718], dtype=float32)"),
    "log": ("(jnp.array([1.0, 2.0])).round(3)", "Array([0.   , 0.693], dtype=float32)"),
    "log1p": ("(jnp.array([0.0, 1.0])).round(3)", "Array([0.   , 0.693], dtype=float32)"),
    "exp2": ("(jnp.array([0, 3])).round(3)", "Array([1., 8.], dtype=float32)"),
    "sqrt": ("(jnp.array([0, 4, 9])).round(3)", "Array([0., 2., 3.], dtype=float32)"),
    "cbrt": ("(jnp.array([1.0, 8.0])).round(3)", "Array([1., 2.], dtype=float32)"),
    "sin": ("(jnp.array([0.0, 1.0])).round(3)", "Array([0.   , 0.841], dtype=float32)"),
    "cos": ("(jnp.array([0.0, 1.0])).round(3)", "Array([1.  , 0.54], dtype=float32)"),
    "tan": ("(jnp.array([0.0, 1.0])).round(3)", "Array([0.   , 1.557], dtype=float32)"),
    "arcsin": ("(jnp.array([0.0, 1.0])).round(3)", "Array([0.   , 1.571], dtype=float32)"),
    "arccos": ("(jnp.array([1.0, 0.5])).round(3)", "Array([0.   , 1.047], dtype=float32)"),
    "arctan": ("(jnp.array([0.0, 1.0])).round(3)", "Array([0.   , 0.785], dtype=float32)"),
    "sinh": ("(jnp.array([0.0, 1.0])).round(3)", "Array([0.   , 1.175], dtype=float32)"),
    "cosh": ("(jnp.array([0.0, 1.0])).round(3)", "Array([1.   , 1.543], dtype=float32)"),
    "tanh": ("(jnp.array([0.0, 1.0])).round(3)", "Array([0.   , 0.762], dtype=float32)"),
    "arcsinh": ("(jnp.array([0.0, 1.0])).round(3)", "Array([0.   , 0.881], dtype=float32)"),
    "arccosh": ("(jnp.array([1.0, 2.0])).round(3)", "Array([0.   , 1.317], dtype=float32)"),
    "arctanh": ("(jnp.array([0.0, 0.5])).round(3)", "Array([0.   , 0.549], dtype=float32)"),
    "add": ("(jnp.array([1.0, 2.0]), 3)", "Array([4., 5.], dtype=float32)"),
    "subtract": ("(jnp.array([5, 7]), jnp.array([[1], [2]]))", "Array([[4, 6],\n       [3, 5]], dtype=int32)"),
    "multiply": ("(jnp.array([1, 2]), jnp.array([3, 4]))", "Array([3, 8], dtype=int32)"),
    "maximum": ("(jnp.array([1, 5]), 3)", "Array([3, 5], dtype=int32)"),
    "minimum": ("(jnp.array([1, 5]), 3)", "Array([1, 3], dtype=int32)"),
    "true_divide": ("(jnp.array([1, 6]), 4)", "Array([0.25, 1.5 ], dtype=float32)"),
    "arctan2": ("(jnp.array([0.0, 1.0]), 1.0).round(3)", "Array([0.   , 0.785], dtype=float32)"),
    "nextafter": ("(1.0, 2.0) > 1", "Array(True, dtype=bool, weak_type=True)"),
    "bitwise_and": ("(jnp.array([5, 6]), 3)", "Array([1, 2], dtype=int32)"),
    "bitwise_or": ("(jnp.array([5, 6]), 3)", "Array([7, 7], dtype=int32)"),
    "bitwise_xor": ("(jnp.array([5, 6]), 3)", "Array([6, 5], dtype=int32)"),
    "left_shift": ("(jnp.array([1, 3]), 2)", "Array([ 4, 12], dtype=int32)"),
    "equal": ("(jnp.array([1, 2]), jnp.array([1, 3]))", "Array([ True, False], dtype=bool)"),
    "not_equal": ("(jnp.array([1, 2]), jnp.array([1, 3]))", "Array([False,  True], dtype=bool)"),
    "less": ("(jnp.array([1, 2, 3]), 2)", "Array([ True, False, False], dtype=bool)"),
    "less_equal": ("(jnp.array([1, 2, 3]), 2)", "Array([ True,  True, False], dtype=bool)"),
    "greater": ("(jnp.array([1, 2, 3]), 2)", "Array([False, False,  True], dtype=bool)"),
    "greater_equal": ("(jnp.array([1, 2, 3]), 2)", "Array([False,  True,  True], dtype=bool)"),
    "logical_and": ("(jnp.array([0, 2]), True)", "Array([False,  True], dtype=bool)"),
    "logical_or": ("(jnp.array([0, 2]), False)", "Array([False,  True], dtype=bool)"),
    "logical_xor": ("(jnp.array([0, 2]), True)", "Array([ True, False], dtype=bool)"),
}


def document(function: Callable[..., Any], name: str, doc: str, takes: str) -> Callable[..., Any]:
    """`function` as `shardwise.numpy.<name>`. `takes`: its operands and result, the same for all that are made alike."""
    call, example_result = _EXAMPLES[name]
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{doc}\n\n{takes}\n\n>>> jnp.{name}{call}\n{example_result}\n"
    function.__module__ = "shardwise.numpy"
    return function


def as_ufunc(doc: str | None, operands: str) -> str:
    """`doc` of a function with the operands of its `ufunc`, in front of the example."""
    before, example = inspect.cleandoc(doc or "").split(">>>", 1)
    takes = f"A `ufunc`: `args` {operands}, by position; NotImplementedError for `out` and `where`, as arrays are immutable."
    return f"{before}{takes}\n\n>>>{example}"
