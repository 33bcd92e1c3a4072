"""Initializers: values and dtypes as JAX has them, distributions, orthogonality."""

from __future__ import annotations

import numpy as np
import pytest

import shardwise
import shardwise.nn as nn
from shardwise import random
from shardwise.sharding import AxisType, Mesh, NamedSharding, P, use_mesh
from tests.numpy.face import cases, check_case, check_error

SCALED = "glorot_uniform glorot_normal lecun_uniform lecun_normal he_uniform he_normal".split()
KEY = "jax.random.key(3)"

CASES = (
    "\n".join(f"nn.initializers.{f}()({KEY}, (6, 4))" for f in SCALED)
    + f"""
nn.initializers.zeros({KEY}, (2, 3))
nn.initializers.ones({KEY}, (2, 3), "float16")
nn.initializers.constant(3)({KEY}, (2, 3))
nn.initializers.constant(np.arange(3.0), "bfloat16")({KEY}, (2, 3))
nn.initializers.uniform()({KEY}, (2, 3))
nn.initializers.uniform(2.0)({KEY}, (2, 3), "float16")
nn.initializers.normal()({KEY}, (2, 3))
nn.initializers.normal(2.0, "bfloat16")({KEY}, (2, 3))
nn.initializers.normal(0.5)({KEY}, (2, 3), "complex64")
nn.initializers.truncated_normal()({KEY}, (2, 3))
nn.initializers.truncated_normal(2.0, lower=-1.0, upper=3.0)({KEY}, (2, 3))
nn.initializers.variance_scaling(2.0, "fan_out", "normal")({KEY}, (3, 4, 5))
nn.initializers.variance_scaling(2.0, "fan_geo_avg", "uniform", in_axis=(0, 1), out_axis=2)({KEY}, (3, 4, 5))
nn.initializers.variance_scaling(2.0, "fan_avg", "truncated_normal", batch_axis=0)({KEY}, (3, 4, 5))
nn.initializers.variance_scaling(2.0, "fan_avg", "normal", in_axis=np.array([0, 1]), out_axis=-1)({KEY}, (3, 4, 5))
nn.initializers.variance_scaling(1.0, "fan_in", "uniform")({KEY}, (4, 5), "complex64")
nn.initializers.variance_scaling(1.0, "fan_in", "truncated_normal")({KEY}, (4, 5), "complex64")
nn.initializers.variance_scaling(1.0, "fan_in", "normal", dtype="float16")({KEY}, (4, 5))
nn.initializers.orthogonal()({KEY}, (4, 4))
nn.initializers.orthogonal(2.0)({KEY}, (2, 3, 4))
nn.initializers.orthogonal(column_axis=0)({KEY}, (3, 5))
nn.initializers.orthogonal()({KEY}, (0, 5))
nn.initializers.delta_orthogonal()({KEY}, (3, 3, 2, 4))
nn.initializers.delta_orthogonal(2.0)({KEY}, (4, 3, 3))
"""
)

ERRORS = f"""
nn.initializers.he_normal()({KEY}, (6,))
nn.initializers.orthogonal()({KEY}, (6,))
nn.initializers.delta_orthogonal()({KEY}, (6, 6))
nn.initializers.delta_orthogonal()({KEY}, (3, 6, 5))
nn.initializers.variance_scaling(1.0, "fan", "normal")({KEY}, (4, 5))
nn.initializers.variance_scaling(1.0, "fan_in", "cauchy")({KEY}, (4, 5))
nn.initializers.normal()({KEY}, (2.5,))
"""


@pytest.mark.parametrize("line", cases(CASES))
def test_as_jax(line):
    check_case(line)


@pytest.mark.parametrize("line", cases(ERRORS))
def test_errors(line):
    check_error(line)


def test_other_names():
    assert nn.initializers.xavier_uniform is nn.initializers.glorot_uniform
    assert nn.initializers.kaiming_normal is nn.initializers.he_normal
    assert isinstance(nn.initializers.he_normal(), nn.initializers.Initializer)


def test_variances():
    key = random.key(0)
    for name, variance in (("he_normal", 2 / 400), ("lecun_uniform", 1 / 400), ("glorot_normal", 2 / 700)):
        # The variance of n samples is off by sqrt(2 / n) of it, here 0.4 %.
        assert np.var(getattr(nn.initializers, name)()(key, (400, 300))) == pytest.approx(variance, rel=0.02)


def test_out_sharding():
    mesh = Mesh(np.array(shardwise.devices()[:4]).reshape(2, 2), ("x", "y"), axis_types=(AxisType.Explicit,) * 2)
    target = NamedSharding(mesh, P("x", "y"))
    for init in (
        nn.initializers.zeros,
        nn.initializers.constant(2.0),
        nn.initializers.he_normal(),
        nn.initializers.uniform(),
    ):
        with use_mesh(mesh):
            split = init(random.key(1), (4, 8), np.float32, out_sharding=target)
        assert split.sharding.spec == P("x", "y")  # type: ignore[attr-defined]
        whole = init(random.key(1), (4, 8), np.float32)
        np.testing.assert_allclose(np.asarray(split), np.asarray(whole), rtol=1e-6)
    with pytest.raises(NotImplementedError, match="out_sharding"):
        nn.initializers.orthogonal()(random.key(1), (4, 8), np.float32, out_sharding=target)
