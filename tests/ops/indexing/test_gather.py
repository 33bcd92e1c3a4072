"""gather: values against the oracle, the loop law, operands split over devices, types and shardings."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardwise
import shardwise.numpy as jnp
from shardwise.base import config
from shardwise.base.config import use_dialect
from shardwise.base.errors import ShardingTypeError
from shardwise.ir import ShapedArray, infer_types
from shardwise.ops.indexing import gather_kernel, row_loops, taken_along
from shardwise.ops.indexing.gather import GatherDimensionNumbers, GatherScatterMode, gather_p, gather_params
from shardwise.ops.indexing.gather_kernel import absent, sum_over_axes
from shardwise.runtime.env import SINGLE, Env
from shardwise.runtime.machine.llvm import available
from shardwise.sharding import AbstractMesh, AxisType
from shardwise.sharding.rule import Kind
from tests.ops.loop_law import CASES, check_law, spread

RNG = np.random.default_rng(0)
MESH = AbstractMesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)

# operand shape, indices shape (with the vector dim), dimension numbers, slice sizes
PATTERNS = {
    "rows": ((5, 3), (4, 1), ((1,), (0,), (0,)), (1, 3)),
    "columns": ((5, 3), (2, 2, 1), ((0,), (1,), (1,)), (5, 1)),
    "middle": ((4, 5, 3), (2, 1), ((0, 2), (1,), (1,)), (4, 1, 3)),
    "moved": ((4, 5, 3), (2, 1), ((1, 2), (1,), (1,)), (4, 1, 3)),
    "points": ((5, 3), (4, 2), ((), (0, 1), (0, 1)), (1, 1)),
    "swapped": ((5, 3), (4, 2), ((), (0, 1), (1, 0)), (1, 1)),
    "split points": ((4, 5, 3), (6, 2), ((1,), (0, 2), (0, 2)), (1, 5, 1)),
    "windows": ((7, 6), (3, 2), ((1, 2), (), (0, 1)), (2, 4)),
    "window of rows": ((7, 6), (2, 3, 1), ((2, 3), (), (0,)), (3, 6)),
    "cut": ((7, 6), (3, 1), ((1,), (0,), (0,)), (1, 4)),
    "window first": ((7, 6), (3, 2), ((0, 1), (), (0, 1)), (2, 4)),
    "kept size 1": ((7, 6), (3, 1), ((1, 2), (), (0,)), (1, 6)),
    "batching": ((4, 5), (4, 3, 1), ((), (1,), (1,), (0,), (0,)), (1, 1)),
    "batching last": ((5, 4), (3, 4, 1), ((), (0,), (0,), (1,), (1,)), (1, 1)),
    "batching and window": ((4, 5, 2), (3, 4, 1), ((1,), (1,), (1,), (0,), (1,)), (1, 1, 2)),
    "whole": ((4, 3), (2, 1), ((1, 2), (), (0,)), (4, 3)),
    "no index": ((4, 3), (2, 0), ((1, 2), (), ()), (4, 3)),
    "no batch": ((4, 3), (1,), ((0,), (0,), (0,)), (1, 3)),
    "empty": ((4, 3), (0, 1), ((1,), (0,), (0,)), (1, 3)),
}
MODES = ["fill", "clip", "promise_in_bounds"]


def params_of(numbers, sizes, mode="clip", **more):
    return (
        dict(
            dimension_numbers=GatherDimensionNumbers(*numbers),
            slice_sizes=sizes,
            mode=GatherScatterMode.from_any(mode),
            fill_value=None,
            indices_are_sorted=False,
            unique_indices=False,
            wrap_negative=False,
            operand_axes=None,
        )
        | more
    )


def data(shape, indices_shape, dtype: Any = np.float32):
    operand = (RNG.normal(size=shape) * 10).astype(dtype)
    return operand, RNG.integers(-3, 9, indices_shape).astype(np.int32)


@pytest.mark.parametrize("name", PATTERNS)
def test_values_are_those_of_the_oracle(name):
    jax = pytest.importorskip("jax")
    shape, indices_shape, numbers, sizes = PATTERNS[name]
    for dtype in (np.float32, np.int8, np.uint32, np.bool_) if name == "rows" else (np.float32,):
        operand, indices = data(shape, indices_shape, dtype)
        for mode in MODES if name == "rows" else ("fill", "clip"):
            want = jax.lax.gather(operand, indices, jax.lax.GatherDimensionNumbers(*numbers), sizes, mode=mode)
            got = gather_p.block_kernel(SINGLE, operand, indices, **params_of(numbers, sizes, mode))
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want)
            (out,) = infer_types(gather_p, (typed(operand), typed(indices)), params_of(numbers, sizes, mode))
            assert out.shape == want.shape


@pytest.mark.parametrize("name", ["rows", "columns", "moved", "points", "split points", "windows", "window first"])
def test_without_indices_windows_may_be_larger_than_the_operand(name):
    jax = pytest.importorskip("jax")
    shape, indices_shape, numbers, sizes = PATTERNS[name]
    operand, indices = np.zeros(shape, np.int8), np.zeros((0, *indices_shape[1:]), np.int32)
    larger = tuple(n + 2 * (d not in numbers[1]) for d, n in enumerate(sizes))
    want = jax.lax.gather(operand, indices, jax.lax.GatherDimensionNumbers(*numbers), larger)
    got = shardwise.lax.gather(operand, indices, GatherDimensionNumbers(*numbers), larger)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)


def typed(x, spec=None):
    if spec is None:
        return ShapedArray(x.shape, x.dtype)
    return ShapedArray(x.shape, x.dtype, mesh=MESH, spec=tuple((s,) if s else () for s in spec))


@pytest.mark.parametrize(("lead", "mix"), CASES)
@pytest.mark.parametrize("name", PATTERNS)
def test_loop_law(name, lead, mix):
    shape, indices_shape, numbers, sizes = PATTERNS[name]
    operand, indices = data(shape, indices_shape)
    blocks = [spread(operand, mix[0], lambda v, k: v + k), spread(indices, mix[1], lambda v, k: v + k)]
    for mode in ("fill", "clip"):
        for wrap in (False, True):
            check_law(gather_p.block_kernel, blocks, lead, **params_of(numbers, sizes, mode, wrap_negative=wrap))


def test_strided_and_read_only_operands():
    operand, indices = data((6, 5), (4, 1))
    params = params_of(((1,), (0,), (0,)), (1, 6))
    got = gather_p.block_kernel(SINGLE, operand.T, indices, **params)
    np.testing.assert_array_equal(got, operand.T[np.clip(indices[:, 0], 0, 4)])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["rows", "columns", "points", "split points", "kept size 1", "batching and window"])
def test_an_indexed_dim_may_be_split(name, mode):
    """Each of two devices reads its own half; their sum is the gather of the whole."""
    shape, indices_shape, numbers, sizes = PATTERNS[name]
    shape = tuple(6 if d in numbers[2] else n for d, n in enumerate(shape))
    sizes = tuple(n if s == 1 or d not in numbers[2] else s for d, (s, n) in enumerate(zip(sizes, shape, strict=True)))
    sizes = tuple(1 if d in numbers[2] or s == 1 else s for d, s in enumerate(sizes))
    for dtype in (np.float32, np.int32):
        operand, indices = data(shape, indices_shape, dtype)
        params = params_of(numbers, sizes, mode)
        want = gather_p.block_kernel(SINGLE, operand, indices, **params)
        for d in numbers[2]:
            axes = tuple(("x",) if i == d else () for i in range(operand.ndim))
            assert gather_p.place is not None
            placed = dict(gather_p.place(params, (axes, ((),) * indices.ndim), (((),) * want.ndim,)))
            block = np.stack(np.split(operand, 2, d))
            got = gather_p.block_kernel(Env(("x",), (2,)), block, indices[None], **placed)
            with np.errstate(invalid="ignore"):
                np.testing.assert_array_equal(got.sum(0), want)


def test_an_empty_dim_has_no_window():
    import shardwise.numpy as jnp

    mesh = shardwise.make_mesh((2, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    for dtype, fill in (("float32", np.nan), ("int8", -128)):
        for spec in ((), ("x", "y"), (("y", "x"),)):
            sharding = shardwise.NamedSharding(mesh, shardwise.P(*spec))
            empty = shardwise.device_put(np.zeros((0, 4), dtype), sharding)
            found = shardwise.jit(lambda v: jnp.take_along_axis(v, np.zeros((2, 4), int), axis=0) + v.dtype.type(0))(
                empty
            )
            np.testing.assert_array_equal(found, np.full((2, 4), fill, dtype))


def test_rule():
    rule_of = lambda name: _rule(*PATTERNS[name])  # noqa: E731
    rule = rule_of("rows")
    assert rule.inputs[0] == ((0,), (1,)) and rule.inputs[1] == ((2,), ()) and rule.outputs[0] == ((2,), (1,))
    assert rule.kinds[0] is Kind.REDUCE and rule.kinds[1] is Kind.PASS and rule.kinds[2] is Kind.PASS
    rule = rule_of("batching")
    assert rule.inputs[0] == ((0,), (1,)) and rule.inputs[1] == ((0,), (3,), ()) and rule.outputs[0] == ((0,), (3,))
    rule = rule_of("windows")
    assert rule.kinds[:2] == (Kind.REPLICATE, Kind.REPLICATE) and rule.blocked == {0, 1}
    rule = rule_of("points")
    assert rule.kinds[rule.inputs[1][1][0]] is Kind.REPLICATE


def _rule(shape, indices_shape, numbers, sizes):
    types = ShapedArray(shape, np.float32), ShapedArray(indices_shape, np.int32)
    params = params_of(numbers, sizes)
    return gather_p.sharding_rule(types, infer_types(gather_p, types, params), params)


def test_local_slice_sizes():
    _, _, numbers, sizes = PATTERNS["split points"]
    params = params_of(numbers, sizes)
    assert gather_p.localize is not None
    local = gather_p.localize(
        params, (ShapedArray((4, 1, 3), np.float32), ShapedArray((6, 2), np.int32)), (ShapedArray((6, 1), np.float32),)
    )
    assert local["slice_sizes"] == (1, 1, 1)


def test_explicit_specs():
    operand, indices = np.zeros((8, 8), np.float32), np.zeros((4, 1), np.int32)
    rows = params_of(((1,), (0,), (0,)), (1, 8))
    (out,) = infer_types(gather_p, (typed(operand, (None, "y")), typed(indices)), rows)
    assert out.spec == ((), ("y",))
    for spec, indices_spec in (((None, "y"), ("x", None)), (("x", None), (None, None))):
        types = typed(operand, spec), typed(indices, indices_spec)
        with pytest.raises(ShardingTypeError, match="out_sharding"):
            infer_types(gather_p, types, rows)
    along = params_of(((), (1,), (1,), (0,), (0,)), (1, 1))
    types = typed(operand, ("x", None)), typed(np.zeros((8, 3, 1), np.int32), ("x", None, None))
    assert infer_types(gather_p, types, along)[0].spec == (("x",), ())


BAD = [
    ((1,), (0,), (0,)),
    (1,),
    ((1,), (0,), (0,)),
    (1, 5),
    ((1,), (0,), (0,)),
    (2, 4),
    ((1,), (0,), (0, 1)),
    (1, 4),
    ((1,), (0,), (5,)),
    (1, 4),
    ((5,), (0,), (0,)),
    (1, 4),
    ((1, 0), (0,), (0,)),
    (1, 4),
    ((0, 1), (0,), (0,)),
    (1, 4),
    ((1,), (), (0,), (0,), (0,)),
    (1, 4),
]


@pytest.mark.parametrize(("numbers", "sizes"), list(zip(BAD[::2], BAD[1::2], strict=True)))
def test_bad_numbers(numbers, sizes):
    jax = pytest.importorskip("jax")
    operand, indices = np.zeros((3, 4), np.float32), np.zeros((2, 1), np.int32)
    with pytest.raises(TypeError):
        jax.lax.gather(operand, indices, jax.lax.GatherDimensionNumbers(*numbers), sizes)
    with pytest.raises(TypeError, match="gather"):
        infer_types(gather_p, (typed(operand), typed(indices)), params_of(numbers, sizes))


def test_bad_indices_and_modes():
    operand = typed(np.zeros((3, 4), np.float32))
    with pytest.raises(ValueError, match="integers"):
        infer_types(gather_p, (operand, typed(np.zeros((2, 1), np.float32))), params_of(((1,), (0,), (0,)), (1, 4)))
    with pytest.raises(TypeError, match="scalar"):
        infer_types(gather_p, (operand, typed(np.zeros((), np.int32))), params_of(((1,), (0,), (0,)), (1, 4)))
    with pytest.raises(ValueError, match="Unknown gather mode 'foo'"):
        GatherScatterMode.from_any("foo")
    assert GatherScatterMode.from_any("drop") is GatherScatterMode.from_any("fill")


def test_errors_of_the_seed_dialect_are_value_errors(monkeypatch):
    operand, indices = np.zeros((8, 8), np.float32), np.zeros((4, 1), np.int32)
    if config.dialect.name != "0.5":
        pytest.skip("the seed dialect is the default")
    with pytest.raises(ValueError, match="out_sharding"):
        infer_types(gather_p, (typed(operand, ("x", None)), typed(indices)), params_of(((1,), (0,), (0,)), (1, 8)))


def test_vmap_over_nothing():
    import shardwise
    import shardwise.numpy as jnp

    x, i = jnp.ones((0, 3, 4)), jnp.zeros((0, 2), int)
    assert shardwise.vmap(lambda x, i: x[i])(x, i).shape == (0, 2, 4)
    assert shardwise.vmap(lambda x, i: x.at[i].set(0.0))(x, i).shape == (0, 3, 4)
    assert shardwise.vmap(lambda i: x[0:, i].sum())(i).shape == (0,)


@pytest.mark.parametrize("mode", ["clip", "fill"])
@pytest.mark.parametrize("count", [(9,), (300, 40)])
def test_rows_of_a_part_of_a_larger_array(monkeypatch, mode, count):
    """Such a table is copied if no fewer elements are read, and the loop for rows then reads it."""
    whole = np.arange(100 * 96, dtype=np.float32).reshape(100, 96)
    positions = np.random.default_rng(0).integers(-3, 104, count)
    read: list[bool] = []
    taker = gather_kernel.row_taker
    monkeypatch.setattr(gather_kernel, "row_taker", lambda n, *a, **k: read.append(n == (100, 32)) or taker(n, *a, **k))
    f = lambda x, i: jnp.split(x, 3, 1)[1].at[i].get(mode=mode, wrap_negative_indices=False)  # noqa: E731
    found = np.asarray(shardwise.jit(f)(whole, positions))
    expected = whole[np.clip(positions, 0, 99), 32:64]
    if mode == "fill":
        expected = np.where(((positions < 0) | (positions > 99))[..., None], np.float32(np.nan), expected)
    np.testing.assert_array_equal(found, expected)
    assert any(read) == (len(count) > 1)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_, np.complex64, np.complex128, ml_dtypes.bfloat16])
def test_rows_read_in_machine_code(monkeypatch, dtype):
    """Positions of any integer type; those out of bounds give the fill value or are moved inside; threads share them."""
    monkeypatch.setattr(row_loops, "FEWEST", 1)
    monkeypatch.setattr(row_loops, "COMBINED_FEWEST", 1)
    monkeypatch.setattr(row_loops, "THREADS_FROM", 1)
    monkeypatch.setattr(row_loops, "CHUNK", 64)
    monkeypatch.setattr(row_loops, "thread_count", lambda: 3)
    rng = np.random.default_rng(0)
    for columns, index, wrap, fill in itertools.product((1, 3, 70), "bihlBHI", (False, True), (None, 1)):
        table = rng.integers(0, 2, (9, columns)).astype(dtype)
        position = rng.integers(0 if index.isupper() else -12, 13, 500).astype(index)
        at = position.astype(int)
        at = np.where(wrap & (at < 0), at + 9, at)
        want = table[np.clip(at, 0, 8)]
        want = want if fill is None else np.where(((at < 0) | (at > 8))[:, None], np.array(fill).astype(dtype), want)
        got = row_loops.taken_rows(table, position, fill, wrap=wrap)
        if available():
            np.testing.assert_array_equal(got, want)
        into, rows = np.zeros((9, columns), dtype), table[np.arange(500) % 9]
        if row_loops.combined_rows(into, position, rows, None, wrap=wrap, clip=fill is None):
            want = np.zeros_like(into)
            for i, row in zip(at, rows, strict=True):
                if fill is None or 0 <= i < 9:
                    want[min(max(i, 0), 8)] = row
            np.testing.assert_array_equal(into, want)


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.float64, ml_dtypes.bfloat16])
@pytest.mark.parametrize("mode", ["fill", "clip"])
def test_elements_along_rows_in_machine_code(monkeypatch, dtype, mode):
    monkeypatch.setattr(taken_along, "FEWEST", 1)
    monkeypatch.setattr(taken_along, "THREADS_FROM", 1)
    monkeypatch.setattr(taken_along, "CHUNK", 8)
    monkeypatch.setattr(taken_along, "thread_count", lambda: 3)
    x, at = RNG.integers(0, 99, (3, 7, 11)).astype(dtype), RNG.integers(-13, 13, (3, 7, 5))
    numbers = GatherDimensionNumbers((), (2,), (2,), (0, 1), (0, 1))
    params = gather_params(numbers, (1, 1, 1), GatherScatterMode.from_any(mode), 7, wrap_negative=True)
    inside = np.where(at < 0, at + 11, at)
    want = np.take_along_axis(x, np.clip(inside, 0, 10), 2)
    if mode == "fill":
        want = np.where((inside < 0) | (inside > 10), np.asarray(7).astype(dtype), want)
    np.testing.assert_array_equal(gather_p.block_kernel(SINGLE, x, at[..., None].astype(np.int32), **params), want)


@pytest.mark.parametrize(
    "dtype", ["float32", "float64", "float16", "complex64", "bool", "int8", "uint64", ml_dtypes.bfloat16]
)
@pytest.mark.parametrize("axes", [("x",), ("y",), ("x", "y")])
def test_merged_parts_keep_each_value_to_the_bit(dtype, axes):
    env, dtype = Env(("x", "y"), (64, 2)), np.dtype(dtype)
    values = np.array([-0.0, 0.0, 1, 3, 1, 0], np.float32).astype(dtype)
    extents = tuple(n if a in axes else 1 for a, n in (("x", 64), ("y", 2)))
    parts = np.full((*extents, 6), absent(dtype))
    parts[-1, -1, :3], parts[0, 0, 3:] = values[:3], values[3:]
    got = sum_over_axes(env, parts, axes)
    assert got.shape == (1, 1, 6) and got.dtype == dtype
    assert got.tobytes() == values.tobytes()


def test_fill_values_are_numbers_of_the_dtype():
    x = shardwise.numpy.arange(3)
    with use_dialect("latest"), pytest.raises(TypeError, match="is complex, and int32 is not"):
        x.at[9].get(mode="fill", fill_value=1j)
    with pytest.raises(TypeError, match="is no number"):
        x.at[9].get(mode="fill", fill_value="3")


@pytest.mark.parametrize("numbers", [None, (), {}, 3, "x", np.zeros(3), object()], ids=lambda x: type(x).__name__)
def test_dimension_numbers_are_of_their_classes(numbers):
    x, at = shardwise.numpy.arange(3), shardwise.numpy.zeros((1, 1), "int32")
    calls = {
        "gather": lambda: shardwise.lax.gather(x, at, numbers, (1,)),
        "scatter_apply": lambda: shardwise.lax.scatter_apply(x, at, shardwise.lax.neg, numbers, update_shape=(1,)),
    }
    for name in ("scatter", "scatter_add", "scatter_sub", "scatter_mul", "scatter_min", "scatter_max"):
        calls[name] = functools.partial(getattr(shardwise.lax, name), x, at, x[:1], numbers)
    for name, call in calls.items():
        with pytest.raises(TypeError, match=rf"{name}: dimension_numbers must be a lax\."):
            call()


@pytest.mark.parametrize("numbers", [1, 2])
@pytest.mark.parametrize("mode", ["fill", "clip"])
def test_rows_at_positions_that_lie_in_many_ways(monkeypatch, numbers, mode):
    """A kernel that is called again reads the positions where they are then."""
    monkeypatch.setattr(row_loops, "FEWEST", 1)
    dims = tuple(range(numbers))
    how = GatherDimensionNumbers((1,), dims, dims)
    shape, sizes = (9, 7, 3)[2 - numbers :], (*(1,) * numbers, 3)
    params = gather_params(how, sizes, GatherScatterMode.from_any(mode), 7, wrap_negative=True)
    types = ShapedArray(shape, np.dtype(np.float32)), ShapedArray((40, numbers), np.dtype(np.int32))
    kernel = gather_kernel.gather_compile(SINGLE, types, (), params)
    for turn in range(9):
        x, at = RNG.normal(size=shape).astype(np.float32), RNG.integers(-12, 12, (80, numbers)).astype(np.int32)
        at = (at[:40], at[::2], np.asfortranarray(at)[:40])[turn % 3]
        monkeypatch.setattr(row_loops, "FEWEST", 1 << 60)
        want = gather_p.block_kernel(SINGLE, x, at, **params)
        monkeypatch.setattr(row_loops, "FEWEST", 1)
        np.testing.assert_array_equal(kernel(x, at), want)


@pytest.mark.parametrize("numbers", [1, 2])
@pytest.mark.parametrize("mode", ["fill", "clip"])
def test_each_device_has_a_table(monkeypatch, numbers, mode):
    """Rows of all devices' tables are read by one loop, however tables and positions are shared."""
    dims = tuple(range(numbers))
    how = GatherDimensionNumbers((1,), dims, dims)
    shape, sizes = (9, 7, 3)[2 - numbers :], (*(1,) * numbers, 3)
    params = gather_params(how, sizes, GatherScatterMode.from_any(mode), 7, wrap_negative=True)
    env = Env(("y", "x"), (2, 4))
    for dtype in (np.int32, np.int64, np.int8):
        types = ShapedArray(shape, np.dtype(np.float32)), ShapedArray((40, numbers), np.dtype(dtype))
        kernel = gather_kernel.gather_compile(env, types, (), params)
        for tables, places in itertools.product([(2, 4), (2, 1), (1, 4), (1, 1)], repeat=2):
            for turn in range(3):
                x = RNG.normal(size=(*tables, *shape)).astype(np.float32)
                at = RNG.integers(-12, 12, (*places, 80, numbers)).astype(dtype)[:, :, :: 1 + turn % 2][:, :, :40]
                x[x > 1] = np.nan
                monkeypatch.setattr(row_loops, "FEWEST", 1 << 60)
                want = gather_p.block_kernel(env, x, at, **params)
                monkeypatch.setattr(row_loops, "FEWEST", 1)
                np.testing.assert_array_equal(kernel(x, at), want)
