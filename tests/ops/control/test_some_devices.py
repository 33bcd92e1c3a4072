"""Branches on the devices that take them: any number of devices, in any order, along one axis or two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.ops.control.some_devices import SomeDevices
from shardwise.sharding import PartitionSpec as P

X = np.random.default_rng(0).normal(size=(8, 5)).astype(np.float32)
W = np.random.default_rng(1).normal(size=5).astype(np.float32)
BRANCHES = (np.sort, lambda x: np.cumsum(x, -1), lambda x: x, lambda x: np.sort(x * W)[..., ::-1])
INDICES = {
    "one": [2, 2, 2, 0, 2, 2, 2, 2],
    "every other": [0, 1, 0, 1, 0, 1, 0, 1],
    "the first ones": [0, 0, 0, 2, 2, 2, 2, 2],
    "the last ones": [2, 2, 2, 2, 2, 3, 3, 3],
    "five of eight": [1, 3, 1, 1, 3, 3, 1, 1],
    "most": [0, 0, 0, 0, 2, 0, 0, 0],
    "all ways": [0, 1, 2, 3, 3, 2, 0, 0],
    "all the same": [1] * 8,
    "out of range": [-5, 9, 2, 2, 0, 0, 9, 0],
}
GRIDS = {"rows": [0, 0, 0, 0, 1, 1, 1, 1], "a box": [2, 2, 2, 2, 2, 2, 0, 0], "no grid": [0, 2, 2, 2, 2, 2, 0, 0]}


def numpy_branches(index: list[int]) -> np.ndarray:
    return np.stack([BRANCHES[min(max(i, 0), 3)](x) for i, x in zip(index, X, strict=True)])


def mapped(mesh: Any, *names: str) -> Any:
    def body(i: Any, x: Any, w: Any) -> Any:
        ways = [jnp.sort, lambda x: jnp.cumsum(x, -1), lambda x: x, lambda x: jnp.sort(x * w)[..., ::-1]]
        return lax.switch(i[0], ways, x)

    spec = P(names)
    return jax.jit(jax.shard_map(body, mesh=mesh, in_specs=(spec, spec, P()), out_specs=spec))


@pytest.fixture(scope="module")
def line() -> Any:
    return mapped(jax.make_mesh((8,), ("x",)), "x")


@pytest.fixture(scope="module")
def grid() -> Any:
    return mapped(jax.make_mesh((4, 2), ("x", "y")), "x", "y")


@pytest.mark.parametrize("name", [*INDICES, *GRIDS])
def test_each_device_takes_its_branch(name: str, line: Any, grid: Any):
    index = (INDICES | GRIDS)[name]
    for f in (line, grid):
        np.testing.assert_allclose(f(np.array(index, np.int32), X, W), numpy_branches(index), rtol=1e-5)


def test_a_branch_sees_few_devices(monkeypatch: pytest.MonkeyPatch):
    """The blocks of a branch have those that take it, their number rounded up."""
    seen = list[tuple[int, ...]]()
    run = SomeDevices._run

    def watched(self: Any, taken: Any, blocks: Any) -> Any:
        outs = run(self, taken, blocks)
        seen.append(outs[0].shape)
        return outs

    monkeypatch.setattr(SomeDevices, "_run", watched)
    f = mapped(jax.make_mesh((8,), ("x",)), "x")
    for index in INDICES.values():
        f(np.array(index, np.int32), X, W)
    assert {shape[0] for shape in seen} == {1, 2, 3, 4, 6, 8}
    assert len({shape[1:] for shape in seen}) == 1


@pytest.mark.parametrize("names", [("x",), ("x", "y")])
def test_results_that_stay_where_they_are(names: tuple[str, ...]):
    """A branch that hands its operands on leaves them in place, unless another result is made of them."""
    mesh = jax.make_mesh((8,) if len(names) == 1 else (4, 2), names)
    ways = [
        lambda x, y: (x, y),
        lambda x, y: (y, x),
        lambda x, y: (x[..., ::-1], y),
        lambda x, y: (x * W, x),
        lambda x, y: (y, y),
    ]

    def body(index: Any, x: Any, y: Any) -> Any:
        sorted_ways = [lambda x, y, way=way: way(x, jnp.sort(y)) if way is ways[3] else way(x, y) for way in ways]

        def step(c: Any, i: Any) -> Any:
            return lax.switch(i, sorted_ways, *c), None

        return lax.scan(step, (x, y), index[0])[0]

    index = np.random.default_rng(2).integers(0, 5, (8, 30)) * (np.arange(30) % 3 > 0)
    index[:, ::7] = np.array([0, 0, 0, 0, 0, 0, 2, 2])[:, None]
    spec = P(names)
    f = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=(spec, spec, spec), out_specs=spec))
    got = f(index.astype(np.int32), X, 2 * X)
    for d in range(8):
        c = X[d], 2 * X[d]
        for i in index[d]:
            c = ways[i](*c)
        np.testing.assert_allclose([got[0][d], got[1][d]], c, rtol=1e-5)
