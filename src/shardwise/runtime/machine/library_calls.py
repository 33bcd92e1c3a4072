"""Calls of the inner loops of NumPy's and SciPy's ufuncs, and of SciPy's LAPACK: a small program or a fused loop then has the bits of the
kernels that call them.

A loop is ``loop(addresses of operands and results, extents, steps in bytes, what it takes along)``. Nothing here needs the GIL.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shardwise.runtime.machine.flow import Flow
from shardwise.runtime.machine.lane import STORED, TYPES, Lane, itemsize
from shardwise.runtime.machine.lanes import Lanes
from shardwise.runtime.machine.outside import LAPACK, loop_symbol

_LETTERS = {  # NumPy's, by dtype
    name: np.dtype(name).char
    for name in (
        "float32",
        "float64",
        "complex64",
        "complex128",
        *(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)),
    )
}


def call_loop(
    w: Flow, ufunc: str, types: str, places: Sequence[str], extents: Sequence[int], steps: Sequence[int], table: str
) -> None:
    """Call a loop. Its table of addresses is written at `table`; extents and steps are constants."""
    loop, taken = loop_symbol(ufunc, types)
    w.declare(loop, f"declare void @{loop}(ptr, ptr, ptr, ptr)")
    if taken != "null":
        w.declare(taken, f"@{taken} = external global i8")
        taken = f"@{taken}"
    for k, place in enumerate(places):
        w.line(f"store ptr {place}, ptr {w.advance_address(table, k, 8)}, align 8")
    given = ", ".join(f"ptr {_numbers(w, numbers)}" for numbers in (extents, steps))
    w.line(f"call void @{loop}(ptr {table}, {given}, ptr {taken})")


def _numbers(w: Flow, numbers: Sequence[int]) -> str:
    """The address of these numbers."""
    name = "@numbers." + ".".join(map(str, numbers)).replace("-", "m")
    text = ", ".join(f"i64 {n}" for n in numbers)
    w.declare(name, f"{name} = private unnamed_addr constant [{len(numbers)} x i64] [{text}], align 8")
    return name


def call_lapack(w: Flow, routine: str, arguments: Sequence[int | bytes | str]) -> None:
    """Call a routine, whose arguments are all addresses: of numbers and letters that are known, or of memory."""
    name = f"{LAPACK}{routine}"
    w.declare(name, f"declare void @{name}({', '.join(['ptr'] * len(arguments))})")
    given = ", ".join(f"ptr {x if isinstance(x, str) else _constant_address(w, x)}" for x in arguments)
    w.line(f"call void @{name}({given})")


def _constant_address(w: Flow, x: int | bytes) -> str:
    """The address of a number, or of a letter."""
    kind, number = ("i8", x[0]) if isinstance(x, bytes) else ("i32", x)
    name = f"@known.{kind}.{number}"
    return w.declare(name, f"{name} = private unnamed_addr constant {kind} {number}, align 4")


def each_by_ufunc(w: Lanes, ufunc: str, *args: Lane, results: Sequence[str] = ()) -> list[Lane]:
    """A ufunc of every lane: its `results`, of these dtypes; else one of the operands' type."""
    count, n = len(args), w.width
    kinds = [*(_kind(x.dtype) for x in args), *(results or [_kind(args[0].dtype)])]
    letters = "".join(_LETTERS[kind] for kind in kinds)
    types = f"{letters[:count]}->{letters[count:]}"
    name = f"each.{ufunc}.{types.replace('->', '_')}.{n}"
    vectors = [w.vector(TYPES[kind]) for kind in kinds]
    if name not in w.declared:
        w.declare(name, _each(w, name, ufunc, types, kinds, count))
    result = f"{{ {', '.join(vectors[count:])} }}"
    given = ", ".join(f"{v} {x.ref}" for v, x in zip(vectors, args, strict=False))
    made = w.value(f"call {result} @{name}({given})")
    return [w.let(f"extractvalue {result} {made}, {k}", kind) for k, kind in enumerate(kinds[count:])]


def _kind(dtype: str) -> str:
    """The type that registers hold for a dtype."""
    return "float32" if TYPES[dtype] == "float" else dtype


def _each(w: Lanes, name: str, ufunc: str, types: str, kinds: Sequence[str], count: int) -> str:
    """The function of vectors: they go through memory, where the loop reads and writes them."""
    n = w.width
    inner = Lanes(n, w.wide)
    inner.declared = w.declared
    inner.start("entry")
    vectors = [inner.vector(STORED[kind]) for kind in kinds]
    rooms = [inner.value(f"alloca {v}, align 64", "room") for v in vectors]
    table = inner.value(f"alloca [{len(kinds)} x ptr], align 8", "table")
    for k in range(count):
        inner.line(f"store {vectors[k]} %x{k}, ptr {rooms[k]}, align 64")
    call_loop(inner, ufunc, types, rooms, [n], [itemsize(kind) for kind in kinds], table)
    result, made = f"{{ {', '.join(vectors[count:])} }}", "poison"
    for k in range(count, len(kinds)):
        found = inner.value(f"load {vectors[k]}, ptr {rooms[k]}, align 64")
        made = inner.value(f"insertvalue {result} {made}, {vectors[k]} {found}, {k - count}")
    inner.line(f"ret {result} {made}")
    takes = ", ".join(f"{vectors[k]} %x{k}" for k in range(count))
    return f"define internal {result} @{name}({takes}) noinline #0 {{\n{inner.body()}\n}}"
