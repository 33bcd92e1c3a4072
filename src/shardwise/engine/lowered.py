"""`LoweredProgram`: a program compiled for signatures, before it has kernels.

Comes in: a partitioned `Module`, its `Context`, and the signatures of arguments and results. `Executable` adds kernels and a call,
`DataFree` a call that counts.
"""

from __future__ import annotations

from collections.abc import Sequence

from shardwise.engine.signature import Signature
from shardwise.ir import Program
from shardwise.passes import Context, Module, Transfer, transfers_of


class LoweredProgram:
    """A partitioned program.

    Attributes:
        program: the user's program, global.
        name: its name.
        in_sigs, out_sigs: the signatures of arguments and results.
        grid: the devices.
        in_dims, out_dims: the layouts of arguments and results, in grid axes.
        device_program: what each device would run, every collective an equation.
        folded_program: each device's program, before it is scheduled.
        whole_program: the program on whole values that runs instead of all of these, or None.
        placements: the layouts of the global program's values, in grid axes; empty on one device.
        seconds: the time of each stage of compilation.
        owned: the arguments that a call deletes.
    """

    __slots__ = ("_transfers", "device_program", "folded_program", "grid", "in_dims", "in_sigs", "name", "out_dims", "out_sigs",
                 "owned", "placements", "program", "seconds", "whole_program")  # fmt: skip

    def __init__(
        self,
        in_sigs: Sequence[Signature],
        module: Module,
        context: Context,
        out_sigs: Sequence[Signature],
        seconds: dict[str, float],
        owned: Sequence[int],
        folded_program: Program,
    ) -> None:
        self.program = module.global_program
        self.name = self.program.name
        self.in_sigs = tuple(in_sigs)
        self.out_sigs = tuple(out_sigs)
        self.grid = context.grid
        self.in_dims, self.out_dims = module.in_dims, module.out_dims
        self.device_program = module.device_program
        self.folded_program = folded_program
        self.whole_program = module.whole_program
        self.placements = module.layouts
        self.seconds = seconds
        self.owned = tuple(owned)
        self._transfers: tuple[Transfer, ...] | None = None

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """The record of communication, computed from the device program on first use."""
        if self._transfers is None:
            self._transfers = transfers_of(self.device_program, self.grid.axis_sizes)
        return self._transfers
