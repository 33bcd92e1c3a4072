"""`split_sort`: sort rows that mesh axes split; each device ends with a part of the same size. The partitioner inserts it.

In one process the parts are joined and sorted as one row. Between processes, each process sorts its own elements, all agree on the
cuts of these runs (`even_cuts`), and every element is sent once, to its final device. No process ever holds a whole row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shardwise.base.shapes import Ndarray
from shardwise.ir import Collective, ShapedArray
from shardwise.ir.op import Params, Types
from shardwise.ops.devices.declare import define_collective
from shardwise.ops.devices.each import Operands
from shardwise.ops.devices.even_cuts import bytes_shown, even_cuts
from shardwise.ops.devices.fronts import merge_axes, unmerge_axes
from shardwise.ops.devices.lines import (
    Line,
    annotate_sends,
    back_from,
    block_bytes,
    front_of,
    line_of,
    settle_extents,
    tag_of,
)
from shardwise.ops.devices.rules import same_dims
from shardwise.ops.rules.order import comparable, sorted_rows
from shardwise.runtime.blocks import with_dim_at
from shardwise.runtime.env import Env
from shardwise.runtime.memory import pool
from shardwise.runtime.processes import the_world


def _type(
    *operands: ShapedArray,
    axes: tuple[str, ...],
    sizes: tuple[int, ...],
    dimension: int,
    is_stable: bool,
    num_keys: int,
    places: bool = False,
) -> tuple[ShapedArray, ...]:
    """With `places`, operand 0 is the only key: the position of each element in its sorted row."""
    varying_axes = frozenset(axes).union(*[t.vma for t in operands])
    return tuple(ShapedArray(t.shape, t.dtype, t.weak_type, vma=varying_axes) for t in operands)


def _kernel(
    env: Env,
    *operands: Ndarray,
    axes: tuple[str, ...],
    sizes: tuple[int, ...],
    dimension: int,
    is_stable: bool,
    num_keys: int,
    places: bool = False,
) -> tuple[Ndarray, ...]:
    lead = env.lead - len(axes)
    at = lead + dimension
    wholes, dims = [], ()
    for x in operands:
        front, n, dims = merge_axes(env, x, axes)
        whole = with_dim_at(front, 0, at)
        wholes.append(whole.reshape(*whole.shape[:at], n * whole.shape[at + 1], *whole.shape[at + 2 :]))
    results = []
    for out in _permute_operands(wholes, at) if places else sorted_rows(wholes, at, lead, is_stable, num_keys):
        n = math.prod(sizes)
        parts = out.reshape(*out.shape[:at], n, out.shape[at] // n, *out.shape[at + 1 :])
        results.append(unmerge_axes(env, with_dim_at(parts, at, 0), axes, dims))
    return tuple(results)


def _permute_operands(operands: Sequence[Ndarray], at: int) -> list[Ndarray]:
    """Permute the operands along a dim: each element moves to the position given by operand 0."""
    shape = np.broadcast_shapes(*[x.shape for x in operands])
    results = [pool.empty(shape, x.dtype) for x in operands]
    where = np.broadcast_to(operands[0], shape)
    for x, out in zip(operands, results, strict=True):
        np.put_along_axis(out, where, np.broadcast_to(x, shape), at)
    return results


# -- over processes --------------------------------------------------------------------------------------------------------


class Runs:
    """The devices of a line, grouped into `count` runs of adjacent devices of equal number; this process owns the runs `mine`."""

    __slots__ = ("count", "line", "mine", "own_at", "owners", "width")

    def __init__(self, line: Line) -> None:
        starts = [int(p) for m in line.members for i, p in enumerate(m) if i == 0 or p != m[i - 1] + 1]
        ends = [int(p) + 1 for m in line.members for i, p in enumerate(m) if i == len(m) - 1 or m[i + 1] != p + 1]
        self.line = line
        self.width = math.gcd(*starts, *ends, line.n)
        self.count = line.n // self.width
        runs_of = [[int(p) // self.width for p in m[:: self.width]] for m in line.members]
        self.owners = [next(k for k, runs in enumerate(runs_of) if run in runs) for run in range(self.count)]
        self.mine = runs_of[line.me]

    def runs_of(self, process: int) -> list[int]:
        """The runs that a process of the line owns."""
        return [run for run, owner in enumerate(self.owners) if owner == process]

    def gather(self, x: Ndarray, tag: int) -> Ndarray:
        """Gather the arrays [own run, ...] of all processes to one with all runs."""
        every = np.empty((self.count, *x.shape[1:]), x.dtype)
        takes = [np.empty((len(self.runs_of(k)), *x.shape[1:]), x.dtype) for k in range(len(self.line.ranks))]
        the_world().link(self.line.ranks).all_gather(x, takes, tag)
        for k, take in enumerate(takes):
            every[self.runs_of(k)] = take
        return every

    def exchange_pieces(self, x: Ndarray, cuts: Ndarray, tag: int) -> Ndarray:
        """Exchange pieces of sorted runs [own run, row, position]: each run receives its pieces, ordered by source run."""
        line, count, (_, rows, size) = self.line, self.count, x.shape
        lengths = np.diff(cuts, axis=2)  # [from run, row, to run]
        starts = np.cumsum(lengths, axis=0) - lengths  # the first position of a piece in its destination run
        position = np.arange(size)
        others = [k for k in range(len(line.ranks)) if k != line.me]
        runs_of = [self.runs_of(k) for k in range(len(line.ranks))]

        def take_run(run: int, to: int) -> Ndarray:
            low, high = cuts[run, :, to, None], cuts[run, :, to + 1, None]
            return x[self.mine.index(run)][(position >= low) & (position < high)]

        def elements(k: int, to: int) -> int:
            return int(lengths[np.ix_(runs_of[k], range(rows), runs_of[to])].sum())

        def message(k: int) -> Ndarray:
            return np.concatenate([take_run(run, to) for run in self.mine for to in runs_of[k]])

        sends = [(k, message(k)) for k in others]
        takes = [(k, line.me - (line.me > k), pool.empty((elements(k, line.me),), x.dtype)) for k in others]
        sizes = {elements(k, to) for k in range(len(line.ranks)) for to in range(len(line.ranks)) if k != to}
        link = the_world().link(line.ranks)
        link.swap(sends, takes, len(others), [(n,) for n in sorted(sizes)], x.itemsize, tag)
        received_pieces = {k: take for k, _, take in takes}
        offsets = dict.fromkeys(others, 0)
        out = pool.empty(x.shape, x.dtype)
        for run in range(count):
            for i, to in enumerate(self.mine):
                begin, length = starts[run, :, to, None], lengths[run, :, to, None]
                place = (position >= begin) & (position < begin + length)
                k = self.owners[run]
                if k == line.me:
                    out[i][place] = take_run(run, to)
                else:
                    n = int(length.sum())
                    out[i][place] = received_pieces[k][offsets[k] : offsets[k] + n]
                    offsets[k] += n
        return out


def _keys(x: Ndarray) -> list[Ndarray]:
    keys = comparable(x)
    return [keys.real, keys.imag] if keys.dtype.kind == "c" else [keys]


def _across(env: Env, in_types: Types, out_types: Types, params: Params) -> Callable[..., tuple[Ndarray, ...]]:
    axes, dim, num_keys, stable = params["axes"], params["dimension"], params["num_keys"], params["is_stable"]
    line = line_of(env, axes)
    if not line.crosses:
        return lambda *blocks: _kernel(env, *blocks, **params)
    runs = Runs(line)
    settlers = [settle_extents(env, t, axes) for t in in_types]
    cuts_tag = tag_of("cuts of split_sort", env, in_types, params)
    tags = [tag_of(f"split_sort {i}", env, in_types, params) for i in range(len(in_types))]
    lead = env.lead - len(axes)
    at = 1 + lead + dim

    def run(*blocks: Ndarray) -> tuple[Ndarray, ...]:
        fronts, dims = [], ()
        for settle, x in zip(settlers, blocks, strict=True):
            front, dims = front_of(env, settle(x), axes)
            fronts.append(front)
        loops = np.broadcast_shapes(*[f.shape[: 1 + lead] for f in fronts])
        shape = (*loops, *fronts[0].shape[1 + lead :])
        rows = [as_runs(np.broadcast_to(f, shape)) for f in fronts]
        parts = sorted_rows(rows, 2, 2, stable, num_keys)
        keys = [k for x in parts[:num_keys] for k in _keys(x)]
        if params.get("places"):
            begins = range(0, (runs.count + 1) * rows[0].shape[2], rows[0].shape[2])
            own = np.stack([(keys[0] < begin).sum(2) for begin in begins], 2)
            cuts = runs.gather(own, cuts_tag)
        else:
            cuts = even_cuts(keys, runs.count, runs.mine, lambda x: runs.gather(x, cuts_tag))
        parts = [runs.exchange_pieces(x, cuts, tag) for x, tag in zip(parts, tags, strict=True)]
        return tuple(back_from(env, as_front(x, shape), axes, dims) for x in sorted_rows(parts, 2, 2, stable, num_keys))

    def as_runs(front: Ndarray) -> Ndarray:
        """[device, ..., position, ...] as [run, row, position]."""
        last = with_dim_at(front, at, -1)
        row_groups = last.reshape(-1, runs.width, *last.shape[1:])
        return with_dim_at(row_groups, 1, -2).reshape(len(row_groups), -1, runs.width * last.shape[-1])

    def as_front(x: Ndarray, shape: tuple[int, ...]) -> Ndarray:
        others = (*shape[1:at], *shape[at + 1 :])
        row_groups = with_dim_at(x.reshape(len(x), *others, runs.width, shape[at]), -2, 1)
        return with_dim_at(row_groups.reshape(shape[0], *others, shape[at]), -1, at)

    sent_bytes = sum(block_bytes(env, t, axes) * len(line.mine) * (line.n - len(line.mine)) // line.n for t in in_types)
    return annotate_sends(run, sent_bytes, line.ranks)


# -- as others see it ------------------------------------------------------------------------------------------------------


def _bytes_sent(in_types: Types, params: Params, sizes: Mapping[str, int]) -> int:
    """The bytes that a device sends: elements of evenly mixed rows, and samples of its keys to find the cuts."""
    n = math.prod(sizes.get(a, 1) for a in params["axes"])
    shape = in_types[0].shape
    size = shape[params["dimension"]]
    if n <= 1 or not size:
        return 0
    key_bytes = sum(t.itemsize for t in in_types[: params["num_keys"]])
    rows = in_types[0].size // size
    sample_bytes = 8 * rows * (n + 1) if params.get("places") else bytes_shown(n, rows, size, key_bytes)
    return (n - 1) * (sum(t.nbytes for t in in_types) // n + sample_bytes)


def _exchange(operands: Operands, params: Params) -> list[tuple[Ndarray, ...]]:
    dim, n = params["dimension"], len(operands)
    wholes = [np.concatenate(parts, dim) for parts in zip(*operands, strict=True)]
    order = np.broadcast_to(
        np.arange(wholes[0].shape[dim]).reshape([-1 if d == dim else 1 for d in range(wholes[0].ndim)]), wholes[0].shape
    )
    for key in reversed([k for x in wholes[: params["num_keys"]] for k in _keys(x)]):
        by = np.take_along_axis(key, order, dim).argsort(axis=dim, kind="stable")
        order = np.take_along_axis(order, by, dim)
    results: Sequence[list[Any]] = [np.split(np.take_along_axis(x, order, dim), n, dim) for x in wholes]
    return list(zip(*results, strict=True))


split_sort = define_collective(
    "split_sort",
    type_rule=_type,
    kernel=_kernel,
    rule=same_dims,
    multiple_results=True,
    across=_across,
    collective=Collective(
        "sort", sent_of=_bytes_sent, computes=True, exchange=_exchange, told=("dimension",), pattern="transpose"
    ),
)
