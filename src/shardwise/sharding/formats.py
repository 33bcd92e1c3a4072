"""`Layout` and `Format`: the order of an array's dims in memory, and that order together with a sharding.

Arrays are stored in row-major order. `device_put` and the shardings of `jit` refuse a format with another order, because there it
would have an effect.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, cast

from shardwise.sharding.sharding import Sharding


class _Auto:
    """The order that the compiler chooses, which is row-major."""

    def __repr__(self) -> str:
        return "AUTO"


@dataclass(frozen=True, init=False)
class Layout:
    """Dims from the slowest to the fastest varying. Arrays are dense: there are no tiles and no packed elements.

    Raises:
        TypeError: `major_to_minor` is no sequence of ints.
        ValueError: it does not name each dim once.
    """

    AUTO: ClassVar[_Auto] = _Auto()

    major_to_minor: tuple[int, ...]
    tiling: tuple[tuple[int, ...], ...] | None = None
    sub_byte_element_size_in_bits: int = 0

    def __init__(
        self,
        major_to_minor: Sequence[int],
        tiling: Sequence[Sequence[int]] | None = None,
        sub_byte_element_size_in_bits: int = 0,
    ) -> None:
        if isinstance(major_to_minor, Layout) or not hasattr(major_to_minor, "__iter__"):
            raise TypeError(
                f"Layout takes the order of dims, such as (0, 1), got {major_to_minor!r}. A layout and a sharding together are a Format."
            )
        order = tuple(operator.index(d) for d in major_to_minor)
        if sorted(order) != list(range(len(order))):
            raise ValueError(
                f"Layout's major_to_minor names each dim once, from 0 to {len(order) - 1}, but got {order}."
            )
        object.__setattr__(self, "major_to_minor", order)
        object.__setattr__(self, "tiling", None if tiling is None else tuple(map(tuple, tiling)))
        object.__setattr__(self, "sub_byte_element_size_in_bits", sub_byte_element_size_in_bits)

    @property
    def is_row_major(self) -> bool:
        """Whether this is the order that arrays have."""
        return self.major_to_minor == tuple(range(len(self.major_to_minor))) and not self.tiling


@dataclass(frozen=True)
class Format:
    """The layout of an array in memory and over devices; both None for an unused argument.

    Raises:
        TypeError: `layout` is no Layout, Layout.AUTO or None, or `sharding` no Sharding or None.
        ValueError: a layout without a sharding.
    """

    layout: Layout | _Auto | None = None
    sharding: Sharding | None = None

    def __post_init__(self) -> None:
        if not isinstance(cast(object, self.layout), (Layout, _Auto, type(None))):
            raise TypeError(
                f"Invalid value received for the layout argument. Expected None, Layout.AUTO or a Layout, got {self.layout} of type "
                f"{type(self.layout)}."
            )
        if not isinstance(cast(object, self.sharding), (Sharding, type(None))):
            raise TypeError(
                f"Invalid value received for the sharding argument. Expected None or a Sharding, got {self.sharding} of type "
                f"{type(self.sharding)}."
            )
        if isinstance(self.layout, Layout) and self.sharding is None:
            raise ValueError(
                f"Sharding has to be concrete when layout is of type {Layout}: {self.layout} says nothing about devices. Pass a "
                "NamedSharding or a SingleDeviceSharding, too."
            )

    def resolved(self, what: str) -> Sharding | None:
        """The sharding; the layout must be row-major.

        Raises:
            NotImplementedError: the layout is not row-major; `what` names the argument.
        """
        if isinstance(self.layout, Layout) and not self.layout.is_row_major:
            raise NotImplementedError(
                f"{what}: arrays lie in row-major order, and {self.layout} is another one. Leave the layout out; for another order in "
                "memory transpose the array."
            )
        return self.sharding

    def check_rank(self, shape: tuple[int, ...], what: str) -> None:
        """ValueError if the layout's rank is not that of `shape`."""
        if isinstance(self.layout, Layout) and len(self.layout.major_to_minor) != len(shape):
            raise ValueError(
                f"{what} is incompatible with its layout annotation {self.layout}: it orders {len(self.layout.major_to_minor)} dims, and "
                f"the shape {shape} has {len(shape)}."
            )


def row_major(ndim: int, sharding: Sharding | None) -> Format:
    """The format of an array of this rank; without a sharding, of an unused argument."""
    return Format() if sharding is None else Format(Layout(tuple(range(ndim)), ()), sharding)
