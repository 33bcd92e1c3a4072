"""From a compiled program to the planner's own form.

In: an executable, with or without data. Out: its `DeviceProgram`.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardwise.engine.data_free import DataFree
from shardwise.engine.executable import Executable
from shardwise.engine.signature import Signature
from shardwise.ir import Program
from shardwise.passes import schedule_module
from shardwise.planner.target import Target
from shardwise.planner.work import DeviceProgram
from shardwise.sharding.backend import default_memory_kind

HOST_KINDS = ("pinned_host", "unpinned_host")  # of memory


def device_program_of(
    executable: Executable | DataFree,
    target: Target,
    names: Sequence[str] | None = None,
    together: bool = False,
) -> DeviceProgram:
    """The program of one device, with the paths, layouts and shapes of its arguments, for a target.

    Args:
        executable: what the engine compiled.
        target: for one that runs what the engine schedules, the scheduled program is there as well.
        names: the arguments' paths; those that a planned run knows if left out.
        together: whether to count the devices of this process as one, which is what they are.
    """
    if names is None:
        names = executable.names if isinstance(executable, DataFree) else ("",) * len(executable.in_sigs)
    in_dims, out_dims = executable.in_dims, executable.out_dims
    if together and executable.whole_program is not None:
        in_dims, out_dims = ([((),) * len(d) for d in dims] for dims in (in_dims, out_dims))
    return DeviceProgram(
        executable.device_program,
        dict(zip(*executable.grid.mesh, strict=True)),
        tuple(name or f"argument {i}" for i, name in enumerate(names)),
        tuple(in_dims),
        tuple(out_dims),
        tuple(sig.aval.shape for sig in executable.in_sigs),
        executable.owned,
        _with_host(executable.in_sigs, target),
        _with_host(executable.out_sigs, target),
        _scheduled_program(executable, together) if target.pooled else None,
        together,
    )


def _scheduled_program(executable: Executable | DataFree, together: bool) -> Program | None:
    """The scheduled program: that of this process, or of one device. One for several machines is not scheduled without them."""
    if isinstance(executable, Executable):
        return (executable.plan if together else executable.plan_of_devices).program
    if executable.context.devices > 1:
        return None
    return schedule_module(executable.module, executable.context, {}).program


def _with_host(signatures: Sequence[Signature], target: Target) -> frozenset[int]:
    """The positions of the arrays that lie in the host's memory: none where that is the device's own."""
    if target.pooled:
        return frozenset()
    usual = default_memory_kind()  # of shardings that name none: this machine's, also for devices that are not here
    return frozenset(
        [i for i, s in enumerate(signatures) if (k := s.sharding.memory_kind) in HOST_KINDS and k != usual]
    )
