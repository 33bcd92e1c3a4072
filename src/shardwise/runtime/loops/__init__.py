"""Loop nests: their form and its text (`nest`), vectors in memory (`write`), order in memory (`layout`), functions and calls of them."""

from typing import TYPE_CHECKING

from shardwise.base.doors import open_door

if TYPE_CHECKING:
    from shardwise.runtime.loops.call import Call as Call
    from shardwise.runtime.loops.call import Calls as Calls
    from shardwise.runtime.loops.call import Layout as Layout
    from shardwise.runtime.loops.call import LayoutKernel as LayoutKernel
    from shardwise.runtime.loops.call import Loop as Loop
    from shardwise.runtime.loops.function import Function as Function
    from shardwise.runtime.loops.function import Kernel as Kernel
    from shardwise.runtime.loops.function import lanes_of as lanes_of
    from shardwise.runtime.loops.function import module as module
    from shardwise.runtime.loops.layout import MemoryLoops as MemoryLoops
    from shardwise.runtime.loops.layout import Met as Met
    from shardwise.runtime.loops.layout import Result as Result
    from shardwise.runtime.loops.layout import align_block as align_block
    from shardwise.runtime.loops.layout import dense_steps as dense_steps
    from shardwise.runtime.loops.layout import dense_strides as dense_strides
    from shardwise.runtime.loops.layout import memory_order as memory_order
    from shardwise.runtime.loops.layout import merge_loops as merge_loops
    from shardwise.runtime.loops.layout import place_result as place_result
    from shardwise.runtime.loops.layout import streams as streams
    from shardwise.runtime.loops.nest import MASKED as MASKED
    from shardwise.runtime.loops.nest import OVERLAP as OVERLAP
    from shardwise.runtime.loops.nest import WHOLE as WHOLE
    from shardwise.runtime.loops.nest import Access as Access
    from shardwise.runtime.loops.nest import Held as Held
    from shardwise.runtime.loops.nest import Nest as Nest
    from shardwise.runtime.loops.nest import Reduction as Reduction
    from shardwise.runtime.loops.nest import Values as Values
    from shardwise.runtime.loops.nest import emit_op as emit_op
    from shardwise.runtime.loops.nest import finish_reduction as finish_reduction
    from shardwise.runtime.loops.nest import merge_lanes as merge_lanes
    from shardwise.runtime.loops.nest import merge_rows as merge_rows
    from shardwise.runtime.loops.nest import part_at as part_at
    from shardwise.runtime.loops.nest import regroup as regroup
    from shardwise.runtime.loops.nest import round_result as round_result
    from shardwise.runtime.loops.nest import write_nest as write_nest
    from shardwise.runtime.loops.write import STREAMED as STREAMED
    from shardwise.runtime.loops.write import Writer as Writer

__getattr__ = open_door(
    __name__,
    call="Call Calls Layout LayoutKernel Loop",
    function="Function Kernel lanes_of module",
    layout="MemoryLoops Met Result dense_steps dense_strides align_block memory_order merge_loops place_result streams",
    nest="Access Held MASKED Nest OVERLAP Reduction Values WHOLE emit_op finish_reduction merge_lanes merge_rows part_at regroup "
    "round_result write_nest",
    write="STREAMED Writer",
)
