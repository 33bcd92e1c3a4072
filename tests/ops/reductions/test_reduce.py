"""Reductions: values and types against the oracle, accuracy, the loop law, rules, explicit types, `reduce`."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any, cast

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise.ir import ShapedArray, infer_types
from shardwise.ops.reductions import arg_extrema, reduce, summing
from shardwise.ops.rules.convert import as_value
from shardwise.ops.rules.operands import dtype_kind
from shardwise.runtime.env import SINGLE, Env
from shardwise.sharding import AbstractMesh, AxisType, Mesh, NamedSharding
from shardwise.sharding import PartitionSpec as P
from shardwise.sharding.rule import Kind
from tests.ops.loop_law import CASES, check_law, spread

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # the executor runs kernels with these off

MESH = AbstractMesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
RNG = np.random.default_rng(0)
BF16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(d) for d in ("bool", "int8", "int32", "uint32", "float16", BF16, "float32", "complex64")]
OPS = {
    op.name: (op, kinds)
    for op, kinds in [
        (reduce.reduce_sum_p, "iufc"),
        (reduce.reduce_prod_p, "iufc"),
        (reduce.reduce_max_p, "biufc"),
        (reduce.reduce_min_p, "biufc"),
        (reduce.reduce_and_p, "biu"),
        (reduce.reduce_or_p, "biu"),
        (reduce.reduce_xor_p, "biu"),
    ]
}
AXES = [(0,), (1,), (0, 2), (0, 1, 2), ()]


def typed(shape, dtype="float32", *, spec=None, weak=False):
    return ShapedArray(shape, np.dtype(dtype), weak, mesh=None if spec is None else MESH, spec=spec)


def data(dtype, shape=(3, 4, 5)):
    kind = dtype_kind(dtype)
    if kind == "b":
        return RNG.random(shape) < 0.7
    if kind in "iu":
        info = np.iinfo(dtype)
        return RNG.integers(info.min, info.max, shape, dtype, endpoint=True)
    x = RNG.normal(size=shape)
    return (x + 1j * RNG.normal(size=shape) if kind == "c" else x).astype(dtype)


def run(op, x, **params):
    return np.asarray(op.block_kernel(SINGLE, x, **params))


# -- values -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_are_those_of_the_oracle(dtype):
    jax = pytest.importorskip("jax")
    chosen = {n: op for n, (op, kinds) in OPS.items() if dtype_kind(dtype) in kinds}
    x = data(dtype)
    cases = [x, np.zeros((0, 4, 2), dtype)]
    if dtype_kind(dtype) == "f":
        special = x.copy()
        special[0, 0, 0], special[1, 1, 1], special[2] = np.nan, np.inf, -np.inf
        cases.append(special)
    for x in cases:
        axes = AXES[:4]
        wants = jax.jit(lambda v: {n: [getattr(jax.lax, n)(v, a) for a in axes] for n in chosen})(x)  # noqa: B023
        for name, op in chosen.items():
            for a, want in zip(axes, wants[name], strict=True):
                got = run(op, x, axes=a)
                assert got.dtype == want.dtype and got.shape == want.shape, (name, a)
                assert op.type_rule(typed(x.shape, dtype), axes=a) == typed(want.shape, dtype)
                exact = dtype_kind(dtype) not in "fc"
                eps = 0 if exact else 16 * float(ml_dtypes.finfo(np.real(got).dtype).eps)
                wide = dtype if exact else np.complex128
                close = np.testing.assert_array_equal if exact else np.testing.assert_allclose
                tolerance: dict[str, Any] = {} if exact else {"rtol": eps, "atol": eps}
                close(got.astype(wide), np.asarray(want).astype(wide), err_msg=f"{name} {a}", **tolerance)
    for op in chosen.values():
        assert run(op, x, axes=()) is x


def test_half_sums_add_up_in_float32():
    x = np.full((4096,), 1.0, np.float16)
    x[0] = 2048
    assert run(reduce.reduce_sum_p, x, axes=(0,)) == np.float16(6144)
    assert run(reduce.reduce_sum_p, np.full((1000,), 1.0, BF16), axes=(0,)) == np.array(1000, BF16)


LAYOUTS = {
    "rows": (lambda: RNG.random((4096, 64)), (1,)), "columns": (lambda: RNG.random((4096, 64)), (0,)),
    "odd columns": (lambda: RNG.random((5000, 7)), (0,)), "all": (lambda: RNG.random((512, 512)), (0, 1)),
    "long rows": (lambda: RNG.random((16, 9000)), (1,)), "middle": (lambda: RNG.random((32, 64, 32)), (1,)),
    "outer": (lambda: RNG.random((64, 64, 32)), (0, 1)), "inner": (lambda: RNG.random((64, 64, 32)), (1, 2)),
    "ends": (lambda: RNG.random((64, 64, 32)), (0, 2)), "transposed": (lambda: RNG.random((64, 4096)).T, (1,)),
    "transposed columns": (lambda: RNG.random((64, 4096)).T, (0,)),
    "blocks": (lambda: RNG.random((4, 256, 8, 16)).transpose(0, 2, 1, 3), (2,)),
    "blocks' rows": (lambda: RNG.random((4, 256, 8, 16)).transpose(0, 2, 1, 3), (3,)),
    "strided": (lambda: RNG.random((4096, 64))[:, ::2], (1,)), "reversed": (lambda: RNG.random((4096, 64))[::-1], (0,)),
    "repeated": (lambda: np.broadcast_to(RNG.random((4096, 1)), (4096, 64)), (1,)),
}  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_any_layout_are_accurate(layout, dtype):
    make, dims = LAYOUTS[layout]
    x = make().astype(dtype)
    if "transposed" in layout or "blocks" in layout:
        x = x.copy(order="K")
        assert not x.flags.c_contiguous
    got = summing.fast_sum(x, dims)
    want = x.astype(np.longdouble).sum(dims)
    assert got.dtype == x.dtype and got.shape == want.shape
    np.testing.assert_allclose(got, want.astype(np.float64), rtol=8e-6 if dtype == "float32" else 1e-14)


def test_positions_along_a_split_dim_compare_one_pair_per_device():
    mesh = Mesh(np.array(sw.devices()).reshape(2, 4), ("x", "y"))
    x = np.random.default_rng(0).integers(-3, 4, (8, 16)).astype(np.float32)
    undefined = x.copy()
    undefined[2, 7] = undefined[2, 11] = np.nan
    undefined[:, 3], undefined[:, 9] = -np.inf, np.inf
    for values in (x, undefined, x.astype(np.int8), x > 2, x.astype(BF16)):
        for name in ("argmax", "argmin"):
            for spec, axis in ((P("x", "y"), 0), (P("x", "y"), 1), (P(None, ("y", "x")), 1), (P(("x", "y")), 0)):
                run = sw.jit(partial(getattr(lax, name), axis=axis, index_dtype=np.int32))
                np.testing.assert_array_equal(
                    run(sw.device_put(values, NamedSharding(mesh, spec))), getattr(np, name)(values, axis)
                )
    run = sw.jit(partial(lax.argmax, axis=1, index_dtype=np.int32))
    sent = run.lower(sw.device_put(x, NamedSharding(mesh, P("x", "y")))).compile()._entry.executable.transfers
    assert [t.kind for t in sent] == ["all_reduce"] * 2 and {t.bytes for t in sent} == {2 * 3 * 4 * 4 // 4}


def test_argmax_values():
    jax = pytest.importorskip("jax")
    for dtype in DTYPES[:-1]:
        x = data(dtype, (5, 6))
        if dtype_kind(dtype) == "f":
            x[2, 3] = x[4, 3] = np.nan
        for op, name in ((arg_extrema.argmax_p, "argmax"), (arg_extrema.argmin_p, "argmin")):
            for axis in (0, 1):
                want = getattr(jax.lax, name)(x, axis, np.int32)
                got = run(op, x, axes=(axis,), index_dtype=np.dtype("int32"))
                assert got.dtype == np.int32
                np.testing.assert_array_equal(got, want, f"{name} of {dtype} along {axis}")
    wide = RNG.normal(size=(300, 200)).astype(np.float32)
    for axis in (0, 1):
        got = run(arg_extrema.argmax_p, wide, axes=(axis,), index_dtype=np.dtype("uint8"))
        np.testing.assert_array_equal(got, wide.argmax(axis).astype(np.uint8))
    wide[5, 7] = wide[9, 7] = wide[0, 8] = np.nan
    for op, want in ((arg_extrema.argmax_p, wide.argmax(0)), (arg_extrema.argmin_p, wide.argmin(0))):
        np.testing.assert_array_equal(run(op, wide, axes=(0,), index_dtype=np.dtype("int32")), want)


# -- the loop law -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lead", "mix"), CASES)
def test_loop_law(lead, mix):
    block = np.empty(0)
    for op, kinds in OPS.values():
        x = data(np.dtype("int32" if "f" not in kinds else "float32"), (2, 3, 4))
        block = spread(x, mix[0], lambda v, k: v + v.dtype.type(k))
        for axes in AXES:
            check_law(op.block_kernel, [block], lead, axes=axes)
    for axis in range(3):
        check_law(arg_extrema.argmax_p.block_kernel, [block], lead, axes=(axis,), index_dtype=np.dtype("int32"))


def test_a_sum_over_devices_joins_the_sum():
    env = Env(("x", "y"), (2, 3))
    block = RNG.normal(size=(2, 3, 4, 5)).astype(np.float32)
    for axes in ((0,), (1,), (0, 1), ()):
        dims = tuple(a + 2 for a in axes)
        for names, loops in ((("x",), (0,)), (("x", "y"), (0, 1)), (("y",), (1,))):
            got = reduce.reduce_sum_p.block_kernel(env, block, axes=axes, sum_axes=names)
            want = np.squeeze(block.sum(loops + dims, keepdims=True), dims)
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    same = reduce.reduce_sum_p.block_kernel(env, block[:1], axes=(1,), sum_axes=("x",))
    np.testing.assert_allclose(same, 2 * block[:1].sum(-1), rtol=1e-6)
    t = ShapedArray((4, 5), np.dtype("float32"), vma=frozenset("xy"))
    assert reduce.reduce_sum_p.type_rule(t, axes=(0,), sum_axes=("x",)).vma == {"y"}


# -- rules and types ----------------------------------------------------------------------------------------------------


def test_rules():
    t = typed((4, 1, 6))
    for op in (*(op for op, _ in OPS.values()), arg_extrema.argmax_p):
        index = {"index_dtype": np.dtype("int32")} if op is arg_extrema.argmax_p else {}
        accepted = typed((4, 1, 6), "int32")
        out = op.type_rule(accepted, axes=(0,), **index)
        rule = op.sharding_rule((t,), (out,), {"axes": (0,), **index})
        kind = Kind.REPLICATE if index else Kind.REDUCE
        assert rule.inputs == (((0,), (1,), (2,)),) and rule.outputs == (((1,), (2,)),) and rule.kinds[0] is kind
    assert [op.reduction for op, _ in OPS.values()] == ["sum", "prod", "max", "min", "and", "or", "xor"]


def test_explicit_types():
    xy = typed((8, 8), spec=(("x",), ("y",)))
    spec = lambda op, **params: tuple(infer_types(op, (xy,), params)[0].sharding.spec)  # noqa: E731
    assert spec(reduce.reduce_sum_p, axes=(0,)) == ("y",)
    assert spec(reduce.reduce_max_p, axes=(0, 1)) == ()
    assert spec(arg_extrema.argmax_p, axes=(0,), index_dtype=np.dtype("int32")) == ("y",)
    for want in ((None,), ("x",), ("y",)):
        assert spec(reduce.reduce_sum_p, axes=(0,), out_sharding=NamedSharding(MESH, P(*want))) == want


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda x: reduce.reduce_sum(x, (0, 0)), ValueError, "duplicate value in 'axes'"),
        (lambda x: reduce.reduce_sum(x, (2,)), ValueError, "out-of-bounds"),
        (lambda x: reduce.reduce_sum(x, (-1,)), ValueError, "out-of-bounds"),
        (lambda x: reduce.reduce_sum(x, cast("Any", 0)), TypeError, "sequence of ints"),
        (lambda x: reduce.reduce_sum(True, ()), TypeError, "bool"),
        (lambda x: reduce.reduce_and(x, (0,)), TypeError, "float32"),
        (lambda x: arg_extrema.argmax(x, -1, np.int32), ValueError, "Invalid axis -1"),
        (lambda x: arg_extrema.argmax(x, 2, np.int32), ValueError, "Invalid axis 2"),
        (lambda x: arg_extrema.argmax(x, 0, np.float32), TypeError, "integer type"),
        (lambda x: arg_extrema.argmax(as_value(np.zeros((0, 2))), 0, np.int32), ValueError, "at least one element"),
        (lambda x: arg_extrema.argmax(as_value(np.zeros(2, np.complex64)), 0, np.int32), TypeError, "complex64"),
    ],
)
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call(as_value(np.ones((3, 4), np.float32)))


def test_signatures_are_those_of_the_oracle():
    lax = pytest.importorskip("jax").lax
    for name in reduce.__all__:
        ours = list(inspect.signature(getattr(reduce, name)).parameters)
        assert ours == list(inspect.signature(getattr(lax, name)).parameters), name
