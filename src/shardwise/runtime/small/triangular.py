"""Triangular systems in small programs: substitution, row after row, with a vector of right-hand sides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from shardwise.base.shapes import Shape
from shardwise.ir import Equation, Spread
from shardwise.runtime import costs
from shardwise.runtime.fused import fits
from shardwise.runtime.loops import lanes_of
from shardwise.runtime.machine import Lane
from shardwise.runtime.small.code import Code, Value
from shardwise.runtime.small.moves import Wanted

if TYPE_CHECKING:
    from shardwise.runtime.small.body import BodyWriter


def systems_fit(eqn: Equation, spread: Spread) -> bool:
    """Whether the systems are small ones of floats."""
    a, b = (v.aval for v in eqn.inputs)
    return fits(b, "w") and b.size * a.shape[-1] * spread.parts(a, b) <= costs.SMALL_SYSTEMS


def triangular_solve(body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Wanted) -> list[Value]:
    """``x`` with op(a) x = b, or x op(a) = b: (f[..., n, n], f[..., n, k]) -> f[..., n, k]."""
    code, into, params = body.code, wanted[0], eqn.params
    a, b = (code.in_memory(v) for v in values)
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2]) + b.shape[-2:]
    x = code.memory(shape, b.dtype, into)
    transposed, lower, sides = params["transpose"], params["lower"], (b, x)
    if not params["left"]:  # the transposes of both sides
        transposed, sides = not transposed, (transpose_view(b), transpose_view(x))
    if transposed:
        a, lower = transpose_view(a), not lower
    Substitution(code, a, *sides, lower, params["unit"]).write()
    return [code.settle_value(x)]


def transpose_view(matrix: Value) -> Value:
    """The same memory as transposed matrices."""
    *loops, rows, columns = matrix.shape
    *steps, down, right = matrix.steps
    return replace(matrix, shape=(*loops, columns, rows), steps=(*steps, right, down))


class Substitution:
    """The loops that solve a x = b."""

    def __init__(self, code: Code, a: Value, b: Value, x: Value, lower: bool, unit: bool) -> None:
        self.code = code
        self.values = (a, b, x)
        self.loops: Shape = x.shape[:-2]
        self.n, self.k = x.shape[-2:]
        self.lower, self.unit = lower, unit
        self.width = min(self.k, lanes_of(x.dtype))

    def write(self, d: int = 0, places: Sequence[str] = ()) -> None:
        """Loops over stacked systems from dim d on."""
        code = self.code
        places = places or [v.place for v in self.values]
        if d == len(self.loops):
            self._columns(places)
            return

        def body(index: str, _: list[str]) -> list[str]:
            steps = [v.steps[d] if v.shape[d] != 1 else 0 for v in self.values]
            self.write(d + 1, [code.advance_address(p, index, s) for p, s in zip(places, steps, strict=True)])
            return []

        code.loop(0, self.loops[d], body)

    def _columns(self, places: Sequence[str]) -> None:
        """Vector after vector of right-hand sides; the last one ends with the row."""
        code, (_, b, x) = self.code, self.values

        def vector(at: str) -> None:
            self._rows(
                places[0],
                code.advance_address(places[1], at, b.steps[-1]),
                code.advance_address(places[2], at, x.steps[-1]),
            )

        code.row(self.k, vector, self.width)

    def _rows(self, a: str, b: str, x: str) -> None:
        code, (matrix, side, out) = self.code, self.values

        def row(index: str, _: list[str]) -> list[str]:
            i = self._place(index)
            line = code.advance_address(a, i, matrix.steps[-2])
            code.at(self.width)
            rest = self._read(code.advance_address(b, i, side.steps[-2]), side)

            def subtract(j: str, carried: list[str]) -> list[str]:
                j = self._place(j)
                code.at(self.width)
                factor = self._scalar(code.advance_address(line, j, matrix.steps[-1]))
                value = self._read(code.advance_address(x, j, out.steps[-2]), out)
                return [code.fma(code.neg(factor), value, Lane(carried[0], out.dtype)).ref]

            carried = [(code.vector(rest.type), rest.ref)]
            done = Lane(code.loop(0, index, subtract, carried, occurs=False)[0], out.dtype)
            code.at(self.width)
            if not self.unit:
                done = code.div(done, self._scalar(code.advance_address(line, i, matrix.steps[-1])))
            code.write(done, code.advance_address(x, i, out.steps[-2]), (self.width,), (out.steps[-1],))
            return []

        code.loop(0, self.n, row)

    def _place(self, index: str) -> str:
        """The row that is solved at that turn: from the top, or from the bottom."""
        if self.lower:
            return index
        return self.code.integer("sub", self.n - 1, index)

    def _read(self, place: str, value: Value) -> Lane:
        return self.code.read(place, (self.width,), (value.steps[-1],), value.dtype)

    def _scalar(self, place: str) -> Lane:
        return self.code.read(place, (self.width,), (0,), self.values[0].dtype)
