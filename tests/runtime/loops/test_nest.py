"""Loop nests: one form, whose extents and steps may be registers or numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from shardwise.runtime import folds
from shardwise.runtime.loops.call import Call
from shardwise.runtime.loops.function import Function
from shardwise.runtime.loops.nest import (
    MASKED,
    OVERLAP,
    WHOLE,
    Access,
    Nest,
    Reduction,
    Values,
    finish_reduction,
    write_nest,
)
from shardwise.runtime.machine.llvm import available

pytestmark = pytest.mark.skipif(not available(), reason="nothing can be compiled here")

WIDTH = 8
FOLDS = {"sum": folds.SUM, "max": folds.MAX, "argmax": folds.ARGMAX}


def run(
    x: np.ndarray[Any, Any],
    known: bool,
    tail: str = OVERLAP,
    counted: bool = False,
    along: bool = True,
    fold: str = "sum",
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """``x + 1`` and a reduction of it over the last two dims, or over the first one if vectors run across: f32[r, m, n]."""
    rounds, count = (x.shape[0], x.shape[1]), x.shape[2]
    if not along:
        rounds, count = (), x.shape[0]
    w = Function(WIDTH, ("count", "m", "n", "step0", "step1", "step2", "end"), ("x", "y", "out"))
    numbers = [count, *(rounds or (1, 1)), *x.strides, int(np.prod(rounds))]
    names: dict[str, Any] = dict(zip(("count", "m", "n", "step0", "step1", "step2", "end"), numbers, strict=True))

    def number(name: str) -> Any:
        return names[name] if known else f"%{name}"

    steps: Sequence[Any] = (number("step0"), number("step1")) if along else ()
    inner = 4 if along else number("step0")

    def leaf(values: Values) -> None:
        values["y"] = w.add(values["x"], w.constant(1, "float32"))

    nest = Nest(
        around=(number("m"), number("n")) if along else (),
        tile=(WIDTH,),
        along=along,
        reads={"x": Access("%x", "float32", steps, inner, (4,))},
        writes={"y": Access("%y", "float32", steps, inner, (4,))},
        leaf=leaf,
        reductions=[Reduction(FOLDS[fold], "y", "float32")],
        tail=tail,
        copies=2,
    )
    (held,) = write_nest(w, nest, ("0", str(number("count"))), ("0", str(number("end"))) if counted else None)
    dtype = "int32" if fold == "argmax" else "float32"
    result = finish_reduction(w, FOLDS[fold], held, dtype, across=along)
    w.write(result, "%out", (w.width,), (4,))
    y, out = np.zeros_like(x), np.zeros(1 if along else WIDTH, dtype)
    Call(w.compile_function(), numbers, 3)(x.ctypes.data, y.ctypes.data, out.ctypes.data)
    return y, out


def blocks(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("n", [8, 9, 15, 16, 24, 37])
@pytest.mark.parametrize("tail", [OVERLAP, MASKED])
def test_rows(known: bool, counted: bool, n: int, tail: str) -> None:
    x = blocks(2, 3, n)
    y, out = run(x, known, tail, counted)
    np.testing.assert_array_equal(y, x + 1)
    np.testing.assert_allclose(out, [(x + 1).sum(dtype=np.float64)], rtol=1e-6)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("n", [1, 3, 7])
def test_rows_shorter_than_a_vector_have_a_mask(known: bool, n: int) -> None:
    x = blocks(2, 3, n)
    y, out = run(x, known, MASKED)
    np.testing.assert_array_equal(y, x + 1)
    np.testing.assert_allclose(out, [(x + 1).sum(dtype=np.float64)], rtol=1e-6)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("fold", ["sum", "max"])
def test_lanes_with_results_of_their_own(known: bool, fold: str) -> None:
    x = blocks(5, 1, WIDTH)
    y, out = run(x, known, along=False, fold=fold)
    np.testing.assert_array_equal(y, x + 1)
    np.testing.assert_allclose(out, getattr(x + 1, fold)(axis=(0, 1)), rtol=1e-6)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("n", [16, 21])
def test_positions_count_elements_once(known: bool, n: int) -> None:
    x = np.zeros((1, 1, n), np.float32)
    _, out = run(x, known, OVERLAP if n % WIDTH else WHOLE, fold="argmax")
    assert out.tolist() == [0]
    x[0, 0, -1] = 1
    _, out = run(x, known, OVERLAP if n % WIDTH else WHOLE, fold="argmax")
    assert out.tolist() == [n - 1]


def test_numbers_are_in_the_text() -> None:
    w = Function(WIDTH, (), ("x",))
    access = Access("%x", "float32", (), 4, (4,))
    write_nest(w, Nest((), (WIDTH,), True, {"x": access}, {}, lambda values: None), ("0", "24"))
    assert "icmp slt i64 %n" in w.text() and ", 24" in w.text()
