"""Classes whose values `vmap` maps by functions of theirs, in place of mapping their leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass


@dataclass(frozen=True)
class Vmappable:
    """How the values of a class enter and leave `vmap`."""

    to_elt: Callable[..., Any]
    from_elt: Callable[..., Any]
    make_iota: Callable[[Any], Any] | None
    axis_size_type: type
    spec_type: type


_VMAPPABLE_TYPES: dict[type, Vmappable] = {}


def register_vmappable(
    data_type: type,
    spec_type: type,
    axis_size_type: type,
    to_elt: Callable[..., Any],
    from_elt: Callable[..., Any],
    make_iota: Callable[[Any], Any] | None,
) -> None:
    """Values of `data_type` are mapped as a whole, along what their entry of `in_axes`, a `spec_type`, says.

    ``to_elt(map_part, index, value, spec)`` gives what the mapped function sees: ``map_part(array, axis)`` is one element of an
    array, ``index()`` the element's number. ``from_elt(stack_part, size, element, spec)`` gives the stacked value of a result of
    that class: ``stack_part(size, array, axis)`` is an array of all elements. `make_iota` counts to a size of `axis_size_type`.
    """
    _VMAPPABLE_TYPES[data_type] = Vmappable(to_elt, from_elt, make_iota, axis_size_type, spec_type)


def unregister_vmappable(data_type: type) -> None:
    """Values of the class are mapped leaf by leaf again. Does nothing for a class that was not registered."""
    _VMAPPABLE_TYPES.pop(data_type, None)


def is_vmappable(x: Any) -> bool:
    """Whether the value's class is registered."""
    return type(x) in _VMAPPABLE_TYPES


def vmappable_of(x: Any) -> Vmappable | None:
    """The entry registered for the value's class."""
    return _VMAPPABLE_TYPES.get(type(x))


def spec_types() -> tuple[type, ...]:
    """The classes of entries of `in_axes` and `out_axes` that registered classes understand."""
    return tuple({v.spec_type for v in _VMAPPABLE_TYPES.values()} - {int, type(None)})


def count_below(size: Any, otherwise: Callable[[], Any]) -> Any:
    """The numbers below a size, by the class that registered the size's type, else by `otherwise`."""
    for entry in _VMAPPABLE_TYPES.values():
        if entry.make_iota is not None and entry.axis_size_type is type(size):
            return entry.make_iota(size)
    return otherwise()
