"""Convolutions: values against the oracle, the law of loop dims, types, rules and errors."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from shardwise.base.config import use_dialect
from shardwise.base.errors import ShardingTypeError
from shardwise.ir import ShapedArray, infer_types
from shardwise.ops.products.conv import conv_dimension_numbers, conv_general_dilated_p, padtype_to_pads
from shardwise.ops.products.conv_geometry import conv_general_permutations
from shardwise.ops.products.im2col import ConvWindow, convolve
from shardwise.runtime.env import SINGLE, Env
from shardwise.sharding import AbstractMesh, AxisType
from shardwise.sharding.rule import Kind
from tests.rounding import assert_same_products

RNG = np.random.default_rng(0)
LAYOUTS = {1: ("NCH", "OIH", "NCH"), 2: ("NCHW", "OIHW", "NCHW"), 3: ("NCHWD", "OIHWD", "NCHWD")}


def params(
    space=2,
    strides=None,
    padding=None,
    lhs_dilation=None,
    rhs_dilation=None,
    dims: Any = None,
    groups=1,
    batch_groups=1,
    preferred=None,
    out_sharding=None,
):
    ones = (1,) * space
    return dict[str, Any](
        window_strides=strides or ones,
        padding=padding or ((0, 0),) * space,
        lhs_dilation=lhs_dilation or ones,
        rhs_dilation=rhs_dilation or ones,
        dimension_numbers=conv_dimension_numbers((1,) * (space + 2), (1,) * (space + 2), dims or LAYOUTS[space]),
        feature_group_count=groups,
        batch_group_count=batch_groups,
        precision=None,
        preferred_element_type=preferred,
        out_sharding=out_sharding,
    )


CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 9, 8), (4, 3, 3, 2), {}),
    "strides": ((2, 3, 9, 8), (4, 3, 3, 2), dict(strides=(2, 3))),
    "pads": ((2, 3, 9, 8), (4, 3, 3, 2), dict(padding=((1, 2), (0, 3)))),
    "negative pads": ((2, 3, 9, 8), (4, 3, 3, 2), dict(padding=((-1, 2), (-2, -1)))),
    "lhs dilation": ((2, 3, 5, 4), (4, 3, 3, 2), dict(lhs_dilation=(2, 3), padding=((2, 1), (1, -2)))),
    "rhs dilation": ((2, 3, 9, 8), (4, 3, 3, 2), dict(rhs_dilation=(2, 3))),
    "everything": ((2, 3, 5, 6), (4, 3, 3, 2), dict(lhs_dilation=(2, 2), rhs_dilation=(2, 1), strides=(2, 1), padding=((3, 2), (1, 0)))),
    "feature groups": ((2, 6, 9, 8), (8, 3, 3, 2), dict(groups=2)),
    "depthwise": ((2, 6, 9, 8), (12, 1, 3, 2), dict(groups=6, padding=((1, 1), (1, 0)))),
    "batch groups": ((6, 3, 9, 8), (4, 3, 3, 2), dict(batch_groups=2)),
    "pointwise": ((2, 3, 9, 8), (4, 3, 1, 1), {}),
    "pointwise strided": ((2, 3, 9, 8), (4, 3, 1, 1), dict(strides=(2, 2))),
    "whole": ((2, 3, 4, 5), (4, 3, 4, 5), {}),
    "too large a window": ((2, 3, 4, 5), (4, 3, 6, 5), {}),
    "one dim": ((2, 3, 20), (4, 3, 5), dict(space=1, strides=(2,), padding=((2, 2),))),
    "three dims": ((2, 3, 5, 6, 4), (4, 3, 2, 3, 2), dict(space=3, padding=((1, 0), (0, 1), (1, 1)))),
    "no space": ((2, 3), (4, 3), dict(space=0, dims=("NC", "OI", "NC"))),
    "features last": ((2, 9, 8, 3), (3, 2, 3, 4), dict(dims=("NHWC", "HWIO", "NHWC"), padding=((1, 1), (1, 0)))),
    "features last in groups": ((2, 9, 8, 6), (3, 2, 3, 8), dict(dims=("NHWC", "HWIO", "NHWC"), groups=2)),
    "features last depthwise": ((2, 9, 8, 6), (3, 2, 1, 12), dict(dims=("NHWC", "HWIO", "NHWC"), groups=6)),
    "mixed layouts": ((9, 2, 3, 8), (3, 4, 2, 3), dict(dims=("HNCW", "IOWH", "CWNH"), rhs_dilation=(2, 1))),
    "weight gradient": ((3, 2, 9, 8), (4, 2, 7, 7), dict(dims=("NCHW", "OIHW", "CNHW"))),
}  # fmt: skip


def arrays(case, dtype: Any = np.float32):
    left, right, options = CASES[case]
    scale = 5 if np.dtype(dtype).kind in "iu" else 1
    x, w = ((RNG.normal(size=s) * scale).astype(dtype) for s in (left, right))
    return x, w, params(**options)


def assert_convolved(got, x, w, p, want):
    """`got` is `want`, the convolution of `x` and `w`, but for the rounding of its sums."""
    sizes = conv_general_dilated_p.block_kernel(SINGLE, *(np.abs(v.astype(np.complex128)) for v in (x, w)), **p)
    outputs = w.shape[p["dimension_numbers"].rhs_spec[0]]
    assert_same_products(got, want, sizes, w.size // outputs)


@pytest.mark.parametrize("case", CASES)
def test_values_are_those_of_the_oracle(case):
    jax = pytest.importorskip("jax")
    x, w, p = arrays(case)
    dims = jax.lax.ConvDimensionNumbers(*p["dimension_numbers"])
    want = jax.lax.conv_general_dilated(x, w, **{**p, "dimension_numbers": dims})
    got = conv_general_dilated_p.block_kernel(SINGLE, x, w, **p)
    types = (ShapedArray(x.shape, x.dtype), ShapedArray(w.shape, w.dtype))
    assert infer_types(conv_general_dilated_p, types, p)[0].shape == got.shape == want.shape
    assert got.dtype == want.dtype
    assert_convolved(got, x, w, p, want)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    "extents", [((2,), (1,)), ((1,), (2,)), ((2,), (2,)), ((2, 1), (2, 3)), ((3, 1), (1, 2)), ((1,), (1,))]
)
def test_loop_dims_are_independent_convolutions(case, extents):
    x, w, p = arrays(case, np.float64)
    left, right = extents
    xs, ws = RNG.normal(size=(*left, *x.shape)), RNG.normal(size=(*right, *w.shape))
    env = Env(tuple("xyz"[: len(left)]), tuple(np.broadcast_shapes(left, right)))
    got = conv_general_dilated_p.block_kernel(env, xs, ws, **p)
    for at in itertools.product(*map(range, env.axis_sizes)):
        one_x, one_w, one = (a[tuple(min(i, n - 1) for i, n in zip(at, a.shape, strict=False))] for a in (xs, ws, got))
        want = conv_general_dilated_p.block_kernel(SINGLE, one_x, one_w, **p)
        np.testing.assert_allclose(one, want, rtol=1e-12, atol=1e-12)


def test_strided_and_read_only_operands():
    x, w, p = arrays("pads", np.float64)
    want = conv_general_dilated_p.block_kernel(SINGLE, x, w, **p)
    big = np.zeros((2, *(2 * n for n in x.shape)))
    view = big[0, ::2, ::2, ::2, ::2]
    view[...] = x
    view.flags.writeable = False
    for plain in (p, {**p, "padding": ((0, 0), (0, 0))}):
        want = conv_general_dilated_p.block_kernel(SINGLE, x, w, **plain)
        np.testing.assert_allclose(
            conv_general_dilated_p.block_kernel(SINGLE, view, np.asfortranarray(w), **plain), want, rtol=1e-12
        )


def test_chunks_make_no_difference(monkeypatch):
    for case in ("pads", "features last", "feature groups", "one dim", "batch groups"):
        x, w, p = arrays(case, np.float64)
        want = conv_general_dilated_p.block_kernel(SINGLE, x, w, **p)
        with monkeypatch.context() as patch:
            patch.setattr("shardwise.ops.products.im2col.CHUNK", 50)
            np.testing.assert_allclose(conv_general_dilated_p.block_kernel(SINGLE, x, w, **p), want, rtol=1e-12)


def test_a_split_batch_stays_one_dense_array():
    x, w = RNG.normal(size=(8, 9, 9, 3)), RNG.normal(size=(3, 3, 3, 4))
    window = ConvWindow(
        (1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), conv_dimension_numbers(x.shape, w.shape, ("NHWC", "HWIO", "NHWC"))
    )
    block = x.reshape(4, 2, 9, 9, 3)
    got = convolve(block, w[None], 1, window, x.dtype)
    whole = got.reshape(8, 9, 9, 4)
    assert np.shares_memory(whole, got)
    np.testing.assert_allclose(whole, convolve(x, w, 0, window, x.dtype), rtol=1e-12)


@pytest.mark.parametrize("dtype", ["int8", "int32", "uint8"])
def test_integers_are_exact(dtype):
    jax = pytest.importorskip("jax")
    x, w, p = arrays("pads", dtype)
    dims = jax.lax.ConvDimensionNumbers(*p["dimension_numbers"])
    for preferred in (None, "int32" if dtype[0] == "i" else "uint32", "float32"):
        q = {**p, "preferred_element_type": None if preferred is None else np.dtype(preferred)}
        got = conv_general_dilated_p.block_kernel(SINGLE, x, w, **q)
        want = jax.lax.conv_general_dilated(x.astype("int32"), w.astype("int32"), **{**p, "dimension_numbers": dims})
        assert got.dtype == (preferred or dtype)
        np.testing.assert_array_equal(got, np.asarray(want).astype(preferred or dtype))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "complex64"])
def test_other_types(dtype):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    dtype = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x, w, p = arrays("strides", dtype)
    got = conv_general_dilated_p.block_kernel(SINGLE, x, w, **p)
    assert got.dtype == dtype
    wide = np.complex128 if dtype.kind == "c" else np.float64
    assert_convolved(got, x, w, p, conv_general_dilated_p.block_kernel(SINGLE, x.astype(wide), w.astype(wide), **p))


# -- types, rules, errors ----------------------------------------------------------------------------------------------------


def typed(left, right, dtype="float32", mesh_specs=None, **options):
    types = [ShapedArray(s, np.dtype(dtype)) for s in (left, right)]
    if mesh_specs:
        mesh = AbstractMesh((2, 4), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
        types = [t.update(mesh=mesh, spec=s) for t, s in zip(types, mesh_specs, strict=True)]
    return infer_types(conv_general_dilated_p, tuple(types), params(**options))[0]


@pytest.mark.parametrize(
    ("left", "right", "options"),
    [
        ((2, 3, 9, 8), (4, 3, 3), {}),
        ((2, 3, 9, 8), (4, 2, 3, 3), {}),
        ((2, 6, 9, 8), (4, 3, 3, 3), dict(groups=4)),
        ((2, 6, 9, 8), (5, 3, 3, 3), dict(groups=2)),
        ((3, 6, 9, 8), (4, 6, 3, 3), dict(batch_groups=2)),
        ((2, 3, 9, 8), (4, 3, 3, 3), dict(groups=-1)),
        ((2, 3, 9, 8), (4, 3, 3, 3), dict(strides=(1,))),
        ((2, 3, 9, 8), (4, 3, 3, 3), dict(padding=((-5, -5), (0, 0)))),
        ((4, 6, 9, 8), (4, 3, 3, 3), dict(groups=2, batch_groups=2)),
    ],
)
def test_sizes_that_do_not_fit(left, right, options):
    with pytest.raises(ValueError):
        typed(left, right, **options)


def test_types_that_do_not_fit():
    with pytest.raises(TypeError, match="one dtype"):
        infer_types(
            conv_general_dilated_p,
            (ShapedArray((2, 3, 9, 8), np.dtype("float32")), ShapedArray((4, 3, 3, 3), np.dtype("int32"))),
            params(),
        )
    with pytest.raises(TypeError, match="signedness"):
        typed((2, 3, 9, 8), (4, 3, 3, 3), "int8", preferred=np.dtype("uint8"))
    with pytest.raises(TypeError, match="narrower"):
        typed((2, 3, 9, 8), (4, 3, 3, 3), preferred=np.dtype("float16"))
    with pytest.raises(TypeError, match="Wrong number"):
        typed((2, 3, 9, 8), (4, 3, 3, 3), padding=((0, 0),))


def test_padding_modes_are_those_of_the_oracle():
    jax = pytest.importorskip("jax")
    for n, k, s, mode in itertools.product((1, 5, 8), (1, 2, 5), (1, 2, 3), ("SAME", "same_lower", "VALID")):
        assert padtype_to_pads((n,), (k,), (s,), mode) == [
            tuple(p) for p in jax.lax.padtype_to_pads((n,), (k,), (s,), mode)
        ]
    with pytest.raises(RuntimeError, match="Unrecognized"):
        padtype_to_pads((3,), (3,), (1,), "FULL")


def test_rule():
    types = (ShapedArray((2, 6, 9, 8), np.dtype("f")), ShapedArray((8, 3, 3, 1), np.dtype("f")))
    p = params(groups=2)
    rule = conv_general_dilated_p.sharding_rule(types, infer_types(conv_general_dilated_p, types, p), p)
    names = dict(zip("ngcswokhx", range(9), strict=False))
    assert rule.inputs[0][1] == (names["g"], names["c"])
    assert rule.outputs[0][1][0] == names["g"]
    kinds = [rule.kinds[f] for dim in rule.inputs[0] for f in dim]
    assert kinds == [Kind.PASS, Kind.PASS, Kind.REDUCE, Kind.PERMUTE, Kind.PASS]
    local = (ShapedArray((2, 3, 9, 8), np.dtype("f")), ShapedArray((4, 3, 3, 1), np.dtype("f")))
    assert conv_general_dilated_p.localize is not None
    local_params = conv_general_dilated_p.localize(p, local, (ShapedArray((2, 4, 7, 8), np.dtype("f")),))
    assert local_params["feature_group_count"] == 1


def test_explicit_shardings():
    with use_dialect("latest"):
        out = typed((4, 3, 8, 8), (4, 3, 1, 1), mesh_specs=((("x",), (), ("y",), ()), ((),) * 4))
        assert out.spec == (("x",), (), ("y",), ())
        with pytest.raises(ShardingTypeError, match="divisible"):
            typed((4, 3, 8, 8), (4, 3, 3, 3), mesh_specs=((("x",), (), ("y",), ()), ((),) * 4))
        for specs in (((("x",), (), (), ()), (("y",), (), (), ())), (((), ("x",), (), ()), ((),) * 4)):
            with pytest.raises(ShardingTypeError, match="out_sharding"):
                typed((4, 4, 8, 8), (4, 4, 1, 1), mesh_specs=specs)


@pytest.mark.parametrize("layout", [("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW"), ("HWNC", "OHWI", "CWHN")])
def test_large_windows_at_few_places(monkeypatch, layout):
    """What derivatives by the kernel ask for: the same as by the general way, in every layout, in pieces and by threads."""
    dims = conv_dimension_numbers((1,) * 4, (1,) * 4, layout)
    sized = lambda sizes, spec: [sizes[spec.index(d)] for d in range(4)]  # noqa: E731
    for strides, pads, gaps, spread, lead in [
        ((1, 1), ((1, 0), (0, 1)), (1, 1), (1, 1), ()),
        ((1, 2), ((2, 3), (-1, 1)), (1, 1), (2, 1), (2,)),
        ((1, 1), ((0, 0), (1, 1)), (2, 1), (1, 1), (3, 2)),
    ]:
        x = RNG.integers(-4, 4, (*lead, *sized((3, 5, 9, 11), dims.lhs_spec))).astype(np.float32)
        w = RNG.integers(-4, 4, (*lead, *sized((2, 5, 7 - 2 * (spread[0] - 1), 8), dims.rhs_spec))).astype(np.float32)
        window = ConvWindow(strides, pads, gaps, spread, dims)
        found = []
        for chunk, few in ((1 << 18, True), (64, True), (1 << 18, False)):
            monkeypatch.setattr("shardwise.ops.products.few_places._CHUNK", chunk)
            monkeypatch.setattr("shardwise.ops.products.im2col.has_few_places", lambda *_, few=few: few)
            found.append(convolve(x, w, len(lead), window, x.dtype))
        np.testing.assert_array_equal(found[0], found[2])
        np.testing.assert_array_equal(found[1], found[2])


@pytest.mark.parametrize(
    "n, t, c, o, k, stride, gap",
    [
        (3, 50, 4, 5, 5, 1, 1),
        (2, 41, 8, 3, 3, 2, 1),
        (1, 33, 5, 2, 4, 1, 2),
        (2, 9, 4, 4, 9, 1, 1),
        (2, 64, 1, 4, 6, 1, 1),
    ],
)
def test_windows_along_one_dim(n, t, c, o, k, stride, gap):
    """They overlap in memory, and nothing is copied."""
    x, w = RNG.normal(size=(n, t, c)), RNG.normal(size=(k, c, o))
    dims = conv_dimension_numbers(x.shape, w.shape, ("NWC", "WIO", "NWC"))
    got = convolve(x, w, 0, ConvWindow((stride,), ((0, 0),), (1,), (gap,), dims), x.dtype)
    count = (t - (k - 1) * gap - 1) // stride + 1
    parts = [x[:, j * gap : j * gap + (count - 1) * stride + 1 : stride] @ w[j] for j in range(k)]
    np.testing.assert_allclose(got, sum(parts), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("numbers", [(0, 0), (-1,), (1, 5, 2), b"abc", ("NCH", "OIH"), ("NCH", None, "NCH")], ids=repr)
def test_layouts_are_three_strings(numbers):
    with pytest.raises(ValueError, match="three strings"):
        conv_general_permutations(numbers)
