"""dot_general's types, shardings and errors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from shardwise.base import config
from shardwise.base.errors import ShardingTypeError
from shardwise.ir import ShapedArray, infer_types
from shardwise.ops.products.contract import DotAlgorithmPreset, Precision, dot_general_p
from shardwise.ops.rules.precision import canonicalize_precision
from shardwise.runtime.env import SINGLE, Env
from shardwise.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec
from shardwise.sharding.rule import Kind
from tests.rounding import assert_einsum

MATMUL = (((1,), (0,)), ((), ()))
BATCHED = (((2,), (1,)), ((0,), (0,)))
MESH = AbstractMesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)


def typed(lhs, rhs, dims=MATMUL, precision=None, preferred=None, out_sharding=None, **more):
    (out,) = infer_types(
        dot_general_p,
        (lhs, rhs),
        dict(
            dimension_numbers=dims,
            precision=precision,
            preferred_element_type=preferred,
            out_sharding=out_sharding,
            **more,
        ),
    )
    return out


def f32(*shape, spec=None, **more):
    if spec is None:
        return ShapedArray(shape, np.dtype("float32"), **more)
    entries = tuple((s,) if isinstance(s, str) else s for s in spec)
    return ShapedArray(shape, np.dtype("float32"), mesh=MESH, spec=entries, **more)


def test_shapes_and_weak_types():
    assert typed(f32(3, 4), f32(4, 5)).shape == (3, 5)
    assert typed(f32(2, 3, 4), f32(2, 4, 5), BATCHED).shape == (2, 3, 5)
    assert not typed(f32(3, 4), f32(4, 5, weak_type=True)).weak_type
    assert typed(f32(3, 4, weak_type=True), f32(4, 5, weak_type=True)).weak_type


NAMES = [
    "bool",
    "int4",
    "int8",
    "uint8",
    "int32",
    "uint32",
    "bfloat16",
    "float16",
    "float32",
    "complex64",
    "float8_e4m3fn",
]


def test_result_types_are_those_of_the_oracle():
    jax = pytest.importorskip("jax")
    for left in NAMES:
        for right in NAMES:
            for preferred in (None, "int32", "float32", "int8", "bfloat16", "complex64"):
                dt = [np.dtype(getattr(ml_dtypes, n, n)) for n in (left, right)]
                p = np.dtype(getattr(ml_dtypes, preferred, preferred)) if preferred else None

                def theirs(a, b, p=p):
                    return jax.lax.dot_general(a, b, MATMUL, preferred_element_type=p)

                try:
                    want = jax.eval_shape(
                        theirs, jax.ShapeDtypeStruct((2, 3), dt[0]), jax.ShapeDtypeStruct((3, 4), dt[1])
                    ).dtype
                except TypeError:
                    want = TypeError
                try:
                    got = typed(ShapedArray((2, 3), dt[0]), ShapedArray((3, 4), dt[1]), preferred=p).dtype
                except TypeError:
                    got = TypeError
                assert got == want, (left, right, preferred, got, want)


@pytest.mark.parametrize(
    ("left", "right", "dims"),
    [
        ((3, 4), (5, 4), MATMUL),
        ((3, 4), (4, 5), (((2,), (0,)), ((), ()))),
        ((3, 4), (4, 5), (((-1,), (0,)), ((), ()))),
        ((2, 3, 4), (3, 4, 5), BATCHED),
        ((2, 3, 4), (2, 4, 5), (((2,), (1,)), ((0,), ()))),
        ((2, 3, 4), (2, 4, 5), (((2, 2), (1, 1)), ((0,), (0,)))),
        ((2, 3, 4), (2, 4, 5), (((0,), (0,)), ((0,), (0,)))),
        ((2, 3, 4), (2, 4, 5), (((2,), (0, 1)), ((), ()))),
    ],
)
def test_bad_dims_are_type_errors(left, right, dims):
    with pytest.raises(TypeError, match="dot_general"):
        typed(f32(*left), f32(*right), dims)


def test_rule():
    lhs, rhs = f32(2, 3, 4), f32(2, 4, 5)
    rule = dot_general_p.sharding_rule((lhs, rhs), (f32(2, 3, 5),), dict(dimension_numbers=BATCHED))
    assert rule.sizes == (2, 3, 5, 4)
    assert rule.kinds == (Kind.PASS, Kind.PASS, Kind.PASS, Kind.REDUCE)
    assert rule.inputs == (((0,), (1,), (3,)), ((0,), (3,), (2,)))
    assert rule.outputs == (((0,), (1,), (2,)),)


# -- explicit shardings ----------------------------------------------------------------------------------------------------


def test_free_and_batch_dims_keep_their_axes():
    out = typed(f32(8, 8, spec=("x", ())), f32(8, 8, spec=((), "y")))
    assert out.spec == (("x",), ("y",))
    out = typed(f32(8, 8, 8, spec=("x", (), ())), f32(8, 8, 8, spec=((), (), "y")), BATCHED)
    assert out.spec == (("x",), (), ("y",))
    assert typed(f32(8, 8, spec=("x", "y")), f32(8, 8)).spec == (("x",), ())


@pytest.mark.parametrize(
    ("left", "right", "words"),
    [
        ((("x", "y")), (("y", ())), r"ambiguous.*out_sharding.*lhs_contracting_spec=\('y',\)"),
        ((((), "y")), (("x", ())), r"contracting dimensions.*consistent.*\('y',\) and \('x',\)"),
        ((("x", ())), (((), "x")), "twice"),
    ],
)
def test_ambiguous_shardings(left, right, words, latest):
    with pytest.raises(ShardingTypeError, match=words):
        typed(f32(8, 8, spec=left), f32(8, 8, spec=right))


def test_seed_raises_value_errors():
    with pytest.raises(ValueError, match="ambiguous"):
        typed(f32(8, 8, spec=("x", "y")), f32(8, 8, spec=("y", ())))


def test_batch_dims_must_agree(latest):
    with pytest.raises(ShardingTypeError, match="batch dimensions"):
        typed(f32(8, 8, 8, spec=("x", (), ())), f32(8, 8, 8, spec=("y", (), ())), BATCHED)


def test_out_sharding_decides():
    P = PartitionSpec
    for spec in (P(None, None), P("x", None), P("x", "y")):
        out = typed(f32(8, 8, spec=("x", "y")), f32(8, 8, spec=("y", ())), out_sharding=NamedSharding(MESH, spec))
        assert out.sharding.spec == spec


def test_unreduced_results(latest):
    P = PartitionSpec
    wanted = NamedSharding(MESH, P("x", None, unreduced={"y"}))
    out = typed(f32(8, 8, spec=("x", "y")), f32(8, 8, spec=("y", ())), out_sharding=wanted)
    assert out.unreduced == {"y"}
    assert out.spec == (("x",), ())
    with pytest.raises(ShardingTypeError, match="exactly"):
        typed(f32(8, 8, spec=("x", ())), f32(8, 8, spec=("y", ())), out_sharding=wanted)
    with pytest.raises(ShardingTypeError, match="partial sums"):
        typed(out, f32(8, 8))


# -- kernel ------------------------------------------------------------------------------------------------------------------


def test_summed_axes_are_contracted_in_the_same_product():
    env = Env(("x", "y"), (2, 4))
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 4, 3, 5)).astype("f"), rng.normal(size=(1, 4, 5, 6)).astype("f")
    params = dict(dimension_numbers=MATMUL, precision=None, preferred_element_type=None)
    got = dot_general_p.block_kernel(env, a, b, **params, sum_axes=("y",))
    assert got.shape == (2, 1, 3, 6)
    assert_einsum(got[:, 0], "xyij,zyjk->xik", a, b)
    same = dot_general_p.block_kernel(env, a[:1, :1], b[:, :1], **params, sum_axes=("x",))
    assert_einsum(same, "xyij,xyjk->xyik", 2 * a[:1, :1], b[:, :1])
    varying = f32(3, 5, mesh=MESH, vma=frozenset("xy")), f32(5, 6, mesh=MESH, vma=frozenset("y"))
    assert typed(*varying, sum_axes=("y",)).vma == {"x"}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
def test_compiled_kernel_is_the_kernel(dtype):
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    rng = np.random.default_rng(0)
    types = ShapedArray((3, 5), dtype), ShapedArray((5, 6), dtype)
    params = dict(dimension_numbers=MATMUL, precision=None, preferred_element_type=None, out_sharding=None)
    for env, left, right in ((SINGLE, (), ()), (Env(("x",), (2,)), (2,), (1,)), (Env(("x",), (2,)), (2,), (2,))):
        assert dot_general_p.compile is not None
        run = dot_general_p.compile(env, types, infer_types(dot_general_p, types, params), params)
        a, b = (rng.normal(size=(*s, *t.shape)).astype(dtype) for s, t in zip((left, right), types, strict=True))
        for _ in range(2):
            np.testing.assert_array_equal(run(a, b), dot_general_p.block_kernel(env, a, b, **params))


def test_precision():
    assert canonicalize_precision(None) is None
    assert canonicalize_precision("highest") == (Precision.HIGHEST, Precision.HIGHEST)
    assert canonicalize_precision(("high", Precision.DEFAULT)) == (Precision.HIGH, Precision.DEFAULT)
    assert canonicalize_precision("BF16_BF16_F32") is DotAlgorithmPreset.BF16_BF16_F32
    with config.override("jax_default_matmul_precision", "float32"):
        assert canonicalize_precision(None) == (Precision.HIGHEST, Precision.HIGHEST)
    with pytest.raises(ValueError, match=r"lax\.Precision"):
        canonicalize_precision("sharp")
    a = np.full((1, 1), 1 + 2**-10, "f")
    rounded = dot_general_p.block_kernel(
        SINGLE, a, a, dimension_numbers=MATMUL, precision=DotAlgorithmPreset.BF16_BF16_F32, preferred_element_type=None
    )
    assert rounded.item() == 1 and rounded.dtype == np.float32
