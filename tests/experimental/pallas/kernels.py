"""Kernels that run under shardwise and under JAX: each is a function of a `Library` that returns arrays."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

Library = SimpleNamespace  # jax, jnp, lax, pl, pltpu, plgpu
KERNELS: dict[str, Any] = {}


def kernel(function):
    KERNELS[function.__name__] = function
    return function


def normal(*shape, seed=0, dtype: Any = np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def call(m, body, out, *args, dtype: Any = np.float32, **options):
    shape = (
        m.jax.ShapeDtypeStruct(out, dtype) if isinstance(out, tuple) and all(isinstance(n, int) for n in out) else out
    )
    return m.pl.pallas_call(body, shape, interpret=True, **options)(*args)
