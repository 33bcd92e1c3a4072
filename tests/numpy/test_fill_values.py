"""What stands for missing elements is looked at, whether it is needed or not: refused, and taken into the type of the result, as in JAX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import shardwise.numpy as jnp

X = np.array([0, 7, 0, 8], np.int32)
FUNCTIONS = {
    "nonzero": lambda np_, x, fill: np_.nonzero(x, fill_value=fill),
    "nonzero of 3": lambda np_, x, fill: np_.nonzero(x, size=3, fill_value=fill),
    "argwhere": lambda np_, x, fill: np_.argwhere(x, fill_value=fill),
    "flatnonzero": lambda np_, x, fill: np_.flatnonzero(x, fill_value=fill),
    "where": lambda np_, x, fill: np_.where(x, fill_value=fill),
    "compress": lambda np_, x, fill: np_.compress(x > 0, x, fill_value=fill),
    "extract": lambda np_, x, fill: np_.extract(x > 0, x, fill_value=fill),
    "setdiff1d": lambda np_, x, fill: np_.setdiff1d(x, x[:1], fill_value=fill),
}
FILLS = {
    "text": "?!",
    "set": {1},
    "object": object(),
    "list": [1],
    "too many": (1, 2),
    "none of them": (),
    "array": np.arange(2),
    "float": 1.5,
    "int": 3,
    "NumPy": np.int16(5),
    "bool": True,
}


def _outcome(call: Any) -> Any:
    try:
        result = call()
    except (TypeError, ValueError) as error:
        return type(error).__name__
    parts = result if isinstance(result, tuple) else (result,)
    return [(str(p.dtype), bool(p.weak_type), np.asarray(p).tolist()) for p in parts]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_beside_jax(name):
    jax_numpy = pytest.importorskip("jax.numpy")
    run = FUNCTIONS[name]
    seen = {k: _outcome(lambda f=f: run(jnp, jnp.asarray(X), f)) for k, f in FILLS.items()}
    assert seen == {k: _outcome(lambda f=f: run(jax_numpy, jax_numpy.asarray(X), f)) for k, f in FILLS.items()}
