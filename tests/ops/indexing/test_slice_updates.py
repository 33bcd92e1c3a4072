"""Windows written into split dims, however many devices hold parts of them."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise.ops.indexing import slice_updates
from shardwise.ops.indexing.slice_updates import UpdateKernel
from shardwise.runtime.env import Env
from shardwise.sharding import Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P

RNG = np.random.default_rng(0)
X = RNG.normal(size=(48, 24)).astype(np.float32)
SPECS = [P("x"), P(("x", "y")), P(("y", "x")), P("x", "y"), P(None, ("x", "y")), P("y", "x")]
WINDOWS = [
    ((40, 5), (3, 7)),
    ((48, 1), (0, 11)),
    ((46, 24), (1, 0)),
    ((7, 23), (-9, 4)),
    ((1, 20), (99, -99)),
    ((48, 24), (0, 0)),
]


def expected(x, update, starts):
    out = x.copy()
    firsts = [min(max(s + n if s < 0 else s, 0), n - m) for s, n, m in zip(starts, x.shape, update.shape, strict=True)]
    out[tuple(slice(s, s + m) for s, m in zip(firsts, update.shape, strict=True))] = update
    return out


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("donated", [False, True])
def test_a_window_over_parts_of_many_devices(spec, donated):
    mesh = Mesh(np.array(sw.devices()[:8]).reshape(4, 2), ("x", "y"))
    write = sw.jit(lax.dynamic_update_slice, donate_argnums=(0,) if donated else ())
    for sizes, starts in WINDOWS:
        update = RNG.normal(size=sizes).astype(np.float32)
        x = sw.device_put(X, NamedSharding(mesh, spec))
        np.testing.assert_array_equal(write(x, update, starts), expected(X, update, starts))
        assert donated or np.array_equal(x, X)


@pytest.mark.parametrize("order", ["as it lies", "devices last", "rows last"])
@pytest.mark.parametrize("alike", [True, False])
@pytest.mark.parametrize("owned", [False, True])
@pytest.mark.parametrize("devices", [4, 16])
def test_parts_that_lie_apart(order, alike, owned, devices):
    """Blocks in any order, with updates that differ between devices or not; only an owned block is written over."""
    block = RNG.normal(size=(devices, 3, 5)).astype(np.float32)
    if order != "as it lies":
        turn = (1, 2, 0) if order == "devices last" else (0, 2, 1)
        block = np.ascontiguousarray(block.transpose(turn)).transpose(np.argsort(turn))
    update = RNG.normal(size=(1 if alike else devices, 3 * devices - 2, 5)).astype(np.float32)
    kernel = UpdateKernel(Env(("x",), (devices,)), (3, 5), update.shape[1:], (True, True), (("x",), ()))
    before = block.copy()
    got = kernel.run((block, update, np.full((1,), 1), np.zeros((1,), int)), owned)
    whole = before.reshape(-1, 5).copy()
    for row in range(3 * devices - 2):
        whole[row + 1] = update[0 if alike else (row + 1) // 3, row]
    np.testing.assert_array_equal(got.reshape(-1, 5), whole)
    assert owned or np.array_equal(block, before)


@pytest.mark.parametrize("spec", [P(None, "x"), P("y", "x"), P(None, ("y", "x"))])
def test_windows_at_places_of_their_own_in_a_split_dim(spec):
    mesh = Mesh(np.array(sw.devices()[:8]).reshape(4, 2), ("x", "y"))
    starts = RNG.integers(-30, 30, 48).astype(np.int32)
    updates = RNG.normal(size=(48, 9)).astype(np.float32)
    write = sw.jit(sw.vmap(lambda x, u, i: lax.dynamic_update_slice(x, u, (i,))))
    want = np.stack([expected(x, u, (i,)) for x, u, i in zip(X, updates, starts, strict=True)])
    np.testing.assert_array_equal(write(sw.device_put(X, NamedSharding(mesh, spec)), updates, starts), want)


@pytest.mark.parametrize("columns", [False, True])
@pytest.mark.parametrize("owned", [False, True])
@pytest.mark.parametrize("sizes", [(2, 16), (1, 16), (8, 16), (3, 5), (9, 4)])
def test_windows_at_places_of_devices_are_rows_of_one_call(monkeypatch, sizes, owned, columns):
    """Each device has a window of its own, in a table of its own, which may be columns of a larger array."""
    monkeypatch.setattr(slice_updates, "write_windows", None)
    block = RNG.normal(size=(6, 9, 16)).astype(np.float32)
    if columns:
        block = np.ascontiguousarray(block.transpose(1, 0, 2)).transpose(1, 0, 2)
    starts = np.array([-9, -1, 0, 3, 8, 99], np.int32), np.array([2], np.int8)
    kernel = UpdateKernel(Env(("x",), (6,)), (9, 16), sizes, (True, True), None)
    for devices in (1, 6):
        update = RNG.normal(size=(devices, *sizes)).astype(np.float32)
        want = [
            expected(x, u, (int(a), int(starts[1][0])))
            for x, u, a in zip(block, np.broadcast_to(update, (6, *sizes)), starts[0], strict=True)
        ]
        kept = block.copy()
        got = kernel.run((block.copy("K") if owned else block, update, *starts), owned)
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(block, kept)
