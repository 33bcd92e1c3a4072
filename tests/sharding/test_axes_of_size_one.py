"""Axes of size 1 in the specs of results: kept where the very first operand has them, as in JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as sw

CASES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "alone": lambda lib, x, o: x + 1,
    "first": lambda lib, x, o: x + o,
    "second": lambda lib, x, o: o + x,
    "second of a compiled function": lambda lib, x, o: lib.jit(lambda s, v: v * s)(o, x),
    "after a number": lambda lib, x, o: lib.jit(lambda s, v: v * s)(2.0, x),
    "before a number": lambda lib, x, o: lib.jit(lambda v, s: v * s)(x, 2.0),
    "after one of another rank": lambda lib, x, o: lib.jit(lambda s, v: v * s)(o[0], x),
    "beside a captured array": lambda lib, x, o: lib.jit(lambda v: v * o)(x),
    "in a tree": lambda lib, x, o: lib.jit(lambda t: {"b": t["b"] * 2, "a": t["a"]})({"a": o[0], "b": x})["b"],
    "of a loop": lambda lib, x, o: lib.lax.fori_loop(0, 2, lambda i, v: v * 2, x),
    "of a branch": lambda lib, x, o: lib.lax.cond(True, lambda v: v * 2, lambda v: v, x),
    "of a joined array": lambda lib, x, o: lib.numpy.concatenate([o, x]),
    "transposed": lambda lib, x, o: x.T,
    "of a product": lambda lib, x, o: o @ x,
    "given back": lambda lib, x, o: lib.jit(lambda s, v: v)(o, x),
}
SPECS = [("x", "y"), (None, "y"), (("x", "y"),), ("y", "x")]


@pytest.mark.usefixtures("latest")
@pytest.mark.parametrize("spec", SPECS, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_as_jax(name: str, spec: Any) -> None:
    jax = pytest.importorskip("jax")
    found = []
    for lib in (sw, jax):
        kinds = (lib.sharding.AxisType.Auto,) * 2
        mesh = lib.make_mesh((4, 1), ("x", "y"), axis_types=kinds, devices=lib.devices()[:4])
        x = lib.device_put(np.ones((8, 8), np.float32), lib.NamedSharding(mesh, lib.P(*spec)))
        found.append(tuple(CASES[name](lib, x, lib.numpy.ones((8, 8))).sharding.spec))
    assert found[0] == found[1]
