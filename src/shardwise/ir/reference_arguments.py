"""Mutable references among the arguments of a function that is traced: that none occurs twice, and the arguments without them.

In: a tree of arguments. Out: the tree without its references and views, and what puts them back; or an error that names both places of
one that is passed twice.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.tree import keystr, register_pytree_node, tree_leaves, tree_leaves_with_path, tree_map
from shardwise.ir.references import Reference, root_of, shows_reference


class _Hole:
    """Stands for a reference that was taken out of arguments; a tree without leaves."""

    __slots__ = ("position",)

    def __init__(self, position: int) -> None:
        self.position = position


register_pytree_node(_Hole, lambda hole: ((), hole.position), lambda position, _: _Hole(position))


@dataclass(frozen=True, slots=True)
class TracedArguments:
    """Arguments as a function gets them that is traced for a transform, for errors."""

    fun: Callable[..., Any]
    kind: str
    args: Sequence[Any]
    kwargs: dict[str, Any] = field(default_factory=dict[str, Any])

    def names(self) -> list[str]:
        """A name like ``x`` or ``x['w'][0]`` for each reference and view among them."""
        try:
            arguments = inspect.signature(self.fun).bind_partial(*self.args).arguments
        except (TypeError, ValueError):
            arguments = {"args": tuple(self.args)}
        arguments = arguments | dict(sorted(self.kwargs.items()))
        return [
            name + keystr(path)
            for name, value in arguments.items()
            for path, leaf in tree_leaves_with_path(value)
            if shows_reference(leaf)
        ]

    def __str__(self) -> str:
        return f"when {getattr(self.fun, '__name__', repr(self.fun))} is traced for {self.kind}"


def check_distinct(
    references: Sequence[Reference], closed: Sequence[Reference] = (), call: TracedArguments | None = None
) -> None:
    """Raise ValueError if one reference occurs twice, or if one is closed over, too."""
    if len({*map(id, references), *map(id, closed)}) == len(references) + len(closed):
        return
    order = "the order of its writes would be unknown"
    for k, r in enumerate(references):
        first = next((i for i, other in enumerate(references[:k]) if other is r), None)
        names = None if call is None else call.names()
        if any(r is c for c in closed):
            at = "an argument" if names is None else f"the argument {names[k]}"
            raise ValueError(
                f"{'' if call is None else f'{call}, '}a mutable array reference of type {r.aval} was both closed over and passed as "
                f"{at}: {order}. Pass it or close over it."
            )
        if first is not None:
            at = "" if names is None else f": {call}, it appeared at both {names[first]} and {names[k]}"
            raise ValueError(
                "only one reference to a mutable array may be passed as an argument to a function, but the same Ref is passed twice"
                f"{at}: {order}. Pass it once."
            )


def close_over(args: Any, call: TracedArguments | None = None) -> tuple[Any, Callable[[Any], Any]] | None:
    """Arguments without their references and views, and a function that puts them back; None if there are none.

    Raises:
        ValueError: one reference occurs twice.
    """
    references = list(filter(shows_reference, tree_leaves(args)))
    if not references:
        return None
    check_distinct(list(map(root_of, references)), (), call)
    numbers = {id(r): i for i, r in enumerate(references)}
    without = tree_map(lambda x: _Hole(numbers[id(x)]) if shows_reference(x) else x, args)
    is_hole: Callable[[Any], bool] = lambda x: isinstance(x, _Hole)  # noqa: E731
    return without, lambda tree: tree_map(lambda x: references[x.position] if is_hole(x) else x, tree, is_leaf=is_hole)
