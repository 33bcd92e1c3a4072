"""Which dims of `ragged_dot_general` are contracted, batch dims, cut into groups, or count groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Ints
from shardwise.ops.products.dot_sharding import free_dims
from shardwise.runtime.products import DotDims


@dataclass(frozen=True, init=False)
class RaggedDotDimensionNumbers:
    """`dot_dimension_numbers` as of `dot_general`; the one dim of lhs that is cut into groups; the dim of rhs over groups."""

    dot_dimension_numbers: tuple[tuple[Ints, Ints], tuple[Ints, Ints]]
    lhs_ragged_dimensions: Ints
    rhs_group_dimensions: Ints

    def __init__(
        self, dot_dimension_numbers: Any, lhs_ragged_dimensions: Sequence[int], rhs_group_dimensions: Sequence[int]
    ) -> None:
        numbers = tuple(tuple(tuple(int(d) for d in dims) for dims in pair) for pair in dot_dimension_numbers)
        object.__setattr__(self, "dot_dimension_numbers", numbers)
        object.__setattr__(self, "lhs_ragged_dimensions", tuple(int(d) for d in lhs_ragged_dimensions))
        object.__setattr__(self, "rhs_group_dimensions", tuple(int(d) for d in rhs_group_dimensions))


@dataclass(frozen=True, slots=True)
class RaggedDims:
    """The dims of a ragged product by role.

    Attributes:
        dims: of the product of one group, where no operand has a dim over groups.
        ragged_dim: the dim of lhs that is cut into groups.
        group: the dim of rhs over groups; None where it has none.
        lhs_free, rhs_free: dims that are neither contracted nor batch dims, nor count groups.
    """

    dims: DotDims
    ragged_dim: int
    group: int | None
    lhs_free: Ints
    rhs_free: Ints

    @property
    def contracts(self) -> bool:
        """Whether the ragged dim is contracted, so that each group has its own result."""
        return self.ragged_dim in self.dims[0][0]

    @property
    def batches(self) -> bool:
        """Whether the ragged dim is a batch dim, so that groups make no difference."""
        return self.ragged_dim in self.dims[1][0]

    @property
    def prefix(self) -> Ints:
        """The dims of lhs along which `group_sizes` may differ."""
        (contracted_dims, _), (batch, _) = self.dims
        if self.batches:
            return batch[: batch.index(self.ragged_dim)]
        before = contracted_dims if self.contracts else self.lhs_free
        return (*batch, *before[: before.index(self.ragged_dim)])

    @property
    def rhs_ragged(self) -> int:
        """The dim of rhs that is contracted with the ragged one."""
        (left, right), _ = self.dims
        return right[left.index(self.ragged_dim)]


def ragged_dims(numbers: RaggedDotDimensionNumbers, lhs_ndim: int, rhs_ndim: int) -> RaggedDims:
    """The dims by role, for operands of these ranks."""
    dims = numbers.dot_dimension_numbers
    lhs_free, rhs_free = free_dims(dims, lhs_ndim, rhs_ndim)
    group = numbers.rhs_group_dimensions[0] if numbers.rhs_group_dimensions else None
    return RaggedDims(dims, numbers.lhs_ragged_dimensions[0], group, lhs_free, tuple(e for e in rhs_free if e != group))
