"""`Layout` and `Format`: the order of an array's dims in memory, and that order together with a sharding."""

from __future__ import annotations

from dataclasses import dataclass

from shardwise.sharding import Sharding


@dataclass(frozen=True)
class Layout:
    """Dims from the slowest to the fastest varying. Arrays are dense: there is no tiling."""

    major_to_minor: tuple[int, ...]
    tiling: tuple[tuple[int, ...], ...] = ()
    sub_byte_element_size_in_bits: int = 0


@dataclass(frozen=True)
class Format:
    """How an array is laid out in memory and over devices; both None for an argument that is not used."""

    layout: Layout | None = None
    sharding: Sharding | None = None


def row_major(ndim: int, sharding: Sharding | None) -> Format:
    """The format of an array of that rank; a missing sharding means that there is no array."""
    return Format() if sharding is None else Format(Layout(tuple(range(ndim))), sharding)
