"""`shardwise.api_util`: binding of calls, for code that wraps functions as JAX's transformations do."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.listing import listing as _listing
from shardwise.base.tree import broadcast_prefix, tree_flatten, tree_unflatten
from shardwise.base.wrapped_functions import Store
from shardwise.extend import linear_util as lu
from shardwise.ir import ShapedArray
from shardwise.ops.rules.convert import as_value

__all__ = [
    "argnums_partial",
    "debug_info",
    "donation_vector",
    "flatten_axes",
    "flatten_fun",
    "flatten_fun_nokwargs",
    "rebase_donate_argnums",
    "safe_map",
    "shaped_abstractify",
]


@dataclass(frozen=True)
class DebugInfo:
    """A description of a traced function: the transformation, and the function's name."""

    traced_for: str
    func_name: str
    func: Any = field(default=None, compare=False, repr=False)


def debug_info(traced_for: str, fun: Callable[..., Any], args: Any = (), kwargs: Any = None, **more: Any) -> DebugInfo:
    """A description of `fun`. `args`, `kwargs` and `more` are not kept: tracers themselves tell names of arguments and results."""
    del args, kwargs, more
    return DebugInfo(traced_for, getattr(fun, "__name__", type(fun).__name__), fun)


@lu.transformation_with_aux2
def flatten_fun(function: Callable[..., Any], store: Store, in_tree: Any, *leaves: Any) -> list[Any]:
    """``flatten_fun(wrapped, in_tree)``: a function of the leaves of (args, kwargs), and a thunk of its result's structure."""
    args, kwargs = tree_unflatten(in_tree, leaves)
    flat, out_tree = tree_flatten(function(*args, **kwargs))
    store.store(out_tree)
    return flat


@lu.transformation_with_aux2
def flatten_fun_nokwargs(function: Callable[..., Any], store: Store, in_tree: Any, *leaves: Any) -> list[Any]:
    """Like `flatten_fun`, where `in_tree` is that of the positional arguments alone."""
    flat, out_tree = tree_flatten(function(*tree_unflatten(in_tree, leaves)))
    store.store(out_tree)
    return flat


def safe_map(f: Callable[..., Any], *iterables: Iterable[Any]) -> list[Any]:
    """A list of `f` of the items; AssertionError where the lengths differ."""
    lists = [list(x) for x in iterables]
    if len({len(x) for x in lists}) > 1:
        raise AssertionError(f"length mismatch: {[len(x) for x in lists]}")
    return list(map(f, *lists))


def rebase_donate_argnums(donate_argnums: Iterable[int], static_argnums: Iterable[int]) -> tuple[int, ...]:
    """The donated positions once the static arguments are taken out. ValueError for one that is both."""
    donated_args, static = sorted(set(donate_argnums)), set(static_argnums)
    if both := static.intersection(donated_args):
        raise ValueError(f"static_argnums and donate_argnums cannot intersect, both have {sorted(both)}.")
    return tuple(d - sum(s < d for s in static) for d in donated_args)


def shaped_abstractify(x: Any) -> ShapedArray:
    """The type of an array, host value or ShapeDtypeStruct; TypeError for anything else."""
    if hasattr(x, "aval"):
        return x.aval
    if hasattr(x, "shape") and hasattr(x, "dtype") and not hasattr(x, "__array__"):
        return ShapedArray(x.shape, x.dtype, bool(getattr(x, "weak_type", False)))
    return as_value(x).aval


def flatten_axes(name: str, treedef: Any, axis_tree: Any) -> list[Any]:
    """The entry of a prefix tree for each leaf of a structure. ValueError where it is no prefix."""
    try:
        return list(
            broadcast_prefix(axis_tree, treedef.unflatten([0] * treedef.num_leaves), is_leaf=lambda x: x is None)
        )
    except ValueError as error:
        raise ValueError(
            f"{name} specification must be a tree prefix of the corresponding value, got {axis_tree}: {error}"
        ) from None


def donation_vector(
    donate_argnums: Iterable[int],
    donate_argnames: Iterable[str],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
) -> tuple[bool, ...]:
    """For each leaf of the arguments, whether it is donated."""
    numbers, names = set(donate_argnums), set(donate_argnames)
    flags: list[bool] = []
    for i, arg in enumerate(args):
        flags += [i in numbers] * len(tree_flatten(arg)[0])
    for name, arg in (kwargs or {}).items():
        flags += [name in names] * len(tree_flatten(arg)[0])
    return tuple(flags)


def argnums_partial(
    f: Any, dyn_argnums: Any, args: tuple[Any, ...], require_static_args_hashable: bool = True
) -> tuple[Any, tuple[Any, ...]]:
    """`f`, a function or a `WrappedFun`, as one of the arguments `dyn_argnums`, and these.

    ValueError where another argument is not hashable, unless `require_static_args_hashable` is False.
    """
    numbers = (dyn_argnums,) if isinstance(dyn_argnums, int) else tuple(dyn_argnums)
    for n in numbers:
        if not -len(args) <= n < len(args):
            raise ValueError(f"dyn_argnums names position {n}, but there are {len(args)} positional arguments.")
    numbers = tuple(n % len(args) for n in numbers)
    static = {i: x for i, x in enumerate(args) if i not in numbers}
    for i, x in static.items() if require_static_args_hashable else ():
        try:
            hash(x)
        except TypeError:
            raise ValueError(
                f"Non-hashable static arguments are not supported, got one of type {type(x)} at position {i}; pass "
                "require_static_args_hashable=False where nothing is cached by them."
            ) from None
    chosen = tuple(args[n] for n in numbers)
    if isinstance(f, lu.WrappedFun):  # types take part, so that 1 and True make functions that differ
        return _with_static(f, numbers, tuple((i, type(x), x) for i, x in static.items())), chosen
    return functools.partial(_joined_call, f, numbers, static), chosen


def _joined_call(
    f: Callable[..., Any], numbers: tuple[int, ...], static: dict[int, Any], *values: Any, **kwargs: Any
) -> Any:
    """Call `f` with `values` at the positions `numbers` and the static arguments at theirs."""
    chosen = dict(zip(numbers, values, strict=True))
    return f(*(chosen[i] if i in chosen else static[i] for i in range(len(chosen) + len(static))), **kwargs)


@lu.transformation2
def _with_static(
    f: Callable[..., Any], numbers: tuple[int, ...], static: tuple[tuple[int, type, Any], ...], *values: Any, **kw: Any
) -> Any:
    return _joined_call(f, numbers, {i: x for i, _, x in static}, *values, **kw)


__dir__ = _listing(__name__)
