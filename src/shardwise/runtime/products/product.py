"""Matrix products by our own OpenBLAS, cut into tasks that any number of threads work through.

Comes in: shapes, strides and type of ``a (..., m, k)``, ``b (..., k, n)`` and ``out (..., m, n)``, whose batch dims broadcast. Goes
out: a function of such arrays, made once and called often. Transposed operands are passed as flags, so nothing is copied. A task
is one product, or a tile of the rows and columns of one; tasks are listed by their offsets in memory, and threads take them from
a shared counter.

Threads run the list in machine code where that can be compiled (`_walker`), so that many small products cost no Python each.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from shardwise.base.caches import Bounded, at_clear
from shardwise.runtime.machine import llvm
from shardwise.runtime.machine.standby import standby
from shardwise.runtime.machine.threads import helpers, thread_count
from shardwise.runtime.products import amx, blas, shallow

NDArray = np.ndarray[Any, Any]
Product = Callable[[NDArray, NDArray, NDArray], object]  # (a, b, out)

# Work is counted in multiplications of real numbers.
_NUMPYS = 1 << 18  # up to here NumPy's library computes a product in the calling thread, and its call costs less
_NUMPYS_LINE = 9216  # the same for a matrix times a vector
_THREADED = 1 << 23  # from here a second thread pays if it is awake
_ROUSED = 1 << 24  # from here it pays to wake one
_TASK = 1 << 23  # the least that a task of its own should have
_LONG = 1 << 27  # a thread's share of work that takes milliseconds
_THREADED_LINE = 1 << 20  # for a matrix times a vector, where memory sets the pace
_TILE = 128  # rows and columns below which products are not cut if there are other ways
_LEAST_TILE = 64
_MANY = 4  # tasks from which Python would be felt between them
_GRAIN = 16  # cuts fall on multiples of this

Ints = tuple[int, ...]
_Task = tuple[int, int, int, int, int]  # offsets in bytes of a, b and out; two sizes


def product_threads() -> int:
    """How many threads a product may use: as OpenBLAS reads the environment, but at most the processors that we may use."""
    return thread_count("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS")


def threads_for(work: int) -> int:
    """How many threads so many multiplications are worth."""
    return product_threads() if work >= _ROUSED else 1


def expect(work: int) -> None:
    """Have our library loaded, in the background, if products of so much work will need it."""
    if work > _NUMPYS:
        blas.prepare()


def product_for(a: NDArray, b: NDArray, out: NDArray, limit: int | None = None) -> Product:
    """The fastest way to compute ``out[...] = a @ b`` for arrays of these shapes and strides, all of one dtype, with at most
    `limit` threads.
    """
    return _plan(a, b, out, limit) or by_numpy


def narrow_product(a: NDArray, b: NDArray, out: NDArray) -> Product | None:
    """How to compute ``out[...] = a @ b`` for operands of small types and 32-bit sums, where the processor can."""
    return amx.product(a, b, out, product_threads())


_plans: Bounded[Any, Product] = Bounded()
at_clear(_plans.clear)


def matmul(a: NDArray, b: NDArray, out: NDArray, limit: int | None = None) -> None:
    """``out[...] = a @ b`` with at most `limit` threads; remembers how for shapes and strides like these."""
    key = limit, out.dtype.char, a.shape, a.strides, b.shape, b.strides, out.shape, out.strides
    product = _plans.get(key)
    if product is None:
        product = _plans[key] = product_for(a, b, out, limit)
    product(a, b, out)


def by_numpy(a: NDArray, b: NDArray, out: NDArray) -> None:
    """The product as NumPy computes it."""
    np.matmul(a, b, out=out)


def _plan(a: NDArray, b: NDArray, out: NDArray, limit: int | None) -> Product | None:
    char = out.dtype.char
    if char not in "fdFD" or not out.size or not a.size or not out.dtype.isnative:
        return None
    (m, k), n = a.shape[-2:], b.shape[-1]
    batch = out.shape[:-2]
    count = math.prod(batch)
    each = m * n * k * (4 if char in "FD" else 1)
    line = m == 1 or n == 1
    if each <= (_NUMPYS_LINE if line else _NUMPYS):
        return _shared_by_numpy(batch, threads_for(count * each) if limit is None else limit)
    mine = blas.library()
    if mine is None:
        return None
    call = _line_call(a, b, out) if line else _matrix_call(a, b, out)
    if call is None:
        return None
    fixed, tile = call
    worth = count * each >= _THREADED_LINE if line else count * each >= _THREADED
    threads = limit or (product_threads() if worth else 1)
    pieces = 1
    if threads > 1 and count < 4 * threads:
        # One piece for each thread keeps caches warm; of long work, two even out what else the processors do.
        parts = threads * (2 if count * each >= threads * _LONG else 1)
        pieces = min(-(-parts // count), max(1, each // (_THREADED_LINE // 2 if line else _TASK)))
    first, second = (b, a) if fixed[0] else (a, b)
    tiles = tile(pieces)
    tasks = _tasks(first, second, out, batch, tiles)
    rouse = count * each >= (_THREADED_LINE if line else _ROUSED)
    function = (mine.gemv if line else mine.gemm)[char]
    if not line:
        _, left, right, depth, _, _, step = fixed
        if all(shallow.fits_cold(char, left, *task[3:], depth, step) for task in tiles):
            ours = shallow.function(char, left, right, ctypes.sizeof(mine.integer))
            function = ctypes.CFUNCTYPE(None, *function.argtypes)(ours)
    return _Listed(mine, char, line, function, fixed, tasks, threads, rouse)


def _tasks(a: NDArray, b: NDArray, out: NDArray, batch: Ints, tiles: list[_Task]) -> NDArray:
    """Tiles of one product, for every product of the batch."""
    starts = np.stack([matrices_begin(x, batch) for x in (a, b, out)], axis=1)
    full = np.zeros((len(starts), len(tiles), 5), np.int64)
    full += np.array(tiles, np.int64)
    full[:, :, :3] += starts[:, None, :]
    return full.reshape(-1, 5)


def matrices_begin(x: NDArray, batch: Ints) -> NDArray:
    """Where the matrices of `x`, broadcast to `batch`, begin: bytes from its first element."""
    total = np.zeros((), np.int64)
    shape = (1,) * (len(batch) + 2 - x.ndim) + x.shape[:-2]
    steps = (0,) * (len(batch) + 2 - x.ndim) + x.strides[:-2]
    for size, own, step in zip(batch, shape, steps, strict=True):
        total = total[..., None] + np.arange(size, dtype=np.int64) * (0 if own == 1 else step)
    return total.reshape(-1)


def matrix_layout(x: NDArray) -> tuple[int, int] | None:
    """How BLAS reads the matrices of `x`: plain or transposed, and the elements from line to line; None if it cannot."""
    (rows, columns), (down, across), size = x.shape[-2:], x.strides[-2:], x.itemsize
    for flag, lines, length, far, near in (
        (blas.PLAIN, rows, columns, down, across),
        (blas.TRANSPOSED, columns, rows, across, down),
    ):
        if (near == size or length == 1) and (lines == 1 or (far % size == 0 and far >= length * size)):
            return flag, far // size if lines > 1 else length
    return None


Call = tuple[
    list[int], Callable[[int], list[_Task]]
]  # what all tasks share, and the tiles of a product cut in so many pieces


def _matrix_call(a: NDArray, b: NDArray, out: NDArray) -> Call | None:
    left, right, target = matrix_layout(a), matrix_layout(b), matrix_layout(out)
    if left is None or right is None or target is None:
        return None
    (m, k), n = a.shape[-2:], b.shape[-1]
    if target[0] == blas.TRANSPOSED:  # then the transposed product is wanted in plain form
        left, right = right, left
        flags = [blas.PLAIN if f[0] == blas.TRANSPOSED else blas.TRANSPOSED for f in (left, right)]
    else:
        flags = [left[0], right[0]]
    fixed = [*flags, k, left[1], right[1], target[1]]
    swapped = target[0] == blas.TRANSPOSED

    def tiles(pieces: int) -> list[_Task]:
        down, across = _cuts(m, n, pieces)
        found = []
        for i, j in itertools.product(_parts(m, down), _parts(n, across)):
            at_a, at_b = i.start * a.strides[-2], j.start * b.strides[-1]
            at_out = i.start * out.strides[-2] + j.start * out.strides[-1]
            found.append((at_b, at_a, at_out, len(j), len(i)) if swapped else (at_a, at_b, at_out, len(i), len(j)))
        return found

    return [int(swapped), *fixed], tiles


def _line_call(a: NDArray, b: NDArray, out: NDArray) -> Call | None:
    """A matrix times a vector; `a` and `b` are exchanged where the vector stands on the left."""
    swapped = out.shape[-1] != 1
    matrix = b.swapaxes(-1, -2) if swapped else a
    layout = matrix_layout(matrix)
    step_in, step_out = (a.strides[-1], out.strides[-1]) if swapped else (b.strides[-2], out.strides[-2])
    rows, depth = matrix.shape[-2:]
    steps = [step // out.itemsize if extent > 1 else 1 for step, extent in ((step_in, depth), (step_out, rows))]
    if layout is None or any(s <= 0 for s in steps) or step_in % out.itemsize or step_out % out.itemsize:
        return None
    fixed = [int(swapped), layout[0], 0, 0, layout[1], *steps]

    def tiles(pieces: int) -> list[_Task]:
        found = []
        for part in _parts(rows, min(pieces, max(1, rows // _LEAST_TILE))):
            sizes = (len(part), depth) if layout[0] == blas.PLAIN else (depth, len(part))
            place = part.start * matrix.strides[-2], 0, part.start * steps[1] * out.itemsize
            found.append((*place, *sizes))
        return found

    return fixed, tiles


def _cuts(m: int, n: int, pieces: int) -> tuple[int, int]:
    """In how many parts to cut rows and columns. Rows first: uncut rows of `b` and `out` are read in longer runs."""
    if pieces == 1:
        return 1, 1
    for least in (_TILE, _LEAST_TILE):
        down = min(pieces, max(1, m // least))
        across = min(-(-pieces // down), max(1, n // least))
        if down * across >= pieces:
            break
    return down, across


def _parts(size: int, count: int) -> list[range]:
    """`range(size)` in about `count` parts that begin at multiples of the grain."""
    step = -(-size // count)
    if count > 1:
        step = -(-step // _GRAIN) * _GRAIN
    return [range(i, min(i + step, size)) for i in range(0, size, step)]


class _Listed:
    """A list of tasks that is worked through by our own library."""

    __slots__ = ("_arguments", "_call", "_job", "_line", "_rouse", "_swapped", "_tasks", "_threads", "_walk")

    def __init__(
        self,
        mine: blas.Library,
        char: str,
        line: bool,
        function: Any,
        fixed: Sequence[int],
        tasks: NDArray,
        threads: int,
        rouse: bool,
    ) -> None:
        count = len(tasks)
        # Few tasks are taken one by one; of many, each thread takes a sixteenth of its share at a time.
        chunk = max(1, count // (16 * threads))
        one, zero = mine.one[char], mine.zero[char]
        self._swapped = bool(fixed[0])
        self._line = line
        self._threads = min(threads, count)
        self._rouse = rouse
        self._call = function
        self._walk = _walker(char, line, ctypes.sizeof(mine.integer)) if count > (1 if threads > 1 else _MANY) else None
        self._arguments = *fixed[1:], one, zero
        self._tasks = tasks.tolist() if self._walk is None else []
        if self._walk is not None:
            address = ctypes.cast(self._call, ctypes.c_void_p).value or 0
            numbers = [one, zero] if char in "FD" else [0, 0]
            self._job = np.array([address, count, chunk, *numbers, *fixed[1:], *tasks.reshape(-1).tolist()], np.int64)

    def __call__(self, a: NDArray, b: NDArray, out: NDArray) -> None:
        if self._swapped:
            a, b = b, a
        places = [x.__array_interface__["data"][0] for x in (a, b, out)]
        if self._walk is not None:
            pointers, counter = (ctypes.c_void_p * 3)(*places), ctypes.c_int64(0)
            at = self._job.ctypes.data, ctypes.addressof(pointers), ctypes.addressof(counter)
            standby.run(self._walk, *at, self._threads, self._rouse)
        elif self._threads == 1:
            self._work(iter(self._tasks), *places)
        else:
            tasks = iter(self._tasks)  # a shared counter: taking the next is one step
            helpers.run(lambda: self._work(tasks, *places), self._threads)

    def _work(self, tasks: Any, first: int, second: int, out: int) -> None:
        call, (left, right, depth, lda, ldb, ldc, one, zero) = self._call, self._arguments
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


@functools.cache
def _walker(char: str, line: bool, integer_size: int) -> Callable[..., None] | None:
    """`walk(job, pointers, counter)`, which calls the library for chunk after chunk of the job's tasks; None without LLVM.

    The job: address of the library's function, tasks, tasks per chunk, addresses of 1 and 0 (complex types), two flags, depth,
    three steps, then the tasks.
    """
    if not llvm.available():
        return None
    n, number = f"i{8 * integer_size}", {"f": "float", "d": "double"}.get(char, "ptr")
    lines = [f"%f{i} = getelementptr i64, ptr %job, i64 {i}\n  %j{i} = load i64, ptr %f{i}" for i in range(11)]
    lines += [f"%g{i} = getelementptr ptr, ptr %pointers, i64 {i}\n  %p{i} = load ptr, ptr %g{i}" for i in range(3)]
    lines += [
        f"%n{i} = trunc i64 %j{i} to {n}" if integer_size < 8 else f"%n{i} = add i64 %j{i}, 0" for i in (7, 8, 9, 10)
    ]
    lines += ["%left = trunc i64 %j5 to i32", "%right = trunc i64 %j6 to i32", "%function = inttoptr i64 %j0 to ptr"]
    lines += [f"%{name} = inttoptr i64 %j{i} to ptr" for name, i in (("one", 3), ("zero", 4)) if number == "ptr"]
    alpha, beta = ("%one", "%zero") if number == "ptr" else ("1.0", "0.0")
    head = "\n  ".join(lines)
    take = "\n  ".join(
        f"%t{i} = getelementptr i64, ptr %task, i64 {i}\n  %v{i} = load i64, ptr %t{i}" for i in range(5)
    )
    at = "\n  ".join(f"%at{i} = getelementptr i8, ptr %p{i}, i64 %v{i}" for i in range(3))
    size = "\n  ".join(
        f"%s{i} = trunc i64 %v{i} to {n}" if integer_size < 8 else f"%s{i} = add i64 %v{i}, 0" for i in (3, 4)
    )
    order = blas.ROW_MAJOR
    if line:
        types = f"i32, i32, {n}, {n}, {number}, ptr, {n}, ptr, {n}, {number}, ptr, {n}"
        call = (
            f"i32 {order}, i32 %left, {n} %s3, {n} %s4, {number} {alpha}, ptr %at0, {n} %n8, ptr %at1, {n} %n9, "
            f"{number} {beta}, ptr %at2, {n} %n10"
        )
    else:
        types = f"i32, i32, i32, {n}, {n}, {n}, {number}, ptr, {n}, ptr, {n}, {number}, ptr, {n}"
        call = (
            f"i32 {order}, i32 %left, i32 %right, {n} %s3, {n} %s4, {n} %n7, {number} {alpha}, ptr %at0, {n} %n8, "
            f"ptr %at1, {n} %n9, {number} {beta}, ptr %at2, {n} %n10"
        )
    text = f"""
define void @walk(ptr %job, ptr %pointers, ptr %counter) {{
  {head}
  br label %chunks
chunks:
  %chunk = atomicrmw add ptr %counter, i64 1 monotonic
  %first = mul i64 %chunk, %j2
  %more = icmp ult i64 %first, %j1
  br i1 %more, label %begin, label %exit
begin:
  %full = add i64 %first, %j2
  %inside = icmp ult i64 %full, %j1
  %last = select i1 %inside, i64 %full, i64 %j1
  br label %each
each:
  %i = phi i64 [ %first, %begin ], [ %next, %each ]
  %five = mul i64 %i, 5
  %skip = add i64 %five, 11
  %task = getelementptr i64, ptr %job, i64 %skip
  {take}
  {at}
  {size}
  call void ({types}) %function({call})
  %next = add i64 %i, 1
  %again = icmp ult i64 %next, %last
  br i1 %again, label %each, label %chunks
exit:
  ret void
}}
"""
    return llvm.compile_kernel("walk", text)


def _shared_by_numpy(batch: Ints, threads: int) -> Product | None:
    """NumPy's small products, the longest batch dim shared among threads."""
    if threads == 1 or max(batch) < 2:
        return None
    dim = max(range(len(batch)), key=lambda d: batch[d])
    size = batch[dim]
    parts = (
        _parts(size, min(4 * threads, size)) if size >= 4 * threads * _GRAIN else [range(i, i + 1) for i in range(size)]
    )

    def run(a: NDArray, b: NDArray, out: NDArray) -> None:
        left = iter(parts)

        def work() -> None:
            for part in left:
                np.matmul(*(_cut(x, dim - len(batch), part) for x in (a, b)), out=_cut(out, dim - len(batch), part))

        helpers.run(work, threads)

    return run


def _cut(x: NDArray, dim: int, part: range) -> NDArray:
    """The part of `x` along a batch dim, counted from the end of those; whole where `x` broadcasts."""
    at = x.ndim - 2 + dim
    return x if at < 0 or x.shape[at] == 1 else x[(*[slice(None)] * at, slice(part.start, part.stop))]
