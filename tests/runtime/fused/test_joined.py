"""Groups that read values whose pieces lie apart (shifted and joined arrays) compute what they do with these in one piece."""

from __future__ import annotations

from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.ir import Equation, Program, ShapedArray, subprograms, trace_program
from shardwise.passes.schedule import schedule
from shardwise.runtime.env import Env
from shardwise.runtime.fused import steps
from shardwise.runtime.fused.kernel import GroupKernel
from shardwise.runtime.machine import llvm
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.rounding import assert_normwise

pytestmark = pytest.mark.skipif(not llvm.available(), reason="no compiler for fused loops")

RNG = np.random.default_rng(0)


def some(*shape, dtype="float32"):
    return (RNG.normal(size=shape) * 3).astype(getattr(ml_dtypes, dtype, dtype))


def both(f, *args):
    """The results of `f` under jit, fused and not."""
    out = []
    for choice in ("auto", "off"):
        with config.override("shardwise_fused", choice):
            out.append([np.asarray(y) for y in jax.tree.leaves(jax.jit(lambda *a: f(*a))(*args))])
    return list(zip(*out, strict=True))


def check(f, *args):
    """What fused loops compute is what they do without, to the last bit."""
    for got, want in both(f, *args):
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)


def scheduled(f, *args) -> Program:
    return schedule(trace_program(f, [ShapedArray(a.shape, a.dtype) for a in args])[0], Env())


def groups(program: Program) -> list[Equation]:
    return [e for e in program.equations if e.op.name == "fused"]


def shifted(x, by, axis):
    """`x` rolled by 0 < `by` < its extent."""
    n = x.shape[axis]
    return lax.concatenate([lax.slice_in_dim(x, n - by, n, axis=axis), lax.slice_in_dim(x, 0, n - by, axis=axis)], axis)


def heat(u):
    around = [shifted(u, by % u.shape[axis], axis) for axis in range(u.ndim) for by in (1, -1)]
    return [u + 0.25 * (sum(around) - 4 * u)]


@pytest.mark.parametrize(
    "shape", [(128, 160), (131, 257), (16, 20, 144), (20000,), (100_003,), (3, 70_001), (300, 130)]
)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16", "int16"])
def test_stencils(shape, dtype):
    x = some(*shape, dtype=dtype)
    check(heat, x)
    program = scheduled(heat, x)
    assert [e.op.name for e in program.equations if e.op.name not in ("slice", "fused")] == []
    (group,) = groups(program)
    assert sum(e.op.name == "concatenate" for e in group.params["program"].equations) == 2 * len(shape)


@given(
    st.integers(0, 2),
    st.integers(1, 143),
    st.sampled_from([(40, 30, 144), (200, 2, 150), (3, 144, 145)]),
    st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_shifts(axis, by, shape, turned):
    x = np.random.default_rng(by).normal(size=shape).astype(np.float32)
    x = x.T if turned else x
    by = by % (x.shape[axis] - 1) + 1
    check(lambda x: (shifted(x, by, axis) * 2 - x, lax.cos(shifted(x, by, axis))), x)


def joined(f, *blocks):
    """The kernel of the group that `f` becomes, and the layouts it has made after a call that computed what it should."""
    (group,) = groups(scheduled(f, *blocks))
    run = GroupKernel(Env(), group.params["program"])
    kept = [b.copy() for b in blocks]
    for got, want in zip(run(*blocks), run.plain(*blocks), strict=True):
        np.testing.assert_array_equal(got, want)
    for block, before in zip(blocks, kept, strict=True):
        np.testing.assert_array_equal(block, before)
    return list(run._specializations.values())


@pytest.mark.parametrize(
    ("axis", "pieces"),
    [
        (0, [some(50, 256), some(30, 256)]),
        (1, [some(80, 300), some(80, 1), some(80, 211)]),
        (0, [some(50, 512)[:, ::2], some(30, 512)[:, 1::2]]),
        (0, [some(50, 256), some(30, 300)[:, 44:]]),
        (0, [some(50, 256)[::-1], some(1, 256), some(29, 256)]),
        (1, [some(257, 80).T, some(255, 80).T]),
        (0, [np.broadcast_to(some(1, 256), (50, 256)), np.broadcast_to(some(1, 256), (30, 256))]),
    ],
)
def test_pieces_of_several_arrays(axis, pieces):
    assert None not in joined(lambda *xs: [lax.concatenate(xs, axis) * 2 + 1], *pieces)


@pytest.mark.parametrize(
    ("axis", "pieces"),
    [
        (1, [some(5000, 1), some(5000, 1), some(5000, 2)]),
        (1, [some(80, 300), some(300, 80).T]),
        (0, [some(80, 64).T, some(80, 64).T, some(128, 80)]),
        (0, [some(64, 600)[:, ::2], some(64, 300)]),
        (1, [np.broadcast_to(some(80, 1), (80, 300)), some(80, 300)]),
    ],
)
def test_pieces_that_loops_cannot_read(axis, pieces):
    """Short ones, and those that lie otherwise than the others, are put together before."""
    assert joined(lambda *xs: [lax.concatenate(xs, axis) * 2 + 1], *pieces) == [None]


@pytest.mark.parametrize("strides", [(2, 3), (3, 1), (2, 2)])
@pytest.mark.parametrize("axis", [0, 1])
def test_pieces_with_strides_of_their_own(axis, strides):
    """A piece is never read with the strides of another."""
    first, second = (some(300, 300 * step) for step in strides)

    def f(x, y):
        return [jnp.sin(lax.concatenate([x[:, :: strides[0]], y[:, :: strides[1]]], axis)) * 2]

    check(f, first, second)


def product(x, by, axis):
    return jnp.square(shifted(x, by, axis) + x) / 16


REDUCING = {
    "sum": lambda x, by, axis: jnp.sum(product(x, by, axis)),
    "residual": lambda x, by, axis: jnp.sum(jnp.square(heat(x)[0])),
    "rows": lambda x, by, axis: jnp.sum(product(x, by, axis), axis=-1),
    "columns": lambda x, by, axis: jnp.max(product(x, by, axis), axis=0),
    "outer": lambda x, by, axis: jnp.sum(product(x, by, axis), axis=tuple(range(1, x.ndim))),
    "position in row": lambda x, by, axis: jnp.argmax(product(x, by, axis), axis=-1),
    "position in column": lambda x, by, axis: jnp.argmin(product(x, by, axis), axis=0),
    "softmax": lambda x, by, axis: jax.nn.softmax(product(x, by, axis), axis=-1),
    "softmax of columns": lambda x, by, axis: jax.nn.softmax(product(x, by, axis), axis=0),
    "kept": lambda x, by, axis: (shifted(x, by, axis), jnp.sum(product(x, by, axis))),
}


@pytest.mark.parametrize("shape", [(128, 160), (131, 257), (16, 20, 144), (3, 30_001), (300, 9), (100_003,)])
@pytest.mark.parametrize("name", REDUCING)
def test_reductions_read_pieces_where_they_lie(name, shape):
    x = some(*shape)
    for axis, n in enumerate(shape):
        for by in {1, n // 3 + 1, n - 1}:
            f = lambda x: jax.tree.leaves(REDUCING[name](x, by, axis))  # noqa: B023, E731
            for got, want in both(f, x):
                assert got.dtype == want.dtype
                assert_normwise(got, want, 1e-5)


@pytest.mark.parametrize("name", REDUCING)
def test_reductions_and_what_they_join_are_one_group(name):
    x = some(256, 300)
    program = jax.jit(lambda x: REDUCING[name](x, 1, 0)).lower(x).compile().runtime_executable().plan.program
    assert {e.op.name for e in program.equations} == {"slice", "fused"}
    (group,) = groups(program)
    assert any(e.op.fold is not None for e in group.params["program"].equations)


@pytest.mark.parametrize("spec", [P("y"), P(None, "x"), P("y", "x")], ids=str)
@pytest.mark.parametrize("axis", [0, 1])
def test_reductions_of_sharded_and_mapped_arrays(spec, axis):
    mesh = jax.make_mesh((2, 4), ("y", "x"))
    x = some(256, 512)
    f = lambda x: jnp.sum(jnp.square(jnp.roll(x, 3, axis) + x), 1)  # noqa: E731
    want = np.square(np.roll(x, 3, axis) + x).sum(1, dtype=np.float64)
    placed = jax.device_put(x, NamedSharding(mesh, spec))
    assert_normwise(jax.jit(f)(placed), want, 3e-6)
    assert_normwise(jax.jit(jax.vmap(f))(np.stack([x, 2 * x])), np.stack([want, 4 * want]), 3e-6)


def test_what_is_joined_may_be_a_result():
    x = some(200, 300)
    check(lambda x: (shifted(x, 3, 0), shifted(x, 3, 0) + x, shifted(x, 7, 1)), x)


def test_joined_values_alone_are_no_group():
    assert groups(scheduled(lambda x: [shifted(x, 3, 0)], some(200, 300))) == []


def test_many_pieces_are_joined_before():
    program = scheduled(lambda x: [lax.concatenate([x] * 5, 0) * 2], some(200, 300))
    assert [e.op.name for e in program.equations] == ["concatenate", "fused"]


def test_small_values_are_joined_first():
    x = some(10, 12)
    check(heat, x)
    (group,) = groups(scheduled(heat, some(128, 160)))
    run = GroupKernel(Env(), group.params["program"])
    assert run.meet_blocks([np.zeros(v.aval.shape, np.float32) for v in group.inputs]) is None


@pytest.mark.parametrize("width", [16, 32, 64])
def test_other_processors(width, monkeypatch):
    """Vectors of other sizes than this machine's."""
    chosen = llvm.Target(width, llvm.target().wide and width == 64)
    monkeypatch.setattr(llvm, "target", lambda: chosen)
    check(heat, some(129, 275))


def test_results_do_not_depend_on_threads(monkeypatch):
    x = some(3, 200_000)
    found = []
    for count in (1, 2, 5):
        monkeypatch.setattr(steps, "thread_count", lambda count=count: count)
        found.append(np.asarray(jax.jit(lambda x: heat(x))(x)[0]))
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


def test_no_step_writes_over_what_it_reads():
    x = some(256, 256)

    def steps_of(x):
        return lax.fori_loop(0, 7, lambda i, x: heat(x)[0], x)

    check(steps_of, x)
    want = x
    for _ in range(7):
        around = [np.roll(want, by, axis) for axis in range(2) for by in (1, -1)]
        want = want + np.float32(0.25) * (sum(around) - 4 * want)
    assert_normwise(jax.jit(steps_of, donate_argnums=0)(jnp.asarray(x)), want, 1e-6)


@pytest.mark.parametrize("spec", [P("x"), P(None, "x"), P("x", "y"), P()])
def test_sharded_arrays(spec):
    mesh = jax.make_mesh((2, 2), ("x", "y"))
    x = some(256, 512)
    placed = jax.device_put(x, NamedSharding(mesh, spec))
    for got, want in zip(jax.jit(lambda x: heat(x))(placed), jax.jit(lambda x: heat(x))(x), strict=True):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


MESHES = {"8": ((8,), ("x",)), "4x2": ((4, 2), ("x", "y")), "2x2x2": ((2, 2, 2), ("x", "y", "z"))}
SPECS = {
    "8": [P("x"), P(None, "x"), P()],
    "4x2": [P("x", "y"), P("y", "x"), P(("x", "y")), P(("y", "x")), P(None, ("x", "y")), P("y")],
    "2x2x2": [P("x", ("z", "y")), P(("x", "y"), "z"), P("z")],
}
KNOWN_LAYOUTS = [(m, spec) for m, specs in SPECS.items() for spec in specs]


def on_mesh(mesh, spec, x):
    return jax.device_put(x, NamedSharding(jax.make_mesh(*MESHES[mesh]), spec))


def runs_of(f, *args):
    """The groups of a compiled function that read pieces, loops' bodies included, and the calls of their kernels without loops."""
    program = jax.jit(f).lower(*args).compile().runtime_executable().plan.program
    inner = [p for e in program.equations for _, p in subprograms(e.params) if e.op.name != "fused"]
    return [e for p in (program, *inner) for e in groups(p)]


@pytest.mark.parametrize(("mesh", "spec"), KNOWN_LAYOUTS)
def test_windows_of_split_arrays_are_read_where_they_lie(mesh, spec, monkeypatch):
    by_kernels = []
    plain = GroupKernel.plain.func
    monkeypatch.setattr(GroupKernel, "plain", property(lambda self: by_kernels.append(self) or plain(self)))
    x = some(160, 272)
    placed = on_mesh(mesh, spec, x)

    def f(u):
        around = sum(jnp.roll(u, by, axis) for axis in (0, 1) for by in (1, -2))
        return u + 0.25 * (around - 4 * u)

    def steps_of(u):
        return lax.fori_loop(0, 3, lambda i, u: f(u), u)

    for g in (f, steps_of):
        with config.override("shardwise_fused", "off"):
            want = np.asarray(jax.jit(lambda u, g=g: g(u))(x))
        got = jax.jit(g)(placed)
        assert got.sharding.is_equivalent_to(placed.sharding, 2)
        np.testing.assert_array_equal(np.asarray(got), want)
        for shard in got.addressable_shards:
            np.testing.assert_array_equal(np.asarray(shard.data), want[shard.index])
    (group,) = runs_of(f, placed)
    assert [e.op.name for e in group.params["program"].equations].count("halo_exchange") == 2 * sum(map(bool, spec))
    assert not by_kernels


@given(
    st.sampled_from(KNOWN_LAYOUTS),
    st.sampled_from(["roll", "halves", "rotated", "other", "two"]),
    st.integers(1, 200),
    st.sampled_from(["float32", "int16"]),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_pieces_over_devices(layout, form, by, dtype, batched):
    x, y = some(96, 176, dtype=dtype), some(96, 176, dtype=dtype)

    def f(u, v):
        if form == "roll":
            return jnp.roll(u, by, 0) * 2 + v, jnp.roll(v, -by, 1) - u
        if form == "halves":
            return jnp.concatenate([u[48:], v[:48]]) + v * 3
        if form == "rotated":
            return u.at[by % 95 + 1 :].set(v[: 95 - by % 95]) * 2 + u
        if form == "other":
            row = v.max(0, keepdims=True)  # it lies on all devices
            return jnp.roll(u, by, 0) * row + v[:, :1]
        made = u * 2 + 1  # pieces of what is made beforehand
        return jnp.roll(made, by, 0) * made - v

    if batched:
        f, x, y = jax.vmap(f), np.stack([x, y]), np.stack([y, x + x])
    mesh, spec = layout
    spec = P(None, *spec) if batched else spec
    with config.override("shardwise_fused", "off"):
        want = jax.tree.leaves(jax.jit(lambda u, v: f(u, v))(x, y))
    got = jax.tree.leaves(jax.jit(lambda u, v: f(u, v))(on_mesh(mesh, spec, x), on_mesh(mesh, spec, y)))
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_what_crosses_processes_is_no_part_of_a_group():
    x = on_mesh("8", P("x"), some(160, 272))
    module = jax.jit(lambda u: jnp.roll(u, 1, 0) * 2 + u).lower(x).compile().runtime_executable().device_program
    owners = Env(("x",), (8,), processes=cast(Any, object()))
    assert [e.op.name for e in schedule(module, owners).equations] == ["halo_exchange", "fused"]
    assert [e.op.name for e in schedule(module, Env(("x",), (8,))).equations] == ["fused"]


def test_derivatives_and_batches():
    x = some(4, 128, 160)
    check(jax.vmap(lambda u: heat(u)[0]), x)
    check(jax.grad(lambda x: (heat(x)[0] ** 2).sum()), x[0].astype(np.float64))


def test_long_sections_begin_with_whole_vectors():
    x = some(64, 1024)
    for by in (1, 16, 1000, 1023):
        check(lambda x, by=by: shifted(x, by, 1) * 2 + x, x)
    aligned = steps._align_cuts
    assert aligned([1, 1023], 1024, 16) == [1, 16, 1023]
    assert aligned([16, 512], 1024, 16) == [16, 512]
    assert aligned([3], 100, 16) == [3]  # too short to gain
    assert aligned([], 100, 16) == []


@pytest.mark.parametrize("mode", ["reflect", "edge", "wrap", "symmetric"])
def test_borders_are_read_where_they_lie(mode, monkeypatch):
    """Short pieces that are turned or repeated are copied; the image is not."""
    x, copied = some(192, 192), []
    kept = np.array
    monkeypatch.setattr(np, "array", lambda *a, **k: copied.append(np.size(a[0])) or kept(*a, **k))

    def shifted(x):
        p = jnp.pad(x, 2, mode=mode)
        return sum(p[i : i + 192, j : j + 192] * (i + 1) for i, j in ((0, 0), (0, 4), (2, 2), (4, 0), (4, 4)))

    check(shifted, x)
    assert max(copied, default=0) <= 4 * 200 or mode in ("edge", "wrap")
