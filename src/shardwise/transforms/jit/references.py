"""Mutable references as arguments of compiled functions: they enter as arrays, and their last values are written back.

In: arguments with `Reference` leaves. Out: the same arguments with the arrays that the references hold, for a function that wraps
them in references again, calls the user's function, and returns its results together with the references' last values.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from shardwise.base.tree import tree_flatten, tree_leaves, tree_map
from shardwise.base.treeclass import register_pytree_with_keys
from shardwise.base.wrapping import name_of
from shardwise.engine.array import ArrayImpl
from shardwise.ir import Array, is_eager
from shardwise.sharding import Sharding
from shardwise.transforms.jit.jit_shardings import UNSPECIFIED
from shardwise.transforms.tracing import ArgSelection, from_beginning


class Reference:
    """A holder of an array that functions may replace."""

    __slots__ = ()

    def held(self) -> Array:
        """The array."""
        raise NotImplementedError

    def taken(self) -> Array:
        """The array, for a function that may overwrite its memory: nobody else uses the array."""
        raise NotImplementedError

    def replace(self, value: Array) -> None:
        """Hold `value` from now on; nobody else uses it."""
        raise NotImplementedError


class ReferenceArgument(NotImplementedError):
    """An argument holds a reference."""

    def __init__(self) -> None:
        super().__init__(
            "lower, trace and eval_shape take no Ref. Call the compiled function, or pass the array, ref[...], and return what becomes "
            "of it."
        )


class _Passed:
    """A reference passed into a function: its array, and the class of the reference to make inside."""

    __slots__ = ("kind", "value")

    def __init__(self, kind: Any, value: Any) -> None:
        self.kind = kind
        self.value = value


class _Contents:
    """The step of a key path from a reference to its array."""

    def __str__(self) -> str:
        return "[...]"


register_pytree_with_keys(
    _Passed, lambda p: (((_Contents(), p.value),), p.kind), lambda kind, values: _Passed(kind, *values)
)


def is_reference(x: Any) -> bool:
    """Whether a leaf is a reference."""
    return isinstance(x, Reference)


def passed(
    args: Sequence[Any], dynamic: Sequence[int], kwargs: dict[str, Any]
) -> tuple[list[Any], dict[str, Any], list[Reference]]:
    """The arguments with each reference's array in its place, and the references.

    Args:
        args: all arguments by position.
        dynamic: the positions of arguments that may hold references.
        kwargs: arguments by name, which may hold references.

    Raises:
        ValueError: one reference occurs twice.
    """
    trees = ([args[i] for i in dynamic], kwargs)
    found = [x for x in tree_leaves(trees) if is_reference(x)]
    if len({id(x) for x in found}) < len(found):
        raise ValueError(
            "the same Ref is passed twice to one compiled function, which could not tell the order of its writes. Pass it once."
        )
    eager = is_eager()

    def value_of(x: Any) -> Any:
        return _Passed(type(x), x.taken() if eager else x.held()) if is_reference(x) else x

    values, keywords = tree_map(value_of, trees)
    positional = list(args)
    for i, value in zip(dynamic, values, strict=True):
        positional[i] = value
    return positional, keywords, found


def committed_sharding(x: Any) -> Sharding | None:
    """The sharding of a committed array; None for other values."""
    return x.sharding if isinstance(x, ArrayImpl) and x.committed else None


def held_wholly(args: Sequence[Any], apart: Sequence[int]) -> tuple[int, ...]:
    """The positions of arguments, except those in `apart`, that consist only of references."""
    return tuple(
        i
        for i, a in enumerate(args)
        if i not in apart and (leaves := tree_flatten(a)[0]) and all(map(is_reference, leaves))
    )


def over_values(fun: Callable[..., Any], chosen: ArgSelection) -> Callable[..., Any]:
    """`fun` for arguments that `passed` returned; returns its results and the last values of the references.

    Those that are static in `chosen` are passed on as they are.
    """

    def with_values(*args: Any, **kwargs: Any) -> tuple[Any, list[Array]]:
        made: list[Reference] = []

        def entered(x: Any) -> Any:
            if not isinstance(x, _Passed):
                return x
            made.append(x.kind(x.value))
            return made[-1]

        static = from_beginning(chosen.static_nums, len(args))
        trees = (
            {i: a for i, a in enumerate(args) if i not in static},
            {k: v for k, v in kwargs.items() if k not in chosen.static_names},
        )
        values, named = tree_map(entered, trees, is_leaf=lambda x: isinstance(x, _Passed))
        positional = [values.get(i, a) for i, a in enumerate(args)]
        return fun(*positional, **{**kwargs, **named}), [r.held() for r in made]

    functools.update_wrapper(with_values, fun, updated=())
    with_values.__name__ = name_of(fun)
    return with_values


class OverValues:
    """A compiled function for arguments that hold references.

    Args:
        fun: the user's function.
        options: the options of its `jit`.
        compiled: compiles a function with options.
    """

    def __init__(self, fun: Callable[..., Any], options: Any, compiled: Callable[..., Callable[..., Any]]) -> None:
        self._fun = fun
        self._options = options
        self._compiled = compiled
        self._forms: dict[Any, Callable[..., Any]] = {}

    def call(self, args: Sequence[Any], kwargs: dict[str, Any], static: Sequence[int], dynamic: Sequence[int]) -> Any:
        """Pass the arrays of the references, and write their last values back."""
        chosen, outs = self._options.args, self._options.out_shardings
        named = {k: v for k, v in kwargs.items() if k not in chosen.static_names}
        positional, keywords, references = passed(args, dynamic, named)
        donated = tuple(sorted({*chosen.donate_nums, *held_wholly(args, static)}))
        kept = None if outs is UNSPECIFIED else tuple([committed_sharding(r.held()) for r in references])
        form = self._forms.get((donated, kept))
        if form is None:
            options = replace(self._options, args=replace(chosen, donate_nums=donated))
            if kept is not None:
                options = replace(options, out_shardings=(outs, list(kept)))
            form = self._forms[donated, kept] = self._compiled(over_values(self._fun, chosen), options)
        result, last = form(*positional, **{**kwargs, **keywords})
        for reference, value in zip(references, last, strict=True):
            reference.replace(value)
        return result
