"""The arguments and results of functions that are differentiated: which are chosen, and which types are refused."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise.base.dtypes import issubdtype
from shardwise.base.tree import PyTreeDef, tree_flatten
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.transforms.tracing import as_nums, from_beginning


def flat_arrays(tree: Any) -> tuple[list[Any], PyTreeDef]:
    """The leaves of a tree as arrays, and its structure."""
    leaves, structure = tree_flatten(tree)
    return [as_array(as_value(x)) for x in leaves], structure


def split_aux(out: Any) -> tuple[Any, Any]:
    """The result of a function with aux output, taken apart; TypeError unless it is a pair."""
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise TypeError(
            f"expected function with aux output to return a two-element tuple, but got type {type(out)} with value {out!r}"
        )
    return out[0], out[1]


def call_with(fun: Any, args: tuple[Any, ...], kwargs: dict[str, Any], nums: tuple[int, ...], chosen: Any) -> Any:
    """The result of `fun` with the positional arguments `nums` replaced by those that are `chosen`."""
    full_args = list(args)
    for n, value in zip(nums, chosen, strict=True):
        full_args[n] = value
    return fun(*full_args, **kwargs)


def check_argnums(argnums: Any, args: tuple[Any, ...], name: str) -> tuple[int, ...]:
    """The positions that `argnums` selects of `args`, none negative; `name` is the function that an error names."""
    if argnums is None:
        raise TypeError("argnums takes an int or a collection of ints, got None")
    nums = as_nums(argnums, "argnums")
    if not nums:
        raise ValueError(f"{name}: argnums names no argument.")
    short = TypeError if name.startswith("grad") else ValueError
    from_beginning(nums, len(args))
    for n in nums:
        if n >= len(args):
            raise short(
                f"differentiating with respect to argnums={argnums} requires at least {n + 1} positional arguments to be "
                f"passed by the caller, but got only {len(args)} positional arguments."
            )
    chosen = tuple(n % len(args) for n in nums)
    if len(set(chosen)) != len(chosen):
        raise TypeError(f"argnums={argnums} names an argument twice.")
    return chosen


def check_input(x: Any, holomorphic: bool, allow_int: bool, name: str) -> None:
    """Refuse an argument whose dtype the function `name` does not differentiate."""
    dtype = x.dtype
    if holomorphic:
        if not issubdtype(dtype, np.complexfloating):
            raise TypeError(f"{name} with holomorphic=True requires inputs with complex dtype, but got {dtype.name}.")
    elif name == "jacfwd" and issubdtype(dtype, np.complexfloating):
        raise TypeError(
            f"{name} requires real-valued inputs (input dtype that is a sub-dtype of np.floating), but got {dtype.name}. For "
            "holomorphic differentiation, pass holomorphic=True; for complex functions use vjp."
        )
    elif not allow_int and not issubdtype(dtype, np.inexact):
        raise TypeError(
            f"{name} requires real- or complex-valued inputs (input dtype that is a sub-dtype of "
            f"np.inexact), but got {dtype.name}. "
            "If you want to use Boolean- or integer-valued inputs, use vjp or set allow_int to True."
        )


def check_output(value: Any, holomorphic: bool, name: str) -> None:
    """Refuse a result whose dtype the function `name` does not differentiate."""
    if holomorphic and not issubdtype(value.dtype, np.complexfloating):
        raise TypeError(
            f"{name} with holomorphic=True requires outputs with complex dtype, but got {value.dtype.name}."
        )
    if not holomorphic and not issubdtype(value.dtype, np.floating):
        raise TypeError(
            f"{name} requires real-valued outputs (output dtype that is a sub-dtype of np.floating), but got "
            f"{value.dtype.name}."
        )
