"""`top_k` in small programs: row after row, each element that belongs among the greatest so far is inserted into their list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from shardwise.ir import Equation, Spread
from shardwise.ops.indexing.row_selection import MOST, ranks_of
from shardwise.runtime import costs
from shardwise.runtime.machine import STORED

_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1


def top_k_fits(eqn: Equation, spread: Spread) -> bool:
    """Whether ranks have 32 bits, lists are short, and rows few."""
    x = eqn.inputs[0].aval
    narrow = x.dtype.name in STORED and x.dtype.kind != "b" and x.dtype.itemsize <= 4
    return narrow and eqn.params["k"] <= MOST and spread.elements(x) <= costs.SMALL_LARGEST


def write_top_k(body: Any, eqn: Equation, values: Sequence[Any], wanted: Sequence[Any]) -> list[Any]:
    """The `k` greatest elements of each row, and their positions."""
    code, k, d = body.code, eqn.params["k"], body.code.lead + eqn.params["axis"]
    x = code.in_memory(values[0])
    shape = (*x.shape[:d], k, *x.shape[d + 1 :])
    best, places = code.memory(shape, x.dtype, wanted[0]), code.memory(shape, "int32", wanted[1])
    # Rank and position of an element in one number: less is greater, or as great and earlier.
    items = code.buffer((k + 1,), "int64").place
    last = code.element(items, k, "int64")

    def load(place: str, index: int | str = 0) -> str:
        return code.value(f"load i64, ptr {code.element(place, index, 'int64')}, align 8")

    def put(item: int | str, index: int | str) -> None:
        code.line(f"store i64 {item}, ptr {code.element(items, index, 'int64')}, align 8")

    def enter(item: str) -> list[str]:
        def precedes(held: list[str]) -> str:
            return code.test("sgt", load(items, code.integer("sub", held[0], 1)), item)

        def move(held: list[str]) -> list[str]:
            before = code.integer("sub", held[0], 1)
            put(load(items, before), held[0])
            return [before]

        (there,) = code.repeat([("i64", str(k))], precedes, move)
        put(item, there)
        return [load(last)]

    def row(at: list[str]) -> None:
        source, values_at, places_at = at
        put(_LEAST, 0)
        code.loop(0, k, lambda j, _: put(_GREATEST, code.integer("add", j, 1)))

        def element(i: str, held: list[str]) -> list[str]:
            code.at(1)
            rank = ranks_of(code, code.advance_address(source, i, x.steps[d]), x.dtype)
            high = code.value(f"sext i32 {code.value(f'extractelement <1 x i32> {rank.ref}, i64 0')} to i64")
            item = code.value(f"or i64 {code.value(f'shl i64 {high}, 32')}, {i}")
            return code.branch(code.test("slt", item, held[0]), lambda: enter(item), held, ["i64"])

        code.loop(0, x.shape[d], element, [("i64", str(_GREATEST))])

        def give(j: str, _: list[str]) -> None:
            code.at(1)
            place = code.value(f"and i64 {load(items, code.integer('add', j, 1))}, {(1 << 32) - 1}")
            short = code.value(f"trunc i64 {place} to i32")
            code.line(f"store i32 {short}, ptr {code.advance_address(places_at, j, places.steps[d])}, align 4")
            kind = STORED[x.dtype]
            value = code.value(f"load {kind}, ptr {code.advance_address(source, place, x.steps[d])}, align 1")
            code.line(f"store {kind} {value}, ptr {code.advance_address(values_at, j, best.steps[d])}, align 1")

        code.loop(0, k, give)

    others = [v for i, v in enumerate(x.shape) if i != d]
    steps = [tuple(s for i, s in enumerate(v.steps) if i != d) for v in (x, best, places)]
    code.nest(others, [v.place for v in (x, best, places)], steps, row)
    return [code.settle_value(best), code.settle_value(places)]
