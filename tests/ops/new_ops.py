"""Ops that the library does not have, each in one definition: an elementwise op, a reduction, and one that moves elements.

Run as a program it checks itself over any number of processes.
"""

from __future__ import annotations

import numpy as np

import shardwise
from shardwise.ir import Emit, Fold, ShapedArray, bind, define_op
from shardwise.ops.elementwise.elementwise_ir import MOVE
from shardwise.ops.reductions.reduce import reduce_rule
from shardwise.ops.rules.batching import shift_dims_rule
from shardwise.ops.rules.derivative import do
from shardwise.ops.rules.operands import elementwise_op
from shardwise.sharding import PartitionSpec as P
from shardwise.sharding.rule import Kind, Rule, own_factors

softsign_p = elementwise_op(
    "softsign",
    lambda x: x / (1 + np.abs(x)),
    "f",
    makes_nan=True,  # of infinite ones
    push=lambda t, y, x: do.div(t, do.integer_pow(do.add(1, do.abs(x)), y=2)),
    emit=Emit(lambda w, x: w.div(x, w.add(w.like(1, x), w.abs(x))), "w"),
)


def _size_type(x: ShapedArray, *, axes):
    return ShapedArray([n for d, n in enumerate(x.shape) if d not in axes], x.dtype)


def _size_kernel(env, x, *, axes):
    return np.abs(x).max(tuple(env.lead + d for d in axes))


max_size_p = define_op(
    "max_size",
    type_rule=_size_type,
    kernel=_size_kernel,
    rule=reduce_rule,
    reduction="max",
    fold=Fold(
        start=lambda w, dtype: (w.constant(0, dtype),),
        step=lambda w, held, x, position: (w.maximum(held[0], w.abs(x)),),
        merge=lambda w, a, b: (w.maximum(a[0], b[0]),),
        finish=lambda w, held, dtype: held[0],
        kinds="w",
    ),
    batch=shift_dims_rule("max_size", "axes"),
)


def _behind_rule(in_types, out_types, params):
    factors, shape = own_factors(in_types[0].shape), in_types[0].shape
    return Rule((factors,), ((*factors, ()),), shape, (Kind.PASS,) * len(shape))


behind_p = define_op(
    "behind",
    type_rule=lambda x: ShapedArray((*x.shape, 1), x.dtype),
    kernel=lambda env, x: x[..., None],
    rule=_behind_rule,
    emit=MOVE,
    view=True,
)


def softsign(x):
    """x / (1 + |x|): f[...] -> f[...]."""
    return bind(softsign_p, shardwise.numpy.asarray(x))


def max_size(x):
    """The largest absolute value along the last dim: f[..., n] -> f[...]."""
    x = shardwise.numpy.asarray(x)
    return bind(max_size_p, x, axes=(x.ndim - 1,))


def behind(x):
    """A new dim of size 1 behind the others: f[...] -> f[..., 1]."""
    return bind(behind_p, shardwise.numpy.asarray(x))


def scaled(x):
    """All three: rows divided by the largest of their elements, and bent."""
    return softsign(x / behind(max_size(x)))


def expected(x: np.ndarray) -> np.ndarray:
    x = x / np.abs(x).max(-1, keepdims=True)
    return x / (1 + np.abs(x))


if __name__ == "__main__":
    shardwise.distributed.initialize()
    devices = np.array(shardwise.devices())
    x = np.cos(np.arange(8 * 16, dtype=np.float32)).reshape(8, 16)
    mesh = shardwise.sharding.Mesh(devices.reshape(2, -1), ("y", "x"))
    for spec in (P("y"), P(None, "y"), P("x", "y"), P("y", "x"), P(None, ("y", "x"))):
        value = shardwise.make_array_from_callback(x.shape, shardwise.NamedSharding(mesh, spec), lambda index: x[index])
        for f in (scaled, shardwise.vmap(scaled), shardwise.vmap(scaled, 0, 1)):
            want = expected(x).T if f(x).shape == (16, 8) else expected(x)
            out = shardwise.jit(f)(value)
            for shard in out.addressable_shards:
                np.testing.assert_allclose(np.asarray(shard.data), want[shard.index], rtol=1e-6)
    print("done", flush=True)
