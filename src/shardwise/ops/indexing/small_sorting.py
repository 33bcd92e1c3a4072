"""`sort` in small programs: row after row, each position is inserted into the list of those before it, which is in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from shardwise.ir import Equation, Spread
from shardwise.runtime import costs
from shardwise.runtime.machine import STORED, Lane


def sort_fits(eqn: Equation, spread: Spread) -> bool:
    """Whether rows are so short that insertion takes less than calls of NumPy's functions, and the order of equals is known."""
    x, single = eqn.inputs[0].aval, len(eqn.inputs) == 1
    if single and not eqn.params["is_stable"] and x.dtype.kind not in "iub":
        return False  # NumPy may exchange zeros of both signs
    keys = eqn.inputs[: eqn.params["num_keys"]]
    has_known_types = all(a.aval.dtype.name in STORED for a in eqn.inputs) and all(
        k.aval.dtype.kind != "c" for k in keys
    )
    most = costs.SMALL_INSERTIONS if single else costs.SMALL_INSERTIONS_TOGETHER
    return has_known_types and spread.elements(x) * x.shape[eqn.params["dimension"]] <= most


def write_sort(body: Any, eqn: Equation, values: Sequence[Any], wanted: Sequence[Any]) -> list[Any]:
    """The operands in the order of the first `num_keys` of them; equal elements keep theirs."""
    code, d, num_keys = body.code, body.code.lead + eqn.params["dimension"], eqn.params["num_keys"]
    shape = np.broadcast_shapes(*[v.shape for v in values])
    n = shape[d]
    given = [_broadcast_value(code.in_memory(v), shape) for v in values]
    sorted_values = [code.memory(shape, v.dtype, into) for v, into in zip(given, wanted, strict=True)]
    order = code.buffer(
        (n + 1,), "int64"
    ).place  # behind a place for the position that is inserted, which stops the search

    def order_entry(at: int | str) -> str:
        return code.value(f"load i64, ptr {code.element(order, at, 'int64')}, align 8")

    def put(position: str, at: int | str) -> None:
        code.line(f"store i64 {position}, ptr {code.element(order, at, 'int64')}, align 8")

    def row(places: list[str]) -> None:
        sources, targets = places[: len(given)], places[len(given) :]

        def keys(position: str) -> list[Lane]:
            code.at(1)
            return [
                code.load(code.advance_address(source, position, v.steps[d]), v.dtype)
                for source, v in zip(sources[:num_keys], given, strict=False)
            ]

        def insert(i: str, _: list[str]) -> None:
            put(i, 0)
            own = keys(i)

            def follows(at: list[str]) -> str:
                return code.some(_precedes(code, own, keys(order_entry(at[0]))))

            def move(at: list[str]) -> list[str]:
                put(order_entry(at[0]), code.integer("add", at[0], 1))
                return [code.integer("sub", at[0], 1)]

            (last,) = code.repeat([("i64", i)], follows, move)
            put(i, code.integer("add", last, 1))

        def give(j: str, _: list[str]) -> None:
            position = order_entry(code.integer("add", j, 1))
            for source, target, x, into in zip(sources, targets, given, sorted_values, strict=True):
                kind = STORED[x.dtype]
                element = code.value(f"load {kind}, ptr {code.advance_address(source, position, x.steps[d])}, align 1")
                code.line(f"store {kind} {element}, ptr {code.advance_address(target, j, into.steps[d])}, align 1")

        code.loop(0, n, insert)
        code.loop(0, n, give)

    both = [*given, *sorted_values]
    steps = [tuple(s for i, s in enumerate(v.steps) if i != d) for v in both]
    code.nest([m for i, m in enumerate(shape) if i != d], [v.place for v in both], steps, row)
    return [code.settle_value(v) for v in sorted_values]


def _broadcast_value(value: Any, shape: tuple[int, ...]) -> Any:
    """A value in memory broadcast to that shape: its dims of size 1 repeat."""
    steps = tuple(0 if m != n else s for n, m, s in zip(shape, value.shape, value.steps, strict=True))
    return replace(value, shape=shape, steps=steps)


def _precedes(code: Any, one: Sequence[Lane], other: Sequence[Lane]) -> Lane:
    """Whether keys come before others: the first that differ decide."""
    first, *more = [(_is_less(code, a, b), _is_less(code, b, a)) for a, b in zip(one, other, strict=True)][::-1]
    result = first[0]
    for less, greater in more:
        result = code.binary(
            "or", less, code.binary("and", code.binary("xor", greater, code.like(True, greater)), result)
        )
    return result


def _is_less(code: Any, x: Lane, y: Lane) -> Lane:
    """Where one comes before another: NaNs are last and equal, zeros of both signs are equal."""
    if x.type == "i1":
        return code.binary("and", code.binary("xor", x, code.like(True, x)), y)
    less = code.compare("lt", x, y)
    if not x.floating:
        return less
    number = code.compare("eq", x, x)
    return code.binary("or", less, code.binary("and", number, code.isnan(y)))
