"""sort and top_k: values against the oracle, the loop law, types and shardings."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise.base.config import use_dialect
from shardwise.base.errors import ShardingTypeError
from shardwise.ir import ShapedArray, infer_types
from shardwise.ops.indexing.sorting import sort_p, top_k_p
from shardwise.ops.rules import in_rows
from shardwise.runtime.env import SINGLE, Env
from shardwise.sharding import AbstractMesh, AxisType
from shardwise.sharding.rule import Kind
from tests.ops.loop_law import CASES, check_law, spread

RNG = np.random.default_rng(0)
MESH = AbstractMesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
DTYPES = ["bool", "int4", "int8", "uint8", "int32", "uint32", "float16", "bfloat16", "float32", "float8_e4m3fn"]


def values(dtype, shape=(4, 9)):
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = RNG.integers(-4, 4, shape).astype(np.float32)
    if "float" in dtype:
        x.flat[::5] = np.nan
        x.flat[1::7] = -0.0
        x.flat[2::11] = -np.nan
        if "8" not in dtype:
            x.flat[3::13] = np.inf
            x.flat[4::13] = -np.inf
    return x.astype(kind)


def bits(x):
    """What tells -0.0 from 0.0; NaNs are alike."""
    x = np.asarray(x)
    if not np.issubdtype(x.dtype, np.integer) and x.dtype.kind not in "biu":
        x = x.astype(np.float32)
        return np.where(np.isnan(x), np.float32(np.nan), x).view(np.uint32) & np.uint32(0xFFFFFFFF)
    return x


@pytest.mark.parametrize("dtype", [*DTYPES, "complex64"])
def test_sort_values(dtype):
    jax = pytest.importorskip("jax")
    x = values(dtype)
    for dim in (0, 1):
        want = np.asarray(jax.lax.sort(x, dimension=dim))
        (got,) = sort_p.block_kernel(SINGLE, x, dimension=dim, is_stable=True, num_keys=1)
        assert got.dtype == want.dtype
        if dtype == "complex64":
            np.testing.assert_array_equal(got, want)
        else:
            np.testing.assert_array_equal(
                np.where(np.isnan(got.astype(np.float32)), 0, bits(got)),
                np.where(np.isnan(want.astype(np.float32)), 0, bits(want)),
            )


@pytest.mark.parametrize("num_keys", [1, 2, 3])
def test_sort_of_several(num_keys):
    jax = pytest.importorskip("jax")
    operands = values("float32"), values("int8"), np.arange(36, dtype=np.int32).reshape(4, 9)
    for dim in (0, 1):
        wants = jax.lax.sort(operands, dimension=dim, num_keys=num_keys)
        gots = sort_p.block_kernel(SINGLE, *operands, dimension=dim, is_stable=True, num_keys=num_keys)
        for got, want in zip(gots, wants, strict=True):
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("dtype", DTYPES)
def test_top_k_values(dtype):
    jax = pytest.importorskip("jax")
    x = values(dtype)
    x = x + x.dtype.type(2**31) if dtype == "uint32" else x
    if dtype == "int4":
        pytest.skip("the oracle's top_k fails for int4")
    for k in (0, 1, 3, 9):
        want, where = jax.lax.top_k(x, k)
        got, at = top_k_p.block_kernel(SINGLE, x, k=k, axis=1)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(at, where)
        np.testing.assert_array_equal(got.astype(np.float32), np.asarray(want).astype(np.float32))


def test_top_k_of_wide_types():
    x = np.array([[3, -(2**60), 2**60, 2**60 + 1, 3], [1, 1, 1, 0, -1]], np.int64)
    got, at = top_k_p.block_kernel(SINGLE, x, k=3, axis=1)
    assert at.tolist() == [[3, 2, 0], [0, 1, 2]] and got[0, 0] == 2**60 + 1
    got, at = top_k_p.block_kernel(SINGLE, x.astype(np.float64), k=2, axis=0)
    assert at.tolist() == [[0, 1, 0, 0, 0], [1, 0, 1, 1, 1]]


@pytest.mark.parametrize(("lead", "mix"), CASES)
def test_loop_law(lead, mix):
    change = lambda v, k: np.roll(v, k)  # noqa: E731
    first, second, third = values("float32"), values("int8"), np.arange(36, dtype=np.int32).reshape(4, 9)
    blocks = [spread(v, e, change) for v, e in zip((first, second, third), mix[:3], strict=True)]
    for dim in (0, 1):
        for num_keys in (1, 2):
            check_law(sort_p.block_kernel, blocks, lead, dimension=dim, is_stable=True, num_keys=num_keys)
        check_law(sort_p.block_kernel, blocks[:1], lead, dimension=dim, is_stable=True, num_keys=1)
        check_law(top_k_p.block_kernel, blocks[:1], lead, k=2, axis=dim)


def typed(shape, dtype: Any = np.float32, spec=None):
    if spec is None:
        return ShapedArray(shape, dtype)
    return ShapedArray(shape, dtype, mesh=MESH, spec=tuple((s,) if s else () for s in spec))


SORT = dict(dimension=1, is_stable=True, num_keys=1)


def test_types_and_errors():
    outs = infer_types(sort_p, (typed((3, 4)), typed((3, 4), np.int8)), SORT)
    assert [t.dtype for t in outs] == [np.float32, np.int8]
    with pytest.raises(TypeError, match="equal shapes"):
        infer_types(sort_p, (typed((3, 4)), typed((2, 4))), SORT)
    with pytest.raises(ValueError, match="out of bounds"):
        infer_types(sort_p, (typed((3,)),), SORT)
    value, index = infer_types(top_k_p, (typed((3, 4)),), dict(k=2, axis=1))
    assert value.shape == index.shape == (3, 2) and index.dtype == np.int32
    for t, k in ((typed((3, 4)), 9), (typed((3, 4)), -1), (typed((3, 4), np.complex64), 1)):
        with pytest.raises(ValueError, match="top_k"):
            infer_types(top_k_p, (t,), dict(k=k, axis=1))


def test_rules():
    rule = sort_p.sharding_rule((typed((3, 4)),) * 2, (typed((3, 4)),) * 2, SORT)
    assert rule.kinds == (Kind.PASS, Kind.REPLICATE) and not rule.blocked and rule.outputs[1] == ((0,), (1,))
    assert not sort_p.sharding_rule((typed((1, 4)),), (typed((1, 4)),), SORT).blocked
    rule = top_k_p.sharding_rule((typed((3, 4)),), (typed((3, 2)),) * 2, dict(k=2, axis=1))
    assert rule.blocked == {1} and rule.kinds[1] is Kind.REPLICATE


def test_explicit_specs():
    split = typed((8, 8), spec=(None, "x"))
    (out,) = infer_types(sort_p, (split,), SORT)
    assert out.spec == ((), ("x",))
    with use_dialect("latest"):
        (out,) = infer_types(sort_p, (typed((8, 8), spec=("x", None)),), SORT)
        assert out.spec == (("x",), ())
        with pytest.raises(ShardingTypeError, match="whole"):
            infer_types(sort_p, (typed((8, 16), spec=(None, "x")),), SORT)
        with pytest.raises(ShardingTypeError, match="whole"):
            infer_types(top_k_p, (split,), dict(k=2, axis=1))


def test_rows_are_sorted_some_at_a_time(monkeypatch):
    """By threads, in pieces of whichever dim is longest; the same as at once, with loop dims that differ too."""
    rng = np.random.default_rng(0)
    keys, values = rng.integers(0, 9, (2, 1, 30, 40)).astype(np.float32), rng.normal(size=(1, 3, 30, 40))
    env = Env(("x", "y"), (2, 3))
    sort = lambda d: sort_p.block_kernel(env, keys, values, dimension=d, is_stable=True, num_keys=1)  # noqa: E731
    top = lambda d: top_k_p.block_kernel(env, keys, k=5, axis=d)  # noqa: E731
    alone = lambda d: sort_p.block_kernel(env, values, dimension=d, is_stable=True, num_keys=1)  # noqa: E731
    calls = [(f, d) for f in (sort, top, alone) for d in (0, 1)]
    want = [f(d) for f, d in calls]
    monkeypatch.setattr(in_rows, "_CHUNK", 100)
    monkeypatch.setattr(in_rows, "thread_count", lambda: 3)
    for (f, d), whole in zip(calls, want, strict=True):
        for x, y in zip(f(d), whole, strict=True):
            assert x.dtype == y.dtype
            np.testing.assert_array_equal(x, np.broadcast_to(y, x.shape))


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", "int32", "uint32", "int8", "uint8", "int16", "uint16"]
)
def test_top_k_in_small_programs(dtype):
    """The bits of the kernel, also for NaNs, zeros of both signs, and equal elements."""
    x = np.random.default_rng(0).normal(size=(5, 33)) * 5
    special = [0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan] if dtype in ("float32", "float16", "bfloat16") else [0, 1]
    x.flat[:: 165 // 24] = np.resize(special, len(x.flat[:: 165 // 24]))
    x = sw.numpy.asarray(x if "u" not in dtype else abs(x)).astype(dtype)

    def f(x, k, axis):
        def step(c, _):
            found = lax.top_k(c, k, axis=axis)
            return sw.numpy.where(found[1].sum() < 0, -c, c), found

        return lax.scan(step, x, None, length=3)[1]

    for k, axis in ((33, 1), (4, 1), (3, 0)):
        wanted, found = lax.top_k(x, k, axis=axis), sw.jit(f, static_argnums=(1, 2))(x, k, axis)
        for a, b in zip(wanted, found, strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b)[2].tobytes()
