"""`shardwise.experimental.hijax`: declarations of new kinds of values and their primitives.

In: such declarations. Out: primitives that run on concrete values, by the functions on arrays that their `to_lojax` calls.
Operands that are traced, and values that a program would have to read or write while it runs, raise NotImplementedError: programs
take arrays only, and a value that one should know is registered as a pytree of arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from shardwise.base.listing import listing as _listing
from shardwise.core import AbstractValue as AbstractValue
from shardwise.core import ShapedArray as ShapedArray
from shardwise.core import Tracer as _Tracer
from shardwise.extend.core import control_flow_allowed_effects as control_flow_allowed_effects
from shardwise.interpreters.ad import Zero as Zero
from shardwise.interpreters.ad import instantiate_zeros as instantiate_zeros
from shardwise.interpreters.ad import is_undefined_primal as is_undefined_primal
from shardwise.ref import AbstractRef as AbstractRef
from shardwise.sharding.context import tracing as _in_program


def _raise_unsupported(what: str) -> NoReturn:
    raise NotImplementedError(
        f"{what}: programs take arrays only, no values of declared types. Register the class as a pytree of arrays with "
        "tree_util.register_pytree_node."
    )


class HiType:
    """Base of types of values that are made of arrays."""

    has_qdd = False


class MutableHiType(HiType):
    """Base of such types whose values are written in place."""

    has_qdd = True


class AvalQDD:
    """A type together with the known state of the value now."""

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

    def to_lojax(self, *args: Any, **params: Any) -> Any:
        """The primitive's results for concrete values, computed by functions on arrays."""
        raise NotImplementedError(f"the primitive {self.name} has no rule to_lojax. Define the method")

    def bind(self, *args: Any, **params: Any) -> Any:
        """The primitive's results of concrete values.

        Raises NotImplementedError for traced operands, and in a program for values that may change between its calls.
        """
        if any(isinstance(x, _Tracer) for x in args):
            _raise_unsupported(f"the primitive {self.name} of traced values")
        if _in_program.get() and any(map(_may_change, args)):
            _raise_unsupported(
                f"the primitive {self.name}, which reads or writes a value that may change, in a program"
            )
        return self.to_lojax(*args, **params)


class aval_property:
    """A property of traced values of a type, declared on the type."""

    def __init__(self, fget: Callable[..., Any]) -> None:
        self.fget = fget


class aval_method:
    """A method of traced values of a type, declared on the type."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.fun = fun


_type_functions: dict[type, Callable[[Any], Any]] = {}


def register_hitype(val_cls: type, typeof_fn: Callable[[Any], Any]) -> None:
    """Declare how the type of values of the class `val_cls` is found: ``typeof_fn(value)``. Register the class with
    `tree_util` to pass such values as arguments.

    >>> class Box:
    ...     pass
    >>> jax.experimental.hijax.register_hitype(Box, lambda box: "a box")
    """
    _type_functions[val_cls] = typeof_fn


def cur_qdd(x: Any) -> Any:
    """The known state of `x`, a value that may change: the result of its method of that name.

    >>> class Counter:
    ...     def cur_qdd(self):
    ...         return "int32"
    >>> jax.experimental.cur_qdd(Counter())
    'int32'
    """
    return x.cur_qdd()


def _may_change(x: Any) -> bool:
    typeof = _type_functions.get(type(x))
    return typeof is not None and bool(getattr(typeof(x), "has_qdd", False))


__dir__ = _listing(__name__)
