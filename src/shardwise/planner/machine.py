"""Machines as data: chips, the links between them, and the slices that one can book."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chip:
    """One device.

    Attributes:
        kind: JAX's `device_kind`, ``TPU v5p``.
        platform: JAX's `platform`: 'tpu', 'gpu' or 'cpu'.
        flops: peak FLOP/s of matrix products by dtype name.
        vector_flops: peak FLOP/s of elementwise work in float32.
        hbm_bytes: memory of a device; `usable_bytes` of it are the program's.
        hbm_bandwidth: bytes/s.
        vmem_bytes: on-chip memory (VMEM, L2) of which programs keep values; 0 if none.
        vmem_bandwidth: bytes/s.
    """

    kind: str
    platform: str
    flops: Mapping[str, float]
    vector_flops: float
    hbm_bytes: int
    usable_bytes: int
    hbm_bandwidth: float
    vmem_bytes: int = 0
    vmem_bandwidth: float = 0.0


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the network, the innermost first.

    Attributes:
        name: 'ici', 'nvlink', 'ib', 'dcn', 'network'.
        shape: devices per dim: ``(4, 4, 8)`` of a torus, ``(8,)`` behind a switch.
        wrap: per dim, whether its ends are joined (a torus); all False behind a switch.
        switched: whether all devices reach each other at full bandwidth.
        bandwidth: bytes/s one way, of a link of the torus or of a device's port of the switch.
        latency: seconds from send to receive of a small message.
    """

    name: str
    shape: tuple[int, ...]
    wrap: tuple[bool, ...]
    switched: bool
    bandwidth: float
    latency: float


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine that one can book: so many chips of one kind, joined by levels of network."""

    name: str
    chip: Chip
    levels: tuple[Level, ...]
    processes: int
    sources: tuple[str, ...] = ()
