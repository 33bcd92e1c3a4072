"""PRNG keys are no numbers: functions that would only move or compare them refuse them, as in JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.scipy import stats

NUMBERS: list[Callable[..., Any]] = [
    *(jnp.ceil, jnp.floor, jnp.trunc, jnp.iscomplex, jnp.gradient, jnp.roots),
    *(jnp.unique, jnp.unique_all, jnp.unique_counts, jnp.unique_inverse, jnp.unique_values),
    *(jnp.fft.rfftn, jnp.linalg.matrix_rank, stats.mode, stats.rankdata),
]


@pytest.mark.parametrize("keys", ["one", "three"])
@pytest.mark.parametrize("function", NUMBERS, ids=lambda f: f.__name__)
def test_functions_of_numbers(function: Callable[..., Any], keys: str) -> None:
    key = sw.random.key(0)
    with pytest.raises(TypeError, match=r"numbers|does not accept|key<fry>"):
        function(key if keys == "one" else sw.random.split(key, 3))


def test_keys_have_no_truth_value() -> None:
    key = sw.random.key(0)
    for x in (key, sw.random.split(key, 3)):
        with pytest.raises(TypeError, match="no truth value"):
            bool(x)


def test_keys_do_not_go_through_dlpack() -> None:
    with pytest.raises(BufferError, match=r"random\.key_data"):
        np.from_dlpack(sw.random.key(0))


def test_functions_that_move_elements_take_keys() -> None:
    keys = sw.random.split(sw.random.key(0), 4)
    for moved in (jnp.reshape(keys, (2, 2)).ravel(), jnp.flip(jnp.flip(keys)), jnp.concatenate([keys[:2], keys[2:]])):
        assert (moved == keys).all()
