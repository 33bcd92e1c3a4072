"""scatter and its combining forms: values against the oracle, the loop law, split operands and updates, types."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardwise
from shardwise.base.errors import ShardingTypeError
from shardwise.ir import ShapedArray, infer_types
from shardwise.ops.indexing import mapped_rows, row_loops, scatter_kernel
from shardwise.ops.indexing import scatter as scatter_module
from shardwise.ops.indexing.row_loops import combined_rows
from shardwise.ops.indexing.scatter import scatter_p
from shardwise.ops.indexing.window_numbers import GatherScatterMode, ScatterDimensionNumbers, scatter_window_dims
from shardwise.ops.indexing.windows import combine_rows
from shardwise.runtime import costs
from shardwise.runtime.address import address
from shardwise.runtime.env import SINGLE, Env
from shardwise.runtime.machine.llvm import available
from shardwise.runtime.memory import pool
from shardwise.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec
from shardwise.sharding.rule import Kind
from tests.ops.loop_law import CASES, check_law, spread

RNG = np.random.default_rng(0)
MESH = AbstractMesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
OPS = scatter_module._OPS
KERNEL = scatter_p.block_kernel

# operand shape, indices shape, updates shape, dimension numbers
PATTERNS = {
    "rows": ((5, 3), (4, 1), (4, 3), ((1,), (0,), (0,))),
    "columns": ((5, 3), (2, 2, 1), (5, 2, 2), ((0,), (1,), (1,))),
    "points": ((5, 3), (4, 2), (4,), ((), (0, 1), (0, 1))),
    "swapped": ((5, 3), (4, 2), (4,), ((), (0, 1), (1, 0))),
    "split points": ((4, 5, 3), (6, 2), (6, 5), ((1,), (0, 2), (0, 2))),
    "windows": ((7, 6), (3, 2), (3, 2, 4), ((1, 2), (), (0, 1))),
    "window first": ((7, 6), (3, 2), (2, 4, 3), ((0, 1), (), (0, 1))),
    "window of rows": ((7, 6), (2, 3, 1), (2, 3, 3, 6), ((2, 3), (), (0,))),
    "part of rows": ((7, 6), (3, 1), (3, 4), ((1,), (0,), (0,))),
    "kept size 1": ((7, 6), (3, 1), (3, 1, 6), ((1, 2), (), (0,))),
    "batching": ((4, 5), (4, 3, 1), (4, 3), ((), (1,), (1,), (0,), (0,))),
    "batching last": ((5, 4), (3, 4, 1), (3, 4), ((), (0,), (0,), (1,), (1,))),
    "batching and window": ((4, 5, 2), (3, 4, 1), (3, 2, 4), ((1,), (1,), (1,), (0,), (1,))),
    "whole": ((4, 3), (2, 1), (2, 4, 3), ((1, 2), (), (0,))),
    "no index": ((4, 3), (2, 0), (2, 4, 3), ((1, 2), (), ())),
    "no batch": ((4, 3), (1,), (3,), ((0,), (0,), (0,))),
    "empty": ((4, 3), (0, 1), (0, 3), ((1,), (0,), (0,))),
}
COMBINES = ["", "add", "sub", "mul", "min", "max"]


def params_of(numbers, combine="", mode="drop", **more):
    return (
        dict(
            dimension_numbers=ScatterDimensionNumbers(*numbers),
            mode=GatherScatterMode.from_any(mode),
            combine=combine,
            indices_are_sorted=False,
            unique_indices=False,
            wrap_negative=False,
            operand_axes=None,
            update_axes=(),
        )
        | more
    )


def data(name, dtype: Any = np.float32):
    shape, indices_shape, updates_shape, numbers = PATTERNS[name]
    make = lambda s: RNG.integers(0, 5, s).astype(dtype)  # noqa: E731  small integers: sums are exact in any order
    return make(shape), RNG.integers(-2, 8, indices_shape).astype(np.int32), make(updates_shape), numbers


def typed(x, spec=None):
    if spec is None:
        return ShapedArray(x.shape, x.dtype)
    return ShapedArray(x.shape, x.dtype, mesh=MESH, spec=tuple((s,) if s else () for s in spec))


@pytest.mark.parametrize("combine", COMBINES)
@pytest.mark.parametrize("name", PATTERNS)
def test_values_are_those_of_the_oracle(name, combine):
    jax = pytest.importorskip("jax")
    for dtype in (np.float32, np.uint8) if name == "rows" else (np.float32,):
        operand, indices, updates, numbers = data(name, dtype)
        for mode in ("drop", "clip") if combine in ("", "add") else ("drop",):
            theirs = getattr(jax.lax, OPS[combine].name)
            want = theirs(operand, indices, updates, jax.lax.ScatterDimensionNumbers(*numbers), mode=mode)
            got = KERNEL(SINGLE, operand, indices, updates, **params_of(numbers, combine, mode))
            np.testing.assert_array_equal(got, want)
            assert got.dtype == want.dtype
        types = infer_types(OPS[combine], (typed(operand), typed(indices), typed(updates)), params_of(numbers, combine))
        assert types[0].shape == operand.shape


@pytest.mark.parametrize(("lead", "mix"), CASES)
@pytest.mark.parametrize("name", PATTERNS)
def test_loop_law(name, lead, mix):
    operand, indices, updates, numbers = data(name)
    change = lambda v, k: v + k  # noqa: E731
    blocks = [spread(b, extents, change) for b, extents in zip((operand, indices, updates), mix[:3], strict=True)]
    for combine in ("", "add"):
        check_law(KERNEL, blocks, lead, **params_of(numbers, combine))
    check_law(KERNEL, blocks, lead, **params_of(numbers, "add", "clip", wrap_negative=True))


@pytest.mark.parametrize(
    "dtype", ["bool", "int4", "int8", "bfloat16", "float16", "complex64", "uint64", "float8_e4m3fn"]
)
def test_dtypes(dtype):
    jax = pytest.importorskip("jax")
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    operand, indices, updates, numbers = data("rows", kind)
    if dtype == "uint64":
        operand, updates = operand + np.uint64(2**63), updates + np.uint64(2**63)
    for combine in ("",) if dtype == "bool" else ("", "add", "sub", "max"):
        got = KERNEL(SINGLE, operand, indices, updates, **params_of(numbers, combine))
        assert got.dtype == kind
        if dtype == "uint64":
            continue
        theirs = getattr(jax.lax, OPS[combine].name)
        want = theirs(operand, indices, updates, jax.lax.ScatterDimensionNumbers(*numbers))
        np.testing.assert_array_equal(got.astype(complex), np.asarray(want).astype(complex))


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint8, np.complex64, ml_dtypes.bfloat16])
def test_many_rows_with_repeats(dtype):
    """Large row updates take another path than small ones."""
    position = RNG.integers(0, 40, 3000)
    rows = RNG.integers(0, 3, (3000, 16)).astype(dtype)
    for ufunc in (np.add, np.subtract):
        flat = np.ones((40, 16), dtype)
        want = flat.astype(np.float64) if dtype is ml_dtypes.bfloat16 else flat.copy()
        combine_rows(flat, position, rows, ufunc, unique=False)
        if dtype is ml_dtypes.bfloat16:
            continue  # sums beyond 256 round
        ufunc.at(want, position, rows)
        np.testing.assert_array_equal(flat, want)


@pytest.mark.parametrize("dtype", [np.float32, np.uint8, np.int64, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("columns, many", [(1, 1), (1, 1000), (3, 1), (5, 1000), (200, 1)])
def test_many_rows_in_machine_code(monkeypatch, dtype, columns, many):
    """Threads share the columns, or the rows; narrow floats are rounded after each row, as by NumPy."""
    monkeypatch.setattr(row_loops, "THREADS_FROM", 1)
    monkeypatch.setattr(row_loops, "COMBINED_FEWEST", 1)
    monkeypatch.setattr(row_loops, "thread_count", lambda: 3)
    monkeypatch.setattr(row_loops, "_MANY", many)
    position = RNG.integers(0, 41, 500)
    rows = (RNG.normal(size=(500, columns)) * 2).astype(np.int32).astype(dtype)
    for ufunc in (np.add, np.subtract, np.multiply, np.minimum, np.maximum):
        flat = np.ones((41, columns), dtype)
        want = flat.copy()
        assert combined_rows(flat, position, rows, ufunc) == available()
        with np.errstate(all="ignore"):
            for i in range(500 if available() else 0):
                want[position[i]] = ufunc(want[position[i]], rows[i])
        np.testing.assert_array_equal(flat, want)


@pytest.mark.parametrize("combine", COMBINES)
@pytest.mark.parametrize("name", PATTERNS)
def test_operand_dims_may_be_split(name, combine):
    """Each of two devices takes what falls into its own half."""
    operand, indices, updates, numbers = data(name)
    want = KERNEL(SINGLE, operand, indices, updates, **params_of(numbers, combine))
    sizes = ScatterDimensionNumbers(*numbers)
    for d in range(operand.ndim):
        if d in sizes.operand_batching_dims:
            continue
        pad = operand.shape[d] % 2
        whole = np.concatenate(
            [operand, operand[tuple(slice(0, 1) if i == d else slice(None) for i in range(operand.ndim))]], d
        )
        base = whole if pad else operand
        window = scatter_window_dims(sizes, operand.ndim)
        shared = d in window and updates.shape[sizes.update_window_dims[window.index(d)]] == operand.shape[d]
        if pad and shared:
            continue
        want = KERNEL(SINGLE, base, indices, updates, **params_of(numbers, combine))
        in_dims: list[list[tuple[str, ...]]] = [
            [("x",) if i == d else () for i in range(operand.ndim)],
            [()] * indices.ndim,
            [()] * updates.ndim,
        ]
        update_block = updates[None]
        if shared:
            u = sizes.update_window_dims[window.index(d)]
            in_dims[2][u] = ("x",)
            update_block = np.stack(np.split(updates, 2, u))
        assert scatter_p.place is not None
        placed = dict(scatter_p.place(params_of(numbers, combine), in_dims, (in_dims[0],)))
        assert shared == (placed["operand_axes"] is None)
        block = np.stack(np.split(base, 2, d))
        got = KERNEL(Env(("x",), (2,)), block, indices[None], update_block, **placed)
        np.testing.assert_array_equal(np.concatenate(list(got), d), want)


@pytest.mark.parametrize("combine", COMBINES[1:])
def test_updates_may_be_split(combine):
    """Devices that hold different updates give parts which a reduction completes."""
    numbers = ((1,), (0,), (0,))
    operand, indices, updates, _ = data("rows")
    want = KERNEL(SINGLE, operand, indices, updates, **params_of(numbers, combine))
    in_dims = (((), ()), (("x",), ()), (("x",), ()))
    place = OPS[combine].place
    assert place is not None
    placed = dict(place(params_of(numbers, combine), in_dims, (((), ()),)))
    assert placed["update_axes"] == ("x",) and placed["operand_axes"] is None
    parts = KERNEL(
        Env(("x",), (2,)), operand[None], np.stack(np.split(indices, 2)), np.stack(np.split(updates, 2)), **placed
    )
    reduce = {"sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max}[OPS[combine].reduction_of({})]
    np.testing.assert_array_equal(reduce(parts, axis=0), want)


def test_rule():
    def rule_of(name, combine):
        shape, indices_shape, updates_shape, numbers = PATTERNS[name]
        types = tuple(
            ShapedArray(s, t) for s, t in ((shape, np.float32), (indices_shape, np.int32), (updates_shape, np.float32))
        )
        params = params_of(numbers, combine)
        return OPS[combine].sharding_rule(types, infer_types(OPS[combine], types, params), params)

    rule = rule_of("rows", "add")
    assert rule.inputs == (((0,), (1,)), ((2,), ()), ((2,), (1,))) and rule.outputs == (((0,), (1,)),)
    assert rule.kinds[:3] == (Kind.PASS, Kind.PASS, Kind.REDUCE)
    assert rule_of("rows", "").kinds[2] is Kind.REPLICATE
    rule = rule_of("batching", "add")
    assert rule.inputs[1][0] == (0,) and rule.inputs[2] == ((0,), (3,))
    rule = rule_of("part of rows", "add")
    assert rule.kinds[rule.inputs[2][1][0]] is Kind.REPLICATE and rule.kinds[1] is Kind.PASS


def test_explicit_specs():
    operand, indices, updates = np.zeros((8, 8), np.float32), np.zeros((4, 1), np.int32), np.zeros((4, 8), np.float32)
    rows = params_of(((1,), (0,), (0,)), "add")
    types = typed(operand, (None, "y")), typed(indices), typed(updates, (None, "y"))
    assert infer_types(OPS["add"], types, rows)[0].spec == ((), ("y",))
    types = typed(operand, ("x", None)), typed(indices), typed(updates)
    with pytest.raises(ShardingTypeError, match="out_sharding"):
        infer_types(OPS["add"], types, rows)


BAD = {
    "dtype": ((3, 4), (2, 1), (2, 4), ((1,), (0,), (0,)), np.int32),
    "window": ((3, 4), (2, 1), (2, 5), ((1,), (0,), (0,)), np.float32),
    "count": ((3, 4), (2, 1), (3, 4), ((1,), (0,), (0,)), np.float32),
    "rank": ((3, 4), (2, 1), (2,), ((1,), (0,), (0,)), np.float32),
    "inserted": ((3, 4), (2, 1), (2, 4), ((1,), (), (0,)), np.float32),
    "vector": ((3, 4), (2, 1), (2, 4), ((1,), (0,), (0, 1)), np.float32),
    "mapped": ((3, 4), (2, 1), (2, 4), ((1,), (0,), (7,)), np.float32),
}


@pytest.mark.parametrize("name", BAD)
def test_errors(name):
    jax = pytest.importorskip("jax")
    shape, indices_shape, updates_shape, numbers, dtype = BAD[name]
    values = np.zeros(shape, np.float32), np.zeros(indices_shape, np.int32), np.zeros(updates_shape, dtype)
    with pytest.raises(TypeError):
        jax.lax.scatter_add(*values, jax.lax.ScatterDimensionNumbers(*numbers))
    with pytest.raises(TypeError, match="scatter_add"):
        infer_types(OPS["add"], tuple(map(typed, values)), params_of(numbers, "add"))


def test_bools_are_not_added():
    values = np.zeros((3, 4), bool), np.zeros((2, 1), np.int32), np.zeros((2, 4), bool)
    with pytest.raises(TypeError, match="scatter_max"):
        infer_types(OPS["add"], tuple(map(typed, values)), params_of(((1,), (0,), (0,)), "add"))


@pytest.mark.parametrize("combine", COMBINES[1:])
def test_updates_of_all_devices_go_into_one_operand(combine):
    """With `sum_axes` the kernel gives what the reduction of the devices' parts gives."""
    op, numbers = OPS[combine], ((1,), (0,), (0,))
    operand, indices, updates, _ = data("rows")
    env, blocks = Env(("x",), (2,)), (operand[None], np.stack(np.split(indices, 2)), np.stack(np.split(updates, 2)))
    placed = {**params_of(numbers, combine), "update_axes": ("x",), "sum_axes": ("x",)}
    want = KERNEL(SINGLE, operand, indices, updates, **params_of(numbers, combine))
    np.testing.assert_array_equal(KERNEL(env, *blocks, **placed)[0], want)
    reduce = {"sum": np.sum, "prod": np.prod, "min": np.min, "max": np.max}[op.reduction_of({})]
    for varying in itertools.product((False, True), repeat=3):  # in a shard_map, where every device has its own operand
        mixed = [np.stack([b[0], b[-1] + 1]) if v else b[:1] for b, v in zip(blocks, varying, strict=True)]
        alone = [KERNEL(env, *[b[i % len(b)][None] for b in mixed], **params_of(numbers, combine)) for i in range(2)]
        got = KERNEL(env, *mixed, **params_of(numbers, combine), sum_axes=("x",))
        np.testing.assert_array_equal(got, reduce(alone, axis=0))


def test_a_dying_operand_is_written_over():
    given = [pool.empty((512, 512), np.float32), np.array([[3], [5]]), np.ones((2, 512), np.float32)]
    given[0][...] = 0
    compile_kernel = OPS["add"].compile
    assert compile_kernel is not None
    kernel = compile_kernel(SINGLE, (), (), params_of(((1,), (0,), (0,)), "add"))
    at, seen = address(given[0]), given[0][7:]
    out = kernel.over((0,), given)
    assert address(out) != at and not seen.any(), "somebody else sees the operand"
    del seen
    out = kernel.over((0,), given)
    assert address(out) == at and out[[3, 5]].all() and out.sum() == 1024


def test_parts_are_put_together_before_they_are_read_or_written():
    """Whatever is split, jit gives what one device gives; tables and updates lie on 4 x 2 devices in many ways."""
    mesh = shardwise.make_mesh((4, 2), ("x", "y"))
    put = lambda a, spec: shardwise.device_put(a, NamedSharding(mesh, PartitionSpec(*spec)))  # noqa: E731
    table, rows = RNG.integers(-9, 9, (16, 8)).astype(np.float32), RNG.integers(-2, 3, (32, 8)).astype(np.float32)
    index = RNG.integers(-2, 18, 32)
    add = shardwise.jit(lambda t, i, u: t.at[i].add(u))
    into = {
        out: shardwise.jit(lambda t, i, u: t.at[i].max(u), out_shardings=NamedSharding(mesh, PartitionSpec(*out)))
        for out in [(), ("x",), ("y", "x")]
    }
    take = shardwise.jit(lambda t, i: shardwise.numpy.take(t, i, axis=0, mode="fill", fill_value=7))
    split = [(), ("x",), ("y", "x"), (("x", "y"),), (("y", "x"),)]
    ordinary = [x if 0 <= x < 16 else x + 16 if x < 0 else 99 for x in index]
    want = np.concatenate([table, np.zeros((84, 8), np.float32)])
    top = want.copy()
    np.add.at(want, ordinary, rows)
    np.maximum.at(top, ordinary, rows)
    read = np.where(np.array(ordinary)[:, None] < 16, table[np.array(ordinary) % 16], 7)
    for t, u in itertools.product([*split, (None, "x")], split):
        operand, where, updates = put(table, t), put(index, u[:1]), put(rows, u)
        np.testing.assert_array_equal(add(operand, where, updates), want[:16])
        np.testing.assert_array_equal(take(operand, where), read)
        for f in into.values():
            np.testing.assert_array_equal(f(operand, where, updates), top[:16])


@pytest.mark.parametrize("combine", ["set", "add", "mul", "min", "max"])
def test_calls_by_kernel_and_by_machine_code_give_the_same_bits(combine):
    """What is called often is compiled: no call differs from the first one."""
    rng = np.random.default_rng(0)
    x, i = shardwise.numpy.asarray(rng.normal(size=(40, 3)), np.float32), rng.integers(-50, 60, 100)
    x, rows = x.at[::5].set(-0.0), rng.normal(size=(100, 3)).astype(np.float32)
    rows[::7], rows[3] = 0.0, np.nan
    f = shardwise.jit(lambda x, i, rows: (getattr(x.at[i], combine)(rows), x[i]))
    first, *later = [[np.asarray(r).tobytes() for r in f(x, i, rows)] for _ in range(costs.SMALL_PATIENCE + 2)]
    assert all(found == first for found in later)


@pytest.mark.parametrize("combine", COMBINES)
@pytest.mark.parametrize("mode", ["drop", "clip"])
def test_positions_behind_whole_dims(monkeypatch, combine, mode):
    """``x.at[..., i]``: the first dims are loops with the same positions, and no window is written by itself."""
    monkeypatch.setattr(scatter_kernel, "_scatter_windows", lambda *_: pytest.fail("window by window"))
    rng = np.random.default_rng(0)
    for rest in ((), (3,)):
        operand = rng.integers(0, 5, (6, 8, 300, *rest)).astype(np.float32)
        indices = rng.integers(-3, 310, (250, 1)).astype(np.int32)
        updates = rng.integers(0, 5, (6, 8, 250, *rest)).astype(np.float32)
        numbers = (tuple(d for d in range(operand.ndim) if d != 2), (2,), (2,))
        found = KERNEL(SINGLE, operand, indices, updates, **params_of(numbers, combine, mode))
        expected = operand.copy()
        write = {"": lambda _, new: new, "add": np.add, "sub": np.subtract, "mul": np.multiply}
        write |= {"min": np.minimum, "max": np.maximum}
        for i, at in enumerate(indices[:, 0]):
            at = int(np.clip(at, 0, 299)) if mode == "clip" else int(at)
            if 0 <= at < 300:
                expected[:, :, at] = write[combine](expected[:, :, at], updates[:, :, i])
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ["rows", "points", "swapped", "split points", "whole", "batching", "empty"])
@pytest.mark.parametrize("combine", ["", "add", "max"])
@pytest.mark.parametrize("dtype", [np.float32, np.complex64, np.int8])
def test_blocks_that_lie_in_many_ways(monkeypatch, name, combine, dtype):
    """A kernel that is called again finds its blocks where they are then, in whatever order their dims lie, and takes none for another."""
    if combine == "max" and dtype == np.complex64:
        return
    params = params_of(PATTERNS[name][3], combine)
    kernel = scatter_kernel.scatter_compile(SINGLE, (), (), params)
    for turn in range(9):
        x, at, v = (lying(a, turn >> k & 1) for k, a in enumerate(data(name, dtype)[:3]))
        before = x.copy()
        monkeypatch.setattr(row_loops, "COMBINED_FEWEST", 1 << 60)
        want = KERNEL(SINGLE, x, at, v, **params)
        monkeypatch.setattr(row_loops, "COMBINED_FEWEST", 1)
        np.testing.assert_array_equal(kernel(x, at, v), want)
        np.testing.assert_array_equal(x, before)
        np.testing.assert_array_equal(kernel.over((0,), [np.array(x, order="C"), at, v]), want)


@pytest.mark.parametrize("name", ["rows", "points", "swapped", "split points", "batching", "whole"])
@pytest.mark.parametrize("combine", ["", "add", "min"])
def test_each_device_has_a_table(monkeypatch, name, combine):
    """Rows are put into all devices' tables by one loop, which leaves these where they lie, whatever the devices share."""
    check_many_tables(monkeypatch, name, params_of(PATTERNS[name][3], combine, wrap_negative=True))


@pytest.mark.parametrize("name", ["rows", "split points", "whole"])
@pytest.mark.parametrize("combine", ["add", "min"])
@pytest.mark.parametrize("axes", [("y", "x"), ("x",)])
def test_updates_of_all_devices_go_into_one_table(monkeypatch, name, combine, axes):
    """Updates are added one device after the other, to the operand that devices share or to the sum of theirs."""
    for shared in (axes, ()):
        how = params_of(PATTERNS[name][3], combine, wrap_negative=True, sum_axes=axes, update_axes=shared)
        check_many_tables(monkeypatch, name, how)


def check_many_tables(monkeypatch, name, params):
    """Calls of one kernel with blocks that lie and are shared in several ways."""
    env = Env(("y", "x"), (2, 4))
    kernel = scatter_kernel.scatter_compile(env, (), (), params)
    own, line, one = (2, 4), (1, 4), (1, 1)
    for shared in [(own, own, own), (own, own, one), (one, own, own), (own, one, own), (line, own, line)]:
        for inside in (False, True):
            given = [spread_parts(a, n, inside) for a, n in zip(data(name)[:3], shared, strict=True)]
            given[1] = given[1] - np.arange(shared[1][1], dtype=np.int32).reshape(1, -1, *(1,) * (given[1].ndim - 2))
            for module in (row_loops, mapped_rows):
                monkeypatch.setattr(module, "COMBINED_FEWEST", 1 << 60)
            want = KERNEL(env, *map(np.ascontiguousarray, given), **params)
            np.testing.assert_array_equal(KERNEL(env, *given, **params), want)
            for module in (row_loops, mapped_rows):
                monkeypatch.setattr(module, "COMBINED_FEWEST", 1)
            before = given[0].copy()
            for _ in range(2):
                np.testing.assert_array_equal(kernel(*given), want)
            np.testing.assert_array_equal(given[0], before)
            np.testing.assert_array_equal(kernel.over((0,), [np.array(given[0], order="K"), *given[1:]]), want)


def spread_parts(x, loops, inside):
    """Each device's part; `inside`: they lie beside each other in the rows of `x`, as parts of columns do."""
    parts = np.stack([np.roll(x, k, -1) for k in range(loops[0] * loops[1])])
    if inside and x.ndim:
        parts = np.moveaxis(np.ascontiguousarray(np.moveaxis(parts, 0, 1)), 1, 0)
    return parts.reshape(*loops, *x.shape)


def lying(x, other):
    """`x`; if `other`, with its dims in the other order in memory and every second element unused."""
    if not other:
        return x
    wide = np.zeros((2 * x.shape[0], *x.shape[1:]), x.dtype, order="F")[::2]
    wide[...] = x
    return wide
