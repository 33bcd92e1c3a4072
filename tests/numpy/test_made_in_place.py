"""Arrays made like others, and reads of nothing, stay on the devices where JAX leaves them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp

MESH = sw.make_mesh((2,), ("a",), devices=sw.devices()[:2])
ALONE = sw.sharding.SingleDeviceSharding(sw.devices()[1])
SPLIT, WHOLE = sw.NamedSharding(MESH, sw.P("a")), sw.NamedSharding(MESH, sw.P())
MADE: dict[str, Callable[[Any], Any]] = {
    "lax.full_like": lambda x: lax.full_like(x, 1.0, shape=(3,)),
    "full_like": lambda x: jnp.full_like(x, 1, shape=(3,)),
    "zeros_like": lambda x: jnp.zeros_like(x, shape=(3, 2)),
}
READ: dict[str, Callable[[Any], Any]] = {
    "array": lambda x: x[jnp.array([], int)],
    "NumPy array": lambda x: x[np.zeros((0, 2), int)],
    "mask": lambda x: x[x > 100],
}


@pytest.mark.parametrize("name", [*MADE, *READ])
def test_one_device(name: str) -> None:
    y = {**MADE, **READ}[name](sw.device_put(np.arange(4.0, dtype=np.float32), ALONE))
    assert y.sharding == ALONE and y.committed and y.dtype == np.float32


@pytest.mark.parametrize("name", MADE)
def test_whole_on_each_device(name: str) -> None:
    make = MADE[name]
    assert make(sw.device_put(np.arange(4.0), WHOLE)).sharding == WHOLE
    assert not make(sw.device_put(np.arange(4.0), SPLIT)).committed
    assert not make(jnp.arange(4.0)).committed


@pytest.mark.parametrize("name", READ)
def test_reads_of_nothing_from_several_devices(name: str) -> None:
    assert not READ[name](sw.device_put(np.arange(4.0), WHOLE)).committed
