"""`shardwise.api_util`: how calls are taken apart, for code that wraps functions as JAX's transformations do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from shardwise.base.tree import broadcast_prefix, tree_flatten
from shardwise.ir import ShapedArray
from shardwise.ops.convert import as_value

__all__ = ["argnums_partial", "donation_vector", "flatten_axes", "shaped_abstractify"]


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


def donation_vector(donate_argnums: Iterable[int], donate_argnames: Iterable[str], args: tuple[Any, ...],
                    kwargs: dict[str, Any] | None = None) -> tuple[bool, ...]:  # fmt: skip
    """For each leaf of the arguments, whether it is donated."""
    numbers, names = set(donate_argnums), set(donate_argnames)
    flags: list[bool] = []
    for i, arg in enumerate(args):
        flags += [i in numbers] * len(tree_flatten(arg)[0])
    for name, arg in (kwargs or {}).items():
        flags += [name in names] * len(tree_flatten(arg)[0])
    return tuple(flags)


def argnums_partial(
    f: Callable[..., Any], dyn_argnums: Any, args: tuple[Any, ...]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """`f` as a function of the arguments `dyn_argnums`, and these."""
    numbers = (dyn_argnums,) if isinstance(dyn_argnums, int) else tuple(dyn_argnums)
    numbers = tuple(n % len(args) for n in numbers)

    def partial(*chosen: Any, **kwargs: Any) -> Any:
        full = list(args)
        for n, value in zip(numbers, chosen, strict=True):
            full[n] = value
        return f(*full, **kwargs)

    return partial, tuple(args[n] for n in numbers)
