"""`shardwise.experimental.random`: a generator with state, in the manner of NumPy's, over the keys of `shardwise.random`."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from shardwise import numpy as jnp
from shardwise import random
from shardwise.base.dtypes import issubdtype, prng_key
from shardwise.base.lazy_dataclasses import dataclass
from shardwise.base.listing import listing as _listing
from shardwise.base.tree import register_dataclass
from shardwise.ir import Array
from shardwise.ir.trace import is_eager
from shardwise.ref import Ref, new_ref

__all__ = ["StatefulPRNG", "stateful_rng"]

Size: TypeAlias = "int | Sequence[int] | None"


def _shape(size: Size, *parameters: Any) -> tuple[int, ...]:
    if size is None:
        return np.broadcast_shapes(*[np.shape(p) for p in parameters])
    if isinstance(size, Sequence):
        return tuple(operator.index(n) for n in size)
    return (operator.index(size),)


@dataclass(frozen=True)
class StatefulPRNG:
    """A generator that counts its draws: a key, and a `Ref` with the number of the next draw. `stateful_rng` makes one.

    It is a node of trees, so that functions under `jit` and `vmap` take it as an argument, as they take its `Ref`.
    """

    _base_key: Array
    _counter: Ref

    def __post_init__(self) -> None:
        # Trees put together from other leaves (None, say) are no generators, but structures of one.
        key: Any = self._base_key
        if isinstance(key, Array) and not issubdtype(key.dtype, prng_key):
            raise ValueError(
                f"StatefulPRNG: Expected base_key to be a typed PRNG key, as random.key makes it, got {key.aval.str_short()}."
            )

    def key(self, shape: Size = ()) -> Array:
        """A new key, or new keys of that shape: key[*shape].

        Raises:
            ValueError: the generator holds several keys (see `split`) and is not mapped over.

        >>> from shardwise.experimental import random
        >>> rng = random.stateful_rng(0)
        >>> bool(rng.key() == rng.key())
        False
        """
        if self._base_key.shape:
            raise ValueError(
                f"cannot operate on split stateful generator of shape {self._base_key.shape}. Map over it with vmap, or make a "
                "list of generators with spawn."
            )
        new_key = random.fold_in(self._base_key, self._counter[...])
        self._counter[...] += 1
        key_shape = _shape(shape)
        return random.split(new_key, key_shape) if key_shape else new_key

    def random(self, size: Size = None, dtype: Any = float) -> Array:
        """Floats in [0, 1): f[*size]."""
        return random.uniform(self.key(), _shape(size), dtype)

    def uniform(self, low: Any = 0, high: Any = 1, size: Size = None, *, dtype: Any = float) -> Array:
        """Floats in [low, high): f[*size], by default of the shape to which the bounds broadcast.

        >>> from shardwise.experimental import random
        >>> random.stateful_rng(42).uniform()
        Array(0.5302608, dtype=float32)
        """
        return random.uniform(self.key(), _shape(size, low, high), dtype, low, high)

    def normal(self, loc: Any = 0, scale: Any = 1, size: Size = None, *, dtype: Any = float) -> Array:
        """Normal numbers of that mean and standard deviation: f[*size], by default of the shape to which both broadcast."""
        draws = random.normal(self.key(), _shape(size, loc, scale), dtype)
        return (jnp.asarray(loc) + jnp.asarray(scale) * draws).astype(dtype)

    def integers(self, low: Any, high: Any = None, size: Size = None, *, dtype: Any = int) -> Array:
        """Integers in [low, high), or in [0, low) without `high`: i[*size], by default of the shape to which both broadcast."""
        if high is None:
            low, high = 0, low
        return random.randint(self.key(), _shape(size, low, high), low, high, dtype)

    def split(self, num: int | Sequence[int]) -> StatefulPRNG:
        """One generator that holds as many independent ones, to be mapped over with `vmap`."""
        return StatefulPRNG(self.key(num), new_ref(jnp.zeros(num, int)))

    def spawn(self, n_children: int) -> list[StatefulPRNG]:
        """A list of independent generators."""
        return [StatefulPRNG(key, new_ref(0)) for key in self.key(n_children)]


register_dataclass(StatefulPRNG, data_fields=["_base_key", "_counter"], meta_fields=[])


def stateful_rng(seed: Any = None, *, impl: Any = None) -> StatefulPRNG:
    """A generator that begins with `random.key(seed, impl=impl)`; without a seed, with one of the operating system.

    Raises:
        TypeError: no seed, in a function that is traced: the seed would be the same in all of its calls.

    >>> from shardwise.experimental import random
    >>> random.stateful_rng(42).normal(size=3).shape
    (3,)
    """
    if seed is None:
        if not is_eager():
            raise TypeError(
                "stateful_rng: When used within transformed code it needs a seed. Pass one, or make the generator outside."
            )
        seed = np.random.SeedSequence().generate_state(1, np.uint64)[0].astype(np.int64)
    return StatefulPRNG(random.key(seed, impl=impl), new_ref(0))


__dir__ = _listing(__name__)
