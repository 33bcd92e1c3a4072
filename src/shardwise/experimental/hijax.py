"""`shardwise.experimental.hijax`: declarations of new kinds of values and their primitives.

In: such declarations, which load. Out: NotImplementedError once one of them is to be used in a program; a value that a program
should know is registered as a pytree of arrays instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from shardwise.base.listing import listing as _listing
from shardwise.core import AbstractValue as AbstractValue
from shardwise.core import ShapedArray as ShapedArray
from shardwise.extend.core import control_flow_allowed_effects as control_flow_allowed_effects
from shardwise.interpreters.ad import Zero as Zero
from shardwise.interpreters.ad import instantiate_zeros as instantiate_zeros
from shardwise.interpreters.ad import is_undefined_primal as is_undefined_primal
from shardwise.ref import AbstractRef as AbstractRef


def _unsupported(what: str) -> NoReturn:
    raise NotImplementedError(
        f"{what}: programs take arrays only, no values of declared types. Register the class as a pytree of arrays with "
        "tree_util.register_pytree_node."
    )


class HiType:
    """Base of types of values that are made of arrays."""


class MutableHiType(HiType):
    """Base of such types whose values are written in place."""


class AvalQDD:
    """A type together with what is known of the value's state now."""

    def __init__(self, aval: Any, qdd: Any) -> None:
        self.aval = aval
        self.qdd = qdd


class AvalMutableQDD:
    """A type together with a state that a primitive's type rule may change."""

    def __init__(self, aval: Any, mutable_qdd: Any) -> None:
        self.aval = aval
        self.mutable_qdd = mutable_qdd


class HiPrimitive:
    """Base of primitives on such values; subclasses give the rules as methods."""

    multiple_results = False

    def __init__(self, name: str) -> None:
        self.name = name

    def bind(self, *args: Any, **params: Any) -> NoReturn:
        """Raises NotImplementedError."""
        _unsupported(f"the primitive {self.name}")


class aval_property:
    """A property of traced values of a type, declared on the type."""

    def __init__(self, fget: Callable[..., Any]) -> None:
        self.fget = fget


class aval_method:
    """A method of traced values of a type, declared on the type."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.fun = fun


_declared: dict[type, Callable[[Any], Any]] = {}


def register_hitype(val_cls: type, typeof_fn: Callable[[Any], Any]) -> None:
    """Declare how the type of values of that class is found. `tree_util` is what makes arguments of them."""
    _declared[val_cls] = typeof_fn


__dir__ = _listing(__name__)
