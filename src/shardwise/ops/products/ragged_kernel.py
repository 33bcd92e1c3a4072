"""The kernel of `ragged_dot_general`: one product for the rows of each group, written to where they lie in the result.

Group i has the positions from the sum of the sizes before it on, up to the sum with its own, both in the type of the sizes and cut to
the existing rows. Sizes below zero make groups overlap: a row of several groups is the sum of its products.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from shardwise.base.shapes import Axes, Ints, Ndarray
from shardwise.ops.products.ragged_numbers import RaggedDims
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.memory import pool
from shardwise.runtime.products import DotDims, matmul

Kernel = Callable[[Ndarray, Ndarray, Ndarray], Ndarray]
Multiply = Callable[[Ndarray, Ndarray, DotDims], Ndarray]


def group_bounds(
    env: Env, sizes: Ndarray, count: int, own_groups: int, ragged_axes: Axes, group_axes: Axes
) -> tuple[Ndarray, Ndarray]:
    """The first position of each of a device's groups and the one behind its last, among the device's `count` positions."""
    ends = np.cumsum(sizes, axis=-1, dtype=sizes.dtype)
    bounds = [np.concatenate([np.zeros_like(ends[..., :1]), ends[..., :-1]], axis=-1), ends]
    if group_axes:
        at = _per_device(env, group_axes, own_groups, sizes.ndim) + np.arange(own_groups)
        bounds = [np.take_along_axis(b, at, axis=-1) for b in bounds]
    wide = [b.astype(np.int64) for b in bounds]
    if ragged_axes:
        first = _per_device(env, ragged_axes, count, sizes.ndim)
        wide = [b - first for b in wide]
    starts, ends = (np.clip(b, 0, count) for b in wide)
    return starts, ends


def _per_device(env: Env, axes: Axes, count: int, ndim: int) -> Ndarray:
    """How many elements devices before each one have, if each has `count`."""
    first = env.index(axes).astype(np.int64) * count
    return first.reshape(first.shape + (1,) * (ndim - env.lead))


def plain_product(roles: RaggedDims, shape: Ints, dtype: np.dtype[Any], otherwise: Kernel) -> Kernel:
    """The kernel for two matrices, or a matrix and one for each group, of one type that BLAS has, with few calls of NumPy.

    Sizes below zero, and those whose sum their type does not hold, are left to `otherwise`.
    """
    (lhs_con, rhs_con), _ = roles.dims
    rows = (*roles.lhs_free, *lhs_con)
    matrices = (*(() if roles.group is None else (roles.group,)), *rhs_con, *roles.rhs_free)

    def run(lhs: Ndarray, rhs: Ndarray, sizes: Ndarray) -> Ndarray:
        limit = lhs.shape[roles.ragged_dim]
        counts: list[int] = sizes.tolist()
        if min(counts, default=0) < 0 or sum(counts) > np.iinfo(sizes.dtype).max:
            return otherwise(lhs, rhs, sizes)
        x, y, out = lhs.transpose(rows), rhs.transpose(matrices), pool.empty(shape, dtype)
        start = end = 0
        for i, count in enumerate(counts):
            end = min(start + count, limit)
            if roles.contracts:
                _multiply(x[:, start:end], y[start:end], out[i])
            elif start < end:
                _multiply(x[start:end], y[i], out[start:end])
            start = end
        if not roles.contracts:
            out[end:] = 0
        return out

    return run


def _multiply(x: Ndarray, y: Ndarray, out: Ndarray) -> None:
    if out.size * y.shape[0] <= costs.PRODUCT_NUMPYS:
        np.matmul(x, y, out=out)
    else:
        matmul(x, y, out)


class RaggedProduct:
    """A product in groups whose ragged dim is free or contracted; `direct`: matrices of one type need no `multiply`."""

    __slots__ = ("bounds", "dims", "direct", "lead", "lhs", "multiply", "out", "rhs", "roles")

    def __init__(
        self,
        lead: int,
        roles: RaggedDims,
        blocks: tuple[Ndarray, Ndarray],
        bounds: tuple[Ndarray, Ndarray],
        dtype: np.dtype[Any],
        multiply: Multiply,
        direct: bool,
    ) -> None:
        self.lead, self.roles, self.bounds, self.multiply, self.direct = lead, roles, bounds, multiply, direct
        self.lhs, self.rhs = lhs, rhs = blocks
        self.dims = _without_groups(roles)
        loops = np.broadcast_shapes(*[x.shape[:lead] for x in (lhs, rhs, bounds[0])])
        own = bounds[0].shape[-1:] if roles.contracts else ()
        sizes = [lhs.shape[lead + d] for d in (*roles.dims[1][0], *roles.lhs_free)]
        sizes += [rhs.shape[lead + e] for e in roles.rhs_free]
        self.out = pool.empty((*loops, *own, *sizes), dtype)

    def run(self) -> Ndarray:
        """The product."""
        if self.roles.contracts:
            self.out.fill(0)
        starts, ends = self.bounds
        for at in np.ndindex(*starts.shape[:-1]):
            self._of_sizes(at, list(zip(starts[at].tolist(), ends[at].tolist(), strict=True)))
        return self.out

    def _of_sizes(self, at: Ints, bounds: list[tuple[int, int]]) -> None:
        """The products for groups that lie alike: of the devices and positions `at` that have these sizes."""
        lead, roles = self.lead, self.roles
        left, right, out = ([slice(None)] * x.ndim for x in (self.lhs, self.rhs, self.out))
        for i, k in enumerate(at[:lead]):
            if self.bounds[0].shape[i] > 1:
                one = slice(k, k + 1)
                out[i] = one
                for x, part in ((self.lhs, left), (self.rhs, right)):
                    part[i] = one if x.shape[i] > 1 else part[i]
        if len(at) > lead:
            self._cut_prefix(at[lead:], left, right, out)
        x, y, into = self.lhs[tuple(left)], self.rhs[tuple(right)], self.out[tuple(out)]
        group_bounds = [(j, start, end) for j, (start, end) in enumerate(bounds) if start < end]
        if roles.contracts:
            for j, start, end in group_bounds:
                rows = _cut(x, lead + roles.ragged_dim, start, end), _cut(y, lead + roles.rhs_ragged, start, end)
                self._product(*rows, into[(*[slice(None)] * lead, j)], adds=len(at) > lead)
            return
        axis = lead + len(roles.dims[1][0]) + roles.lhs_free.index(roles.ragged_dim)
        overlap = any(one[2] > other[1] for one, other in pairwise(group_bounds))
        if overlap:
            into[...] = 0
        else:
            edges = [0, *[edge for _, start, end in group_bounds for edge in (start, end)], into.shape[axis]]
            for start, end in zip(edges[::2], edges[1::2], strict=True):
                _cut(into, axis, start, end)[...] = 0
        assert roles.group is not None
        for j, start, end in group_bounds:
            matrix = y[(*[slice(None)] * (lead + roles.group), j)]
            self._product(
                _cut(x, lead + roles.ragged_dim, start, end), matrix, _cut(into, axis, start, end), adds=overlap
            )

    def _cut_prefix(self, at: Ints, left: list[slice], right: list[slice], out: list[slice]) -> None:
        """Cut blocks to one position of each dim along which sizes differ."""
        lead, roles = self.lead, self.roles
        (contracted_dims, others), (batch, rhs_batch) = roles.dims
        kept_dims = (*batch, *roles.lhs_free)
        for k, d in zip(at, roles.prefix, strict=True):
            one = slice(k, k + 1)
            left[lead + d] = one
            if d in kept_dims:
                out[lead + roles.contracts + kept_dims.index(d)] = one
            if d in batch:
                right[lead + rhs_batch[batch.index(d)]] = one
            if d in contracted_dims:
                right[lead + others[contracted_dims.index(d)]] = one

    def _product(self, x: Ndarray, y: Ndarray, out: Ndarray, adds: bool) -> None:
        """Write the product of one group, or add it to the rows there."""
        matrices = None if adds or not self.direct else self._as_matrices(x, y, out)
        if matrices is not None:
            _multiply(*matrices)
        elif adds:
            out += self.multiply(x, y, self.dims)
        else:
            out[...] = self.multiply(x, y, self.dims)

    def _as_matrices(self, x: Ndarray, y: Ndarray, out: Ndarray) -> tuple[Ndarray, Ndarray, Ndarray] | None:
        """Blocks that are matrices of the result's type, which can be multiplied where they lie."""
        lead, ((left, right), _) = self.lead, self.dims
        plain = x.dtype == y.dtype == out.dtype and out.dtype.char in "fdFD"
        if not plain or not x.ndim == y.ndim == out.ndim == lead + 2 or len(left) != 1:
            return None
        if any(n != 1 for n in out.shape[:lead]):
            return None
        x, y, out = (block.reshape(block.shape[lead:]) for block in (x, y, out))
        return x if left == (1,) else x.T, y if right == (0,) else y.T, out


def _cut(x: Ndarray, dim: int, start: int, end: int) -> Ndarray:
    return x[(*[slice(None)] * dim, slice(start, end))]


def _without_groups(roles: RaggedDims) -> DotDims:
    """The dims of the product of one group, whose rhs has no dim over groups."""
    group = roles.group
    if group is None:
        return roles.dims
    (lhs_con, rhs_con), (lhs_batch, rhs_batch) = roles.dims
    down = lambda dims: tuple(e - (e > group) for e in dims)  # noqa: E731
    return (lhs_con, down(rhs_con)), (lhs_batch, down(rhs_batch))
