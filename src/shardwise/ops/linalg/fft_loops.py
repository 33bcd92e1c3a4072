"""Fourier transforms whose lengths are powers of two, many at once: each lane of a register has a transform of its own.

Comes in: complex rows. Goes out: their transforms along the last dims. A unit of work is a register of transforms. It reads them into
memory of its thread, element by element, real parts beside imaginary ones; there it goes through them in place, radix by radix from the
longest distance down; and writes the elements where they belong. So no step within a transform crosses lanes, and whatever else is
computed beside a transform, its bits are the same.

Elements that lie side by side in memory become lanes by transposing squares; along other dims than the last one they lie as lanes do.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.locks import free_lock
from shardwise.base.shapes import Ndarray, Shape
from shardwise.runtime.address import address
from shardwise.runtime.loops import Call, Function, Kernel, lanes_of
from shardwise.runtime.machine import Lane, available, itemsize, start_thread, thread_count
from shardwise.runtime.memory import pool

_PARTS = {"complex64": "float32", "complex128": "float64"}
_LARGEST = 1 << 19  # bytes of a register of transforms, which the second-level cache holds
_NEAR = 1 << 15  # bytes that the first-level cache holds
_UNIT = 1 << 14  # elements that a thread takes at a time
_THREADS_FROM = 1 << 16  # elements, some 100 us of a thread, from which a second one pays
# Nanoseconds that a draft takes longer for an element.
_DRAFT = 4.0

Complex = tuple[Lane, Lane]
_NUMBERS = ("units", "count", "chunk", "outer", "from", "to", "element")
_POINTERS = ("source", "target", "scratch", "factors", "places")


@dataclass(frozen=True, slots=True)
class RadixForm:
    """A kind of transform.

    Attributes:
        size: its elements, a power of two.
        part: the dtype of real and imaginary parts.
        lanes: transforms of a unit of work.
        inverse: whether it is the inverse one.
        across: whether transforms lie side by side, element by element; else each is a row.
    """

    size: int
    part: str
    lanes: int
    inverse: bool
    across: bool

    @property
    def cell(self) -> int:
        """Bytes of an element of all lanes."""
        return 2 * self.lanes * itemsize(self.part)

    @property
    def radices(self) -> list[int]:
        """Fours, and an eight in the end where a two would be left."""
        twos = self.size.bit_length() - 1
        return [4] * ((twos - 2) // 2) + [8 if twos % 2 else 4]


def fits(x: Ndarray, lengths: Sequence[int]) -> bool:
    """Whether transforms of the last dims of `x` run here, if it is dense."""
    part = _PARTS.get(x.dtype.name)
    if part is None or not x.dtype.isnative or not available():
        return False
    lanes, rest, shape = lanes_of(part), x.size // lengths[-1], x.shape
    if any(n & (n - 1) or n < max(4, lanes // 2) or 2 * n * lanes * itemsize(part) > _LARGEST for n in lengths):
        return False
    inner = [math.prod(shape[d + 1 :]) for d in range(x.ndim - len(lengths), x.ndim - 1)]
    return rest >= lanes and all(n % lanes == 0 for n in inner)


def transform(x: Ndarray, lengths: Sequence[int], inverse: bool) -> Ndarray:
    """The transforms of the last dims of a dense block."""
    out = pool.empty(x.shape, x.dtype)
    part = _PARTS[x.dtype.name]
    lanes = lanes_of(part)
    dims = range(x.ndim - 1, x.ndim - 1 - len(lengths), -1)
    forms = [RadixForm(x.shape[d], part, lanes, inverse, d < x.ndim - 1) for d in dims]
    for form in dict.fromkeys(forms[1:]):  # while the first dim is transformed
        _make_radix_loop(form)[0].expect(_DRAFT * x.size)
    for d, form in zip(dims, forms, strict=True):
        _run(form, x if not form.across else out, out, x.shape, d)
    return out


def _run(form: RadixForm, x: Ndarray, out: Ndarray, shape: Shape, d: int) -> None:
    """The transforms along one dim."""
    n, size = form.size, x.dtype.itemsize
    inner = math.prod(shape[d + 1 :])
    outer, count = (math.prod(shape[:d]), inner) if form.across else (1, math.prod(shape[:d]))
    groups = -(-count // form.lanes)
    chunk = max(1, min(_UNIT // (n * form.lanes), -(-groups // 16)))
    parts = -(-groups // chunk)
    threads = min(thread_count(), outer * parts) if x.size >= _THREADS_FROM else 1
    step = size if form.across else n * size
    job = (outer * parts, count, chunk, parts, n * inner * size, step, inner * size)
    scratch = pool.empty((threads * n * form.cell,), np.uint8)
    kernel, factors, places = _make_radix_loop(form)
    call = Call(kernel.get(_DRAFT * x.size), job, len(_POINTERS), threads)
    call(*map(address, (x, out, scratch, factors, places)))


@recent(64)
def _make_radix_loop(form: RadixForm) -> tuple[_Kernel, Ndarray, Ndarray]:
    """The function, the factors of all steps, and where the results lie after them."""
    return _Kernel(form), _factors(form), _places(form)


class _Kernel:
    """The function of a form, made when it is first needed, or ahead of that."""

    def __init__(self, form: RadixForm) -> None:
        self._form = form
        self._lock = free_lock()
        self._made: Kernel | None = None
        self._expected = False

    def get(self, slower: float, ahead: bool = False) -> Kernel:
        """The function; `slower`: nanoseconds that its first call would take longer as a draft."""
        if self._made is None:
            with self._lock:
                if self._made is None:
                    self._made = _Unit(self._form).function().compile_function(slower, ahead)
        return self._made

    def expect(self, slower: float) -> None:
        """Have it made in another thread."""
        if self._made is None and not self._expected:
            self._expected = True
            start_thread(self._make_ahead, slower)

    def _make_ahead(self, slower: float) -> None:
        with contextlib.suppress(RuntimeError, OSError, MemoryError):  # the transform that needs it will raise
            self.get(slower, ahead=True)


def _factors(form: RadixForm) -> Ndarray:
    """The roots of unity for results 1, 2 and 3 of each step but the last, element by element of a block."""
    factors, left = [], form.size
    for radix in form.radices[:-1]:
        turns = np.arange(left // radix)[:, None] * np.arange(1, radix) / left
        factors.append(np.stack([np.cos(2 * np.pi * turns), -np.sin(2 * np.pi * turns)], -1).ravel())
        left //= radix
    return np.concatenate([*factors, np.zeros(2)]).astype(form.part)


def _places(form: RadixForm) -> Ndarray:
    """The offset of each element of the result, in bytes: its digits are reversed."""
    left, rest, place = form.size, np.arange(form.size), np.zeros(form.size, np.int64)
    for radix in form.radices:
        left //= radix
        place += rest % radix * left
        rest //= radix
    return place * form.cell


class _Unit:
    """Writes the function."""

    def __init__(self, form: RadixForm) -> None:
        self.form = form
        self.w = Function(form.lanes, _NUMBERS, _POINTERS)
        self.bytes = itemsize(form.part)
        # With real and imaginary parts exchanged on the way in and on the way out, a transform is the inverse one.
        self.halves = (form.lanes * self.bytes, 0) if form.inverse else (0, form.lanes * self.bytes)

    def function(self) -> Function:
        """All units that a thread takes."""
        w, form = self.w, self.form
        thread = w.ticket(w.element("%counter", 1, "int64"))
        self.own = w.advance_address("%scratch", thread, form.size * form.cell)

        def unit(number: str) -> None:
            block, part = w.split(number, ["%units", "%outer"])
            begin = w.integer("mul", w.integer("mul", part, "%chunk"), form.lanes)
            end = w.least("%count", w.integer("add", begin, w.integer("mul", "%chunk", form.lanes)))
            last = w.integer("sub", "%count", form.lanes)
            source, target = (w.advance_address(place, block, "%from") for place in ("%source", "%target"))

            def group(first: str, _: list[str]) -> None:
                at = w.least(first, last)  # the last register of them ends with the rows
                self._transform(w.advance_address(source, at, "%to"), w.advance_address(target, at, "%to"))

            w.loop(begin, end, group, step=form.lanes)

        w.units("%units", unit)
        return w

    def _transform(self, source: str, target: str) -> None:
        (self._columns if self.form.across else self._rows)(source)
        self._steps(self.own, self.form.size, self.form.radices, 0)
        (self._to_columns if self.form.across else self._to_rows)(target)

    # -- memory ----------------------------------------------------------------------------------------------------------

    def _get(self, cell: str) -> Complex:
        real, imag = (self.w.load(self.w.advance_address(cell, 1, half), self.form.part) for half in self.halves)
        return real, imag

    def _put(self, value: Complex, cell: str) -> None:
        for x, half in zip(value, self.halves, strict=True):
            self.w.store(x, self.w.advance_address(cell, 1, half))

    def _scale_inverse(self, x: Lane) -> Lane:
        return self.w.mul(x, self.w.like(1 / self.form.size, x)) if self.form.inverse else x

    def _result(self, k: int | str) -> tuple[Lane, Lane]:
        """The real and imaginary parts of element `k` of the results."""
        w = self.w
        cell = w.advance_address(self.own, 1, w.entry("%places", k))
        real, imag = (
            w.load(w.advance_address(cell, 1, half), self.form.part) for half in (0, self.form.lanes * self.bytes)
        )
        return self._scale_inverse(real), self._scale_inverse(imag)

    def _rows(self, source: str) -> None:
        """Read a square of all rows' parts at a time."""
        w, lanes = self.w, self.form.lanes

        def square(k: str, _: list[str]) -> None:
            first = w.advance_address(source, k, self.bytes)
            lines = [w.load(w.advance_address(first, r, "%to"), self.form.part) for r in range(lanes)]
            cell = w.advance_address(self.own, k, lanes * self.bytes)
            for i, line in enumerate(w.transpose_rows(lines)):
                w.store(line, w.advance_address(cell, i, lanes * self.bytes))

        w.loop(0, 2 * self.form.size, square, step=lanes)

    def _to_rows(self, target: str) -> None:
        w, lanes = self.w, self.form.lanes

        def square(k: str, _: list[str]) -> None:
            cells = [x for e in range(lanes // 2) for x in self._result(w.integer("add", k, e))]
            first = w.advance_address(target, k, 2 * self.bytes)
            for r, line in enumerate(w.transpose_rows(cells)):
                w.store(line, w.advance_address(first, r, "%to"))

        w.loop(0, self.form.size, square, step=lanes // 2)

    def _columns(self, source: str) -> None:
        w, dtype = self.w, "complex64" if self.form.part == "float32" else "complex128"

        def element(k: str, _: list[str]) -> None:
            real, imag = w.parts_of(w.load(w.advance_address(source, k, "%element"), dtype))
            cell = w.advance_address(self.own, k, self.form.cell)
            w.store(real, cell)
            w.store(imag, w.advance_address(cell, 1, self.form.lanes * self.bytes))

        w.loop(0, self.form.size, element)

    def _to_columns(self, target: str) -> None:
        w = self.w

        def element(k: str, _: list[str]) -> None:
            w.store(w.complex_of(*self._result(k)), w.advance_address(target, k, "%element"))

        w.loop(0, self.form.size, element)

    # -- steps -----------------------------------------------------------------------------------------------------------

    def _steps(self, begin: str, size: int, radices: Sequence[int], factors: int) -> None:
        """All steps of a block. Where the first-level cache does not hold it, its parts go through all further ones by themselves."""
        w, cell = self.w, self.form.cell
        radix, *rest = radices
        self._step(begin, size, radix, size, factors)
        part = size // radix
        after = factors + 2 * (radix - 1) * part
        if size * cell > _NEAR:
            if rest:
                w.loop(0, radix, lambda b, _: self._steps(w.advance_address(begin, b, part * cell), part, rest, after))
            return
        for radix in rest:
            self._step(begin, size, radix, part, after)
            part //= radix
            after += 2 * (radix - 1) * part

    def _step(self, begin: str, count: int, radix: int, size: int, factors: int) -> None:
        """Blocks of `size` of `count` elements, each as transforms of `radix` elements at equal distances. `factors`: where they begin."""
        w, cell, apart = self.w, self.form.cell, size // radix
        blocks = count // size

        def one(block: str, element: str, turns: Sequence[Complex]) -> None:
            place = w.advance_address(w.advance_address(begin, block, size * cell), element, cell)
            cells = [w.advance_address(place, 1, k * apart * cell) for k in range(radix)]
            outputs = _butterfly(w, [self._get(c) for c in cells])
            turned_outputs = (
                [outputs[0], *(_product(w, x, t) for x, t in zip(outputs[1:], turns, strict=True))]
                if turns
                else outputs
            )
            for x, c in zip(turned_outputs, cells, strict=True):
                self._put(x, c)

        def turns_of(element: str) -> list[Complex]:
            if apart == 1:
                return []
            place = w.advance_address("%factors", 1, factors * self.bytes)
            place = w.advance_address(place, element, 2 * (radix - 1) * self.bytes)
            parts = [w.scalar(w.advance_address(place, i, self.bytes), self.form.part) for i in range(2 * (radix - 1))]
            return list(zip(parts[::2], parts[1::2], strict=True))

        def block_by_block(b: str, _: list[str]) -> None:
            w.loop(0, apart, lambda j, _: one(b, j, turns_of(j)))

        def element_by_element(j: str, _: list[str]) -> None:
            turns = turns_of(j)  # the same for all blocks
            w.loop(0, blocks, lambda b, _: one(b, j, turns))

        if apart >= blocks:
            w.loop(0, blocks, block_by_block)
        else:
            w.loop(0, apart, element_by_element)


def _product(w: Function, x: Complex, y: Complex) -> Complex:
    (a, b), (c, d) = x, y
    return w.fma(a, c, w.neg(w.mul(b, d))), w.fma(a, d, w.mul(b, c))


def _butterfly(w: Function, x: Sequence[Complex]) -> list[Complex]:
    """The transform of 4 or 8 elements."""
    if len(x) == 4:
        (s, d), (t, e) = ((_plus(w, a, b), _minus(w, a, b)) for a, b in ((x[0], x[2]), (x[1], x[3])))
        right = e[1], w.neg(e[0])  # a quarter turn back
        return [_plus(w, s, t), _plus(w, d, right), _minus(w, s, t), _minus(w, d, right)]
    even, odd = _butterfly(w, x[::2]), _butterfly(w, x[1::2])
    half = w.like(math.sqrt(0.5), x[0][0])
    (a, b), (c, d), (e, f) = odd[1:]
    turned_odd = [
        odd[0],
        (w.mul(half, w.add(a, b)), w.mul(half, w.sub(b, a))),
        (d, w.neg(c)),
        (w.mul(half, w.sub(f, e)), w.neg(w.mul(half, w.add(e, f)))),
    ]
    pairs: list[Any] = list(zip(even, turned_odd, strict=True))
    return [_plus(w, a, b) for a, b in pairs] + [_minus(w, a, b) for a, b in pairs]


def _plus(w: Function, x: Complex, y: Complex) -> Complex:
    return w.add(x[0], y[0]), w.add(x[1], y[1])


def _minus(w: Function, x: Complex, y: Complex) -> Complex:
    return w.sub(x[0], y[0]), w.sub(x[1], y[1])
