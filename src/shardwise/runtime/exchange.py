"""Collectives on plain lists: what each device of a group gets, given what each brings.

This is the meaning of the collectives written down a second time, without blocks or leading dims. The stepped executor
runs on it, and is thereby a check of the batched one. Devices of a group are listed in row-major order of the axes.

Comes in: one tuple of operands per device. Goes out: one array per device.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shardwise.ir.op import Op
from shardwise.runtime.blocks import Ndarray
from shardwise.runtime.env import Env
from shardwise.runtime.extrema import maximum, minimum

Operands = Sequence[tuple[Ndarray, ...]]
Params = Mapping[str, Any]
Mapped = tuple[tuple[bool, ...], ...]

COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "sum": np.add, "max": maximum, "min": minimum, "prod": np.multiply,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip


def unwrapped(op: Op, params: Params) -> tuple[Op, Params, Mapped]:
    """The op that runs under any number of vmaps, its params, and for each vmap which operands have its dim (in front)."""
    mapped: list[tuple[bool, ...]] = []
    while isinstance(params.get("op"), Op):
        mapped.append(params["mapped"])
        op, params = params["op"], dict(params["inner"])
    return op, params, tuple(mapped)


def exchange(op: Op | str, operands: Operands, params: Params, mapped: Mapped = ()) -> list[Ndarray]:
    """The result of a collective on each device of one group; under vmaps, element by element of their dims."""
    if mapped:
        having = mapped[0]
        size = next(len(x) for x, m in zip(operands[0], having, strict=True) if m)
        rows = [
            exchange(
                op,
                [tuple(x[i] if m else x for x, m in zip(xs, having, strict=True)) for xs in operands],
                params,
                mapped[1:],
            )
            for i in range(size)
        ]
        return [np.stack(parts) for parts in zip(*rows, strict=True)]
    name = op if isinstance(op, str) else op.name
    meaning = _MEANINGS.get(name)
    if meaning is not None:
        return meaning(operands, params)
    if isinstance(op, str):
        raise TypeError(f"{name} is no collective")
    return _by_kernel(op, operands, params)


def alone(name: str, position: int, operands: Sequence[Ndarray], params: Params) -> Ndarray | None:
    """The result of an op on mesh axes that needs nothing from other devices; None if it is not of that sort.

    `position` is the device's row-major position along the op's axes.
    """
    if name == "axis_index":
        return np.asarray(position, np.int32)
    if name in ("pvary", "pcast"):
        return operands[0]
    if name == "all_slice":
        return np.split(operands[0], math.prod(params["sizes"]), params["dim"])[position]
    return None


def _in_groups(values: Sequence[Any], params: Params, fold: Callable[[list[Any]], Sequence[Any]]) -> list[Any]:
    """`fold` applied to the members of each axis_index_group; it gives one result per member."""
    groups = params.get("groups") or (tuple(range(len(values))),)
    results: list[Any] = [None] * len(values)
    for group in groups:
        for member, result in zip(group, fold([values[i] for i in group]), strict=True):
            results[member] = result
    return results


def _combined(kind: str, members: Sequence[Ndarray]) -> Ndarray:
    dtype = members[0].dtype
    return functools.reduce(lambda a, b: np.asarray(COMBINE[kind](a, b), dtype), members)


def _first(operands: Operands) -> list[Ndarray]:
    return [values[0] for values in operands]


def _all_reduce(operands: Operands, params: Params) -> list[Ndarray]:
    return _in_groups(_first(operands), params, lambda xs: [_combined(params["kind"], xs)] * len(xs))


def _all_gather(operands: Operands, params: Params) -> list[Ndarray]:
    join = np.concatenate if params["tiled"] else np.stack
    return _in_groups(_first(operands), params, lambda xs: [join(xs, params["dim"])] * len(xs))


def _parts(x: Ndarray, n: int, dim: int, tiled: bool) -> list[Ndarray]:
    return np.split(x, n, dim) if tiled else [np.take(x, i, dim) for i in range(n)]


def _reduce_scatter(operands: Operands, params: Params) -> list[Ndarray]:
    kind = params.get("kind", "sum")
    fold = lambda xs: _parts(_combined(kind, xs), len(xs), params["dim"], params["tiled"])  # noqa: E731
    return _in_groups(_first(operands), params, fold)


def _all_to_all(operands: Operands, params: Params) -> list[Ndarray]:
    tiled = params["tiled"]
    join = np.concatenate if tiled else np.stack

    def fold(xs: list[Ndarray]) -> list[Ndarray]:
        sent = [_parts(x, len(xs), params["split"], tiled) for x in xs]
        return [join([parts[to] for parts in sent], params["concat"]) for to in range(len(xs))]

    return _in_groups(_first(operands), params, fold)


def _ppermute(operands: Operands, params: Params) -> list[Ndarray]:
    xs = _first(operands)
    results = [np.zeros_like(x) for x in xs]
    for source, target in params["perm"]:
        results[target] = xs[source]
    return results


def _first_replica(operands: Operands, params: Params) -> list[Ndarray]:
    return [operands[0][0]] * len(operands)


def _halo_exchange(operands: Operands, params: Params) -> list[Ndarray]:
    dim, step, start, width = params["dim"], params["step"], params["start"], params["width"]
    whole = np.moveaxis(np.concatenate(_first(operands), dim), dim, 0)
    results = []
    for i, (_, fill) in enumerate(operands):
        window = np.empty((width, *whole.shape[1:]), whole.dtype)
        for k in range(width):
            at = step * i + start + k
            window[k] = whole[at] if 0 <= at < len(whole) else fill
        results.append(np.moveaxis(window, 0, dim))
    return results


_MEANINGS: dict[str, Callable[[Operands, Params], list[Ndarray]]] = {
    "all_reduce": _all_reduce, "all_gather": _all_gather, "reduce_scatter": _reduce_scatter, "all_to_all": _all_to_all,
    "ppermute": _ppermute, "first_replica": _first_replica, "halo_exchange": _halo_exchange,
}  # fmt: skip


def _by_kernel(op: Op, operands: Operands, params: Params) -> list[Ndarray]:
    """A collective that has no second definition here: its own block kernel, on a grid of one axis for the group."""
    assert op.kernel is not None
    n = len(operands)
    axes = tuple(params["axes"])
    env = Env(axes, (n,) + (1,) * (len(axes) - 1))
    lead = (n,) + (1,) * (len(axes) - 1)
    blocks = [np.stack(xs).reshape(*lead, *xs[0].shape) for xs in zip(*operands, strict=True)]
    given = {**params, "sizes": lead} if "sizes" in params else dict(params)
    out = op.kernel(env, *blocks, **given)
    rows = np.broadcast_to(out, (*lead, *out.shape[len(axes) :])).reshape(n, *out.shape[len(axes) :])
    return list(rows)
