"""`shardwise.extend.random`: generators by name, keys made with them, and the hash of the default one."""

from __future__ import annotations

from typing import Any

import numpy as np

from shardwise import numpy as jnp
from shardwise.base.listing import listing as _listing
from shardwise.ir import Array
from shardwise.ops.random.random_bits import random_seed as _random_seed
from shardwise.ops.rules.convert import as_array, as_value
from shardwise.random import PRNGSpec, key_dtype

__all__ = ["define_prng_impl", "random_seed", "rbg_prng_impl", "seed_with_impl", "threefry_2x32", "threefry_prng_impl",
           "unsafe_rbg_prng_impl"]  # fmt: skip

threefry_prng_impl = PRNGSpec("threefry2x32")
rbg_prng_impl = PRNGSpec("rbg")
unsafe_rbg_prng_impl = PRNGSpec("unsafe_rbg")

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = np.uint32(0x1BD11BDA)


def random_seed(seeds: Any, impl: Any) -> Array:
    """A key of a generator from each integer: int[...] -> key[...]."""
    given = np.int64(seeds) if isinstance(seeds, int) else seeds
    return _random_seed(as_array(as_value(given)), key_dtype(impl))


def seed_with_impl(impl: Any, seed: Any) -> Array:
    """A key of the generator `impl` from each integer: int[...] -> key[...]."""
    return random_seed(seed, impl)


def define_prng_impl(**parts: Any) -> Any:
    """NotImplementedError: keys are of the generators that are there, as kernels know how each is drawn from."""
    raise NotImplementedError(
        f"define_prng_impl({', '.join(parts)}): the generators are those that random.key takes by name. Draw words with your functions, on "
        "uint32 arrays as keys, and use random.key_data for a seed."
    )


def threefry_2x32(keypair: Any, count: Any) -> Array:
    """The Threefry-2x32 hash, of 20 rounds, of counters: u32[...] of any shape under a pair of uint32 words.

    The first half of the counters, in row-major order, is hashed with the second; an odd number of them is filled up by 0.

    Raises:
        TypeError: something is not uint32.
    """
    keys, counters = tuple(map(jnp.asarray, keypair)), jnp.asarray(count)
    if len(keys) != 2 or any(x.dtype != np.uint32 for x in (*keys, counters)):
        raise TypeError(
            f"threefry_2x32 takes a pair of uint32 words and uint32 counters, got {[x.dtype.name for x in keys]} and "
            f"{counters.dtype.name}."
        )
    flat = counters.reshape(-1)
    half = -(-flat.size // 2)
    x, y = flat[:half], jnp.pad(flat[half:], (0, 2 * half - flat.size))
    words = (*keys, keys[0] ^ keys[1] ^ _PARITY)
    x, y = x + words[0], y + words[1]
    for r in range(5):
        for turn in _ROTATIONS[r % 2]:
            x = x + y
            y = x ^ ((y << np.uint32(turn)) | (y >> np.uint32(32 - turn)))
        x, y = x + words[(r + 1) % 3], y + words[(r + 2) % 3] + np.uint32(r + 1)
    return jnp.concatenate([x, y])[: flat.size].reshape(counters.shape)


__dir__ = _listing(__name__)
