"""A function with a custom_vjp that gets Refs as a function of their arrays, too, and its rules.

In: the function, its arguments, and the Refs that it gets and then those that it closes over and writes. Out: the function and its two
rules with a first argument, the arrays of the Refs that it gets, and a first result, the last arrays of all Refs. Arrays of the others
are closed over: rules that would drop their tangents raise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from shardwise.base.dtypes import float0
from shardwise.base.tree import broadcast_prefix, tree_leaves, tree_map
from shardwise.ir.references import Reference, hold_references
from shardwise.ops.elementwise.binary import add
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.transforms.derivatives.custom_rules import SymbolicZero, function_name


def over_state(
    custom: Any, references: Sequence[Reference], smooth: Sequence[Any], written: set[int]
) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """The function and its rules. `written` gets the numbers of the references that a call writes.

    The cotangent of a reference's array is the sum of two: that of its last array, whatever the function wrote, and that from the backward
    rule, to which the reference is one of the arguments `smooth`.
    """
    fun, fwd, bwd = custom.fun, custom.fwd, custom.bwd
    number = {id(r): i for i, r in enumerate(references)}
    places = [tree_map(lambda x: number.get(id(x), -1), a) for a in smooth]
    passed_count = sum(n >= 0 for n in tree_leaves(places))
    closed_values = [r.held() for r in references[passed_count:]]

    def run_holding(values: Sequence[Any], run: Callable[[], Any]) -> tuple[list[Any], Any]:
        first = [*values, *closed_values]
        with hold_references(references, first):
            result = run()
            last = [r.held() for r in references]
        written.update(i for i, (x, y) in enumerate(zip(first, last, strict=True)) if x is not y)
        return last, result

    def with_state(values: Any, *args: Any) -> Any:
        return run_holding(values, lambda: fun(*args))

    def forward(values: Any, *args: Any) -> Any:
        values = tree_map(lambda x: x.value, values) if custom.symbolic_zeros else values
        last, (out, residuals) = run_holding(values, lambda: fwd(*args))
        return (last, out), residuals

    def backward(*args: Any) -> Any:
        *rule_args, (after, ct) = args
        cotangents = bwd(*rule_args, ct)
        return (
            (_cotangents(after, cotangents, places), *cotangents)
            if isinstance(cotangents, (tuple, list))
            else cotangents
        )

    with_state.__name__ = function_name(fun)
    return with_state, forward, backward


def _cotangents(after: Sequence[Any], found: Sequence[Any], places: Sequence[Any]) -> list[Any]:
    """The cotangents of the references' arrays, from those of their last arrays and from what the backward rule gives."""
    count = sum(n >= 0 for n in tree_leaves(places))
    total = [None if isinstance(c, SymbolicZero) or c.dtype == float0 else c for c in after[:count]]
    for given, numbers in zip(found, places, strict=False):
        try:
            leaves = broadcast_prefix(given, numbers, is_leaf=lambda x: x is None or isinstance(x, SymbolicZero))
        except ValueError:
            continue  # the later check of the rule's trees names the argument
        for ct, n in zip(leaves, tree_leaves(numbers), strict=True):
            if n >= 0 and not (ct is None or isinstance(ct, SymbolicZero)):
                ct, before = as_array(as_value(ct)), total[n]
                total[n] = ct if before is None or before.shape != ct.shape else add(before, ct)
    return total
