"""Matrix products by our own OpenBLAS, cut into tasks that any number of threads work through.

Comes in: shapes, strides and type of ``a (..., m, k)``, ``b (..., k, n)`` and ``out (..., m, n)``, whose batch dims broadcast. Goes
out: a function of such arrays, made once and called often. Transposed operands are passed as flags, so nothing is copied. A task
is one product, or a tile of the rows and columns of one; tasks are listed by their offsets in memory, and threads take them from
a shared counter.

Threads run the list in machine code where that can be compiled (`walk`), so that many small products cost no Python each.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from shardwise.base.caches import Bounded, at_clear, recent
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.shapes import Ints, Ndarray
from shardwise.runtime import costs
from shardwise.runtime.address import address
from shardwise.runtime.loops import Call
from shardwise.runtime.machine import address_of, helpers, run_in_parts, start_thread, thread_count
from shardwise.runtime.products import amx, blas, layers, lines, shallow, skinny
from shardwise.runtime.products.stacked import stacked_product
from shardwise.runtime.products.walk import task_walker

Product = Callable[[Ndarray, Ndarray, Ndarray], object]  # (a, b, out)

_GRAIN = 16  # cuts fall on multiples of this

_Task = tuple[int, int, int, int, int]  # offsets in bytes of a, b and out; two sizes


def product_threads() -> int:
    """How many threads a product may use: as OpenBLAS reads the environment, but at most the processors that we may use."""
    return thread_count("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS")


def threads_for(work: int) -> int:
    """How many threads `work` multiplications are worth."""
    return product_threads() if work >= costs.PRODUCT_ROUSES else 1


def expect(char: str, turned: tuple[bool, bool], m: int, n: int, k: int) -> None:
    """Have what products of these sizes will probably need made or loaded in the background; `turned`: which operands lie transposed."""
    work = m * n * k
    if work <= costs.PRODUCT_NUMPYS:
        return
    left, right = (blas.TRANSPOSED if t else blas.PLAIN for t in turned)
    pieces = product_threads() if work >= costs.PRODUCT_SHARED else 1
    called = blas.convention()
    if called is None:
        return
    integer = ctypes.sizeof(called.integer)
    if layers.pays(char, right, m, n, k) or lines.pays(char, left, right, m, n, k):
        if work >= costs.FEW_NO_DRAFT:
            _prepare_few(char, left, right, m, n, k, integer)
    elif skinny.pays(char, right, m, n, k, n):
        skinny.prepare(char, left, m, n, k, integer)
    elif not shallow.pays_cold(char, left, m // pieces, n, k, n):
        blas.prepare()
    elif work >= costs.SHALLOW_NO_DRAFT:
        shallow.prepare(char, left, right, min(n, shallow.WIDEST + 1), integer)


@recent(256)
def _prepare_few(char: str, left: int, right: int, m: int, n: int, k: int, integer: int) -> None:
    """Have the function for a product of few rows or columns made in another thread."""

    def prepare() -> None:
        with contextlib.suppress(RuntimeError, OSError, MemoryError):  # the product that needs it will raise
            few = _few(char, left, right, m, n, k)
            if few is not None:
                few(integer, math.inf)

    start_thread(prepare)


def _few(char: str, left: int, right: int, m: int, n: int, k: int) -> Callable[[int, float], int] | None:
    """If our function for few rows or columns computes a product best: ``(bytes of an integer, multiplications) -> its address``."""
    if layers.fits(char, right, m, n, k):
        return lambda integer, work: layers.function(char, left, m, integer, work)
    if lines.fits(char, left, right, m, n, k):
        return lambda integer, work: lines.function(char, left, right, m, n, k, integer, work)
    return None


def product_for(a: Ndarray, b: Ndarray, out: Ndarray, limit: int | None = None) -> Product:
    """The fastest way to compute ``out[...] = a @ b`` for arrays of these shapes and strides, all of one dtype, with at most
    `limit` threads.
    """
    return _plan(a, b, out, limit) or by_numpy


def narrow_product(a: Ndarray, b: Ndarray, out: Ndarray) -> Product | None:
    """How to compute ``out[...] = a @ b`` for operands of small types and 32-bit sums, where the processor can."""
    return amx.product(a, b, out, product_threads())


_plans: Bounded[Any, Product] = Bounded()
at_clear(_plans.clear)


def matmul(a: Ndarray, b: Ndarray, out: Ndarray, limit: int | None = None) -> None:
    """``out[...] = a @ b`` with at most `limit` threads; remembers how for shapes and strides like these."""
    key = limit, out.dtype.char, a.shape, a.strides, b.shape, b.strides, out.shape, out.strides
    product = _plans.get(key)
    if product is None:
        product = _plans[key] = product_for(a, b, out, limit)
    product(a, b, out)


def by_numpy(a: Ndarray, b: Ndarray, out: Ndarray) -> None:
    """The product as NumPy computes it."""
    np.matmul(a, b, out=out)


def _plan(a: Ndarray, b: Ndarray, out: Ndarray, limit: int | None) -> Product | None:
    char = out.dtype.char
    if char not in "fdFD" or not out.size or not a.size or not out.dtype.isnative:
        return None
    (m, k), n = a.shape[-2:], b.shape[-1]
    batch = out.shape[:-2]
    count = math.prod(batch)
    each = m * n * k * (4 if char in "FD" else 1)
    line = m == 1 or n == 1
    stacked = stacked_product(a, b, out)
    if stacked is not None:
        return stacked
    if each <= (costs.LINE_NUMPYS if line else costs.PRODUCT_NUMPYS):
        return _shared_by_numpy(batch, threads_for(count * each) if limit is None else limit)
    called = blas.convention()
    if called is None:
        return None
    form = _matrix_form(a, b, out)
    few = None if form is None else _few(char, form.fixed[0], form.fixed[1], *form.sizes(m, n), k)
    if line and few is None:
        form = _line_form(a, b, out)
    if form is None:
        return None
    line = line and few is None
    memory = costs.LINE_SHARED * min(m, n)  # where few rows or columns pass by a matrix, memory sets the pace
    threads = limit or (product_threads() if count * each >= min(costs.PRODUCT_SHARED, memory) else 1)
    pieces = 1
    if threads > 1 and count < 4 * threads:
        # One piece for each thread keeps caches warm; of long work, two even out what else the processors do.
        parts = threads * (2 if count * each >= threads * costs.PRODUCT_LONG else 1)
        pieces = min(-(-parts // count), max(1, each // min(costs.PRODUCT_TASK, memory // 2)))
    first, second = (b, a) if form.swapped else (a, b)
    integer = ctypes.sizeof(called.integer)
    if few is not None:
        tiles, ours = form.tiles(pieces), few(integer, count * each)
    elif line:
        tiles, ours = form.tiles(pieces), None
    else:
        tiles, ours = _tiles(char, form, form.sizes(m, n), pieces, integer, count * each)
    if ours is not None:
        function = ctypes.CFUNCTYPE(None, *called.gemm[char])(ours)
    elif (mine := blas.library()) is not None:
        function = (mine.gemv if line else mine.gemm)[char]
    else:
        return None
    tasks = _tasks(first, second, out, batch, tiles)
    rouse = count * each >= min(costs.PRODUCT_ROUSES, memory)
    return _TaskList(called, char, line, function, form, tasks, threads, rouse)


def _tiles(
    char: str, form: _Form, sizes: tuple[int, int], pieces: int, integer: int, work: int
) -> tuple[list[_Task], int | None]:
    """The tasks of a product of these `sizes`, and the address of our own function if that computes them best."""
    left, right, depth, _, _, step = form.fixed
    if skinny.fits(char, right, *sizes, depth, step):  # asked for the whole product: results do not depend on threads
        parts = -(-math.prod(sizes) * np.dtype(char).itemsize // costs.SKINNY_RESULT)
        return form.tiles(max(pieces, parts)), skinny.function(char, left, sizes[0], integer, work)
    tiles = form.tiles(pieces)
    if all(shallow.fits_cold(char, left, *task[3:], depth, step) for task in tiles):
        return tiles, shallow.function(char, left, right, sizes[1], integer, work)
    return tiles, None


def _tasks(a: Ndarray, b: Ndarray, out: Ndarray, batch: Ints, tiles: list[_Task]) -> Ndarray:
    """Tiles of one product, for every product of the batch."""
    starts = np.stack([matrices_begin(x, batch) for x in (a, b, out)], axis=1)
    full = np.zeros((len(starts), len(tiles), 5), np.int64)
    full += np.array(tiles, np.int64)
    full[:, :, :3] += starts[:, None, :]
    return full.reshape(-1, 5)


def matrices_begin(x: Ndarray, batch: Ints) -> Ndarray:
    """Where the matrices of `x`, broadcast to `batch`, begin: bytes from its first element."""
    total = np.zeros((), np.int64)
    shape = (1,) * (len(batch) + 2 - x.ndim) + x.shape[:-2]
    steps = (0,) * (len(batch) + 2 - x.ndim) + x.strides[:-2]
    for size, own, step in zip(batch, shape, steps, strict=True):
        total = total[..., None] + np.arange(size, dtype=np.int64) * (0 if own == 1 else step)
    return total.reshape(-1)


def matrix_layout(shape: Ints, strides: Ints, itemsize: int) -> tuple[int, int] | None:
    """How BLAS reads matrices, the last two dims: plain or transposed, and the elements from line to line; None if it cannot."""
    (rows, columns), (down, across) = shape[-2:], strides[-2:]
    for flag, count, length, far, near in (
        (blas.PLAIN, rows, columns, down, across),
        (blas.TRANSPOSED, columns, rows, across, down),
    ):
        if (near == itemsize or length == 1) and (count == 1 or (far % itemsize == 0 and far >= length * itemsize)):
            return flag, far // itemsize if count > 1 else length
    return None


@dataclass(frozen=True, slots=True)
class _Form:
    """How the library's function is called for all tasks of a product, and how the product is cut.

    Args:
        swapped: whether the operands are exchanged.
        fixed: two flags, the depth, and the elements from line to line of a, b and out.
        tiles: the tasks of one product cut in so many pieces.
    """

    swapped: bool
    fixed: tuple[int, ...]
    tiles: Callable[[int], list[_Task]]

    def sizes(self, m: int, n: int) -> tuple[int, int]:
        """Rows and columns of the result that is computed."""
        return (n, m) if self.swapped else (m, n)


def _matrix_form(a: Ndarray, b: Ndarray, out: Ndarray) -> _Form | None:
    left, right, target = (matrix_layout(x.shape, x.strides, x.itemsize) for x in (a, b, out))
    if left is None or right is None or target is None:
        return None
    (m, k), n = a.shape[-2:], b.shape[-1]
    if target[0] == blas.TRANSPOSED:  # then the transposed product is wanted in plain form
        left, right = right, left
        flags = [blas.PLAIN if f[0] == blas.TRANSPOSED else blas.TRANSPOSED for f in (left, right)]
    else:
        flags = [left[0], right[0]]
    swapped = target[0] == blas.TRANSPOSED

    def tiles(pieces: int) -> list[_Task]:
        down, across = _cuts(m, n, pieces)
        found = list[_Task]()
        for i, j in itertools.product(_parts(m, down), _parts(n, across)):
            at_a, at_b = i.start * a.strides[-2], j.start * b.strides[-1]
            at_out = i.start * out.strides[-2] + j.start * out.strides[-1]
            found.append((at_b, at_a, at_out, len(j), len(i)) if swapped else (at_a, at_b, at_out, len(i), len(j)))
        return found

    return _Form(swapped, (*flags, k, left[1], right[1], target[1]), tiles)


def _line_form(a: Ndarray, b: Ndarray, out: Ndarray) -> _Form | None:
    """A matrix times a vector; `a` and `b` are exchanged where the vector stands on the left."""
    swapped = out.shape[-1] != 1
    matrix = b.swapaxes(-1, -2) if swapped else a
    layout = matrix_layout(matrix.shape, matrix.strides, matrix.itemsize)
    step_in, step_out = (a.strides[-1], out.strides[-1]) if swapped else (b.strides[-2], out.strides[-2])
    rows, depth = matrix.shape[-2:]
    steps = [step // out.itemsize if extent > 1 else 1 for step, extent in ((step_in, depth), (step_out, rows))]
    if layout is None or any(s <= 0 for s in steps) or step_in % out.itemsize or step_out % out.itemsize:
        return None

    def tiles(pieces: int) -> list[_Task]:
        found = list[_Task]()
        for part in _parts(rows, min(pieces, max(1, rows // costs.PRODUCT_LEAST_TILE))):
            sizes: tuple[int, int] = (len(part), depth) if layout[0] == blas.PLAIN else (depth, len(part))
            place = part.start * matrix.strides[-2], 0, part.start * steps[1] * out.itemsize
            found.append((*place, *sizes))
        return found

    return _Form(swapped, (layout[0], 0, 0, layout[1], *steps), tiles)


def _cuts(m: int, n: int, pieces: int) -> tuple[int, int]:
    """In how many parts to cut rows and columns. The longer side first: each piece lays out a part of the larger operand then and all of
    the smaller one, not the other way round. Rows of a square: uncut rows of `b` and `out` are read in longer runs.
    """
    if pieces == 1:
        return 1, 1
    if n > m:
        across, down = _cuts(n, m, pieces)
        return down, across
    for least in (costs.PRODUCT_TILE, costs.PRODUCT_LEAST_TILE):
        down = min(pieces, max(1, m // least))
        across = min(-(-pieces // down), max(1, n // least))
        if down * across >= pieces:
            break
    return down, across


def _parts(size: int, count: int) -> list[range]:
    """`range(size)` in about `count` parts that begin at multiples of the grain."""
    step = _step(size, count)
    return [range(i, min(i + step, size)) for i in range(0, size, step)]


def _step(size: int, count: int) -> int:
    """The size of these parts."""
    step = -(-size // count)
    return -(-step // _GRAIN) * _GRAIN if count > 1 else step


class _TaskList:
    """A list of tasks that is worked through by our own library."""

    __slots__ = ("_arguments", "_function", "_line", "_rouse", "_swapped", "_tasks", "_threads", "_walk")

    def __init__(
        self,
        called: blas.Convention,
        char: str,
        line: bool,
        function: Any,
        form: _Form,
        tasks: Ndarray,
        threads: int,
        rouse: bool,
    ) -> None:
        count = len(tasks)
        # Few tasks are taken one by one; of many, each thread takes a sixteenth of its share at a time.
        chunk = max(1, count // (16 * threads))
        one, zero = called.one[char], called.zero[char]
        self._swapped = form.swapped
        self._line = line
        self._threads = min(threads, count)
        self._rouse = rouse
        self._function = function
        self._arguments = *form.fixed, one, zero
        many = count > (1 if threads > 1 else costs.PRODUCT_LISTED)
        kernel = task_walker(char, line, ctypes.sizeof(called.integer)) if many else None
        self._tasks: list[list[int]] = tasks.tolist() if kernel is None else []
        self._walk: Call | None = None
        if kernel is not None:
            numbers = (one, zero) if char in "FD" else (0, 0)
            head = np.array([address_of(function), count, chunk, *numbers, *form.fixed], np.int64)
            self._walk = Call(kernel, np.concatenate([head, tasks.reshape(-1)]), 3, self._threads)

    def __call__(self, a: Ndarray, b: Ndarray, out: Ndarray) -> None:
        if self._swapped:
            a, b = b, a
        if self._walk is not None:
            self._walk(address(a), address(b), address(out), rouse=self._rouse)
            return
        places = address(a), address(b), address(out)
        tasks = iter(self._tasks)  # a shared counter: taking the next is one step
        if self._threads == 1:
            self._work(tasks, *places)
        else:
            helpers.run(lambda: self._work(tasks, *places), self._threads)

    def _work(self, tasks: Any, first: int, second: int, out: int) -> None:
        call, (left, right, depth, lda, ldb, ldc, one, zero) = self._function, self._arguments
        if self._line:
            for at_a, at_x, at_y, m, n in tasks:
                call(blas.ROW_MAJOR, left, m, n, one, first + at_a, lda, second + at_x, ldb, zero, out + at_y, ldc)
            return
        for at_a, at_b, at_out, m, n in tasks:
            call(
                blas.ROW_MAJOR,
                left,
                right,
                m,
                n,
                depth,
                one,
                first + at_a,
                lda,
                second + at_b,
                ldb,
                zero,
                out + at_out,
                ldc,
            )


def _shared_by_numpy(batch: Ints, threads: int) -> Product | None:
    """NumPy's small products, the longest batch dim shared among threads."""
    if threads == 1 or max(batch, default=1) < 2:
        return None
    dim = max(range(len(batch)), key=lambda d: batch[d])
    size, at = batch[dim], dim - len(batch)
    step = _step(size, 4 * threads) if size >= 4 * threads * _GRAIN else 1

    def run(a: Ndarray, b: Ndarray, out: Ndarray) -> None:
        run_in_parts(
            lambda run: np.matmul(_cut(a, at, run), _cut(b, at, run), out=_cut(out, at, run)), size, step, threads
        )

    return run


def _cut(x: Ndarray, dim: int, run: slice) -> Ndarray:
    """The part of `x` along a batch dim, counted from the end of those; whole where `x` broadcasts."""
    at = x.ndim - 2 + dim
    return x if at < 0 or x.shape[at] == 1 else x[(*[slice(None)] * at, run)]
