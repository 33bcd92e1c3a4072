"""Collectives on plain lists: from the operand of each device of a group to its result.

This is the meaning of the collectives written down a second time (`Collective.exchange`), without blocks or leading dims. The stepped
executor runs on it, and is thereby a check of the batched one. Devices of a group are listed in row-major order of the axes.

Comes in: one tuple of operands per device. Goes out: one array per device, or a tuple of them for an op of several results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shardwise.base.shapes import Ndarray
from shardwise.ir.op import Op
from shardwise.runtime.env import Env

Operands = Sequence[tuple[Ndarray, ...]]
Params = Mapping[str, Any]
Mapped = tuple[tuple[bool, ...], ...]


def exchange(op: Op, operands: Operands, params: Params, mapped: Mapped = ()) -> list[Any]:
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
    assert op.collective is not None
    if op.collective.exchange is not None:
        return op.collective.exchange(operands, params)
    return _by_kernel(op, operands, params)


def _by_kernel(op: Op, operands: Operands, params: Params) -> list[Ndarray]:
    """A collective that has no second definition: its own block kernel, on a grid of one axis for the group."""
    n = len(operands)
    axes = tuple(params["axes"])
    env = Env(axes, (n,) + (1,) * (len(axes) - 1))
    lead = (n,) + (1,) * (len(axes) - 1)
    blocks = [np.stack(xs).reshape(*lead, *xs[0].shape) for xs in zip(*operands, strict=True)]
    given = {**params, "sizes": lead} if "sizes" in params else dict(params)
    out = op.block_kernel(env, *blocks, **given)
    rows = np.broadcast_to(out, (*lead, *out.shape[len(axes) :])).reshape(n, *out.shape[len(axes) :])
    return list(rows)
