"""The model of machines that one does not have: from a per-device program to its memory, traffic and time there.

In: a `DeviceProgram` and a `Machine`. Out: a `Plan`. Everything here works on types alone.
"""

from typing import TYPE_CHECKING

from shardwise.base.doors import open_door

if TYPE_CHECKING:
    from shardwise.planner.advice import LEAST_MEMORY as LEAST_MEMORY
    from shardwise.planner.advice import LEAST_TIME as LEAST_TIME
    from shardwise.planner.advice import estimated_splits as estimated_splits
    from shardwise.planner.buffers import Memory as Memory
    from shardwise.planner.device_program import device_program_of as device_program_of
    from shardwise.planner.flops import operations_of as operations_of
    from shardwise.planner.flops import product_flops_of as product_flops_of
    from shardwise.planner.flops import product_of as product_of
    from shardwise.planner.flops import touched_bytes as touched_bytes
    from shardwise.planner.flops import work_of as work_of
    from shardwise.planner.fuse import groups as groups
    from shardwise.planner.machine import Machine as Machine
    from shardwise.planner.machine import Places as Places
    from shardwise.planner.memory import memory_of as memory_of
    from shardwise.planner.passes import held_program as held_program
    from shardwise.planner.plan import make_plan as make_plan
    from shardwise.planner.result import Advice as Advice
    from shardwise.planner.result import Buffer as Buffer
    from shardwise.planner.result import Line as Line
    from shardwise.planner.result import Plan as Plan
    from shardwise.planner.result import Schedule as Schedule
    from shardwise.planner.result import Task as Task
    from shardwise.planner.result import Traffic as Traffic
    from shardwise.planner.stand_ins import client_of as client_of
    from shardwise.planner.stand_ins import stand_in_devices as stand_in_devices
    from shardwise.planner.target import HERE as HERE
    from shardwise.planner.target import Target as Target
    from shardwise.planner.target import for_chip as for_chip
    from shardwise.planner.target import target_of as target_of
    from shardwise.planner.texts import gib_text as gib_text
    from shardwise.planner.texts import seconds_text as seconds_text
    from shardwise.planner.views import is_view as is_view

__getattr__ = open_door(
    __name__,
    advice="LEAST_MEMORY LEAST_TIME estimated_splits",
    buffers="Memory",
    device_program="device_program_of",
    flops="operations_of product_flops_of product_of touched_bytes work_of",
    fuse="groups",
    machine="Machine Places",
    memory="memory_of",
    passes="held_program",
    plan="make_plan",
    result="Advice Buffer Line Plan Schedule Task Traffic",
    stand_ins="client_of stand_in_devices",
    target="HERE Target for_chip target_of",
    texts="gib_text seconds_text",
    views="is_view",
)
