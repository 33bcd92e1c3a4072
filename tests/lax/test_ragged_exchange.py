"""ragged_all_to_all: rows of any count from each device to each other."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.sharding import Mesh, P


def _mapped(devices: int):
    mesh = Mesh(np.array(sw.devices()[:devices]), ("x",))
    body = partial(lax.ragged_all_to_all, axis_name="x")
    return sw.shard_map(lambda *args: body(*args), mesh=mesh, in_specs=P("x"), out_specs=P("x"))  # type: ignore[call-arg]


@pytest.mark.parametrize(("devices", "runs"), [(1, 1), (3, 1), (4, 2)])
def test_rows_arrive_where_the_sender_says(devices: int, runs: int) -> None:
    rng = np.random.default_rng(devices)
    sizes = rng.integers(0, 4, (devices, devices * runs))
    first = rng.integers(0, 8, sizes.shape)
    to = np.zeros_like(sizes)
    for target in range(devices):  # runs stand one behind the other, with a row between them that nobody writes
        own = slice(target * runs, (target + 1) * runs)
        to[:, own] = np.concatenate([[0], np.cumsum(sizes[:, own].ravel() + 1)[:-1]]).reshape(devices, runs)
    received = np.stack([sizes.reshape(devices, devices, runs)[:, t].ravel() for t in range(devices)])
    sent = rng.standard_normal((devices, 12, 3)).astype(np.float32)
    kept = rng.standard_normal((devices, 5 * runs * devices, 3)).astype(np.float32)
    expected, slope, untouched = kept.copy(), np.zeros_like(sent), np.ones_like(kept)
    for s, c in np.ndindex(sizes.shape):
        rows, place = slice(first[s, c], first[s, c] + sizes[s, c]), slice(to[s, c], to[s, c] + sizes[s, c])
        expected[c // runs, place] = sent[s, rows]
        slope[s, rows] += 2 * sent[s, rows]
        untouched[c // runs, place] = 0
    flat = [jnp.asarray(x.reshape(-1, *x.shape[2:])) for x in (sent, kept, first, sizes, to, received)]
    f = _mapped(devices)
    np.testing.assert_array_equal(sw.jit(f)(*flat), expected.reshape(-1, 3))
    rows, whole = sw.grad(lambda a, b: (f(a, b, *flat[2:]) ** 2).sum(), (0, 1))(*flat[:2])
    np.testing.assert_allclose(rows, slope.reshape(-1, 3), rtol=1e-6)
    np.testing.assert_allclose(whole, (2 * kept * untouched).reshape(-1, 3), rtol=1e-6)


def test_what_is_refused() -> None:
    ones = jnp.ones((4,), int)
    with pytest.raises(ValueError, match="equal dtypes"):
        _mapped(2)(ones, jnp.ones(8), ones, ones, ones, ones)
    with pytest.raises(ValueError, match="send_sizes must be integer"):
        _mapped(2)(ones, ones, ones, jnp.ones(4), ones, ones)
    with pytest.raises(ValueError, match="must be rank 1"):
        _mapped(2)(ones, ones, ones, ones, jnp.ones((2,), int), ones)
    with pytest.raises(NotImplementedError, match="a mesh axis of the groups"):
        lax.ragged_all_to_all(*[ones] * 6, axis_name="x", axis_index_groups=[[0], [1]])
