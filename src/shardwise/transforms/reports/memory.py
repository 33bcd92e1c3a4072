"""The memory of a compiled program, as the planner counts it: on this machine for what runs here, else on the one planned for.

In: an executable. Out: sizes by what they are for, and the peak, per device.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.engine.data_free import DataFree
from shardwise.engine.executable import Executable
from shardwise.planner import HERE, Memory, Places, Target, device_program_of, for_chip, groups, memory_of, target_of
from shardwise.sharding.planned import PlannedClient


@dataclass(frozen=True)
class MemoryStats:
    """Bytes that one device needs for one run. The fields `host_...` count its host's memory, if the device has a memory of its own."""

    generated_code_size_in_bytes: int
    argument_size_in_bytes: int
    output_size_in_bytes: int
    alias_size_in_bytes: int
    temp_size_in_bytes: int
    peak_memory_in_bytes: int
    host_generated_code_size_in_bytes: int = 0
    host_argument_size_in_bytes: int = 0
    host_output_size_in_bytes: int = 0
    host_alias_size_in_bytes: int = 0
    host_temp_size_in_bytes: int = 0


def memory_stats(executable: Executable | DataFree, names: Sequence[str] | None = None) -> MemoryStats:
    """The bytes that one device needs for one run."""
    memory = device_memory(executable, names)
    code = len(executable.plan.source) if isinstance(executable, Executable) else 0
    host = memory.host
    return MemoryStats(
        code,
        memory.arguments,
        memory.results,
        memory.aliased,
        memory.temporaries,
        memory.peak,
        host_argument_size_in_bytes=host.arguments,
        host_output_size_in_bytes=host.results,
        host_alias_size_in_bytes=host.aliased,
        host_temp_size_in_bytes=host.temporaries,
    )


def device_memory(executable: Executable | DataFree, names: Sequence[str] | None = None) -> Memory:
    """The memory of one device, with the buffers at the peak under the names of the arguments."""
    target = target_for(executable)
    program = device_program_of(executable, target, names)
    return memory_of(program, groups(program, target), target)


def target_for(executable: Executable | DataFree) -> Target:
    """The compiler of the machine that a program was compiled for."""
    if isinstance(executable, Executable):
        return HERE
    client = executable.grid.devices[0].client
    places = client.places if isinstance(client, PlannedClient) else None
    return for_chip(places.machine.chip) if isinstance(places, Places) else target_of(client.platform)
