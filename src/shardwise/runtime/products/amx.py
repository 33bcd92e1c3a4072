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
from typing import Any

import numpy as np

from shardwise.runtime.machine import llvm
from shardwise.runtime.machine.standby import standby
from shardwise.runtime.memory import pool
from shardwise.runtime.products.blas import processor_flags

NDArray = np.ndarray[Any, Any]

_SIDE = 32  # rows and columns computed at a time
_DEEP = 64  # bytes of a tile's row
_ROWS, _COLUMNS = 256, 64  # of the result, in one task
_FEWEST = 1 << 21  # multiplications from which this pays
_ROUSED = 1 << 26

_GRANT, _TILE_DATA, _ARCH_PRCTL = 0x1023, 18, 158

# The instruction for element types of a and b, and how many elements are 4 bytes.
_MULTIPLY = {
    ("bfloat16", "bfloat16"): ("tdpbf16ps", 2),
    ("int8", "int8"): ("tdpbssd", 4),
    ("int8", "uint8"): ("tdpbsud", 4),
    ("uint8", "int8"): ("tdpbusd", 4),
    ("uint8", "uint8"): ("tdpbuud", 4),
}


@functools.cache
def granted() -> bool:
    """Whether the processor has such registers, and the system lets this process use them."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or not llvm.available():
        return False
    if not {"amx_tile", "amx_bf16", "amx_int8", "avx512f"} <= processor_flags():
        return False
    try:
        return ctypes.CDLL(None).syscall(_ARCH_PRCTL, _GRANT, _TILE_DATA) == 0
    except (OSError, AttributeError):
        return False


def product(a: NDArray, b: NDArray, out: NDArray, threads: int) -> Callable[[NDArray, NDArray, NDArray], object] | None:
    """How to compute ``out[...] = a @ b`` for matrices of these shapes, strides and types; None where tiles do not serve."""
    found = _MULTIPLY.get((a.dtype.name, b.dtype.name))
    if found is None or a.ndim != 2 or b.ndim != 2 or out.dtype != (np.float32 if found[1] == 2 else np.int32):
        return None
    (m, k), n = a.shape, b.shape[1]
    size = a.itemsize
    if m % _SIDE or n % _SIDE or k * size % _DEEP or m * n * k < _FEWEST or not granted():
        return None
    if out.strides[1] != 4:
        return None
    multiply, lay = _functions(*found)
    turned = a.strides[1] != size
    straight = b.strides[1] == size
    if not straight and (b.strides[0] != size or b.strides[1] % 4):
        return None
    deep, across = k * size // _DEEP, n // 16
    steps = (k * size if turned else a.strides[0], out.strides[0])
    counts = -(-m // _ROWS), -(-n // _COLUMNS)
    job = np.array([counts[0] * counts[1], counts[1], m, n, deep, *steps], np.int64)
    pack = np.array([deep * across, across, b.strides[0]], np.int64)
    rouse = m * n * k >= _ROUSED

    def run(a: NDArray, b: NDArray, out: NDArray) -> None:
        if turned:
            a = np.ascontiguousarray(a.view(f"u{size}"))
        tiles = pool.empty((across, deep, 16, 16), np.uint32)
        if straight:
            _call(lay, pack, (b, tiles), threads, rouse)
        else:  # 4 bytes of a column lie side by side as it is
            words = np.ndarray((n, k * size // 4), np.uint32, b, strides=(b.strides[1], 4)).reshape(
                across, 16, deep, 16
            )
            np.copyto(tiles, words.transpose(0, 2, 3, 1))
        _call(multiply, job, (a, tiles, out), threads, rouse)

    return run


def _call(kernel: Any, job: NDArray, arrays: tuple[NDArray, ...], threads: int, rouse: bool) -> None:
    pointers = (ctypes.c_void_p * len(arrays))(*[x.__array_interface__["data"][0] for x in arrays])
    counter = ctypes.c_int64(0)
    standby.run(kernel, job.ctypes.data, ctypes.addressof(pointers), ctypes.addressof(counter), threads, rouse)


@functools.cache
def _functions(instruction: str, each: int) -> tuple[Any, Any]:
    """The kernels that multiply, and that lay out the right operand."""
    code = llvm.compile_function("multiply", _multiply_text(instruction) + _lay_text(each))
    kernel = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 3)
    return code.called_as(kernel), code.called_as(kernel, "lay")


def _fields(count: int, pointers: int) -> str:
    lines = [f"%f{i} = getelementptr i64, ptr %job, i64 {i}\n  %j{i} = load i64, ptr %f{i}" for i in range(count)]
    lines += [
        f"%g{i} = getelementptr ptr, ptr %pointers, i64 {i}\n  %p{i} = load ptr, ptr %g{i}" for i in range(pointers)
    ]
    return "\n  ".join(lines)


def _multiply_text(instruction: str) -> str:
    """The job: tasks, tasks per row of them, rows, columns, depth in tiles, bytes from row to row of a and of the result."""
    tiles = range(8)
    # Palette 1; then bytes per row from byte 16 on, rows from byte 48 on.
    shape = [
        1,
        *[0] * 15,
        *[b for t in range(16) for b in ((64, 0) if t in tiles else (0, 0))],
        *[16 if t in tiles else 0 for t in range(16)],
    ]
    bytes_ = ", ".join(f"i8 {b}" for b in shape)
    zero = "\n  ".join(f"call void @llvm.x86.tilezero(i8 {t})" for t in range(4))
    load = "\n  ".join(
        f"call void @llvm.x86.tileloadd64(i8 {t}, ptr {at}, i64 {step})"
        for t, at, step in ((4, "%a0", "%j5"), (5, "%a1", "%j5"), (6, "%b0", "64"), (7, "%b1", "64"))
    )
    work = "\n  ".join(
        f"call void @llvm.x86.{instruction}(i8 {2 * i + j}, i8 {4 + i}, i8 {6 + j})" for i in (0, 1) for j in (0, 1)
    )
    store = "\n  ".join(f"call void @llvm.x86.tilestored64(i8 {t}, ptr %c{t}, i64 %j6)" for t in range(4))
    return f"""
@shape = private constant [64 x i8] [{bytes_}], align 64
declare void @llvm.x86.ldtilecfg(ptr)
declare void @llvm.x86.tilerelease()
declare void @llvm.x86.tilezero(i8)
declare void @llvm.x86.tileloadd64(i8, ptr, i64)
declare void @llvm.x86.tilestored64(i8, ptr, i64)
declare void @llvm.x86.{instruction}(i8, i8, i8)

define void @multiply(ptr %job, ptr %pointers, ptr %counter) {{
  {_fields(7, 3)}
  call void @llvm.x86.ldtilecfg(ptr @shape)
  %panel = shl i64 %j4, 10
  %low = mul i64 %j5, 16
  %below = mul i64 %j6, 16
  br label %take
take:
  %task = atomicrmw add ptr %counter, i64 1 monotonic
  %more = icmp ult i64 %task, %j0
  br i1 %more, label %begin, label %exit
begin:
  %row = udiv i64 %task, %j1
  %column = urem i64 %task, %j1
  %top = mul i64 %row, {_ROWS}
  %left = mul i64 %column, {_COLUMNS}
  %bottom0 = add i64 %top, {_ROWS}
  %right0 = add i64 %left, {_COLUMNS}
  %bottom1 = icmp ult i64 %bottom0, %j2
  %bottom = select i1 %bottom1, i64 %bottom0, i64 %j2
  %right1 = icmp ult i64 %right0, %j3
  %right = select i1 %right1, i64 %right0, i64 %j3
  br label %columns
columns:
  %j = phi i64 [ %left, %begin ], [ %j_next, %columns_end ]
  %first = lshr i64 %j, 4
  %b_off = mul i64 %first, %panel
  %b_start = getelementptr i8, ptr %p1, i64 %b_off
  br label %rows
rows:
  %i = phi i64 [ %top, %columns ], [ %i_next, %rows_end ]
  %a_off = mul i64 %i, %j5
  %a_start = getelementptr i8, ptr %p0, i64 %a_off
  {zero}
  br label %deep
deep:
  %k = phi i64 [ 0, %rows ], [ %k_next, %deep ]
  %a_k = shl i64 %k, 6
  %a0 = getelementptr i8, ptr %a_start, i64 %a_k
  %a1 = getelementptr i8, ptr %a0, i64 %low
  %b_k = shl i64 %k, 10
  %b0 = getelementptr i8, ptr %b_start, i64 %b_k
  %b1 = getelementptr i8, ptr %b0, i64 %panel
  {load}
  {work}
  %k_next = add i64 %k, 1
  %deeper = icmp ult i64 %k_next, %j4
  br i1 %deeper, label %deep, label %rows_end
rows_end:
  %c_row = mul i64 %i, %j6
  %c_column = shl i64 %j, 2
  %c_off = add i64 %c_row, %c_column
  %c0 = getelementptr i8, ptr %p2, i64 %c_off
  %c1 = getelementptr i8, ptr %c0, i64 64
  %c2 = getelementptr i8, ptr %c0, i64 %below
  %c3 = getelementptr i8, ptr %c2, i64 64
  {store}
  %i_next = add i64 %i, {_SIDE}
  %rows_left = icmp ult i64 %i_next, %bottom
  br i1 %rows_left, label %rows, label %columns_end
columns_end:
  %j_next = add i64 %j, {_SIDE}
  %columns_left = icmp ult i64 %j_next, %right
  br i1 %columns_left, label %columns, label %take
exit:
  call void @llvm.x86.tilerelease()
  ret void
}}
"""


def _lay_text(each: int) -> str:
    """The job: tiles, tiles across, bytes from row to row of the operand. A tile is 16 columns of 16 times `each` rows.

    Two tiles that lie side by side are laid out at once: then cache lines are read as wholes.
    """
    bits = 32 // each
    lines = []
    for e in range(each):
        lines.append(
            f"%r{e} = add i64 %row, {e}\n  %o{e} = mul i64 %r{e}, %j2\n  %at{e} = getelementptr i8, ptr %begin, i64 %o{e}"
        )
        lines.append(
            f"%raw{e} = load <32 x i{bits}>, ptr %at{e}, align 1\n  %word{e} = zext <32 x i{bits}> %raw{e} to <32 x i32>"
        )
        lines.append(f"%up{e} = shl <32 x i32> %word{e}, splat (i32 {e * bits})")
    total = "%up0"
    for e in range(1, each):
        lines.append(f"%sum{e} = or <32 x i32> {total}, %up{e}")
        total = f"%sum{e}"
    for half in (0, 1):
        numbers = ", ".join(f"i32 {16 * half + i}" for i in range(16))
        lines.append(f"%half{half} = shufflevector <32 x i32> {total}, <32 x i32> poison, <16 x i32> <{numbers}>")
    body = "\n  ".join(lines)
    return f"""
define void @lay(ptr %job, ptr %pointers, ptr %counter) {{
  {_fields(3, 2)}
  %deep = udiv i64 %j0, %j1
  %beside = shl i64 %deep, 10
  br label %take
take:
  %task = atomicrmw add ptr %counter, i64 1 monotonic
  %more = icmp ult i64 %task, %deep
  br i1 %more, label %strip, label %exit
strip:
  %top = mul i64 %task, {16 * each}
  br label %tile
tile:
  %c = phi i64 [ 0, %strip ], [ %c_next, %tile_end ]
  %across = mul i64 %c, {16 * bits // 8}
  %begin = getelementptr i8, ptr %p0, i64 %across
  %panel = mul i64 %c, %deep
  %number = add i64 %panel, %task
  %to_off = shl i64 %number, 10
  %to = getelementptr i8, ptr %p1, i64 %to_off
  br label %line
line:
  %i = phi i64 [ 0, %tile ], [ %i_next, %line ]
  %down = mul i64 %i, {each}
  %row = add i64 %top, %down
  {body}
  %place = shl i64 %i, 6
  %there = getelementptr i8, ptr %to, i64 %place
  %other = getelementptr i8, ptr %there, i64 %beside
  store <16 x i32> %half0, ptr %there, align 4
  store <16 x i32> %half1, ptr %other, align 4
  %i_next = add i64 %i, 1
  %lines_left = icmp ult i64 %i_next, 16
  br i1 %lines_left, label %line, label %tile_end
tile_end:
  %c_next = add i64 %c, 2
  %tiles_left = icmp ult i64 %c_next, %j1
  br i1 %tiles_left, label %tile, label %take
exit:
  ret void
}}
"""
