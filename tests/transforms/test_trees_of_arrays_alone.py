"""Classes in trees that can be made of arrays alone go through every transformation: none is made of types without need."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as jax
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P


class Blocks:
    """Arrays of different shapes; nothing else can be a block."""

    def __init__(self, blocks: Any) -> None:
        if not all(isinstance(b, (jax.Array, np.ndarray)) for b in blocks):
            raise TypeError(f"blocks are arrays: {blocks}")
        self.blocks = list(blocks)


jax.tree_util.register_pytree_node(Blocks, lambda b: (b.blocks, None), lambda _, blocks: Blocks(blocks))


def doubled(b: Blocks) -> Blocks:
    return Blocks([2 * x for x in b.blocks])


def total(b: Blocks) -> Any:
    return sum(x.sum() for x in b.blocks)


def everywhere() -> NamedSharding:
    return NamedSharding(jax.make_mesh((2,), ("x",)), P())


B = Blocks([jnp.arange(4.0), jnp.ones((4, 1))])
TWICE = [[0.0, 2.0, 4.0, 6.0], [2.0, 2.0, 2.0, 2.0]]


@pytest.mark.parametrize(
    "run",
    [
        jax.jit(doubled),
        jax.jit(jax.jit(doubled)),
        lambda b: jax.jit(doubled, out_shardings=everywhere())(b),
        lambda b: jax.jit(doubled, in_shardings=everywhere())(b),
        lambda b: jax.jit(doubled).lower(b).compile()(b),
        lambda b: lax.scan(lambda c, _: (doubled(c), c), b, None, length=1)[0],
        lambda b: lax.fori_loop(0, 1, lambda _, c: doubled(c), b),
        lambda b: lax.cond(True, doubled, lambda c: c, b),
        lambda b: jax.jit(lambda i: lax.switch(i, [lambda c: c, doubled], b))(1),
        jax.vmap(doubled),
        lambda b: jax.pmap(doubled, devices=jax.devices()[:2])(Blocks([x.reshape(2, -1) for x in b.blocks])),
        lambda b: jax.shard_map(doubled, mesh=everywhere().mesh, in_specs=P("x"), out_specs=P("x"))(b),
        jax.checkpoint(doubled),
        lambda b: jax.jvp(doubled, (b,), (b,))[1],
        lambda b: jax.grad(lambda c: sum((x**2).sum() for x in lax.scan(lambda c, _: (c, None), c, None, length=2)[0].blocks))(b),
    ],
)  # fmt: skip
def test_goes_through(run: Any) -> None:
    found = run(B)
    assert [x.ravel().tolist() for x in found.blocks] == [np.ravel(x).tolist() for x in TWICE]


def test_a_sharding_that_does_not_fit_names_the_leaf() -> None:
    split = NamedSharding(jax.make_mesh((2,), ("x",)), P(None, "x"))
    with pytest.raises(ValueError, match="result leaf 1"):
        jax.jit(lambda x: Blocks([x, x[0]]), out_shardings=split)(jnp.ones((4, 4)))
    with pytest.raises(ValueError, match=r"result\['b'\]"):
        jax.jit(lambda x: {"a": x, "b": x[0]}, out_shardings=split)(jnp.ones((4, 4)))


def test_the_output_of_a_scan_is_a_pair() -> None:
    with pytest.raises(TypeError, match="must be a pair"):
        lax.scan(lambda c, _: [c, c, c], 1.0, None, length=2)
    carry, _ = lax.scan(lambda c, _: [c + 1.0, None], 1.0, None, length=2)
    assert float(carry) == 3.0
