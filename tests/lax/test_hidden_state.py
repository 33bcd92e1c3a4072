"""`rng_uniform` draws others at each call, in its bounds; `dce_sink` keeps nothing that runs and returns nothing."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import shardwise as sw
from shardwise import lax
from shardwise import numpy as jnp


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.uint8, np.int32])
def test_numbers_lie_in_their_bounds(dtype) -> None:
    low, high = jnp.asarray(2, dtype), jnp.asarray(5, dtype)
    x = np.asarray(lax.rng_uniform(low, high, (500,)))
    assert x.dtype == dtype and x.shape == (500,)
    assert ((x >= 2) & (x < 5)).all() and len(np.unique(x)) >= 3


def test_each_call_draws_others_in_programs_too() -> None:
    f = sw.jit(lambda: (lax.rng_uniform(0.0, 1.0, (4,)), lax.rng_uniform(0.0, 1.0, (4,))))
    (a, b), (c, _) = f(), f()
    assert (a != b).all() and (a != c).all()
    assert "rng_uniform[shape=(4,)]" in str(sw.make_jaxpr(f)())


def test_operands_are_scalars_of_one_dtype() -> None:
    with pytest.raises(ValueError, match="two scalars of one real dtype"):
        lax.rng_uniform(0, 1.0, (2,))
    with pytest.raises(ValueError, match="two scalars of one real dtype"):
        lax.rng_uniform(jnp.zeros(2), 1.0, (2,))


def test_sinks_give_nothing_and_change_nothing() -> None:
    def f(c, x):
        assert lax.dce_sink({"c": c * 2}, prevent_mlir_dce=True) is None
        return c + x, x

    total, _ = lax.scan(f, 0.0, jnp.arange(3.0))
    assert float(total) == 3.0
    assert float(sw.grad(lambda x: (lax.dce_sink(jnp.sin(x)), x * x)[1])(3.0)) == 6.0
    assert "dce_sink" not in str(sw.make_jaxpr(sw.vmap(lambda x: (lax.dce_sink(x), x)[1]))(jnp.zeros(3)))
