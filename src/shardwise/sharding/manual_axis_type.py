"""`ManualAxisType`: the state of a value along the Manual axes of a mesh."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass

_NO_AXES: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class ManualAxisType:
    """The axes over which a value varies, is a partial sum, or is invariant with partial cotangents.

    Raises:
        ValueError: an axis is in `varying` and in another one.

    >>> ManualAxisType(varying=frozenset({"x"})).update(reduced=frozenset({"y"})).reduced
    frozenset({'y'})
    """

    varying: frozenset[str] = _NO_AXES
    unreduced: frozenset[str] = _NO_AXES
    reduced: frozenset[str] = _NO_AXES

    def __post_init__(self) -> None:
        for f in fields(self):
            object.__setattr__(self, f.name, frozenset(getattr(self, f.name)))
        for name in ("unreduced", "reduced"):
            if self.varying & getattr(self, name):
                raise ValueError(
                    f"varying and {name} cannot have common mesh axes. Got varying={self.varying} and {name}={getattr(self, name)}"
                )

    @property
    def empty(self) -> bool:
        """Whether it names no axis."""
        return not (self.varying or self.unreduced or self.reduced)

    def invarying(self, mesh: Any) -> frozenset[str]:
        """The Manual axes of `mesh` along which the value is the same on all devices."""
        return frozenset(mesh.manual_axes) - self.varying - self.unreduced - self.reduced

    def update(self, **changes: frozenset[str]) -> ManualAxisType:
        """A copy with some fields replaced."""
        return ManualAxisType(**{f.name: changes.pop(f.name, getattr(self, f.name)) for f in fields(self)}, **changes)
