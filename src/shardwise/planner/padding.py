"""Padding: the bytes of a value in a device's memory, where that stores tiles rather than elements."""

from __future__ import annotations

from shardwise.base.caches import recent
from shardwise.ir import ShapedArray
from shardwise.planner.target import Target


def stored_bytes(aval: ShapedArray, target: Target, given: bool = False) -> int:
    """The bytes of a value.

    A tiled memory pads the last dim to the columns of a tile and the dim before it to its rows, or to a power of two if it has fewer.
    Temporaries get the order of dims that pads least; `given` are those whose order the caller knows, arguments and results.
    """
    if target.tile is None or not aval.shape or not aval.size:
        return aval.nbytes
    return _tiled_bytes(aval, *target.tile, given)


@recent()
def _tiled_bytes(aval: ShapedArray, rows: int, columns: int, given: bool) -> int:
    if given:
        return _padded_elements(aval.shape, len(aval.shape) - 1, len(aval.shape) - 2, rows, columns) * aval.itemsize
    dims = range(len(aval.shape))
    if len(aval.shape) == 1:
        return _padded_elements(aval.shape, 0, -1, rows, columns) * aval.itemsize
    best = min(_padded_elements(aval.shape, a, b, rows, columns) for a in dims for b in dims if a != b)
    return best * aval.itemsize


def _padded_elements(shape: tuple[int, ...], minor: int, second: int, rows: int, columns: int) -> int:
    """The elements of the tiles that hold a value whose dims `minor` and `second` run fastest."""
    size = 1
    for d, n in enumerate(shape):
        if d == minor:
            n = -(-n // columns) * columns
        elif d == second:
            n = -(-n // rows) * rows if n >= rows else 1 << (n - 1).bit_length()
        size *= n
    return size
