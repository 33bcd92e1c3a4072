"""dynamic_slice and dynamic_update_slice: values against NumPy, the loop law, split dims, types and shardings."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise.base.errors import ShardingTypeError
from shardwise.ir import ShapedArray, infer_types
from shardwise.ops.indexing.slicing import dynamic_slice_p, dynamic_update_slice_p
from shardwise.runtime.env import SINGLE, Env
from shardwise.sharding import AbstractMesh, AxisType, NamedSharding
from shardwise.sharding import PartitionSpec as P
from shardwise.sharding.rule import Kind
from tests.ops.loop_law import CASES, check_law, spread

RNG = np.random.default_rng(0)
MESH = AbstractMesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
SIZES = [(2, 3), (5, 3), (2, 6), (1, 1), (5, 6), (0, 2)]
STARTS = [(0, 0), (1, 2), (9, -9), (-1, 4)]
X = RNG.normal(size=(5, 6)).astype(np.float32)


def scalars(starts, dtype=np.int32):
    return [np.asarray(s, dtype) for s in starts]


def expected_start(start, n, size, wrap):
    return min(max(start + n if wrap and start < 0 else start, 0), n - size)


@pytest.mark.parametrize("wrap", [False, True])
def test_slice_values(wrap):
    for sizes, starts in itertools.product(SIZES, STARTS):
        a, b = (expected_start(s, n, m, wrap) for s, n, m in zip(starts, X.shape, sizes, strict=True))
        got = dynamic_slice_p.block_kernel(SINGLE, X, *scalars(starts), slice_sizes=sizes, wrap=(wrap, wrap))
        np.testing.assert_array_equal(got, X[a : a + sizes[0], b : b + sizes[1]])


@pytest.mark.parametrize("wrap", [False, True])
def test_update_values(wrap):
    for sizes, starts in itertools.product(SIZES, STARTS):
        update = RNG.normal(size=sizes).astype(np.float32)
        a, b = (expected_start(s, n, m, wrap) for s, n, m in zip(starts, X.shape, sizes, strict=True))
        want = X.copy()
        want[a : a + sizes[0], b : b + sizes[1]] = update
        got = dynamic_update_slice_p.block_kernel(
            SINGLE, X, update, *scalars(starts), wrap=(wrap, wrap), operand_axes=None
        )
        np.testing.assert_array_equal(got, want)


def test_values_are_those_of_the_oracle():
    jax = pytest.importorskip("jax")
    for starts in STARTS:
        want = jax.lax.dynamic_slice(X, starts, (2, 3))
        got = dynamic_slice_p.block_kernel(SINGLE, X, *scalars(starts), slice_sizes=(2, 3), wrap=(True, True))
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize(("lead", "mix"), CASES)
def test_loop_law(sizes, lead, mix):
    change = lambda v, k: v + k  # noqa: E731
    first, second = scalars((-1, 2))
    for order in (mix, mix[::-1]):
        blocks = [spread(X, order[0], change), spread(first, order[1], change), spread(second, order[2], change)]
        check_law(dynamic_slice_p.block_kernel, blocks, lead, slice_sizes=sizes, wrap=(True, False))
        update = spread(RNG.normal(size=sizes).astype(np.float32), order[3], change)
        check_law(
            dynamic_update_slice_p.block_kernel,
            [blocks[0], update, *blocks[1:]],
            lead,
            wrap=(True, False),
            operand_axes=None,
        )


@pytest.mark.parametrize("start", [-9, -1, 0, 1, 2, 3, 9])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_a_cut_dim_may_stay_split(start, size):
    """Each of two devices writes the part of the update that falls into its half."""
    operand, update = RNG.normal(size=(6, 3)).astype(np.float32), RNG.normal(size=(size, 3)).astype(np.float32)
    starts = scalars((start, 0))
    params = dict(wrap=(True, True), operand_axes=None)
    want = dynamic_update_slice_p.block_kernel(SINGLE, operand, update, *starts, **params)
    assert dynamic_update_slice_p.place is not None
    placed = dynamic_update_slice_p.place(params, ((("x",), ()), ((), ()), (), ()), ((("x",), ()),))
    block = operand.reshape(2, 3, 3)
    got = dynamic_update_slice_p.block_kernel(
        Env(("x",), (2,)), block, update[None], *[s[None] for s in starts], **placed
    )
    np.testing.assert_array_equal(got.reshape(6, 3), want)


def typed(shape, dtype: Any = np.float32, spec=None):
    if spec is None:
        return ShapedArray(shape, dtype)
    return ShapedArray(shape, dtype, mesh=MESH, spec=tuple((s,) if s else () for s in spec))


INDEX = ShapedArray((), np.int32)


def sliced(operand, sizes, starts=(INDEX, INDEX)):
    return infer_types(dynamic_slice_p, (operand, *starts), dict(slice_sizes=sizes, wrap=(True, True)))[0]


def updated(operand, update, starts=(INDEX, INDEX)):
    return infer_types(dynamic_update_slice_p, (operand, update, *starts), dict(wrap=(True, True), operand_axes=None))[
        0
    ]


def test_types_and_errors():
    x = typed((3, 4))
    assert sliced(x, (2, 2)).shape == (2, 2)
    for sizes in ((5, 2), (-1, 2), (2,)):
        with pytest.raises(TypeError, match="slice_sizes"):
            sliced(x, sizes)
    with pytest.raises(TypeError, match="integer"):
        sliced(x, (2, 2), (typed(()), typed(())))
    with pytest.raises(TypeError, match="scalar"):
        sliced(x, (2, 2), (typed((1,), np.int32), INDEX))
    assert updated(x, typed((2, 2))).shape == (3, 4)
    for update in (typed((5, 2)), typed((2,)), typed((2, 2), np.int32)):
        with pytest.raises(TypeError, match="dynamic_update_slice"):
            updated(x, update)


def test_starts_are_of_one_type_as_in_jax():
    jax = pytest.importorskip("jax")
    own = {"0": 0, "-1": -1, "np8": np.uint8(0), "np32": np.int32(1), "np64": np.int64(0), "u8": np.array(1, np.uint8)}
    for (a, x), (b, y), negative in itertools.product(own.items(), own.items(), (False, True)):
        took = []
        for module in (jax, sw):
            starts = [module.numpy.asarray(v) if isinstance(v, np.ndarray) else v for v in (x, y)]
            try:
                got = module.lax.dynamic_slice(X, starts, (1, 1), allow_negative_indices=negative)
                took.append(float(got[0, 0]))
            except (TypeError, ValueError) as error:
                took.append(type(error))
        assert took[0] == took[1], (a, b, negative)


def test_rules():
    ins = typed((6, 8)), INDEX, INDEX
    rule = dynamic_slice_p.sharding_rule(ins, (typed((2, 8)),), {})
    assert rule.inputs == (((0,), (1,)), (), ()) and rule.outputs == (((0,), (1,)),)
    assert rule.kinds == (Kind.REPLICATE, Kind.PASS) and rule.blocked == {0}
    rule = dynamic_update_slice_p.sharding_rule((typed((6, 8)), typed((2, 8)), INDEX, INDEX), (typed((6, 8)),), {})
    assert rule.inputs[1] == ((2,), (1,)) and rule.kinds == (Kind.PASS, Kind.PASS, Kind.REPLICATE)


def test_explicit_specs():
    x = typed((8, 8), spec=("x", "y"))
    assert sliced(x, (4, 8)).spec == (("x",), ("y",))
    with pytest.raises(ShardingTypeError, match="divisible"):
        sliced(x, (3, 8))
    assert updated(x, typed((4, 8), spec=("x", "y"))).spec == (("x",), ("y",))
    with pytest.raises(ShardingTypeError, match="split alike"):
        updated(x, typed((4, 8), spec=(None, None)))


# -- windows that meet the parts of several devices ----------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [P(("x", "y")), P("x", "y"), P("y", "x"), P(None, ("y", "x")), P("y")])
@pytest.mark.parametrize("sizes", [(1, 8), (3, 5), (8, 1), (8, 8), (16, 16), (0, 4)])
def test_parts_of_a_window_go_where_they_belong(spec, sizes):
    sharding = NamedSharding(sw.make_mesh((4, 2), ("x", "y")), spec)
    x, update = RNG.normal(size=(16, 16)).astype(np.float32), RNG.normal(size=sizes).astype(np.float32)
    f = sw.jit(lax.dynamic_update_slice)
    for starts in [(0, 0), (3, 7), (15, -3), (-5, 2), (-99, 99)]:
        want = f(x, update, starts)
        got = f(sw.device_put(x, sharding), update, starts)
        np.testing.assert_array_equal(got, want)
        given = sw.device_put(x, sharding)
        written = sw.jit(lambda x, u, starts=starts: lax.dynamic_update_slice(x, u, starts), donate_argnums=0)
        np.testing.assert_array_equal(written(given, update), want)


def test_a_window_over_many_parts():
    n = 64
    params = dict(wrap=(True, True), operand_axes=(("x",), ("y",)))
    env = Env(("x", "y"), (n, n))
    x, update = RNG.normal(size=(n, n)).astype(np.float32), RNG.normal(size=(50, 45)).astype(np.float32)
    block, starts = x[:, :, None, None], [s[None, None] for s in scalars((7, 11))]
    got = dynamic_update_slice_p.block_kernel(env, block, update[None, None], *starts, **params)
    x[7:57, 11:56] = update
    np.testing.assert_array_equal(got[:, :, 0, 0], x)


def test_parts_of_an_operand_that_is_stored_once():
    """A block that is the same on all devices is stored once, until a device's part of it differs."""
    env, params = Env(("x",), (4,)), dict(wrap=(True,), operand_axes=(("x",),))
    for update in (np.full((1, 3), 5.0), np.arange(12.0).reshape(4, 3)):
        got = dynamic_update_slice_p.block_kernel(env, np.zeros((1, 2)), update, np.array([3]), **params)
        want = np.zeros((4, 2))
        want[1, 1], want[2] = update[1 % len(update), 0], update[2 % len(update), 1:]
        np.testing.assert_array_equal(got, want)


FAR = [2**63 + 5, 2**64 - 12, 2**63 - 1, 3]  # the first two are negative as int64


@pytest.mark.parametrize("start", FAR)
@pytest.mark.parametrize("of_call", ["eager", "array", "jit", "vmap", "jit of vmap"])
def test_unsigned_starts_beyond_int64_are_out_of_bounds_at_the_end(start, of_call):
    with sw.enable_x64():
        x, given = np.arange(10.0), np.uint64(start)
        call = {
            "eager": lambda f: f(given),
            "array": lambda f: f(sw.numpy.asarray(given)),
            "jit": lambda f: sw.jit(f)(given),
            "vmap": lambda f: sw.vmap(f)(np.array([given, 0], np.uint64))[0],
            "jit of vmap": lambda f: sw.jit(sw.vmap(f))(np.array([given, 0], np.uint64))[0],
        }[of_call]
        first = min(start, 7)
        updated = x.copy()
        updated[first : first + 3] = -1
        numbers = lax.GatherDimensionNumbers((0,), (), (0,))
        assert call(lambda s: lax.dynamic_slice(x, (s,), (3,))).tolist() == x[first : first + 3].tolist()
        assert call(lambda s: lax.dynamic_update_slice(x, np.full(3, -1.0), (s,))).tolist() == updated.tolist()
        gathered = call(lambda s: lax.gather(x, sw.numpy.asarray(s)[None], numbers, (3,), mode="clip"))
        assert gathered.tolist() == x[first : first + 3].tolist()
