"""Machine code: written as LLVM text, compiled, kept on disk, loaded; and the threads that run it.

Besides these names it offers the modules `kernel_store`, `libm`, `libm_angles`, `libm_powers`, `libm_special`, `llvm`, `outside` and
`processor`.
"""

from typing import TYPE_CHECKING

from shardwise.base.doors import open_door

if TYPE_CHECKING:
    from shardwise.runtime.machine.drafts import settle_drafts as settle_drafts
    from shardwise.runtime.machine.flow import RARE as RARE
    from shardwise.runtime.machine.flow import Flow as Flow
    from shardwise.runtime.machine.flow import is_known as is_known
    from shardwise.runtime.machine.lane import STORED as STORED
    from shardwise.runtime.machine.lane import TYPES as TYPES
    from shardwise.runtime.machine.lane import Lane as Lane
    from shardwise.runtime.machine.lane import itemsize as itemsize
    from shardwise.runtime.machine.lane import scalar_text as scalar_text
    from shardwise.runtime.machine.lanes import Lanes as Lanes
    from shardwise.runtime.machine.library_calls import call_lapack as call_lapack
    from shardwise.runtime.machine.library_calls import call_loop as call_loop
    from shardwise.runtime.machine.library_calls import each_by_ufunc as each_by_ufunc
    from shardwise.runtime.machine.llvm import available as available
    from shardwise.runtime.machine.llvm import target as target
    from shardwise.runtime.machine.processor import gathers_pay as gathers_pay
    from shardwise.runtime.machine.processor import processor_flags as processor_flags
    from shardwise.runtime.machine.processor import processor_kind as processor_kind
    from shardwise.runtime.machine.processor import processor_level as processor_level
    from shardwise.runtime.machine.standby import address_of as address_of
    from shardwise.runtime.machine.standby import standby_threads as standby_threads
    from shardwise.runtime.machine.threads import helpers as helpers
    from shardwise.runtime.machine.threads import run_in_parts as run_in_parts
    from shardwise.runtime.machine.threads import start_thread as start_thread
    from shardwise.runtime.machine.threads import thread_count as thread_count

__getattr__ = open_door(
    __name__,
    drafts="settle_drafts",
    flow="Flow RARE is_known",
    lane="Lane STORED TYPES itemsize scalar_text",
    lanes="Lanes",
    library_calls="call_lapack call_loop each_by_ufunc",
    llvm="available target",
    processor="gathers_pay processor_flags processor_kind processor_level",
    standby="address_of standby_threads",
    threads="helpers run_in_parts start_thread thread_count",
)
