"""NumPy ufuncs made of emitters: an op on few elements has the roundings of the loops and small programs that compute many.

Comes in: what an elementwise op writes, and the type of its operands. Goes out: an `np.ufunc` with a loop in machine code, which is
called, broadcasts and writes into `out` as NumPy's own ones do.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.runtime import costs
from shardwise.runtime.loops.function import lanes_of, module
from shardwise.runtime.loops.write import Writer
from shardwise.runtime.machine import Lane, itemsize, llvm

_NO_IDENTITY = -1
_MAKE = 1  # where NumPy's table of functions for ufuncs has `PyUFunc_FromFuncAndData`

_held: list[Any] = []  # what ufuncs refer to by address, as long as the process lives


def ufunc_of_loop(
    name: str, write: Callable[..., Lane], count: int, dtype: str, result: str | None = None
) -> np.ufunc | None:
    """`write(writer, *operands) -> result` for `count` operands of a dtype as a ufunc; None where nothing can be compiled."""
    if not llvm.available():
        return None
    result = result or dtype
    slower = costs.DRAFT_VISITED * costs.FUSED_FEWEST  # fused loops compute more elements
    compiled = llvm.compile_function("kernel", _text(write, count, dtype, result), slower)
    types = bytes(np.dtype(d).num for d in [dtype] * count + [result])
    functions, data = (ctypes.c_void_p * 1)(compiled.address), (ctypes.c_void_p * 1)(None)
    kept = functions, data, ctypes.create_string_buffer(types, len(types)), ctypes.create_string_buffer(name.encode())
    _held.append((compiled, kept))
    made = _maker()(*kept[:3], 1, count, 1, _NO_IDENTITY, kept[3], kept[3], 0)
    assert isinstance(made, np.ufunc)
    return made


def _maker() -> Any:
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    table = pointer(importlib.import_module("numpy._core._multiarray_umath")._UFUNC_API, None)
    at = ctypes.c_void_p.from_address(table + _MAKE * ctypes.sizeof(ctypes.c_void_p)).value or 0
    kinds = *[ctypes.c_void_p] * 3, *[ctypes.c_int] * 4, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int
    return ctypes.PYFUNCTYPE(ctypes.py_object, *kinds)(at)


def _text(write: Callable[..., Lane], count: int, dtype: str, result: str) -> str:
    """The module of a loop as ufuncs call it: ``kernel(addresses, numbers of elements, steps in bytes, data)``.

    Operands that are not dense, and the last few elements, go through a register's worth of memory, so that the text computes in one
    place.
    """
    width = lanes_of(dtype)
    w = Writer(width, llvm.target().wide)
    w.start("entry")
    kinds = [dtype] * count + [result]
    sizes = [itemsize(k) for k in kinds]
    total = w.value("load i64, ptr %extents, align 8")
    places, steps, rooms = list[str](), list[str](), list[str]()
    for k, size in enumerate(sizes):
        places.append(w.value(f"load ptr, ptr {w.advance_address('%places', 1, 8 * k)}, align 8"))
        steps.append(w.value(f"load i64, ptr {w.advance_address('%steps', 1, 8 * k)}, align 8"))
        rooms.append(w.value(f"alloca [{width * size} x i8], align 64", "room"))
    for room, kind in zip(rooms, kinds, strict=True):
        w.store(w.constant(1, kind), room)  # so that lanes without an element compute something usual
    dense = w.value("icmp eq i64 0, 0")
    for step, size in zip(steps, sizes, strict=True):
        dense = w.value(f"and i1 {dense}, {w.test('eq', step, size)}")

    def vector(first: str, _: list[str]) -> None:
        few = w.least(w.integer("sub", total, first), width)
        whole = w.value(f"and i1 {dense}, {w.test('eq', few, width)}")

        def each(k: int, gather: bool) -> None:
            """Move the elements of operand or result k between their places and its room."""
            size = 8 * sizes[k]

            def one(i: str, _: list[str]) -> None:
                there = w.advance_address(places[k], w.integer("add", first, i), steps[k])
                here = w.advance_address(rooms[k], i, sizes[k])
                source, target = (there, here) if gather else (here, there)
                item = w.value(f"load i{size}, ptr {source}, align 1")
                w.line(f"store i{size} {item}, ptr {target}, align 1")

            w.loop(0, few, one)

        def collect() -> list[str]:
            for k in range(count):
                each(k, True)
            return rooms[:count]

        def spread() -> None:
            each(count, False)

        here = [w.advance_address(place, first, size) for place, size in zip(places, sizes, strict=True)]
        sources = w.branch(whole, lambda: here[:count], collect, ["ptr"] * count)
        out = write(w, *[w.load(source, dtype) for source in sources])
        (target,) = w.branch(whole, lambda: [here[count]], lambda: [rooms[count]], ["ptr"])
        w.store(Lane(out.ref, result), target)
        w.branch(whole, lambda: None, spread)

    w.loop(0, total, vector, step=width, occurs=False)
    signature = "define void @kernel(ptr %places, ptr %extents, ptr %steps, ptr %data)"
    return module(w, f"{signature} #0 {{\n{w.body()}\n  ret void\n}}")
