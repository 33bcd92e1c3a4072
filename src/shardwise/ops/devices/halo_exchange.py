"""`halo_exchange`: each device receives a window of a virtual dim made of pieces of split operands. The partitioner inserts it.

No device ever holds the whole virtual dim. Its positions hold pieces of the sources, and the fill value between them:

    roll by one:        pieces (x[n-1:], x[:n-1])       device i's window: its neighbour's last row, then its own rows but the last
    slices, pads:       one piece, with windows that extend beyond it
    concatenate:        a piece of each operand

Between processes only the positions that the receivers' windows need are sent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from shardwise.base.caches import recent
from shardwise.base.shapes import Ndarray
from shardwise.ir import Box, Collective, Equation, ShapedArray, SmallForm
from shardwise.ir.op import Params, Types
from shardwise.ops.devices.declare import define_collective
from shardwise.ops.devices.each import Operands
from shardwise.ops.devices.fronts import merge_axes, unmerge_axes
from shardwise.ops.devices.lines import (
    Kernel,
    Line,
    annotate_sends,
    as_slice,
    back_from,
    block_bytes,
    front_of,
    line_of,
    settle_extents,
    tag_of,
)
from shardwise.ops.devices.rules import moved_dim_rule
from shardwise.ops.rules.derivative import later
from shardwise.runtime import copies
from shardwise.runtime.blocks import with_dim_at, with_ones
from shardwise.runtime.env import Env
from shardwise.runtime.memory import pool
from shardwise.runtime.processes import the_world
from shardwise.runtime.strided import strided_view

Piece = tuple[int, int, int, int]  # source, first position in the source, position in the dim, length
Pieces = tuple[Piece, ...]  # in order, without overlap
Run = tuple[int | None, int, int]  # source (None: the fill value), first position in the source, length


def _type(
    *operands: ShapedArray,
    axes: tuple[str, ...],
    sizes: tuple[int, ...],
    dim: int,
    step: int,
    start: int,
    width: int,
    pieces: Pieces,
    split: tuple[bool, ...],
) -> ShapedArray:
    """The last operand is the fill value. Sources that are not `split` are complete on each device."""
    x = operands[0]
    varying_axes = frozenset[str]().union(*[t.vma for t in operands])
    own = frozenset[str]().union(*[t.vma for t, parts in zip(operands, (*split, False), strict=True) if not parts])
    if step:
        varying_axes |= set(axes)
    else:  # every device has the same window
        varying_axes = (varying_axes - set(axes)) | own
    shape = (*x.shape[:dim], width, *x.shape[dim + 1 :])
    return ShapedArray(shape, x.dtype, x.weak_type, vma=varying_axes)


def _covering_runs(pieces: Pieces, low: int, high: int) -> Iterator[Run]:
    """Positions [low, high) of the dim as runs."""
    at = low
    for source, first, place, length in pieces:
        begin, end = max(place, at), min(place + length, high)
        if begin < end:
            if begin > at:
                yield None, 0, begin - at
            yield source, first + begin - place, end - begin
            at = end
    if at < high:
        yield None, 0, high - at


def _kernel(
    env: Env,
    *operands: Ndarray,
    axes: tuple[str, ...],
    sizes: tuple[int, ...],
    dim: int,
    step: int,
    start: int,
    width: int,
    pieces: Pieces,
    split: tuple[bool, ...],
) -> Ndarray:
    """Device i gets positions ``[step * i + start, step * i + start + width)`` of the dim.

    The result is a strided view of a source if all windows lie inside one piece.
    """
    *sources, fill = operands
    wholes = []
    for x, parts in zip(sources, split, strict=True):
        if parts:
            front, n, dims = merge_axes(env, x, axes)
            at = env.lead - len(dims) + dim
            whole = with_dim_at(front, 0, at)
            wholes.append(whole.reshape(*whole.shape[:at], n * whole.shape[at + 1], *whole.shape[at + 2 :]))
        else:
            wholes.append(_alike(env, x, axes))
    n, dims = math.prod(sizes), tuple(env.dim(a) for a in axes)
    at = env.lead - len(dims) + dim
    low, high = start + min(0, step * (n - 1)), start + max(0, step * (n - 1)) + width
    runs = list(_covering_runs(pieces, low, high))
    parts = [wholes[s][(slice(None),) * at + (slice(first, first + m),)] for s, first, m in runs if s is not None]
    if len(runs) == 1 and parts:
        (whole,) = parts
    else:
        whole = _put_together(runs, parts, wholes[0], _alike(env, fill, axes), at)
    if not step:
        return with_ones(whole, dims)
    first = (slice(None),) * at + (slice(start - low, None),)
    view = strided_view(
        whole[first],
        (n, *whole.shape[:at], width, *whole.shape[at + 1 :]),
        (step * whole.strides[at], *whole.strides),
        writeable=False,
    )
    return unmerge_axes(env, view, axes, dims)


def _alike(env: Env, x: Ndarray, axes: tuple[str, ...]) -> Ndarray:
    """A block that is identical on all devices along `axes`, without the leading dims of `axes`."""
    dims = tuple(env.dim(a) for a in axes)
    return x.reshape([m for d, m in enumerate(x.shape) if d not in dims])


def _put_together(runs: list[Run], parts: list[Ndarray], like: Ndarray, fill: Ndarray, at: int) -> Ndarray:
    loops = np.broadcast_shapes(*[p.shape[: fill.ndim] for p in parts], fill.shape)
    rest = like.shape[fill.ndim :]
    core = at - fill.ndim
    value = fill.reshape(fill.shape + (1,) * len(rest))
    parts_left, pieces = iter(parts), []
    for source, _, length in runs:
        part = value if source is None else next(parts_left)
        pieces.append(np.broadcast_to(part, (*loops, *rest[:core], length, *rest[core + 1 :])))
    return copies.concatenate_blocks(pieces, at, like=like)


# -- over processes --------------------------------------------------------------------------------------------------------


Write = tuple[int, int, int, int | None, int | None, int]  # part, place, rows, source, take, first row


class Windows:
    """The positions of one split source that each process sends, and how windows are assembled; each device has `local` positions.

    `sends` and `takes` hold positions per other process; an entry of `takes` also has the index of the message among the sender's
    messages. `counts` are the lengths of all messages, and `fan` is the largest number of messages of a process.
    """

    __slots__ = ("_local", "_mine", "counts", "fan", "own", "sends", "takes")

    def __init__(self, line: Line, local: int, source: int, step: int, start: int, width: int, pieces: Pieces) -> None:
        owned_positions = [_positions(member, local) for member in line.members]
        needed_positions = []
        for member in line.members:
            window_positions = [np.zeros(0, np.int64)]
            for s, first, place, length in pieces:
                if s == source:
                    at = (step * member[:, None] + start + np.arange(width)).ravel() - place
                    window_positions.append(at[(at >= 0) & (at < length)] + first)
            needed_positions.append(np.unique(np.concatenate(window_positions)))
        me = line.me
        self.own = owned_positions[me]
        self._local = local
        self._mine = {int(q): i for i, q in enumerate(line.mine)}
        messages: dict[int, list[tuple[int, np.ndarray]]] = {}
        for k, own_positions in enumerate(owned_positions):
            shared_positions = [
                (to, np.intersect1d(own_positions, needs)) for to, needs in enumerate(needed_positions) if to != k
            ]
            messages[k] = [(to, at) for to, at in shared_positions if at.size]
        self.sends = messages[me]
        self.takes = [(k, i, at) for k, sends in messages.items() for i, (to, at) in enumerate(sends) if to == me]
        self.fan = max(map(len, messages.values()))
        self.counts = sorted({at.size for sends in messages.values() for _, at in sends})

    def pieces_of(self, first: int, length: int) -> Iterator[tuple[int, int | None, int, int]]:
        """Positions [first, first + length) by their location: (offset, take or None for own rows, row there, number of rows)."""
        offset = 0
        while offset < length:
            device, inside = divmod(first + offset, self._local)
            count = min(length - offset, self._local - inside)
            if device in self._mine:
                yield offset, None, self._mine[device] * self._local + inside, count
            else:
                take = next(j for j, (_, _, at) in enumerate(self.takes) if (at == first + offset).any())
                yield offset, take, int(np.searchsorted(self.takes[take][2], first + offset)), count
            offset += count


def _positions(member: np.ndarray, local: int) -> np.ndarray:
    return (member[:, None] * local + np.arange(local)).ravel()


@recent(1024)
def _windows(
    env: Env, axes: tuple[str, ...], local: int, source: int, step: int, start: int, width: int, pieces: Pieces
) -> Windows:
    return Windows(line_of(env, axes), local, source, step, start, width, pieces)


def _across(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
    """Exchange the rows at the borders, then assemble each device's window locally."""
    axes, dim, step, start, width = (params[k] for k in ("axes", "dim", "step", "start", "width"))
    pieces, split = params["pieces"], params["split"]
    line = line_of(env, axes)
    if not line.crosses:
        return lambda *blocks: _kernel(env, *blocks, **params)
    own_parts = line.mine if step else line.mine[:1]
    at = 1 + env.lead - len(axes) + dim  # the dim's position once the parts are in front
    settlers = [settle_extents(env, t, axes) for t in in_types]
    rims = [
        _windows(env, axes, t.shape[dim], s, step, start, width, pieces) if parts else None
        for s, (t, parts) in enumerate(zip(in_types, split, strict=False))
    ]
    exchanges = [_Exchange(rim, tag_of(f"halo_exchange {s}", env, in_types, params)) if rim and rim.fan else None
                 for s, rim in enumerate(rims)]  # fmt: skip
    writes = _window_writes(own_parts, rims, params)
    whole = _whole_window(writes, width) if len(own_parts) == 1 else None
    lines = tuple(env.dim(a) for a in axes)

    def put_back(out: Ndarray) -> Ndarray:
        front = with_dim_at(with_dim_at(out, 0, 1), 0, at)
        return back_from(env, front, axes, lines) if step else with_ones(front[0], lines)

    def run(*blocks: Ndarray) -> Ndarray:
        rows, loops = [], []
        for s, x in enumerate(blocks[:-1]):
            front, _ = front_of(env, settlers[s](x), axes)
            part_first = with_dim_at(with_dim_at(front, at, 0), 1, 0)  # (part, position in it, loops..., rest)
            rows.append(part_first.reshape(-1, *part_first.shape[2:]) if split[s] else part_first)
            loops.append(part_first.shape[2:])
        fill_front, _ = front_of(env, settlers[-1](blocks[-1]), axes)
        rest = loops[0][fill_front.ndim - 1 :]
        lead = np.broadcast_shapes(fill_front.shape[1:], *[m[: fill_front.ndim - 1] for m in loops])
        received_rows = [e.run(line, of) if e is not None else [] for e, of in zip(exchanges, rows, strict=True)]
        if whole is not None:
            source, row = whole
            near = rows[source] if split[source] else rows[source][0]
            if near.shape[1:] == (*lead, *rest):
                return put_back(near[None, row : row + width])
        out = pool.empty((len(own_parts), width, *lead, *rest), blocks[0].dtype)
        _write_window(out, writes, split, rows, received_rows, fill_front)
        return put_back(out)

    sent_bytes = 0
    for t, rim in zip(in_types, rims, strict=False):
        if rim is not None:
            sent_bytes += block_bytes(env, t, axes) // max(t.shape[dim], 1) * sum(where.size for _, where in rim.sends)
    return annotate_sends(run, sent_bytes, line.ranks)


def _window_writes(own_parts: Sequence[int], rims: Sequence[Windows | None], params: Params) -> list[Write]:
    """What is written into each of the windows of these parts."""
    step, start, width = params["step"], params["start"], params["width"]
    writes: list[Write] = []
    for j, part in enumerate(own_parts):
        place, begin = 0, step * int(part) + start
        for source, first, length in _covering_runs(params["pieces"], begin, begin + width):
            rim = None if source is None else rims[source]
            if source is None or rim is None:
                writes.append((j, place, length, source, None, first))
            else:
                window_pieces = rim.pieces_of(first, length)
                writes += [(j, place + offset, count, source, take, row) for offset, take, row, count in window_pieces]
            place += length
    return writes


def _write_window(
    out: Ndarray,
    writes: Sequence[Write],
    split: Sequence[bool],
    rows: Sequence[Ndarray],
    received_rows: Sequence[Sequence[Ndarray]],
    fill: Ndarray,
) -> None:
    """Write rows of this process's and those that it received."""
    for j, place, count, source, take, row in writes:
        into = out[j, place : place + count]
        if source is None:
            value: Any = fill[j]
            into[...] = value.reshape(value.shape + (1,) * (into.ndim - 1 - value.ndim))
        elif take is not None:
            into[...] = received_rows[source][take][row : row + count]
        elif split[source]:
            into[...] = rows[source][row : row + count]
        else:
            into[...] = rows[source][j, row : row + count]


def _whole_window(writes: list[Write], width: int) -> tuple[int, int] | None:
    """Where a window lies as a whole in what this process has, so that a view will do: the source, and the first row in it."""
    if len(writes) != 1:
        return None
    _, _, _, source, take, row = writes[0]
    return (source, row) if source is not None and take is None and width else None


class _Exchange:
    """The messages of one source."""

    def __init__(self, rims: Windows, tag: int) -> None:
        self._rims, self._tag = rims, tag
        self._sends = [(k, as_slice(np.searchsorted(rims.own, at))) for k, at in rims.sends]

    def run(self, line: Line, rows: Ndarray) -> list[Ndarray]:
        """Exchange the messages and return the rows of each take."""
        rims, rest = self._rims, rows.shape[1:]
        receives = [(k, place, pool.empty((at.size, *rest), rows.dtype)) for k, place, at in rims.takes]
        sends: list[tuple[int, Ndarray]] = [(k, rows[of]) for k, of in self._sends]
        shapes = [(count, *rest) for count in rims.counts]
        the_world().link(line.ranks).swap(sends, receives, rims.fan, shapes, rows.itemsize, self._tag)
        return [rows for _, _, rows in receives]


# -- as others see it ------------------------------------------------------------------------------------------------------


def _bytes_sent(in_types: Types, params: Params, sizes: Mapping[str, int]) -> int:
    """The bytes received by the device that holds the smallest part of its window itself."""
    dim, n = params["dim"], math.prod(sizes.get(a, 1) for a in params["axes"])
    device = np.arange(n)
    begin = params["step"] * device + params["start"]
    received_bytes = np.zeros(n, np.int64)
    for source, first, place, length in params["pieces"]:
        if not params["split"][source]:
            continue
        aval = in_types[source]
        local = aval.shape[dim]
        low = np.maximum(begin, place) - place + first
        high = np.minimum(begin + params["width"], place + length) - place + first
        own = np.minimum(high, (device + 1) * local) - np.maximum(low, device * local)
        received_bytes += (np.maximum(high - low, 0) - np.maximum(own, 0)) * (aval.nbytes // max(local, 1))
    return int(received_bytes.max())


def _exchange(operands: Operands, params: Params) -> list[Ndarray]:
    dim, step, start, width = params["dim"], params["step"], params["start"], params["width"]
    results = []
    for i, (*sources, fill) in enumerate(operands):
        shape = list(sources[0].shape)
        shape[dim] = width
        window = with_dim_at(np.empty(shape, sources[0].dtype), dim, 0)
        window[...] = fill
        for source, first, place, length in params["pieces"]:
            parts = [values[source] for values in operands] if params["split"][source] else [sources[source]]
            whole = with_dim_at(np.concatenate(parts, dim), dim, 0)
            for k in range(width):
                at = step * i + start + k - place
                if 0 <= at < length:
                    window[k] = whole[first + at]
        results.append(with_dim_at(window, 0, dim))
    return results


def _keeps_dim(in_types: Types, out_types: Types, params: Params) -> Any:
    rule = moved_dim_rule(lambda p: (p["dim"],))(in_types[:1], out_types, params)
    return type(rule)((*rule.inputs * (len(in_types) - 1), ()), rule.outputs, rule.sizes, rule.kinds)


def _boxes(eqn: Equation) -> tuple[tuple[int, ...], list[Box]] | None:
    """Boxes for the whole dim, where the devices' windows are consecutive and the pieces cover them."""
    params = eqn.params
    dim, width, pieces = params["dim"], params["width"], params["pieces"]
    size = width * math.prod(params["sizes"])
    begin = params["start"]
    if params["step"] != width or any(s is None for s, _, _ in _covering_runs(pieces, begin, begin + size)):
        return None
    out = eqn.outputs[0].aval.shape
    put = lambda shape, n: (*shape[:dim], n, *shape[dim + 1 :])  # noqa: E731
    origin = (0,) * len(out)
    boxes: list[Box] = []
    for source, first, place, length in pieces:
        low, high = max(place, begin), min(place + length, begin + size)
        if low < high:
            boxes.append(Box(source, put(origin, first + low - place), put(origin, low - begin), put(out, high - low)))
    return put(out, size), boxes


def without_gaps(params: Params) -> tuple[Params, int]:
    """The params with one more source, the same on all devices, of fill values that stand between pieces; and how many positions it needs:
    0 where there are no gaps, or where windows are not consecutive.
    """
    width, begin, split = params["width"], params["start"], params["split"]
    if params["step"] != width:
        return params, 0
    at, pieces, rows = begin, list[Piece](), 0
    for source, first, length in _covering_runs(params["pieces"], begin, begin + width * math.prod(params["sizes"])):
        pieces.append((len(split) if source is None else source, first, at, length))
        rows = max(rows, length) if source is None else rows
        at += length
    return {**params, "pieces": tuple(pieces), "split": (*split, False)}, rows


halo_exchange = define_collective(
    "halo_exchange",
    type_rule=_type,
    kernel=_kernel,
    rule=_keeps_dim,
    across=_across,
    collective=Collective("permute", sent_of=_bytes_sent, moves=True, exchange=_exchange, told=("dim",), boxes=_boxes),
    small=SmallForm(later("shardwise.runtime.small", "move_elements"), later("shardwise.runtime.small", "moves_fit")),
)
