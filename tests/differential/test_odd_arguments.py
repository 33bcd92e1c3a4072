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
    "kinds of axes": (
        "x = jnp.arange(1., 7.).reshape(2, 3)\n"
        "several = [np.array([1]), np.array([0, 1]), jnp.array([0]), jnp.array([1, 0]), {1}]\n"
        "several += [(np.int8(-1),), [jnp.int32(0), np.int64(1)], range(2)]\n"
        "one = [jnp.int32(1), np.int64(0), True, np.uint8(1)]\n"
        "names = ['sum', 'max', 'any', 'mean', 'var', 'ptp', 'average', 'linalg.vector_norm']\n"
        "call = lambda name: functools.reduce(getattr, name.split('.'), jnp)\n"
        "result = [told(call(name), x, axis=axes) for name in names for axes in several + one]\n"
        "result += [told(jnp.fft.fftshift, x, axes) for axes in [*several, True]]\n"
        "result += [told(f, x, axis=axes) for f in (jax.nn.softmax, jax.nn.logsumexp) for axes in several[:2] + several[5:6] + one[1:]]\n"
        "result += [told(jax.nn.softmax, x, axis=axes) for axes in several[2:5]]\n"
        "result += [told(lambda: jax.scipy.fft.dctn(x, axes=axes).shape) for axes in one + several[5:]]\n"
        "result += [told(x.transpose, axes) for axes in several] + [told(x.sum, axes) for axes in several + one]"
    ),
    "collectives of keys and over no axes": (
        "mesh = mesh_of((4,), ('x',))\n"
        "def of(f, *xs):\n"
        "    call = jax.shard_map(lambda x: f(x), mesh=mesh, in_specs=P('x'), out_specs=P('x'), check_vma=False)\n"
        "    return [told(call, x) for x in xs] + [told(jax.vmap(f, axis_name='x'), x) for x in xs if x.dtype == bool]\n"
        "keys, bools = jax.random.split(jax.random.key(0), 16), jnp.arange(16) % 3 == 0\n"
        "result = [of(lambda x: f(x, 'x'), keys) for f in (lax.psum, lax.psum_scatter, lax.pmax, lax.pmin)]\n"
        "result += of(lambda x: lax.psum(x, ()), bools) + of(lambda x: lax.psum(x, 'x'), bools)"
    ),
    "ufuncs that are no reductions of their own": (
        "x = jnp.arange(12.).reshape(3, 4) / 8\n"
        "ufuncs = [jnp.subtract, jnp.logaddexp]\n"
        "result = [told(u.accumulate, x, axis=axis) for u in ufuncs for axis in (0, -1, 2, (0,))]\n"
        "result += [told(u.accumulate, x, axis=None) for u in (jnp.subtract, jnp.logical_and)]\n"
        "result += [told(u.reduce, x, where=where, initial=1) for u in ufuncs for where in (np.arange(12).reshape(3, 4), [1, 0, 1, 0])]\n"
        "result += [told(jnp.subtract.reduce, x, axis=axis, keepdims=kept) for axis in (0, 1) for kept in (True, False)]"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_errors_agree(name: str) -> None:
    compare(_TOLD + PROGRAMS[name], devices=8)
