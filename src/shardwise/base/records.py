"""Records: frozen dataclasses of which programs have tens of thousands."""

from __future__ import annotations

from dataclasses import field
from typing import TypeVar, dataclass_transform

from shardwise.base.lazy_dataclasses import dataclass

T = TypeVar("T")


@dataclass_transform(frozen_default=True, eq_default=False, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """A frozen dataclass with slots, compared by identity.

    Only type checkers refuse assignments to its fields: at run time the check would triple the cost of making one.
    """
    return dataclass(slots=True, eq=False)(cls)
