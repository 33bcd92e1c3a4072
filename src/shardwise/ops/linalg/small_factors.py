"""Cholesky, LU and general systems in small programs: stacks of small matrices, one after the other. Those of complex numbers by LAPACK."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from shardwise.ir import Equation, Spread
from shardwise.ops.linalg import small_matrices
from shardwise.ops.linalg.factor_loops import scratch_row, width_for, write_cholesky, write_lu
from shardwise.runtime import costs
from shardwise.runtime.loops import dtype_name, lanes_of
from shardwise.runtime.small import BodyWriter, Code, Substitution, Value, Wanted, store, transpose_view


def cholesky(body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Wanted) -> list[Value]:
    """The lower factors: f[..., n, n] -> f[..., n, n]."""
    if "complex" in values[0].dtype:
        return small_matrices.cholesky(body, eqn, values, wanted)
    code, into = body.code, wanted[0]
    x = code.in_memory(values[0])
    shape, n = x.shape, x.shape[-1]
    out = code.memory(shape, x.dtype, into)
    width = width_for(n, lanes_of(x.dtype))
    scratch = code.buffer((n, scratch_row(n, width)), x.dtype).place

    def one(places: list[str]) -> None:
        write_cholesky(code, n, x.dtype, width, places[0], x.steps[-2:], scratch, places[1], out.steps[-2:])

    code.nest(shape[:-2], [x.place, out.place], [x.steps[:-2], out.steps[:-2]], one)
    return [code.settle_value(out)]


def lu(body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Wanted) -> list[Value]:
    """The packed factors, pivots and orders of rows: f[..., m, n] -> f[..., m, n], int32[..., min(m, n)], int32[..., m]."""
    code = body.code
    return [code.settle_value(v) for v in _factor_matrix(code, values[0])]


def _factor_matrix(code: Code, x: Value) -> tuple[Value, Value, Value]:
    loops, (m, n) = x.shape[:-2], x.shape[-2:]
    factors = code.buffer(x.shape, x.dtype)
    pivots, order = code.buffer((*loops, min(m, n)), "int32"), code.buffer((*loops, m), "int32")
    store(code, x, factors)
    width = width_for(n, lanes_of(x.dtype))
    stacks = (factors, 2), (pivots, 1), (order, 1)

    def one(places: list[str]) -> None:
        write_lu(code, (m, n), x.dtype, width, places[0], factors.steps[-2], *places[1:])

    code.nest(loops, [v.place for v, _ in stacks], [v.steps[: len(v.shape) - rank] for v, rank in stacks], one)
    return factors, pivots, order


def solve(body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Wanted) -> list[Value]:
    """x with a x = b: (f[..., n, n], f[..., n, k]) -> f[..., n, k]."""
    if "complex" in values[0].dtype:
        return small_matrices.solve(body, eqn, values, wanted)
    code = body.code
    a, b = (code.in_memory(v) for v in values)
    factors, _, order = _factor_matrix(code, transpose_view(a) if eqn.params["transposed"] else a)
    loops, (n, k) = np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), b.shape[-2:]
    x = code.buffer((*loops, n, k), b.dtype)
    width = min(k, lanes_of(b.dtype))

    def order_rows(places: list[str]) -> None:
        """Rows of b in the order of the factors'."""
        target, source, numbers = places

        def row(i: str, _: list[str]) -> None:
            at = code.value(f"load i32, ptr {code.advance_address(numbers, i, 4)}, align 4")
            line = code.advance_address(source, code.value(f"sext i32 {at} to i64"), b.steps[-2])
            here = code.advance_address(target, i, x.steps[-2])
            code.at(width)

            def part(c: str) -> None:
                read = code.read(code.advance_address(line, c, b.steps[-1]), (width,), (b.steps[-1],), b.dtype)
                code.write(read, code.advance_address(here, c, x.steps[-1]), (width,), (x.steps[-1],))

            code.row(k, part, width)

        code.loop(0, n, row)

    stacks = (x, 2), (b, 2), (order, 1)
    steps = [
        [0 if size == 1 else step for size, step in zip(v.shape[: len(loops)], v.steps[: len(loops)], strict=True)]
        for v, _ in stacks
    ]
    code.nest(loops, [v.place for v, _ in stacks], steps, order_rows)
    y = code.buffer(x.shape, x.dtype)  # the last vector of a row reads some elements again: nothing is solved in place
    Substitution(code, factors, x, y, True, True).write()
    Substitution(code, factors, y, x, False, False).write()
    return [code.settle_value(x)]


def numbers_fit(eqn: Equation, spread: Spread) -> bool:
    """Whether matrices are small; those of complex numbers are left to LAPACK."""
    return (small_matrices.matrices_fit if eqn.inputs[0].aval.dtype.kind == "c" else factors_fit)(eqn, spread)


def factors_fit(eqn: Equation, spread: Spread) -> bool:
    """Whether matrices are real and small."""
    x = eqn.inputs[0].aval
    if any(dtype_name(a.aval) not in ("float32", "float64") for a in eqn.inputs):
        return False
    columns = x.shape[-1] + sum(a.aval.shape[-1] for a in eqn.inputs[1:])
    size = max(prod(a.aval.shape[:-2]) for a in eqn.inputs)
    return (
        size * x.shape[-2] * x.shape[-1] * columns * spread.parts(*[a.aval for a in eqn.inputs]) <= costs.SMALL_FACTORS
    )
