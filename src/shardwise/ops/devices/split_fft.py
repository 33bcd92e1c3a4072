"""`split_fft`: the Fourier transform along a dim that mesh axes split. The result has the operand's layout.

Between n processes an index is ``j = j1 * m + j2``, where j1 is the device, and a frequency is ``k = k1 + n * k2``:

    all-to-all                  each device has all j1 for its share of the j2
    transform over j1           times ``exp(-2 pi i j2 k1 / N)``
    all-to-all                  each device has all j2 for one k1
    transform over j2
    all-to-all                  frequencies in order

This sends three times a device's block; a gather sends n - 1 times the block. In one process the parts are joined and transformed
as one row. The partitioner inserts it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from shardwise.base.shapes import Ndarray
from shardwise.ir import Collective, ShapedArray
from shardwise.ir.op import Params, Types
from shardwise.ops.devices.all_to_all import all_to_all_op
from shardwise.ops.devices.declare import define_collective
from shardwise.ops.devices.each import Operands, first_operands
from shardwise.ops.devices.fronts import merge_axes, unmerge_axes
from shardwise.ops.devices.lines import Kernel, line_of
from shardwise.ops.devices.rules import same_dims
from shardwise.ops.rules import pocketfft
from shardwise.runtime.blocks import with_dim_at
from shardwise.runtime.env import Env
from shardwise.runtime.machine import thread_count

_THREADS_FROM = 1 << 17  # elements; from here on SciPy's worker threads are faster


def _type(x: ShapedArray, *, axes: tuple[str, ...], sizes: tuple[int, ...], dim: int, inverse: bool) -> ShapedArray:
    return ShapedArray(x.shape, x.dtype, x.weak_type, vma=x.vma | set(axes))


def _transform_dim(x: Ndarray, at: int, inverse: bool) -> Ndarray:
    return pocketfft.transform(x, (at,), inverse, thread_count() if x.size >= _THREADS_FROM else 1)


def _kernel(env: Env, x: Ndarray, *, axes: tuple[str, ...], sizes: tuple[int, ...], dim: int, inverse: bool) -> Ndarray:
    front, n, dims = merge_axes(env, x, axes)
    at = env.lead - len(axes) + dim
    whole = with_dim_at(front, 0, at)
    shape = whole.shape
    out = _transform_dim(whole.reshape(*shape[:at], n * shape[at + 1], *shape[at + 2 :]), at, inverse)
    return unmerge_axes(env, with_dim_at(out.reshape(shape), at, 0), axes, dims)


def _across(env: Env, in_types: Types, out_types: Types, params: Params) -> Kernel:
    axes, sizes, dim, inverse = params["axes"], params["sizes"], params["dim"], params["inverse"]
    if not line_of(env, axes).crosses:
        return lambda x: _kernel(env, x, **params)
    (x,), n, length = in_types, math.prod(sizes), in_types[0].shape[dim]
    rest = (*x.shape[:dim], *x.shape[dim + 1 :])
    one, other = len(rest), len(rest) + 1
    whole, share = (1, length), (n, length // n)
    swaps: list[Kernel] = []
    for given, split, concat in ((whole, other, one), (share, one, other), (whole[::-1], one, other)):
        swap = {"axes": axes, "sizes": sizes, "split": split, "concat": concat, "tiled": True}
        types = (x.update(shape=(*rest, *given)),)
        assert all_to_all_op.across is not None
        swaps.append(all_to_all_op.across(env, types, (all_to_all_op.type_rule(*types, **swap),), swap))
    own = env.index(axes)[(..., *(None,) * (len(rest) + 2))] * (length // n) + np.arange(length // n)
    turns = np.arange(n)[:, None] * own % (n * length) * (2 / (n * length))  # reduced modulo N in exact integers
    turn = np.exp((1j if inverse else -1j) * np.pi * turns).astype(x.dtype)

    def run(x: Ndarray) -> Ndarray:
        x = swaps[0](with_dim_at(x, env.lead + dim, -1)[..., None, :])
        x = swaps[1](_transform_dim(x, -2, inverse) * turn)
        x = swaps[2](_transform_dim(x, -1, inverse).swapaxes(-1, -2))
        return with_dim_at(x.reshape(*x.shape[:-2], length), -1, env.lead + dim)

    return run


def _bytes_sent(in_types: Types, params: Params, sizes: Mapping[str, int]) -> int:
    n = math.prod(sizes.get(a, 1) for a in params["axes"])
    return 3 * (n - 1) * in_types[0].nbytes // n


def _exchange(operands: Operands, params: Params) -> list[Ndarray]:
    parts = first_operands(operands)
    whole = _transform_dim(np.concatenate(parts, params["dim"]), params["dim"], params["inverse"])
    return np.split(whole, len(parts), params["dim"])


split_fft = define_collective(
    "split_fft",
    type_rule=_type,
    kernel=_kernel,
    rule=same_dims,
    across=_across,
    makes_nan=True,
    collective=Collective(
        "fft", sent_of=_bytes_sent, computes=True, exchange=_exchange, told=("dim", "inverse"), pattern="transpose"
    ),
)
