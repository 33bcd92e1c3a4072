"""`lax.stage`, `lax.shape_as_value`, `lax.scaled_dot`, and `pmax` and `pmin` of complex values."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax
from shardwise.sharding import Mesh
from shardwise.sharding import PartitionSpec as P


def test_stage_gives_values_of_the_current_trace():
    kinds = []
    sw.jit(lambda: kinds.append(isinstance(lax.stage(2.0), sw.core.Tracer)))()
    assert kinds == [True]
    assert lax.stage(2.0).weak_type and isinstance(lax.stage(np.arange(2)), sw.Array)
    assert sw.grad(lambda x: lax.stage(x) * 2)(1.0) == 2
    with pytest.raises(TypeError, match="list"):
        lax.stage([1])


def test_shapes_as_values():
    assert lax.shape_as_value((2, 3)).tolist() == [2, 3] and lax.shape_as_value(()).shape == (0,)
    assert lax.shape_as_value((2,)).dtype == np.int32 and lax.shape_as_value((2**33,)).dtype == np.int64


def test_scales_are_repeated_along_contracted_dims():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 3, 8)).astype(np.float32), rng.standard_normal((2, 8, 4)).astype(np.float32)
    left, right = rng.standard_normal((2, 3, 2)), rng.standard_normal((2, 4, 4))

    def half(x: Any) -> Any:
        return np.asarray(x).astype(ml_dtypes.bfloat16)

    scaled = half(a) * half(left).repeat(4, 2), half(b) * half(right).repeat(2, 1)
    expected = np.matmul(*[x.astype(np.float32) for x in scaled])
    found = lax.scaled_dot(a, b, lhs_scale=left, rhs_scale=right, preferred_element_type=jnp.float32)
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6, atol=1e-6)
    assert lax.scaled_dot(a, b).dtype == jnp.bfloat16
    for wrong in (left[:, :, :1].repeat(3, 2), left[:, :2], left[0]):
        with pytest.raises(TypeError, match="lhs_scale"):
            lax.scaled_dot(a, b, lhs_scale=wrong)
    with pytest.raises(TypeError, match="2 dims"):
        lax.scaled_dot(a[0, 0], b[0, 0])


@pytest.mark.parametrize("name", ["pmax", "pmin"])
def test_extrema_of_complex_values_order_by_real_then_imaginary_part(name):
    x = jnp.array([1 + 2j, 1 - 3j, 0.5 + 9j, 1 + 1j])
    collective = getattr(lax, name)
    expected = 1 + 2j if name == "pmax" else 0.5 + 9j
    np.testing.assert_array_equal(sw.vmap(lambda v: collective(v, "i"), axis_name="i")(x), np.full(4, expected))
    mesh = Mesh(np.array(sw.devices()[:4]), ("i",))
    mapped = sw.shard_map(lambda v: collective(v, "i"), mesh=mesh, in_specs=P("i"), out_specs=P())
    np.testing.assert_array_equal(mapped(x), [expected])
