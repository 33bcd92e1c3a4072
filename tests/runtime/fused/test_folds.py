"""Fused groups with reductions compute what the ops' own kernels do, for every fold, dtype, layout and sharding."""

from __future__ import annotations

import math
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.base import config
from shardwise.ir import Equation, Program, ShapedArray, Var, trace_program
from shardwise.ir.op import find_op
from shardwise.passes.crossing_reductions import with_crossing_reductions
from shardwise.passes.schedule import schedule
from shardwise.runtime import costs
from shardwise.runtime.env import Env
from shardwise.runtime.fused import steps
from shardwise.runtime.fused.kernel import GroupKernel
from shardwise.runtime.fused.steps import Arrangement
from shardwise.runtime.machine import llvm
from shardwise.runtime.memory import pool
from shardwise.sharding import NamedSharding
from shardwise.sharding import PartitionSpec as P
from tests.rounding import assert_normwise

pytestmark = pytest.mark.skipif(not llvm.available(), reason="no compiler for fused loops")


@pytest.fixture(params=["whole rows", "pieces"])
def rows(request, monkeypatch):
    """Rows in one go, or cut into pieces that small arrays have several of."""
    if request.param == "pieces":
        monkeypatch.setattr(costs, "FUSED_CACHED", 1 << 10)
        monkeypatch.setattr(costs, "FUSED_PIECE", 1 << 9)
    return request.param


def both(f, *args):
    """The results of `f` under jit, fused and not."""
    out = []
    for choice in ("auto", "off"):
        with config.override("shardwise_fused", choice):
            out.append([np.asarray(y) for y in jax.tree.leaves(jax.jit(lambda *a: f(*a))(*args))])
    return list(zip(*out, strict=True))


def close(got, want, tolerance):
    assert got.dtype == want.dtype and got.shape == want.shape
    assert_normwise(got, want, tolerance)


def group(f, *types, env=None) -> Equation:
    """The one fused equation that `f` becomes."""
    program = schedule(trace_program(f, types)[0], env or Env())
    (eqn,) = [e for e in program.equations if e.op.name == "fused"]
    assert eqn.params.get("space") is not None
    return eqn


def kernel(f, *types, env=None) -> GroupKernel:
    eqn = group(f, *types, env=env)
    return GroupKernel(env or Env(), eqn.params["program"], eqn.params["space"])


# -- what is computed ------------------------------------------------------------------------------------------------


def layer_norm(x, axis):
    mean = x.mean(axis, keepdims=True)
    return (x - mean) * lax.rsqrt(((x - mean) ** 2).mean(axis, keepdims=True) + 1e-5)


FUNCTIONS = {
    "softmax": lambda x, a: jax.nn.softmax(x, axis=a),
    "log_softmax": lambda x, a: jax.nn.log_softmax(x, axis=a),
    "logsumexp": lambda x, a: jax.nn.logsumexp(x, axis=a),
    "layer_norm": layer_norm,
    "statistics": lambda x, a: (x.mean(a), jnp.var(x, a), x.std(a, keepdims=True)),
    "folds": lambda x, a: (x.sum(a), jnp.prod(1 + x / 100, a), (x * x).max(a), (-x).min(a, keepdims=True), (x > 3).any(a),
                           (x > -3).all(a)),
    "both kinds of values": lambda x, a: (jnp.exp(x) + x.sum(a, keepdims=True), jnp.tanh(x.max(a)), x * 2),
}  # fmt: skip


@pytest.mark.parametrize(
    "shape", [(96, 320), (129, 131), (20, 40, 50), (3, 9000), (9000, 3), (4, 8, 16, 48), (40, 40, 17)]
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_functions_of_rows(shape, dtype, rows):
    x = np.random.default_rng(0).normal(size=shape).astype(getattr(ml_dtypes, dtype, dtype))
    for axis in (*range(-len(shape), 0), (0, len(shape) - 1), tuple(range(len(shape)))):
        for got, want in both(lambda x, axis=axis: [f(x, axis) for f in FUNCTIONS.values()], x):
            # Products of 27,000 factors round as often; bfloat16 has units of 2^-7.
            close(got, want, 5e-5 if dtype == "float32" else 1e-2)


@pytest.mark.parametrize("width", [16, 32, 64])
def test_other_processors(width, rows, monkeypatch):
    """Vectors of other sizes than this machine's."""
    chosen = llvm.Target(width, llvm.target().wide and width == 64)
    monkeypatch.setattr(llvm, "target", lambda: chosen)
    x = np.random.default_rng(1).normal(size=(70, 333)).astype(np.float32)
    for axis in (0, 1):
        for got, want in both(lambda x, axis=axis: [f(x, axis) for f in FUNCTIONS.values()], x):
            close(got, want, 2e-5)
    zeros = np.full((70, 333), -0.0, np.float32)
    zeros[::2, 5] = 0.0
    zeros[1, 2] = np.nan
    for x in (zeros, -zeros):
        for got, want in both(lambda x: [f(x * 1, axis) for f in (jnp.max, jnp.min) for axis in (0, 1)], x):
            np.testing.assert_array_equal(got, want)
            numbers = ~np.isnan(want)
            np.testing.assert_array_equal(np.signbit(got)[numbers], np.signbit(want)[numbers])


@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "bool"])
def test_integers_and_bools_exactly(name, rows):
    rng = np.random.default_rng(2)
    with jax.enable_x64():
        if name == "bool":
            x = rng.integers(0, 50, (130, 140)) == 0
            folds = [jnp.any, jnp.all, jnp.max, jnp.min]
        else:
            info = np.iinfo(name)
            x = rng.integers(info.min, info.max, (130, 140), dtype=name, endpoint=True)
            folds = [jnp.max, jnp.min, lambda x, a: lax.reduce_sum(x, (a,)), lambda x, a: lax.reduce_prod(x | 1, (a,)),
                     lambda x, a: lax.reduce_and(x | 3, (a,)), lambda x, a: lax.reduce_or(x & 5, (a,)),
                     lambda x, a: lax.reduce_xor(x, (a,))]  # fmt: skip
        for got, want in both(lambda x: [f(x, a) for f in folds for a in (0, 1)], x):
            np.testing.assert_array_equal(got, want)
            assert got.dtype == want.dtype


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "uint8"])
def test_positions_of_extrema(dtype, rows):
    """The first of equal ones, and the first NaN."""
    rng = np.random.default_rng(3)
    with jax.enable_x64():
        x = rng.integers(0, 20, (60, 400)).astype(getattr(ml_dtypes, dtype, dtype))
        if x.dtype.kind not in "iu":
            x[5, [200, 100, 399]] = np.nan
            x[7], x[8], x[9] = -np.inf, np.inf, np.nan
            x[10, 0] = np.nan
        for got, want in both(lambda x: [f(x * 1, a) for f in (jnp.argmax, jnp.argmin) for a in (0, 1)], x):
            np.testing.assert_array_equal(got, want)


def test_nan_and_infinities(rows):
    x = np.random.default_rng(4).normal(size=(64, 500)).astype(np.float32)
    x[1, 3], x[2, 499], x[3], x[4, 7] = np.nan, np.inf, -np.inf, -np.inf
    x[5, 1], x[5, 2], x[6] = np.inf, -np.inf, np.nan
    x[7, 100] = -np.nan
    for axis in (0, 1):
        for got, want in both(
            lambda x, axis=axis: [
                x.max(axis),
                (x * 1).min(axis),
                x.sum(axis),
                jax.nn.softmax(x, axis),
                (1 + x / 999).prod(axis),
            ],
            x,
        ):
            close(got, want, 1e-5)


def test_sums_are_as_good_as_exact_ones(rows):
    """The error is half a unit of the last place, whatever cancels."""
    rng = np.random.default_rng(5)
    x = (rng.normal(size=(40, 5000)) * 10.0 ** rng.integers(-4, 4, (40, 5000))).astype(np.float32)
    got = np.asarray(jax.jit(lambda x: x.sum(1))(x))
    want = np.array([math.fsum(map(float, row)) for row in x])
    np.testing.assert_array_equal(got, want.astype(np.float32))
    with jax.enable_x64():
        wide = rng.normal(size=(40, 5000)) * 10.0 ** rng.integers(-8, 8, (40, 5000))
        got = np.asarray(jax.jit(lambda x: x.sum(1))(wide))
        want = np.array([math.fsum(row) for row in wide])
        np.testing.assert_allclose(got, want, rtol=4e-16)


def test_whole_arrays(rows):
    rng = np.random.default_rng(6)
    x, y = (rng.normal(size=(70, 1000)).astype(np.float32) for _ in range(2))
    for got, want in both(lambda x, y: ((x * y).sum(), ((x - y) ** 2).mean(), jnp.abs(x).max(), (x > 9).any()), x, y):
        close(got, want, 1e-5)


def test_cross_entropy_and_its_gradient(rows):
    rng = np.random.default_rng(7)
    logits, labels = rng.normal(size=(64, 500)).astype(np.float32), rng.integers(0, 500, 64)

    def loss(logits):
        return -(jax.nn.log_softmax(logits) * jax.nn.one_hot(labels, 500)).sum(-1).mean()

    for got, want in both(jax.value_and_grad(loss), logits):
        close(got, want, 1e-5)


# -- blocks ----------------------------------------------------------------------------------------------------------

X = ShapedArray((64, 64), np.dtype("float32"), vma=frozenset("a"))
BLOCKS = {
    "grid axes of other extents": lambda r: (r(8, 1, 64, 64), r(1, 3, 64, 1)),
    "the same everywhere": lambda r: (r(1, 1, 64, 64), r(8, 3, 64, 1)),
    "split columns": lambda r: (r(64, 4, 64).transpose(1, 0, 2)[:, None], r(4, 1, 64, 1)),
    "turned": lambda r: (r(4, 2, 64, 64).transpose(0, 1, 3, 2), r(1, 1, 64, 1)),
    "backwards": lambda r: (r(4, 2, 64, 64)[..., ::-1, ::-1], r(4, 1, 64, 1)),
    "every second": lambda r: (r(4, 2, 128, 128)[..., ::2, ::2], r(4, 1, 64, 1)),
    "repeated": lambda r: (np.broadcast_to(r(4, 2, 1, 64), (4, 2, 64, 64)), r(4, 1, 64, 1)),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks(name, rows):
    """Whatever way blocks lie, results are those of the ops' own kernels."""
    rng = np.random.default_rng(8)
    big, small = BLOCKS[name](lambda *shape: rng.normal(size=shape).astype(np.float32))
    both_axes = frozenset("ab")
    types = [ShapedArray((64, 64), big.dtype, vma=both_axes), ShapedArray((64, 1), big.dtype, vma=both_axes)]
    env = Env(("a", "b"), np.broadcast_shapes(big.shape[:2], small.shape[:2]))

    def f(x, s):
        e = lax.exp(lax.sub(x, s))
        total = lax.reduce_sum(e, (1,))
        return lax.div(e, lax.broadcast_in_dim(total, (64, 1), (0,))), total, lax.reduce_max(x, (1,))

    def g(x, s):
        e = lax.mul(x, s)
        return lax.reduce_min(e, (0,)), lax.add(e, lax.broadcast_in_dim(lax.reduce_sum(e, (0,)), (64, 64), (1,)))

    for program in (f, g):
        run = kernel(program, *types, env=env)
        kept = big.copy()
        for _ in range(2):
            for got, want in zip(run(big, small), run.plain(big, small), strict=True):
                assert_normwise(got, np.broadcast_to(want, got.shape), 5e-6)
                assert got.shape == want.shape
        np.testing.assert_array_equal(big, kept)
        assert all(s is not None for s in run._specializations.values())


def test_sums_over_grid_axes(rows):
    """A sum that crosses devices is a loop more; where all devices hold the same, it counts once per device."""
    env = Env(("a", "b"), (4, 3))
    x = Var(ShapedArray((64, 96), np.dtype("float32"), vma=frozenset("ab")))
    total = Var(ShapedArray((64,), np.dtype("float32"), vma=frozenset("a")))
    doubled = Var(x.aval)
    mul, add_up = (e.op for e in trace_program(lambda x: [lax.reduce_sum(lax.mul(x, x), (1,))], [x.aval])[0].equations)
    program = Program(
        (x,),
        (Equation(mul, (x, x), (doubled,)), Equation(add_up, (doubled,), (total,), {"axes": (1,), "sum_axes": ("b",)})),
        (total,),
    )
    (eqn,) = schedule(program, env).equations
    run = GroupKernel(env, eqn.params["program"], eqn.params["space"])
    rng = np.random.default_rng(9)
    for extents in ((4, 3), (4, 1), (1, 3)):
        block = rng.normal(size=(*extents, 64, 96)).astype(np.float32)
        (got,), (want,) = run(block), run.plain(block)
        assert got.shape == want.shape == (extents[0], 1, 64)
        np.testing.assert_allclose(got, want, rtol=5e-6)


@pytest.mark.parametrize("fold, kind", [(lax.reduce_max, "max"), (lax.reduce_min, "min")])
def test_extrema_over_grid_axes(fold, kind):
    """A reduction over devices right after one over dims is part of it."""
    env = Env(("a", "b"), (4, 3))
    x = Var(ShapedArray((64, 96), np.dtype("float32"), vma=frozenset("ab")))
    part, total = (
        Var(ShapedArray((64,), x.aval.dtype, vma=frozenset("ab"))),
        Var(ShapedArray((64,), x.aval.dtype, vma=frozenset("a"))),
    )
    (extremum,) = (e.op for e in trace_program(lambda x: [fold(x, (1,))], [x.aval])[0].equations)
    program = Program(
        (x,),
        (
            Equation(extremum, (x,), (part,), {"axes": (1,)}),
            Equation(find_op("all_reduce"), (part,), (total,), {"axes": ("b",), "kind": kind}),
        ),
        (total,),
    )
    out = schedule(with_crossing_reductions(program, env), env)
    assert names(out) == ["fused"]
    run = GroupKernel(env, out.equations[0].params["program"], out.equations[0].params["space"])
    rng = np.random.default_rng(9)
    for extents in ((4, 3), (4, 1), (1, 3)):
        block = rng.normal(size=(*extents, 64, 96)).astype(np.float32)
        (got,), (want,) = run(block), run.plain(block)
        assert got.shape == want.shape == (extents[0], 1, 64)
        np.testing.assert_array_equal(got, want)
        np.testing.assert_array_equal(got, getattr(block, kind)((1, 3))[:, None])


@pytest.mark.parametrize("spec", [P("x"), P("x", "y"), P(None, "y"), P(("x", "y")), P(None, ("x", "y"))])
def test_sharded_arrays(spec):
    if len(jax.devices()) < 8:
        pytest.skip("needs 8 devices")
    mesh = jax.make_mesh((4, 2), ("x", "y"), devices=jax.devices()[:8])
    x = np.random.default_rng(10).normal(size=(64, 512)).astype(np.float32)
    placed = jax.device_put(x, NamedSharding(mesh, spec))
    for f in FUNCTIONS.values():
        for axis in (0, 1):
            for got, want in both(lambda x, f=f, axis=axis: f(x, axis), placed):
                close(got, want, 2e-5)


def test_shard_map_vmap_and_scan():
    x = np.random.default_rng(11).normal(size=(64, 512)).astype(np.float32)
    mesh = jax.make_mesh((4,), ("x",), devices=jax.devices()[:4])
    mapped = jax.shard_map(lambda v: jax.nn.softmax(v), mesh=mesh, in_specs=P("x"), out_specs=P("x"))

    def looped(x):
        return lax.scan(lambda c, _: (jax.nn.softmax(c * 3, axis=-1), c.sum()), x, None, length=3)

    for f in (mapped, jax.vmap(jax.nn.softmax), jax.vmap(lambda r: r - r.mean()), looped):
        for got, want in both(f, x):
            close(got, want, 1e-5)


# -- groups ----------------------------------------------------------------------------------------------------------


def names(program: Program) -> list[str]:
    return [e.op.name for e in program.equations]


def scheduled(f, *shapes) -> Program:
    return schedule(trace_program(f, [ShapedArray(s, np.dtype("float32")) for s in shapes])[0], Env())


def test_softmax_is_one_group():
    def f(x):
        shifted = lax.exp(lax.sub(x, lax.expand_dims(lax.reduce_max(x, (1,)), (1,))))
        return [lax.div(shifted, lax.expand_dims(lax.reduce_sum(shifted, (1,)), (1,)))]

    out = scheduled(f, (128, 256))
    assert names(out) == ["fused"] and str(out.equations[0].params["space"]) == "(128, 256) by (1,)"


def test_other_dims_are_other_groups():
    """A sum along rows and one along columns have loops of their own."""
    out = scheduled(lambda x: [lax.reduce_sum(lax.exp(x), (0,)), lax.reduce_sum(lax.sin(x), (1,))], (128, 256))
    assert names(out) == ["fused", "fused"]


def test_values_broadcast_along_other_dims_stay_outside():
    """Square shapes: what runs along columns is not taken for what runs along rows."""

    def f(x):
        rows = lax.reduce_sum(x, (1,))
        return [lax.sub(x, lax.broadcast_in_dim(rows, (128, 128), (1,)))]

    out = scheduled(f, (128, 128))
    x = np.random.default_rng(12).normal(size=(128, 128)).astype(np.float32)
    from shardwise.runtime.plan import Plan

    (got,) = Plan(out, Env()).run(x)
    assert_normwise(got, x - x.sum(1)[None, :], 5e-6)


def test_small_reductions_stay_as_they_are():
    out = scheduled(lambda x: [lax.reduce_sum(lax.exp(x), (1,))], (8, 8))
    assert names(out) == ["exp", "reduce_sum"]


def test_results_do_not_depend_on_threads(monkeypatch):
    x = np.random.default_rng(13).normal(size=(3, 200_000)).astype(np.float32)
    found = []
    for count in (1, 2, 5):
        monkeypatch.setattr(steps, "thread_count", lambda count=count: count)
        found.append(np.asarray(jax.jit(lambda x: jnp.exp(x).sum() + x.mean(1))(x)))
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


@pytest.mark.parametrize("shape", [(128, 160), (131, 257)])
@pytest.mark.parametrize("axes", [(0,), (1,), (0, 1)])
def test_operands_whose_strides_disagree(shape, axes, rows):
    """Rows of one lie side by side, and columns of the other: vectors run so that both are read line by line."""
    rng = np.random.default_rng(14)
    x = rng.normal(size=shape).astype(np.float32)
    y = rng.normal(size=shape[::-1]).astype(np.float32).T

    def f(x, y):
        z = x * y
        return z.sum(axes), z - (x * 2).max(axes, keepdims=True)

    run = kernel(f, *[ShapedArray(shape, x.dtype)] * 2)
    got, want = run(x, y), run(x, np.ascontiguousarray(y))
    exact = x.astype(np.float64) * y
    assert_normwise(got[0], exact.sum(axes), 5e-6)
    np.testing.assert_array_equal(got[1], want[1])
    for other, along in ((y, len(axes) == 2), (np.ascontiguousarray(y), 1 in axes)):
        met = run.meet_blocks((x, other))
        assert met is not None
        arranged = Arrangement.of(run._graph, met)
        assert arranged is not None
        assert arranged.roles.along == along


# -- results over operands that die ----------------------------------------------------------------------------------


def over_first(f, *shape, axis, dtype=np.float32):
    """The group of `f` run on an array that dies: what came out, what should have, and whether it lies where the array lay."""
    x = np.random.default_rng(5).normal(size=shape).astype(dtype)
    run = kernel(lambda x: f(x, axis), ShapedArray(shape, x.dtype))
    want = [np.array(o) for o in run(x)]
    blocks = [pool.empty(shape, x.dtype)]
    blocks[0][...] = x
    place = blocks[0].ctypes.data
    got = run.over((0,), blocks)
    return got, want, [o.ctypes.data == place for o in got]


def shares(x, axis):
    e = jnp.exp(x - x.max(axis, keepdims=True))
    return [e / e.sum(axis, keepdims=True)]


@pytest.mark.parametrize("axis", [0, 1])
def test_results_over_an_operand(rows, axis):
    got, want, there = over_first(shares, 256, 512, axis=axis)
    np.testing.assert_array_equal(got[0], want[0])
    assert there == [True]


@pytest.mark.parametrize("axis", [0, 1])
def test_an_operand_that_later_passes_read_stays(rows, axis):
    """The first result is there before the last pass, which reads the operand once more."""

    def f(x, a):
        shifted = x - x.max(a, keepdims=True)
        return shifted, jnp.cos(x) / jnp.abs(shifted).sum(a, keepdims=True)

    got, want, there = over_first(f, 256, 512, axis=axis)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, other)
    assert there == [False, True]


@pytest.mark.parametrize("axis", [0, 1, (0, 1)])
def test_an_operand_stays_that_pieces_read_again(rows, axis):
    """Whole rows keep what was computed of it for the next pass; pieces of rows compute it anew."""
    f = lambda x, a: (y := jnp.tanh(x), y / y.sum(a, keepdims=True))  # noqa: E731
    got, want, there = over_first(f, 256, 512, axis=axis)
    for one, other in zip(got, want, strict=True):
        np.testing.assert_array_equal(one, other)
    assert there == ([False, True] if rows == "pieces" else [True, False])


def test_odd_rows_are_not_written_over():
    """Their last vector goes back over elements that were done."""
    got, want, there = over_first(shares, 257, 513, axis=1)
    np.testing.assert_array_equal(got[0], want[0])
    assert there == [False]


def test_passes_save_a_value_once():
    """Two later passes ask for it: it is written once, to memory for one value."""
    x = np.random.default_rng(3).normal(size=(40, 500)).astype(np.float32)

    def f(x):
        y = jnp.tanh(x)
        z = y - y.sum(1, keepdims=True)
        return y * z.max(1, keepdims=True)

    run = kernel(f, ShapedArray(x.shape, x.dtype))
    assert run._graph.passes == 3
    assert [len(saved) for saved in run._graph.saved] == [1, 0, 0]
    (got,), (want,) = run(x), run.plain(x)
    close(got, want, 1e-5)


def test_a_softmax_has_the_passes_that_the_architecture_shows():
    def f(x):
        y = jnp.exp(x - x.max(-1, keepdims=True))
        return y / y.sum(-1, keepdims=True)

    graph = kernel(f, ShapedArray((512, 1030), np.dtype("float32")))._graph
    maker = {e.outputs[0]: e.op.name for e in graph.program.equations}
    text = (Path(__file__).parents[3] / "ARCHITECTURE.md").read_text()
    for p in range(graph.passes):
        recalled = [maker[v] for kept in graph.saved[:p] for v in kept if v in graph.reads(p)]
        words = [f"pass {p}"]
        words += [f"reads {'xyz'[k]}" for k in graph.used(p) if k < len(graph.accesses)]
        words += [f"recalls {name}" for name in recalled]
        words += ["computes " + ", ".join(e.op.name for e in graph.pass_equations(p))]
        words += ["reduces " + ", ".join(e.op.name.removeprefix("reduce_") for e in graph.folds[p])]
        words += ["saves " + ", ".join(maker[v] for v in graph.saved[p])]
        words += ["writes " + ", ".join(maker[graph.outputs[k]] for k in graph.stores[p])]
        line = " ".join(" ".join(words).split())
        assert line in [" ".join(shown.split()) for shown in text.splitlines()]
