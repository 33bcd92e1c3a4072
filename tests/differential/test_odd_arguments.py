"""Public functions with arguments that few programs give them, in tables: values and kinds of errors are JAX's."""

from __future__ import annotations

import pytest

from tests.differential.oracle import compare

# `told` gives the value of a call, or the kind of its error, NumPy's errors of axes being ValueErrors.
_TOLD = """
import functools, itertools
from jax import lax
def told(f, *args, **kwargs):
    try: return f(*args, **kwargs)
    except (TypeError, ValueError, NotImplementedError) as error:
        return next(kind.__name__ for kind in (TypeError, ValueError, NotImplementedError) if isinstance(error, kind))
"""

PROGRAMS = {
    # A mask of more dims than the array: the axes are those of the array, counted in the masked one.
    "masks of more dims": (
        "x = jnp.arange(1., 7.).reshape(2, 3)\n"
        "masks = [np.arange(12).reshape(2, 2, 3) % 2 == 0, np.ones((1, 2, 3), bool), np.arange(12).reshape(4, 3) % 3 > 0]\n"
        "calls = list(itertools.product([x, x[:1]], masks, [None, 0, -1, (0, 1), 2], [False, True]))\n"
        "result = [told(getattr(jnp, name), a, axis=axis, where=mask, keepdims=kept, **more)\n"
        "    for name, more in {'sum': {}, 'nanprod': {}, 'any': {}, 'max': {'initial': 2.}, 'mean': {}, 'nanmean': {}}.items()\n"
        "    for a, mask, axis, kept in calls]\n"
        "result += [told(jnp.bitwise_xor.reduce, a.astype(int), axis=axis, where=mask) for a, mask, axis, _ in calls]\n"
        "result += [told(f, a, axis=axis, where=mask) for f in (jax.nn.softmax, jax.nn.log_softmax) for a, mask, axis, _ in calls[:20]]\n"
        "result += [told(jnp.nanvar, a, axis=axis, where=masks[2]) for a in (x[:1],) for axis in (None, 0, 1)]\n"
        "result += [jax.grad(lambda a: (f(a, where=m) * jnp.cos(m + a)).sum())(x)\n"
        "    for m in masks[:2] for f in (jax.nn.softmax, jnp.sum)]"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_errors_agree(name: str) -> None:
    compare(_TOLD + PROGRAMS[name], devices=8)
