"""Targets: what the compiler of a platform does to a per-device program, as far as memory and time depend on it.

In: a platform's name. Out: a `Target`, whose fields the passes of the planner read.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.planner.machine import Chip

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Target:
    """The rules of one compiler.

    Attributes:
        name: 'tpu', 'gpu', 'cpu-xla' or 'here' (our own engine).
        tile: bytes of a row of a tile, and rows of 4 bytes: the last two dims of temporaries are padded to it; None: never.
        prologues: whether a product reads operands that are computed while it runs; "narrow": those that are made of values of at most half
            their bytes.
        fold_prologues: whether a reduction does; 'rows': one that reduces the last dim.
        scatters: whether a sum of which each device needs a part is a reduce-scatter; else each gets it as a whole, and takes its part.
        epilogues: whether a product's result goes through elementwise ops before it is stored.
        duplicates: whether a value that several groups read may be computed in each of them.
        cost_limit: the additions per byte of the value up to which it is rather computed again than kept.
        widens: whether products of 16-bit floats run on copies in float32.
        masks: whether products in groups are one of all groups with all rows, masked (see `masks`).
        order: 'memory': groups run in the order that needs least; 'breadth': as soon as their operands are there, first come first
            served, so that many can run at once; 'program': as the program has them.
        pointers: whether several results come with a table of their addresses.
        gathers_again: whether a value that is gathered for readers far apart is gathered for each of them.
        asynchronous: whether collectives run beside computations: their results are allocated one group early, and their
            operands freed one group late.
        rings_from: the number of devices from which a product beside a gather or scatter runs as a ring; 0: never.
        ring_bytes: the size of the whole gathered value from which that pays.
        exchange_copies: whether an all-to-all copies its operand and its result.
        near_bytes: on-chip memory for temporaries that are read soon after they are made; 0: none. Of the chip at hand: see `for_chip`.
        near_groups: the most groups that such a temporary is needed by.
        combine_bytes: reductions over devices that do not wait for each other are joined up to so many bytes; 0: never.
        copies: whether operands of products are copied that are no matrices, and rows of stacks for them and by them (see `copies`); also
            what an update would write over. Loops fill the stacks of their results with zeros before they begin.
        row_bytes: the longest rows, in bytes of the widest operand, that a kernel holds while it reduces them, so that it computes with the
            result in the same go; 0: none.
        product_bytes: of the workspace that a library takes for a product per element of its result, up to `workspace`.
        kernels: whether kernels that programs bring along run as one (see `written_kernels`).
        pooled: whether programs run as the engine has scheduled them (`DeviceProgram.executed`), in buffers of its pool. The other fields
            are for programs that it has not.
    """

    name: str
    tile: tuple[int, int] | None = None
    prologues: bool | Literal["narrow"] = True
    fold_prologues: bool | Literal["rows"] = True
    scatters: bool = True
    epilogues: bool = True
    duplicates: bool = True
    cost_limit: float = 0.0
    widens: bool = False
    masks: bool = False
    order: str = "memory"
    pointers: bool = True
    gathers_again: bool = False
    asynchronous: bool = False
    rings_from: int = 0
    ring_bytes: int = 0
    exchange_copies: bool = False
    near_bytes: int = 0
    near_groups: int = 0
    combine_bytes: int = 0
    copies: bool = False
    row_bytes: int = 0
    product_bytes: int = 0
    workspace: int = 0
    kernels: bool = False
    pooled: bool = False


# XLA's compiler for TPUs, as its public sources and JAX's scaling book describe it. Gathered operands from 256 MiB on are those of
# `SpmdPartitionerOptions.threshold_for_windowed_einsum_mib`; from 4 devices on a ring runs in both directions at once.
TPU = Target(
    "tpu",
    tile=(8, 128),
    cost_limit=32.0,
    gathers_again=True,
    asynchronous=True,
    rings_from=4,
    ring_bytes=256 * MIB,
    exchange_copies=True,
    near_groups=4,
    kernels=True,
)
# XLA's compiler for GPUs: products are calls of a library, with epilogues for biases and activations only. What it copies, the rows that
# its kernels hold and the workspaces were read from programs that JAX 0.11.2 compiled for an H100 (`benchmarks/planning/gpu_measure.py`).
GPU = Target(
    "gpu",
    prologues="narrow",
    cost_limit=32.0,
    masks=True,
    asynchronous=True,
    copies=True,
    row_bytes=2**16,
    product_bytes=16,
    workspace=32 * MIB,
    kernels=True,
)
# XLA's compiler for CPUs: products are calls of a library, 16-bit floats are widened; its scheduler favours concurrency. A reduction that
# keeps the last dim is a loop of its own, in which neighbours along it are a vector.
CPU_XLA = Target(
    "cpu-xla",
    fold_prologues="rows",
    scatters=False,
    prologues=False,
    epilogues=False,
    cost_limit=16.0,
    widens=True,
    masks=True,
    order="breadth",
    combine_bytes=2**50,
)
# Our own engine.
HERE = Target(
    "here",
    prologues=False,
    duplicates=False,
    cost_limit=16.0,
    widens=True,
    order="program",
    pointers=False,
    pooled=True,
)


# Of the VMEM, what kernels reserve for themselves: the default of `xla_tpu_scoped_vmem_limit_kib`.
SCOPED_BYTES = 16 * MIB


def target_of(platform: str) -> Target:
    """The target of JAX's platform names; our own engine's for CPUs."""
    return {"tpu": TPU, "gpu": GPU, "cuda": GPU, "rocm": GPU}.get(platform, HERE)


def for_chip(chip: Chip) -> Target:
    """The target of a chip, with the on-chip memory that its compiler gives to temporaries."""
    target = target_of(chip.platform)
    if not target.near_groups:
        return target
    return replace(target, near_bytes=max(0, chip.vmem_bytes - SCOPED_BYTES))
