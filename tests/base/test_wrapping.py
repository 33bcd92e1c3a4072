"""Wrappers take on a function's identity and keep their own methods: jit and its kin of any callable object."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import shardwise as sw
import shardwise.numpy as jnp
from shardwise.base.wrapping import name_of
from shardwise.numpy import named_ufuncs

X = np.array([0.5, 2.0, 3.0], np.float32)
UFUNCS = [name for name in named_ufuncs.__all__ if isinstance(getattr(jnp, name), jnp.ufunc)]


class Callable:
    """A callable object whose attributes are named as those of wrappers are."""

    __name__ = "scaled"

    def __init__(self) -> None:
        self.note = "kept"
        self.fun = self._fun = self._call = self._options = self.jvp = self.fwd = self._trace = self.lower = (
            "not a function"
        )
        vars(self)["__call__"] = self._key = self._split = self.defjvp = self.defvjp = self.def_vmap = "not a function"

    def __call__(self, x):
        return 2 * x


def test_attributes_of_an_object_do_not_hide_the_wrappers_methods():
    fun = Callable()
    jitted = sw.jit(fun)
    np.testing.assert_array_equal(jitted(X), 2 * X)
    np.testing.assert_array_equal(jitted.lower(X).compile()(X), 2 * X)
    assert vars(jitted)["note"] == "kept" and jitted.__wrapped__ is fun
    ruled = sw.custom_jvp(fun)
    ruled.defjvp(lambda p, t: (fun(p[0]), 3 * t[0]))
    assert sw.grad(ruled)(1.0) == 3
    ruled = sw.custom_vjp(fun)
    ruled.defvjp(lambda x: (fun(x), ()), lambda _, ct: (5 * ct,))
    assert sw.grad(ruled)(1.0) == 5
    mapped = sw.custom_batching.custom_vmap(fun)
    mapped.def_vmap(lambda size, batched, x: (7 * x, True))
    np.testing.assert_array_equal(sw.vmap(mapped)(X), 7 * X)
    for wrap in (sw.checkpoint, sw.vmap, sw.named_call):
        np.testing.assert_array_equal(wrap(fun)(X), 2 * X)
    assert sw.grad(fun)(1.0) == 2


@pytest.mark.parametrize("name", UFUNCS)
def test_transformations_of_ufunc_objects(name):
    fun = getattr(jnp, name)
    args = [X.astype(int if name.startswith("bitwise") else np.float32)] * fun.nin
    expected = fun(*args)
    for wrap in (sw.jit, sw.vmap, sw.checkpoint):
        np.testing.assert_allclose(wrap(fun)(*args), expected, rtol=1e-6)
    assert sw.eval_shape(fun, *args).dtype == expected.dtype
    assert "lambda" in str(sw.make_jaxpr(fun)(*args))
    if fun.nin == 1:
        return
    x = args[0]
    for method, rest in (("reduce", ()), ("accumulate", ()), ("outer", (x,)), ("reduceat", (np.array([0, 2]),))):
        bound = getattr(fun, method)
        np.testing.assert_allclose(sw.jit(bound)(x, *rest), bound(x, *rest), rtol=1e-6)
    at = sw.jit(fun.at, static_argnames="inplace")
    np.testing.assert_allclose(at(x, 1, x[0], inplace=False), fun.at(x, 1, x[0], inplace=False), rtol=1e-6)


def test_partial_functions_have_the_name_of_the_function_inside():
    def step(scale, x):
        return scale * x

    made = functools.partial(functools.partial(step), 2.0)
    assert name_of(made) == sw.jit(made).__name__ == "step"
    assert sw.jit(made).trace(1.0).fun_name == "step"
    mapped = sw.pmap(made)
    assert mapped.trace(np.ones((1, 2))).fun_name == "step"

    class Scale:
        def __call__(self, x):
            return x

    assert name_of(Scale()) == "Scale"


class Named:
    """A callable object under whose special names stand other things than a function has there."""

    def __getattr__(self, name: str) -> int:
        return 7

    def __call__(self, x):
        return 2.0 * x


@pytest.mark.parametrize("transform", [sw.jit, sw.vmap, sw.checkpoint, sw.named_call, jnp.vectorize])
def test_objects_whose_name_is_no_string_are_transformed(transform):
    fun = Named()
    transformed = transform(fun)
    np.testing.assert_array_equal(transformed(X), 2 * X)
    assert transformed.__wrapped__ is fun
    np.testing.assert_array_equal(sw.vmap(sw.grad(fun))(X), np.full(3, 2.0))
    assert name_of(fun) == "Named"
