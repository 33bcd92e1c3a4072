"""`test_util`: right derivatives pass, wrong ones are found."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import shardwise as jax
import shardwise.numpy as jnp
from shardwise.test_util import check_grads, check_jvp, check_vjp

X = np.array([0.3, -1.2, 2.0], np.float32)
Z = np.array([0.3 + 1j, -1.2 - 0.5j], np.complex64)


@jax.custom_jvp
def wrong(x):
    return jnp.sin(x)


wrong.defjvp(lambda primals, tangents: (jnp.sin(primals[0]), 1.1 * jnp.cos(primals[0]) * tangents[0]))


@jax.custom_jvp
def wrong_second(x):
    return jnp.sin(x)


@jax.custom_jvp
def _slope(x):
    return jnp.cos(x)


wrong_second.defjvp(lambda primals, tangents: (jnp.sin(primals[0]), _slope(primals[0]) * tangents[0]))
_slope.defjvp(lambda primals, tangents: (jnp.cos(primals[0]), jnp.sin(primals[0]) * tangents[0]))


@pytest.mark.parametrize("modes", [("fwd",), ("rev",), ("fwd", "rev")])
def test_right_ones_pass(modes):
    tolerance = dict(atol=2e-3, rtol=2e-3)  # differences over steps of a thousandth, in float32
    check_grads(lambda x, n: {"a": jnp.sin(x) * n, "b": n}, (X, 3), 2, modes, **tolerance)
    check_grads(lambda z: z * jnp.exp(z), (Z,), 2, modes, **tolerance)
    check_grads(jnp.abs, (Z,), 1, modes, **tolerance)
    check_grads(lambda t: t["x"] @ t["x"], ({"x": X},), 2, modes, **tolerance)


def test_wrong_ones_are_found():
    for mode in ("fwd", "rev"):
        with pytest.raises(AssertionError, match=mode):
            check_grads(wrong, (X,), 1, (mode,))
    check_grads(wrong_second, (X,), 1, atol=2e-4, rtol=2e-4)  # likewise
    with pytest.raises(AssertionError, match=r"fwd of rev|rev of fwd|fwd of fwd"):
        check_grads(wrong_second, (X,), 2)
    with pytest.raises(AssertionError, match="mine"):
        check_jvp(wrong, partial(jax.jvp, wrong), (X,), err_msg="mine")
    with pytest.raises(AssertionError):
        check_vjp(jnp.sin, partial(jax.vjp, wrong), (X,))


def test_tolerances():
    # Anything passes at 1; a tolerance for another dtype is not that of this one.
    check_grads(wrong, (X,), 1, atol=1.0, rtol=1.0)
    check_grads(wrong, (X,), 1, atol={np.float32: 1.0}, rtol={np.float32: 1.0})  # as above
    with pytest.raises(AssertionError):
        check_grads(wrong, (X,), 1, atol={np.float64: 1.0}, rtol={np.float64: 1.0})  # not this one
    with pytest.raises(ValueError, match="'forward'"):
        check_grads(jnp.sin, (X,), 1, ("forward",))
