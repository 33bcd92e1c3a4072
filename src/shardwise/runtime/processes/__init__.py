"""Several processes: what they send each other, and how they stay in step.

Besides these names it offers the modules `comm` and `preemption`.
"""

from typing import TYPE_CHECKING

from shardwise.base.doors import open_door

if TYPE_CHECKING:
    from shardwise.runtime.processes.announce import AnnouncedProgram as AnnouncedProgram
    from shardwise.runtime.processes.announce import exchanges as exchanges
    from shardwise.runtime.processes.comm import as_bytes as as_bytes
    from shardwise.runtime.processes.comm import the_world as the_world
    from shardwise.runtime.processes.comm import world as world
    from shardwise.runtime.processes.gather import CoordinatorLinks as CoordinatorLinks
    from shardwise.runtime.processes.gather import launched_by_mpi as launched_by_mpi
    from shardwise.runtime.processes.gather import split_address as split_address
    from shardwise.runtime.processes.meeting import Meeting as Meeting
    from shardwise.runtime.processes.origin import FEW as FEW
    from shardwise.runtime.processes.origin import MASK as MASK
    from shardwise.runtime.processes.origin import history as history
    from shardwise.runtime.processes.origin import number_of as number_of
    from shardwise.runtime.processes.routes import Message as Message
    from shardwise.runtime.processes.routes import Route as Route
    from shardwise.runtime.processes.shared import processors as processors
    from shardwise.runtime.processes.start import check_gathers as check_gathers
    from shardwise.runtime.processes.start import launched_rank as launched_rank
    from shardwise.runtime.processes.traffic import Traffic as Traffic
    from shardwise.runtime.processes.traffic import count_traffic as count_traffic
    from shardwise.runtime.processes.traffic import total_traffic as total_traffic
    from shardwise.runtime.processes.vouch import checksum as checksum
    from shardwise.runtime.processes.vouch import compare_value as compare_value

__getattr__ = open_door(
    __name__,
    announce="AnnouncedProgram exchanges",
    comm="as_bytes the_world world",
    gather="CoordinatorLinks launched_by_mpi split_address",
    meeting="Meeting",
    origin="FEW MASK history number_of",
    routes="Message Route",
    shared="processors",
    start="check_gathers launched_rank",
    traffic="Traffic count_traffic total_traffic",
    vouch="checksum compare_value",
)
