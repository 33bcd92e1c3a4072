"""Groups of elementwise ops and reductions as one loop over large blocks."""

from typing import TYPE_CHECKING

from shardwise.base.doors import open_door

if TYPE_CHECKING:
    from shardwise.runtime.fused.kernel import GroupKernel as GroupKernel
    from shardwise.runtime.fused.kernel import fused as fused
    from shardwise.runtime.fused.space import Graph as Graph
    from shardwise.runtime.fused.space import IterationSpace as IterationSpace
    from shardwise.runtime.fused.space import Piece as Piece
    from shardwise.runtime.fused.space import fits as fits
    from shardwise.runtime.fused.space import joined_pieces as joined_pieces
    from shardwise.runtime.fused.space import reads_elements as reads_elements
    from shardwise.runtime.fused.space import space_of as space_of
    from shardwise.runtime.fused.space import takes_type as takes_type

__getattr__ = open_door(
    __name__,
    kernel="GroupKernel fused",
    space="Graph IterationSpace Piece fits joined_pieces reads_elements space_of takes_type",
)
