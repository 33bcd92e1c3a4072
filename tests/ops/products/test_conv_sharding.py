"""Convolutions split over space: windows travel, whole images do not, in the derivatives as well."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp
from shardwise.sharding import Mesh, NamedSharding, PartitionSpec
from tests.rounding import assert_normwise

P = PartitionSpec


def convolved(x, w, **options):
    return lax.conv_general_dilated(x, w, **options, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def gradients(**options):
    """Of a loss of two convolutions, for the image and both kernels."""

    def loss(x, w, v):
        y = jnp.tanh(convolved(x, w, **options))
        return (convolved(y, v, window_strides=(1, 1), padding="SAME") ** 2).sum()

    return sw.grad(loss, argnums=(0, 1, 2))


def arrays(size, features=3, taps=3):
    make = np.random.RandomState(size).randn
    shapes = [(2, size, size, 2), (taps, taps, 2, features), (3, 3, features, 2)]
    return [make(*shape).astype(np.float32) / 4 for shape in shapes]


def over_space():
    mesh = Mesh(np.array(sw.devices()[:8]).reshape(4, 2), ("x", "y"))
    return NamedSharding(mesh, P(None, "x", "y"))


@pytest.mark.parametrize("stride", [1, 2])
def test_derivatives_send_rims(stride):
    size = 64
    x, w, v = arrays(size)
    placed = sw.ShapeDtypeStruct(x.shape, np.float32, sharding=over_space())
    compiled = sw.jit(gradients(window_strides=(stride, stride), padding="SAME")).lower(placed, w, v).compile()
    found = compiled.runtime_executable().transfers
    assert {t.kind for t in found} == {"permute", "all_reduce"}
    rims = 2 * 2 * 4 * 3 * (size // 2 + 2)  # two rows of a device's part, of both images of three features
    assert all(t.bytes <= rims for t in found if t.kind == "permute")
    assert {t.value for t in found if t.kind == "all_reduce"} == {"f32[3,3,2,3]", "f32[3,3,3,2]"}  # of kernels alone


@pytest.mark.parametrize("taps", [2, 3, 4])
@pytest.mark.parametrize("spread", [2, 4])
def test_derivatives_of_transposed_ones_send_rims(taps, spread):
    def loss(x, w):
        return (
            lax.conv_transpose(x, w, (spread, spread), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) ** 2
        ).sum()

    size = 64
    x, w, _ = arrays(size, taps=taps)
    where, both = over_space(), sw.grad(loss, argnums=(0, 1))
    placed = sw.ShapeDtypeStruct(x.shape, np.float32, sharding=where)
    compiled = sw.jit(both, out_shardings=(where, None)).lower(placed, w).compile()
    found = compiled.runtime_executable().transfers
    assert {t.kind for t in found} <= {"permute", "all_reduce"}
    rims = 2 * 2 * 4 * 3 * taps * (spread * size // 2 + 2)
    assert all(t.bytes <= rims for t in found if t.kind == "permute")
    for got, expected in zip(compiled(sw.device_put(x, where), w), both(x, w), strict=True):
        assert_normwise(got, expected, 2e-5)


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from([8, 16, 24]),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(*[st.tuples(st.integers(-1, 3), st.integers(-1, 3))] * 2),
    st.tuples(st.integers(1, 3), st.integers(1, 2)),
    st.tuples(st.integers(1, 2), st.integers(1, 3)),
    st.integers(1, 4),
)
def test_values_are_those_of_one_device(size, strides, padding, lhs_dilation, rhs_dilation, taps):
    options = dict(window_strides=strides, padding=padding, lhs_dilation=lhs_dilation, rhs_dilation=rhs_dilation)
    x, w, v = arrays(size, taps=taps)
    placed = sw.device_put(x, over_space())
    for f in (lambda x, w, v: (convolved(x, w, **options),), gradients(**options)):
        for got, want in zip(sw.jit(f)(placed, w, v), sw.jit(f)(x, w, v), strict=True):
            assert_normwise(got, want, 2e-5)


@pytest.mark.parametrize("patches", [8, 16])
def test_the_gradient_of_patches_sends_kernels_alone(patches):
    """As many patches as rows in each, or more: the kernel's gradient is a sum over devices, and no image travels."""
    where = NamedSharding(Mesh(np.array(sw.devices()[:8]), ("x",)), P(None, "x"))
    make = np.random.RandomState(0).randn
    x, w = (make(*shape).astype(np.float32) for shape in [(2, 8 * patches, 16, 3), (8, 8, 3, 4)])
    f = sw.grad(lambda x, w: (convolved(x, w, window_strides=(8, 8), padding="VALID") ** 2).sum(), (0, 1))
    compiled = sw.jit(f).lower(sw.ShapeDtypeStruct(x.shape, np.float32, sharding=where), w).compile()
    assert {(t.kind, t.value) for t in compiled.runtime_executable().transfers} == {("all_reduce", "f32[8,8,3,4]")}
    for got, expected in zip(compiled(sw.device_put(x, where), w), f(x, w), strict=True):
        assert_normwise(got, expected, 2e-5)


def test_an_image_as_kernel():
    """Both images are split: the result is a sum of the devices' parts."""
    x, k = (np.random.RandomState(i).randn(1, 16, 16, 2).astype(np.float32) for i in range(2))
    f = sw.jit(lambda x, k: convolved(x, k.transpose(1, 2, 3, 0), window_strides=(1, 1), padding=[(1, 1), (2, 2)]))
    want = np.asarray(f(x, k))
    assert_normwise(f(sw.device_put(x, over_space()), sw.device_put(k, over_space())), want, 1e-5)
