"""The options of a `jit`, and a call of the jitted function taken apart: leaves, their tree, static arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any

from shardwise.base.errors import about
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.tree import tree_flatten
from shardwise.engine.array import ArrayImpl
from shardwise.engine.inspection import ShapeDtypeStruct
from shardwise.ir import Literal, Tracer
from shardwise.ir.references import shows_reference
from shardwise.ops.rules.convert import as_value
from shardwise.sharding import Device
from shardwise.transforms.jit.abstract import Abstract, abstract_leaf
from shardwise.transforms.jit.jit_shardings import UNSPECIFIED
from shardwise.transforms.jit.references import ReferenceArgument
from shardwise.transforms.tracing import ArgSelection, BoundCall, Statics, StaticValue, argument_names, from_beginning

Value = ArrayImpl | Literal | Tracer | Abstract


@dataclass(frozen=True, slots=True)
class JitOptions:
    """The options of one `jit`."""

    api: str = "jit"
    in_shardings: Any = UNSPECIFIED
    out_shardings: Any = UNSPECIFIED
    args: ArgSelection = field(default_factory=ArgSelection)
    keep_unused: bool = False
    device: Device | None = None
    inline: bool = False
    asked_for: bool = False
    """Whether the user made this program; otherwise it belongs to one of our own functions, such as a helper of `random`."""


def bound_call(
    fun: Callable[..., Any], options: JitOptions, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> BoundCall:
    """A call of a jitted function taken apart.

    Raises:
        ReferenceArgument: a reference is among the arguments.
        TypeError: an argument is neither an array nor a type, with its path; OverflowError: a number fits no dtype.
        ValueError: named arguments beside in_shardings.
    """
    if kwargs and options.in_shardings is not UNSPECIFIED and options.in_shardings is not None:
        raise ValueError("pjit does not support kwargs when in_shardings is specified. Pass the arguments by position.")
    chosen = options.args
    nums = from_beginning(chosen.static_nums, len(args)) if chosen.static_nums else set()
    dynamic = tuple(a for i, a in enumerate(args) if i not in nums) if nums else args
    static_args = tuple((i, StaticValue(args[i])) for i in sorted(nums) if i < len(args))
    static_kwargs = tuple((k, StaticValue(kwargs[k])) for k in sorted(kwargs) if k in chosen.static_names)
    dynamic_kwargs = {k: v for k, v in kwargs.items() if k not in chosen.static_names}
    leaves, in_tree = tree_flatten((dynamic, dynamic_kwargs))
    names: list[str] = []
    values: list[Value] = []
    for i, leaf in enumerate(leaves):
        if shows_reference(leaf):
            raise ReferenceArgument
        try:
            values.append(as_value(leaf))  # type: ignore[arg-type]
        except OverflowError as error:
            names = names or argument_names(fun, args, dynamic_kwargs, tuple(nums))
            raise OverflowError(
                "An overflow was encountered while parsing an argument to a jitted computation, whose argument path is "
                f"{names[i]}: {error}"
            ) from None
        except TypeError:
            if isinstance(leaf, ShapeDtypeStruct) and not leaf.is_ref:  # for an argument that the function does not use
                values.append(abstract_leaf(leaf))
                continue
            names = names or argument_names(fun, args, dynamic_kwargs, tuple(nums))
            error = TypeError(
                f"Error interpreting argument to {fun} as an abstract array. The problematic value is of type "
                f"{type(leaf)} and was passed to the function at path {names[i]}. Pass arrays and scalars, or mark the "
                "argument static with static_argnums or static_argnames."
            )
            raise about("argument-type", error) from None
    return BoundCall(
        args, kwargs, dynamic, dynamic_kwargs, values, in_tree, Statics(static_args, static_kwargs), len(args)
    )
