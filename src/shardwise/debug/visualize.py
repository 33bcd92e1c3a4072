"""Drawing a sharding as a table of its blocks.

In: a shape of rank 1 or 2 and anything with `devices_indices_map(shape)`. Out: a table on standard output, one cell
per distinct block, naming the devices that hold it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from shardwise.base.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from rich.padding import Padding

ColorMap: TypeAlias = Callable[[float], tuple[float, float, float, float]]

_BASE_HEIGHT = 10  # lines for the whole array at scale 1
_LINE_ASPECT = 2.5  # a character is this many times as high as wide


class HasIndices(Protocol):
    """The one thing that a sharding must offer to be drawn."""

    def devices_indices_map(self, global_shape: tuple[int, ...]) -> Any:
        """Map from device to its index: for each dim a slice or an int."""


@dataclass
class _Block:
    """A distinct block: the fractions of the array's height and width that it covers, and its devices."""

    height: float
    width: float
    device_ids: list[int] = field(default_factory=list[int])


def visualize_sharding(
    shape: Sequence[int],
    sharding: HasIndices,
    *,
    use_color: bool = True,
    scale: float = 1.0,
    min_width: int = 9,
    max_width: int = 80,
    color_map: ColorMap | None = None,
) -> None:
    """Print how `sharding` lays out an array of `shape` over devices; needs the package `rich`.

    Args:
        shape: the array's shape, of rank 1 or 2.
        sharding: any object with `devices_indices_map`.
        use_color: color the cells instead of framing them, if the output is a terminal with colors and there
            is a `color_map` or matplotlib to take one from.
        scale: factor on the size of the table, which is 10 lines high.
        min_width: least width of a cell, in characters.
        max_width: greatest width of the table, in characters.
        color_map: from a number in [0, 1] to red, green, blue and alpha in [0, 1].

    Raises:
        ValueError: for other ranks, empty arrays, shardings that are no grid of blocks, and if `rich` is missing.

    >>> jax.debug.visualize_sharding((4,), jax.NamedSharding(jax.make_mesh((2,), ("x",)), jax.P("x")), use_color=False)
    ┌───────┬───────┐
    │ CPU 0 │ CPU 1 │
    └───────┴───────┘
    """
    shape = tuple(shape)
    check_drawable(shape)
    try:
        from rich.box import SQUARE
        from rich.console import Console
        from rich.table import Table
    except ImportError as err:
        raise ValueError("`visualize_sharding` needs the package `rich`: pip install rich") from err

    console = Console(width=max_width)
    colors: Iterator[str] | None = None
    platform, grid = _grid_of_blocks(shape, sharding)
    if use_color and console.color_system is not None:
        color_map = color_map or _matplotlib_color_map()
        colors = _cell_colors(color_map, len(grid) * len(grid[0])) if color_map else None

    base_height = int(_BASE_HEIGHT * scale)
    base_width = int(base_height * (shape[1] if len(shape) == 2 else 1) / shape[0])
    has_frame = colors is None
    table = Table(
        show_header=False,
        show_lines=has_frame,
        box=SQUARE if has_frame else None,
        highlight=has_frame,
        padding=0,
        pad_edge=False,
    )
    for blocks in grid:
        cells: list[Padding] = []
        for block in blocks:
            height = int(block.height * base_height) if len(shape) == 2 else 1
            width = min(max(int(block.width * base_width * _LINE_ASPECT), min_width), max_width)
            text = f"{platform} {','.join(map(str, sorted(block.device_ids)))}"
            cells.append(_cell(text, height, width, next(colors) if colors else None))
        table.add_row(*cells)
    console.print(table, end="\n\n")


def check_drawable(shape: tuple[int, ...]) -> None:
    """ValueError for shapes that are not drawn: ranks other than 1 and 2, and empty arrays."""
    if len(shape) not in (1, 2):
        raise ValueError(
            f"`visualize_sharding` draws arrays of 1 and 2 dimensions, got shape {shape}. "
            "Show a slice or a reshaped view of the array."
        )
    if 0 in shape:
        raise ValueError(f"`visualize_sharding` has nothing to draw: an array of shape {shape} is empty.")


def _grid_of_blocks(shape: tuple[int, ...], sharding: HasIndices) -> tuple[str, list[list[_Block]]]:
    """The platform's name, and the distinct blocks in rows and columns (one row for rank 1)."""
    blocks: dict[tuple[int, int], _Block] = {}
    platform = ""
    for device, index in sharding.devices_indices_map(shape).items():
        platform = platform or device.platform.upper()
        spans = [_span(size, part) for size, part in zip(shape, index, strict=True)]
        if len(spans) == 1:
            spans.insert(0, (0, 1.0))
        (row, height), (column, width) = spans
        blocks.setdefault((row, column), _Block(height, width)).device_ids.append(device.id)
    rows = sorted({row for row, _ in blocks})
    columns = sorted({column for _, column in blocks})
    if len(blocks) != len(rows) * len(columns):
        raise ValueError(f"`visualize_sharding` draws grids of blocks only, and {sharding!r} makes no grid of {shape}.")
    return platform, [[blocks[row, column] for column in columns] for row in rows]


def _span(size: int, part: slice | int) -> tuple[int, float]:
    """The start of a part of a dim of `size`, and the fraction of the dim that it is."""
    if not isinstance(part, slice):
        return int(part), 1 / size
    start, stop, _ = part.indices(size)
    return start, (stop - start) / size


def _cell(text: str, height: int, width: int, color: str | None) -> Padding:
    """`text` in the middle of a cell; the frame or, without one, the color takes a character on each side."""
    from rich.align import Align
    from rich.padding import Padding
    from rich.style import Style

    left, odd_column = divmod(width - len(text) - 2, 2)
    top, odd_line = divmod(height - 2, 2)
    grow = 0 if color is None else 1
    above, right, below, before = (max(n + grow, 0) for n in (top, left + odd_column, top + odd_line, left))
    style = Style(color=None if color is None else _text_color(color), bgcolor=color)
    return Padding(Align(text, "center", vertical="middle"), (above, right, below, before), style=style)


def _matplotlib_color_map() -> ColorMap | None:
    try:
        matplotlib = importlib.import_module("matplotlib")
    except ImportError:
        return None
    return matplotlib.colormaps["tab20b"]


def _cell_colors(color_map: ColorMap, count: int) -> Iterator[str]:
    """`count` colors from all over the map; neighbours come from its opposite halves."""
    stride = count // 2 + (1 if count % 2 == 0 else 0)
    for i in range(count):
        position = i * stride % count
        red, green, blue = color_map(position / (count - 1) if count > 1 else 0.0)[:3]
        yield f"#{int(red * 255):02X}{int(green * 255):02X}{int(blue * 255):02X}"


def _text_color(background: str) -> str:
    """Black on bright colors, else white."""
    red, green, blue = (int(background[i : i + 2], 16) for i in (1, 3, 5))
    return "#000000" if 0.299 * red + 0.587 * green + 0.114 * blue > 186 else "#ffffff"
