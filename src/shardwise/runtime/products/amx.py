"""Products of 8-bit integers and of bfloat16 in the processor's tile registers (Intel AMX), with 32-bit sums.

Comes in: matrices ``a (m, k)`` and ``b (k, n)`` whose sizes are multiples of a tile's. Goes out: a function of them and a result of
int32 or float32. Tiles add up exactly for integers, and in float32 for bfloat16, where subnormal numbers count as zero.

The right operand is first laid out as tiles want it: 4 bytes of a column, one below the other, side by side. Then threads take
blocks of the result, and compute 32 x 32 of it at a time: four tiles of sums from two of each operand.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
from collections.abc import Callable

import numpy as np

from shardwise.base.shapes import Ndarray
from shardwise.runtime import costs
from shardwise.runtime.address import address
from shardwise.runtime.loops import Call, Function, Kernel
from shardwise.runtime.machine import Lane, llvm
from shardwise.runtime.memory import pool
from shardwise.runtime.products.blas import processor_flags

_SIDE = 32  # rows and columns computed at a time
_DEEP = 64  # bytes of a tile's row
_TILE = 16 * _DEEP  # bytes of a tile
_ROWS, _COLUMNS = 256, 64  # of the result, in one task

_GRANT, _TILE_DATA, _ARCH_PRCTL = 0x1023, 18, 158

# The instruction for element types of a and b, and how many elements are 4 bytes.
_MULTIPLY = {
    ("bfloat16", "bfloat16"): ("tdpbf16ps", 2),
    ("int8", "int8"): ("tdpbssd", 4),
    ("int8", "uint8"): ("tdpbsud", 4),
    ("uint8", "int8"): ("tdpbusd", 4),
    ("uint8", "uint8"): ("tdpbuud", 4),
}


_MULTIPLY_JOB = ("tasks", "across", "m", "n", "deep", "a_step", "out_step")  # tasks in a row; depth in tiles; bytes
_PACK_JOB = ("deep", "across", "step")  # tiles down and across; bytes from row to row


@functools.cache
def has_amx() -> bool:
    """Whether the processor has such registers, and the system lets this process use them."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or not llvm.available():
        return False
    if not {"amx_tile", "amx_bf16", "amx_int8", "avx512f"} <= processor_flags():
        return False
    try:
        return ctypes.CDLL(None).syscall(_ARCH_PRCTL, _GRANT, _TILE_DATA) == 0
    except (OSError, AttributeError):
        return False


def product(a: Ndarray, b: Ndarray, out: Ndarray, threads: int) -> Callable[[Ndarray, Ndarray, Ndarray], object] | None:
    """How to compute ``out[...] = a @ b`` for matrices of these shapes, strides and types; None where tiles do not serve."""
    found = _MULTIPLY.get((a.dtype.name, b.dtype.name))
    if found is None or a.ndim != 2 or b.ndim != 2 or out.dtype != (np.float32 if found[1] == 2 else np.int32):
        return None
    (m, k), n = a.shape, b.shape[1]
    size = a.itemsize
    if m % _SIDE or n % _SIDE or k * size % _DEEP or m * n * k < costs.TILES_FROM or not has_amx():
        return None
    if out.strides[1] != 4:
        return None
    turned = a.strides[1] != size
    straight = b.strides[1] == size
    if not straight and (b.strides[0] != size or b.strides[1] % 4):
        return None
    deep, across = k * size // _DEEP, n // 16
    steps = (k * size if turned else a.strides[0], out.strides[0])
    counts = -(-m // _ROWS), -(-n // _COLUMNS)
    multiply = Call(_multiplier(found[0]), (counts[0] * counts[1], counts[1], m, n, deep, *steps), 3, threads)
    pack = Call(_packer(found[1]), (deep, across, b.strides[0]), 2, threads)
    rouse = m * n * k >= costs.TILES_ROUSE

    def run(a: Ndarray, b: Ndarray, out: Ndarray) -> None:
        if turned:
            a = np.ascontiguousarray(a.view(f"u{size}"))
        tiles = pool.empty((across, deep, 16, 16), np.uint32)
        if straight:
            pack(address(b), address(tiles), rouse=rouse)
        else:  # 4 bytes of a column lie side by side as it is
            words = np.ndarray((n, k * size // 4), np.uint32, b, strides=(b.strides[1], 4)).reshape(
                across, 16, deep, 16
            )
            np.copyto(tiles, words.transpose(0, 2, 3, 1))
        multiply(address(a), address(tiles), address(out), rouse=rouse)

    return run


@functools.cache
def _multiplier(instruction: str) -> Kernel:
    """The kernel that multiplies; its job: `_MULTIPLY_JOB`, its pointers: the left operand, the right one as tiles, the result."""
    w = Function(16, _MULTIPLY_JOB, ("a", "b", "out"))
    # Tiles 0 to 3 are sums, 4 and 5 of the left operand, 6 and 7 of the right one, each of 16 rows of 64 bytes.
    # Their shapes: palette 1; then bytes per row from byte 16 on, rows from byte 48 on.
    shape = [1, *[0] * 15, *[64, 0] * 8, *[0, 0] * 8, *[16] * 8, *[0] * 8]
    shape_text = ", ".join(f"i8 {byte}" for byte in shape)
    w.declare("shape", f"@shape = private constant [64 x i8] [{shape_text}], align 64")
    panel = w.integer("mul", "%deep", _TILE)

    def tile(name: str, *arguments: str) -> None:
        name, types = f"llvm.x86.{name}", ", ".join(a.split()[0] for a in arguments)
        w.line(f"call void @{w.declare(name, f'declare void @{name}({types})')}({', '.join(arguments)})")

    def task(number: str) -> None:
        row, column = w.split(number, ["%tasks", "%across"])
        top, left = w.integer("mul", row, _ROWS), w.integer("mul", column, _COLUMNS)
        bottom = w.least(w.integer("add", top, _ROWS), "%m")
        right = w.least(w.integer("add", left, _COLUMNS), "%n")

        def columns(j: str, _: list[str]) -> None:
            b = w.advance_address("%b", w.integer("udiv", j, 16), panel)

            def rows(i: str, _: list[str]) -> None:
                a = w.advance_address("%a", i, "%a_step")
                for sums in range(4):
                    tile("tilezero", f"i8 {sums}")

                def deep(k: str, _: list[str]) -> None:
                    # All addresses first: an instruction between the tiles' loads costs a tenth of the time.
                    a0, b0 = w.advance_address(a, k, _DEEP), w.advance_address(b, k, _TILE)
                    a1, b1 = w.advance_address(a0, 16, "%a_step"), w.advance_address(b0, panel, 1)
                    for to, at in ((4, a0), (5, a1)):
                        tile("tileloadd64", f"i8 {to}", f"ptr {at}", "i64 %a_step")
                    for to, at in ((6, b0), (7, b1)):
                        tile("tileloadd64", f"i8 {to}", f"ptr {at}", f"i64 {_DEEP}")
                    for sums in range(4):
                        tile(instruction, f"i8 {sums}", f"i8 {4 + sums // 2}", f"i8 {6 + sums % 2}")

                w.loop(0, "%deep", deep)
                out = w.advance_address(w.advance_address("%out", i, "%out_step"), j, 4)
                lower = w.advance_address(out, 16, "%out_step")
                for sums, at in enumerate(
                    (out, w.advance_address(out, _DEEP, 1), lower, w.advance_address(lower, _DEEP, 1))
                ):
                    tile("tilestored64", f"i8 {sums}", f"ptr {at}", "i64 %out_step")

            w.loop(top, bottom, rows, step=_SIDE)

        w.loop(left, right, columns, step=_SIDE)

    tile("ldtilecfg", "ptr @shape")
    w.units("%tasks", task)
    tile("tilerelease")
    return w.compile_function()


@functools.cache
def _packer(each: int) -> Kernel:
    """The kernel that lays out the right operand as tiles of 16 columns of 16 times `each` rows; its job: `_PACK_JOB`.

    Two tiles that lie side by side are laid out at once: then cache lines are read as wholes.
    """
    w = Function(32, _PACK_JOB, ("b", "tiles"))
    dtype = f"uint{32 // each}"
    beside = w.integer("mul", "%deep", _TILE)

    def tiles(down: str) -> None:
        top = w.integer("mul", down, 16 * each)

        def pair(c: str, _: list[str]) -> None:
            begin = w.element("%b", w.integer("mul", c, 16), dtype)
            target = w.advance_address("%tiles", w.integer("add", w.integer("mul", c, "%deep"), down), _TILE)

            def line(i: str, _: list[str]) -> None:
                row = w.integer("add", w.integer("mul", i, each), top)
                words: Lane | None = None
                for e in range(each):
                    raw = w.load(w.advance_address(begin, w.integer("add", row, e), "%step"), dtype)
                    word = w.binary("shl", w.convert(raw, "uint32"), w.constant(e * 32 // each, "uint32"))
                    words = word if words is None else w.binary("or", words, word)
                assert words is not None
                at = w.advance_address(target, i, _DEEP)
                for half, place in enumerate((at, w.advance_address(at, beside, 1))):
                    part = w.shuffle_lanes(words, 32, range(16 * half, 16 * half + 16))
                    w.store(part, place)
                w.at(32)

            w.loop(0, 16, line)

        w.loop(0, "%across", pair, step=2)

    w.units("%deep", tiles)
    return w.compile_function()
