"""From a global program and layouts to what each device runs: local types, and an equation for each communication."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardwise as sw
from shardwise import lax
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec
from tests.passes.layouts import layout
from tests.passes.partitioned import GRID, names, parts


def test_results_are_laid_out_as_wanted():
    _, out_dims, transfers = parts(lax.sin, ["8,8 x-"], ["--"])
    assert out_dims == (layout("--"),)
    assert [t.kind for t in transfers] == ["all_gather"]
    assert transfers[0].unasked


def test_a_barrier_leaves_every_operand_where_it_lies():
    wheres = ["x-", "-x", "(xy)-", "--", "yx"]
    local, out_dims, transfers = parts(lambda *a: lax.optimization_barrier(a), [f"8,8 {w}" for w in wheres])
    assert (names(local), transfers) == (["optimization_barrier"], ())
    assert out_dims == tuple(map(layout, wheres))


def transfers_between(f, *shapes_and_specs, like=None, dtypes=None):
    """The transfers of a compiled function of f32 arrays over the grid; its result lies as argument number `like`."""
    mesh = Mesh(np.array(sw.devices()[:8]).reshape(2, 4), ("x", "y"))
    args = [
        sw.ShapeDtypeStruct(shape, dtype, sharding=NamedSharding(mesh, PartitionSpec(*spec)))
        for (shape, spec), dtype in zip(shapes_and_specs, dtypes or repeat(np.float32), strict=False)
    ]
    wanted = None if like is None else args[like].sharding
    return sw.jit(f, out_shardings=wanted).lower(*args).compile().runtime_executable().transfers


def test_what_checkpoint_keeps_is_not_gathered():
    """The residuals of a layer that lie over one axis, along different dims."""

    def layer(x, w, v):
        return lax.dot(lax.sin(lax.dot(x, w)), v)

    kept: Callable[..., Any] = sw.checkpoint(layer, policy=sw.checkpoint_policies.dots_saveable)
    gradients = sw.grad(lambda *a: kept(*a).sum(), argnums=(0, 1, 2))
    found = transfers_between(gradients, ((8, 16), ("x",)), ((16, 32), ("x", "y")), ((32, 16), ("y", "x")))
    assert found
    assert not [t for t in found if t.cause == "optimization_barrier"]


def test_one_value_everywhere_is_made_where_it_is_wanted():
    """The zeros into which the gradient of a table is added are not gathered, though the table is split."""
    gradient = sw.grad(lambda table, x: (table[x[:, 0].astype(np.int32)] * x).sum())
    found = transfers_between(gradient, ((64, 8), (None, "y")), ((512, 8), ("y",)), like=0)
    summed = [t for t in found if (t.cause, t.value) == ("scatter_add", "f32[64,8]")]
    assert summed[0].kind == "reduce_scatter"
    assert sum(t.bytes for t in summed) <= 64 * 8 * 4 * 3 // 4


@pytest.mark.parametrize("where", ["--", "x-", "-x", "xy", "yx", "(xy)-", "-(yx)"])
def test_a_layout_onto_itself_sends_nothing(where):
    local, _, transfers = parts(lambda a: lax.neg(a), [f"8,8 {where}"], [where])
    assert transfers == ()
    assert names(local) == ["neg"]


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(["--", "x-", "-y", "xy", "(xy)-", "-(xy)"]), st.sampled_from(["--", "y-", "-x", "yx", "(yx)-"]))
def test_any_layout_into_any_other(have, want):
    """The local types fit the layouts at both ends, whatever lies between."""
    local, out_dims, _ = parts(lambda a: lax.sin(a), [f"8,8 {have}"], [want])
    assert out_dims == (layout(want),)
    sizes = GRID.axis_sizes
    expected = tuple(8 // int(np.prod([sizes[a] for a in axes])) for axes in layout(want))
    assert local.outputs[0].aval.shape == expected


SPECS = [(), ("x",), ("y",), (None, "x"), (None, "y"), ("x", "y"), ("y", "x"), (("x", "y"),), (None, ("y", "x"))]


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(SPECS), st.sampled_from(SPECS), st.sampled_from(SPECS), st.integers(0, 2))
def test_splits_chosen_by_bytes_never_change_values(a, b, out, case):
    """Large enough that other splits are looked at. Integers: sums in any order are equal."""
    mesh = Mesh(np.array(sw.devices()[:8]).reshape(2, 4), ("x", "y"))
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-8, 8, (256, 256)).astype(np.float32) for _ in range(2))
    i = rng.integers(0, 256, (64, 8)).astype(np.int32)
    f, args, want = (
        (lambda x, w: x @ w, (x, w), x @ w),
        (lambda x, i: x[i], (x, i), x[i]),
        (lambda x, w: (x.T @ w) + x, (x, w), x.T @ w + x),
    )[case]
    placed = [sw.device_put(v, NamedSharding(mesh, PartitionSpec(*s))) for v, s in zip(args, (a, b), strict=True)]
    got = sw.jit(f, out_shardings=NamedSharding(mesh, PartitionSpec(*out)))(*placed)
    np.testing.assert_array_equal(np.asarray(got), want)


def test_a_table_is_not_gathered_where_rows_can_go():
    """Rows of a table that is split along its features: few rows change devices, not the table."""
    found = transfers_between(
        lambda table, ids: table[ids],
        ((4096, 64), (None, "y")),
        ((64, 8), ("y",)),
        like=1,
        dtypes=(np.float32, np.int32),
    )
    assert sum(t.bytes for t in found) < 4096 * 64 * 4 // 8
    assert "all_gather" not in {t.kind for t in found if t.value.startswith("f32[4096")}
