"""What kernels of this machine reach at several sizes: bytes of memory and caches, and places of gathers and scatters.

In: a timer of calls. Out: figures by name; `rates` and `place_costs` read them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from shardwise.engine.device_put import device_put
from shardwise.ops.elementwise import binary, unary
from shardwise.ops.indexing.gather import gather
from shardwise.ops.indexing.scatter import scatter_with
from shardwise.ops.indexing.window_numbers import GatherDimensionNumbers, ScatterDimensionNumbers
from shardwise.ops.products.contract import dot_general
from shardwise.ops.reductions.reduce import reduce_sum
from shardwise.ops.shapes.broadcast import broadcast
from shardwise.planner.curves import PlaceCosts, Point, Rates
from shardwise.planner.machines.functions import Least

_SETS = (1 << 21, 3 << 21, 3 << 22, 3 << 23, 3 << 24, 3 << 26)  # bytes that a kernel touches
_READ, _DOWN, _PACKED = _SETS[::2], (1 << 21, 1 << 23, 1 << 26), (1 << 22, 1 << 25)
_COLUMNS = 2048  # of what is summed down columns; the rows of a right operand
_FEW = 8  # rows of a product
_WIDTHS = (4, 32, 128, 1024)  # bytes of a place
_TABLES = (1 << 14, 1 << 17, 1 << 20, 1 << 22, 1 << 24, 1 << 26)  # bytes in which places are
_UPDATED = 1 << 22  # at most: a table is copied before it is updated
_PLACES, _MOVED = 1 << 17, 1 << 21  # at most so many places, of so many bytes together
_KINDS = ("copied", "read", "written", "down", "packed")
_TAKEN, _PUT = "taken", "put"
_ROWS = GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))
_SCATTERED = ScatterDimensionNumbers((1,), (0,), (0,))


def measured_sizes(least: Least, call: float, begun: float, product_rate: float) -> dict[str, float]:
    """Figures of all sizes: rates and seconds.

    `call` are the seconds of any call, `begun` those of a gather of few places, `product_rate` the FLOP/s of products.
    """
    figures = {f"copied {n}": _copy_rate(least, n, call) for n in _SETS}
    figures |= {f"read {n}": _read_rate(least, n, call) for n in _READ}
    figures |= {f"written {n}": _write_rate(least, n, call) for n in _READ}
    figures |= {f"down {n}": _sum_rate(least, n, call) for n in _DOWN}
    figures |= {f"packed {n}": _packing_rate(least, n, call, product_rate) for n in _PACKED}
    for table in _TABLES:
        for width in _WIDTHS:
            if table >= width:
                figures |= _place_seconds(least, table, width, begun)
    return figures


def is_of_places(figure: str) -> bool:
    """Whether a figure is the seconds of a place; those of other sizes are rates."""
    return figure.split()[0] in (_TAKEN, _PUT)


def rates(figures: Mapping[str, float]) -> Rates:
    """The curves of bytes."""
    return Rates(*(_curve(figures, f"{kind} ") for kind in _KINDS))


def place_costs(figures: Mapping[str, float], *, updates: bool) -> PlaceCosts:
    """The curves of places."""
    kind = _PUT if updates else _TAKEN
    return PlaceCosts(_WIDTHS, tuple(_curve(figures, f"{kind} {width} ") for width in _WIDTHS))


def _curve(figures: Mapping[str, float], prefix: str) -> tuple[Point, ...]:
    value_by_size = {
        int(name.removeprefix(prefix)): value for name, value in figures.items() if name.startswith(prefix)
    }
    return tuple(sorted((float(size), value) for size, value in value_by_size.items()))


def _numbers(nbytes: int) -> Any:
    return device_put(np.linspace(0.5, 1.5, nbytes // 4, dtype=np.float32))


def _rate(nbytes: float, seconds: float, call: float) -> float:
    return nbytes / max(seconds - call, seconds / 2)


def _copy_rate(least: Least, nbytes: int, call: float) -> float:
    x, y = _numbers(nbytes // 3), _numbers(nbytes // 3)
    return _rate(nbytes, least(lambda: binary.add(x, y)), call)


def _read_rate(least: Least, nbytes: int, call: float) -> float:
    x = _numbers(nbytes)
    return _rate(nbytes, least(lambda: reduce_sum(x, (0,))), call)


def _write_rate(least: Least, nbytes: int, call: float) -> float:
    x = broadcast(device_put(np.float32(1)), (nbytes // 4,))  # a view of one element: what computes with it only writes
    return _rate(nbytes, least(lambda: unary.neg(x)), call)


def _sum_rate(least: Least, nbytes: int, call: float) -> float:
    x = device_put(np.ones((nbytes // 4 // _COLUMNS, _COLUMNS), np.float32))
    return _rate(nbytes, least(lambda: reduce_sum(x, (0,))), call)


def _packing_rate(least: Least, nbytes: int, call: float, product_rate: float) -> float:
    wide = device_put(np.ones((_COLUMNS, nbytes // 4 // _COLUMNS), np.float32))
    few = device_put(np.ones((_FEW, _COLUMNS), np.float32))
    took = least(lambda: dot_general(few, wide, (((1,), (0,)), ((), ()))))
    return _rate(nbytes, took, call + 2 * _FEW * wide.size / product_rate)


def _place_seconds(least: Least, table_bytes: int, width: int, begun: float) -> dict[str, float]:
    """Seconds of a place in a table: of a gather, and of an addition without the copy of the table that it begins with."""
    rows, columns = table_bytes // width, width // 4
    count = min(_PLACES, _MOVED // width)
    table = device_put(np.ones((rows, columns), np.float32))
    at = device_put(np.random.default_rng(0).integers(0, rows, (count, 1), np.int32))
    took = least(lambda: gather(table, at, _ROWS, (1, columns)))
    figures = {f"{_TAKEN} {width} {table_bytes}": max(took - begun, 0.0) / count}
    if table_bytes <= _UPDATED:
        new = device_put(np.ones((count, columns), np.float32))
        took = least(lambda: scatter_with("add", table, at, new, _SCATTERED))
        first, one = at[:1], new[:1]
        copy_seconds = least(lambda: scatter_with("add", table, first, one, _SCATTERED))
        figures[f"{_PUT} {width} {table_bytes}"] = max(took - copy_seconds, 0.0) / count
    return figures
