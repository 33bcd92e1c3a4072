"""What `Flow` writes does as it says: numbers, loops, branches, and units of work that threads share."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from shardwise.runtime.loops.call import Call
from shardwise.runtime.loops.function import Function
from shardwise.runtime.machine.flow import Flow
from shardwise.runtime.machine.llvm import available

pytestmark = pytest.mark.skipif(not available(), reason="no compiler")

VALUES = (-7, -1, 0, 1, 2, 5, 40)


def run(write: Callable[[Function], object], numbers: dict[str, int], size: int = 1, threads: int = 1) -> list[int]:
    """What the function puts into an array of zeros: `write(w)` writes it, `put(w, ...)` stores."""
    w = Function(1, tuple(numbers), ("out",))
    write(w)
    out = np.zeros(size, np.int64)
    Call(w.compile_function(), tuple(numbers.values()), 1, threads)(out.ctypes.data)
    return out.tolist()


def put(w: Function, value: str, index: int | str = 0) -> None:
    w.set_entry("%out", index, value)


def both(method: str, x: int, y: int) -> tuple[int, int]:
    """An operation of two numbers while the text is written, and of two registers."""
    w = Flow()
    known = getattr(w, method)(x, y)
    assert not w.lines
    (computed,) = run(lambda w: put(w, getattr(w, method)("%x", "%y")), {"x": x, "y": y})
    return int(known), computed


def test_known_numbers_and_registers_agree() -> None:
    for x, y in itertools.product(VALUES, repeat=2):
        assert both("least", x, y) == (min(x, y),) * 2
        assert both("greatest", x, y) == (max(x, y),) * 2


@pytest.mark.parametrize(
    ("op", "of"), [("add", lambda x, y: x + y), ("sub", lambda x, y: x - y), ("mul", lambda x, y: x * y)]
)
def test_integers(op: str, of: Callable[[int, int], int]) -> None:
    def write(w: Function) -> None:
        for k, y in enumerate(VALUES):  # 0 and 1 need no instruction
            put(w, w.integer(op, "%x", y), 2 * k)
            put(w, w.integer(op, y, "%x"), 2 * k + 1)

    for x in VALUES:
        found = run(write, {"x": x}, 2 * len(VALUES))
        assert found == [n for y in VALUES for n in (of(x, y), of(y, x))]
        assert [int(Flow().integer(op, x, y)) for y in VALUES] == [of(x, y) for y in VALUES]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize(("begin", "end", "step"), [(0, 5, 1), (2, 3, 1), (1, 10, 4), (3, 3, 1), (5, 2, 3)])
def test_loops(begin: int, end: int, step: int, known: bool) -> None:
    """The sum of the numbers and their count, of any number of rounds."""

    def write(w: Function) -> None:
        def body(i: str, held: list[str]) -> list[str]:
            return [w.integer("add", held[0], i), w.integer("add", held[1], 1)]

        bounds = (begin, end) if known else ("%begin", "%end")
        occurs = len(range(begin, end, step)) > 0
        total, rounds = w.loop(*bounds, body, [("i64", "0"), ("i64", "0")], step, occurs=occurs)
        put(w, total)
        put(w, rounds, 1)

    numbers = range(begin, end, step)
    assert run(write, {"begin": begin, "end": end}, 2) == [sum(numbers), len(numbers)]


def test_loops_in_loops() -> None:
    def write(w: Function) -> None:
        def row(i: str, _: list[str]) -> None:
            def element(j: str, _: list[str]) -> None:
                put(w, w.integer("mul", i, j), w.integer("add", w.integer("mul", i, "%n"), j))

            w.loop(0, "%n", element)

        w.loop(0, "%n", row)

    assert run(write, {"n": 4}, 16) == [i * j for i in range(4) for j in range(4)]


def test_rounds_while_a_test_holds() -> None:
    """The greatest common divisor."""

    def write(w: Function) -> None:
        def body(held: list[str]) -> list[str]:
            return [held[1], w.integer("urem", held[0], held[1])]

        divisor, _ = w.repeat([("i64", "%x"), ("i64", "%y")], lambda held: w.test("ne", held[1], 0), body)
        put(w, divisor)

    for x, y in itertools.product((1, 6, 35, 48), (0, 1, 14, 36)):
        assert run(write, {"x": x, "y": y}) == [np.gcd(x, y)]


@pytest.mark.parametrize("x", [3, -3])
def test_branches(x: int) -> None:
    def write(w: Function) -> None:
        negative = w.test("slt", "%x", 0)
        put(w, *w.branch(negative, lambda: [w.integer("sub", 0, "%x")], ["%x"], ["i64"]))
        put(w, *w.branch(negative, lambda: ["1"], lambda: ["2"], ["i64"]), index=1)
        w.branch(negative, lambda: put(w, "5", 2))
        w.returns(negative)
        put(w, "7", 3)

    assert run(write, {"x": x}, 4) == [3, 1 if x < 0 else 2, 5 if x < 0 else 0, 0 if x < 0 else 7]


@pytest.mark.parametrize("grain", [1, 3, 64])
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("total", [0, 1, 100])
def test_units_are_done_once(total: int, grain: int, threads: int) -> None:
    def write(w: Function) -> None:
        def unit(i: str) -> None:
            w.atomic_add(w.advance_address("%out", i, 8), 1, "monotonic")

        w.units("%total", unit, "%grain")

    assert run(write, {"total": total, "grain": grain}, 100, threads) == [1] * total + [0] * (100 - total)


@pytest.mark.parametrize("extents", [(), (5,), (2, 3), (2, 3, 4)])
def test_indices_of_nested_loops(extents: tuple[int, ...]) -> None:
    def write(w: Function) -> None:
        for k, index in enumerate(w.split("%number", extents)):
            put(w, index, k)

    for number, index in enumerate(np.ndindex(*extents)):
        assert run(write, {"number": number}, len(extents) + 1)[:-1] == list(index)
