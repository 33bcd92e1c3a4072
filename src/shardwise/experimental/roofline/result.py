"""The numbers of a roofline, and the shapes of which they are made."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import ShapedArray


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineShape:
    """Shape and dtype of an operand on one device."""

    shape: tuple[int, ...]
    dtype: Any

    @classmethod
    def from_aval(cls, aval: Any) -> RooflineShape:
        """The shape and dtype of an array's type. TypeError for other types."""
        if not isinstance(aval, ShapedArray):
            raise TypeError(
                f"RooflineShape.from_aval takes the type of an array, got {aval!r} of type {type(aval).__name__}."
            )
        return cls(shape=aval.shape, dtype=aval.dtype)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """The bytes of all elements."""
        return self.size * self.dtype.itemsize

    @classmethod
    def total_bytes(cls, avals: Sequence[ShapedArray]) -> int:
        """The bytes of values of these types."""
        return sum(cls.from_aval(aval).bytes for aval in avals)


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineRuleContext:
    """The context of an equation that a rule gets besides its operands.

    Attributes:
        name_stack: the function that is counted.
        primitive: of the equation.
        avals_in, avals_out: types on one device.
        jaxpr_eqn_ctx: None; equations have no context of their own.
        mesh: that `roofline` was given.
        pin_lhs_in_vmem, pin_rhs_in_vmem: as `roofline` was given them.
    """

    name_stack: str
    primitive: Any
    avals_in: Sequence[ShapedArray]
    avals_out: Sequence[ShapedArray]
    jaxpr_eqn_ctx: None
    mesh: Any
    pin_lhs_in_vmem: bool
    pin_rhs_in_vmem: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineResult:
    """The work of one device; results add up.

    Attributes:
        flops: of matrix products and convolutions; a multiply-add is two.
        unfused_flops: of these and of elementwise ops and reductions.
        ici_bytes: by mesh axis, the bytes that its busiest link carries.
        ici_latency: by mesh axis, the hops that messages take one after the other.
        hbm_bytes: that products read and write.
        peak_hbm_bytes: of the values that are alive together, each equation's results in memory.
        unfused_hbm_bytes: that all equations read and write, each a kernel of its own.
    """

    flops: int = 0
    unfused_flops: int = 0
    ici_bytes: Mapping[str, int] = field(default_factory=dict)
    ici_latency: Mapping[str, int] = field(default_factory=dict)
    hbm_bytes: int = 0
    peak_hbm_bytes: int = 0
    unfused_hbm_bytes: int = 0

    @classmethod
    def zeros(cls) -> RooflineResult:
        """Nothing."""
        return cls()

    def __add__(self, other: RooflineResult) -> RooflineResult:
        """First this, then that: sums, and the larger of the peaks."""
        return self._merge_with(other, lambda name, a, b: max(a, b) if name == "peak_hbm_bytes" else a + b)

    def largest(self, other: RooflineResult) -> RooflineResult:
        """The maximum of each number: a bound for branches of which one runs."""
        return self._merge_with(other, lambda _, a, b: max(a, b))

    def __mul__(self, constant: float) -> RooflineResult:
        """The costs of `constant` repetitions."""
        return RooflineResult(**{f.name: _times(getattr(self, f.name), constant) for f in fields(self)})

    __rmul__ = __mul__

    def repeat_runs(self, times: int) -> RooflineResult:
        """One run after the other: the peak stays."""
        return replace(self * times, peak_hbm_bytes=self.peak_hbm_bytes)

    def _merge_with(self, other: RooflineResult, merge: Any) -> RooflineResult:
        merged_fields: dict[str, Any] = {}
        for f in fields(self):
            mine, theirs = getattr(self, f.name), getattr(other, f.name)
            if isinstance(mine, Mapping):
                keys = [*mine, *(k for k in theirs if k not in mine)]
                merged_fields[f.name] = {k: merge(f.name, mine.get(k, 0), theirs.get(k, 0)) for k in keys}
            else:
                merged_fields[f.name] = merge(f.name, mine, theirs)
        return RooflineResult(**merged_fields)


def _times(value: Any, constant: float) -> Any:
    if isinstance(value, Mapping):
        return {key: int(n * constant) for key, n in value.items()}
    return int(value * constant)
