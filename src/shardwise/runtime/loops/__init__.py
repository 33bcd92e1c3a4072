"""Loop nests: their form and text (`nest`) and builder (`build`), vectors in memory (`write`), order in memory (`layout`), calls."""

from typing import TYPE_CHECKING

from shardwise.base.doors import open_door

if TYPE_CHECKING:
    from shardwise.runtime.loops.build import Pass as Pass
    from shardwise.runtime.loops.build import Read as Read
    from shardwise.runtime.loops.build import Stored as Stored
    from shardwise.runtime.loops.build import Unit as Unit
    from shardwise.runtime.loops.build import build_nest as build_nest
    from shardwise.runtime.loops.build import compute as compute
    from shardwise.runtime.loops.build import fold_of as fold_of
    from shardwise.runtime.loops.build import leaf_of as leaf_of
    from shardwise.runtime.loops.build import reduction_of as reduction_of
    from shardwise.runtime.loops.call import Call as Call
    from shardwise.runtime.loops.call import Calls as Calls
    from shardwise.runtime.loops.call import Specialization as Specialization
    from shardwise.runtime.loops.call import SpecializedKernel as SpecializedKernel
    from shardwise.runtime.loops.call import WorkLoop as WorkLoop
    from shardwise.runtime.loops.copying import copy_call as copy_call
    from shardwise.runtime.loops.copying import streamed_call as streamed_call
    from shardwise.runtime.loops.function import Function as Function
    from shardwise.runtime.loops.function import Kernel as Kernel
    from shardwise.runtime.loops.function import lanes_of as lanes_of
    from shardwise.runtime.loops.function import module as module
    from shardwise.runtime.loops.layout import MemoryLoops as MemoryLoops
    from shardwise.runtime.loops.layout import Met as Met
    from shardwise.runtime.loops.layout import Result as Result
    from shardwise.runtime.loops.layout import Roles as Roles
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
    from shardwise.runtime.loops.nest import Key as Key
    from shardwise.runtime.loops.nest import Leaf as Leaf
    from shardwise.runtime.loops.nest import Reduction as Reduction
    from shardwise.runtime.loops.nest import Saved as Saved
    from shardwise.runtime.loops.nest import Values as Values
    from shardwise.runtime.loops.nest import finish_reduction as finish_reduction
    from shardwise.runtime.loops.nest import merge_rows as merge_rows
    from shardwise.runtime.loops.nest import part_at as part_at
    from shardwise.runtime.loops.nest import regroup as regroup
    from shardwise.runtime.loops.nest import write_nest as write_nest
    from shardwise.runtime.loops.stacks import Spaced as Spaced
    from shardwise.runtime.loops.stacks import StackLoop as StackLoop
    from shardwise.runtime.loops.tables import Table as Table
    from shardwise.runtime.loops.tables import TableForm as TableForm
    from shardwise.runtime.loops.ufuncs import ufunc_of_loop as ufunc_of_loop
    from shardwise.runtime.loops.write import SQUARED as SQUARED
    from shardwise.runtime.loops.write import STREAMED as STREAMED
    from shardwise.runtime.loops.write import Steps as Steps
    from shardwise.runtime.loops.write import Writer as Writer
    from shardwise.runtime.loops.write import dtype_name as dtype_name
    from shardwise.runtime.loops.write import spacing as spacing

__getattr__ = open_door(
    __name__,
    build="Pass Read Stored Unit build_nest compute fold_of leaf_of reduction_of",
    call="Call Calls Specialization SpecializedKernel WorkLoop",
    copying="copy_call streamed_call",
    function="Function Kernel lanes_of module",
    layout="MemoryLoops Met Result Roles dense_steps dense_strides align_block memory_order merge_loops place_result streams",
    nest="Access Held Key Leaf MASKED OVERLAP Reduction Saved Values WHOLE finish_reduction merge_rows part_at regroup write_nest",
    stacks="Spaced StackLoop",
    ufuncs="ufunc_of_loop",
    tables="Table TableForm",
    write="SQUARED STREAMED Steps Writer dtype_name spacing",
)
