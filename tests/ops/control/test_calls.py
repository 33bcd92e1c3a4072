"""Functions with a derivative of their own keep it under `vmap`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.scipy import special

POINTS = jnp.array([0.0, 1.0, 6.0, -1.0])
OTHERS = jnp.array([1.75, 2.0, 2.0, 3.0])
FUNCTIONS: list[Callable[..., Any]] = [
    sw.nn.relu, sw.nn.relu6, jnp.i0, jnp.logaddexp, jnp.logaddexp2, special.logit, special.xlogy, special.xlog1py, special.entr, special.i1,
    lambda x: jnp.frexp(x)[0],
]  # fmt: skip


@pytest.mark.parametrize("function", FUNCTIONS)
def test_derivatives_of_maps_are_maps_of_derivatives(function: Callable[..., Any]) -> None:
    operands = (
        (POINTS, OTHERS) if function in (jnp.logaddexp, jnp.logaddexp2, special.xlogy, special.xlog1py) else (POINTS,)
    )
    tangents = tuple(jnp.ones_like(x) for x in operands)
    n = len(operands)
    for along in (0, None):
        axes = (0,) + (along,) * (n - 1)
        given = tuple(x if a == 0 else x[1] for x, a in zip(operands, axes, strict=True))
        seeds = tuple(t if a == 0 else t[1] for t, a in zip(tangents, axes, strict=True))
        own = sw.vmap(lambda *v: sw.jvp(function, v[:n], v[n:])[1], in_axes=axes + axes)(*given, *seeds)
        mapped = sw.jvp(sw.vmap(function, in_axes=axes), given, seeds)[1]
        np.testing.assert_array_equal(mapped, own)
        slope = sw.jit(sw.grad(lambda x, f=function, g=given, a=axes: sw.vmap(f, in_axes=a)(x, *g[1:]).sum()))(given[0])
        np.testing.assert_allclose(slope, sw.vmap(sw.grad(function), in_axes=axes)(*given), rtol=1e-6)


@pytest.mark.parametrize("axes", [(0, 0), (0, None), (None, 0)])
def test_scalars_beside_arrays_are_mapped(axes: tuple[int | None, int | None]) -> None:
    x, y = (jnp.arange(6.0).reshape(2, 3) if axes[0] == 0 else jnp.arange(3.0)), (OTHERS[:2] if axes[1] == 0 else 0.5)
    found = sw.vmap(jnp.logaddexp, in_axes=axes)(x, y)
    np.testing.assert_array_equal(found, jnp.logaddexp(x, jnp.asarray(y)[..., None]) + jnp.zeros((2, 3)))
    assert sw.vmap(sw.nn.softplus)(np.arange(6).reshape(2, 3)).shape == (2, 3)
