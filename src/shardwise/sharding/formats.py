"""`Layout` and `Format`: the order of an array's dims in memory, and that order together with a sharding.

Arrays lie in row-major order unless `device_put`, `make_array_*`, the out_shardings of `jit` or `with_layout_constraint` ask for another
one.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Sequence
from typing import Any, ClassVar, cast

from shardwise.base import config
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.sharding.sharding import Sharding


class _Auto:
    """The order that the compiler chooses, which is row-major."""

    def __repr__(self) -> str:
        return "AUTO"


@dataclass(frozen=True, init=False)
class Layout:
    """Dims from the slowest to the fastest varying. Arrays are dense: there are no tiles and no packed elements.

    JAX 0.5 called this DeviceLocalLayout, and a Format a Layout: under the dialect 0.5 a call with another layout, AUTO or None, or
    with the keywords of those days, makes a Format.

    Raises:
        TypeError: `major_to_minor` is no sequence of ints.
        ValueError: it does not name each dim once.
    """

    AUTO: ClassVar[_Auto] = _Auto()

    major_to_minor: tuple[int, ...]
    tiling: tuple[tuple[int, ...], ...] | None = None
    sub_byte_element_size_in_bits: int = 0

    def __new__(cls, *args: Any, **options: Any) -> Any:
        """The layout, or the Format that these arguments meant in JAX 0.5."""
        of_old = options.keys() & {"device_local_layout", "sharding"} or (
            isinstance(args[0], (Layout, _Auto, type(None))) if args else "major_to_minor" not in options
        )
        if not of_old or not config.dialect.arrays.layout_makes_format:
            return object.__new__(cls)
        if "device_local_layout" in options:
            options["layout"] = options.pop("device_local_layout")
        return Format(*args, **options)

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


# Of the constructor alone: `inspect` would show that of `__new__`, which takes the arguments of both eras.
_parameters = list(inspect.signature(Layout.__init__).parameters.values())[1:]
setattr(Layout, "__signature__", inspect.Signature(_parameters))  # noqa: B010  # no attribute that type checkers know


@dataclass(frozen=True)
class Format:
    """The layout of an array in memory and over devices; both None for an unused argument.

    Raises:
        TypeError: `layout` is no Layout, Layout.AUTO or None, or `sharding` no Sharding or None.
        ValueError: a layout without a sharding.
    """

    layout: Layout | _Auto | None = None
    sharding: Sharding | None = None

    @property
    def device_local_layout(self) -> Layout | _Auto | None:
        """The layout, as JAX 0.5 called it."""
        return self.layout

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

    def resolve_sharding(self, what: str) -> Sharding | None:
        """The sharding.

        Raises:
            NotImplementedError: the layout has tiles; `what` names the argument.
        """
        if isinstance(self.layout, Layout) and self.layout.tiling:
            raise NotImplementedError(f"{what}: arrays have no tiles, but {self.layout} has. Leave `tiling` out.")
        return self.sharding

    @property
    def order(self) -> tuple[int, ...] | None:
        """The order of dims in memory; None for AUTO, and where nothing is said."""
        return self.layout.major_to_minor if isinstance(self.layout, Layout) else None


def format_of(ndim: int, sharding: Sharding | None, order: tuple[int, ...] | None = None) -> Format:
    """The format of an array of this rank, in row-major order by default; without a sharding, of an unused argument."""
    if sharding is None:
        return Format()
    return Format(Layout(tuple(range(ndim)) if order is None else order, ()), sharding)
