"""Arguments of kinds that functions of lax do not take are refused, not made to fit."""

from __future__ import annotations

import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise import lax

X = jnp.arange(6.0).reshape(2, 3)
REFUSED = {
    "a fraction for a dim": (TypeError, lambda: lax.concatenate([X, X], 1.5)),  # pyright: ignore[reportArgumentType]
    "starts without order": (TypeError, lambda: lax.dynamic_slice(X, {0, 1}, (1, 1))),
    "starts by name": (TypeError, lambda: lax.dynamic_update_slice(X, X[:1], {0: 1, 1: 2})),
    "none of the greatest": (ValueError, lambda: lax.approx_max_k(X, 0)),
    "less than none of the least": (ValueError, lambda: lax.approx_min_k(X, -1)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    kind, call = REFUSED[case]
    with pytest.raises(kind):
        call()


def test_bits_have_no_weak_type():
    number = 1.5
    assert not lax.bitcast_convert_type(number, jnp.float32).weak_type
    assert not sw.jit(lambda x: lax.bitcast_convert_type(x, jnp.float32))(number).weak_type
