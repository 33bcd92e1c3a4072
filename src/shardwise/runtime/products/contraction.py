"""Contractions of blocks as matrix products: labelled dims are folded by strides into one BLAS call.

Comes in: two ndarrays of one element type whose first `lead` dims are loop dims (devices, vmap axes), and which of the other dims
pair up. Goes out: an ndarray `loop dims, batch dims, free dims of lhs, free dims of rhs`.

A loop dim that varies on the left only becomes rows, one that varies on the right only becomes columns, one that varies on
both is a batch dim, and one that is to be summed joins the contracted dims. Within rows, columns and contracted dims the
order is that of the memory, so that a block which is a strided view of a dense global array merges without a copy; the
result is laid out in the same manner. A product split over any number of devices is then the unsplit product.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np

from shardwise.base.caches import LAYOUTS, Bounded, recent
from shardwise.base.dtypes import name_of
from shardwise.base.shapes import Ints, Ndarray
from shardwise.runtime import costs
from shardwise.runtime.loops import Result
from shardwise.runtime.memory import pool
from shardwise.runtime.products.product import Product, by_numpy, matrix_layout, narrow_product, product_for

# ((lhs contracting, rhs contracting), (lhs batch, rhs batch)), counted without the loop dims
DotDims = tuple[tuple[Ints, Ints], tuple[Ints, Ints]]


class _Side:
    """One operand's dims by role while a plan is made."""

    __slots__ = ("free", "shape", "strides")

    def __init__(self, shape: Ints, strides: Ints) -> None:
        self.shape = shape
        self.strides = strides
        self.free: list[int] = []

    def by_memory(self, dims: Sequence[int]) -> list[int]:
        """`dims` from the outermost in memory to the innermost."""
        return sorted(dims, key=lambda d: -abs(self.strides[d]))

    def merges(self, dims: Sequence[int]) -> bool:
        """Whether `dims` in this order are walked with a single stride."""
        real = [d for d in dims if self.shape[d] != 1]
        return all(self.strides[a] == self.shape[b] * self.strides[b] for a, b in pairwise(real))

    def split(self, dims: list[int]) -> tuple[list[int], list[int]]:
        """`dims` as (dims to loop over, dims that merge); ([], dims) where looping would make the products too thin."""
        for i in range(len(dims)):
            if self.merges(dims[i:]):
                rows = prod(self.shape[d] for d in dims[i:])
                return (dims[:i], dims[i:]) if rows >= costs.PRODUCT_LOOPED_ROWS else ([], dims)
        return [], dims

    def size(self, dims: Sequence[int]) -> int:
        return prod(self.shape[d] for d in dims)

    def stride(self, dims: Sequence[int], itemsize: int) -> int:
        """The stride of the merged `dims`."""
        real = [d for d in dims if self.shape[d] != 1]
        return self.strides[real[-1]] if real else itemsize


class GemmPlan:
    """How two blocks of known shapes and strides become one `matmul`, and its result the block of the product."""

    __slots__ = ("a_copy", "a_perm", "a_shape", "b_copy", "b_perm", "b_shape", "block", "depth", "elementwise", "narrow",
                 "out_alloc", "out_perm", "out_view", "products", "result_dims", "result_perm")  # fmt: skip

    a_perm: Ints | None
    a_shape: Ints | None
    b_perm: Ints | None
    b_shape: Ints | None
    a_copy: bool
    b_copy: bool
    depth: int  # how many products each element is the sum of
    elementwise: bool  # nothing is summed: a broadcasting product is faster than many 1-deep GEMMs
    out_alloc: Ints  # the result's memory: batch and row loops, rows, column loops, columns
    out_view: Ints | None  # that, where `result_dims` are others
    out_perm: Ints | None  # ... in the order batch, row loops, column loops, rows, columns
    result_dims: Ints  # the result's memory by the dims of the operands
    result_perm: Ints | None  # these in the block's order
    block: Ints  # the shape of the block
    products: dict[
        str, tuple[Product, Result]
    ]  # by type: how arranged operands are multiplied, and the result's memory
    narrow: dict[tuple[str, str], Product | None]  # how those of two small types are multiplied, if the processor can

    def is_plain_matmul(self, a: Ndarray, b: Ndarray) -> bool:
        """Whether `np.matmul(a, b)` alone does it."""
        moved = (self.a_perm, self.a_shape, self.b_perm, self.b_shape, self.out_view, self.out_perm, self.result_perm)
        return (
            a.ndim == b.ndim == 2
            and not any(m is not None for m in moved)
            and self.block == self.out_alloc
            and not (self.a_copy or self.b_copy or self.elementwise)
        )

    def run(self, a: Ndarray, b: Ndarray) -> Ndarray:
        """The product of blocks that have the shapes and strides of the plan, in their common dtype."""
        char = a.dtype.char
        found = self.products.get(char)
        result = self.result(a.dtype) if found is None else found[1]
        a, b = self.operands(a, b)
        out = pool.empty(result.shape, result.dtype)
        view = self._as_matrices(out)
        if found is None:
            product = _multiply if self.elementwise else product_for(a, b, view)
            found = self.products[char] = product, result
        found[0](a, b, view)
        return result.view_dense(out)

    def sum_narrow(self, a: Ndarray, b: Ndarray, dtype: np.dtype[Any]) -> Ndarray | None:
        """The product of blocks of small types with sums of type `dtype`; None where the processor has no way for it."""
        key = name_of(a.dtype), name_of(b.dtype)
        if self.elementwise or self.narrow.get(key, _multiply) is None:
            return None
        result = self.result(dtype)
        a, b = self.operands(a, b)
        out = pool.empty(result.shape, result.dtype)
        view = self._as_matrices(out)
        if key not in self.narrow:
            self.narrow[key] = narrow_product(a, b, view)
        product = self.narrow[key]
        if product is None:
            return None
        product(a, b, view)
        return result.view_dense(out)

    def _as_matrices(self, out: Ndarray) -> Ndarray:
        """The memory of the result seen as matrices."""
        if self.out_view is not None:
            out = out.reshape(self.out_view)
        return out if self.out_perm is None else out.transpose(self.out_perm)

    def result(self, dtype: np.dtype[Any]) -> Result:
        """How the result is allocated and seen as a block."""
        return Result(dtype, self.result_dims, self.result_perm, self.block)

    def operands(self, a: Ndarray, b: Ndarray) -> tuple[Ndarray, Ndarray]:
        """The operands as matrices."""
        if self.a_perm is not None:
            a = a.transpose(self.a_perm)
        if self.a_shape is not None:
            a = a.reshape(self.a_shape)
        if self.a_copy:
            a = np.ascontiguousarray(a)
        return a, self.right(b)

    def right(self, b: Ndarray) -> Ndarray:
        """The right operand as matrices."""
        if self.b_perm is not None:
            b = b.transpose(self.b_perm)
        if self.b_shape is not None:
            b = b.reshape(self.b_shape)
        return np.ascontiguousarray(b) if self.b_copy else b

    # Of plans that leave no columns to loop over (`out_perm` is None): the result is dense, row after row.

    @property
    def batch(self) -> Ints:
        """How the matrices are counted."""
        return self.out_alloc[:-2]

    @property
    def matrices(self) -> int:
        """The number of matrices."""
        return prod(self.batch)

    @property
    def rows_each(self) -> int:
        """Rows of one matrix of the result."""
        return self.out_alloc[-2]

    @property
    def rows(self) -> int:
        """Rows of all matrices."""
        return self.matrices * self.rows_each

    @property
    def columns(self) -> int:
        """Columns of the result."""
        return self.out_alloc[-1]

    def keeps_left(self, a: Ndarray) -> bool:
        """Whether the left operand as matrices is dense memory in its own order."""
        if self.a_copy:
            return False
        step = a.itemsize
        for n, s in reversed([(a.shape[d], a.strides[d]) for d in (self.a_perm or range(a.ndim))]):
            if n > 1 and s != step:
                return False
            step *= n
        return True


def _multiply(a: Ndarray, b: Ndarray, out: Ndarray) -> None:
    np.multiply(a, b, out=out)


@recent(4096)
def gemm_plan(
    lead: int,
    dims: DotDims,
    sum_dims: Ints,
    a_shape: Ints,
    a_strides: Ints,
    b_shape: Ints,
    b_strides: Ints,
    itemsize: int,
    blas: bool,
) -> GemmPlan:
    """The plan for blocks of these shapes and strides; loop dims in `sum_dims` (equal on both sides) are contracted."""
    a, b = _Side(a_shape, a_strides), _Side(b_shape, b_strides)
    roles = _roles(lead, dims, sum_dims, a, b)

    # Orders: batch and rows as lhs lies in memory, columns as rhs does, contracted dims as suits both best.
    batch = sorted(roles.batch, key=lambda p: -(abs(a_strides[p[0]]) or abs(b_strides[p[1]])))
    rows, columns = a.by_memory(a.free), b.by_memory(b.free)
    depth = _contraction_order(a, b, roles.contracted)
    row_loops, row_dims = a.split(rows)
    column_loops, column_dims = b.split(columns)

    plan = GemmPlan()
    plan.products, plan.narrow = {}, {}
    a_depth, b_depth = [p[0] for p in depth], [p[1] for p in depth]
    n_rows, n_columns, n_depth = a.size(row_dims), b.size(column_dims), a.size(a_depth)
    batch_sizes = tuple(a_shape[i] for i, _ in batch)
    row_sizes = tuple(a_shape[d] for d in row_loops)
    column_sizes = tuple(b_shape[d] for d in column_loops)

    others_a = [d for d in range(lead) if a_shape[d] == 1 and d not in sum_dims]
    others_b = [d for d in range(lead) if b_shape[d] == 1 and d not in sum_dims]
    a_order = (*others_a, *(p[0] for p in batch), *row_loops, *row_dims, *a_depth)
    b_order = (*others_b, *(p[1] for p in batch), *column_loops, *b_depth, *column_dims)
    plan.a_perm, plan.b_perm = _unless_identity(a_order), _unless_identity(b_order)
    a_view = (*batch_sizes, *row_sizes, *(1,) * len(column_loops), n_rows, n_depth)
    b_view = (*batch_sizes, *(1,) * len(row_loops), *column_sizes, n_depth, n_columns)
    plan.a_shape = a_view if a_view != tuple(a_shape[d] for d in a_order) else None
    plan.b_shape = b_view if b_view != tuple(b_shape[d] for d in b_order) else None
    plan.depth = n_depth
    plan.elementwise = n_depth == 1
    a_merged = a.merges(row_dims) and a.merges(a_depth)
    b_merged = b.merges(column_dims) and b.merges(b_depth)
    if blas and not plan.elementwise:
        a_steps = a.stride(row_dims, itemsize), a.stride(a_depth, itemsize)
        b_steps = b.stride(b_depth, itemsize), b.stride(column_dims, itemsize)
        plan.a_copy = a_merged and matrix_layout((n_rows, n_depth), a_steps, itemsize) is None
        plan.b_copy = b_merged and matrix_layout((n_depth, n_columns), b_steps, itemsize) is None
    else:
        plan.a_copy = plan.b_copy = False

    # The buffer: batch, rows, columns, row-major. Column loops stand before the rows in matmul's eyes.
    plan.out_alloc = (*batch_sizes, *row_sizes, n_rows, *column_sizes, n_columns)
    nb, nr, nc = len(batch), len(row_loops), len(column_loops)
    mm_order = (*range(nb + nr), *range(nb + nr + 1, nb + nr + 1 + nc), nb + nr, nb + nr + nc + 1)
    plan.out_perm = _unless_identity(mm_order)
    _arrange_result(plan, roles, batch, rows, columns, a, b)
    return plan


class _DimRoles(NamedTuple):
    """The role of each dim in a product.

    Attributes:
        batch: pairs of dims, of a and of b, whose elements belong together.
        contracted: pairs of dims that are summed over.
        out_lead: per loop dim of the result "batch", "row", "column" or "one", and the dim of a (of b for a column).
        own_batch: the pairs of `batch` that are no loop dims.
        a_own, b_own: free dims that are no loop dims.
    """

    batch: list[tuple[int, int]]
    contracted: list[tuple[int, int]]
    out_lead: list[tuple[str, int]]
    own_batch: list[tuple[int, int]]
    a_own: list[int]
    b_own: list[int]


def _roles(lead: int, dims: DotDims, sum_dims: Ints, a: _Side, b: _Side) -> _DimRoles:
    """The role of each dim; the free ones are kept in the sides."""
    (a_con, b_con), (a_batch, b_batch) = dims
    batch: list[tuple[int, int]] = []
    contracted = [(i + lead, j + lead) for i, j in zip(a_con, b_con, strict=True)]
    out_lead: list[tuple[str, int]] = []
    for i in range(lead):
        left, right = a.shape[i] != 1, b.shape[i] != 1
        if i in sum_dims:
            contracted.append((i, i))
            out_lead.append(("one", i))
        elif left and right:
            batch.append((i, i))
            out_lead.append(("batch", i))
        elif left:
            a.free.append(i)
            out_lead.append(("row", i))
        elif right:
            b.free.append(i)
            out_lead.append(("column", i))
        else:
            out_lead.append(("one", i))
    own_batch = [(i + lead, j + lead) for i, j in zip(a_batch, b_batch, strict=True)]
    bound_a, bound_b = {*a_con, *a_batch}, {*b_con, *b_batch}
    a_own = [d for d in range(lead, len(a.shape)) if d - lead not in bound_a]
    b_own = [d for d in range(lead, len(b.shape)) if d - lead not in bound_b]
    a.free += a_own
    b.free += b_own
    return _DimRoles(batch + own_batch, contracted, out_lead, own_batch, a_own, b_own)


def _arrange_result(
    plan: GemmPlan,
    roles: _DimRoles,
    batch: Sequence[tuple[int, int]],
    rows: Sequence[int],
    columns: Sequence[int],
    a: _Side,
    b: _Side,
) -> None:
    """How the result's dims are found in the buffer, which has them in the order `batch`, `rows`, `columns`."""
    memory = [("batch", i) for i, _ in batch] + [("row", d) for d in rows] + [("column", d) for d in columns]
    sizes = (*(a.shape[i] for i, _ in batch), *(a.shape[d] for d in rows), *(b.shape[d] for d in columns))
    plan.result_dims = sizes
    plan.out_view = plan.out_alloc if plan.out_alloc != sizes else None
    wanted = [
        *(entry for entry in roles.out_lead if entry[0] != "one"),
        *(("batch", i) for i, _ in roles.own_batch),
        *(("row", d) for d in roles.a_own),
        *(("column", d) for d in roles.b_own),
    ]
    position = {entry: p for p, entry in enumerate(memory)}
    plan.result_perm = _unless_identity(tuple(position[entry] for entry in wanted))
    lead_sizes = tuple(
        {"one": 1, "batch": a.shape[i], "row": a.shape[i], "column": b.shape[i]}[g] for g, i in roles.out_lead
    )
    plan.block = (
        *lead_sizes,
        *(a.shape[i] for i, _ in roles.own_batch),
        *(a.shape[d] for d in roles.a_own),
        *(b.shape[d] for d in roles.b_own),
    )


def _unless_identity(order: Ints) -> Ints | None:
    return order if order != tuple(range(len(order))) else None


def _contraction_order(a: _Side, b: _Side, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The order of the contracted dims that avoids copies, of the larger operand first."""
    if len(pairs) < 2:
        return pairs
    as_a = sorted(pairs, key=lambda p: -abs(a.strides[p[0]]))
    as_b = sorted(pairs, key=lambda p: -abs(b.strides[p[1]]))

    def copied_elements(order: list[tuple[int, int]]) -> int:
        cost = 0 if a.merges([p[0] for p in order]) else prod(a.shape)
        return cost + (0 if b.merges([p[1] for p in order]) else prod(b.shape))

    return as_b if copied_elements(as_b) < copied_elements(as_a) else as_a


def contract(lhs: Ndarray, rhs: Ndarray, lead: int, dims: DotDims, sum_dims: Ints = (), sum_size: int = 1) -> Ndarray:
    """Contract blocks of one dtype that `matmul` computes exactly as wanted.

    Loop dims in `sum_dims` are summed over, too, and have extent 1 in the result; `sum_size` is the number of devices
    along those of them over which neither operand varies (each of which adds the same).
    """
    for d in sum_dims:
        if lhs.shape[d] != rhs.shape[d]:
            # Only one operand varies: sum it first, which is cheap beside the product.
            if rhs.shape[d] == 1:
                lhs = lhs.sum(axis=d, keepdims=True, dtype=lhs.dtype)
            else:
                rhs = rhs.sum(axis=d, keepdims=True, dtype=rhs.dtype)
    dtype = lhs.dtype
    plan = gemm_plan(
        lead, dims, sum_dims, lhs.shape, lhs.strides, rhs.shape, rhs.strides, dtype.itemsize, dtype.kind in "fc"
    )
    out = plan.run(lhs, rhs)
    if sum_size != 1:
        out *= dtype.type(sum_size)
    return out


def gemm_runner(lead: int, dims: DotDims) -> Callable[[Ndarray, Ndarray], Ndarray]:
    """`contract` for float32 blocks, made once: remembers its plans by the strides that it meets."""
    plans: Bounded[Any, Callable[[Ndarray, Ndarray], Ndarray]] = Bounded(LAYOUTS)

    def run(lhs: Ndarray, rhs: Ndarray) -> Ndarray:
        key = (lhs.shape, rhs.shape, lhs.strides, rhs.strides)
        product = plans.get(key)
        if product is None:
            plan = gemm_plan(lead, dims, (), lhs.shape, lhs.strides, rhs.shape, rhs.strides, lhs.dtype.itemsize, True)
            out = plan.run(lhs, rhs)
            small = plan.is_plain_matmul(lhs, rhs) and plan.products["f"][0] is by_numpy
            plans[key] = np.matmul if small else plan.run
            return out
        return product(lhs, rhs)

    return run


# NumPy's `dot` takes less time for a call than `matmul` does, and transposed matrices are only views to it.
_SMALL: dict[DotDims, Callable[[Ndarray, Ndarray], Ndarray]] = {
    (((1,), (0,)), ((), ())): np.dot,
    (((1,), (1,)), ((), ())): lambda a, b: np.dot(a, b.T),
    (((0,), (0,)), ((), ())): lambda a, b: np.dot(a.T, b),
    (((0,), (1,)), ((), ())): lambda a, b: np.dot(a.T, b.T),
}


def small_product(lhs: Ints, rhs: Ints, dims: DotDims) -> Callable[[Ndarray, Ndarray], Ndarray] | None:
    """The quickest call for the product of two small float32 matrices of these shapes; None for what is none."""
    if len(lhs) != 2 or len(rhs) != 2 or dims not in _SMALL or not prod(lhs) * prod(rhs):
        return None
    ((i,), _), _ = dims
    return _SMALL[dims] if prod(lhs) * prod(rhs) // lhs[i] <= costs.PRODUCT_NUMPYS else None
