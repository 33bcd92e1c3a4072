"""Kernels give the values, dtypes and shapes that they give in JAX's interpreter."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import shardwise
import shardwise.numpy
from shardwise import lax
from shardwise.base.config import use_dialect
from shardwise.experimental import pallas
from shardwise.experimental.pallas import tpu, triton
from tests.experimental.pallas import (  # noqa: F401  which enter their kernels
    algorithm_kernels,
    block_kernels,
    ref_kernels,
    transformed_kernels,
)
from tests.experimental.pallas.kernels import KERNELS

OURS = SimpleNamespace(jax=shardwise, jnp=shardwise.numpy, lax=lax, pl=pallas, pltpu=tpu, plgpu=triton)


@pytest.fixture(scope="module")
def theirs():
    jax = pytest.importorskip("jax")
    from jax.experimental import pallas as pl
    from jax.experimental.pallas import tpu as pltpu
    from jax.experimental.pallas import triton as plgpu

    return SimpleNamespace(jax=jax, jnp=jax.numpy, lax=jax.lax, pl=pl, pltpu=pltpu, plgpu=plgpu)


@pytest.mark.parametrize("name", KERNELS)
def test_a_kernel_gives_what_it_gives_in_jax(name, theirs):
    expected, tree = theirs.jax.tree.flatten(KERNELS[name](theirs))
    with use_dialect("latest"):
        found = shardwise.tree.flatten(KERNELS[name](OURS))
    assert str(found[1]) == str(tree)
    for ours, other in zip(found[0], expected, strict=True):
        assert (ours.shape, ours.dtype, ours.weak_type) == (other.shape, other.dtype, other.weak_type)
        np.testing.assert_allclose(np.asarray(ours, np.float64), np.asarray(other, np.float64), rtol=2e-5, atol=2e-5)
