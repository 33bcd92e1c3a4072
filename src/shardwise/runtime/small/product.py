"""Small products of matrices: rows times columns of the result gather in a tile of vectors.

Comes in: two operands with any strides. The one with free elements side by side is read in vectors, the other element by element;
where neither lies so, one is copied: before the loop around, if it is the same in each round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shardwise.base.lazy_dataclasses import dataclass
from shardwise.ir import Equation, Spread
from shardwise.runtime import costs
from shardwise.runtime.loops import dtype_name, lanes_of
from shardwise.runtime.machine import Lane
from shardwise.runtime.small.code import Code, Shape, Value
from shardwise.runtime.small.loops import pointwise, store
from shardwise.runtime.small.moves import Wanted

if TYPE_CHECKING:
    from shardwise.runtime.small.body import BodyWriter

Ints = tuple[int, ...]
DotDims = tuple[tuple[Ints, Ints], tuple[Ints, Ints]]

_ROWS = 4  # of the result in a tile
_LONG = 8  # vectors of a row from which its product with a column is a sum of vectors, in loops that could copy the rows once
_LAYER = 8  # contracted elements of a product whose right matrix is read in layers: rows that are read side by side


@dataclass(frozen=True, slots=True)
class _Matrix:
    """A stack of matrices: an address, the bytes between the matrices of each loop dim, and between free and contracted elements."""

    place: str
    loops: Shape
    free: int
    con: int


@dataclass(frozen=True, slots=True)
class _Contraction:
    """How two operands meet: their contracted and their shared dims, the leading dims over which the product is summed, and which operands
    stay the same in the loop around.
    """

    dims: DotDims
    summed: Sequence[int]
    stable: Sequence[bool]


class _Dims(NamedTuple):
    """The dims of an operand: shared with the result and the other operand, with the result, with the other operand."""

    batch: list[int]
    free: list[int]
    con: list[int]


def product_fits(eqn: Equation, spread: Spread) -> bool:
    """Whether operands are numbers of the result's type, and the product is small."""
    params, dtype = eqn.params, dtype_name(eqn.outputs[0].aval)
    if dtype not in ("float32", "float64", "complex64", "complex128") and eqn.outputs[0].aval.dtype.kind not in "iu":
        return False
    if any(dtype_name(a.aval) != dtype for a in eqn.inputs):
        return False
    dims: DotDims = params["dimension_numbers"]
    depth = math.prod(eqn.inputs[0].aval.shape[d] for d in dims[0][0])
    return eqn.outputs[0].aval.size * depth * spread.parts(*[a.aval for a in eqn.inputs]) <= costs.SMALL_PRODUCT


def axes_contracted(code: Code, eqn: Equation, values: Sequence[Value]) -> tuple[str, ...]:
    """The mesh axes over which a product is summed that are contracted like other dims: both operands vary over them, and none has to be
    laid out anew for that.
    """
    axes: tuple[str, ...] = eqn.params.get("sum_axes") or ()
    axes = tuple(a for a in axes if all(v.shape[code.env.dim(a)] != 1 for v in values))
    leads = sorted(map(code.env.dim, axes))
    for v, contracted in zip(values, eqn.params["dimension_numbers"][0], strict=True):
        if not v.place:
            continue
        own = [d + code.lead for d in contracted]
        before, after = (
            _one_step(tuple(v.shape[d] for d in dims), tuple(v.steps[d] for d in dims))
            for dims in (own, [*leads, *own])
        )
        if before is not None and after is None:
            return ()
    return axes


def matrix_product(body: BodyWriter, eqn: Equation, values: Sequence[Value], wanted: Wanted) -> list[Value]:
    """The contraction of two operands: batch dims, free dims of the left one, of the right one."""
    code, into, dtype = body.code, wanted[0], dtype_name(eqn.outputs[0].aval)
    summed = sorted(code.env.dim(a) for a in axes_contracted(code, eqn, values))
    how = _Contraction(eqn.params["dimension_numbers"], summed, [body.is_stable(a) for a in eqn.inputs])
    product = _complex_product if dtype.startswith("complex") else _product
    out = product(code, values, how, None if summed else into, dtype)
    for d in summed:
        shape, steps = ((*s[:d], n, *s[d:]) for s, n in ((out.shape, 1), (out.steps, 0)))
        out = replace(out, shape=shape, steps=steps if out.place else out.steps)
    return [out]


def _complex_product(code: Code, values: Sequence[Value], how: _Contraction, into: Value | None, dtype: str) -> Value:
    """The product of complex values: four products of their parts."""
    real = "float32" if dtype == "complex64" else "float64"

    def parts(x: Value, same: bool) -> list[Value]:
        def part(k: int) -> Value:
            return pointwise(code, [x], lambda lanes: code.parts_of(lanes[0])[k], real)

        return [code.outside(partial(part, k)) if same else part(k) for k in (0, 1)]

    left, right = (parts(x, same) for x, same in zip(values, how.stable, strict=True))
    found = [_product(code, [x, y], how, None, real) for x in left for y in right]

    def join_complex(lanes: list[Lane]) -> Lane:
        same, up, down, opposite = lanes
        return code.complex_of(code.sub(same, opposite), code.add(up, down))

    return pointwise(code, found, join_complex, dtype, into)


def _product(code: Code, values: Sequence[Value], how: _Contraction, into: Value | None, dtype: str) -> Value:
    """The product, without the leading dims over which it is summed."""
    turned = list[_Dims]()
    for v, contracted, batched in zip(values, *how.dims, strict=True):
        con = [*how.summed, *(d + code.lead for d in contracted)]
        batch = [*(d for d in range(code.lead) if d not in how.summed), *(d + code.lead for d in batched)]
        free = [d for d in range(len(v.shape)) if d not in con and d not in batch]
        turned.append(_Dims(batch, free, con))
    loops = np.broadcast_shapes(*[tuple(v.shape[d] for d in t.batch) for v, t in zip(values, turned, strict=True)])
    kept = [tuple(v.shape[d] for d in t.free) for v, t in zip(values, turned, strict=True)]
    shape = loops + kept[0] + kept[1]
    m, n = math.prod(kept[0]), math.prod(kept[1])
    k = math.prod(values[0].shape[d] for d in turned[0].con)
    if math.prod(loops) == 1 and max(m * k, k * n, m * n) <= costs.REGISTER_ELEMENTS:
        rows = [
            np.arange(v.size).reshape(v.shape).transpose([*t.batch, *t.free, *t.con]).reshape(-1, k)
            for v, t in zip(values, turned, strict=True)
        ]
        return code.of_lane(_in_registers(code, values, rows, dtype), shape, dtype, m * n)
    target = code.memory(shape, dtype, into)
    steps = _result_steps(target, len(loops), len(kept[0]))
    made = target
    if steps is None:
        made = code.buffer(shape, dtype)
        steps = _result_steps(made, len(loops), len(kept[0]))
        assert steps is not None
    merged = _as_rows(made, values, turned, len(loops), len(kept[0]))
    if merged is not None:  # the right operand is read once for all of them
        x, y = turned
        turned, loops = [_Dims([], [*x.batch, *x.free], x.con), _Dims([], y.free, y.con)], ()
        m, steps = merged
    sides = [(v, t, s) for v, t, s in zip(values, turned, how.stable, strict=True)]
    out = _Matrix(made.place, *steps)
    if n == 1 and m != 1:  # the result is a column: its elements are those of a row
        sides, m, n, out = sides[::-1], n, m, replace(out, free=out.con, con=out.free)
    left = _matrix(code, *sides[0], False)
    least = (_LONG if sides[1][2] else 1) * lanes_of(dtype)
    far = _matrix(code, *sides[1], False) if m == 1 and k >= least else None
    if far is not None and left.con == far.con == target.itemsize:
        _Dots(code, left, far, out, n, k, dtype).write(loops)
        if made is not target:
            store(code, made, target)
        return code.settle_value(target)
    # A matrix that is read once only is not worth a copy, unless one copy is for all rounds of a loop.
    right = _matrix(code, *sides[1], n != 1 and (m != 1 or sides[1][2]))
    _Tiles(code, left, right, out, m, n, k, dtype).write(loops)
    if made is not target:
        store(code, made, target)
    return code.settle_value(target)


def _as_rows(
    out: Value, values: Sequence[Value], turned: Sequence[_Dims], loops: int, left: int
) -> tuple[int, tuple[Shape, int, int]] | None:
    """How many rows the result has, and its steps, with the loops as rows: where the right operand is the same in all rounds, and rows
    are evenly spaced; else None.
    """
    (x, y), batch, free = values, turned[0].batch, turned[0].free
    if not x.place or any(y.shape[d] != 1 for d in turned[1].batch) or all(x.shape[d] == 1 for d in batch):
        return None
    dims = [*batch, *free]
    shape = tuple(x.shape[d] for d in dims)
    steps = _result_steps(out, 0, loops + left)
    if steps is None or _one_step(shape, tuple(x.steps[d] for d in dims)) is None:
        return None
    return math.prod(shape), steps


def _in_registers(code: Code, values: Sequence[Value], rows: Sequence[np.ndarray[Any, Any]], dtype: str) -> Lane:
    (m, k), (n, _) = rows[0].shape, rows[1].shape
    lanes = [code.lane_of(v) for v in values]
    total: Lane | None = None
    for c in range(k):
        a = code.shuffle_lanes(lanes[0], values[0].size, [rows[0][i, c] for i in range(m) for _ in range(n)])
        b = code.shuffle_lanes(lanes[1], values[1].size, [rows[1][j, c] for _ in range(m) for j in range(n)])
        code.at(m * n)
        total = code.mul(a, b) if total is None else code.fma(a, b, total)
    assert total is not None
    return Lane(total.ref, dtype)


def _result_steps(out: Value, loops: int, left: int) -> tuple[Shape, int, int] | None:
    """Bytes per step of each loop, between rows and between columns; None if rows or columns are not evenly spaced."""
    rows = _one_step(out.shape[loops : loops + left], out.steps[loops : loops + left])
    columns = _one_step(out.shape[loops + left :], out.steps[loops + left :])
    return None if rows is None or columns is None else (out.steps[:loops], rows, columns)


def _one_step(shape: Shape, steps: Shape) -> int | None:
    """The step that walks all these dims in order, 0 for a single element; None if there is none."""
    real = [(n, s) for n, s in zip(shape, steps, strict=True) if n != 1]
    if any(a[1] != b[0] * b[1] for a, b in pairwise(real)):
        return None
    return real[-1][1] if real else 0


def _matrix(code: Code, x: Value, turned: _Dims, stable: bool, near: bool) -> _Matrix:
    """An operand as a stack of matrices; `near`: with its free elements side by side."""
    batch, free, con = turned
    if x.place:
        sides = [_one_step(tuple(x.shape[d] for d in dims), tuple(x.steps[d] for d in dims)) for dims in (free, con)]
        if None not in sides and (not near or sides[0] == x.itemsize):
            steps = [0 if x.shape[d] == 1 else x.steps[d] for d in batch]
            return _Matrix(x.place, tuple(steps), sides[0] or 0, sides[1] or 0)

    def pack_matrix() -> Value:
        source = code.in_memory(x)
        order = [*batch, *con, *free]
        shape = tuple(x.shape[d] for d in order)
        copy = code.buffer(shape, x.dtype)
        store(code, replace(source, shape=shape, steps=tuple(source.steps[d] for d in order)), copy)
        return copy

    copy = code.outside(pack_matrix) if stable else pack_matrix()
    n = math.prod(x.shape[d] for d in free)
    steps = [0 if x.shape[d] == 1 else s for d, s in zip(batch, copy.steps, strict=False)]
    return _Matrix(copy.place, tuple(steps), x.itemsize, n * x.itemsize)


class _Tiles:
    """The loops of a product of `m` rows, `n` columns and `k` contracted elements."""

    def __init__(
        self, code: Code, left: _Matrix, right: _Matrix, out: _Matrix, m: int, n: int, k: int, dtype: str
    ) -> None:
        self.code, self.left, self.right, self.out = code, left, right, out
        self.m, self.n, self.k, self.dtype = m, n, k, dtype
        lanes = lanes_of(dtype)
        self.width = min(n, lanes)
        # The last strip of columns ends with the row, over columns of the one before: of the widths those that do the least twice.
        self.rows = min(_ROWS if n > self.width else 2 * _ROWS, m)
        sums = 4 * _ROWS if code.wide else 2 * _ROWS  # so many additions are under way at once
        widths = range(min(sums // min(self.rows, _ROWS), n // self.width), 0, -1)
        self.vectors = min(widths, key=lambda v: -(-n // (self.width * v)) * v if v > 1 else math.inf)

    def write(self, loops: Shape) -> None:
        operands = self.left, self.right, self.out
        self.code.nest(loops, [x.place for x in operands], [x.loops for x in operands], self._rows)

    def _rows(self, places: list[str]) -> None:
        near = self.k * self.n * np.dtype(self.dtype).itemsize <= costs.NEAREST_CACHE
        if near or self.k < 2 * _LAYER or self.m > 2 * _ROWS:
            self._region(places, (0, self.m), (0, self.n), self._whole)
            return
        # Of a matrix beyond the nearest cache, rows are read side by side as they lie: a strip's whole depth is a line of each row.
        m, n = self.m - self.m % self.rows, self.n - self.n % (self.width * self.vectors)
        whole = self.k - self.k % _LAYER

        def layer(c: str, count: int = _LAYER) -> None:
            self._region(places, (0, m), (0, n), lambda left, right, into: self._further(left, right, into, c, count))

        layer("0")
        self.code.loop(_LAYER, whole, lambda c, _: layer(c), step=_LAYER)
        if self.k != whole:
            layer(str(whole), self.k - whole)
        self._region(places, (m, self.m), (0, n), self._whole)
        self._region(places, (0, self.m), (n, self.n), self._whole)

    def _region(self, places: list[str], rows: Ints, columns: Ints, tile: Callable[[str, str, str], None]) -> None:
        """`tile(left, right, into)` for the tiles of some rows and columns; the last ones end with them, over the ones before."""
        code, width = self.code, self.width * self.vectors

        def across(at: str, _: list[str]) -> None:
            at = code.last_fits(at, columns[1], width)
            right, into = (
                code.advance_address(places[1], at, self.right.free),
                code.advance_address(places[2], at, self.out.con),
            )

            def down(row: str, _: list[str]) -> None:
                row = code.last_fits(row, rows[1], self.rows)
                tile(
                    code.advance_address(places[0], row, self.left.free),
                    right,
                    code.advance_address(into, row, self.out.free),
                )

            code.loop(rows[0], rows[1], down, step=self.rows)

        if rows[0] < rows[1]:
            code.loop(columns[0], columns[1], across, step=width)

    def _whole(self, left: str, right: str, into: str) -> None:
        """A tile of the result."""
        zero = self._zero()
        sums = [zero] * (self.rows * self.vectors)
        kind = self.code.vector(zero.type)
        refs = self.code.loop(
            0, self.k, lambda c, held: self._add_products(left, right, c, held), [(kind, zero.ref) for zero in sums]
        )
        self._put(into, refs)

    def _further(self, left: str, right: str, into: str, first: str, count: int) -> None:
        """A tile with `count` contracted elements more, from the first one on."""
        code = self.code
        left, right = (
            code.advance_address(left, first, self.left.con),
            code.advance_address(right, first, self.right.con),
        )
        if first == "0":
            refs = [self._zero().ref] * (self.rows * self.vectors)
        else:
            refs = [code.read(place, (self.width,), (self.out.con,), self.dtype).ref for place in self._places(into)]
        for c in range(count):
            refs = self._add_products(left, right, str(c), refs)
        self._put(into, refs)

    def _zero(self) -> Lane:
        return self.code.at(self.width).constant(0, self.dtype)

    def _add_products(self, left: str, right: str, c: str, sums: list[str]) -> list[str]:
        """The sums with the products of contracted element `c`."""
        code, width = self.code.at(self.width), self.width
        row = code.advance_address(right, c, self.right.con)
        b = [
            code.read(
                code.advance_address(row, "1", v * width * self.right.free), (width,), (self.right.free,), self.dtype
            )
            for v in range(self.vectors)
        ]
        out = list[str]()
        for r in range(self.rows):
            place = code.advance_address(code.advance_address(left, c, self.left.con), "1", r * self.left.free)
            one = code.read(place, (width,), (0,), self.dtype)
            out += [code.fma(one, b[v], Lane(sums[r * self.vectors + v], self.dtype)).ref for v in range(self.vectors)]
        return out

    def _places(self, into: str) -> list[str]:
        """Where the vectors of a tile lie."""
        rows = [self.code.advance_address(into, "1", r * self.out.free) for r in range(self.rows)]
        return [
            self.code.advance_address(row, "1", v * self.width * self.out.con)
            for row in rows
            for v in range(self.vectors)
        ]

    def _put(self, into: str, refs: Sequence[str]) -> None:
        code = self.code.at(self.width)
        for place, ref in zip(self._places(into), refs, strict=True):
            code.write(Lane(ref, self.dtype), place, (self.width,), (self.out.con,))


class _Dots:
    """The products of `n` rows of a vector or more, whose elements lie side by side as those of the column do: vectors run along them."""

    def __init__(self, code: Code, column: _Matrix, rows: _Matrix, out: _Matrix, n: int, k: int, dtype: str) -> None:
        self.code, self.column, self.rows, self.out = code, column, rows, out
        self.n, self.k, self.dtype, self.width = n, k, dtype, lanes_of(dtype)
        self.together = _ROWS if n >= _ROWS else 1
        self.copies = 2 * _ROWS // self.together  # sums of each row

    def write(self, loops: Shape) -> None:
        operands = self.column, self.rows, self.out
        self.code.nest(loops, [x.place for x in operands], [x.loops for x in operands], self._each)

    def _each(self, places: list[str]) -> None:
        code, (column, rows, out) = self.code, places

        def some(at: str) -> None:
            for r, total in enumerate(self._sums(column, code.advance_address(rows, at, self.rows.free))):
                place = code.advance_address(code.advance_address(out, at, self.out.con), "1", r * self.out.con)
                code.at(1).write(total, place, (1,), (0,))

        code.row(self.n, some, self.together)

    def _sums(self, column: str, rows: str) -> list[Lane]:
        code, width = self.code.at(self.width), self.width
        zero = code.constant(0, self.dtype)
        stride = width * self.copies
        whole = self.k - self.k % stride

        def add_vectors(i: str, held: list[str], counted: Lane | None = None) -> list[str]:
            """The sums with the vectors from element i on, one for each copy; of the last vector those lanes that are `counted`."""
            out = list(held)
            for c in range(len(held) // self.together):
                one = self._vector(column, i, c * width)
                for r in range(self.together):
                    row = code.advance_address(rows, "1", r * self.rows.free)
                    at = c * self.together + r
                    old = Lane(held[at], self.dtype)
                    new = code.fma(one, self._vector(row, i, c * width), old)
                    out[at] = (new if counted is None else code.select(counted, new, old)).ref
            return out

        kind = code.vector(zero.type)
        sums = code.loop(
            0,
            whole,
            lambda i, held: add_vectors(i, held),
            [(kind, zero.ref)] * (self.copies * self.together),
            step=stride,
        )
        head, rest = sums[: self.together], sums[self.together :]
        for i in range(whole, self.k - width + 1, width):
            head = add_vectors(str(i), head)
        if self.k % width:  # the last vector, without what has been counted
            again = code.constant(width - self.k % width, "int32")
            head = add_vectors(str(self.k - width), head, code.compare("ge", code.sequence("int32"), again))
        totals = list[Lane]()
        for r in range(self.together):
            total = Lane(head[r], self.dtype)
            for ref in rest[r :: self.together]:
                total = code.add(total, Lane(ref, self.dtype))
            by = width // 2
            while by:
                total = code.add(total, code.rotate_lanes(total, by))
                by //= 2
            totals.append(code.shuffle_lanes(total, width, [0]))
            code.at(width)
        return totals

    def _vector(self, place: str, i: str, further: int) -> Lane:
        code, size = self.code, self.column.con
        return code.read(
            code.advance_address(code.advance_address(place, i, size), "1", further * size),
            (self.width,),
            (size,),
            self.dtype,
        )
