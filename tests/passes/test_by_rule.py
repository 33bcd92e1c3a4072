"""Equations by their ops' sharding rules: what moves, what each device computes, and how parts of a sum are finished."""

from __future__ import annotations

import numpy as np

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.sharding import AxisType, Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.passes.layouts import layout
from tests.passes.partitioned import names, parts


def test_elementwise_ops_send_nothing():
    local, out_dims, transfers = parts(lambda a, b: lax.add(lax.sin(a), b), ["8,8 xy", "8,8 xy"])
    assert (names(local), transfers) == (["sin", "add"], ())
    assert out_dims == (layout("xy"),)
    assert {v.aval.shape for e in local.equations for v in e.outputs} == {(4, 2)}


def test_a_contracted_dim_ends_in_a_sum():
    local, _, transfers = parts(lax.dot, ["8,8 -y", "8,8 y-"], ["--"])
    assert names(local) == ["dot_general", "all_reduce"]
    (sent,) = transfers
    assert (sent.kind, sent.axes, sent.cause, sent.implicit) == ("all_reduce", ("y",), "dot_general", True)
    assert sent.bytes == 2 * 8 * 8 * 4 * 3 // 4  # a ring over four
    assert not sent.unasked


def test_a_sum_that_is_wanted_split_is_scattered():
    local, _, transfers = parts(lax.dot, ["8,8 -y", "8,8 y-"], ["y-"])
    assert [t.kind for t in transfers] == ["reduce_scatter"]
    assert local.outputs[0].aval.shape == (2, 8)


def test_a_window_over_a_split_dim_fetches_its_neighbours():
    local, _, transfers = parts(lambda a: lax.slice(a, (1, 0), (9, 8)), ["16,8 x-"], ["x-"])
    assert "halo_exchange" in names(local)
    assert all(t.kind != "all_gather" for t in transfers)


def test_convolutions_fetch_what_their_windows_need():
    local, _, transfers = parts(
        lambda x, w: lax.conv_general_dilated(x, w, (1,), [(1, 1)]), ["1,1,64 --x", "1,1,3 ---"], ["--x"]
    )
    assert names(local)[-2:] == ["halo_exchange", "conv_general_dilated"]
    assert [t.bytes for t in transfers] == [4]  # one element to the neighbour


def test_windows_that_meet_no_neighbour_move_nothing():
    def pooled(x):
        return lax.reduce_window(x, 0.0, lax.add, (2,), (2,), "VALID")

    local, _, transfers = parts(pooled, ["64 x"], ["x"])
    assert (names(local), transfers) == (["reduce_window_sum"], ())


def test_local_types_have_no_mesh():
    mesh = Mesh(np.array(sw.devices()[:4]).reshape(1, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    x = sw.device_put(np.ones((4, 8), np.float32), NamedSharding(mesh, P("x", "y")))
    compiled = sw.jit(lambda x: jnp.broadcast_to(x[None], (2, 4, 8)) + jnp.stack([x, x])).lower(x).compile()
    local = compiled.runtime_executable().device_program
    assert not any(any(v.aval.spec) for e in local.equations for v in e.outputs)
