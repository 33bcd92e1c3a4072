"""Refs among the arguments and results of functions that are differentiated: which they are, their tangents, and what was written to them.

In: a tree of arguments. Out: their Refs by position. A function is differentiated in the arrays that they hold, and its last arrays are
written back. A Ref that the function makes and returns holds its primal afterwards; its tangent is another Ref.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from shardwise.base.tree import PyTreeDef, tree_flatten, tree_leaves
from shardwise.ir import ShapedArray, Trace
from shardwise.ir.reference_arguments import TracedArguments, check_distinct
from shardwise.ir.references import Reference, is_reference
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.transforms.interpreters.jvp import has_tangent
from shardwise.transforms.interpreters.linear_maps import tangent_in

References = Mapping[int, Reference]


def references_among(fun: Callable[..., Any], kind: str, args: Sequence[Any]) -> References:
    """The Refs among the leaves of arguments by position; ValueError if one occurs twice."""
    references = {i: x for i, x in enumerate(tree_leaves(tuple(args))) if is_reference(x)}
    if len(references) > 1:
        check_distinct([*references.values()], (), TracedArguments(fun, kind, args))
    return references


def flat_primals(args: Sequence[Any]) -> tuple[list[Any], PyTreeDef]:
    """The leaves of arguments as arrays, those that Refs hold included, and their structure."""
    leaves, structure = tree_flatten(tuple(args))
    return [x.held() if is_reference(x) else as_array(as_value(x)) for x in leaves], structure


def array_of(x: Any) -> Any:
    """The array that a Ref holds; other values as they are."""
    return x.held() if is_reference(x) else x


def reference_tangent(aval: ShapedArray, tangent: Any) -> Any:
    """The array of a tangent of a Ref to a value of type `aval`; None if it has no tangents."""
    if not has_tangent(aval):
        return None
    if not is_reference(tangent):
        raise ValueError(f"jax.jvp: the tangent of a Ref is a Ref of the same shape and dtype, got {tangent!r}.")
    return tangent_in(aval, tangent.held(), "jax.jvp")


def store_last(reference: Reference, first: Any, last: Any) -> None:
    """Write the last array of a function that began with `first`."""
    if last is not first:
        reference.store(last)


def store_all(references: References, first: Sequence[Any], last: Sequence[Any]) -> None:
    """Write the last arrays of a function whose arguments, as arrays, were `first`."""
    for (i, r), value in zip(references.items(), last, strict=True):
        store_last(r, first[i], value)


def made_references(
    found: Sequence[tuple[int | None, Any]], trace: Trace, values: Sequence[Any]
) -> dict[int, Reference]:
    """The Refs among results that are no arguments, by position. Those made under `trace`, which has ended, hold their `values` now.

    `found` has the place among the arguments and the object of each result.
    """
    new_references = {i: own for i, (place, own) in enumerate(found) if place is None and is_reference(own)}
    for i, reference in new_references.items():
        leave_made(reference, trace, lambda _, i=i: values[i])
    return new_references


def leave_made(reference: Reference, trace: Trace, outer: Callable[[Any], Any]) -> None:
    """Have a Ref that was made under `trace`, which has ended, hold `outer` of its array."""
    value = reference.leave(trace)
    if value is not None:
        reference.exchange(outer(value))
