"""`lax.rng_bit_generator`: bits of a state, and the state behind them, the same as XLA's on a CPU."""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from shardwise.base.dtypes import check_requested
from shardwise.base.shapes import Ndarray
from shardwise.ir import Array, ShapedArray, Shown, bind, define_op
from shardwise.ir.explicit import specs_from_rule
from shardwise.ir.op import Params, Types
from shardwise.ir.types import Spec
from shardwise.ops.indexing.dim_slices import dynamic_update_index_in_dim, index_in_dim
from shardwise.ops.random.bit_generators import philox_bits, threefry_bits
from shardwise.ops.rules.convert import as_array
from shardwise.ops.rules.dims import shape_tuple
from shardwise.ops.rules.out_sharding import in_context, resolve_out_sharding, sharding_spec, with_out_sharding
from shardwise.ops.rules.steps import per_result
from shardwise.ops.shapes.transpose import transpose
from shardwise.runtime.env import Env
from shardwise.sharding import NamedSharding
from shardwise.sharding.rule import Kind, Rule

__all__ = ["RandomAlgorithm", "rng_bit_generator"]

_STATES = (((4,), np.dtype(np.uint32)), ((2,), np.dtype(np.uint64)))
_UINTS = frozenset(np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64))


class RandomAlgorithm(enum.IntEnum):
    """The generator of `rng_bit_generator`. The default one is Philox, as on XLA's CPU."""

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2

    def __str__(self) -> str:
        return self.name


def _type(
    key: ShapedArray, *, shape: tuple[int, ...], dtype: Any, algorithm: RandomAlgorithm, out_sharding: Any
) -> tuple[ShapedArray, ShapedArray]:
    if (key.shape, key.dtype) not in _STATES:
        raise TypeError(f"rng_bit_generator takes a key of uint32[4] or uint64[2], got {key.str_short()}.")
    bits = with_out_sharding(ShapedArray(shape, dtype), out_sharding)
    return ShapedArray(key.shape, key.dtype), in_context(bits) if key.mesh is None else bits


def _rule(in_types: Types, out_types: Types, params: Params) -> Rule:
    """Each element may depend on the size of the whole: devices make all bits, and keep their parts."""
    sizes = (*in_types[0].shape, *out_types[1].shape)
    bits = tuple((f,) if sizes[f] != 1 else () for f in range(1, len(sizes)))
    return Rule((((0,),),), (((0,),), bits), sizes, (Kind.REPLICATE,) * len(sizes))


def _explicit(in_types: Types, out_types: Types, params: Params, rule: Rule) -> tuple[Spec, ...]:
    specs = specs_from_rule("rng_bit_generator", in_types, out_types, rule)
    sharding = params["out_sharding"]
    return specs if sharding is None else (specs[0], sharding_spec(sharding, out_types[1].ndim))


def _kernel(
    env: Env, key: Ndarray, *, shape: tuple[int, ...], dtype: Any, algorithm: RandomAlgorithm, out_sharding: Any
) -> tuple[Ndarray, Ndarray]:
    states = np.ascontiguousarray(key).view(np.uint64).reshape(-1, 2)
    draw = threefry_bits if algorithm is RandomAlgorithm.RNG_THREE_FRY else philox_bits
    after, bits = draw(states, shape, dtype)
    return after.view(key.dtype).reshape(key.shape), bits.reshape(key.shape[:-1] + shape)


def _batch(size: int, axis_name: Any, values: Any, dims: Any, params: Params) -> tuple[list[Array], list[int]]:
    """The first key draws for all, and it alone advances."""
    (keys,), (d,) = values, dims
    if d:
        keys = transpose(keys, (d, *(i for i in range(keys.ndim) if i != d)))
    sharding = params["out_sharding"]
    if sharding is not None:
        partitions = (None, *sharding.spec.partitions)
        sharding = NamedSharding(sharding.mesh, sharding.spec.update(partitions=partitions))
    params = {**params, "shape": (size, *params["shape"]), "out_sharding": sharding}
    after, bits = bind(rng_bit_generator_p, index_in_dim(keys, 0, 0, keepdims=False), **params)
    return [dynamic_update_index_in_dim(keys, after, 0, 0), bits], [0, 0]


rng_bit_generator_p = define_op(
    "rng_bit_generator",
    type_rule=_type,
    kernel=_kernel,
    rule=_rule,
    explicit=_explicit,
    localize=lambda params, in_types, out_types: {**params, "out_sharding": None},
    batch=_batch,
    algorithm=per_result("random"),
    multiple_results=True,
    shown=Shown(empty=("out_sharding",)),
)


def rng_bit_generator(
    key: Any,
    shape: Any,
    dtype: Any = np.uint32,
    algorithm: RandomAlgorithm | int = RandomAlgorithm.RNG_DEFAULT,
    *,
    out_sharding: Any = None,
) -> tuple[Array, Array]:
    """Random bits of a state, and the state behind them: u32[4] or u64[2] -> the same, uint[*shape].

    The first 64 bits of the state are the key, the others count the blocks drawn. The bits are those of XLA on a CPU;
    under `vmap` the first key draws for all. `out_sharding` says how the bits are split over Explicit axes.

    Raises:
        TypeError: `key` is no state, `shape` holds no sizes, or `dtype` is no unsigned integer of 8, 16, 32 or 64 bits.
        ValueError: there is no such algorithm.

    >>> state, bits = lax.rng_bit_generator(jnp.zeros(4, jnp.uint32), (3,))
    >>> bits.shape, bits.dtype
    ((3,), dtype('uint32'))
    """
    sizes = shape_tuple(shape, "rng_bit_generator: shape")
    bits_dtype = check_requested(dtype, "rng_bit_generator")
    if bits_dtype not in _UINTS:
        raise TypeError(
            f"rng_bit_generator: unsupported dtype {bits_dtype}; expected an unsigned integer of 8 to 64 bits."
        )
    out_sharding = resolve_out_sharding(out_sharding, "rng_bit_generator", len(sizes))
    after, bits = bind(
        rng_bit_generator_p,
        as_array(key),
        shape=sizes,
        dtype=bits_dtype,
        algorithm=RandomAlgorithm(algorithm),
        out_sharding=out_sharding,
    )
    return after, bits
